"""Members of arrays without rows: cohorts, where they wait, and holes, where they do not."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lodesman.server.store.ids import Ids
from lodesman.server.store.statement import ONE, Statement
from lodesman.server.store.transaction import Transaction

_OVERLAPPING = """SELECT id, submission_id, tq_id, base, start, stop, cursor, template_id FROM cohort
WHERE submission_id = ? AND start < ? AND stop > ? ORDER BY id"""
_HOLES = """SELECT start, stop, state, reason, at, admin_held FROM hole
WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"""
_INSERT_HOLE = Statement(
    sql="INSERT INTO hole (cohort_id, start, stop, state, reason, at, admin_held) VALUES (?,?,?,?,?,?,?)",
    key=(0, 1),
)
_CHANGE_HOLE = Statement(
    sql="UPDATE hole SET state = ?, reason = ?, at = ?, admin_held = ? WHERE cohort_id = ? AND start = ?",
    key=(-2, -1),
)
_DELETE_HOLE = "DELETE FROM hole WHERE cohort_id = ? AND start = ?"
_INSERT_COHORT = Statement(
    sql="""INSERT INTO cohort (id, submission_id, tq_id, base, start, stop, cursor, template_id)
    VALUES (?,?,?,?,?,?,?,?)""",
    key=(0,),
)


class CohortRow(Struct, frozen=True):
    """Members [start, stop); those from `cursor` on wait, except in holes."""

    id: int
    submission_id: int
    tq_id: int
    base: int
    start: int
    stop: int
    cursor: int
    template_id: int


class Hole(Struct, frozen=True):
    """Members [start, stop) of a cohort in one state other than waiting."""

    start: int
    stop: int
    state: str
    reason: str
    at: float  # since when
    admin_held: int = 0  # as in a row


def cohorts_between(tx: Transaction, submission_id: int, run: range) -> list[CohortRow]:
    """Cohorts of a submission that overlap the run."""
    return [CohortRow(*row) for row in tx.read(_OVERLAPPING, (submission_id, run.stop, run.start))]


def holes_between(tx: Transaction, cohort_id: int, run: range) -> list[Hole]:
    """Holes of a cohort that overlap the run, ascending."""
    return [Hole(*row) for row in tx.read(_HOLES, (cohort_id, run.stop, run.start))]


def waiting_runs(cohort: CohortRow, holes: list[Hole], run: range) -> list[range]:
    """Parts of a run that wait. `holes`: in the run, ascending."""
    at, end = max(cohort.cursor, run.start), min(cohort.stop, run.stop)
    runs = []
    for hole in holes:
        if hole.start > at and at < end:
            runs.append(range(at, min(hole.start, end)))
        at = max(at, hole.stop)
    if at < end:
        runs.append(range(at, end))
    return runs


def add_hole(
    tx: Transaction, cohort_id: int, run: range, *, state: str, reason: str, admin_held: int = 0
) -> None:
    """Take a waiting run out of its cohort."""
    tx.later(_INSERT_HOLE, (cohort_id, run.start, run.stop, state, reason, tx.now, admin_held))


def change_hole(tx: Transaction, cohort_id: int, hole: Hole, run: range, **new: Any) -> None:
    """Of a part; the rest stays. `new`: as `add_hole`."""
    if (hole.start, hole.stop) == (run.start, run.stop):
        changed = (new["state"], new["reason"], tx.now, new.get("admin_held", 0))
        tx.later(_CHANGE_HOLE, (*changed, cohort_id, hole.start))
        return
    tx.write(_DELETE_HOLE, (cohort_id, hole.start), rows=ONE)
    for left in (range(hole.start, run.start), range(run.stop, hole.stop)):
        if left:
            kept = (cohort_id, left.start, left.stop, hole.state, hole.reason, hole.at, hole.admin_held)
            tx.later(_INSERT_HOLE, kept)
    add_hole(tx, cohort_id, run, **new)


def insert_run(
    tx: Transaction, ids: Ids, run: range, *, submission: int, tq_id: int, base: int, template: int
) -> int:
    """Store members that wait as one; returns the id of their cohort."""
    number = ids.cohort()
    tx.later(_INSERT_COHORT, (number, submission, tq_id, base, run.start, run.stop, run.start, template))
    return number
