"""Packing: the choice against formula 10 counted second by second, and the shares, which stay what they are."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement, product

import pytest

from lodesman.decide.matching import GroupShare, ResourceRequest, TaskQueueKey
from lodesman.decide.matching.lottery import _AT_RANDOM, _COMPARED, SharedSlot, expected_seconds, least_waste
from lodesman.decide.matching.matcher import Matcher, Remainder
from lodesman.decide.matching.shares import priority_weight

KEY = TaskQueueKey(owner="ann", group="g", vo="vo", norm_cpu_seconds=3_600)
REQUEST = ResourceRequest(vo="vo", cores=8, norm_cpu_seconds=10**9)
BUSY = Remainder((), SharedSlot(8, 8, 7_200.0))
SIZES = tuple(product((1, 2, 3), (1, 2, 5)))  # cores, seconds


class PackedWorld:
    """A matcher, and choices that take nothing away."""

    def __init__(self, *keys, seed=3, **shares):
        self.matcher = Matcher()
        self.rng = random.Random(seed)
        self.keys = {}
        self.matcher.lottery.set_shares(shares)
        for key in keys:
            self.put(key)

    def put(self, key):
        tq_id = len(self.keys)
        self.keys[tq_id] = replace(key, project=f"p{tq_id}")
        self.matcher.index.put(tq_id, self.keys[tq_id], 1_000, now=0.0)
        return tq_id

    def choose(self, left=BUSY, count=1):
        undo = []
        chosen = self.matcher.choose(REQUEST, count, now=0.0, rng=self.rng, undo=undo, left=left)
        for inverse in reversed(undo):
            inverse()
        return chosen

    def chosen(self, left=BUSY, times=2_000):
        return Counter(self.choose(left)[0] for _ in range(times))


def queues_of(world):
    (group,) = world.matcher.index.groups()
    return list(group.queues(group.open))


def sized(cores, seconds, **more):
    return replace(KEY, cores=cores, norm_cpu_seconds=cores * seconds, **more)


def idle_core_seconds(cores, running):
    """Formula 10, second by second: `running` are (cores, whole seconds left); all cores are held until the last end."""
    last = max(seconds for _, seconds in running)
    return sum(cores - sum(c for c, seconds in running if seconds > at) for at in range(last))


def test_it_is_formula_10_after_the_match():
    """Every pilot of up to 4 cores with up to 3 payloads, every job of some sizes: 0 mismatches."""
    world = PackedWorld(*[sized(*size) for size in SIZES])
    queues, checked = queues_of(world), 0
    for cores in (2, 3, 4):
        for count in range(4):
            for running in combinations_with_replacement(SIZES, count):
                free = cores - sum(c for c, _ in running)
                if free <= 0:
                    continue
                busy_s = float(max((seconds for _, seconds in running), default=0))
                waste = {
                    tq_id: idle_core_seconds(cores, [*running, SIZES[tq_id]])
                    for tq_id in world.keys
                    if SIZES[tq_id][0] <= free
                }
                least = {tq_id for tq_id, found in waste.items() if found == min(waste.values())}
                found = least_waste(SharedSlot(cores, free, busy_s), queues)
                assert {one.tq_id for one in found} == least, (cores, running)
                checked += 1
    assert checked > 50


def test_how_long_a_job_is_expected_to_run():
    assert expected_seconds(sized(4, 100), 2.0) == 50
    assert expected_seconds(sized(4, 100, expected_seconds=70), 2.0) == 70


def test_what_its_user_expects_decides():
    world = PackedWorld(sized(8, 9_000), sized(8, 9_000, expected_seconds=7_200), sized(1, 9_000))
    found = least_waste(SharedSlot(8, 8, 7_200.0), queues_of(world))
    assert [one.tq_id for one in found] == [0, 1]  # a job of all cores leaves nothing idle that would not be
    found = least_waste(SharedSlot(16, 8, 7_200.0), queues_of(world))
    assert [one.tq_id for one in found] == [1]


def test_a_busy_pilot_gets_what_packs_best_and_sometimes_another_one():
    world = PackedWorld(sized(1, 600), sized(1, 7_200), sized(1, 90_000), sized(4, 7_200))
    found = world.chosen()
    assert found[3] > 0.85 * 2_000
    # What fits badly gets its turn, too: an eighth of what it would get.
    for other in (0, 1, 2):
        assert 0.5 < found[other] / (2_000 * _AT_RANDOM / 4) < 1.6


@pytest.mark.parametrize(
    "left",
    [None, Remainder(), Remainder((), SharedSlot(8, 8, 0.0)), Remainder((), SharedSlot(8, 0, 7_200.0))],
)
def test_pilots_that_run_nothing_or_say_nothing_or_are_full_draw(left):
    world = PackedWorld(sized(1, 600), sized(4, 7_200))
    assert 900 < world.chosen(left)[0] < 1_100


def test_the_jobs_of_one_claim_are_packed_beside_the_first():
    world = PackedWorld(sized(1, 600), sized(1, 7_200), sized(1, 90_000))
    alike = sum(len(set(world.choose(Remainder((), SharedSlot(8, 8, 0.0)), 4))) == 1 for _ in range(300))
    # Without packing 4 of 3 kinds are alike once in 27 times.
    assert alike > 150


def test_a_job_that_does_not_fit_beside_those_of_the_same_claim_comes_last():
    world = PackedWorld(sized(6, 7_200), sized(2, 7_000))
    claims = Counter(tuple(world.choose(BUSY, 2)) for _ in range(500))
    assert claims[0, 1] > 350


def test_of_many_task_queues_some_are_compared():
    world = PackedWorld(*[sized(1, 60 * (1 + n)) for n in range(10 * _COMPARED)])
    left = Remainder((), SharedSlot(8, 8, 1e6))
    found = world.chosen(left, times=1_000)
    best = [n for n in found.elements() if n >= 8 * _COMPARED]
    assert len(best) > 800  # of the best fifth, where a fifth would be 200
    assert len(found) > 3 * _COMPARED


# --- shares ---------------------------------------------------------------------------------------------------


def alike(found, expected):
    """Within 4.5 standard deviations of what was expected."""
    total = sum(found.values())
    for name, part in expected.items():
        deviation = (total * part * (1 - part)) ** 0.5
        assert abs(found[name] - total * part) < 4.5 * deviation, (name, found, expected)


def crowd(seed=1):
    """Groups whose jobs fit very differently."""
    rng = random.Random(seed)
    return [
        sized(cores, seconds, group=group, owner=f"{group}-{owner}", user_priority=rng.choice([1, 1, 5]))
        for group, cores, seconds in (("a", 1, 600), ("b", 8, 7_200), ("c", 2, 90_000))
        for owner in range(3)
        for _ in range(1 + owner)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("left", [None, BUSY])
def test_groups_and_owners_have_their_shares(left):
    shares = {"a": GroupShare(share=100), "b": GroupShare(share=300), "c": GroupShare(share=600)}
    world = PackedWorld(*crowd(), **shares)
    found = world.chosen(left, times=12_000)
    parts = {"a": 0.1, "b": 0.3, "c": 0.6}
    alike(Counter(world.keys[one].group for one in found.elements()), parts)
    owners = Counter(world.keys[one].owner for one in found.elements())
    alike(owners, {f"{group}-{n}": part / 3 for group, part in parts.items() for n in range(3)})


@pytest.mark.slow
@pytest.mark.parametrize("left", [None, BUSY])
def test_priorities_weigh_as_before(left):
    keys = [
        sized(cores, 7_200, user_priority=priority)
        for priority in (1, 2, 5)
        for cores in (1, 4, 8)[: priority + 1]
    ]
    world = PackedWorld(*keys)
    weights = Counter()
    for key in keys:
        weights[key.user_priority] += priority_weight(key.user_priority)
    found = Counter(world.keys[one].user_priority for one in world.chosen(left, times=8_000).elements())
    alike(found, {one: weight / weights.total() for one, weight in weights.items()})


@pytest.mark.slow
@pytest.mark.parametrize("left", [None, BUSY])
def test_where_jobs_are_shared_an_owner_has_the_part_of_the_task_queues(left):
    world = PackedWorld(
        *[
            sized(cores, 7_200, owner=owner)
            for owner, cores in (("ann", 1), ("ann", 2), ("ann", 4), ("bob", 8))
        ],
        g=GroupShare(share=1, job_sharing=True),
    )
    found = Counter(world.keys[one].owner for one in world.chosen(left, times=8_000).elements())
    alike(found, {"ann": 0.75, "bob": 0.25})
