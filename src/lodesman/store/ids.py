"""Identifiers given out by the writer: counters in memory, continued from the database at start."""

from __future__ import annotations

import itertools

import apsw

from lodesman.store.engine import only_row
from lodesman.store.journal import Transaction

TABLES = ("submission", "task_queue", "cohort", "template", "attempt", "event", "pilot")


class Ids:
    """One counter per table. A rolled-back batch leaves gaps, never doubles."""

    def __init__(self, db: apsw.Connection) -> None:
        def after(table: str) -> itertools.count[int]:
            row = only_row(db, f"SELECT coalesce(max(id), 0) FROM {table}")
            return itertools.count(row[0] + 1)

        self.submission, self.task_queue, self.cohort, self.template, self.attempt, self.event, self.pilot = (
            after(table).__next__ for table in TABLES
        )
        self._next_job: int = only_row(db, "SELECT next_job FROM leadership")[0]

    def jobs(self, tx: Transaction, count: int) -> int:
        """A contiguous block of `count` job ids; returns the first."""
        base = self._next_job
        self._next_job = base + count
        tx.last("UPDATE leadership SET next_job = ? WHERE one = 1", 1, (self._next_job,))
        return base
