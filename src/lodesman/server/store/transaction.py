"""What a command may use: the database, memory that can be undone, steps after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeVar

from lodesman.languages.jobs.watches import HOLDS_CHANGED, JobMove
from lodesman.server.store.database import Reader, Writer
from lodesman.server.store.statement import Collection, Row, RowBounds, Statement

K = TypeVar("K")
V = TypeVar("V")
Answer = Callable[[Any], None]


class Transaction:
    """What a command reads and changes. `later` collects rows by statement, written before any read and the commit."""

    __slots__ = (
        "_apart",
        "_collected",
        "afterwards",
        "answers",
        "changed",
        "db",
        "ended",
        "moves",
        "now",
        "undo",
    )

    def __init__(self, db: Writer, now: float, *, follows: bool = False) -> None:
        self.db = db
        self.now = now  # the time of the batch
        # State changes of jobs, None if no client waits for jobs.
        self.moves: list[JobMove] | None = [] if follows else None
        self._collected = Collection()
        self._apart = self._collected.apart
        # How many rows were collected or changed.
        self.changed = 0
        # Inverse operations on memory.
        self.undo: list[Callable[[], object]] = []
        # Answers to parked claims, and steps, after the commit.
        self.answers: list[tuple[Answer, Any]] = []
        self.afterwards: list[Callable[[], None]] = []
        # Jobs that ended: (submission, first, last).
        self.ended: list[tuple[int, int, int]] = []

    def holds_changed(self) -> None:
        """Note that jobs are Held with their task queue, or not any more."""
        if self.moves is not None:
            self.moves.append(HOLDS_CHANGED)

    def later(self, statement: Statement, row: Row) -> None:
        """Collect a row."""
        self.changed += 1
        rows = self._apart.get(statement)
        if rows is None:
            self._collected.add(statement, row)
        else:
            rows.append(row)

    def later_many(self, statement: Statement, rows: Iterable[Row]) -> None:
        """Collect rows."""
        for row in rows:
            self.later(statement, row)

    def flush(self) -> None:
        """Write what was collected. Raises WrongRows."""
        if self._collected.mask:
            self.db.change_all(self._collected.take())

    def reader(self) -> Reader:
        """The database with all changes of this transaction."""
        self.flush()
        return self.db

    def read(
        self, sql: str, row: Row = (), *, past: AbstractSet[Statement] = frozenset(), changes: bool = False
    ) -> list[Any]:
        """All rows of a query, after collected rows are written. `past`: statements that cannot change what is
        read. `changes`: it changes what it returns.
        """
        if not (past and self._collected.is_of(past)):
            self.flush()
        rows = list(self.db.execute(sql, row))
        self.changed += len(rows) if changes else 0
        return rows

    def write(self, sql: str, row: Row = (), *, rows: RowBounds) -> int:
        """Run one statement now; returns the number of rows changed. Raises WrongRows."""
        self.flush()
        changed = rows.check(sql, self.db.change(sql, row))
        self.changed += changed
        return changed

    # --- memory ----------------------------------------------------------------------------------------------

    def put(self, memory: dict[K, V], key: K, value: V) -> None:
        """Put a value into memory."""
        undo = (
            partial(memory.__setitem__, key, memory[key]) if key in memory else partial(memory.pop, key, None)
        )
        self.undo.append(undo)
        memory[key] = value

    def drop(self, memory: dict[K, V], key: K) -> V | None:
        """Take a key out of memory; returns its value, if any."""
        value = memory.pop(key, None)
        if value is not None:
            self.undo.append(partial(memory.__setitem__, key, value))
        return value

    def add(self, memory: set[K], item: K) -> None:
        """Add to a set; undone if the transaction fails."""
        if item not in memory:
            memory.add(item)
            self.undo.append(partial(memory.discard, item))

    def discard(self, memory: set[K], item: K) -> None:
        """Remove from a set; undone likewise."""
        if item in memory:
            memory.discard(item)
            self.undo.append(partial(memory.add, item))

    def roll_back_memory(self) -> None:
        """Undo changes in memory, newest first."""
        while self.undo:
            self.undo.pop()()
