"""Members of cohorts that have no row: where they are, and range operations on them (DESIGN 3.2).

A hole takes members out of their run: `Held`, `Killed`, `Deleted`, or `Moved` (they are not here any more: they wait
in a newer run of the same submission, or were forgotten). Positions are indexes in the submission; job id = base +
index.
"""

from __future__ import annotations

from dataclasses import dataclass

from lodesman.store.ids import Ids
from lodesman.store.journal import Transaction

OVERLAPPING = """SELECT id, submission_id, tq_id, base, start, stop, cursor, template_id FROM cohort
WHERE submission_id = ? AND start < ? AND stop > ? ORDER BY id"""
HOLES = "SELECT start, stop, state, reason, at FROM hole WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"
INSERT_HOLE = "INSERT INTO hole (cohort_id, start, stop, state, reason, at) VALUES (?,?,?,?,?,?)"
DELETE_HOLE = "DELETE FROM hole WHERE cohort_id = ? AND start = ?"
INSERT_COHORT = """INSERT INTO cohort (id, submission_id, tq_id, base, start, stop, cursor, template_id)
VALUES (?,?,?,?,?,?,?,?)"""


@dataclass(frozen=True, slots=True)
class Cohort:
    """One run of members [start, stop); those from `cursor` on wait, except in holes."""

    id: int
    submission_id: int
    tq_id: int
    base: int
    start: int
    stop: int
    cursor: int
    template_id: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Members [start, stop) of a cohort in one state other than waiting, since `at`."""

    start: int
    stop: int
    state: str
    reason: str
    at: float


def overlapping(tx: Transaction, submission_id: int, start: int, stop: int) -> list[Cohort]:
    """The cohorts of a submission that touch the index range."""
    return [Cohort(*row) for row in tx.read(OVERLAPPING, (submission_id, stop, start))]


def holes(tx: Transaction, cohort_id: int, start: int, stop: int) -> list[Hole]:
    """The holes of a cohort that touch the index range, ascending."""
    return [Hole(*row) for row in tx.read(HOLES, (cohort_id, stop, start))]


def waiting_runs(cohort: Cohort, found: list[Hole], start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of [start, stop) that still wait in this cohort.

    `found` are its holes in that range, ascending.
    """
    at, end = max(cohort.cursor, start), min(cohort.stop, stop)
    runs = []
    for hole in found:
        if hole.start > at and at < end:
            runs.append((at, min(hole.start, end)))
        at = max(at, hole.stop)
    if at < end:
        runs.append((at, end))
    return runs


def add_hole(tx: Transaction, cohort_id: int, run: tuple[int, int], *, state: str, reason: str) -> None:
    """Take a waiting run out of its cohort."""
    tx.later(INSERT_HOLE, (cohort_id, *run, state, reason, tx.now))


def change_hole(
    tx: Transaction, cohort_id: int, hole: Hole, *, run: tuple[int, int], state: str, reason: str
) -> None:
    """Give part of a hole another state, now; what is left of it on both sides keeps its own, with time and reason."""
    tx.write(DELETE_HOLE, (cohort_id, hole.start))
    start, stop = max(hole.start, run[0]), min(hole.stop, run[1])
    for part in ((hole.start, start), (stop, hole.stop)):
        if part[0] < part[1]:
            tx.later(INSERT_HOLE, (cohort_id, *part, hole.state, hole.reason, hole.at))
    add_hole(tx, cohort_id, (start, stop), state=state, reason=reason)


def new_run(tx: Transaction, ids: Ids, cohort: Cohort, run: tuple[int, int]) -> None:
    """A new run of the same submission for members that wait again."""
    tx.later(
        INSERT_COHORT,
        (ids.cohort(), cohort.submission_id, cohort.tq_id, cohort.base, *run, run[0], cohort.template_id),
    )
