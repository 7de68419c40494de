"""The front of each task queue: the next waiting jobs by id, read in chunks from rows and from untouched members of
cohorts.

A front is a cache: it may be dropped at any time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush, heapreplace
from typing import Any

from lodesman.server.store.claim_log import ClaimLog
from lodesman.server.store.statement import Statement
from lodesman.server.store.task_queues import set_row_cursor
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.attempts import CLAIM_STATEMENTS
from lodesman.server.store.write.jobs import WaitingJob

_ROW_CHUNK = 128
_RUN_CHUNK = 16

_CURSOR = "coalesce((SELECT row_cursor FROM task_queue_count WHERE tq_id = ?), 0)"
_ROWS = f"""SELECT id, submission_id, template_id, attempt, last_event, last_attempt, max_attempts, {_CURSOR}
FROM job WHERE queued IS NOT NULL AND tq_id = ? AND id >= {_CURSOR} AND state = 'Waiting' ORDER BY id LIMIT ?"""
_RUNS = """SELECT c.id, c.submission_id, c.base, c.cursor, c.stop, c.template_id, t.max_attempts, c.first,
EXISTS (SELECT 1 FROM hole h WHERE h.cohort_id = c.id AND h.stop > c.cursor)
FROM cohort c JOIN template t ON t.id = c.template_id
WHERE c.tq_id = ? AND c.cursor < c.stop AND (c.first, c.id) > (?, ?) ORDER BY c.first, c.id LIMIT ?"""
# The first read of a front takes one step; the last column is NULL for rows.
_FIRST = f"SELECT r.*, NULL FROM ({_ROWS}) AS r UNION ALL SELECT c.* FROM ({_RUNS}) AS c"
_HOLES = "SELECT start, stop FROM hole WHERE cohort_id = ? AND stop > ? ORDER BY start"


class _OpenRun:
    __slots__ = (
        "base", "cohort_id", "cursor", "first", "holes", "max_attempts", "stop", "submission_id", "template_id",
    )  # fmt: skip

    def __init__(self, row: list[Any]) -> None:
        (self.cohort_id, self.submission_id, self.base, self.cursor, self.stop, self.template_id,
         self.max_attempts, self.first) = row  # fmt: skip
        self.holes: deque[tuple[int, int]] = deque()

    def skip_holes(self) -> bool:
        while self.holes and self.holes[0][0] <= self.cursor:
            start, stop = self.holes.popleft()
            if stop > self.cursor >= start:
                self.cursor = stop
        return bool(self.cursor < self.stop)


@dataclass(slots=True)
class _Front:
    rows: deque[WaitingJob] = field(default_factory=deque)
    runs: list[tuple[int, int, _OpenRun]] = field(default_factory=list)  # a heap by the id of the next member
    more_rows: bool = True
    more_runs: bool = True
    last_run: tuple[int, int] = (-1, -1)  # the last run read: (first id, cohort)

    def add_run(self, run: _OpenRun) -> None:
        heappush(self.runs, (run.base + run.cursor, run.cohort_id, run))


class Fronts:
    """All fronts in use. For the writer's thread only."""

    def __init__(self, claims: ClaimLog) -> None:
        self._claims = claims
        self._fronts: dict[int, _Front] = {}
        # The task queues that this transaction took from; their fronts are dropped if it is rolled back.
        self._tx: Transaction | None = None
        self._taken_from: set[int] = set()

    def forget(self, tq_id: int) -> None:
        """Drop a front."""
        self._fronts.pop(tq_id, None)

    def joined(self, tq_id: int, job: WaitingJob) -> None:
        """Append a new row, if the cached front reaches the end."""
        front = self._fronts.get(tq_id)
        if front is None:
            return
        if not front.more_rows and len(front.rows) < _ROW_CHUNK:
            front.rows.append(job)
        else:
            front.more_rows = True

    def take(self, tx: Transaction, tq_id: int) -> WaitingJob | None:
        """The next waiting job, its row unchanged. A rollback drops the front."""
        if tx is not self._tx:
            self._tx, self._taken_from = tx, set()
            tx.undo.append(partial(self._forget_all, self._taken_from))
        # Rows that claims from other task queues collected do not matter to this read. Writing them now would write
        # them in small portions.
        past = CLAIM_STATEMENTS
        if tq_id in self._taken_from:
            past = frozenset()
        else:
            self._taken_from.add(tq_id)
        front = self._fronts.get(tq_id)
        if front is None:
            front = self._fronts[tq_id] = _Front()
            _read_first(tx, tq_id, front, self._claims, past)
        elif not front.rows and front.more_rows:
            _add_rows(tx, tq_id, front, tx.read(_ROWS, _rows_of(tq_id), past=past))
        # An unread run may begin before the head of those that were read.
        while front.more_runs and (not front.runs or front.runs[0][0] > front.last_run[0]):
            rows = tx.read(_RUNS, _runs_of(tq_id, front), past=past)
            _add_runs(tx, front, rows, self._claims, past)
        if front.runs and (not front.rows or front.runs[0][0] < front.rows[0].id):
            return _take_member(tx, front, self._claims)
        return front.rows.popleft() if front.rows else None

    def _forget_all(self, tq_ids: set[int]) -> None:
        self._tx = None
        for tq_id in tq_ids:
            self._fronts.pop(tq_id, None)


def _take_member(tx: Transaction, front: _Front, claims: ClaimLog) -> WaitingJob:
    job_id, cohort_id, run = front.runs[0]
    run.cursor += 1
    if run.skip_holes():
        heapreplace(front.runs, (run.base + run.cursor, cohort_id, run))
    else:
        heappop(front.runs)
    claims.moved(tx, cohort_id, run.cursor)
    return WaitingJob(job_id, run.submission_id, run.template_id, 0, None, None, run.max_attempts, cohort_id)


def _rows_of(tq_id: int) -> tuple[int, ...]:
    return tq_id, tq_id, tq_id, _ROW_CHUNK


def _runs_of(tq_id: int, front: _Front) -> tuple[int, ...]:
    return tq_id, *front.last_run, _RUN_CHUNK


def _read_first(
    tx: Transaction, tq_id: int, front: _Front, claims: ClaimLog, past: frozenset[Statement]
) -> None:
    both = tx.read(_FIRST, (*_rows_of(tq_id), *_runs_of(tq_id, front)), past=past)
    rows = [row[:-1] for row in both if row[-1] is None]
    _add_rows(tx, tq_id, front, rows)
    _add_runs(tx, front, both[len(rows) :], claims, past)


def _add_rows(tx: Transaction, tq_id: int, front: _Front, rows: list[Any]) -> None:
    front.rows.extend(WaitingJob(*row[:-1]) for row in rows)
    front.more_rows = len(rows) == _ROW_CHUNK
    if rows and rows[0][0] > rows[0][-1]:
        set_row_cursor(tx, tq_id, rows[0][0])


def _add_runs(
    tx: Transaction, front: _Front, rows: list[Any], claims: ClaimLog, past: frozenset[Statement]
) -> None:
    for *row, has_holes in rows:
        run = _OpenRun(row)
        front.last_run = (run.first, run.cohort_id)
        # The stored cursor may be older: writing all cursors before each read would dirty a page for each.
        run.cursor = claims.cursor_of(run.cohort_id, run.cursor)
        if run.cursor >= run.stop:
            continue
        if has_holes:
            run.holes.extend(tx.read(_HOLES, (run.cohort_id, run.cursor), past=past))
        if run.skip_holes():
            front.add_run(run)
        else:
            claims.moved(tx, run.cohort_id, run.stop)
    front.more_runs = len(rows) == _RUN_CHUNK
