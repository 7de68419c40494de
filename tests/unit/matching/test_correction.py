"""Shares corrected by usage (reference dirac 1.5): the formula by hand, what holds of it, and that it ends in balance."""

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.shares import (
    GroupShare,
    correct_shares,
    corrected_shares,
    factors,
    find_arenas,
    list_corrections,
)
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import load_resources
from lodesman.wire.groups import Arena, KnownUsage, SliceUsage, TimeSlice

WEEK = TimeSlice()
DAY = TimeSlice(time_span=86_400.0)
EVEN = {"a": 1000.0, "b": 1000.0}


@pytest.mark.parametrize(("shares", "used", "expected"), [
    (EVEN, {"a": 5.0, "b": 5.0}, {"a": 1.0, "b": 1.0}),
    (EVEN, {"a": 6.0, "b": 4.0}, {"a": 0.5 / 0.6, "b": 0.5 / 0.4}),
    ({"a": 3000.0, "b": 1000.0}, {"a": 30.0, "b": 10.0}, {"a": 1.0, "b": 1.0}),
    ({"a": 3000.0, "b": 1000.0}, {"a": 10.0, "b": 10.0}, {"a": 1.5, "b": 0.5}),
    (EVEN, {"a": 99.0, "b": 1.0}, {"a": 0.5 / 0.99, "b": 3.0}),
    ({"a": 10.0, "b": 990.0}, {"a": 50.0, "b": 50.0}, {"a": 1 / 3, "b": 1.98}),
    (EVEN, {"a": 7.0}, {"a": 0.5, "b": 3.0}),
    (EVEN, {}, {"a": 1.0, "b": 1.0}),
    (EVEN, {"gone": 70.0}, {"a": 1.0, "b": 1.0}),
    ({"a": 1000.0}, {"a": 4.0}, {"a": 1.0}),
    ({"a": 0.0, "b": 0.0}, {"a": 4.0}, {"a": 1.0, "b": 1.0}),
    ({}, {"a": 4.0}, {}),
])  # fmt: skip
def test_one_slice_by_hand(shares, used, expected):
    assert factors(shares, [(WEEK, used)], 5.0) == pytest.approx(expected)


def test_slices_count_by_their_weights():
    twice = TimeSlice(weight=2.0)
    found = factors(EVEN, [(twice, {"a": 6.0, "b": 4.0}), (DAY, {"a": 4.0, "b": 6.0})], 5.0)
    assert found == pytest.approx(
        {"a": (2 * 0.5 / 0.6 + 0.5 / 0.4) / 3, "b": (2 * 0.5 / 0.4 + 0.5 / 0.6) / 3}
    )


def test_who_is_absent_from_a_slice_gets_its_greatest_factor_by_its_weight():
    found = factors(EVEN, [(WEEK, {"a": 5.0, "b": 5.0}), (DAY, {"a": 1.0})], 5.0)
    assert found == pytest.approx({"a": (1.0 + 0.5) / 2, "b": (1.0 + 3.0) / 2})


def test_a_slice_in_which_nothing_was_used_corrects_nothing():
    found = factors(EVEN, [(WEEK, {"a": 6.0, "b": 4.0}), (DAY, {})], 5.0)
    assert found == pytest.approx({"a": (0.5 / 0.6 + 1.0) / 2, "b": (0.5 / 0.4 + 1.0) / 2})


def test_all_slices_together_are_bounded_too():
    wide = TimeSlice(max_correction=100.0)
    assert factors(EVEN, [(wide, {"a": 999.0, "b": 1.0})], 5.0) == {"a": pytest.approx(0.5 / 0.999), "b": 5.0}
    many = {"a": 10.0, "b": 9_990.0}
    assert factors(many, [(wide, {"a": 999.0, "b": 1.0})], 5.0)["a"] == 0.2
    assert factors(EVEN, [(wide, {"a": 9.0, "b": 1.0})], 1.0) == {"a": 1.0, "b": 1.0}


# --- what must hold

names = st.sampled_from("abcde")
amounts = st.floats(0, 1e9)
bounds = st.floats(1, 50)
some_shares = st.dictionaries(names, st.floats(0.001, 1e6), min_size=1)
some_slices = st.lists(
    st.tuples(
        st.builds(TimeSlice, weight=st.floats(0.01, 100), max_correction=bounds),
        st.dictionaries(names, amounts),
    ),
    min_size=1,
    max_size=3,
)


