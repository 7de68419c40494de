"""Keeping what the director decided, with inputs and clamps, for `why` and for replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lodesman.store.journal import Transaction

KEEP_ITERATIONS: Final = 200
# One iteration over 10,000 task queues is megabytes of text. The newest few are kept however large they are.
KEEP_BYTES: Final = 64 << 20
KEEP_ANYWAY: Final = 3
INSERT = "INSERT INTO director_iteration (at, bytes, plan) VALUES (?, ?, ?) RETURNING id"
SIZES = "SELECT id, bytes FROM director_iteration ORDER BY id DESC"
FORGET = "DELETE FROM director_iteration WHERE id <= ?"


@dataclass(slots=True)
class StoreIteration:
    """Append one iteration (JSON); the oldest are dropped when they are too many or too large together."""

    plan: str

    def apply(self, tx: Transaction) -> int:
        """Returns the number of the iteration."""
        number: int = tx.read(INSERT, (tx.now, len(self.plan.encode()), self.plan))[0][0]
        size = 0
        for kept, (one, plan_bytes) in enumerate(tx.read(SIZES)):
            size += plan_bytes
            if kept >= KEEP_ITERATIONS or (size > KEEP_BYTES and kept >= KEEP_ANYWAY):
                tx.write(FORGET, (one,))
                break
        return number
