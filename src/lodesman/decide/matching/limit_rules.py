"""What limits are made of: sets of rules, each with a side of task queues and of places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Number, Value

Values = tuple[str, ...]
GroupSlots = Mapping[int, int]  # slots of task queues, by the number of their group


class RunPlace(NamedTuple):
    """Where a job would run."""

    site: str = ""
    ce: str = ""
    queue: str = ""
    host: str = ""


class Need(NamedTuple):
    """What a job needs of a resource."""

    resource: str
    amount: Value
    charge: Number  # what it takes while it runs
    # of a resource that is not used up: whether this amount is within a limit
    fits: Callable[[Value, Value], bool] | None = None


class KeySide(Protocol):
    """What rules see of a task queue; equal for task queues that they see alike."""

    @property
    def bits(self) -> int:
        """The rules that may concern it."""

    def values(self, rule: int) -> Values:
        """The values of its bucket."""

    def needs(self, rule: int) -> tuple[Need, ...]:
        """What a job needs of each resource of the rule."""


class PlaceSide(Protocol):
    """What rules see of a place."""

    @property
    def bits(self) -> int:
        """The rules that may concern it."""

    def values(self, rule: int) -> Values:
        """The values of its bucket."""

    def limits(self, rule: int) -> Mapping[str, Value]:
        """The limits by resource."""


class RuleBook(Protocol):
    """Rules by number, set after set."""

    @property
    def sets(self) -> Sequence[tuple[int, int]]:
        """The first rule of each set, and the one after its last."""

    @property
    def by_place(self) -> int:
        """The rules that count places apart."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the rules."""

    def kind_of(self, key: TaskQueueKey) -> Hashable:
        """All that rules see of a task queue."""

    def of_key(self, key: TaskQueueKey) -> KeySide:
        """Asked once for each kind."""

    def of_place(self, place: RunPlace) -> PlaceSide:
        """The side of a place; asked once for each."""


class BucketUse(Struct, frozen=True):
    """What is used and allowed of a bucket's resource."""

    rule: str
    of_key: Values
    of_place: Values
    resource: str
    used: Number
    limit: Value
    # the smallest amount for which there is no room; None: all fit, or it was not asked
    least: Value | None = None
    never: bool = False  # a job that was asked about would not fit if nothing were used


_Side = TypeVar("_Side", KeySide, PlaceSide)


def join_books(books: Sequence[RuleBook]) -> RuleBook:
    """One book with all sets of these (at least one); books without rules cost nothing."""
    having = [book for book in books if book.names] or [books[0]]
    return having[0] if len(having) == 1 else _JoinedBook(having)


class _JoinedSide(Generic[_Side]):
    def __init__(self, starts: Sequence[int], sides: Sequence[_Side]) -> None:
        self._starts = starts
        self._sides: Sequence[_Side] = sides
        self.bits = sum(side.bits << start for start, side in zip(starts, sides, strict=True))

    def values(self, rule: int) -> Values:
        side, own = self._of(rule)
        return side.values(own)

    def _of(self, rule: int) -> tuple[_Side, int]:
        number = bisect_right(self._starts, rule) - 1
        return self._sides[number], rule - self._starts[number]


class _JoinedKey(_JoinedSide[KeySide]):
    def needs(self, rule: int) -> tuple[Need, ...]:
        side, own = self._of(rule)
        return side.needs(own)


class _JoinedPlace(_JoinedSide[PlaceSide]):
    def limits(self, rule: int) -> Mapping[str, Value]:
        side, own = self._of(rule)
        return side.limits(own)


class _JoinedBook:
    def __init__(self, books: Sequence[RuleBook]) -> None:
        self._books = books
        self._starts = [0, *accumulate(len(book.names) for book in books[:-1])]
        placed = list(zip(self._starts, books, strict=True))
        self._names = tuple(name for book in books for name in book.names)
        self._sets = tuple((first + start, end + start) for start, book in placed for first, end in book.sets)
        self._by_place = sum(book.by_place << start for start, book in placed)

    @property
    def sets(self) -> Sequence[tuple[int, int]]:
        return self._sets

    @property
    def by_place(self) -> int:
        return self._by_place

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def kind_of(self, key: TaskQueueKey) -> Hashable:
        return tuple([book.kind_of(key) for book in self._books])

    def of_key(self, key: TaskQueueKey) -> KeySide:
        return _JoinedKey(self._starts, [book.of_key(key) for book in self._books])

    def of_place(self, place: RunPlace) -> PlaceSide:
        return _JoinedPlace(self._starts, [book.of_place(place) for book in self._books])
