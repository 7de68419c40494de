"""Task queues: keys, counters, pending reasons, and holds of those that no configured queue can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from lodesman.decide.matching import TaskQueueKey, key_from_json, key_to_json
from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import GIVEN, GIVEN_TEXTS, by_index, keys, least, member
from lodesman.server.store.ids import mark_ids
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.jobs import Job
from lodesman.wire.requests import MOST_ID
from lodesman.wire.service import WaitReason
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


# Keys that somebody keeps, by the digests of their texts: the director, the snapshot and the refresh of SubmitPools have
# one and the same of each task queue, and read it once.
_KEPT: Final[WeakValueDictionary[bytes, TaskQueueKey]] = WeakValueDictionary()


class JudgedQueue(NamedTuple):
    """A task queue that has jobs, is held, or may get jobs back."""

    id: int
    key: TaskQueueKey
    requirements: str
    jobs: int
    held: str | None  # the reason; None: its jobs wait
    may_return: int = 0  # a job of it runs, or a user holds one


def with_groups_and_classes(db: Reader, jobs: Sequence[Job]) -> list[Job]:
    """Jobs with the JobGroup and class of their task queues."""
    queues = {job.task_queue for job in jobs}
    by_queue = {
        number: (group, f"{name}.{variant}" if name else "")
        for number, group, name, variant in (
            db.execute(_GROUPS_AND_CLASSES, (keys(queues),)) if queues else ()
        )
        if group or name
    }
    shown = []
    for job in jobs:
        group, job_class = by_queue.get(job.task_queue, ("", ""))
        shown.append(replace(job, job_group=group, job_class=job_class) if group or job_class else job)
    return shown


def list_task_queues(
    db: Reader, *, limit: int, reason: str = "", vo: str = "", after: tuple[int, ...] | None = None
) -> list[TaskQueueRow]:
    """Fullest first; with jobs that wait, or are Held because no configured queue can run them.

    `reason`: None until judged. `after`: behind this number of jobs and this id.
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
    """(id, key, jobs). Unreadable keys are logged; their jobs wait."""
    return readable(
        lambda *row: (row[0], key_from_json(row[1]), row[2]), db.execute(_WITH_JOBS), "task queue"
    )


def waiting_by_queue(db: Reader) -> dict[int, int]:
    """Waiting jobs, by task queue."""
    return dict(db.execute("SELECT tq_id, waiting FROM queue_waiting WHERE waiting > 0"))


def held_queues(db: Reader) -> dict[int, str]:
    """Task queues that no configured queue can run, with the reason."""
    return dict(db.execute("SELECT tq_id, reason FROM task_queue_hold"))


def queue_with_key(db: Reader, key: TaskQueueKey) -> int | None:
    """None if it was never made."""
    return db.find(int, "SELECT id FROM task_queue WHERE key = ?", (key_to_json(key),))


def keys_by_id(
    db: Reader, ids: Iterable[int], damaged: dict[int, Exception] | None = None
) -> dict[int, TaskQueueKey]:
    """Unreadable keys go into `damaged`; without it, raises ValueError."""
    by_id = {}
    for number, text in db.execute(_KEYS, (keys(ids),)):
        try:
            by_id[number] = _shared_key(text)
        except ValueError as fault:
            if damaged is None:
                raise
            damaged[number] = fault
    return by_id


def _shared_key(text: Any) -> TaskQueueKey:
    """The same object for the same text as long as it is kept. Raises ValueError."""
    if not isinstance(text, str):  # a damaged row
        return key_from_json(text)
    digest = blake2b(text.encode(), digest_size=16).digest()
    key = _KEPT.get(digest)
    if key is None:
        key = _KEPT[digest] = key_from_json(text)
    return key


def keys_version(db: Reader) -> int:
    """Changes whenever task queues get other keys."""
    return int(db.only("SELECT rekeyed FROM submit_pool_state")[0])


def key_and_requirements(db: Reader, tq_id: int) -> tuple[TaskQueueKey, str]:
    """The key, and the canonical text of the Requirements."""
    key, requirements = db.only("SELECT key, requirements FROM task_queue WHERE id = ?", (tq_id,))
    return key_from_json(key), requirements


def queues_of_vo(db: Reader, vo: str) -> set[int]:
    """The ids of its task queues."""
    return {tq_id for (tq_id,) in db.execute(_OF_VO, (vo,))}