@given(some_shares, some_slices, bounds)
def test_factors_are_within_their_bounds_and_the_sum_of_the_shares_stays(shares, slices, most):
    found = factors(shares, slices, most)
    assert found.keys() == shares.keys()
    widest = min(most, max(one.max_correction for one, _ in slices)) * (1 + 1e-9)
    assert all(1 / widest <= factor <= widest for factor in found.values())
    after = correct_shares(shares, found)
    assert sum(after.values()) == pytest.approx(sum(shares.values()))
    assert all(share > 0 for share in after.values())


@given(some_shares, some_slices, bounds, names, st.floats(0.1, 1e9))
def test_more_usage_never_means_more_share(shares, slices, most, who, more):
    def share_of(used):
        after = correct_shares(shares, factors(shares, used, most))
        return after.get(who, 0.0)

    rest, (last, usage) = slices[:-1], slices[-1]
    heavier = [*rest, (last, {**usage, who: usage.get(who, 0.0) + more})]
    assert share_of(heavier) <= share_of(slices) * (1 + 1e-9)


@given(some_shares, st.floats(0.001, 1e6), bounds)
def test_usage_in_proportion_to_the_shares_changes_nothing(shares, times, most):
    used = {name: share * times for name, share in shares.items()}
    assert factors(shares, [(WEEK, used), (DAY, used)], most) == pytest.approx(dict.fromkeys(shares, 1.0))


# --- groups and owners


def known(*slices, arena=("a", "b"), owners=None, most=5.0):
    return KnownUsage(
        at=0.0, currency="starts", most=most, slices=list(slices), arenas=[Arena(["lab"], list(arena))],
        owners=owners or {},
    )  # fmt: skip


def test_groups_are_corrected_and_owners_within_each():
    usage = SliceUsage(WEEK, {"a": 60.0, "b": 40.0}, {"a": {"ann": 45.0, "bob": 15.0}})
    found = corrected_shares({"b": GroupShare(background=True), "idle": GroupShare(share=7)}, known(
        usage, owners={"a": ["ann", "bob", "new"], "b": ["cleo"]},
    ))  # fmt: skip
    assert found["a"].share == pytest.approx(2000 * 0.5 / 0.6 / (0.5 / 0.6 + 0.5 / 0.4), rel=1e-3)
    assert found["a"].share + found["b"].share == pytest.approx(2000, rel=1e-3)
    ann, bob, new = 1 / 3 / 0.75, 1 / 3 / 0.25, 3.0
    mean = (ann + bob + new) / 3
    assert found["a"].owner_weights == pytest.approx(
        {"ann": ann / mean, "bob": bob / mean, "new": new / mean}, rel=1e-3
    )
    assert (found["b"].background, found["b"].owner_weights) == (True, {})
    assert found["idle"] == GroupShare(share=7)


def test_owners_that_share_their_jobs_are_not_distinguished():
    usage = SliceUsage(WEEK, {"a": 60.0}, {"a": {"ann": 45.0, "bob": 15.0}})
    shares = {"a": GroupShare(job_sharing=True)}
    (row,) = list_corrections(shares, known(usage, arena=["a"], owners={"a": ["ann", "bob"]}))
    assert (row.owners, row.used, row.factor, row.corrected) == ([], [60.0], 1.0, 1000.0)


def test_a_stored_share_has_few_digits():
    usage = SliceUsage(WEEK, {"a": 61.234567, "b": 41.7654321}, {})
    for setting in corrected_shares({}, known(usage)).values():
        assert len(f"{setting.share!r}") <= 6


@pytest.mark.parametrize(("groups", "found"), [
    ([], []),
    ([("x", "a"), ("y", "b")], [(["x"], ["a"]), (["y"], ["b"])]),
    ([("x", "a"), ("x", "b"), ("y", "b")], [(["x", "y"], ["a", "b"])]),
    ([("x", "a"), ("y", "b"), ("x", "c"), ("y", "c")], [(["x", "y"], ["a", "b", "c"])]),
])  # fmt: skip
def test_groups_are_compared_within_their_vo_or_across_vos_that_have_one_in_common(groups, found):
    assert [(one.vos, one.groups) for one in find_arenas(groups)] == found


