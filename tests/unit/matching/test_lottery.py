"""Exact proportionality at each level, in every subset, and when drawing has to give way to listing.

Chi-square against the normal approximation: z = (chi2 - df) / sqrt(2 df); seeds are fixed, so a failure is a
change of the lottery and not bad luck.
"""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from lodesman.decide.matching.buckets import KindSplit, SetPlace
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.lottery import _TRIES, Lottery
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.shares import GroupShare, parts_of, priority_weight
from lodesman.decide.matching.spots import NONE_SHUT, ShutSlots
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.matching.views import Views, numbers_of

KEY = TaskQueueKey(owner="alice", group="g00", vo="vo1", norm_cpu_seconds=0)
REQUEST = ResourceRequest(vo="vo1", site="A")
DRAWS = 10_000


class World:
    """An index, a lottery over it, and draws that take nothing away."""

    def __init__(self, seed=5):
        self.index = Index()
        self.lottery = Lottery(self.index)
        self.views = Views(self.index)
        self.rng = random.Random(seed)

    def put(self, **changes):
        tq_id = len(self.index)
        self.index.put(tq_id, replace(KEY, project=f"p{tq_id}", **changes), 1, now=0.0)
        return tq_id

    def draw(self, request=REQUEST):
        queue = self.lottery.draw(self.views.view_of(request), numbers_of(request), self.rng)
        return None if queue is None else queue.tq_id

    def draws(self, request=REQUEST, times=DRAWS):
        return Counter(self.draw(request) for _ in range(times))

    def by_group(self, request=REQUEST, times=DRAWS):
        return Counter(self.index.key(self.draw(request)).group for _ in range(times))


def z_of(got, expected):
    """How far counts are from what was expected, in standard deviations of chi-square."""
    assert set(got) <= {name for name, n in expected.items() if n > 0}
    usual = [name for name, n in expected.items() if n >= 5]
    parts = [(got[name], expected[name]) for name in usual]
    rest = sum(n for name, n in expected.items() if name not in usual)
    if rest >= 5:
        parts.append((sum(n for name, n in got.items() if name not in usual), rest))
    freedom = len(parts) - 1
    chi2 = sum((n - wanted) ** 2 / wanted for n, wanted in parts)
    return (chi2 - freedom) / math.sqrt(2 * freedom) if freedom else 0.0


def shares_of(count, seed=1):
    rng = random.Random(seed)
    return {f"g{n:02}": GroupShare(share=rng.choice([100, 300, 1000, 3000, 5000])) for n in range(count)}


# --- nothing to draw ----------------------------------------------------------------------------------


def test_nothing_is_drawn_from_nothing():
    world = World()
    assert world.draw() is None
    tq_id = world.put(sites=("B",))
    assert world.draw() is None
    assert world.draw(replace(REQUEST, site="B")) == tq_id
    assert world.draw(replace(REQUEST, site="B", vo="vo2")) is None


def test_what_is_empty_or_blocked_is_not_drawn():
    world = World()
    one, other = world.put(), world.put()
    world.index.take(one, now=0.0)
    assert set(world.draws(times=50)) == {other}
    world.index.block(other)
    assert world.draw() is None
    world.index.add_waiting(one, 1, now=0.0)
    assert set(world.draws(times=50)) == {one}


# --- level 1: groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 7, 20, 50])
def test_groups_are_drawn_by_share(count):
    world = World(seed=count)
    shares = shares_of(count)
    world.lottery.set_shares(shares)
    for n in range(count):
        for _ in range(1 + n % 4):
            world.put(group=f"g{n:02}")
    expected = {name: DRAWS * part for name, part in parts_of(list(shares), shares).items()}
    assert abs(z_of(world.by_group(), expected)) < 4


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 10, 50])
def test_a_pilot_that_sees_only_parts_draws_by_share_among_them(count):
    """Each site sees another subset of the groups; the target is the sum over claims."""
    world = World(seed=100 + count)
    shares = shares_of(count, seed=2)
    world.lottery.set_shares(shares)
    seen: dict[str, set[str]] = {"A": set(), "B": set(), "C": set()}
    for n in range(count):
        for site, groups in seen.items():
            if (n + ord(site)) % 3 or n < 2:
                groups.add(f"g{n:02}")
                world.put(group=f"g{n:02}", sites=(site,))
    got: Counter[str] = Counter()
    target: Counter[str] = Counter()
    parts = {site: parts_of(groups, shares) for site, groups in seen.items()}
    for turn in range(DRAWS):
        site = "ABC"[turn % 3]
        got[world.index.key(world.draw(replace(REQUEST, site=site))).group] += 1
        target.update(parts[site])
    assert abs(z_of(got, target)) < 4


def test_the_number_of_task_queues_and_jobs_of_a_group_does_not_matter():
    world = World()
    world.put(group="small")
    for n in range(400):
        world.put(group="large", owner=f"o{n % 9}")
    assert abs(z_of(world.by_group(), {"small": DRAWS / 2, "large": DRAWS / 2})) < 4


