"""Suspects of the reconciler: found by readers in portions, checked again by key.

Each statement is one snapshot, and claims that are in the attempts alone so far count as the views count them: what is
found was true at one moment, and a claim under way is no fault.
"""

from __future__ import annotations

from typing import NamedTuple

from lodesman.jobs.states import ACTIVE
from lodesman.store import Reader
from lodesman.store.dialect import greatest

_JOBS = "SELECT max(id) FROM (SELECT id FROM job WHERE id > ? ORDER BY id LIMIT ?) portion"
_ON_A_NODE = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
_SUSPECT_JOBS = f"""SELECT j.id FROM job j WHERE j.id > ? AND j.id <= ?
AND ((j.state = 'Waiting' AND j.queued IS NULL) OR (j.state IN ({_ON_A_NODE})
AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.id = j.last_attempt AND a.ended_at IS NULL))) ORDER BY j.id LIMIT ?"""
_QUEUES = """SELECT max(tq_id) FROM
(SELECT tq_id FROM task_queue_count WHERE tq_id > ? ORDER BY tq_id LIMIT ?) portion"""
# What waits in some task queues as rows, and as members of runs that nobody touched.
_WAITING_ROWS = """SELECT tq_id, count(*) AS n FROM job
WHERE queued IS NOT NULL AND tq_id BETWEEN ? AND ? AND state = 'Waiting' GROUP BY tq_id"""
_REACHED = """SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id"""
_OPEN_RUNS = f"""SELECT c.id, c.tq_id, c.stop, {greatest("c.cursor", "coalesce(r.cursor, 0)")} AS cursor
FROM cohort c LEFT JOIN ({_REACHED}) r ON r.cohort_id = c.id WHERE c.cursor < c.stop AND c.tq_id BETWEEN ? AND ?"""
_IN_HOLES = f"""coalesce((SELECT sum(h.stop - {greatest("h.start", "o.cursor")}) FROM hole h
  WHERE h.cohort_id = o.id AND h.stop > o.cursor), 0)"""
_WAITING_MEMBERS = (
    f"""SELECT o.tq_id, {greatest("0", f"o.stop - o.cursor - {_IN_HOLES}")} AS n FROM ({_OPEN_RUNS}) o"""
)
_WRONG_COUNTS = f"""SELECT q.tq_id, q.jobs, coalesce(n.jobs, 0) FROM queue_jobs q LEFT JOIN (
  SELECT tq_id, sum(n) AS jobs FROM ({_WAITING_ROWS} UNION ALL {_WAITING_MEMBERS}) waiting GROUP BY tq_id
) n ON n.tq_id = q.tq_id WHERE q.tq_id BETWEEN ? AND ? AND q.jobs != coalesce(n.jobs, 0)"""


class WrongCount(NamedTuple):
    """A task queue whose stored counter is not what it counts."""

    tq_id: int
    stored: int
    counted: int


def last_job(db: Reader, after: int, portion: int) -> int | None:
    """The last row of the next portion; None if there are no more."""
    return _number(db, _JOBS, after, portion)


def suspect_jobs(db: Reader, after: int, last: int, limit: int) -> list[int]:
    """Jobs with after < id <= last that wait in no task queue, or are active without a live attempt."""
    return [row[0] for row in db.execute(_SUSPECT_JOBS, (after, last, limit))]


def last_queue(db: Reader, after: int, portion: int) -> int | None:
    """The last task queue of the next portion; None if there are no more."""
    return _number(db, _QUEUES, after, portion)


def wrong_counts(db: Reader, first: int, last: int) -> list[WrongCount]:
    """The task queues with first <= id <= last whose counter is not what it counts."""
    return [WrongCount(*row) for row in db.execute(_WRONG_COUNTS, (first, last) * 3)]


def _number(db: Reader, sql: str, after: int, portion: int) -> int | None:
    found = db.execute(sql, (after, portion)).fetchone()
    number: int | None = found[0] if found else None
    return number
