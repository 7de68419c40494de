"""What jobs are charged to, and what each set of rules shuts where buckets are full."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from lodesman.decide.matching.limit_rules import GroupSlots, KeySide, Need, PlaceSide, Values
from lodesman.languages.gridengine.values import Number, Value

# --- what is used ----------------------------------------------------------------------------------------------


class Counter:
    """One resource of a bucket."""

    __slots__ = ("bucket", "calm", "limit", "resource", "used")

    def __init__(self, bucket: RuleBucket, resource: str) -> None:
        self.bucket = bucket
        self.resource = resource
        self.limit: Number = bucket.family.limits[resource]  # type: ignore[assignment]  # a number, as it is used up
        self.used: Number = 0
        self.settle()

    def settle(self) -> None:
        """Compute `calm` anew after a change."""
        # up to this, whatever may come fits
        self.calm = self.limit - self.bucket.family.rule.largest.get(self.resource, 0)


Charge = tuple[Counter, Number]  # where a job is counted, and what it takes


@dataclass(slots=True, eq=False)
class RuleBucket:
    """The counters of a rule for equal task queues and places."""

    family: PlaceFamily
    line: BucketLine
    counters: dict[str, Counter] = field(default_factory=dict)

    def used(self, resource: str) -> Number:
        """The charged amount."""
        counter = self.counters.get(resource)
        return 0 if counter is None else counter.used

    def refuses(self, needs: Iterable[Need]) -> bool:
        """Whether such a job does not fit."""
        limits = self.family.limits
        for name, amount, _, fits in needs:
            if fits is not None:
                if not fits(amount, limits[name]):
                    return True
            elif self.used(name) + amount > limits[name]:  # type: ignore[operator]  # numbers, as they are used up
                return True
        return False

    def counter(self, resource: str) -> Counter:
        """The counter of a used resource."""
        counter = self.counters.get(resource)
        if counter is None:
            counter = self.counters[resource] = Counter(self, resource)
        return counter

    def is_used(self) -> bool:
        """Whether anything is charged."""
        return any(counter.used for counter in self.counters.values())

    def forget_if_unused(self) -> None:
        """Forget an unused bucket of a single place: there may be very many."""
        if self.family.rule.by_place and not self.is_used():
            self.line.drop(self)


@dataclass(slots=True, eq=False)
class BucketLine:
    """A rule's buckets for equal task queues."""

    rule: Rule
    values: Values
    buckets: dict[PlaceFamily, RuleBucket] = field(default_factory=dict)
    parts: int = 0  # how many it has

    def bucket(self, family: PlaceFamily) -> RuleBucket:
        """The bucket for a family of places."""
        bucket = self.buckets.get(family)
        if bucket is None:
            bucket = self.buckets[family] = RuleBucket(family, self)
        return bucket

    def drop(self, bucket: RuleBucket) -> None:
        """Forget an unused bucket."""
        del self.buckets[bucket.family]
        for split, places in bucket.family.places.items():
            for part in split.parts.get(self, ()):
                for place in places:
                    part.charges.pop(place, None)
        self.forget()

    def forget(self) -> None:
        """Drop a line with no part and nothing used."""
        if not self.parts and not any(bucket.is_used() for bucket in self.buckets.values()):
            self.rule.lines.pop(self.values, None)


