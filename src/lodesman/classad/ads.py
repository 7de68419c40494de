"""Ads: attributes in their order, found without regard to case, and the frame in which an expression is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lodesman.classad.nodes import Node, constant_of
from lodesman.classad.values import NestedAd, Value, lower

MOST_STEPS: Final = 10_000
"""Attributes that one evaluation may ask for, each as often as it does."""


@dataclass(slots=True, eq=False)
class AdAttribute:
    """An attribute. `closure` is made when it is first needed."""

    name: str
    node: Node
    closure: Closure | None = None


class Ad(NestedAd):
    """Attributes by name. `outer`: the ad in whose text it stands, where names that it lacks are sought next.

    `constants` has the attributes that are values already, and nothing else.
    """

    __slots__ = ("constants", "entries", "outer")

    def __init__(self, entries: dict[str, AdAttribute], outer: Ad | None = None) -> None:
        self.entries = entries
        self.outer = outer
        self.constants: dict[str, Value] = {}
        for name, entry in entries.items():
            value = constant_of(entry.node)
            if value is not None:
                self.constants[name] = value

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AdAttribute]:
        return iter(self.entries.values())

    def __contains__(self, name: str) -> bool:
        return lower(name) in self.entries

    def node(self, name: str) -> Node | None:
        """The expression of an attribute, or None."""
        entry = self.entries.get(lower(name))
        return entry.node if entry else None

    def nested_in(self, outer: Ad) -> Ad:
        """The same ad as a part of another one."""
        found = Ad.__new__(Ad)
        found.entries, found.constants, found.outer = self.entries, self.constants, outer
        return found

    def with_constants(self) -> Ad:
        """The same ad with `constants` of its own, for values that change from match to match."""
        found = self.nested_in(self)
        found.constants, found.outer = dict(self.constants), self.outer
        return found

    def root(self) -> Ad:
        """The outermost ad."""
        ad = self
        while ad.outer is not None:
            ad = ad.outer
        return ad


EMPTY: Final = Ad({})


@dataclass(slots=True)
class Run:
    """What one evaluation has done so far. `now`: seconds since 1970. `busy`: attributes that are being evaluated.

    `cycle`: the names of a cycle that was found, in its order.
    """

    now: float = 0.0
    steps: int = 0
    busy: list[AdAttribute] = field(default_factory=list)
    cycle: tuple[str, ...] = ()


class Frame:
    """Where an expression stands: in `ad`, whose outermost ad is `my`; `target` is the other side of a match."""

    __slots__ = ("ad", "my", "run", "target")

    def __init__(self, ad: Ad, my: Ad, target: Ad | None, run: Run) -> None:
        self.ad = ad
        self.my = my
        self.target = target
        self.run = run


Closure = Callable[[Frame], Value]
