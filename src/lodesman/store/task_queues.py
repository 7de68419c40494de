"""Task queues and their stored counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lodesman.matching import TaskQueueKey, key_from_json, key_to_json
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction

INSERT_QUEUE = "INSERT INTO task_queue (id, key, created_at, requirements) VALUES (?,?,?,?)"
INSERT_COUNT = "INSERT INTO task_queue_count (tq_id, waiting) VALUES (?, ?)"
SET_WAITING = """UPDATE task_queue_count SET waiting = ?1, emptied_at = iif(?1 = 0, ?2, NULL), as_of = ?3
WHERE tq_id = ?4"""
LOWER_CURSOR = "UPDATE task_queue_count SET row_cursor = min(row_cursor, ?) WHERE tq_id = ?"
INSERT_HOLD = "INSERT INTO task_queue_hold (tq_id, reason, since) VALUES (?,?,?)"
SET_REASON = "UPDATE task_queue_hold SET reason = ? WHERE tq_id = ?"
DELETE_HOLD = "DELETE FROM task_queue_hold WHERE tq_id = ?"
INSERT_EVENT = "INSERT INTO task_queue_event (id, at, tq_id, kind, reason) VALUES (?,?,?,?,?)"
_STORE_REASON = """INSERT INTO task_queue_reason (tq_id, reason, detail, since) VALUES (?,?,?,?)
ON CONFLICT (tq_id) DO UPDATE SET since = CASE WHEN reason = excluded.reason THEN since ELSE excluded.since END,
reason = excluded.reason, detail = excluded.detail"""
_FORGET_REASON = "DELETE FROM task_queue_reason WHERE tq_id = ?"
_REASONS_JUDGED = """INSERT INTO reason_pass (one, at, facts_at) VALUES (1, ?, ?)
ON CONFLICT (one) DO UPDATE SET at = excluded.at, facts_at = excluded.facts_at"""


def load_queues(db: Reader) -> Iterator[tuple[int, TaskQueueKey, int]]:
    """(id, key, waiting) of every task queue with waiting jobs, held ones too: what the index needs at start."""
    for number, key, waiting in db.execute(
        "SELECT q.id, q.key, c.jobs FROM task_queue q JOIN queue_jobs c ON c.tq_id = q.id WHERE c.jobs > 0"
    ):
        yield number, key_from_json(key), waiting


def find_queue(tx: Transaction, key: str) -> int | None:
    """The id of the task queue with this key text, if it was ever made."""
    found = tx.read("SELECT id FROM task_queue WHERE key = ?", (key,))
    return found[0][0] if found else None


def read_key(tx: Transaction, tq_id: int) -> TaskQueueKey:
    """The key of a stored task queue."""
    return key_from_json(tx.read("SELECT key FROM task_queue WHERE id = ?", (tq_id,))[0][0])


def insert_queue(tx: Transaction, number: int, key: TaskQueueKey, requirements: str = "") -> None:
    """Store a new task queue with nothing waiting. `requirements`: the canonical text behind its SubmitPool."""
    tx.later(INSERT_QUEUE, (number, key_to_json(key), tx.now, requirements))
    tx.later(INSERT_COUNT, (number, 0))


def set_waiting(tx: Transaction, tq_id: int, waiting: int, *, as_of: int) -> None:
    """Store the counter as it is after the claims up to attempt `as_of`; the last of a batch is written."""
    tx.last(SET_WAITING, tq_id, (waiting, tx.now, as_of, tq_id))


def row_came_back(tx: Transaction, tq_id: int, job_id: int) -> None:
    """A row behind the front is Waiting again: the next read of the front must begin there."""
    tx.write(LOWER_CURSOR, (job_id, tq_id))


def load_holds(db: Reader) -> dict[int, str]:
    """The task queues that no configured queue can run, with the reason."""
    return dict(db.execute("SELECT tq_id, reason FROM task_queue_hold"))


def hold(tx: Transaction, event: int, tq_id: int, reason: str) -> None:
    """All waiting jobs of a task queue are Held from now on."""
    tx.later(INSERT_HOLD, (tq_id, reason, tx.now))
    tx.later(INSERT_EVENT, (event, tx.now, tq_id, "Held", reason))


def say_why_held(tx: Transaction, tq_id: int, reason: str) -> None:
    """The reason of a hold reads otherwise now."""
    tx.later(SET_REASON, (reason, tq_id))


def release(tx: Transaction, event: int | None, tq_id: int, reason: str) -> None:
    """They wait again; without an event if there is none."""
    tx.write(DELETE_HOLD, (tq_id,))
    if event is not None:
        tx.later(INSERT_EVENT, (event, tx.now, tq_id, "Waiting", reason))


def store_reasons(
    tx: Transaction, changed: Mapping[int, tuple[str, str] | None], facts_at: float | None
) -> None:
    """Store the (reason, detail) of task queues that changed, None for one whose jobs wait no more."""
    for tq_id, reason in changed.items():
        if reason is None:
            tx.later(_FORGET_REASON, (tq_id,))
        else:
            tx.later(_STORE_REASON, (tq_id, *reason, tx.now))
    tx.later(_REASONS_JUDGED, (tx.now, facts_at))
