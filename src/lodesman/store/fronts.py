"""The front of each task queue: the next waiting jobs, read from the database in chunks.

A task queue holds rows (single jobs, jobs that came back) and runs (members of a cohort that were never
touched). Rows and runs are taken in the order of their ids. A front is a cache: it may be forgotten at
any time, the database knows all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from lodesman.store.claim_log import ClaimLog
from lodesman.store.jobs import CLAIM_MEMBER, CLAIM_ROW, INSERT_ATTEMPT, INSERT_EVENT
from lodesman.store.journal import Transaction

ROW_CHUNK = 128
RUN_CHUNK = 16

ROWS = """SELECT id, submission_id, template_id, attempt, last_event, last_attempt, max_attempts
FROM job WHERE queued IS NOT NULL AND tq_id = ? AND id >= ? AND state = 'Waiting' ORDER BY id LIMIT ?"""
RUNS = """SELECT c.id, c.submission_id, c.base, c.cursor, c.stop, c.template_id, t.max_attempts, c.first
FROM cohort c JOIN template t ON t.id = c.template_id
WHERE c.tq_id = ? AND c.cursor < c.stop AND (c.first, c.id) > (?, ?) ORDER BY c.first, c.id LIMIT ?"""
HOLES = "SELECT start, stop FROM hole WHERE cohort_id = ? AND stop > ? ORDER BY start"
ROW_CURSOR = "SELECT row_cursor FROM task_queue_count WHERE tq_id = ?"
SET_ROW_CURSOR = "UPDATE task_queue_count SET row_cursor = ? WHERE tq_id = ?"

# What claims from other task queues collect in a transaction changes nothing that is read for this one: written only
# for the sake of such a read, it would go to the database in small portions.
OTHER_CLAIMS = frozenset({CLAIM_MEMBER, CLAIM_ROW, INSERT_ATTEMPT, INSERT_EVENT, SET_ROW_CURSOR})
NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True)
class Candidate:
    """A waiting job about to be claimed. `cohort_id` is None for a row."""

    job_id: int
    submission_id: int
    template_id: int
    attempt: int
    last_event: int | None
    last_attempt: int | None
    max_attempts: int
    cohort_id: int | None = None


@dataclass(slots=True)
class _Run:
    cohort_id: int
    submission_id: int
    base: int
    cursor: int
    stop: int
    template_id: int
    max_attempts: int
    first: int
    holes: deque[tuple[int, int]]

    @property
    def head(self) -> int:
        """The id of the next member."""
        return self.base + self.cursor

    def skip_holes(self) -> bool:
        """Move the cursor over holes; false when nothing is left."""
        while self.holes and self.holes[0][0] <= self.cursor:
            start, stop = self.holes.popleft()
            if stop > self.cursor >= start:
                self.cursor = stop
        return self.cursor < self.stop


class _Front:
    """`runs` is a heap by the id of the next member; `last_run` is the last run read, (first id, cohort)."""

    __slots__ = ("last_run", "more_rows", "more_runs", "rows", "runs")

    def __init__(self) -> None:
        self.rows: deque[Candidate] = deque()
        self.runs: list[tuple[int, int, _Run]] = []
        self.more_rows = True
        self.more_runs = True
        self.last_run = (-1, -1)

    def add_run(self, run: _Run) -> None:
        """A run with something left joins."""
        heappush(self.runs, (run.head, run.cohort_id, run))


class Fronts:
    """All fronts in use, by task queue. Used from the writer's thread only."""

    def __init__(self, claims: ClaimLog) -> None:
        self._claims = claims
        self._fronts: dict[int, _Front] = {}
        # What the transaction took from: forgotten together if it is rolled back.
        self._tx: Transaction | None = None
        self._taken_from: set[int] = set()

    def forget(self, tq_id: int) -> None:
        """Drop what is cached of a task queue (a rolled-back batch, a change behind the front)."""
        self._fronts.pop(tq_id, None)

    def joined(self, tq_id: int, candidate: Candidate) -> None:
        """A new row joined at the end: extend the cached front if it reaches to the end."""
        front = self._fronts.get(tq_id)
        if front is None:
            return
        if not front.more_rows and len(front.rows) < ROW_CHUNK:
            front.rows.append(candidate)
        else:
            front.more_rows = True

    def joined_runs(self, tq_id: int) -> None:
        """New runs joined: the front reads them when its own are used up."""
        front = self._fronts.get(tq_id)
        if front is not None:
            front.more_runs = True

    def take(self, tx: Transaction, tq_id: int) -> Candidate | None:
        """The next waiting job, or None if there is none; the cursor moves, the row is not changed yet.

        If the transaction is rolled back, the front is forgotten.
        """
        if tx is not self._tx:
            self._begin(tx)
        past = OTHER_CLAIMS
        if tq_id in self._taken_from:
            past = NOTHING
        else:
            self._taken_from.add(tq_id)
        front = self._fronts.get(tq_id)
        if front is None:
            front = self._fronts[tq_id] = _Front()
        if not front.rows and front.more_rows:
            _read_rows(tx, tq_id, front, past)
        # A run that was not read yet may begin before the head of those that were.
        while front.more_runs and (not front.runs or front.runs[0][0] > front.last_run[0]):
            _read_runs(tx, tq_id, front, self._claims, past=past)
        if front.runs and (not front.rows or front.runs[0][0] < front.rows[0].job_id):
            return _take_member(tx, front, self._claims)
        return front.rows.popleft() if front.rows else None

    def _begin(self, tx: Transaction) -> None:
        self._tx = tx
        self._taken_from = set()
        tx.undo.append(partial(self._forget_all, self._taken_from))

    def _forget_all(self, tq_ids: set[int]) -> None:
        self._tx = None
        for tq_id in tq_ids:
            self._fronts.pop(tq_id, None)


def _take_member(tx: Transaction, front: _Front, claims: ClaimLog) -> Candidate:
    job_id, _, run = heappop(front.runs)
    run.cursor += 1
    if run.skip_holes():
        front.add_run(run)
    claims.moved(tx, run.cohort_id, run.cursor)
    return Candidate(
        job_id, run.submission_id, run.template_id, 0, None, None, run.max_attempts, run.cohort_id
    )


def _read_rows(tx: Transaction, tq_id: int, front: _Front, past: frozenset[str]) -> None:
    stored = tx.read(ROW_CURSOR, (tq_id,), past=past)
    cursor = stored[0][0] if stored else 0
    found = tx.read(ROWS, (tq_id, cursor, ROW_CHUNK), past=past)
    front.rows.extend(Candidate(*row) for row in found)
    front.more_rows = len(found) == ROW_CHUNK
    if found and found[0][0] > cursor:
        tx.last(SET_ROW_CURSOR, tq_id, (found[0][0], tq_id))


def _read_runs(tx: Transaction, tq_id: int, front: _Front, claims: ClaimLog, *, past: frozenset[str]) -> None:
    found = tx.read(RUNS, (tq_id, *front.last_run, RUN_CHUNK), past=past)
    for row in found:
        columns: tuple[Any, ...] = (*row, deque())
        run = _Run(*columns)
        front.last_run = (run.first, run.cohort_id)
        # What is stored may be older: writing all cursors because one is read would dirty a page for each.
        run.cursor = claims.cursor_of(run.cohort_id, run.cursor)
        if run.cursor >= run.stop:
            continue
        run.holes.extend(tx.read(HOLES, (run.cohort_id, run.cursor), past=past))
        if run.skip_holes():
            front.add_run(run)
        else:
            claims.moved(tx, run.cohort_id, run.stop)
    front.more_runs = len(found) == RUN_CHUNK