def test_listing_is_as_exact_as_drawing():
    """Two small groups beside forty large shares that see nothing: the 8 tries mostly fail."""
    world = World()
    shares = {f"big{n}": GroupShare(share=10_000) for n in range(40)}
    shares |= {"x": GroupShare(share=10), "y": GroupShare(share=30)}
    world.lottery.set_shares(shares)
    for name in shares:
        world.put(group=name, sites=() if name in {"x", "y"} else ("elsewhere",))
    assert (1 - 40 / 400_040) ** _TRIES > 0.99
    assert abs(z_of(world.by_group(), {"x": DRAWS / 4, "y": DRAWS * 3 / 4})) < 4


def test_groups_without_a_setting_have_the_default_share():
    world = World()
    world.put(group="known")
    world.put(group="unknown")
    world.lottery.set_shares({"known": GroupShare(share=3000)})
    assert abs(z_of(world.by_group(), {"known": DRAWS * 0.75, "unknown": DRAWS * 0.25})) < 4


def test_shares_change_live():
    world = World()
    world.put(group="a")
    world.put(group="b")
    assert abs(z_of(world.by_group(), {"a": DRAWS / 2, "b": DRAWS / 2})) < 4
    world.lottery.set_shares({"a": GroupShare(share=9000)})
    assert abs(z_of(world.by_group(), {"a": DRAWS * 0.9, "b": DRAWS * 0.1})) < 4
    assert dict(world.lottery.shares) == {"a": GroupShare(share=9000)}


def test_a_group_that_comes_takes_part_at_once():
    world = World()
    world.put(group="a")
    assert set(world.by_group(times=20)) == {"a"}
    new = world.put(group="b")
    assert set(world.by_group(times=200)) == {"a", "b"}
    world.index.remove(new)
    assert set(world.by_group(times=200)) == {"a"}


def test_a_group_without_share_is_served_only_alone():
    world = World()
    world.lottery.set_shares({"none": GroupShare(share=0), "less": GroupShare(share=-1)})
    none, less = world.put(group="none"), world.put(group="less")
    some = world.put(group="some", sites=("A",))
    assert set(world.draws(times=300)) == {some}
    elsewhere = world.draws(replace(REQUEST, site="B"))
    assert abs(z_of(elsewhere, {none: DRAWS / 2, less: DRAWS / 2})) < 4


def test_a_private_pilot_draws_only_in_its_group():
    world = World()
    mine = [world.put(group="a"), world.put(group="a")]
    world.put(group="a", owner="bob")
    world.put(group="b")
    pilot = replace(REQUEST, groups=("a",), owner="alice", pilot_type="private")
    assert abs(z_of(world.draws(pilot), dict.fromkeys(mine, DRAWS / 2))) < 4


# --- level 2: owners ----------------------------------------------------------------------------------


def test_owners_are_equal_whatever_they_have():
    world = World()
    owner_of = {}
    for n, owner in enumerate(["a"] + ["b"] * 5 + ["c"] * 30):
        owner_of[world.put(owner=owner)] = owner
        assert n == max(owner_of)
    got: Counter[str] = Counter()
    for tq_id, n in world.draws().items():
        got[owner_of[tq_id]] += n
    assert abs(z_of(got, dict.fromkeys("abc", DRAWS / 3))) < 4


@pytest.mark.slow
def test_owners_that_see_nothing_leave_their_part_to_the_others():
    """200 owners, two of them eligible: listing."""
    world = World()
    for n in range(198):
        world.put(owner=f"o{n}", sites=("elsewhere",))
    one, other, third = world.put(owner="x"), world.put(owner="y"), world.put(owner="y")
    expected = {one: DRAWS / 2, other: DRAWS / 4, third: DRAWS / 4}
    assert abs(z_of(world.draws(), expected)) < 4


def test_with_job_sharing_every_task_queue_is_equal():
    world = World()
    world.lottery.set_shares({"g00": GroupShare(job_sharing=True)})
    queues = [world.put(owner=owner) for owner in ["a", "b", "b", "b", "c", "c"]]
    assert abs(z_of(world.draws(), dict.fromkeys(queues, DRAWS / 6))) < 4


def test_job_sharing_is_switched_live():
    world = World()
    one, other, third = world.put(owner="a"), world.put(owner="b"), world.put(owner="b")
    for sharing, parts in ((False, (2, 1, 1)), (True, (4 / 3, 4 / 3, 4 / 3)), (False, (2, 1, 1))):
        world.lottery.set_shares({"g00": GroupShare(job_sharing=sharing)})
        expected = dict(zip((one, other, third), (DRAWS / 4 * part for part in parts), strict=True))
        assert abs(z_of(world.draws(), expected)) < 4
    world.index.remove(one)
    assert set(world.draws(times=100)) == {other, third}


