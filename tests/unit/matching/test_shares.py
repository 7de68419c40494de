"""Weights of UserPriority, director weights (reference dirac 1.3, 1.4) and what groups deserve."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.shares import GroupShare, director_weights, parts_of, priority_weight
from lodesman.decide.matching.task_queue import TaskQueueKey

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1")


def key(n=0, **changes):
    return replace(KEY, project=f"p{n}", **changes)


@pytest.mark.parametrize(
    ("priority", "weight"), [(0, 1e-5), (-3, 1e-5), (1, 1.0), (5, 5.0), (9, 9.0), (10, 1e6), (11, 1e6)]
)
def test_the_weight_of_a_user_priority(priority, weight):
    assert priority_weight(priority) == weight


@pytest.mark.parametrize("share", [math.nan, math.inf, -math.inf])
def test_a_share_is_a_finite_number(share):
    with pytest.raises(ValueError, match="finite"):
        GroupShare(share=share)


# --- director weights ---------------------------------------------------------------------------------


def test_one_task_queue_has_the_whole_share_and_the_default_share_is_1000():
    assert director_weights([(1, key(), 5)], {}) == {1: 1000.0}
    assert director_weights([(1, key(), 5)], {"bio": GroupShare(share=300)}) == {1: 300.0}


def test_a_share_is_parted_among_owners_and_then_by_user_priority():
    queues = [
        (1, key(1), 5),
        (2, key(2, user_priority=3), 5),
        (3, key(3, owner="bob"), 1),
    ]
    assert director_weights(queues, {}) == pytest.approx({1: 125.0, 2: 375.0, 3: 500.0})


def test_task_queues_without_waiting_jobs_count_for_nothing():
    queues = [(1, key(1), 5), (2, key(2), 0), (3, key(3, owner="bob"), 0)]
    assert director_weights(queues, {}) == {1: 1000.0}


def test_with_job_sharing_owners_are_one():
    queues = [(1, key(1), 1), (2, key(2), 1), (3, key(3, owner="bob"), 1), (4, key(4, owner="carol"), 1)]
    shares = {"bio": GroupShare(share=800, job_sharing=True)}
    assert director_weights(queues, shares) == pytest.approx(dict.fromkeys([1, 2, 3, 4], 200.0))


def test_groups_and_vos_do_not_touch_each_other():
    queues = [(1, key(1), 1), (2, key(2, group="chem"), 1), (3, key(3, vo="vo2"), 1)]
    assert director_weights(queues, {"chem": GroupShare(share=50)}) == {1: 1000.0, 2: 50.0, 3: 1000.0}


def test_nothing_is_below_the_least_weight():
    queues = [(1, key(1, user_priority=10), 1), (2, key(2), 1)]
    weights = director_weights(queues, {"bio": GroupShare(share=10)})
    assert weights[1] == pytest.approx(10.0, rel=1e-5)
    assert weights[2] == 0.001
    assert director_weights([(1, key(), 1)], {"bio": GroupShare(share=0)}) == {1: 0.001}


def test_background_task_queues_have_the_least_weight_and_take_nothing_from_others():
    queues = [(1, key(1), 1), (2, key(2, user_priority=0), 1)]
    with_option = director_weights(queues, {"bio": GroupShare(background=True)})
    assert with_option == {1: 1000.0, 2: 0.001}
    only = director_weights(queues[1:], {"bio": GroupShare(background=True)})
    assert only == {2: 0.001}
    without = director_weights(queues[1:], {})
    assert without == pytest.approx({2: 1000.0})


def test_twins_that_differ_only_in_sites_have_the_sum():
    queues = [
        (1, key(1, sites=("A",)), 1),
        (2, key(1, sites=("B",)), 1),
        (3, key(1, banned_sites=("A",)), 1),
        (4, key(2), 1),
    ]
    assert director_weights(queues, {}) == pytest.approx({1: 750.0, 2: 750.0, 3: 750.0, 4: 250.0})


def test_what_differs_in_more_than_sites_is_no_twin():
    queues = [(1, key(1, sites=("A",)), 1), (2, key(1, sites=("B",), cores=2), 1)]
    assert director_weights(queues, {}) == pytest.approx({1: 500.0, 2: 500.0})


owners = st.sampled_from(["a", "b", "c"])
groups = st.sampled_from(["g", "h"])
worlds = st.lists(st.tuples(groups, owners, st.integers(1, 9), st.integers(0, 3)), max_size=20)


@given(worlds, st.booleans())
def test_weights_of_a_group_sum_to_its_share(world, sharing):
    shares = {"g": GroupShare(share=700, job_sharing=sharing), "h": GroupShare(share=90)}
    queues = [
        (n, key(n, group=group, owner=owner, user_priority=priority), waiting)
        for n, (group, owner, priority, waiting) in enumerate(world)
    ]
    weights = director_weights(queues, shares)
    assert set(weights) == {n for n, _, waiting in queues if waiting}
    for name, setting in shares.items():
        of_group = [weights[n] for n, one, waiting in queues if waiting and one.group == name]
        if of_group:
            assert sum(of_group) == pytest.approx(setting.share)


# --- parts of a claim ---------------------------------------------------------------------------------


def test_parts_of_one_claim():
    shares = {"a": GroupShare(share=100), "b": GroupShare(share=300)}
    assert parts_of(["a", "b"], shares) == {"a": 0.25, "b": 0.75}
    assert parts_of(["a"], shares) == {"a": 1.0}
    assert parts_of(["b", "unknown"], shares) == pytest.approx({"b": 300 / 1300, "unknown": 1000 / 1300})
    assert parts_of([], shares) == {}


def test_groups_without_share_get_something_only_alone():
    shares = {"a": GroupShare(share=100), "z": GroupShare(share=0), "y": GroupShare(share=-5)}
    assert parts_of(["a", "z"], shares) == {"a": 1.0, "z": 0.0}
    assert parts_of(["y", "z"], shares) == {"y": 0.5, "z": 0.5}


@given(st.sets(st.sampled_from("abcd"), min_size=1))
def test_the_parts_of_a_claim_are_the_whole_claim(groups):
    shares = {"a": GroupShare(share=1), "b": GroupShare(share=5000), "c": GroupShare(share=0)}
    assert sum(parts_of(groups, shares).values()) == pytest.approx(1.0)
