"""Deleting what is old: jobs with their chains, and what nothing refers to any more (the writer's side).

Each function takes keys that a reader found (`store.old`) and checks again what may have changed since. Set statements:
their cost is in the rows that they delete, so whoever calls bounds the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lodesman.jobs.states import TERMINAL
from lodesman.store.ids import mark_ids
from lodesman.store.journal import Transaction

ENDED = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL))
GIVEN = "(SELECT value FROM json_each(?))"

# A job that was killed while it ran has ended before its attempt has: its pilot still speaks of it.
OLD_JOBS = f"""SELECT j.id, j.attempt, j.last_event, j.last_attempt FROM job j LEFT JOIN attempt a ON a.id = j.last_attempt
WHERE j.id IN {GIVEN} AND j.state IN ({ENDED}) AND j.since < ?
AND (j.last_attempt IS NULL OR a.ended_at IS NOT NULL)"""
CHAIN = """WITH RECURSIVE chain (id) AS (SELECT value FROM json_each(?)
UNION SELECT t.previous FROM chain c JOIN {0} t ON t.id = c.id WHERE t.previous IS NOT NULL)
DELETE FROM {0} WHERE id IN (SELECT id FROM chain)"""
JOBS = f"DELETE FROM job WHERE id IN {GIVEN}"
CLAIMS_AT = "SELECT claims_at FROM leadership"
HOLES = f"""UPDATE hole SET state = 'Moved', reason = '' WHERE (cohort_id, start) IN
(SELECT value ->> '$[0]', value ->> '$[1]' FROM json_each(?)) AND state IN ({ENDED}) AND at < ?"""
TEMPLATES = f"DELETE FROM template WHERE id IN {GIVEN}"
EMPTY = f"""SELECT s.id FROM submission s WHERE s.id IN {GIVEN}
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id BETWEEN s.base AND s.base + s.count - 1)"""
# What belongs to a submission, in the order in which it goes; each at most so many rows at once.
BELONGINGS = (
    f"""DELETE FROM hole WHERE (cohort_id, start) IN (SELECT h.cohort_id, h.start FROM cohort c
    JOIN hole h ON h.cohort_id = c.id WHERE c.submission_id IN {GIVEN} LIMIT ?)""",
    f"DELETE FROM cohort WHERE id IN (SELECT id FROM cohort WHERE submission_id IN {GIVEN} LIMIT ?)",
    f"""DELETE FROM template WHERE id IN (SELECT t.id FROM submission s
    JOIN template t ON t.id BETWEEN s.first_template AND s.last_template WHERE s.id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM event WHERE id IN (SELECT e.id FROM submission s JOIN event e
    ON e.last_job IS NOT NULL AND e.job_id BETWEEN s.base AND s.base + s.count - 1 WHERE s.id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM sandbox_use WHERE (owner, sha256, submission_id) IN (SELECT owner, sha256, submission_id
    FROM sandbox_use WHERE submission_id IN {GIVEN} LIMIT ?)""",
)
SUBMISSIONS = f"DELETE FROM submission WHERE id IN {GIVEN}"
PILOT_TOKENS = (
    f"""DELETE FROM token WHERE pilot_id IN (SELECT id FROM pilot WHERE id IN {GIVEN} AND ended_at < ?)"""
)
PILOTS = f"DELETE FROM pilot WHERE id IN {GIVEN} AND ended_at < ?"
# Whoever joins a task queue changes its counter and the time when it was emptied.
STILL_EMPTY = """SELECT 1 FROM task_queue_count c WHERE c.tq_id = ? AND c.waiting = 0 AND c.emptied_at = ?
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.tq_id = c.tq_id AND j.queued IS NOT NULL)"""
QUEUE_TABLES = (
    ("task_queue", "id"),
    ("task_queue_count", "tq_id"),
    ("task_queue_hold", "tq_id"),
    ("task_queue_event", "tq_id"),
    ("task_queue_reason", "tq_id"),
)

GoneJob = tuple[int, int]


def keys_of(values: Sequence[Any]) -> str:
    """Keys as the statements take them."""
    return msgspec.json.encode(values).decode()


def old_jobs(tx: Transaction, ids: Sequence[int], before: float) -> list[tuple[Any, ...]]:
    """(job, attempts, last event, last attempt) of those that ended before that time, and their attempts, too."""
    return tx.read(OLD_JOBS, (keys_of(ids), before))


def claims_at(tx: Transaction) -> int:
    """Later attempts are still to be replayed after a crash: counters and cursors follow from them."""
    return int(tx.read(CLAIMS_AT)[0][0])


def delete_jobs(tx: Transaction, found: Sequence[tuple[Any, ...]]) -> list[GoneJob]:
    """Delete jobs with all their events and attempts; returns (job, attempts) of each."""
    mark_ids(tx, "event", "attempt")
    tx.write(CHAIN.format("event"), (keys_of([row[2] for row in found if row[2] is not None]),))
    tx.write(CHAIN.format("attempt"), (keys_of([row[3] for row in found if row[3] is not None]),))
    tx.write(JOBS, (keys_of([row[0] for row in found]),))
    return [(row[0], row[1]) for row in found]


def close_holes(tx: Transaction, keys: Sequence[tuple[int, int]], before: float) -> None:
    """Forget members that were killed or deleted before they were taken: (cohort, start) of their holes."""
    tx.write(HOLES, (keys_of(keys), before))


def delete_templates(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete templates that nothing refers to; nothing ever will again."""
    mark_ids(tx, "template")
    tx.write(TEMPLATES, (keys_of(ids),))


def delete_submissions(tx: Transaction, ids: Sequence[int], most: int) -> bool:
    """Delete submissions of which no job is left, with all that belongs to them; false if there is more to delete.

    At most `most` rows of each table at once; the submissions themselves go last.
    """
    empty = keys_of([row[0] for row in tx.read(EMPTY, (keys_of(ids),))])
    mark_ids(tx, "submission", "cohort", "template", "event")
    for statement in BELONGINGS:
        if tx.write(statement, (empty, most)) >= most:
            return False
    tx.write(SUBMISSIONS, (empty,))
    return True


def delete_pilots(tx: Transaction, ids: Sequence[int], before: float) -> None:
    """Delete pilots that ended before that time, with tokens that they never used."""
    mark_ids(tx, "pilot")
    tx.write(PILOT_TOKENS, (keys_of(ids), before))
    tx.write(PILOTS, (keys_of(ids), before))


def is_still_empty(tx: Transaction, tq_id: int, emptied_at: float) -> bool:
    """Whether nobody has joined a task queue since it was looked at, and no job of its own names it."""
    return bool(tx.read(STILL_EMPTY, (tq_id, emptied_at)))


def delete_queues(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete task queues with all that is known of them."""
    mark_ids(tx, "task_queue", "event")
    for table, column in QUEUE_TABLES:
        tx.write(f"DELETE FROM {table} WHERE {column} IN {GIVEN}", (keys_of(ids),))
