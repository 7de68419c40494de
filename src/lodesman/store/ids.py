"""Identifiers given out by the writer: counters in memory, continued from the database at start."""

from __future__ import annotations

import itertools

from lodesman.store import Reader
from lodesman.store.dialect import greatest
from lodesman.store.journal import Transaction

_TABLES = ("submission", "task_queue", "cohort", "template", "attempt", "event", "pilot")
# Each maximum in a query of its own: SQLite then reads the end of the table, and not all of it.
_GREATEST = "coalesce((SELECT max(id) FROM {0}), 0)"
# Events of task queues are numbered with those of jobs, so that the two can be put in order.
_GREATEST_EVENT = greatest(_GREATEST.format("event"), _GREATEST.format("task_queue_event"))
_MARK = """INSERT INTO id_mark (name, given) VALUES (?, {0})
ON CONFLICT (name) DO UPDATE SET given = excluded.given WHERE excluded.given > id_mark.given"""


def _greatest(table: str) -> str:
    return _GREATEST_EVENT if table == "event" else _GREATEST.format(table)


class Ids:
    """One counter per table. A rolled-back batch leaves gaps, never doubles; nor does a row that was deleted."""

    def __init__(self, db: Reader) -> None:
        marks = dict(db.execute("SELECT name, given FROM id_mark"))

        def after(table: str) -> itertools.count[int]:
            row = db.only(f"SELECT {_greatest(table)}")
            return itertools.count(max(row[0], marks.get(table, 0)) + 1)

        self.submission, self.task_queue, self.cohort, self.template, self.attempt, self.event, self.pilot = (
            after(table).__next__ for table in _TABLES
        )
        self.next_job: int = db.only("SELECT next_job FROM leadership")[0]

    def jobs(self, tx: Transaction, count: int) -> int:
        """A contiguous block of `count` job ids; returns the first."""
        base = self.next_job
        self.next_job = base + count
        tx.last("UPDATE leadership SET next_job = ? WHERE one = 1", 1, (self.next_job,))
        return base


def mark_ids(tx: Transaction, *tables: str) -> None:
    """Before rows are deleted: write down what was given out, for the next start."""
    for table in tables:
        tx.write(_MARK.format(_greatest(table)), (table,))