def queues_to_judge(db: Reader, damaged: dict[int, Exception]) -> Iterator[JudgedQueue]:
    """What a refresh holds or releases. Unreadable keys go into `damaged`."""
    for number, text, *more in db.execute(_JUDGED):
        try:
            key = _shared_key(text)
        except ValueError as fault:
            damaged[number] = fault
        else:
            yield JudgedQueue(number, key, *more)


# --- changes -----------------------------------------------------------------------------------------

SET_ROW_CURSOR = Statement(
    sql="UPDATE task_queue_count SET row_cursor = ? WHERE tq_id = ?",
    key=(-1,),
    newest=True,
)
_INSERT_QUEUE = Statement(
    sql="INSERT INTO task_queue (id, key, created_at, requirements) VALUES (?,?,?,?)",
    key=(0,),
)
_INSERT_COUNT = Statement(sql="INSERT INTO task_queue_count (tq_id, waiting) VALUES (?, ?)", key=(0,))
_SET_WAITING = Statement(
    sql="UPDATE task_queue_count SET waiting = ?, emptied_at = ?, as_of = ? WHERE tq_id = ?",
    key=(-1,),
    newest=True,
)
_LOWER_CURSOR = Statement(
    sql=f"UPDATE task_queue_count SET row_cursor = {least('row_cursor', '?')} WHERE tq_id = ?",
    key=(-1,),
)
_HOLD = Statement(
    sql="""INSERT INTO task_queue_hold (tq_id, reason, since) VALUES (?,?,?)
    ON CONFLICT (tq_id) DO UPDATE SET reason = excluded.reason""",
    key=(0,),
)
_INSERT_EVENT = Statement(
    sql="INSERT INTO task_queue_event (id, at, tq_id, kind, reason) VALUES (?,?,?,?,?)",
    key=(0,),
)
_PUT_REASON = Statement(
    sql="""INSERT INTO task_queue_reason (tq_id, reason, detail, next_reason, next_jobs, next_before, since)
    VALUES (?,?,?,?,?,?,?) ON CONFLICT (tq_id) DO UPDATE SET reason = excluded.reason, detail = excluded.detail,
    next_reason = excluded.next_reason, next_jobs = excluded.next_jobs, next_before = excluded.next_before,
    since = CASE WHEN task_queue_reason.reason = excluded.reason THEN task_queue_reason.since
    ELSE excluded.since END""",
    key=(0,),
)
_DROP_REASON = Statement(sql="DELETE FROM task_queue_reason WHERE tq_id = ?", key=(0,), rows=AT_MOST_ONE)
_REASONS_JUDGED = Statement(
    sql="""INSERT INTO reason_pass (one, at, facts_at) VALUES (1, ?, ?)
    ON CONFLICT (one) DO UPDATE SET at = excluded.at, facts_at = excluded.facts_at""",
)
_NEXT_REKEYED = Statement(
    sql="UPDATE submit_pool_state SET rekeyed = rekeyed + 1 WHERE one = 1",
    newest=True,
)

# A job that joins a task queue changes its counter and the time when it was emptied.
_STILL_EMPTY = """SELECT 1 FROM task_queue_count c WHERE c.tq_id = ? AND c.waiting = 0 AND c.emptied_at = ?
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.tq_id = c.tq_id AND j.queued IS NOT NULL)"""

_OF_POOLS = (
    f"SELECT id, key, pool_id FROM task_queue WHERE pool_id IN {GIVEN_TEXTS} AND pool_id != '' ORDER BY id"
)
# Live references to a task queue: single jobs, taken members of arrays, runs, live attempts and pilots.
_MOVES = (
    "UPDATE job SET tq_id = ? WHERE tq_id = ? AND queued IS NOT NULL",
    "UPDATE cohort SET tq_id = ? WHERE tq_id = ?",
    f"UPDATE attempt {by_index('attempt_live')} SET tq_id = ? WHERE tq_id = ? AND ended_at IS NULL",
    "UPDATE pilot SET tq_id = ? WHERE tq_id = ? AND ended_at IS NULL",
)
_JOIN_CURSORS = f"""UPDATE task_queue_count SET row_cursor = {
    least("row_cursor", "(SELECT row_cursor FROM task_queue_count WHERE tq_id = ?)")
} WHERE tq_id = ?"""


def insert_queue(tx: Transaction, number: int, key: TaskQueueKey, requirements: str = "") -> None:
    """Store a new, empty task queue. `requirements`: canonical."""
    tx.later(_INSERT_QUEUE, (number, key_to_json(key), tx.now, requirements))
    tx.later(_INSERT_COUNT, (number, 0))


