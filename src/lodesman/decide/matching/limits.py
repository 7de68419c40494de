"""One engine for quota sets, running limits and caps of sites.

In each *set* of rules the first that concerns the task queue and the place counts, in *buckets* by rule and values of
both. Task queues that rules see alike are one *kind*, shut at a place while its next job does not fit into one of its
buckets.

Masks belong to what a place is for one set (`SetPlace`), which thousands of hosts share. A kind has one bucket in a
set, so a bucket that fills or frees moves its own slots alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from lodesman.decide.masks.bits import bits
from lodesman.decide.matching.buckets import (
    BucketLine,
    Charge,
    Counter,
    KindPart,
    KindSplit,
    PlaceFamily,
    QueueKind,
    Rule,
    RuleBucket,
    SetPlace,
    add_bits,
    drop_bits,
)  # fmt: skip
from lodesman.decide.matching.limit_rules import (
    BucketUse,
    GroupSlots,
    Need,
    PlaceSide,
    RuleBook,
    RunPlace,
    Values,
)
from lodesman.decide.matching.spots import NONE_SHUT, ShutSlots, Spot, SpotKind
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Number, Value
from lodesman.wire.quotas import NEXT_START

_PLACES_KEPT: Final = 50_000
_SHUT_KEPT: Final = 1_000


class RunLimits:
    """The rules, what they leave, and the shut slots. Used from one thread."""

    def __init__(self, book: RuleBook | None = None) -> None:
        self.changes = 0  # another number whenever a slot is shut or opened anywhere
        self.are_new = True  # until `take_freed` is asked: whatever waits may start by these rules
        self._freed: set[SetPlace] = set()
        self._book = book if book is not None and book.names else None
        self._rules: list[Rule] = []
        if book is not None:
            self._rules += (Rule(n, by_place=bool(book.by_place >> n & 1)) for n in range(len(book.names)))
        self._kinds: dict[Hashable, QueueKind] = {}
        self._splits: dict[tuple[int, int], KindSplit] = {}
        self._set_places: dict[tuple[int, int, tuple[Values, ...]], SetPlace] = {}
        self._spots: dict[tuple[SetPlace, ...], Spot] = {}
        self._spot_kinds: dict[tuple[tuple[SetPlace, ...], tuple[KindSplit, ...]], SpotKind] = {}
        self._by_place: dict[RunPlace, Spot] = {}
        self._shut: dict[tuple[SetPlace, ...], ShutSlots] = {}

    @property
    def active(self) -> bool:
        """Whether there are rules."""
        return self._book is not None

    # --- task queues -----------------------------------------------------------------------------------------

    def add(self, group: int, slot: int, key: TaskQueueKey) -> None:
        """Note a new task queue's slot."""
        if self._book is None:
            return
        alike, masks = self._book.kind_of(key), {group: 1 << slot}
        kind = self._kinds.get(alike)
        if kind is None:
            kind = self._kinds[alike] = QueueKind(self._book.of_key(key))
        add_bits(kind.masks, masks)
        for split in self._splits.values():
            part = split.part(kind)
            if part is not None:
                add_bits(part.masks, masks)
                self._close(split.refusing(part), masks)

    def remove(self, group: int, slot: int, key: TaskQueueKey) -> None:
        """Free a task queue's slot, if it is noted."""
        if self._book is None:
            return
        alike, masks = self._book.kind_of(key), {group: 1 << slot}
        kind = self._kinds.get(alike)
        if kind is None or not kind.masks.get(group, 0) >> slot & 1:
            return
        drop_bits(kind.masks, masks)
        for split in self._splits.values():
            part = split.part(kind)
            if part is not None:
                drop_bits(part.masks, masks)
                self._open(split.refusing(part), masks)
        if not kind.masks:
            del self._kinds[alike]
            for spot_kind in self._spot_kinds.values():
                spot_kind.plans.pop(alike, None)
            for split in self._splits.values():
                split.forget(kind)

    # --- places ----------------------------------------------------------------------------------------------

    def shut_slots(self, place: RunPlace) -> ShutSlots:
        """The slots that may not be drawn at a place now."""
        if self._book is None:
            return NONE_SHUT
        spot = self.spot(place)
        if spot.as_of != self.changes:
            spot.shut, spot.as_of = self._shut_by(spot), self.changes
        return spot.shut

    def _shut_by(self, spot: Spot) -> ShutSlots:
        """One object for all places where the same sets shut something."""
        sets = tuple([set_place for set_place in spot.sets if set_place.shut])
        if not sets:
            return NONE_SHUT
        shut, as_of = self._shut.get(sets), max(set_place.as_of for set_place in sets)
        if shut is None or shut.as_of != as_of:
            if len(self._shut) >= _SHUT_KEPT:
                self._shut.clear()
            shut = self._shut[sets] = ShutSlots(sets, as_of)
        return shut

    def _close(self, places: Iterable[SetPlace], masks: GroupSlots) -> None:
        for place in places:
            self.changes += 1
            place.close(masks, self.changes)

    def _open(self, places: Iterable[SetPlace], masks: GroupSlots) -> None:
        for place in places:
            self.changes += 1
            place.open(masks, self.changes)

    def spot(self, place: RunPlace) -> Spot:
        """One object for places that rules see alike."""
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
            spot = self._spots.get(sets)
            if spot is None:
                spot = self._spots[sets] = self._new_spot(sets)
            if len(self._by_place) >= _PLACES_KEPT:
                self._by_place.clear()
            self._by_place[place] = spot
        return spot

    def _new_spot(self, sets: tuple[SetPlace, ...]) -> Spot:
        assert self._book is not None  # noqa: S101
        apart = tuple(set_place for set_place in sets if set_place.split.bits & self._book.by_place)
        others = tuple(set_place for set_place in sets if not set_place.split.bits & self._book.by_place)
        seen = others, tuple(set_place.split for set_place in apart)
        return Spot(sets, apart, self._spot_kinds.setdefault(seen, SpotKind(*seen)))

    def _set_place(self, number: int, bits_there: int, side: PlaceSide) -> SetPlace:
        assert self._book is not None  # noqa: S101
        name = number, bits_there, tuple(map(side.values, bits(bits_there & self._book.by_place)))
        set_place = self._set_places.get(name)
        if set_place is None:
            split = self._splits.get((number, bits_there))
            if split is None:
                split = self._splits[number, bits_there] = KindSplit(
                    bits_there, self._kinds.values(), self._rules
                )
            families = {rule: rule.family(side) for rule in map(self._rules.__getitem__, bits(bits_there))}
            set_place = self._set_places[name] = SetPlace(split, families)
            split.places.append(set_place)
            for family in families.values():
                family.places.setdefault(split, []).append(set_place)
        return set_place

    # --- what runs -------------------------------------------------------------------------------------------

    def take(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Charge a job that starts, even beyond what is left."""
        if self._book is not None:
            self._book_job(key, self.spot(place), self._add)

    def give(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Undo `take`."""
        if self._book is not None:
            self._book_job(key, self.spot(place), self._subtract)

    def _book_job(self, key: TaskQueueKey, spot: Spot, book: Callable[[tuple[Charge, ...]], None]) -> None:
        assert self._book is not None  # noqa: S101
        alike = self._book.kind_of(key)
        plan = spot.kind.plans.get(alike)
        if plan is not None:
            book(spot.charges(plan))
            return
        with self._some_kind(key) as kind:
            parts = [
                (set_place, part) for set_place in spot.kind.sets if (part := set_place.split.part(kind))
            ]
            charges = tuple(charge for set_place, part in parts for charge in part.charge(set_place))
            plan = charges, tuple(split.part(kind) for split in spot.kind.splits)
            if kind.masks:
                spot.kind.plans[alike] = plan
            book(spot.charges(plan))

    def _add(self, charges: tuple[Charge, ...]) -> None:
        for counter, amount in charges:
            used = counter.used = counter.used + amount
            if used > counter.calm:
                self._change(counter, used - amount, used)

    def _subtract(self, charges: tuple[Charge, ...]) -> None:
        for counter, amount in charges:
            used = counter.used
            left = counter.used = used - amount
            if used > counter.calm:
                self._change(counter, left, used)
            if not left:
                counter.bucket.forget_if_unused()

    def _change(self, counter: Counter, less: Number, more: Number) -> None:
        """Flip the jobs that fit with `less` used and not with `more`."""
        bucket, least, most = counter.bucket, counter.limit - more, counter.limit - less
        for split, places in bucket.family.places.items():
            parts = split.parts.get(bucket.line)
            if parts is not None:
                for part in parts.between(counter.resource, least, most):
                    self._flip(bucket, part, places)

    def _flip(self, bucket: RuleBucket, part: KindPart, places: Iterable[SetPlace]) -> None:
        if bucket.refuses(part.needs):
            self._close(places, part.masks)
        else:
            self._open(places, part.masks)
            self._freed.update(places)

    def review(self, rule: str, of_place: Values) -> None:
        """Judge a rule anew at these places: a delay shut or opened."""
        if self._book is not None and rule in self._book.names:
            family = self._rules[self._book.names.index(rule)].families.get(of_place)
            if family is not None:
                self._review(family)

    def reread_host(self, host: str) -> None:
        """Read the limits on a host again: more is known of it."""
        for place, spot in self._by_place.items():
            if self._book is not None and place.host == host:
                side = self._book.of_place(place)
                for family in (f for set_place in spot.sets for f in set_place.families.values()):
                    limits = side.limits(family.rule.number)
                    if limits != family.limits:
                        family.rule.set_limits(family, limits)
                        self._review(family)

    def _review(self, family: PlaceFamily) -> None:
        for split, places in family.places.items():
            for line, parts in split.parts.items():
                if line.rule is family.rule:
                    for part in parts:
                        self._flip(part.bucket(family), part, places)

    @contextmanager
    def _some_kind(self, key: TaskQueueKey) -> Iterator[QueueKind]:
        """Its kind, for a moment if there is none."""
        assert self._book is not None  # noqa: S101
        kind = self._kinds.get(self._book.kind_of(key))
        if kind is not None:
            yield kind
            return
        kind = QueueKind(self._book.of_key(key))
        yield kind
        for split in self._splits.values():
            split.forget(kind)

    def take_freed(self) -> Callable[[Spot], bool] | None:
        """Where something opened since the last call; None: nowhere."""
        freed, self._freed = self._freed, set()
        if self.are_new:
            self.are_new = False
            return lambda _: True
        return (lambda spot: not freed.isdisjoint(spot.sets)) if freed else None

    # --- what is said ----------------------------------------------------------------------------------------

    def refusals(self, key: TaskQueueKey, place: RunPlace) -> list[tuple[BucketUse, Value]]:
        """The buckets that keep a job from starting there, and its need of each."""
        if self._book is None:
            return []
        with self._some_kind(key) as kind:
            return [
                (self._use(bucket, part.line.values, need.resource, never=_never(bucket, need)), need.amount)
                for set_place in self.spot(place).sets
                if (part := set_place.split.part(kind))
                for need in part.needs
                if (bucket := part.bucket(set_place.families[part.rule])).refuses((need,))
            ]

    def never(self, place: RunPlace) -> GroupSlots:
        """The slots that may not be drawn there whatever ends."""
        masks: dict[int, int] = {}
        for set_place in (some for some in self.spot(place).sets if some.shut):
            for part in (part for parts in set_place.split.parts.values() for part in parts if part.masks):
                bucket = part.bucket(set_place.families[part.rule])
                if any(_never(bucket, need) for need in part.needs):
                    add_bits(masks, part.masks)
        return masks

    def closed_by(self, place: RunPlace) -> Iterator[tuple[str, GroupSlots]]:
        """(rule, slots) of each bucket that closes task queues there."""
        if self._book is None:
            return
        for set_place in self.spot(place).sets:
            for parts in set_place.split.parts.values():
                for part in parts:
                    if part.bucket(set_place.families[part.rule]).refuses(part.needs):
                        yield self._book.names[part.rule.number], part.masks

    def uses(self) -> Iterator[tuple[BucketUse, GroupSlots]]:
        """The used buckets, with the slots that each shuts somewhere."""
        return ((use, shut) for use, shut in self.buckets() if use.used)

    @property
    def rules(self) -> int:
        """The number of rules."""
        return len(self._rules)

    def buckets(self, first: int = 0, most: int | None = None) -> Iterator[tuple[BucketUse, GroupSlots]]:
        """The buckets that are used, or empty and refuse a job, and the slots that each shuts, by resource. `first`,
        `most`: a part of the rules, since all may take long.
        """
        for rule in self._rules[first : None if most is None else first + most]:
            everywhere = [family for family in rule.families.values() if not any(family.values)]
            for line in rule.lines.values():
                for family in dict.fromkeys((*line.buckets, *everywhere)):
                    yield from self._of_bucket(line, family)

    def _of_bucket(self, line: BucketLine, family: PlaceFamily) -> Iterator[tuple[BucketUse, GroupSlots]]:
        bucket = line.buckets.get(family, family.empty)
        is_used = bucket.is_used()
        refused = [
            part
            for split in family.places
            for part in split.parts.get(line, ())
            if part.masks and bucket.refuses(part.needs)
        ]
        for resource in family.limits if is_used or refused else ():
            shut: dict[int, int] = {}
            needs = []
            for part in refused:
                need = next((need_of for need_of in part.needs if need_of.resource == resource), None)
                if need is not None and bucket.refuses((need,)):
                    needs.append(need.amount)
                    add_bits(shut, part.masks)
            if is_used or shut:
                yield self._use(bucket, line.values, resource, min(needs, default=None)), shut

    def _use(
        self,
        bucket: RuleBucket,
        of_key: Values,
        resource: str,
        least: Value | None = None,
        *,
        never: bool = False,
    ) -> BucketUse:
        assert self._book is not None  # noqa: S101
        family = bucket.family
        name, used = self._book.names[family.rule.number], bucket.used(resource)
        return BucketUse(name, of_key, family.values, resource, used, family.limits[resource], least, never)


def _never(bucket: RuleBucket, need: Need) -> bool:
    """Whether the need is refused whatever ends; a delay opens by itself."""
    return need.resource != NEXT_START and bucket.family.empty.refuses((need,))


_NO_RULES: Final = Spot((), (), SpotKind((), ()))
