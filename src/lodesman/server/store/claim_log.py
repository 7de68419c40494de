"""Counters and cursors that follow from the attempts: written now and then, since each claim would dirty two pages.

Attempts after `leadership.claims_at` (cursors) and `task_queue_count.as_of` (counters) are replayed, or added by
views.
"""

from __future__ import annotations

from functools import partial

from lodesman.server.store import Reader, Writer
from lodesman.server.store.dialect import greatest
from lodesman.server.store.statement import AT_MOST_ONE, Statement
from lodesman.server.store.task_queues import set_waiting
from lodesman.server.store.transaction import Transaction

# The cohort may have been purged.
_SET_CURSOR = Statement(
    sql=f"UPDATE cohort SET cursor = {greatest('cursor', '?')} WHERE id = ?",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_SET_CLAIMS_AT = Statement(sql="UPDATE leadership SET claims_at = ? WHERE one = 1")
_LAST_ATTEMPT = "(SELECT coalesce(max(id), 0) FROM attempt)"
_REPLAY = (
    """UPDATE task_queue_count
    SET waiting = waiting - r.n, emptied_at = CASE WHEN waiting = r.n THEN r.at ELSE emptied_at END FROM (
      SELECT a.tq_id, count(*) AS n, max(a.claimed_at) AS at FROM attempt a JOIN task_queue_count c ON c.tq_id = a.tq_id
      WHERE a.id > (SELECT claims_at FROM leadership) AND a.id > c.as_of GROUP BY a.tq_id) AS r
    WHERE r.tq_id = task_queue_count.tq_id""",
    f"""UPDATE cohort SET cursor = {greatest("cohort.cursor", "r.reached")} FROM (
      SELECT a.cohort_id, max(a.job_id) - c.base + 1 AS reached FROM attempt a JOIN cohort c ON c.id = a.cohort_id
      WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id, c.base) AS r
    WHERE r.cohort_id = cohort.id""",
    f"""UPDATE task_queue_count SET as_of = {greatest("as_of", _LAST_ATTEMPT)}
    WHERE tq_id IN (SELECT tq_id FROM attempt WHERE id > (SELECT claims_at FROM leadership))""",
    # Never back: the newest attempts may have been purged (`loops.upkeep`).
    f"UPDATE leadership SET claims_at = {greatest('claims_at', _LAST_ATTEMPT)}",
)

_WRITE_AFTER = 10_000


def replay(db: Writer) -> None:
    """Bring counters and cursors up to the last attempt."""
    with db:
        for statement in _REPLAY:
            db.change(statement)


def claims_at(db: Reader) -> int:
    """The attempt up to which stored cursors hold."""
    return int(db.only("SELECT claims_at FROM leadership")[0])


class ClaimLog:
    """Claims since counters and cursors were written. For the writer's thread alone."""

    def __init__(self, last_attempt: int) -> None:
        self.last_attempt = last_attempt
        self._written = last_attempt
        self._queues: set[int] = set()
        self._cursors: dict[int, int] = {}
        self._tx: Transaction | None = None
        self._before: dict[int, int | None] = {}

    def claimed(self, tx: Transaction, attempt: int, tq_id: int) -> None:
        """Record an attempt."""
        if tx is not self._tx:
            self._begin(tx)
        self.last_attempt = attempt
        self._queues.add(tq_id)

    def moved(self, tx: Transaction, cohort_id: int, cursor: int) -> None:
        """Record the cursor of a cohort."""
        if tx is not self._tx:
            self._begin(tx)
        cursors = self._cursors
        if cohort_id not in self._before:
            self._before[cohort_id] = cursors.get(cohort_id)
        cursors[cohort_id] = cursor

    def cursor_of(self, cohort_id: int, stored: int) -> int:
        """The cursor of a cohort; `stored`: as in the database."""
        return max(stored, self._cursors.get(cohort_id, 0))

    def write_cursors(self, tx: Transaction) -> None:
        """Write all cursors before they are read."""
        if self._cursors:
            tx.undo.append(partial(setattr, self, "_cursors", self._cursors))
            tx.later_many(_SET_CURSOR, [(cursor, cohort) for cohort, cursor in self._cursors.items()])
            self._cursors = {}

    def write(self, tx: Transaction, waiting: dict[int, int]) -> None:
        """`waiting`: the counters of `queues()` now."""
        self.write_cursors(tx)
        tx.undo.append(partial(setattr, self, "_queues", self._queues))
        tx.undo.append(partial(setattr, self, "_written", self._written))
        self._queues, self._written = set(), self.last_attempt
        for tq_id, n in waiting.items():
            set_waiting(tx, tq_id, n, as_of=self.last_attempt)
        tx.later(_SET_CLAIMS_AT, (self.last_attempt,))

    def queues(self) -> frozenset[int]:
        """Task queues that were claimed from."""
        return frozenset(self._queues)

    def is_due(self) -> bool:
        """Whether a restart would replay too many claims."""
        return self.last_attempt - self._written >= _WRITE_AFTER

    def _begin(self, tx: Transaction) -> None:
        self._tx = tx
        self._before = {}
        tx.undo.append(partial(self._put_back, self.last_attempt, self._before))

    def _put_back(self, last_attempt: int, before: dict[int, int | None]) -> None:
        self.last_attempt = last_attempt
        self._tx = None
        for cohort_id, cursor in before.items():
            if cursor is None:
                self._cursors.pop(cohort_id, None)
            else:
                self._cursors[cohort_id] = cursor
