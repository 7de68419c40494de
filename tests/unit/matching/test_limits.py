"""The limit engine: masks, buckets, first rule of a set, against an evaluation that looks at everything each time."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from operator import le

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.masks.bits import bits
from lodesman.decide.matching.buckets import Counter
from lodesman.decide.matching.limit_rules import BucketUse, Need, RunPlace
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.task_queue import TaskQueueKey

KEYS = [
    TaskQueueKey(owner=owner, group="g", vo="v", project=project, cores=cores)
    for owner in "abc" for project in ("", "p") for cores in (1, 4)
]  # fmt: skip
PLACES = [RunPlace("S", "ce", queue, host) for queue in "qr" for host in ("h1", "h2")]


@dataclass(frozen=True)
class Rule:
    """Owners and hosts that it concerns ('' for all), whether each has a bucket of its own, and what it limits."""

    owners: str = ""
    each_owner: bool = False
    hosts: tuple[str, ...] = ()
    each_host: bool = False
    slots: int | None = None
    jobs: int | None = None
    largest: int | None = None  # compared only

    def of_key(self, key):
        if self.owners and key.owner not in self.owners:
            return None
        return (key.owner,) if self.each_owner else ()

    def of_place(self, place):
        if self.hosts and place.host not in self.hosts:
            return None
        return (place.host,) if self.each_host else ()

    def needs(self, key):
        found = [(self.slots, Need("slots", key.cores, key.cores)), (self.jobs, Need("jobs", 1, 1)),
                 (self.largest, Need("largest", key.cores, 0, le))]  # fmt: skip
        return tuple(need for limit, need in found if limit is not None)

    @property
    def limits(self):
        found = {"slots": self.slots, "jobs": self.jobs, "largest": self.largest}
        return {name: limit for name, limit in found.items() if limit is not None}


@dataclass(frozen=True)
class Side:
    """One side of all rules."""

    bits: int
    all_values: Mapping[int, tuple[str, ...]]
    of_rule: Mapping[int, object]

    def values(self, rule):
        return self.all_values[rule]

    def needs(self, rule):
        return self.of_rule[rule]

    def limits(self, rule):
        return self.of_rule[rule]


class Book:
    """Sets of rules."""

    def __init__(self, sets) -> None:
        self.rules = [rule for one in sets for rule in one]
        ends = [sum(map(len, sets[: n + 1])) for n in range(len(sets))]
        self.sets = list(zip([0, *ends], ends, strict=False))
        self.by_place = sum(1 << n for n, rule in enumerate(self.rules) if rule.each_host)
        self.names = [f"{n}/{k}" for n, one in enumerate(sets) for k in range(len(one))]

    def kind_of(self, key) -> Hashable:
        return key.owner, key.cores

    def of_key(self, key):
        values = {n: found for n, rule in enumerate(self.rules) if (found := rule.of_key(key)) is not None}
        return Side(
            sum(1 << n for n in values), values, {n: rule.needs(key) for n, rule in enumerate(self.rules)}
        )

    def of_place(self, place):
        values = {
            n: found for n, rule in enumerate(self.rules) if (found := rule.of_place(place)) is not None
        }
        return Side(
            sum(1 << n for n in values), values, {n: rule.limits for n, rule in enumerate(self.rules)}
        )


class Slow:
    """What the engine must say, from the list of what runs."""

    def __init__(self, sets) -> None:
        self.sets = sets
        self.running: list[tuple[TaskQueueKey, RunPlace]] = []

    def charged(self, key, place):
        for number, one in enumerate(self.sets):
            for k, rule in enumerate(one):
                mine, there = rule.of_key(key), rule.of_place(place)
                if mine is not None and there is not None:
                    yield f"{number}/{k}", rule, mine, there
                    break

    def used(self):
        found: dict[tuple[str, tuple[str, ...], tuple[str, ...], str], int] = {}
        for key, place in self.running:
            for name, rule, mine, there in self.charged(key, place):
                for resource, _, charge, _ in rule.needs(key):
                    bucket = name, mine, there, resource
                    found[bucket] = found.get(bucket, 0) + charge
        return found

    def refused(self, key, place):
        used = self.used()
        return [
            (name, resource)
            for name, rule, mine, there in self.charged(key, place)
            for resource, amount, *_ in rule.needs(key)
            if used.get((name, mine, there, resource), 0) + amount > rule.limits[resource]
        ]


rules = st.builds(
    Rule,
    owners=st.sampled_from(["", "a", "ab", "c"]),
    each_owner=st.booleans(),
    hosts=st.sampled_from([(), ("h1",), ("h1", "h2")]),
    each_host=st.booleans(),
    slots=st.sampled_from([None, 1, 5, 9]),
    jobs=st.sampled_from([None, 1, 2]),
    largest=st.sampled_from([None, None, 2]),
)
deeds = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "start", "start", "start", "end", "go", "rules"]),
        st.integers(0, len(KEYS) - 1),
    ),
    min_size=10,
    max_size=40,
)


class Both:
    """The engine and the slow evaluation, side by side; task queue n of KEYS has slot n."""

    def __init__(self, sets) -> None:
        self.slow, self.book = Slow(sets), Book(sets)
        self.there: set[int] = set()
        self.rules(0)

    def come(self, n) -> None:
        if n not in self.there:
            self.there.add(n)
            self.limits.add(7, n, KEYS[n])

    def go(self, n) -> None:
        if n in self.there:
            self.there.remove(n)
            self.limits.remove(7, n, KEYS[n])

    def start(self, n) -> None:
        key, place = KEYS[n], PLACES[n % len(PLACES)]
        if not self.slow.refused(key, place):
            self.slow.running.append((key, place))
            self.limits.take(key, place)

    def end(self, n) -> None:
        if self.slow.running:
            self.limits.give(*self.slow.running.pop(n % len(self.slow.running)))

    def rules(self, n) -> None:
        self.limits = RunLimits(self.book)
        for slot in self.there:
            self.limits.add(7, slot, KEYS[slot])
        for one in self.slow.running:
            self.limits.take(*one)

    def compare(self) -> None:
        for at in PLACES:
            refused = [self.slow.refused(key, at) for key in KEYS]
            assert set(bits(self.limits.shut_slots(at)[7])) == {n for n in self.there if refused[n]}
            said = [self.limits.refusals(key, at) for key in KEYS]
            assert [[(use.rule, use.resource) for use, _ in one] for one in said] == refused
        used = {
            (one.rule, one.of_key, one.of_place, one.resource): one.used
            for one, _ in self.limits.uses()
            if one.used
        }
        assert used == {bucket: n for bucket, n in self.slow.used().items() if n}


@pytest.mark.slow
@at_most(30)
@given(st.lists(st.lists(rules, min_size=1, max_size=3), min_size=1, max_size=3), deeds)
def test_masks_and_uses_are_those_of_an_evaluation_of_everything(sets, deeds):
    both = Both(sets)
    for deed, n in deeds:
        getattr(both, deed)(n)
        both.compare()
    while both.slow.running:
        both.end(0)
    assert list(both.limits.uses()) == []


def limited(*sets, slots=((0, 0, KEYS[0]),)):
    limits = RunLimits(Book(sets))
    for slot in slots:
        limits.add(*slot)
    assert limits.take_freed() is not None  # they are new
    return limits


def shut(limits, place):
    return {group: mask for group in (0, 1, 7) if (mask := limits.shut_slots(place)[group])}


def test_without_rules_nothing_is_shut_and_nothing_counted():
    limits = RunLimits()
    limits.add(0, 0, KEYS[0])
    limits.take(KEYS[0], PLACES[0])
    assert not limits.active
    assert shut(limits, PLACES[0]) == {}
    assert (list(limits.uses()), limits.refusals(KEYS[0], PLACES[0])) == ([], [])
    limits.remove(0, 0, KEYS[0])


def test_a_bucket_that_fills_shuts_its_task_queues_and_opens_them_again():
    limits = limited(
        [Rule(each_owner=True, jobs=1)], slots=[(0, 0, KEYS[0]), (0, 5, KEYS[4]), (1, 0, KEYS[0])]
    )
    limits.take(KEYS[0], PLACES[0])
    assert shut(limits, PLACES[3]) == {0: 1, 1: 1}
    assert limits.take_freed() is None
    limits.give(KEYS[0], PLACES[0])
    assert shut(limits, PLACES[3]) == {}
    assert limits.take_freed()(limits.spot(PLACES[3]))
    assert limits.take_freed() is None


def test_what_is_refused_is_said_with_use_and_limit():
    limits = limited([Rule(owners="a", each_host=True, slots=3)])
    limits.take(KEYS[0], PLACES[0])
    assert limits.refusals(KEYS[1], PLACES[0]) == [
        (BucketUse("0/0", (), ("h1",), "slots", 1, 3, never=True), 4)
    ]
    assert limits.refusals(KEYS[1], PLACES[1]) == [
        (BucketUse("0/0", (), ("h2",), "slots", 0, 3, never=True), 4)
    ]
    assert limits.refusals(KEYS[4], PLACES[0]) == []


def test_more_than_the_limit_may_run_when_it_is_lowered():
    limits = limited([Rule(jobs=1)])
    for _ in range(3):
        limits.take(KEYS[0], PLACES[0])
    assert [(one.used, one.limit) for one, _ in limits.uses()] == [(3, 1)]
    for _ in range(2):
        limits.give(KEYS[0], PLACES[0])
        assert shut(limits, PLACES[0]) == {0: 1}
    limits.give(KEYS[0], PLACES[0])
    assert shut(limits, PLACES[0]) == {}


def test_a_limit_may_be_none():
    limits = limited([Rule(jobs=1 << 62)])
    for _ in range(100):
        limits.take(KEYS[0], PLACES[0])
    assert shut(limits, PLACES[0]) == {}


@pytest.mark.parametrize("hosts", [10, 1_000])
def test_hosts_that_no_rule_names_are_one_place(hosts):
    limits = limited([Rule(jobs=1)])
    limits.take(KEYS[0], PLACES[0])
    found = [limits.shut_slots(RunPlace("S", "ce", "q", f"n{n}")) for n in range(hosts)]
    assert {one.number for one in found} == {found[0].number} != {0}


def test_what_is_shut_at_a_place_is_made_anew_only_when_it_changes():
    limits = limited([Rule(each_host=True, jobs=1)])
    here, there = (RunPlace("S", "ce", "q", host) for host in ("h1", "h2"))
    limits.take(KEYS[0], here)
    before = limits.shut_slots(here)
    limits.take(KEYS[0], there)
    assert limits.shut_slots(here) is before
    assert limits.shut_slots(there).number not in (0, before.number)
    assert limits.shut_slots(RunPlace("S", "ce", "q", "h3")).number == 0
    limits.add(0, 1, KEYS[0])
    assert shut(limits, here) == {0: 3}
    limits.give(KEYS[0], here)
    assert limits.shut_slots(here).number == 0


@pytest.mark.slow
def test_nothing_is_kept_of_what_jobs_of_each_host_used():
    limits = limited([Rule(each_host=True, each_owner=True, jobs=10, slots=50)])
    places, others = [RunPlace("S", "ce", "q", f"n{n}") for n in range(50)], counters()
    for place in places:
        limits.take(KEYS[0], place)
    limits.remove(0, 0, KEYS[0])
    counted = [counters() - others, len(list(limits.uses()))]
    for place in places:
        limits.give(KEYS[0], place)
    assert [counted, [counters() - others, len(list(limits.uses()))]] == [[100, 100], [0, 0]]


def counters() -> int:
    gc.collect()
    return sum(type(one) is Counter for one in gc.get_objects())
