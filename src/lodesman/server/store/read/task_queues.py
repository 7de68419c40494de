"""Task queues: those with jobs, their keys, why they are held, and what passes and the director need of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from lodesman.decide.matching import TaskQueueKey, key_from_json, key_to_json
from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import GIVEN, keys, member
from lodesman.wire.jobs import Job
from lodesman.wire.requests import MOST_ID
from lodesman.wire.task_queues import TaskQueueRow

_LIST = f"""SELECT * FROM (
  SELECT q.id, q.key, CASE WHEN h.tq_id IS NULL THEN c.jobs ELSE 0 END AS waiting,
  CASE WHEN h.tq_id IS NULL THEN 0 ELSE c.jobs END AS held,
  q.created_at, CASE WHEN h.tq_id IS NULL THEN r.reason ELSE 'impossible' END AS why,
  CASE WHEN h.tq_id IS NULL THEN r.detail ELSE h.reason END, coalesce(h.since, r.since), c.jobs AS jobs
  FROM queue_jobs c JOIN task_queue q ON q.id = c.tq_id LEFT JOIN task_queue_hold h ON h.tq_id = q.id
  LEFT JOIN task_queue_reason r ON r.tq_id = q.id
  WHERE c.jobs > 0 AND (? = '' OR {member("q.key", "vo")} = ?)
) listed WHERE (? = '' OR why = ?) AND (jobs < ? OR jobs = ? AND id > ?) ORDER BY jobs DESC, id LIMIT ?"""
_WITH_JOBS = (
    "SELECT q.id, q.key, c.jobs FROM task_queue q JOIN queue_jobs c ON c.tq_id = q.id WHERE c.jobs > 0"
)
_KEYS = f"SELECT id, key FROM task_queue WHERE id IN {GIVEN}"
_OF_VO = f"SELECT id FROM task_queue WHERE {member('key', 'vo')} = ?"
_GROUPS_AND_CLASSES = f"""SELECT id, coalesce({member("key", "project")}, ''), coalesce({member("key", "job_class")}, ''),
coalesce({member("key", "variant")}, '') FROM task_queue WHERE id IN {GIVEN}"""
_JUDGED = """SELECT q.id, q.key, q.requirements, c.jobs, h.reason, r.tq_id IS NOT NULL
FROM task_queue q JOIN queue_jobs c ON c.tq_id = q.id
LEFT JOIN task_queue_hold h ON h.tq_id = q.id
LEFT JOIN queue_may_return r ON r.tq_id = q.id
WHERE c.jobs > 0 OR h.tq_id IS NOT NULL OR r.tq_id IS NOT NULL"""


# The same keys are read at every refresh.
_kept_key = lru_cache(1 << 15)(key_from_json)


class JudgedQueue(NamedTuple):
    """A task queue that has jobs, is held, or that a job may return to. `held`: the reason, None if its jobs wait.

    `may_return`: a job of it runs, or a user holds one.
    """

    id: int
    key: TaskQueueKey
    requirements: str
    jobs: int
    held: str | None
    may_return: int = 0


def with_groups_and_classes(db: Reader, jobs: Sequence[Job]) -> list[Job]:
    """The jobs of a list, each with its JobGroup and its class, which it has by its task queue."""
    queues = {job.task_queue for job in jobs}
    by_queue = {
        number: (group, f"{name}.{variant}" if name else "")
        for number, group, name, variant in (
            db.execute(_GROUPS_AND_CLASSES, (keys(queues),)) if queues else ()
        )
        if group or name
    }
    found = []
    for job in jobs:
        group, job_class = by_queue.get(job.task_queue, ("", ""))
        found.append(replace(job, job_group=group, job_class=job_class) if group or job_class else job)
    return found


def list_task_queues(
    db: Reader, *, limit: int, reason: str = "", vo: str = "", after: tuple[int, ...] | None = None
) -> list[TaskQueueRow]:
    """Task queues with jobs that wait, or are Held because no configured queue can run them; fullest first.

    `reason`: only those with that pending reason; it is None until the task queue was judged. `vo`: only those of one VO.
    `after`: only what follows a task queue with this number of jobs and this id.
    """
    jobs, last = after or (MOST_ID, 0)
    rows = db.execute(_LIST, (vo, vo, reason, reason, jobs, jobs, last, limit))
    names = ("id", "waiting", "held", "created_at", "main_reason", "detail", "since")
    return [
        msgspec.convert(
            dict(zip(names, (number, *values[:-1]), strict=True)) | asdict(key_from_json(key)), TaskQueueRow
        )
        for number, key, *values in rows
    ]


def queues_with_jobs(db: Reader) -> Iterator[tuple[int, TaskQueueKey, int]]:
    """(id, key, jobs) of every task queue with waiting or held jobs: what the index needs at the start. The log names those
    whose keys cannot be read; their jobs wait.
    """
    return readable(
        lambda *row: (row[0], key_from_json(row[1]), row[2]), db.execute(_WITH_JOBS), "task queue"
    )


def waiting_by_queue(db: Reader) -> dict[int, int]:
    """Waiting jobs of each task queue that has some."""
    return dict(db.execute("SELECT tq_id, waiting FROM queue_waiting WHERE waiting > 0"))


def held_queues(db: Reader) -> dict[int, str]:
    """The task queues that no configured queue can run, with the reason."""
    return dict(db.execute("SELECT tq_id, reason FROM task_queue_hold"))


def queue_with_key(db: Reader, key: TaskQueueKey) -> int | None:
    """The id of the task queue with this key, if it was ever made."""
    return db.find(int, "SELECT id FROM task_queue WHERE key = ?", (key_to_json(key),))


def keys_by_id(
    db: Reader, ids: Iterable[int], damaged: dict[int, Exception] | None = None
) -> dict[int, TaskQueueKey]:
    """The keys of these task queues. `damaged`: where those come that cannot be read. Raises ValueError without it."""
    found = {}
    for number, text in db.execute(_KEYS, (keys(ids),)):
        try:
            found[number] = key_from_json(text)
        except ValueError as fault:
            if damaged is None:
                raise
            damaged[number] = fault
    return found


def keys_version(db: Reader) -> int:
    """Changes whenever task queues get other keys."""
    return int(db.only("SELECT rekeyed FROM submit_pool_state")[0])


def key_and_requirements(db: Reader, tq_id: int) -> tuple[TaskQueueKey, str]:
    """The key of a task queue and the canonical text of its Requirements."""
    key, requirements = db.only("SELECT key, requirements FROM task_queue WHERE id = ?", (tq_id,))
    return key_from_json(key), requirements


def queues_of_vo(db: Reader, vo: str) -> set[int]:
    """The task queues of a VO."""
    return {tq_id for (tq_id,) in db.execute(_OF_VO, (vo,))}


def queues_to_judge(db: Reader, damaged: dict[int, Exception]) -> Iterator[JudgedQueue]:
    """What a refresh holds or releases. `damaged`: where those come whose keys cannot be read."""
    for number, text, *more in db.execute(_JUDGED):
        try:
            key = _kept_key(text)
        except ValueError as fault:
            damaged[number] = fault
        else:
            yield JudgedQueue(number, key, *more)
