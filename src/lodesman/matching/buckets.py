"""Buckets, and what is shut because they are full: the parts of `limits`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lodesman.gridengine.values import Number, Value
from lodesman.matching.limit_rules import KeySide, Need, Values


@dataclass(slots=True, eq=False)
class AlikeQueues:
    """Task queues that rules see alike, as slots by the number of their group."""

    side: KeySide
    masks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Part:
    """The task queues whose jobs take and need the same of one rule's bucket, as slots by the number of their group."""

    rule: int
    values: Values
    needs: tuple[Need, ...]
    masks: dict[int, int] = field(default_factory=dict)


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

    def book(self, needs: Iterable[Need], sign: int) -> None:
        """One job more, or less."""
        for name, _, charge, _ in needs:
            if charge:
                self.used[name] = self.used.get(name, 0) + sign * charge


@dataclass(slots=True, eq=False)
class Family:
    """The buckets of a rule at places with the same values, and the places that fill them."""

    rule: int
    values: Values
    limits: Mapping[str, Value]
    buckets: dict[Values, Booked] = field(default_factory=dict)
    places: list[SetPlace] = field(default_factory=list)

    def bucket(self, values: Values) -> Booked:
        """Made when it is first needed."""
        found = self.buckets.get(values)
        if found is None:
            found = self.buckets[values] = Booked(self.limits)
        return found


class Split:
    """How the rules of a set that concern a place divide the kinds: each has one rule at most, and so one part."""

    __slots__ = ("_of_kind", "bits", "parts", "places")

    def __init__(self, bits: int, kinds: Iterable[AlikeQueues]) -> None:
        self.bits = bits
        self.parts: dict[tuple[int, Values], dict[tuple[Need, ...], Part]] = {}
        self.places: list[SetPlace] = []
        self._of_kind: dict[AlikeQueues, Part | None] = {}
        for kind in kinds:
            part = self.part(kind)
            if part is not None:
                for group, mask in kind.masks.items():
                    part.masks[group] = part.masks.get(group, 0) | mask

    def part(self, kind: AlikeQueues) -> Part | None:
        """That of a kind; None if no rule of the set concerns it here."""
        try:
            return self._of_kind[kind]
        except KeyError:
            part = self._of_kind[kind] = self._find(kind)
            return part

    def forget(self, kind: AlikeQueues) -> None:
        """The kind has no task queue any more."""
        self._of_kind.pop(kind, None)

    def _find(self, kind: AlikeQueues) -> Part | None:
        both = self.bits & kind.side.bits
        if not both:
            return None
        rule = (both & -both).bit_length() - 1
        values, needs = kind.side.values(rule), kind.side.needs(rule)
        alike = self.parts.setdefault((rule, values), {})
        part = alike.get(needs)
        if part is None:
            part = alike[needs] = Part(rule, values, needs)
        return part


class SetPlace:
    """A place as one set sees it. `shut`: the slots that may not be drawn, by the number of their group."""

    __slots__ = ("families", "shut", "split")

    def __init__(self, split: Split, families: dict[int, Family]) -> None:
        self.split = split
        self.families = families
        self.shut: dict[int, int] = {}
        for alike in split.parts.values():
            for part in alike.values():
                if self.refuses(part):
                    self.close(part, part.masks)

    def refuses(self, part: Part) -> bool:
        """Whether the next job of a part does not fit here."""
        family = self.families[part.rule]
        bucket = family.buckets.get(part.values)
        return (Booked(family.limits) if bucket is None else bucket).refuses(part.needs)

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
