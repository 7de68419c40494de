"""Masks of queues per parameter: bit i of a mask is queue i of a table.

A column answers for one parameter what `kinds.admits` answers for one pair: which queues fulfil a criterion.
Equality is a dictionary from value to mask, "at least" a sorted list of values with the masks of all queues
that offer as much or more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from lodesman.answers.vocabulary import Kind
from lodesman.resources.criterion import Criterion, offers
from lodesman.resources.kinds import AT_LEAST, ParameterType, spelled_number, truth_of
from lodesman.resources.model import Scalar, Value
from lodesman.resources.versions import version_key

Offer = tuple[Scalar, int]  # a value, and the queues that offer it


class Column(Protocol):
    """The queues that offer some value, as masks."""

    def met(self, criterion: Criterion) -> int:
        """The queues whose values fulfil the criterion; wildcards are not looked at here."""


class EqualColumn:
    """For kinds that compare by equality; `key` brings values that are equal to one form."""

    def __init__(self, offered: Iterable[Offer], key: Callable[[Any], Any]) -> None:
        self._key = key
        self._masks: dict[Any, int] = {}
        for value, mask in offered:
            form = key(value)
            self._masks[form] = self._masks.get(form, 0) | mask

    def met(self, criterion: Criterion) -> int:
        """The queues that offer one of the wanted values."""
        found = 0
        for wanted in criterion.wanted:
            found |= self._masks.get(self._key(wanted), 0)
        return found


class OrderedColumn:
    """For kinds where more is better; `key` brings values to a form that orders them."""

    def __init__(self, offered: Iterable[Offer], key: Callable[[Any], Any]) -> None:
        self._key = key
        masks: dict[Any, int] = {}
        for value, mask in offered:
            form = key(value)
            masks[form] = masks.get(form, 0) | mask
        self._forms = sorted(masks)
        self._as_much: list[int] = [0] * (len(self._forms) + 1)
        for index in range(len(self._forms) - 1, -1, -1):
            self._as_much[index] = self._as_much[index + 1] | masks[self._forms[index]]

    def met(self, criterion: Criterion) -> int:
        """The queues that offer at least the least of the wanted values."""
        return self.at_least(min(map(self._key, criterion.wanted)))

    def at_least(self, form: Any) -> int:
        """The queues that offer this much or more."""
        return self._as_much[bisect_left(self._forms, form)]


class DeducedColumn:
    """For undeclared parameters: what counts depends on both sides (`kinds`, last paragraph)."""

    def __init__(self, offered: Iterable[Offer]) -> None:
        pairs = list(offered)
        texts = [(value, mask) for value, mask in pairs if isinstance(value, str)]
        truths = [(value, mask) for value, mask in pairs if isinstance(value, bool)]
        numbers = [(value, mask) for value, mask in pairs if not isinstance(value, str | bool)]
        spelled = [(n, mask) for value, mask in texts if (n := spelled_number(value)) is not None]
        spoken = [(truth, mask) for value, mask in texts if (truth := truth_of(value)) is not None]
        self._texts = _masks(texts)
        self._truths = _masks(truths)
        self._truths_and_texts = _masks([*truths, *spoken])
        self._any_number = bool(numbers)
        self._numbers = OrderedColumn(numbers, _same)
        self._numbers_and_texts = OrderedColumn([*numbers, *spelled], _same)

    def met(self, criterion: Criterion) -> int:
        """The queues that offer what one of the wanted values asks for."""
        found = 0
        for wanted in criterion.wanted:
            found |= self._met_by(wanted)
        return found

    def _met_by(self, wanted: Scalar) -> int:
        if isinstance(wanted, bool):
            return self._truths_and_texts.get(wanted, 0)
        if not isinstance(wanted, str):
            return self._numbers_and_texts.at_least(wanted)
        found = self._texts.get(wanted, 0)
        if self._any_number and (number := spelled_number(wanted)) is not None:
            found |= self._numbers.at_least(number)
        if self._truths and (truth := truth_of(wanted)) is not None:
            found |= self._truths.get(truth, 0)
        return found


class WholeColumn:
    """One parameter over all queues: who declares it, who leaves it open (ANY), the rest as a `Column`."""

    __slots__ = ("_column", "offered", "open", "present")

    def __init__(self, values: Iterable[tuple[Value, int]], declared: ParameterType | None) -> None:
        kind, unit = (declared.kind, declared.unit) if declared else (Kind.DEDUCED, "")
        operator = declared.operator if declared else ""
        self.present = 0
        self.open = 0
        self.offered: list[tuple[tuple[Scalar, ...], int]] = []
        """What is offered, all values of a queue together, and the queues that offer just that."""
        for value, mask in values:
            self.present |= mask
            scalars = offers(value, kind, unit)
            if scalars is None:
                self.open |= mask
            elif scalars:
                self.offered.append((scalars, mask))
        single = [(scalar, mask) for scalars, mask in self.offered for scalar in scalars]
        self._column = _column(kind, operator, single)

    def met(self, criterion: Criterion) -> int:
        """The queues that fulfil the criterion."""
        return self._column.met(criterion) | self.open


def _column(kind: Kind, operator: str, offered: list[Offer]) -> Column:
    if kind is Kind.DEDUCED:
        return DeducedColumn(offered)
    key: Callable[[Any], Any] = version_key if kind is Kind.VERSION else _same
    return OrderedColumn(offered, key) if operator == AT_LEAST else EqualColumn(offered, key)


def _same(value: Any) -> Any:
    return value


def _masks(offered: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    masks: dict[Any, int] = {}
    for value, mask in offered:
        masks[value] = masks.get(value, 0) | mask
    return masks
