"""Faults of the books: found by readers in portions, looked at again by key.

Each statement is one snapshot, and claims that are in the attempts alone so far count as the views count them: what is
found was true at one moment, and a claim under way is no fault.
"""

from __future__ import annotations

from lodesman.jobs.states import ACTIVE
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction

JOBS = "SELECT max(id) FROM (SELECT id FROM job WHERE id > ? ORDER BY id LIMIT ?)"
ON_A_NODE = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
FAULTY = f"""((j.state = 'Waiting' AND j.queued IS NULL) OR (j.state IN ({ON_A_NODE})
AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.id = j.last_attempt AND a.ended_at IS NULL)))"""
DOUBTFUL_JOBS = f"SELECT j.id FROM job j WHERE j.id > ? AND j.id <= ? AND {FAULTY} ORDER BY j.id LIMIT ?"
QUEUES = "SELECT max(tq_id) FROM (SELECT tq_id FROM task_queue_count WHERE tq_id > ? ORDER BY tq_id LIMIT ?)"
# What waits in task queues ?1 to ?2 as rows, and as members of runs that nobody touched.
WAITING_ROWS = """SELECT tq_id, count(*) AS n FROM job
WHERE queued IS NOT NULL AND tq_id BETWEEN ?1 AND ?2 AND state = 'Waiting' GROUP BY tq_id"""
REACHED = """SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id"""
OPEN_RUNS = f"""SELECT c.id, c.tq_id, c.stop, max(c.cursor, coalesce(r.cursor, 0)) AS cursor
FROM cohort c LEFT JOIN ({REACHED}) r ON r.cohort_id = c.id WHERE c.cursor < c.stop AND c.tq_id BETWEEN ?1 AND ?2"""
WAITING_MEMBERS = f"""SELECT o.tq_id, max(0, o.stop - o.cursor - coalesce(
  (SELECT sum(h.stop - max(h.start, o.cursor)) FROM hole h WHERE h.cohort_id = o.id AND h.stop > o.cursor), 0)) AS n
FROM ({OPEN_RUNS}) o"""
COUNTED = f"""SELECT tq_id, sum(n) AS jobs FROM ({WAITING_ROWS} UNION ALL {WAITING_MEMBERS}) GROUP BY tq_id"""
# (task queue, stored, counted) wherever the two differ.
WRONG_COUNTS = f"""SELECT q.tq_id, q.jobs, coalesce(n.jobs, 0) FROM queue_jobs q LEFT JOIN ({COUNTED}) n
ON n.tq_id = q.tq_id WHERE q.tq_id BETWEEN ?1 AND ?2 AND q.jobs != coalesce(n.jobs, 0)"""

REQUEUE = "UPDATE job SET queued = 1 WHERE id = ? AND state = 'Waiting' AND queued IS NULL"
LAST_ATTEMPT = "SELECT ended_at, outcome, cause FROM attempt WHERE id = ?"
NO_ATTEMPT = "UPDATE job SET last_attempt = NULL WHERE id = ?"


def last_job(db: Reader, after: int, portion: int) -> int | None:
    """The last row of the next portion; None if there are no more."""
    return _number(db, JOBS, (after, portion))


def doubtful_jobs(db: Reader, span: tuple[int, int], limit: int) -> list[int]:
    """Jobs with span[0] < id <= span[1] that wait in no task queue, or are active without a live attempt."""
    return [row[0] for row in db.execute(DOUBTFUL_JOBS, (*span, limit))]


def last_queue(db: Reader, after: int, portion: int) -> int | None:
    """The last task queue of the next portion; None if there are no more."""
    return _number(db, QUEUES, (after, portion))


def doubtful_queues(db: Reader, span: tuple[int, int]) -> list[int]:
    """Task queues with span[0] < id <= span[1] whose counter is not what it counts."""
    return [row[0] for row in db.execute(WRONG_COUNTS, (span[0] + 1, span[1]))]


def wrong_count(tx: Transaction, tq_id: int) -> tuple[int, int] | None:
    """(stored, counted) of a task queue, if the two differ: looked at by its key."""
    found = tx.read(WRONG_COUNTS, (tq_id, tq_id))
    return (found[0][1], found[0][2]) if found else None


def _number(db: Reader, sql: str, values: tuple[int, int]) -> int | None:
    found = db.execute(sql, values).fetchone()
    number: int | None = found[0] if found else None
    return number
