"""The site mask: sites, CEs and queues that an administrator closed. The director and `why` ask the same one (ADR 0025).

No pilot is sent where something is closed. Pilots that are there leave, unless they may stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import cast

from msgspec import Struct

from lodesman.answers.nodes import Closing
from lodesman.masks.bits import Mask, mask_of
from lodesman.resources import NodePath, QueueId

_Queues = Mapping[int, QueueId]
"""The queues by their bits in the masks (`QueueTable.queues`)."""


class DrainedNodes(Struct, frozen=True):
    """The places whose pilots leave."""

    nodes: frozenset[NodePath]

    def __contains__(self, place: object) -> bool:
        return not self.nodes.isdisjoint(around(cast("NodePath", place)))


class SiteMask:
    """All closings at one moment; never changed, so any thread may ask. A closing counts while it `holds`."""

    __slots__ = ("_by_node", "_planes", "closings")

    def __init__(self, closings: Iterable[Closing] = ()) -> None:
        self.closings = tuple(sorted(closings, key=lambda one: one.node))
        self._by_node = {one.node: one for one in self.closings}
        # For the queues that were last asked about.
        self._planes: tuple[_Queues, tuple[tuple[Closing, Mask], ...]] = ({}, ())

    def active(self, now: float) -> Iterator[Closing]:
        """Those that hold, by site, CE and queue."""
        return (one for one in self.closings if one.holds(now))

    def of(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What closes a site, CE or queue, the widest first; () if it is open."""
        if not self._by_node:
            return ()
        found = (self._by_node.get(one) for one in dict.fromkeys(around(node)))
        return tuple(one for one in found if one is not None and one.holds(now))

    def reason(self, node: NodePath, now: float) -> str:
        """What closes a site, CE or queue, in words; '' if it is open."""
        return "; ".join(one.text for one in self.of(node, now))

    def drains(self, node: NodePath, now: float) -> Closing | None:
        """What makes the pilots of a queue leave; None if they may stay."""
        return next((one for one in self.of(node, now) if not one.keep_pilots), None)

    def hits(self, queues: _Queues, among: Mask, now: float) -> list[tuple[Closing, Mask]]:
        """What closes queues among these, with these queues; most queues first."""
        found = [(one, hit) for one, mask in self._active(queues, now) if (hit := mask & among)]
        return sorted(found, key=lambda one: -one[1].bit_count())

    def closed(self, queues: _Queues, now: float) -> Mask:
        """The queues that are closed."""
        return reduce(or_, (mask for _, mask in self._active(queues, now)), 0)

    def drained(self, now: float) -> DrainedNodes | None:
        """Where pilots leave; None if that is nowhere."""
        nodes = frozenset(one.node for one in self.active(now) if not one.keep_pilots)
        return DrainedNodes(nodes) if nodes else None

    def _active(self, queues: _Queues, now: float) -> Iterator[tuple[Closing, Mask]]:
        """The closings that hold, with the queues that each closes."""
        known = self._planes
        # By value; items of lists are compared fast if they are the same object.
        if [known[0]] != [queues]:
            known = self._planes = queues, tuple(self._masks(queues)) if self.closings else ()
        return (one for one in known[1] if one[0].holds(now))

    def _masks(self, queues: _Queues) -> Iterator[tuple[Closing, Mask]]:
        bits: dict[NodePath, list[int]] = {node: [] for node in self._by_node}
        for bit, queue in queues.items():
            for node in around(queue):
                if node in bits:
                    bits[node].append(bit)
        return ((self._by_node[node], mask_of(found)) for node, found in bits.items() if found)


def around(node: NodePath) -> tuple[NodePath, NodePath, NodePath]:
    """Its site, its CE and itself."""
    return NodePath(node[0]), NodePath(node[0], node[1]), node
