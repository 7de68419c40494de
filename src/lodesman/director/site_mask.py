"""The site mask: sites, CEs and queues that an administrator closed. The director and `why` ask the same one (ADR 0025).

No pilot is sent where something is closed. Pilots that are there leave, unless they may stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from lodesman.masks.bits import Mask, mask_of
from lodesman.resources import NodePath, Numbering


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """One closed site, CE (`queue` is '') or queue, by whom and why. `since` and `until` in UNIX seconds; None: until it
    is opened. `keep_pilots`: pilots that are there go on taking jobs.
    """

    site: str
    ce: str = ""
    queue: str = ""
    reason: str
    closed_by: str
    since: float
    until: float | None = None
    keep_pilots: bool = False

    @property
    def node(self) -> NodePath:
        """What is closed."""
        return NodePath(self.site, self.ce, self.queue)

    def holds(self, now: float) -> bool:
        """Whether it is closed at a time; at `until` it is open."""
        return self.until is None or now < self.until

    def concerns(self, node: NodePath) -> bool:
        """Whether it closes a node, a part of it, or all around it."""
        pairs = zip(self.node, node, strict=True)
        return all(mine == theirs or not mine or not theirs for mine, theirs in pairs)

    @property
    def path(self) -> str:
        """SITE, SITE/CE or SITE/CE/QUEUE."""
        return str(self.node)

    @property
    def text(self) -> str:
        """Who closed it, since when and why."""
        until = "" if self.until is None else f" until {utc(self.until)}"
        return f"closed by {self.closed_by} since {utc(self.since)}{until}: {self.reason}"


class Drained:
    """The places whose pilots leave; equal if these are."""

    __slots__ = ("_nodes", "closings")

    def __init__(self, closings: tuple[Closing, ...]) -> None:
        self.closings = closings
        self._nodes = frozenset(one.node for one in closings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drained) and other._nodes == self._nodes

    def __hash__(self) -> int:
        return hash(self._nodes)

    def __contains__(self, place: object) -> bool:
        return any(node in self._nodes for node in _around(cast("NodePath", place)))


class SiteMask:
    """All closings at one moment; never changed, so any thread may ask. A closing counts while it `holds`."""

    __slots__ = ("_by_node", "_planes", "closings")

    def __init__(self, closings: Iterable[Closing] = ()) -> None:
        self.closings = tuple(sorted(closings, key=lambda one: one.node))
        self._by_node = {one.node: one for one in self.closings}
        self._planes: dict[Numbering, tuple[tuple[Closing, Mask], ...]] = {}

    def active(self, now: float) -> Iterator[Closing]:
        """Those that hold, by site, CE and queue."""
        return (one for one in self.closings if one.holds(now))

    def of(self, node: NodePath, now: float) -> tuple[Closing, ...]:
        """What closes a site, CE or queue, the widest first; () if it is open."""
        if not self._by_node:
            return ()
        found = (self._by_node.get(one) for one in dict.fromkeys(_around(node)))
        return tuple(one for one in found if one is not None and one.holds(now))

    def reason(self, node: NodePath, now: float) -> str:
        """What closes a site, CE or queue, in words; '' if it is open."""
        return "; ".join(one.text for one in self.of(node, now))

    def drains(self, node: NodePath, now: float) -> Closing | None:
        """What makes the pilots of a queue leave; None if they may stay."""
        return next((one for one in self.of(node, now) if not one.keep_pilots), None)

    def hits(self, numbering: Numbering, among: Mask, now: float) -> list[tuple[Closing, Mask]]:
        """What closes queues among these, with these queues; most queues first."""
        found = [(one, hit) for one, mask in self._active(numbering, now) if (hit := mask & among)]
        return sorted(found, key=lambda one: -one[1].bit_count())

    def closed(self, numbering: Numbering, now: float) -> Mask:
        """The queues that are closed."""
        return _union(mask for _, mask in self._active(numbering, now))

    def drained(self, now: float) -> Drained | None:
        """Where pilots leave; None if that is nowhere."""
        closings = tuple(one for one in self.active(now) if not one.keep_pilots)
        return Drained(closings) if closings else None

    def _active(self, numbering: Numbering, now: float) -> Iterator[tuple[Closing, Mask]]:
        """The closings that hold, with the queues that each closes."""
        known = self._planes.get(numbering)
        if known is None:
            known = tuple(self._masks(numbering)) if self.closings else ()
            self._planes = {numbering: known}
        return (one for one in known if one[0].holds(now))

    def _masks(self, numbering: Numbering) -> Iterator[tuple[Closing, Mask]]:
        bits: dict[NodePath, list[int]] = {node: [] for node in self._by_node}
        for queue, bit in numbering.bits.items():
            for node in _around(queue):
                if node in bits:
                    bits[node].append(bit)
        return ((self._by_node[node], mask_of(found)) for node, found in bits.items() if found)


def _union(masks: Iterable[Mask]) -> Mask:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _around(node: NodePath) -> tuple[NodePath, NodePath, NodePath]:
    """Its site, its CE and itself."""
    return NodePath(node[0]), NodePath(node[0], node[1]), node


def utc(at: float) -> str:
    """A time as 2026-11-21 21:30 UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
