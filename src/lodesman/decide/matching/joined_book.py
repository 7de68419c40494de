"""Several books of rules as one: their sets one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from lodesman.decide.matching.limit_rules import KeySide, Need, PlaceSide, RuleBook, RunPlace, Values
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Value

_Side = TypeVar("_Side", KeySide, PlaceSide)


def joined(books: Sequence[RuleBook]) -> RuleBook:
    """A book with the rules of all these, at least one; those without rules cost nothing."""
    having = [book for book in books if book.names] or [books[0]]
    return having[0] if len(having) == 1 else _JoinedBook(having)


class _Joined(Generic[_Side]):
    """What the rules of all books see of a task queue, or of a place."""

    def __init__(self, starts: Sequence[int], sides: Sequence[_Side]) -> None:
        self._starts = starts
        self._sides: Sequence[_Side] = sides
        self.bits = sum(side.bits << start for start, side in zip(starts, sides, strict=True))

    def values(self, rule: int) -> Values:
        """Of the bucket."""
        side, own = self._of(rule)
        return side.values(own)

    def _of(self, rule: int) -> tuple[_Side, int]:
        number = bisect_right(self._starts, rule) - 1
        return self._sides[number], rule - self._starts[number]


class _JoinedKey(_Joined[KeySide]):
    def needs(self, rule: int) -> tuple[Need, ...]:
        """Of each resource."""
        side, own = self._of(rule)
        return side.needs(own)


class _JoinedPlace(_Joined[PlaceSide]):
    def limits(self, rule: int) -> Mapping[str, Value]:
        """By resource."""
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
        """The first rule of each set, and the one after its last."""
        return self._sets

    @property
    def by_place(self) -> int:
        """The rules that count places apart."""
        return self._by_place

    @property
    def names(self) -> Sequence[str]:
        """Of each rule."""
        return self._names

    def kind_of(self, key: TaskQueueKey) -> Hashable:
        """All that rules see of a task queue."""
        return tuple([book.kind_of(key) for book in self._books])

    def of_key(self, key: TaskQueueKey) -> KeySide:
        """The side of a task queue."""
        return _JoinedKey(self._starts, [book.of_key(key) for book in self._books])

    def of_place(self, place: RunPlace) -> PlaceSide:
        """The side of a place."""
        return _JoinedPlace(self._starts, [book.of_place(place) for book in self._books])
