"""Identifiers that the writer gives out: counters in memory, continued at a start."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from lodesman.server.store import Reader, Writer
from lodesman.server.store.dialect import greatest
from lodesman.server.store.statement import AT_MOST_ONE, Statement
from lodesman.server.store.transaction import Transaction

_TABLES = ("submission", "task_queue", "cohort", "template", "attempt", "event", "pilot")
# One query for each maximum: then SQLite reads only the end of the table.
_GREATEST = "coalesce((SELECT max(id) FROM {0}), 0)"
# Events of task queues and of jobs share their numbers, which order them.
_GREATEST_EVENT = greatest(_GREATEST.format("event"), _GREATEST.format("task_queue_event"))
_MARK = """INSERT INTO id_mark (name, given) VALUES (?, {0})
ON CONFLICT (name) DO UPDATE SET given = excluded.given WHERE excluded.given > id_mark.given"""

_SET_NEXT_JOB = Statement(sql="UPDATE leadership SET next_job = ? WHERE one = 1", newest=True)


def _greatest(table: str) -> str:
    return _GREATEST_EVENT if table == "event" else _GREATEST.format(table)


def given_ids(db: Reader) -> dict[str, int]:
    """The last identifier given out for each table."""
    marks = dict(db.execute("SELECT name, given FROM id_mark"))
    return {table: max(db.only(f"SELECT {_greatest(table)}")[0], marks.get(table, 0)) for table in _TABLES}


def raise_marks(db: Writer, last_ids: Mapping[str, int]) -> None:
    """Count identifiers up to these as given out."""
    db.change_each(_MARK.format("?"), list(last_ids.items()))


class Ids:
    """One counter per table. Rolled-back batches and deleted rows leave gaps, never doubles."""

    def __init__(self, db: Reader) -> None:
        last_ids = given_ids(db)
        self.submission, self.task_queue, self.cohort, self.template, self.attempt, self.event, self.pilot = (
            itertools.count(last_ids[table] + 1).__next__ for table in _TABLES
        )
        self.next_job: int
        self.incarnation: str  # the state of the data to which the identifiers belong (`store.incarnation`)
        self.next_job, self.incarnation = db.only("SELECT next_job, incarnation FROM leadership")

    def jobs(self, tx: Transaction, count: int) -> int:
        """Reserve `count` contiguous job ids; returns the first."""
        base = self.next_job
        self.next_job = base + count
        tx.later(_SET_NEXT_JOB, (self.next_job,))
        return base


def mark_ids(tx: Transaction, *tables: str) -> None:
    """Record what was given out, before rows are deleted."""
    for table in tables:
        tx.write(_MARK.format(_greatest(table)), (table,), rows=AT_MOST_ONE)
