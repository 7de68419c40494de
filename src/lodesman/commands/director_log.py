"""Keeping what the director decided, with inputs and clamps, for `why` and for replay."""

from __future__ import annotations

from dataclasses import dataclass

from lodesman.store.journal import Transaction
from lodesman.store.write.director import insert_iteration


@dataclass(slots=True)
class StoreIteration:
    """Append one iteration (JSON); the oldest are dropped when they are too many or too large together."""

    plan: str

    def apply(self, tx: Transaction) -> int:
        """Returns the number of the iteration."""
        return insert_iteration(tx, self.plan)
