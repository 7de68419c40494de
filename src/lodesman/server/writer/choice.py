"""Which jobs of a range an action is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, Literal

from lodesman.languages.jobs.selection import SelectionTooDear, StepBudget
from lodesman.server.store import Reader
from lodesman.server.store.read.job_filter import ANY_JOB, JobFilter, build_filter
from lodesman.server.store.read.job_selector import JobKind, JobSelector, alike_between, count_between
from lodesman.server.store.write.cohorts import CohortRow
from lodesman.server.store.write.jobs import IdBlock, JobRow, stored_between
from lodesman.wire.job_queries import Selection

# The most in one command: tens of milliseconds of the writer's time.
MOST_ROWS: Final = 1_000
PASSED_OVER: Final = 0.05
"""The cost of passing over a submission of others, in rows."""
# Kinds of jobs judged in one go: a few hundredths of a second with long texts.
_AT_ONCE: Final = 20
# What one request may spend on texts of jobs: a second of a thread. The rest is for the next one.
_MOST_STEPS: Final = 50_000_000


@dataclass(frozen=True)
class Choice:
    """Other jobs are passed over: neither changed nor refused.

    Names and descriptions are judged beside the writer (`learn`), which finds the verdicts (`meant`). Jobs without
    one wait for the next command.
    """

    owner: str
    submissions: Collection[int] = ()
    states: Collection[str] = ()
    job_filter: JobFilter = ANY_JOB
    budget: StepBudget = field(default_factory=lambda: StepBudget(_MOST_STEPS))
    _selector: JobSelector = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_selector", JobSelector(self.job_filter, self.budget))

    @classmethod
    def of(cls, selection: Selection, user: str) -> Choice:
        """Raises InvalidRequest."""
        states = frozenset(map(str, selection.states))
        return cls(selection.owner or user, frozenset(selection.submissions), states, build_filter(selection))

    def learn(self, db: Reader, ranges: Iterable[range]) -> None:
        """Go on for the next command. Raises SelectionTooDear if its first job is too much."""
        for _ in self.learn_in_portions(db, ranges):
            pass

    def learn_in_portions(self, db: Reader, ranges: Iterable[range]) -> Iterator[Literal[False]]:
        """Others may use the connection in between."""
        self._selector.forget()
        with db:
            jobs = list(dict.fromkeys(alike_between(db, list(self._parts(db, ranges)))))
        yield False
        for begun in range(0, len(jobs), _AT_ONCE):
            with db:
                try:
                    self._selector.learn(db, jobs[begun : begun + _AT_ONCE])
                except SelectionTooDear:
                    if self._selector.judge(jobs[0]) is None:
                        raise
                    return
            yield False

    def _parts(self, db: Reader, ranges: Iterable[range]) -> Iterator[tuple[int, int]]:
        room = float(MOST_ROWS)
        for ids in ranges:
            for block in stored_between(db, ids[0], ids[-1], owner=self.owner):
                first, last = max(ids[0], block.base), min(ids[-1], block.base + block.count - 1)
                try:
                    passed_over = not self._has(block) or not self._selector.has_name(block.name)
                except SelectionTooDear:
                    if room == MOST_ROWS:
                        raise
                    return
                if passed_over:
                    room -= PASSED_OVER
                else:
                    count = 1
                    if first < last:
                        count, last = count_between(db, block.submission, range(first, last + 1), MOST_ROWS)
                    room -= 1 + count
                    yield first, last
                if room <= 0:
                    return

    def _has(self, block: IdBlock) -> bool:
        return not self.submissions or block.submission in self.submissions

    def judge_block(self, block: IdBlock) -> bool | None:
        """None: not known yet."""
        return self._has(block) and self._selector.judge_name(block.name)

    def meant(
        self, block: IdBlock, rows: Sequence[JobRow], touched: Sequence[CohortRow], run: range
    ) -> tuple[list[JobRow], list[CohortRow], int]:
        """Chosen rows and runs, as far as known; and where in the run that ends."""
        of_rows = [self._judge(block, row) for row in rows]
        of_runs = [self._judge(block, cohort) for cohort in touched]
        begins = [
            *(row.id - block.base for row in rows),
            *(max(cohort.start, run.start) for cohort in touched),
        ]
        stop = min(
            (at for at, is_met in zip(begins, (*of_rows, *of_runs), strict=True) if is_met is None),
            default=run.stop,
        )
        chosen = [row for row in compress(rows, of_rows) if row.id < block.base + stop]
        return (
            chosen,
            [cohort for cohort in compress(touched, of_runs) if max(cohort.start, run.start) < stop],
            stop,
        )

    def _judge(self, block: IdBlock, job: JobRow | CohortRow) -> bool | None:
        return self._selector.judge(JobKind(job.tq_id, job.template_id, block.name))
