"""The site mask: sites, CEs and queues that an administrator closed (ADR 0025). No pilot is sent there; pilots that are
there leave, unless they may stay.
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
NO_LIVES: Final[Lives] = {}


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
        """The closings that hold, by site, CE and queue."""
        return (one for one in self.closings if one.holds(now))

    def known(self, now: float) -> Iterator[Closing]:
        """Those that hold or are announced, by site, CE and queue."""
        return (one for one in self.closings if not one.is_over(now))

    def of(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What closes a site, CE or queue, the widest first; () if it is open."""
        return tuple(one for one in self._around(node) if one.holds(now))

    def ahead(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What is going to close a site, CE or queue, the widest first."""
        return tuple(one for one in self._around(node) if one.is_ahead(now))

    def shutting_out(self, node: NodePath, now: float, life_seconds: float) -> tuple[Closing, ...]:
        """What lets no pilot that lives so long (0: any time) be sent to a queue, the widest first."""
        return tuple(one for one in self._around(node) if one.shuts_out(now, life_seconds))

    def reason(self, node: NodePath, now: float, life_seconds: float | None = None) -> str:
        """What closes a site, CE or queue, or shuts out pilots that live so long, in words; '' if it is open."""
        found = self.of(node, now) if life_seconds is None else self.shutting_out(node, now, life_seconds)
        return "; ".join(one.text_at(now) for one in found)

    def drains(self, node: NodePath, now: float) -> Closing | None:
        """What makes the pilots of a queue leave; None if they may stay."""
        return next((one for one in self._around(node) if one.empties(now)), None)

    def end_of_jobs(self, node: NodePath, now: float) -> float | None:
        """From when on nothing may run in a queue, as was announced; None: no such time is known."""
        found = [one.start for one in self._around(node) if one.begins is not UNSET and not one.is_over(now)]
        return min(found, default=None)

    def hits(
        self, queues: _Queues, among: Mask, now: float, lives: Lives = NO_LIVES
    ) -> list[tuple[Closing, Mask]]:
        """The closings of queues among these, with these queues; most queues first."""
        found = [(one, hit) for one, mask in self._active(queues, now, lives) if (hit := mask & among)]
        return sorted(found, key=lambda one: -one[1].bit_count())

    def closed(self, queues: _Queues, now: float, lives: Lives = NO_LIVES) -> Mask:
        """The queues that are closed."""
        return reduce(or_, (mask for _, mask in self._active(queues, now, lives)), 0)

    def announced(self, queues: _Queues, now: float, lives: Lives = NO_LIVES) -> Mask:
        """The queues that get no pilots any more since they are going to be closed."""
        return reduce(or_, (mask for one, mask in self._active(queues, now, lives) if one.is_ahead(now)), 0)

    def leaving(self, queues: _Queues, now: float, lives: Lives = NO_LIVES) -> DrainedNodes:
        """Where pilots leave, or will when a closing begins for which none is sent there any more."""
        ahead = {one.node for one, mask in self._active(queues, now, lives) if mask and one.is_ahead(now)}
        return DrainedNodes(frozenset(ahead | {one.node for one in self.closings if one.empties(now)}))

    def drained(self, now: float) -> DrainedNodes | None:
        """Where pilots leave; None if nowhere."""
        nodes = frozenset(one.node for one in self.closings if one.empties(now))
        return DrainedNodes(nodes) if nodes else None

    def _around(self, node: NodePath) -> Iterator[Closing]:
        if self._by_node:
            found = (self._by_node.get(one) for one in dict.fromkeys(around(node)))
            yield from (one for one in found if one is not None)

    def _active(self, queues: _Queues, now: float, lives: Lives) -> Iterator[tuple[Closing, Mask]]:
        """The closings that hold, or begin while a pilot could still run, with the queues that each closes."""
        known = self._planes
        # By value; items of lists are compared fast if they are the same object.
        if [known[0]] != [queues]:
            known = self._planes = queues, tuple(self._masks(queues)) if self.closings else ()
        for one, mask in known[1]:
            if one.is_ahead(now):
                yield one, mask_of(bit for bit in bits(mask) if one.shuts_out(now, lives.get(bit, 0)))
            elif not one.is_over(now):
                yield one, mask

    def _masks(self, queues: _Queues) -> Iterator[tuple[Closing, Mask]]:
        below: dict[NodePath, list[int]] = {node: [] for node in self._by_node}
        for bit, queue in queues.items():
            for node in around(queue):
                if node in below:
                    below[node].append(bit)
        return ((self._by_node[node], mask_of(found)) for node, found in below.items() if found)


NOTHING_CLOSED: Final = SiteMask()


def around(node: NodePath) -> tuple[NodePath, NodePath, NodePath]:
    """Its site, its CE and itself."""
    return NodePath(node[0]), NodePath(node[0], node[1]), node
