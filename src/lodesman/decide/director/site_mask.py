"""The site mask: sites, CEs and queues that an administrator closed (ADR 0025). No pilot is sent there; pilots there
leave, unless they may stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final, cast

from msgspec import UNSET, Struct

from lodesman.decide.masks.bits import Mask, bits, mask_of
from lodesman.decide.resources import NodePath, QueueId
from lodesman.wire.nodes import Closing

_Queues = Mapping[int, QueueId]  # by their bits in the masks (`QueueTable.queues`)
# how long a pilot lives at most, in seconds, by the bit of its queue; absent: any time
Lives = Mapping[int, int]
_NO_LIVES: Final[Lives] = {}


class DrainedNodes(Struct, frozen=True):
    """The places whose pilots leave."""

    nodes: frozenset[NodePath]

    def __contains__(self, place: object) -> bool:
        return not self.nodes.isdisjoint(around(cast("NodePath", place)))


class SiteMask:
    """Closings at one moment; never changed, so any thread may ask."""

    __slots__ = ("_by_node", "_planes", "closings")

    def __init__(self, closings: Iterable[Closing] = ()) -> None:
        self.closings = tuple(sorted(closings, key=lambda closing: closing.node))
        self._by_node = {closing.node: closing for closing in self.closings}
        # For the queues that were last asked about.
        self._planes: tuple[_Queues, tuple[tuple[Closing, Mask], ...]] = ({}, ())

    def active(self, now: float) -> Iterator[Closing]:
        """The closings that hold, by site, CE and queue."""
        return (closing for closing in self.closings if closing.holds(now))

    def known(self, now: float) -> Iterator[Closing]:
        """Closings that hold or are announced, by site, CE and queue."""
        return (closing for closing in self.closings if not closing.is_over(now))

    def closings_of(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What closes the node, the widest first; () if it is open."""
        return tuple(closing for closing in self._around(node) if closing.holds(now))

    def closings_ahead(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What will close the node, the widest first."""
        return tuple(closing for closing in self._around(node) if closing.is_ahead(now))

    def closings_shutting_out(self, node: NodePath, now: float, life_seconds: float) -> tuple[Closing, ...]:
        """What bars pilots with this life (0: any), the widest first."""
        return tuple(closing for closing in self._around(node) if closing.shuts_out(now, life_seconds))

    def reason(self, node: NodePath, now: float, life_seconds: float | None = None) -> str:
        """What closes the node (for pilots with this life), in words; '' if it is open."""
        closings = (
            self.closings_of(node, now)
            if life_seconds is None
            else self.closings_shutting_out(node, now, life_seconds)
        )
        return "; ".join(closing.text_at(now) for closing in closings)

    def drains(self, node: NodePath, now: float) -> Closing | None:
        """What makes a queue's pilots leave; None if they may stay."""
        return next((closing for closing in self._around(node) if closing.empties(now)), None)

    def end_of_jobs(self, node: NodePath, now: float) -> float | None:
        """When a queue stops running anything; None: unknown."""
        starts = [
            closing.start
            for closing in self._around(node)
            if closing.begins is not UNSET and not closing.is_over(now)
        ]
        return min(starts, default=None)

    def hits(
        self, queues: _Queues, among: Mask, now: float, lives: Lives = _NO_LIVES
    ) -> list[tuple[Closing, Mask]]:
        """Closings of these queues; most queues first."""
        hits = [(closing, hit) for closing, mask in self._active(queues, now, lives) if (hit := mask & among)]
        return sorted(hits, key=lambda pair: -pair[1].bit_count())

    def closed(self, queues: _Queues, now: float, lives: Lives = _NO_LIVES) -> Mask:
        """The queues that are closed."""
        return reduce(or_, (mask for _, mask in self._active(queues, now, lives)), 0)

    def announced(self, queues: _Queues, now: float, lives: Lives = _NO_LIVES) -> Mask:
        """The queues that get no more pilots since they will close."""
        return reduce(
            or_, (mask for closing, mask in self._active(queues, now, lives) if closing.is_ahead(now)), 0
        )

    def leaving(self, queues: _Queues, now: float, lives: Lives = _NO_LIVES) -> DrainedNodes:
        """Where pilots leave, now or by an announced closing."""
        ahead = {
            closing.node
            for closing, mask in self._active(queues, now, lives)
            if mask and closing.is_ahead(now)
        }
        return DrainedNodes(
            frozenset(ahead | {closing.node for closing in self.closings if closing.empties(now)})
        )

    def drained(self, now: float) -> DrainedNodes | None:
        """None if nowhere."""
        nodes = frozenset(closing.node for closing in self.closings if closing.empties(now))
        return DrainedNodes(nodes) if nodes else None

    def _around(self, node: NodePath) -> Iterator[Closing]:
        if self._by_node:
            closings = (self._by_node.get(place) for place in dict.fromkeys(around(node)))
            yield from (closing for closing in closings if closing is not None)

    def _active(self, queues: _Queues, now: float, lives: Lives) -> Iterator[tuple[Closing, Mask]]:
        """Also those that begin while a pilot could still run."""
        planes = self._planes
        # By value; items of lists are compared fast if they are the same object.
        if [planes[0]] != [queues]:
            planes = self._planes = queues, tuple(self._masks(queues)) if self.closings else ()
        for closing, mask in planes[1]:
            if closing.is_ahead(now):
                yield closing, mask_of(bit for bit in bits(mask) if closing.shuts_out(now, lives.get(bit, 0)))
            elif not closing.is_over(now):
                yield closing, mask

    def _masks(self, queues: _Queues) -> Iterator[tuple[Closing, Mask]]:
        below: dict[NodePath, list[int]] = {node: [] for node in self._by_node}
        for bit, queue in queues.items():
            for node in around(queue):
                if node in below:
                    below[node].append(bit)
        return (
            (self._by_node[node], mask_of(queue_bits)) for node, queue_bits in below.items() if queue_bits
        )


NOTHING_CLOSED: Final = SiteMask()


def around(node: NodePath) -> tuple[NodePath, NodePath, NodePath]:
    """Its site, its CE and itself."""
    return NodePath(node[0]), NodePath(node[0], node[1]), node