@dataclass(slots=True, eq=False)
class PlaceFamily:
    """Places with equal values for a rule."""

    rule: Rule
    values: Values
    limits: Mapping[str, Value]
    empty: RuleBucket = field(init=False)  # stands for all its buckets of which nothing is used
    places: dict[KindSplit, list[SetPlace]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.empty = RuleBucket(self, BucketLine(self.rule, ()))


class Rule:
    """A rule in use."""

    __slots__ = ("by_limits", "by_place", "families", "largest", "lines", "number")

    def __init__(self, number: int, *, by_place: bool) -> None:
        self.number = number
        self.by_place = by_place  # it counts places apart
        self.lines: dict[Values, BucketLine] = {}
        self.families: dict[Values, PlaceFamily] = {}
        self.by_limits: dict[tuple[tuple[str, Value], ...], list[PlaceFamily]] = {}
        self.largest: dict[str, Number] = {}  # what any job takes of each resource at most

    def line(self, values: Values) -> BucketLine:
        """The line of task queues with these values."""
        line = self.lines.get(values)
        if line is None:
            line = self.lines[values] = BucketLine(self, values)
        return line

    def family(self, side: PlaceSide) -> PlaceFamily:
        """The family of a place."""
        values = side.values(self.number)
        family = self.families.get(values)
        if family is None:
            family = self.families[values] = PlaceFamily(self, values, side.limits(self.number))
            self.by_limits.setdefault(tuple(family.limits.items()), []).append(family)
        return family

    def set_limits(self, family: PlaceFamily, limits: Mapping[str, Value]) -> None:
        """Give a family other limits."""
        before = tuple(family.limits.items())
        self.by_limits[before].remove(family)
        if not self.by_limits[before]:
            del self.by_limits[before]
        family.limits = limits
        self.by_limits.setdefault(tuple(limits.items()), []).append(family)
        for line in self.lines.values():
            if family in line.buckets:
                for counter in line.buckets[family].counters.values():
                    counter.limit = limits[counter.resource]  # type: ignore[assignment]  # a number, as before
                    counter.settle()

    def expect(self, amounts: Iterable[tuple[str, Number]]) -> None:
        """Note what jobs may take from now on."""
        for resource, amount in amounts:
            if amount > self.largest.get(resource, 0):
                self.largest[resource] = amount
                for line in self.lines.values():
                    for bucket in line.buckets.values():
                        if resource in bucket.counters:
                            bucket.counters[resource].settle()


# --- what is shut ----------------------------------------------------------------------------------------------


def add_bits(masks: dict[int, int], more: GroupSlots) -> None:
    """Add slots to masks."""
    for group, mask in more.items():
        masks[group] = masks.get(group, 0) | mask


def drop_bits(masks: dict[int, int], gone: GroupSlots) -> None:
    """Take slots from masks; a group without slots has none."""
    for group, mask in gone.items():
        left = masks.get(group, 0) & ~mask
        if left:
            masks[group] = left
        else:
            masks.pop(group, None)


@dataclass(slots=True, eq=False)
class QueueKind:
    """Task queues that rules see alike."""

    side: KeySide
    masks: dict[int, int] = field(default_factory=dict)  # slots by the number of their group


@dataclass(slots=True, eq=False)
class KindPart:
    """Task queues whose jobs take and need the same of a rule's bucket."""

    rule: Rule
    line: BucketLine
    needs: tuple[Need, ...]
    amounts: tuple[tuple[str, Number], ...] = field(init=False)  # what a job takes of each resource
    charges: dict[SetPlace, tuple[Charge, ...]] = field(default_factory=dict)
    masks: dict[int, int] = field(default_factory=dict)  # slots by the number of their group
    kinds: int = 0  # how many kinds of task queues have this part

    def __post_init__(self) -> None:
        self.line.parts += 1
        self.amounts = tuple((need.resource, need.charge) for need in self.needs if need.charge)

    def bucket(self, family: PlaceFamily) -> RuleBucket:
        """The bucket for its jobs at a place."""
        return self.line.buckets.get(family, family.empty)

    def charge(self, place: SetPlace) -> tuple[Charge, ...]:
        """What each of its jobs takes at a place."""
        charges = self.charges.get(place)
        if charges is None:
            bucket = self.line.bucket(place.families[self.rule])
            charges = tuple((bucket.counter(resource), amount) for resource, amount in self.amounts)
            self.charges[place] = charges
        return charges


_amount = itemgetter(0)


class KindParts:
    """Those of one line, also ordered by their need of each resource."""

    __slots__ = ("_by_amount", "by_needs")

    def __init__(self) -> None:
        self.by_needs: dict[tuple[Need, ...], KindPart] = {}
        self._by_amount: dict[str, list[tuple[Number, KindPart]]] = {}

    def __iter__(self) -> Iterator[KindPart]:
        return iter(self.by_needs.values())

    def add(self, part: KindPart) -> None:
        """Add a part with unique needs."""
        self.by_needs[part.needs] = part
        for resource, amount in part.amounts:
            insort(self._by_amount.setdefault(resource, []), (amount, part), key=_amount)

    def drop(self, part: KindPart) -> None:
        """Remove a part without task queues."""
        part.line.parts -= 1
        part.line.forget()
        del self.by_needs[part.needs]
        for resource, amount in part.amounts:
            self._by_amount[resource].remove((amount, part))

    def between(self, resource: str, least: Number, most: Number) -> Iterator[KindPart]:
        """The parts that need more than `least`, and at most `most`."""
        ordered = self._by_amount.get(resource)
        if ordered and ordered[0][0] <= most and ordered[-1][0] > least:
            first = bisect_right(ordered, least, key=_amount)
            yield from (part for _, part in ordered[first : bisect_right(ordered, most, key=_amount)])


class KindSplit:
    """How a set divides the kinds at a place: one rule for a kind, and so one part."""

    __slots__ = ("bits", "of_kind", "parts", "places", "rules")

    def __init__(self, bits: int, kinds: Iterable[QueueKind], rules: Sequence[Rule]) -> None:
        self.bits = bits
        self.rules = rules  # all rules in use, by number
        self.parts: dict[BucketLine, KindParts] = {}
        self.places: list[SetPlace] = []
        self.of_kind: dict[QueueKind, KindPart | None] = {}  # None: no rule of the set concerns the kind here
        for kind in kinds:
            part = self.part(kind)
            if part is not None:
                add_bits(part.masks, kind.masks)

    def part(self, kind: QueueKind) -> KindPart | None:
        """None if no rule of the set concerns the kind here."""
        try:
            return self.of_kind[kind]
        except KeyError:
            part = self.of_kind[kind] = self._find(kind)
            return part

    def refusing(self, part: KindPart) -> Iterator[SetPlace]:
        """The places where a part's next job does not fit."""
        buckets = part.line.buckets
        for family, bucket in buckets.items():
            if bucket.refuses(part.needs):
                yield from family.places.get(self, ())
        # Most places have no bucket yet, and equal limits.
        for families in part.rule.by_limits.values():
            if families[0].empty.refuses(part.needs):
                for family in families:
                    if family not in buckets:
                        yield from family.places.get(self, ())

    def forget(self, kind: QueueKind) -> None:
        """Drop a kind without task queues."""
        part = self.of_kind.pop(kind, None)
        if part is not None:
            part.kinds -= 1
            if not part.kinds:
                alike = self.parts[part.line]
                alike.drop(part)
                if not alike.by_needs:
                    del self.parts[part.line]

    def _find(self, kind: QueueKind) -> KindPart | None:
        both = self.bits & kind.side.bits
        if not both:
            return None
        number = (both & -both).bit_length() - 1
        rule = self.rules[number]
        line, needs = rule.line(kind.side.values(number)), kind.side.needs(number)
        parts = self.parts.get(line)
        if parts is None:
            parts = self.parts[line] = KindParts()
        part = parts.by_needs.get(needs)
        if part is None:
            part = KindPart(rule, line, needs)
            parts.add(part)
            rule.expect(part.amounts)
        part.kinds += 1
        return part


class SetPlace:
    """A place as one set sees it."""

    __slots__ = ("as_of", "families", "shut", "split")

    def __init__(self, split: KindSplit, families: dict[Rule, PlaceFamily]) -> None:
        self.split = split
        self.families = families
        self.shut: dict[int, int] = {}  # the slots that may not be drawn, by the number of their group
        self.as_of = 0  # the `changes` of the limits at the last change
        for parts in split.parts.values():
            for part in parts:
                if part.bucket(families[part.rule]).refuses(part.needs):
                    self.close(part.masks, 0)

    def close(self, masks: GroupSlots, as_of: int) -> None:
        """Shut the slots of a part that no longer fits."""
        self.as_of = as_of
        add_bits(self.shut, masks)

    def open(self, masks: GroupSlots, as_of: int) -> None:
        """Open slots that fit again, or that are free."""
        self.as_of = as_of
        drop_bits(self.shut, masks)
