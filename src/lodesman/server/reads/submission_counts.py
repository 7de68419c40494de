"""The jobs of submissions counted by state, site, cause and reason.

Members without a row are counted by cohort, rows in blocks of ids (docs/adr/0067-submissions-are-counted-in-blocks.md). The
count of a block is kept until an event of one of its jobs comes; a purge appends none, so for ten minutes at most.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from lodesman.languages.jobs.selection import StepBudget
from lodesman.server.store import Reader
from lodesman.server.store.accounting import RETURNED
from lodesman.server.store.read.job_filter import ANY_JOB, build_filter
from lodesman.server.store.read.job_lists import MOST_STEPS
from lodesman.server.store.read.job_selector import JobSelector
from lodesman.server.store.read.submissions import (
    BLOCK,
    RowCount,
    Sight,
    StoredSubmission,
    changed_blocks,
    count_rows,
    judged_queues,
    last_event,
    list_submissions,
    other_members,
    waiting_members,
)
from lodesman.wire.job_queries import SubmissionRow, SubmissionsQuery
from lodesman.wire.vocabulary import JobState, MainReason

_KEPT_SECONDS: Final = 600.0
# After more events than that it is less work to count anew.
_MOST_EVENTS: Final = 200_000
_MOST_BLOCKS: Final = 50_000
# Submissions that one request looks at before it answers with what it found.
_MOST_LOOKED_AT: Final = 5_000
_PORTION: Final = 500


class SubmissionCounts:
    """The counts of blocks that are kept. Several threads use it, one at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = 0
        self._kept: dict[int, dict[int, tuple[float, list[RowCount]]]] = {}

    def find(
        self,
        db: Reader,
        query: SubmissionsQuery,
        sight: Sight,
        *,
        states: Sequence[str],
        before: int,
        budget: StepBudget | None = None,
    ) -> tuple[list[SubmissionRow], int | None]:
        """At most `query.limit` submissions with ids of jobs below `before`, and where to go on; None: that is all. Raises
        SelectionTooDear.
        """
        job_filter, rows_meant = build_filter(query), list[SubmissionRow]()
        selector = (
            JobSelector(job_filter, budget or StepBudget(MOST_STEPS)) if job_filter.is_judged_here else None
        )
        portion = min(_PORTION, query.limit + 1)
        for _ in range(max(1, _MOST_LOOKED_AT // portion)):
            stored, rows = self._portion(db, query, sight, before=before, most=portion, selector=selector)
            for row in rows:
                if not _is_meant(row, query, states):
                    continue
                if len(rows_meant) == query.limit:
                    return rows_meant, rows_meant[-1].first if rows_meant else before
                rows_meant.append(row)
            if len(stored) < portion:
                return rows_meant, None
            before = stored[-1].base
        return rows_meant, before

    def _portion(
        self,
        db: Reader,
        query: SubmissionsQuery,
        sight: Sight,
        *,
        before: int,
        most: int,
        selector: JobSelector | None,
    ) -> tuple[list[StoredSubmission], list[SubmissionRow]]:
        find = partial(list_submissions, db, query, sight, before=before, most=most, selector=selector)
        stored = None
        if build_filter(query) != ANY_JOB:
            with db:  # others count meanwhile: to read many descriptions takes long
                stored = find()
        # One snapshot: a member that is claimed meanwhile is counted once.
        with self._lock, db:
            self._take_in(db)
            stored = find() if stored is None else stored
            return stored, self._counted(db, stored)

    def _take_in(self, db: Reader) -> None:
        last = last_event(db)
        size = sum(map(len, self._kept.values()))
        if not self._seen <= last <= self._seen + _MOST_EVENTS or size > _MOST_BLOCKS:
            self._kept.clear()
        elif self._kept:
            for first, end in changed_blocks(db, self._seen, last):
                for block in range(first, end + 1) if end - first < len(self._kept) else list(self._kept):
                    if first <= block <= end:
                        self._kept.pop(block, None)
        self._seen = last

    def _counted(self, db: Reader, stored: Sequence[StoredSubmission]) -> list[SubmissionRow]:
        numbers = [submission.id for submission in stored if submission.size > 1]
        waiting: dict[int, list[RowCount]] = {}
        for number, tq_id, jobs in waiting_members(db, numbers) if numbers else ():
            waiting.setdefault(number, []).append(RowCount(tq_id, JobState.WAITING, "", "", int(jobs)))
        for number, state, jobs in other_members(db, numbers) if numbers else ():
            waiting.setdefault(number, []).append(RowCount(0, state, "", "", int(jobs)))
        counts = {
            submission.id: [*self._rows(db, submission), *waiting.get(submission.id, ())]
            for submission in stored
        }
        queues = {
            row.tq_id
            for rows in counts.values()
            for row in rows
            if row.state == JobState.WAITING and row.jobs
        }
        held, reasons = judged_queues(db, sorted(queues)) if queues else (set(), {})
        return [_row(submission, counts[submission.id], held, reasons) for submission in stored]

    def _rows(self, db: Reader, submission: StoredSubmission) -> Iterator[RowCount]:
        now, end = self._clock(), submission.base + submission.size
        for block in range(submission.base // BLOCK, (end - 1) // BLOCK + 1):
            kept = self._kept.setdefault(block, {})
            at, rows = kept.get(submission.id, (float("-inf"), []))
            if at + _KEPT_SECONDS < now:
                rows = count_rows(
                    db, range(max(submission.base, block * BLOCK), min(end, (block + 1) * BLOCK))
                )
                kept[submission.id] = (now, rows)
            yield from rows


def _is_meant(row: SubmissionRow, query: SubmissionsQuery, states: Sequence[str]) -> bool:
    """Without filters, any that has jobs not deleted."""
    shown = {state for state, jobs in row.states.items() if jobs}
    if not shown.intersection(states) if states else shown <= {JobState.DELETED}:
        return False
    filters = ((query.site, row.sites), (query.cause, row.causes), (query.reason, row.reasons))
    return all(not word or word in counts for word, counts in filters)


def _row(
    submission: StoredSubmission, rows: Sequence[RowCount], held: set[int], reasons: dict[int, str]
) -> SubmissionRow:
    states: Counter[JobState] = Counter()
    sites: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    why: Counter[MainReason] = Counter()
    for row in rows:
        if row.state not in frozenset(JobState):
            continue  # damaged: the log names the job where it is listed
        state = JobState(row.state)
        if state is JobState.WAITING:
            if row.tq_id in held:
                state = JobState.HELD
                why[MainReason.IMPOSSIBLE] += row.jobs
            elif reasons.get(row.tq_id):
                why[MainReason(reasons[row.tq_id])] += row.jobs
        states[state] += row.jobs
        if row.site:
            sites[row.site] += row.jobs
        # That a pilot gave a job back before it started is no failure.
        if row.cause and row.cause != RETURNED and state is not JobState.DONE:
            causes[row.cause] += row.jobs
    return SubmissionRow(
        submission.id, submission.base, submission.size, submission.owner, submission.group, submission.vo,
        submission.name, submission.created_at,
        dict(+states), dict(sites), dict(causes), dict(why),
    )  # fmt: skip
