"""Jobs that wait for other jobs, and members that left their run."""

from __future__ import annotations

from typing import Final, NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.dialect import greatest
from lodesman.server.store.statement import AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.cohorts import CohortRow
from lodesman.server.store.write.jobs import JobRow

_COLUMNS: Final = "job_id, first, ok, last_job, last, by_index, cancel, submission_id, parent_id, base"
_INSERT: Final = Statement(
    sql=f"INSERT INTO dependency ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)",
    key=(0, 1, 2),
)
_OF_JOB: Final = f"""SELECT {_COLUMNS} FROM dependency
WHERE submission_id = ? AND job_id <= ? AND last_job >= ? ORDER BY job_id, first"""
# Moved members are elsewhere.
_SOMETHING_LEFT: Final = f"""c.stop - c.cursor > coalesce((SELECT sum(h.stop - {greatest("h.start", "c.cursor")}) FROM hole h
  WHERE h.cohort_id = c.id AND h.stop > c.cursor AND h.state = 'Moved'), 0)"""
_WITHOUT_PARENTS: Final = f"""SELECT j.id, j.id + 1 FROM job j WHERE j.tq_id = ? AND j.queued IS NOT NULL
AND j.state = 'Waiting' AND NOT EXISTS (SELECT 1 FROM dependency d
  WHERE d.submission_id = j.submission_id AND j.id BETWEEN d.job_id AND d.last_job)
UNION ALL SELECT c.base + c.cursor, c.base + c.stop FROM cohort c WHERE c.tq_id = ? AND {_SOMETHING_LEFT}
AND NOT EXISTS (SELECT 1 FROM dependency d
  WHERE d.submission_id = c.submission_id AND d.job_id < c.base + c.stop AND d.last_job >= c.base + c.start)
LIMIT ?"""


class DependencyRow(NamedTuple):
    """Jobs of one submission that wait for jobs of another."""

    job_id: int
    first: int
    ok: int
    last_job: int
    last: int
    by_index: int
    cancel: int
    submission_id: int
    parent_id: int
    base: int


def dependencies(db: Reader) -> list[DependencyRow]:
    """All dependencies."""
    return [DependencyRow(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM dependency")]


def dependencies_of(db: Reader, submission: int, job_id: int) -> list[DependencyRow]:
    """What a job waits for."""
    return [DependencyRow(*row) for row in db.execute(_OF_JOB, (submission, job_id, job_id))]


def waiting_without_parents(db: Reader, tq_id: int, *, most: int) -> list[range]:
    """Jobs of a task queue for dependent jobs that wait for none."""
    return [range(*row) for row in db.execute(_WITHOUT_PARENTS, (tq_id, tq_id, most))]


def insert_dependency(tx: Transaction, row: DependencyRow) -> None:
    """Let jobs wait."""
    tx.later(_INSERT, tuple(map(int, row)))


def delete_dependency(tx: Transaction, row: DependencyRow) -> None:
    """The jobs may have been purged."""
    tx.write("DELETE FROM dependency WHERE job_id = ? AND first = ? AND ok = ?", row[:3], rows=AT_MOST_ONE)


def change_queue(tx: Transaction, row: JobRow, tq_id: int) -> None:
    """Move a job to another task queue; clears its reason if it waits."""
    reason = "" if row.state == "Waiting" else row.reason
    tx.write("UPDATE job SET tq_id = ?, reason = ? WHERE id = ?", (tq_id, reason, row.id), rows=ONE)


def move_cursor(tx: Transaction, cohort: CohortRow, cursor: int) -> int:
    """Move it on over members that left, too; returns it."""
    behind = "SELECT stop FROM hole WHERE cohort_id = ? AND start = ? AND state = 'Moved'"
    while rows := tx.read(behind, (cohort.id, cursor)):
        tx.write("DELETE FROM hole WHERE cohort_id = ? AND start = ?", (cohort.id, cursor), rows=ONE)
        ((cursor,),) = rows
    tx.write("UPDATE cohort SET cursor = ? WHERE id = ?", (cursor, cohort.id), rows=ONE)
    return cursor
