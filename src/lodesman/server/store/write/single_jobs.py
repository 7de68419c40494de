"""Reads all jobs that a command names together, before it changes any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from lodesman.server.store.dialect import GIVEN, GIVEN_PAIRS, keys
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import cohorts, jobs
from lodesman.server.store.write.cohorts import CohortRow, Hole
from lodesman.server.store.write.jobs import SELECT_ROW, IdBlock, JobRow

_Member = tuple[int, int]  # a job, and the cohort that it is a member of
_ROWS: Final = f"{SELECT_ROW} WHERE j.id IN {GIVEN}"
# Blocks of ids never overlap, and no more do the holes of a cohort.
_BLOCK = "s.base = (SELECT max(base) FROM submission WHERE base <= given.value)"
_BLOCKS: Final = f"""SELECT given.value, s.id, s.base, s.count, s.owner, s.grp, s.vo, s.name FROM {GIVEN} given
JOIN submission s ON {_BLOCK} AND s.base + s.count > given.value"""
_COHORTS: Final = f"""SELECT given.value, c.id, c.submission_id, c.tq_id, c.base, c.start, c.stop, c.cursor, c.template_id
FROM {GIVEN} given JOIN submission s ON {_BLOCK}
JOIN cohort c ON c.submission_id = s.id AND c.start <= given.value - s.base AND c.stop > given.value - s.base
ORDER BY c.id"""
_HOLES: Final = f"""WITH given (cohort_id, at) AS {GIVEN_PAIRS}
SELECT given.at, h.cohort_id, h.start, h.stop, h.state, h.reason, h.at, h.admin_held
FROM given JOIN hole h ON h.cohort_id = given.cohort_id AND h.stop > given.at
AND h.start = (SELECT max(start) FROM hole WHERE cohort_id = given.cohort_id AND start <= given.at)"""


class SingleJobs(Struct, frozen=True, kw_only=True):
    """Jobs as before the command; others are read. Changing one leaves the others, but shared holes are read again."""

    ids: frozenset[int] = frozenset()
    _blocks: Mapping[int, IdBlock] = field(default_factory=dict)
    _rows: Mapping[int, JobRow] = field(default_factory=dict)
    _cohorts: Mapping[int, list[CohortRow]] = field(default_factory=dict)
    _holes: Mapping[_Member, list[Hole]] = field(default_factory=dict)
    _shared: Collection[_Member] = frozenset()  # members of holes that several of the jobs share

    def blocks(self, tx: Transaction, ids: range, owner: str) -> Iterable[IdBlock]:
        """As `jobs.submissions_between`."""
        if not self._has(ids):
            return jobs.submissions_between(tx, ids[0], ids[-1], owner=owner)
        block = self._blocks.get(ids[0])
        return [block] if block is not None else []

    def rows(self, tx: Transaction, ids: range, *, most: int) -> list[JobRow]:
        """As `jobs.rows_between`."""
        if not self._has(ids):
            return jobs.rows_between(tx, ids[0], ids[-1], most=most)
        row = self._rows.get(ids[0])
        return [row] if row is not None else []

    def cohorts(self, tx: Transaction, block: IdBlock, run: range) -> list[CohortRow]:
        """As `cohorts.cohorts_between`."""
        if not self._has(_ids(block.base, run)):
            return cohorts.cohorts_between(tx, block.submission, run)
        return self._cohorts.get(block.base + run[0], [])

    def holes(self, tx: Transaction, cohort: CohortRow, run: range) -> list[Hole]:
        """As `cohorts.holes_between`."""
        member = (cohort.base + run[0], cohort.id)
        if not self._has(_ids(cohort.base, run)) or member in self._shared:
            return cohorts.holes_between(tx, cohort.id, run)
        return self._holes.get(member, [])

    def _has(self, ids: range) -> bool:
        return len(ids) == 1 and ids[0] in self.ids


def _ids(base: int, run: range) -> range:
    return range(base + run.start, base + run.stop)


def single_jobs(tx: Transaction, ids: Sequence[int]) -> SingleJobs:
    """Collected rows are written first; none are collected meanwhile."""
    if not ids:
        return SingleJobs()
    values = (keys(ids),)
    touched: dict[int, list[CohortRow]] = {}
    for job_id, *row in tx.read(_COHORTS, values):
        touched.setdefault(job_id, []).append(CohortRow(*row))
    holes: dict[_Member, list[Hole]] = {}
    users: Counter[tuple[int, int]] = Counter()
    bases = {cohort.id: cohort.base for touching in touched.values() for cohort in touching}
    members = [
        (cohort.id, job_id - cohort.base) for job_id, touching in touched.items() for cohort in touching
    ]
    for at, cohort, *row in tx.read(_HOLES, (keys(members),)) if members else ():
        hole = Hole(*row)
        holes[bases[cohort] + at, cohort] = [hole]
        users[cohort, hole.start] += 1
    return SingleJobs(
        ids=frozenset(ids),
        _blocks={job_id: IdBlock(*row) for job_id, *row in tx.read(_BLOCKS, values)},
        _rows={row[0]: jobs.row_of(*row) for row in tx.read(_ROWS, values)},
        _cohorts=touched,
        _holes=holes,
        _shared={at for at, (hole,) in holes.items() if users[at[1], hole.start] > 1},
    )
