"""Buckets, and what is shut because they are full: the parts of `limits`."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lodesman.gridengine.values import Number, Value
from lodesman.matching.limit_rules import KeySide, Need, Values


@dataclass(slots=True, eq=False)
class AlikeQueues:
    """Task queues that rules see alike, as slots by the number of their group."""

    side: KeySide
    masks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Part:
    """The task queues whose jobs take and need the same of one rule's bucket, as slots by the number of their group.

    `amounts`: what they take of each resource. `kinds`: how many they are of.
    """

    rule: int
    values: Values
    needs: tuple[Need, ...]
    amounts: tuple[tuple[str, Number], ...] = field(init=False)
    masks: dict[int, int] = field(default_factory=dict)
    kinds: int = 0

    def __post_init__(self) -> None:
        self.amounts = tuple((need.resource, need.charge) for need in self.needs if need.charge)


class _Amount(NamedTuple):
    """A part by what its jobs need of one resource; `number` makes it unique."""

    amount: Number
    number: int
    part: Part


class Parts:
    """The parts of one bucket, also in the order of what they need of each resource that is used up."""

    __slots__ = ("_by_amount", "_number", "by_needs")

    def __init__(self) -> None:
        self.by_needs: dict[tuple[Need, ...], Part] = {}
        self._by_amount: dict[str, list[_Amount]] = {}
        self._number = 0

    def __iter__(self) -> Iterator[Part]:
        return iter(self.by_needs.values())

    def of(self, rule: int, values: Values, needs: tuple[Need, ...]) -> Part:
        """That with these needs, made if it is new."""
        part = self.by_needs.get(needs)
        if part is None:
            part = self.by_needs[needs] = Part(rule, values, needs)
            self._number += 1
            for resource, amount in part.amounts:
                insort(self._by_amount.setdefault(resource, []), _Amount(amount, self._number, part))
        return part

    def drop(self, part: Part) -> None:
        """No task queue is of this part any more."""
        del self.by_needs[part.needs]
        for resource, _ in part.amounts:
            ordered = self._by_amount[resource]
            ordered[:] = [one for one in ordered if one.part is not part]

    def between(self, resource: str, least: Number, most: Number) -> Iterator[Part]:
        """Those that need more than `least` of a resource, and at most `most`."""
        ordered = self._by_amount.get(resource)
        if ordered and ordered[0].amount <= most and ordered[-1].amount > least:
            first = bisect_right(ordered, least, key=_amount)
            yield from (one.part for one in ordered[first : bisect_right(ordered, most, key=_amount)])


def _amount(one: _Amount) -> Number:
    return one.amount


@dataclass(slots=True, eq=False)
class Booked:
    """What is used of each resource of a rule that anything was charged for."""

    limits: Mapping[str, Value]
    used: dict[str, Number] = field(default_factory=dict)

    def refuses(self, needs: Iterable[Need]) -> bool:
        """Whether a job with these needs does not fit."""
        used, limits = self.used, self.limits
        for name, amount, _, fits in needs:
            if fits is not None:
                if not fits(amount, limits[name]):
                    return True
            elif used.get(name, 0) + amount > limits[name]:  # type: ignore[operator]  # numbers, as they are booked
                return True
        return False


@dataclass(slots=True, eq=False)
class Family:
    """The buckets of a rule at places with the same values, and the places that fill them."""

    rule: int
    values: Values
    limits: Mapping[str, Value]
    empty: Booked = field(init=False)
    buckets: dict[Values, Booked] = field(default_factory=dict)
    places: dict[Split, list[SetPlace]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.empty = Booked(self.limits)


class Split:
    """How the rules of a set that concern a place divide the kinds: each has one rule at most, and so one part.

    `of_kind`: the part of each, None if no rule of the set concerns it here. `largest` gets the largest amount of each
    resource that any part takes, by rule.
    """

    __slots__ = ("_largest", "bits", "of_kind", "parts", "places")

    def __init__(
        self, bits: int, kinds: Iterable[AlikeQueues], largest: dict[int, dict[str, Number]]
    ) -> None:
        self.bits = bits
        self._largest = largest
        self.parts: dict[tuple[int, Values], Parts] = {}
        self.places: list[SetPlace] = []
        self.of_kind: dict[AlikeQueues, Part | None] = {}
        for kind in kinds:
            part = self.part(kind)
            if part is not None:
                for group, mask in kind.masks.items():
                    part.masks[group] = part.masks.get(group, 0) | mask

    def part(self, kind: AlikeQueues) -> Part | None:
        """That of a kind; None if no rule of the set concerns it here."""
        try:
            return self.of_kind[kind]
        except KeyError:
            part = self.of_kind[kind] = self._find(kind)
            return part

    def refusing(self, part: Part) -> Iterator[SetPlace]:
        """The places where the next job of a part does not fit. Most have no bucket yet, and the same limits."""
        limits: Mapping[str, Value] | None = None
        is_shut = False
        for place in self.places:
            family = place.families[part.rule]
            bucket = family.buckets.get(part.values)
            if bucket is not None:
                if bucket.refuses(part.needs):
                    yield place
                continue
            if family.limits != limits:
                limits, is_shut = family.limits, family.empty.refuses(part.needs)
            if is_shut:
                yield place

    def forget(self, kind: AlikeQueues) -> None:
        """The kind has no task queue any more."""
        part = self.of_kind.pop(kind, None)
        if part is not None:
            part.kinds -= 1
            if not part.kinds:
                alike = self.parts[part.rule, part.values]
                alike.drop(part)
                if not alike.by_needs:
                    del self.parts[part.rule, part.values]

    def _find(self, kind: AlikeQueues) -> Part | None:
        both = self.bits & kind.side.bits
        if not both:
            return None
        rule = (both & -both).bit_length() - 1
        values, needs = kind.side.values(rule), kind.side.needs(rule)
        alike = self.parts.get((rule, values))
        if alike is None:
            alike = self.parts[rule, values] = Parts()
        part = alike.of(rule, values, needs)
        largest = self._largest.setdefault(rule, {})
        for resource, amount in part.amounts:
            largest[resource] = max(amount, largest.get(resource, 0))
        part.kinds += 1
        return part


class SetPlace:
    """A place as one set sees it. `shut`: the slots that may not be drawn, by the number of their group."""

    __slots__ = ("families", "shut", "split")

    def __init__(self, split: Split, families: dict[int, Family]) -> None:
        self.split = split
        self.families = families
        self.shut: dict[int, int] = {}
        for parts in split.parts.values():
            for part in parts:
                if self.refuses(part):
                    self.close(part, part.masks)

    def refuses(self, part: Part) -> bool:
        """Whether the next job of a part does not fit here."""
        family = self.families[part.rule]
        return family.buckets.get(part.values, family.empty).refuses(part.needs)

    def close(self, part: Part, masks: Mapping[int, int]) -> None:
        """Slots of a part that does not fit any more."""
        for group, mask in masks.items():
            self.shut[group] = self.shut.get(group, 0) | mask

    def open(self, part: Part, masks: Mapping[int, int]) -> None:
        """Slots of a part that fits again, or that are free."""
        for group, mask in masks.items():
            left = self.shut.get(group, 0) & ~mask
            if left:
                self.shut[group] = left
            else:
                self.shut.pop(group, None)
