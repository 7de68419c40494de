"""Members of cohorts that have no row: where they are, and operations on runs of them.

A hole takes members out of their run: `Held`, `Killed`, `Deleted`, or `Moved` (they are not here any more: they wait
in a newer run of the same submission, or were purged). Positions are indexes in the submission, a run is a `range` of
them; job id = base + index.
"""

from __future__ import annotations

from msgspec import Struct

from lodesman.store.ids import Ids
from lodesman.store.journal import Transaction

_OVERLAPPING = """SELECT id, submission_id, tq_id, base, start, stop, cursor, template_id FROM cohort
WHERE submission_id = ? AND start < ? AND stop > ? ORDER BY id"""
_HOLES = "SELECT start, stop, state, reason, at FROM hole WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"
_INSERT_HOLE = "INSERT INTO hole (cohort_id, start, stop, state, reason, at) VALUES (?,?,?,?,?,?)"
_DELETE_HOLE = "DELETE FROM hole WHERE cohort_id = ? AND start = ?"
_INSERT_COHORT = """INSERT INTO cohort (id, submission_id, tq_id, base, start, stop, cursor, template_id)
VALUES (?,?,?,?,?,?,?,?)"""


class CohortRow(Struct, frozen=True):
    """One run of members [start, stop); those from `cursor` on wait, except in holes."""

    id: int
    submission_id: int
    tq_id: int
    base: int
    start: int
    stop: int
    cursor: int
    template_id: int

    def ids(self, run: range) -> range:
        """The ids of the jobs of a run."""
        return range(self.base + run.start, self.base + run.stop)


class Hole(Struct, frozen=True):
    """Members [start, stop) of a cohort in one state other than waiting, since `at`."""

    start: int
    stop: int
    state: str
    reason: str
    at: float


def cohorts_between(tx: Transaction, submission_id: int, run: range) -> list[CohortRow]:
    """The cohorts of a submission that have one of these members."""
    return [CohortRow(*row) for row in tx.read(_OVERLAPPING, (submission_id, run.stop, run.start))]


def holes_between(tx: Transaction, cohort_id: int, run: range) -> list[Hole]:
    """The holes of a cohort that have one of these members, ascending."""
    return [Hole(*row) for row in tx.read(_HOLES, (cohort_id, run.stop, run.start))]


def waiting_runs(cohort: CohortRow, holes: list[Hole], run: range) -> list[range]:
    """The parts of a run that still wait in this cohort. `holes` are those in the run, ascending."""
    at, end = max(cohort.cursor, run.start), min(cohort.stop, run.stop)
    runs = []
    for hole in holes:
        if hole.start > at and at < end:
            runs.append(range(at, min(hole.start, end)))
        at = max(at, hole.stop)
    if at < end:
        runs.append(range(at, end))
    return runs


def add_hole(tx: Transaction, cohort_id: int, run: range, *, state: str, reason: str) -> None:
    """Take a waiting run out of its cohort."""
    tx.later(_INSERT_HOLE, (cohort_id, run.start, run.stop, state, reason, tx.now))


def change_hole(tx: Transaction, cohort_id: int, hole: Hole, run: range, *, state: str, reason: str) -> None:
    """Give a part of a hole another state; the rest on both sides keeps its state, time and reason."""
    tx.write(_DELETE_HOLE, (cohort_id, hole.start))
    for left in (range(hole.start, run.start), range(run.stop, hole.stop)):
        if left:
            tx.later(_INSERT_HOLE, (cohort_id, left.start, left.stop, hole.state, hole.reason, hole.at))
    add_hole(tx, cohort_id, run, state=state, reason=reason)


def insert_run(
    tx: Transaction, ids: Ids, run: range, *, submission: int, tq_id: int, base: int, template: int
) -> None:
    """Members that wait as one."""
    row = (ids.cohort(), submission, tq_id, base, run.start, run.stop, run.start, template)
    tx.later(_INSERT_COHORT, row)