def test_an_owner_without_jobs_is_not_drawn():
    world = World()
    queues = [world.put(owner=f"o{n}") for n in range(6)]
    for gone in (queues[0], queues[5], queues[2]):
        world.index.remove(gone)
    rest = [queues[1], queues[3], queues[4]]
    assert abs(z_of(world.draws(), dict.fromkeys(rest, DRAWS / 3))) < 4


# --- level 3: UserPriority ----------------------------------------------------------------------------


def test_task_queues_are_drawn_by_user_priority():
    world = World()
    priorities = [1, 1, 2, 3, 9]
    queues = {world.put(user_priority=priority): priority for priority in priorities}
    expected = {tq_id: DRAWS * priority / 16 for tq_id, priority in queues.items()}
    assert abs(z_of(world.draws(), expected)) < 4


def test_weights_hold_in_a_subset():
    world = World()
    queues = {world.put(user_priority=1 + n % 9, sites=("A",) if n % 2 else ("B",)): n for n in range(60)}
    seen = {tq_id: priority_weight(1 + n % 9) for tq_id, n in queues.items() if n % 2}
    expected = {tq_id: DRAWS * weight / sum(seen.values()) for tq_id, weight in seen.items()}
    assert abs(z_of(world.draws(), expected)) < 4


def test_ten_is_nearly_everything_and_zero_nearly_nothing():
    world = World()
    background, usual, urgent = (world.put(user_priority=priority) for priority in (0, 1, 10))
    got = world.draws()
    assert got[urgent] > DRAWS - 5
    world.index.remove(urgent)
    got = world.draws()
    assert got[usual] > DRAWS - 5
    world.index.remove(usual)
    assert set(world.draws(times=10)) == {background}


def test_the_same_seed_draws_the_same():
    drawn = []
    for _ in range(2):
        world = World(seed=11)
        for n in range(40):
            world.put(group=f"g{n % 5}", owner=f"o{n % 3}", user_priority=1 + n % 3)
        drawn.append([world.draw() for _ in range(200)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 20


# --- what limits shut ---------------------------------------------------------------------------------


def shut_but(world, kept):
    """The slots of all task queues but these, and one of a group that is gone."""
    place = SetPlace(KindSplit(0, (), ()), {})
    place.close({99: 1}, 0)
    for group in world.index.groups():
        for queue in group.queues(group.occupied):
            if queue.tq_id not in kept:
                place.close({group.number: 1 << queue.slot}, 0)
    return ShutSlots((place,), 0)


def drawn_past(world, shut, times=DRAWS):
    view, numbers = world.views.view_of(REQUEST), numbers_of(REQUEST)
    return Counter(world.lottery.draw(view, numbers, world.rng, shut).tq_id for _ in range(times))


@pytest.mark.parametrize("left", [2, 15])
def test_groups_that_limits_leave_open_are_drawn_by_share(left):
    """With two of forty left the lottery has to list them, with fifteen it draws."""
    world, shares = World(), shares_of(40)
    world.lottery.set_shares(shares)
    queues = {name: [world.put(group=name) for _ in range(3)] for name in shares}
    some = sorted(shares)[:left]
    got = drawn_past(world, shut_but(world, {queues[name][0] for name in some}))
    total = sum(shares[name].share for name in some)
    assert abs(z_of(got, {queues[name][0]: DRAWS * shares[name].share / total for name in some})) < 4


def test_owners_that_limits_leave_open_are_equal():
    world = World()
    kept = {world.put(owner=name) for name in ("ann", "bob", "cleo")}
    for _ in range(5):
        world.put(owner="dan")
    got = drawn_past(world, shut_but(world, kept))
    assert abs(z_of(got, dict.fromkeys(kept, DRAWS / 3))) < 4


def test_a_group_without_share_is_served_when_limits_shut_all_others():
    world = World()
    world.lottery.set_shares({"g01": GroupShare(share=0)})
    usual, last = world.put(), world.put(group="g01")
    assert set(drawn_past(world, shut_but(world, {usual, last}), times=100)) == {usual}
    assert set(drawn_past(world, shut_but(world, {last}), times=100)) == {last}


def test_nothing_is_drawn_where_limits_shut_all():
    world = World()
    world.put()
    view = world.views.view_of(REQUEST)
    assert world.lottery.draw(view, numbers_of(REQUEST), world.rng, shut_but(world, ())) is None


@pytest.mark.parametrize("groups", [1, 40])
def test_what_is_remembered_of_one_place_is_not_drawn_at_another(groups):
    """Hosts whose pilots ask alike share what the lottery remembers, and limits may shut other task queues at each."""
    world = World()
    queues = [world.put(group=f"g{n % groups:02}", owner=f"u{n % 7}") for n in range(80)]
    some = [{world.rng.choice(queues)} for _ in range(6)]
    places = [(NONE_SHUT, set(queues)), *((shut_but(world, one), one) for one in some)]
    for _ in range(200):
        shut, kept = world.rng.choice(places)
        assert set(drawn_past(world, shut, times=1)) <= kept
