"""Task queues and their stored counters."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from lodesman.matching import TaskQueueKey, key_from_json, key_to_json
from lodesman.store.journal import Transaction

INSERT_QUEUE = "INSERT INTO task_queue (id, key, created_at) VALUES (?, ?, ?)"
INSERT_COUNT = "INSERT INTO task_queue_count (tq_id, waiting) VALUES (?, ?)"
SET_WAITING = """UPDATE task_queue_count SET waiting = ?1, emptied_at = iif(?1 = 0, ?2, NULL), as_of = ?3
WHERE tq_id = ?4"""
LOWER_CURSOR = "UPDATE task_queue_count SET row_cursor = min(row_cursor, ?) WHERE tq_id = ?"
TRUE_COUNTS = """
WITH row_count AS (SELECT tq_id, count(*) AS n FROM job WHERE queued IS NOT NULL AND state = 'Waiting' GROUP BY tq_id),
run_count AS (
  SELECT c.tq_id, sum(c.stop - c.cursor - coalesce(
    (SELECT sum(h.stop - max(h.start, c.cursor)) FROM hole h WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0)) AS n
  FROM cohort c WHERE c.cursor < c.stop GROUP BY c.tq_id)
SELECT t.tq_id, t.waiting, coalesce(r.n, 0) + coalesce(u.n, 0)
FROM task_queue_count t LEFT JOIN row_count r USING (tq_id) LEFT JOIN run_count u USING (tq_id)
WHERE t.waiting != coalesce(r.n, 0) + coalesce(u.n, 0)"""


def load_queues(db: apsw.Connection) -> Iterator[tuple[int, TaskQueueKey, int]]:
    """(id, key, waiting) of every task queue with waiting jobs: all that the index needs at start."""
    for number, key, waiting in db.execute(
        "SELECT q.id, q.key, c.waiting FROM task_queue q JOIN queue_waiting c ON c.tq_id = q.id WHERE c.waiting > 0"
    ):
        yield number, key_from_json(key), waiting


def find_queue(tx: Transaction, key: str) -> int | None:
    """The id of the task queue with this key text, if it was ever made."""
    found = tx.read("SELECT id FROM task_queue WHERE key = ?", (key,))
    return found[0][0] if found else None


def read_key(tx: Transaction, tq_id: int) -> TaskQueueKey:
    """The key of a stored task queue."""
    return key_from_json(tx.read("SELECT key FROM task_queue WHERE id = ?", (tq_id,))[0][0])


def insert_queue(tx: Transaction, number: int, key: TaskQueueKey) -> None:
    """Store a new task queue with nothing waiting."""
    tx.later(INSERT_QUEUE, (number, key_to_json(key), tx.now))
    tx.later(INSERT_COUNT, (number, 0))


def set_waiting(tx: Transaction, tq_id: int, waiting: int, *, as_of: int) -> None:
    """Store the counter as it is after the claims up to attempt `as_of`; the last of a batch is written."""
    tx.last(SET_WAITING, tq_id, (waiting, tx.now, as_of, tq_id))


def row_came_back(tx: Transaction, tq_id: int, job_id: int) -> None:
    """A row behind the front is Waiting again: the next read of the front must begin there."""
    tx.write(LOWER_CURSOR, (job_id, tq_id))


def wrong_counts(tx: Transaction) -> list[tuple[int, int, int]]:
    """(task queue, stored, counted) wherever the two differ: the reconciler's question."""
    return [(row[0], row[1], row[2]) for row in tx.read(TRUE_COUNTS)]
