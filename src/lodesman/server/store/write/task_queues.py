"""Task queues, their counters, and holds of those that no configured queue can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lodesman.decide.matching import TaskQueueKey, key_from_json, key_to_json
from lodesman.server.store.dialect import GIVEN, GIVEN_TEXTS, by_index, keys, least
from lodesman.server.store.ids import mark_ids
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.service import Judged

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

# Whoever joins a task queue changes its counter and the time when it was emptied.
_STILL_EMPTY = """SELECT 1 FROM task_queue_count c WHERE c.tq_id = ? AND c.waiting = 0 AND c.emptied_at = ?
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.tq_id = c.tq_id AND j.queued IS NOT NULL)"""

_OF_POOLS = (
    f"SELECT id, key, pool_id FROM task_queue WHERE pool_id IN {GIVEN_TEXTS} AND pool_id != '' ORDER BY id"
)
# What refers to a task queue and is more than history: single jobs, taken members of arrays, runs, what lives.
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
    """Store a new task queue with nothing waiting. `requirements`: the canonical text behind its SubmitPool."""
    tx.later(_INSERT_QUEUE, (number, key_to_json(key), tx.now, requirements))
    tx.later(_INSERT_COUNT, (number, 0))


def set_waiting(tx: Transaction, tq_id: int, waiting: int, *, as_of: int) -> None:
    """Store the counter as it is after the claims up to attempt `as_of`; the last of a batch is written."""
    tx.later(_SET_WAITING, (waiting, None if waiting else tx.now, as_of, tq_id))


def set_row_cursor(tx: Transaction, tq_id: int, job_id: int) -> None:
    """No row before this one waits in the task queue."""
    tx.later(SET_ROW_CURSOR, (job_id, tq_id))


def row_came_back(tx: Transaction, tq_id: int, job_id: int) -> None:
    """A row behind the front is Waiting again: the next read of the front must begin there. The row was read in this
    transaction, after the last claim: what that has set is written.
    """
    tx.later(_LOWER_CURSOR, (job_id, tq_id))


def hold_queue(tx: Transaction, event: int | None, tq_id: int, reason: str) -> None:
    """All waiting jobs of a task queue are Held from now on; without an event if only the reason has changed."""
    tx.later(_HOLD, (tq_id, reason, tx.now))
    if event is not None:
        tx.later(_INSERT_EVENT, (event, tx.now, tq_id, "Held", reason))


def release_queue(tx: Transaction, event: int | None, tq_id: int, reason: str) -> None:
    """Its jobs wait again; without an event if there are none."""
    tx.write("DELETE FROM task_queue_hold WHERE tq_id = ?", (tq_id,), rows=AT_MOST_ONE)
    if event is not None:
        tx.later(_INSERT_EVENT, (event, tx.now, tq_id, "Waiting", reason))


def store_reasons(tx: Transaction, changed: Mapping[int, Judged | None], facts_at: float | None) -> None:
    """Store the reasons of task queues that changed, None for one whose jobs wait no more."""
    for tq_id, reason in changed.items():
        if reason is None:
            tx.later(_DROP_REASON, (tq_id,))
        else:
            tx.later(_PUT_REASON, (tq_id, *reason, tx.now))
    tx.later(_REASONS_JUDGED, (tx.now, facts_at))


def is_still_empty(tx: Transaction, tq_id: int, emptied_at: float) -> bool:
    """Whether no job has joined a task queue since it was emptied, and no job of its own names it."""
    return bool(tx.read(_STILL_EMPTY, (tq_id, emptied_at)))


def delete_queues(tx: Transaction, ids: Iterable[int]) -> None:
    """Delete task queues with all that is known of them."""
    mark_ids(tx, "task_queue", "event")
    given = keys(ids)
    tx.write(f"DELETE FROM task_queue WHERE id IN {GIVEN}", (given,), rows=ANY)
    for what in ("count", "hold", "event", "reason"):
        tx.write(f"DELETE FROM task_queue_{what} WHERE tq_id IN {GIVEN}", (given,), rows=ANY)


def queues_of_pools(tx: Transaction, pools: Iterable[str]) -> list[tuple[int, TaskQueueKey, str]]:
    """(id, key, SubmitPool) of all task queues of these SubmitPools, empty ones too, oldest first."""
    rows = tx.read(_OF_POOLS, (keys(pools),))
    return [(number, key_from_json(key), pool) for number, key, pool in rows]


def queues_with_keys(tx: Transaction, texts: Iterable[str]) -> dict[str, int]:
    """Key text -> task queue, for those of the keys that one has."""
    return dict(tx.read(f"SELECT key, id FROM task_queue WHERE key IN {GIVEN_TEXTS}", (keys(texts),)))


def set_key(tx: Transaction, tq_id: int, key: str, requirements: str) -> None:
    """Give a task queue another key, which no other has."""
    tx.write(
        "UPDATE task_queue SET key = ?, requirements = ? WHERE id = ?", (key, requirements, tq_id), rows=ONE
    )


def keys_changed(tx: Transaction) -> None:
    """Let those who keep keys of task queues read them again."""
    tx.later(_NEXT_REKEYED, ())


def join_queues(tx: Transaction, gone: int, keep: int) -> None:
    """Move all that a task queue has to another one, but for the count of waiting jobs, and delete it.

    Counters and cursors must have been written: else they follow from attempts of the old one.
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
