"""The site mask: sites, CEs and queues that an administrator closed. Pure: the director and `why` ask the same one.

No pilot is sent where something is closed. Pilots that are there are told to leave, unless they may stay.
Source: issue "Requirements and SubmitPools, complete", point 6; ADR 0025.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from lodesman.resources import NodePath

MOST_WORLDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """One site, CE (`queue` is '') or queue that is closed, by whom and why. `since` and `until` in UNIX seconds;
    None: until somebody opens it. `keep_pilots`: those that are there go on taking jobs.
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
        """SITE, SITE/CE or SITE/CE/QUEUE, for people."""
        return "/".join(filter(None, self.node))

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

    __slots__ = ("_by_node", "_drained", "_planes", "closings")

    def __init__(self, closings: Iterable[Closing] = ()) -> None:
        self.closings = tuple(sorted(closings, key=lambda one: one.node))
        self._by_node = {one.node: one for one in self.closings}
        self._planes: dict[int, tuple[Sequence[NodePath], tuple[tuple[Closing, int], ...]]] = {}
        self._drained = Drained(())

    def active(self, now: float) -> Iterator[Closing]:
        """Those that hold, by site, CE and queue."""
        return (one for one in self.closings if one.holds(now))

    def of(self, place: NodePath, now: float) -> tuple[Closing, ...]:
        """What closes a queue, the widest first; () if it is open. Also of a whole CE or site."""
        if not self._by_node:
            return ()
        found = (self._by_node.get(node) for node in dict.fromkeys(_around(place)))
        return tuple(one for one in found if one is not None and one.holds(now))

    def told(self, place: NodePath, now: float) -> str:
        """What closes a queue, in words; '' if it is open."""
        return "; ".join(one.text for one in self.of(place, now))

    def drains(self, place: NodePath, now: float) -> Closing | None:
        """What makes the pilots of a queue leave; None if they may stay."""
        return next((one for one in self.of(place, now) if not one.keep_pilots), None)

    def drained(self, now: float) -> Drained | None:
        """Where pilots leave; None if that is nowhere. The same object as long as nothing changes."""
        closings = tuple(one for one in self.active(now) if not one.keep_pilots)
        if closings != self._drained.closings:
            self._drained = Drained(closings)
        return self._drained if closings else None

    def planes(self, queues: Sequence[NodePath], now: float) -> list[tuple[Closing, int]]:
        """Of these queues, those that each closing closes, as bits; only closings that close any."""
        if not self.closings:
            return []
        known = self._planes.get(id(queues))
        if known is None or known[0] is not queues:
            if len(self._planes) >= MOST_WORLDS:
                self._planes.clear()
            known = self._planes[id(queues)] = queues, tuple(self._look(queues))
        return [(one, mask) for one, mask in known[1] if one.holds(now)]

    def hits(self, queues: Sequence[NodePath], among: int, now: float) -> list[tuple[Closing, int]]:
        """What closes queues among these, with these queues; most queues first."""
        found = [(one, hit) for one, mask in self.planes(queues, now) if (hit := mask & among)]
        return sorted(found, key=lambda one: -one[1].bit_count())

    def closed(self, queues: Sequence[NodePath], now: float) -> int:
        """Of these queues those that are closed, as bits."""
        found = 0
        for _, mask in self.planes(queues, now):
            found |= mask
        return found

    def _look(self, queues: Sequence[NodePath]) -> Iterator[tuple[Closing, int]]:
        masks: dict[NodePath, int] = dict.fromkeys(self._by_node, 0)
        for bit, place in enumerate(queues):
            for node in _around(place):
                if node in masks:
                    masks[node] |= 1 << bit
        return ((self._by_node[node], mask) for node, mask in masks.items() if mask)


NOTHING_CLOSED: Final = SiteMask()


def _around(place: NodePath) -> tuple[NodePath, NodePath, NodePath]:
    """Its site, its CE and itself."""
    site, ce, _ = place
    return NodePath(site), NodePath(site, ce), place


def utc(at: float) -> str:
    """A time of day for people of all countries: 2026-11-21 21:30 UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