def test_the_usage_of_another_vo_corrects_nothing():
    usage = SliceUsage(WEEK, {"a": 6.0, "b": 4.0, "far": 9_000.0}, {})
    alone = corrected_shares({}, known(usage))
    both = known(usage)
    both.arenas.append(Arena(["far"], ["far"]))
    found = corrected_shares({}, both)
    assert {name: found[name] for name in "ab"} == alone
    assert found["far"].share == 1000.0


def test_a_policy_draws_by_corrected_shares_and_keeps_the_configured_ones():
    text = "[group.a]\nshare = 3000\n[group.idle]\nshare = 5"
    policy = Policy(load_resources([("g.toml", text)]))
    policy.set_usage(known(SliceUsage(WEEK, {"a": 10.0, "b": 10.0}, {})))
    # 3000 x 1.5 and 1000 x 0.5, scaled to 4000.
    assert (policy.drawn_share("a"), policy.drawn_share("b"), policy.drawn_share("idle")) == (3600, 400, 5)
    assert (policy.share_of("a"), policy.share_of("b")) == (3000, 1000)
    assert policy.configured_shares()["a"].share == 3000
    other = replace(policy, config=load_resources([("g.toml", text.replace("3000", "1000"))]))
    assert other.drawn_share("a") == other.drawn_share("b") == 1000
    policy.set_usage(None)
    assert policy.shares() == policy.configured_shares()


# --- a simulated week


class Weeks:
    """One slot that starts a job a minute, drawn by the matcher; usage is read every 15 minutes by a clock of its own."""

    def __init__(self, shares, owners=("ann",)):
        self.rng = random.Random(7)
        self.shares = {name: GroupShare(share=share) for name, share in shares.items()}
        self.matcher = Matcher()
        self.matcher.lottery.set_shares(self.shares)
        self.keys = {}
        for number, (group, owner) in enumerate([(group, one) for group in shares for one in owners]):
            self.keys[number] = TaskQueueKey(owner=owner, group=group, vo="lab", norm_cpu_seconds=0)
            self.matcher.index.put(number, self.keys[number], 10**9, now=0.0)
        self.owners = {group: list(owners) for group in shares}
        self.now, self.starts = 0.0, deque()

    def used(self, key, start, group, owner):
        self.starts.extend((start + 60.0 * n, group, owner) for n in range(key))

    def run(self, hours):
        """Returns the groups, and the owners, of the starts."""
        found = []
        for minute in range(int(hours * 60)):
            if minute % 15 == 0:
                self.correct()
            (tq_id,) = self.matcher.choose(
                ResourceRequest(vo="lab", site="A"), 1, now=self.now, rng=self.rng, undo=[]
            )
            key = self.keys[tq_id]
            self.starts.append((self.now, key.group, key.owner))
            found.append((key.group, key.owner))
            self.now += 60.0
        return found

    def correct(self):
        while self.starts and self.starts[0][0] <= self.now - DAY.time_span:
            self.starts.popleft()
        groups, owners = {}, {}
        for _, group, owner in self.starts:
            groups[group] = groups.get(group, 0.0) + 1
            of_group = owners.setdefault(group, {})
            of_group[owner] = of_group.get(owner, 0.0) + 1
        usage = known(SliceUsage(DAY, groups, owners), arena=self.shares, owners=self.owners)
        self.matcher.lottery.set_shares(corrected_shares(self.shares, usage))


def part(found, place, name):
    return sum(one[place] == name for one in found) / len(found)


@pytest.mark.slow
def test_a_group_that_used_too_much_gets_less_until_usage_follows_the_shares():
    week = Weeks({"greedy": 1000.0, "patient": 1000.0})
    week.now = DAY.time_span
    week.used(1_440, 0.0, "greedy", "ann")  # all of the day before
    first, second = week.run(6), week.run(18)
    assert part(first, 0, "greedy") < 0.25
    assert part(second, 0, "greedy") < 0.5
    later = week.run(72)
    assert part(later, 0, "greedy") == pytest.approx(0.5, abs=0.03)
    assert part(week.run(24), 0, "greedy") == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_an_owner_that_used_too_much_gets_less_until_owners_are_alike():
    week = Weeks({"lone": 1000.0}, owners=("greedy", "patient"))
    week.now = DAY.time_span
    week.used(1_440, 0.0, "lone", "greedy")
    assert part(week.run(6), 1, "greedy") < 0.25
    week.run(66)
    assert part(week.run(24), 1, "greedy") == pytest.approx(0.5, abs=0.05)
