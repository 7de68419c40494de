"""What a command may use while it is applied: the database, and what is done with the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeVar

from lodesman.jobs.followed import HOLDS_CHANGED, Moved
from lodesman.store.database import Reader, Writer

K = TypeVar("K")
V = TypeVar("V")
Answer = Callable[[Any], None]


class Transaction:
    """What a command may use while it is applied.

    `later` collects rows per statement and runs them as one executemany before anything is read and
    before the commit. `undo` holds inverse operations on memory; `answer` answers a parked claim after the
    commit, and `afterwards` runs there. `now` is the time of the batch. `moves`: the changes of jobs' states, None if no
    client waits for jobs; `ended`: the jobs that have ended, as (submission, first, last).
    """

    __slots__ = ("_final", "_pending", "afterwards", "answers", "db", "ended", "moves", "now", "undo")

    def __init__(self, db: Writer, now: float, *, follows: bool = False) -> None:
        self.db = db
        self.undo: list[Callable[[], object]] = []
        self.now = now
        self.moves: list[Moved] | None = [] if follows else None
        self._pending: dict[str, list[Sequence[Any]]] = {}
        self._final: dict[str, dict[int, Sequence[Any]]] = {}
        self.answers: list[tuple[Answer, Any]] = []
        self.afterwards: list[Callable[[], None]] = []
        self.ended: list[tuple[int, int, int]] = []

    def holds_changed(self) -> None:
        """Jobs that wait in some task queue are Held with it from now on, or not any more."""
        if self.moves is not None:
            self.moves.append(HOLDS_CHANGED)

    def later(self, sql: str, row: Sequence[Any]) -> None:
        """Add one row to the set statement `sql`."""
        rows = self._pending.get(sql)
        if rows is None:
            self._pending[sql] = [row]
        else:
            rows.append(row)

    def later_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add many rows to the set statement `sql`."""
        self._pending.setdefault(sql, []).extend(rows)

    def last(self, sql: str, key: int, row: Sequence[Any]) -> None:
        """Add one row to `sql` of which only the newest per key is written (counters, cursors)."""
        rows = self._final.get(sql)
        if rows is None:
            self._final[sql] = {key: row}
        else:
            rows[key] = row

    def flush(self) -> None:
        """Run what was collected, in the order in which the statements were first used."""
        if self._pending or self._final:
            changes, self._pending = self._pending, {}
            final, self._final = self._final, {}
            for sql, newest in final.items():
                changes.setdefault(sql, []).extend(newest.values())
            self.db.change_all(changes)

    def reader(self) -> Reader:
        """The database with all that this transaction has changed so far."""
        self.flush()
        return self.db

    def read(self, sql: str, row: Sequence[Any] = (), *, past: AbstractSet[str] = frozenset()) -> list[Any]:
        """All rows of a query, after what was collected has been written.

        `past`: statements whose rows cannot change what is read. While nothing else was collected, they go on waiting
        for more of their kind.
        """
        if not (past and self._pending.keys() <= past and self._final.keys() <= past):
            self.flush()
        return list(self.db.execute(sql, row))

    def write(self, sql: str, row: Sequence[Any] = ()) -> int:
        """Run one statement now; returns the number of rows changed."""
        self.flush()
        return self.db.change(sql, row)

    # --- memory ----------------------------------------------------------------------------------------------

    def put(self, memory: dict[K, V], key: K, value: V) -> None:
        """Put a value into memory."""
        undo = (
            partial(memory.__setitem__, key, memory[key]) if key in memory else partial(memory.pop, key, None)
        )
        self.undo.append(undo)
        memory[key] = value

    def drop(self, memory: dict[K, V], key: K) -> V | None:
        """Take a key out of memory; returns its value, None if it was not there."""
        value = memory.pop(key, None)
        if value is not None:
            self.undo.append(partial(memory.__setitem__, key, value))
        return value

    def add(self, memory: set[K], item: K) -> None:
        """Add an item to a set in memory."""
        if item not in memory:
            memory.add(item)
            self.undo.append(partial(memory.discard, item))

    def discard(self, memory: set[K], item: K) -> None:
        """Take an item out of a set in memory."""
        if item in memory:
            memory.discard(item)
            self.undo.append(partial(memory.add, item))

    def roll_back_memory(self) -> None:
        """Undo the changes in memory, newest first."""
        while self.undo:
            self.undo.pop()()
