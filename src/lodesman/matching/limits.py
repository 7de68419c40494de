"""Limits on what runs at once: one engine for quota sets, running limits and caps of sites.

A limit belongs to a *rule*. Rules stand in *sets*; in each set the first rule that concerns both the task queue and the
place counts, and none after it. What a rule limits is counted in *buckets*: one for each (rule, values of the task queue,
values of the place). Task queues that rules see alike are one *kind*. A kind whose next job would not fit into one of its
buckets at a place is shut there, and open again when an attempt ends: both follow from `take` and `give` alone.

The masks are kept by what a place is for one set (`SetPlace`), which thousands of hosts share if no rule names them.
Within a set, each kind has one bucket, so a bucket that fills or frees adds or takes away its slots, whatever others do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from lodesman.gridengine.values import Number, Value
from lodesman.masks.bits import bits
from lodesman.matching.buckets import AlikeQueues, Booked, Family, Part, Parts, SetPlace, Split
from lodesman.matching.limit_rules import (
    NONE_SHUT,
    BucketUse,
    PlaceSide,
    RuleBook,
    RunPlace,
    Shut,
    Values,
)
from lodesman.matching.task_queue import TaskQueueKey


@dataclass(slots=True, eq=False)
class Spot:
    """What a place is for all sets. `shut` and `as_of`: their masks together, and when they were made."""

    sets: tuple[SetPlace, ...]
    as_of: int = -1
    shut: Mapping[int, int] = field(default_factory=dict)


_PLACES_KEPT: Final = 50_000


class RunLimits:
    """The rules, what they leave, and which slots are shut where. Used from one thread only.

    Other rules are another object. `changes` changes whenever a slot is shut or opened anywhere. `are_new`: whatever waits
    may start by these rules, until `take_freed` is asked.
    """

    def __init__(self, book: RuleBook | None = None) -> None:
        self.changes = 0
        self.are_new = True
        self._freed: set[SetPlace] = set()
        self._largest: dict[int, dict[str, Number]] = {}
        self._book = book if book is not None and book.names else None
        self._kinds: dict[Hashable, AlikeQueues] = {}
        self._splits: dict[tuple[int, int], Split] = {}
        self._families: dict[tuple[int, Values], Family] = {}
        self._set_places: dict[tuple[int, int, tuple[Values, ...]], SetPlace] = {}
        self._spots: dict[tuple[SetPlace, ...], Spot] = {}
        self._by_place: dict[RunPlace, Spot] = {}

    @property
    def active(self) -> bool:
        """Whether there are rules at all."""
        return self._book is not None

    # --- task queues -----------------------------------------------------------------------------------------

    def add(self, group: int, slot: int, key: TaskQueueKey) -> None:
        """A task queue has a slot from now on."""
        if self._book is None:
            return
        kind, masks = self._kind(key), {group: 1 << slot}
        kind.masks[group] = kind.masks.get(group, 0) | 1 << slot
        for split in self._splits.values():
            part = split.part(kind)
            if part is None:
                continue
            part.masks[group] = part.masks.get(group, 0) | 1 << slot
            for place in split.refusing(part):
                place.close(part, masks)
        self.changes += 1

    def remove(self, group: int, slot: int, key: TaskQueueKey) -> None:
        """The slot is free; nothing changes if it was not known."""
        if self._book is None:
            return
        bit, alike = 1 << slot, self._book.kind_of(key)
        kind = self._kinds.get(alike)
        if kind is None or not kind.masks.get(group, 0) & bit:
            return
        _drop_bit(kind.masks, group, bit)
        for split in self._splits.values():
            part = split.part(kind)
            if part is not None:
                _drop_bit(part.masks, group, bit)
                for place in split.places:
                    if place.shut.get(group, 0) & bit:
                        place.open(part, {group: bit})
        if not kind.masks:
            self._forget(alike, kind)
        self.changes += 1

    def _kind(self, key: TaskQueueKey) -> AlikeQueues:
        assert self._book is not None  # noqa: S101
        alike = self._book.kind_of(key)
        kind = self._kinds.get(alike)
        if kind is None:
            kind = self._kinds[alike] = AlikeQueues(self._book.of_key(key))
        return kind

    def _forget(self, alike: Hashable, kind: AlikeQueues) -> None:
        del self._kinds[alike]
        for split in self._splits.values():
            split.forget(kind)

    # --- places ----------------------------------------------------------------------------------------------

    def shut(self, place: RunPlace) -> Shut:
        """The slots that may not be drawn there now, by the number of their group."""
        if self._book is None:
            return NONE_SHUT
        spot = self.spot(place)
        if spot.as_of != self.changes:
            together: dict[int, int] = {}
            for one in spot.sets:
                for group, mask in one.shut.items():
                    together[group] = together.get(group, 0) | mask
            spot.shut, spot.as_of = together, self.changes
        return spot.shut

    def spot(self, place: RunPlace) -> Spot:
        """What a place is for all rules; the same one for places that they see alike."""
        if self._book is None:
            return _NO_RULES
        spot = self._by_place.get(place)
        if spot is None:
            side = self._book.of_place(place)
            sets = tuple(
                self._set_place(number, bits_there, side)
                for number, (start, stop) in enumerate(self._book.sets)
                if (bits_there := side.bits & ((1 << stop) - (1 << start)))
            )
            spot = self._spots.setdefault(sets, Spot(sets))
            if len(self._by_place) >= _PLACES_KEPT:
                self._by_place.clear()
            self._by_place[place] = spot
        return spot

    def _set_place(self, number: int, bits_there: int, side: PlaceSide) -> SetPlace:
        assert self._book is not None  # noqa: S101
        known = number, bits_there, tuple(map(side.values, bits(bits_there & self._book.by_place)))
        found = self._set_places.get(known)
        if found is None:
            split = self._splits.get((number, bits_there))
            if split is None:
                split = self._splits[number, bits_there] = Split(
                    bits_there, self._kinds.values(), self._largest
                )
            families = {rule: self._family(rule, side) for rule in bits(bits_there)}
            found = self._set_places[known] = SetPlace(split, families)
            split.places.append(found)
            for family in families.values():
                family.places.setdefault(split, []).append(found)
        return found

    def _family(self, rule: int, side: PlaceSide) -> Family:
        values = side.values(rule)
        family = self._families.get((rule, values))
        if family is None:
            family = self._families[rule, values] = Family(rule, values, side.limits(rule))
        return family

    # --- what runs -------------------------------------------------------------------------------------------

    def take(self, key: TaskQueueKey, place: RunPlace) -> None:
        """A job of a task queue starts there: what it takes is used, even if that is more than there is."""
        if self._book is not None:
            self._book_job(key, place, 1)

    def give(self, key: TaskQueueKey, place: RunPlace) -> None:
        """The inverse of `take`: the attempt has ended, or is undone."""
        if self._book is not None:
            self._book_job(key, place, -1)

    def _book_job(self, key: TaskQueueKey, place: RunPlace, sign: int) -> None:
        for family, part in self._charged(key, self.spot(place)):
            if not part.amounts:
                continue
            bucket = family.buckets.get(part.values)
            if bucket is None:
                bucket = family.buckets[part.values] = Booked(family.limits)
            used, largest = bucket.used, self._largest[part.rule]
            for resource, amount in part.amounts:
                before = used.get(resource, 0)
                after = used[resource] = before + sign * amount
                limit: Number = family.limits[resource]  # type: ignore[assignment]  # numbers, as they are booked
                least = limit - (after if sign > 0 else before)
                # Jobs that need more than is left at least, and no more than at most, begin to fit or cease to.
                if least < largest[resource]:
                    self._change(family, part.values, resource, least=least, most=least + amount)
                if not after and not any(used.values()):
                    del family.buckets[part.values]

    def _change(self, family: Family, values: Values, resource: str, *, least: Number, most: Number) -> None:
        bucket = family.buckets[values]
        for split, places in family.places.items():
            for part in split.parts.get((family.rule, values), _NO_PARTS).between(resource, least, most):
                self._flip(bucket, part, places)

    def _flip(self, bucket: Booked, part: Part, places: Iterable[SetPlace]) -> None:
        """A part of a bucket may fit now or not, other than before."""
        self.changes += 1
        if bucket.refuses(part.needs):
            for place in places:
                place.close(part, part.masks)
        else:
            for place in places:
                place.open(part, part.masks)
            self._freed.update(places)

    def _charged(self, key: TaskQueueKey, spot: Spot) -> list[tuple[Family, Part]]:
        """What a job is charged to: by set, the part of its task queue, and the buckets there."""
        assert self._book is not None  # noqa: S101
        kind = self._kinds.get(self._book.kind_of(key))
        if kind is not None:
            return [(one.families[part.rule], part) for one in spot.sets if (part := one.split.of_kind[kind])]
        kind = AlikeQueues(self._book.of_key(key))
        found = [(one.families[part.rule], part) for one in spot.sets if (part := one.split.part(kind))]
        for one in spot.sets:
            one.split.forget(kind)
        return found

    def take_freed(self) -> Callable[[Spot], bool] | None:
        """Where something opened since this was asked last, None if nowhere."""
        freed, self._freed = self._freed, set()
        if self.are_new:
            self.are_new = False
            return lambda _: True
        return (lambda spot: not freed.isdisjoint(spot.sets)) if freed else None

    # --- what is said ----------------------------------------------------------------------------------------

    def refusals(self, key: TaskQueueKey, place: RunPlace) -> list[tuple[BucketUse, Value]]:
        """The buckets that keep a job of a task queue from starting there, and what it needs of each."""
        if self._book is None:
            return []
        charged = self._charged(key, self.spot(place))
        asked = [
            (f, part.values, f.buckets.get(part.values, f.empty), need)
            for f, part in charged
            for need in part.needs
        ]
        return [
            (self._use(f, v, bucket, need.resource), need.amount)
            for f, v, bucket, need in asked
            if bucket.refuses((need,))
        ]

    def closed_by(self, place: RunPlace) -> Iterator[tuple[str, Shut]]:
        """Each rule that keeps task queues from being drawn there, once for each of its buckets that do, and which."""
        if self._book is None:
            return
        for one in self.spot(place).sets:
            for parts in one.split.parts.values():
                for part in parts:
                    if one.refuses(part):
                        yield self._book.names[part.rule], part.masks

    def uses(self) -> Iterator[tuple[BucketUse, Shut]]:
        """What is used of all buckets, and the slots that each shuts at some place."""
        return ((use, shut) for use, shut in self.buckets() if use.used)

    @property
    def families(self) -> int:
        """The number of families of buckets: one for each rule, and values of places that it counts apart."""
        return len(self._families)

    def buckets(self, first: int = 0, most: int | None = None) -> Iterator[tuple[BucketUse, Shut]]:
        """All buckets of which something is used, by resource, and the slots that each shuts at some place; also those that
        are empty and refuse a job, of rules that do not count places apart. `first`, `most`: a part of the families of
        buckets, since all of them may take long.
        """
        families = list(islice(self._families.values(), first, None if most is None else first + most))
        behind: dict[int, dict[Values, list[tuple[Split, Parts]]]] = {one.rule: {} for one in families}
        for split in self._splits.values():
            for (rule, values), parts in split.parts.items():
                if rule in behind:
                    behind[rule].setdefault(values, []).append((split, parts))
        for family in families:
            waiting = behind[family.rule]
            for values in family.buckets.keys() | (() if any(family.values) else waiting.keys()):
                bucket = family.buckets.get(values, family.empty)
                refused = [
                    part
                    for split, parts in waiting.get(values, ())
                    if split in family.places
                    for part in parts
                    if part.masks and bucket.refuses(part.needs)
                ]
                if refused or values in family.buckets:
                    yield from self._by_resource(family, values, bucket, refused)

    def _by_resource(
        self, family: Family, values: Values, bucket: Booked, refused: Iterable[Part]
    ) -> Iterator[tuple[BucketUse, Shut]]:
        for resource in family.limits:
            shut: dict[int, int] = {}
            needs = []
            for part in refused:
                need = next((one for one in part.needs if one.resource == resource), None)
                if need is not None and bucket.refuses((need,)):
                    needs.append(need.amount)
                    for group, mask in part.masks.items():
                        shut[group] = shut.get(group, 0) | mask
            if shut or values in family.buckets:
                yield self._use(family, values, bucket, resource, min(needs, default=None)), shut

    def _use(
        self, family: Family, values: Values, bucket: Booked, resource: str, least: Value | None = None
    ) -> BucketUse:
        assert self._book is not None  # noqa: S101
        name, used = self._book.names[family.rule], bucket.used.get(resource, 0)
        return BucketUse(name, values, family.values, resource, used, family.limits[resource], least)


def _drop_bit(masks: dict[int, int], group: int, bit: int) -> None:
    masks[group] &= ~bit
    if not masks[group]:
        del masks[group]


_NO_PARTS: Final = Parts()
_NO_RULES: Final = Spot(())
