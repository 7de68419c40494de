"""Ads: attributes in order, found without regard to case, and the frame of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lodesman.languages.classad.nodes import Constant, Node, constant_of, walk
from lodesman.languages.classad.values import NestedAd, Value, lower, steps_of

MOST_STEPS: Final = 50_000
"""Steps of one evaluation, each about a third of a microsecond: a part of an expression, an item of a list, a few
characters of a text, a character beside one state of a regular expression.
"""


class TooDear(Exception):
    """An evaluation has used all its steps; the value is ERROR."""


class Asked(NamedTuple):
    """What an expression itself asks for, in small letters."""

    bare: frozenset[str]  # Names without MY and TARGET.
    my: frozenset[str]
    target: frozenset[str]
    clock: bool  # The time.
    whole: bool  # An ad as a whole.


@dataclass(slots=True, eq=False)
class AdAttribute:
    """An attribute of an ad."""

    name: str
    node: Node
    closure: Closure | None = None  # Made when it is first needed, like `steps` and `asked`.
    steps: int = 0  # What it costs without what it asks for.
    asked: Asked | None = None  # `partial.asked_by` makes it.


class Ad(NestedAd):
    """Attributes by name; `constants`: those that are values already.

    `outer`: the ad around it, where names that it lacks are sought next.
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
        """An attribute's expression."""
        entry = self.entries.get(lower(name))
        return entry.node if entry else None

    def nested_in(self, outer: Ad) -> Ad:
        """As a part of another ad."""
        copy = Ad.__new__(Ad)
        copy.entries, copy.constants, copy.outer = self.entries, self.constants, outer
        return copy

    def part(self, names: Iterable[str]) -> Ad:
        """`names`: in small letters."""
        part_ad = self.nested_in(self)
        part_ad.outer = self.outer
        part_ad.entries = {name: self.entries[name] for name in names}
        part_ad.constants = {name: self.constants[name] for name in part_ad.entries if name in self.constants}
        return part_ad

    def with_constants(self) -> Ad:
        """A copy with its own `constants`, for values that change between matches."""
        copy = self.nested_in(self)
        copy.constants, copy.outer = dict(self.constants), self.outer
        return copy

    def root(self) -> Ad:
        """The outermost ad."""
        ad = self
        while ad.outer is not None:
            ad = ad.outer
        return ad


EMPTY: Final = Ad({})


def ad_of(values: Mapping[str, Value]) -> Ad:
    """An ad of these values."""
    return Ad({lower(name): AdAttribute(name, Constant(value=value)) for name, value in values.items()})


@dataclass(slots=True)
class Run:
    """What one evaluation, or several that share steps, have used."""

    now: float = 0.0  # Seconds since 1970.
    steps: int = 0
    most: int = MOST_STEPS
    busy: list[AdAttribute] = field(default_factory=list)  # Attributes that are being evaluated.
    cycle: tuple[str, ...] = ()  # The names of a cycle that was found, in its order.

    @property
    def is_spent(self) -> bool:
        """Whether it took too many steps, so that its result is ERROR."""
        return self.steps > self.most

    def spend(self, steps: int) -> None:
        """Pay before steps are made. Raises TooDear."""
        self.steps += steps
        if self.steps > self.most:
            self.steps = self.most + 1
            raise TooDear

    def spend_on(self, value: Value, times: int = 1) -> None:
        """Pay before a value is read or printed whole; `times`: how often. Raises TooDear."""
        todo = [value]
        while todo:
            item = todo.pop()
            if isinstance(item, str):
                self.spend(1 + steps_of(item) * times)
            elif isinstance(item, tuple):
                self.spend(1 + len(item))
                todo.extend(item)
            elif isinstance(item, Ad):
                for part in (part for entry in item for part in walk(entry.node)):
                    self.spend(4 + (steps_of(part.value) * times if isinstance(part, Constant) else 0))


class Frame:
    """Where an expression stands."""

    __slots__ = ("ad", "my", "run", "target")

    def __init__(self, ad: Ad, my: Ad, target: Ad | None, run: Run) -> None:
        self.ad = ad
        self.my = my
        self.target = target
        self.run = run


Closure = Callable[[Frame], Value]
SIDES: Final[Mapping[str, Callable[[Frame], Ad | None]]] = {
    "my": lambda frame: frame.ad,
    "self": lambda frame: frame.ad,
    "target": lambda frame: frame.target,
    "other": lambda frame: frame.target,
    "parent": lambda frame: frame.ad.outer,
}
"""The ads of the words MY, TARGET and so on, in small letters."""
