"""Which CE queues serve which SubmitPool (RFC #7), for thousands of both at once.

The service has them as masks of queues, one a pool, in a numbering of its own (`Serving`). Placement asks for the
queues of one pool in the numbering of the iteration, supply for the task queues that one queue serves: the
same table by its columns. No queue's list of pools is ever walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lodesman.masks.bits import Transposed
from lodesman.matching.tables import KeyTable
from lodesman.resources import QueueId


class Serving(Protocol):
    """The SubmitPools as the service has them."""

    def mask(self, pool: str, /) -> int | None:
        """The queues that serve a pool, as bits; None if it is not known."""

    def bit(self, queue: QueueId, /) -> int | None:
        """The bit of a queue in these masks; None if it serves no pool."""


class NoPools:
    """No queue serves any SubmitPool."""

    def mask(self, _pool: str, /) -> int | None:
        """None is known."""
        return None

    def bit(self, _queue: QueueId, /) -> int | None:
        """None has a bit."""
        return None


class ServingQueues:
    """The queues that serve a pool, as bits of the iteration's queues."""

    __slots__ = ("_are_alike", "_known", "_serving", "_sources")

    def __init__(self, queue_ids: Sequence[QueueId], serving: Serving) -> None:
        self._serving = serving
        self._sources = [serving.bit(queue_id) for queue_id in queue_ids]
        self._are_alike = self._sources == list(range(len(queue_ids)))
        self._known: dict[str, int] = {}

    def of(self, pool: str) -> int:
        """Their mask."""
        known = self._known.get(pool)
        if known is None:
            known = self._known[pool] = self._translated(self._serving.mask(pool) or 0)
        return known

    def _translated(self, mask: int) -> int:
        if self._are_alike:  # as a rule: both are in the order of the configuration
            return mask & ((1 << len(self._sources)) - 1)
        digits = f"{mask:b}"[::-1]
        end = len(digits)
        found = ["0" if bit is None or bit >= end else digits[bit] for bit in self._sources]
        return int("".join(reversed(found)) or "0", 2)


class ServedTaskQueues:
    """The task queues that a queue may serve as far as SubmitPools go, as bits of a table."""

    __slots__ = ("_any", "_known", "_rows", "_serving")

    def __init__(self, table: KeyTable, serving: Serving) -> None:
        self._serving = serving
        self._rows = Transposed(
            [serving.mask(table.pools.get(bit, "")) or 0 for bit in range(table.full.bit_length())]
        )
        # Those that ask for no pool.
        self._any = table.full
        for bit in table.pools:
            self._any ^= 1 << bit
        self._known: dict[int, int] = {}

    def by(self, queue_id: QueueId) -> int:
        """Their mask."""
        place = self._serving.bit(queue_id)
        if place is None:
            return self._any
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._any | self._rows.column(place)
        return known
