"""Keeping what the director decided, with inputs and clamps, for `why` and for replay."""

from __future__ import annotations

from dataclasses import dataclass

import apsw
import msgspec

from lodesman.store.journal import Transaction

KEEP_ITERATIONS = 2_000


@dataclass(slots=True)
class StoreIteration:
    """Append one iteration (JSON); the oldest are dropped."""

    plan: str

    def apply(self, tx: Transaction) -> int:
        """Returns the number of the iteration."""
        tx.write("INSERT INTO director_iteration (at, plan) VALUES (?, ?)", (tx.now, self.plan))
        number = tx.db.last_insert_rowid()
        tx.later("DELETE FROM director_iteration WHERE id <= ?", (number - KEEP_ITERATIONS,))
        return number


def last_iteration(db: apsw.Connection) -> tuple[float, dict[str, object]] | None:
    """When the director last decided, and what."""
    row = db.execute("SELECT at, plan FROM director_iteration ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else (row[0], msgspec.json.decode(row[1]))