def set_waiting(tx: Transaction, tq_id: int, waiting: int, *, as_of: int) -> None:
    """Store the counter as of attempt `as_of`; a batch writes the last one."""
    tx.later(_SET_WAITING, (waiting, None if waiting else tx.now, as_of, tq_id))


def set_row_cursor(tx: Transaction, tq_id: int, job_id: int) -> None:
    """No row before this one waits."""
    tx.later(SET_ROW_CURSOR, (job_id, tq_id))


def row_came_back(tx: Transaction, tq_id: int, job_id: int) -> None:
    """Let the front be read again from this row, which was read in this transaction after the last claim."""
    tx.later(_LOWER_CURSOR, (job_id, tq_id))


def hold_queue(tx: Transaction, event: int | None, tq_id: int, reason: str) -> None:
    """Hold all waiting jobs; without an event if only the reason changed."""
    tx.later(_HOLD, (tq_id, reason, tx.now))
    if event is not None:
        tx.later(_INSERT_EVENT, (event, tx.now, tq_id, "Held", reason))


def release_queue(tx: Transaction, event: int | None, tq_id: int, reason: str) -> None:
    """Without an event if there are no jobs."""
    tx.write("DELETE FROM task_queue_hold WHERE tq_id = ?", (tq_id,), rows=AT_MOST_ONE)
    if event is not None:
        tx.later(_INSERT_EVENT, (event, tx.now, tq_id, "Waiting", reason))


def store_reasons(tx: Transaction, changed: Mapping[int, WaitReason | None], facts_at: float | None) -> None:
    """None deletes a reason: the jobs wait no more."""
    for tq_id, reason in changed.items():
        if reason is None:
            tx.later(_DROP_REASON, (tq_id,))
        else:
            tx.later(_PUT_REASON, (tq_id, *reason, tx.now))
    tx.later(_REASONS_JUDGED, (tx.now, facts_at))


def is_still_empty(tx: Transaction, tq_id: int, emptied_at: float) -> bool:
    """Whether no job joined since, and no row names the task queue."""
    return bool(tx.read(_STILL_EMPTY, (tq_id, emptied_at)))


def delete_queues(tx: Transaction, ids: Iterable[int]) -> None:
    """Delete task queues with all that belongs to them."""
    mark_ids(tx, "task_queue", "event")
    values = keys(ids)
    tx.write(f"DELETE FROM task_queue WHERE id IN {GIVEN}", (values,), rows=ANY)
    for suffix in ("count", "hold", "event", "reason"):
        tx.write(f"DELETE FROM task_queue_{suffix} WHERE tq_id IN {GIVEN}", (values,), rows=ANY)


def queues_of_pools(tx: Transaction, pools: Iterable[str]) -> list[tuple[int, TaskQueueKey, str]]:
    """(id, key, SubmitPool), empty ones too, oldest first."""
    rows = tx.read(_OF_POOLS, (keys(pools),))
    return [(number, key_from_json(key), pool) for number, key, pool in rows]


def queues_with_keys(tx: Transaction, texts: Iterable[str]) -> dict[str, int]:
    """Ids by text of the key."""
    return dict(tx.read(f"SELECT key, id FROM task_queue WHERE key IN {GIVEN_TEXTS}", (keys(texts),)))


def set_key(tx: Transaction, tq_id: int, key: str, requirements: str) -> None:
    """No other task queue may have it."""
    tx.write(
        "UPDATE task_queue SET key = ?, requirements = ? WHERE id = ?", (key, requirements, tq_id), rows=ONE
    )


def keys_changed(tx: Transaction) -> None:
    """Let copies of keys be read again."""
    tx.later(_NEXT_REKEYED, ())


def join_queues(tx: Transaction, gone: int, keep: int) -> None:
    """Move all but the count of waiting jobs to another task queue, and delete this one. Counters and cursors must
    be written.
    """
    for start, stop in tx.read("SELECT base + start, base + stop FROM cohort WHERE tq_id = ?", (gone,)):
        tx.write(
            "UPDATE job SET tq_id = ? WHERE id >= ? AND id < ? AND tq_id = ?",
            (keep, start, stop, gone),
            rows=ANY,
        )
    for statement in _MOVES:
        tx.write(statement, (keep, gone), rows=ANY)
    tx.write(_JOIN_CURSORS, (gone, keep), rows=ONE)
    delete_queues(tx, [gone])
