"""Owners with weights: drawn exactly in proportion among those that are eligible, and in the director's weights alike."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.matching.test_lottery import DRAWS, KEY, REQUEST, World, z_of

from lodesman.decide.matching.lottery import _TRIES
from lodesman.decide.matching.shares import GroupShare, director_weights

WEIGHTS = {"ann": 3.0, "bob": 0.5, "far": 40.0}


def world(*owners, weights=WEIGHTS, **changes):
    found = World()
    found.lottery.set_shares({"g00": GroupShare(owner_weights=weights)})
    for owner in owners:
        found.put(owner=owner, **changes)
    return found


def by_owner(found, request=REQUEST):
    got = Counter()
    for tq_id, n in found.draws(request).items():
        got[found.index.key(tq_id).owner] += n
    return got


def fits(got, wanted):
    """Within about four standard deviations; the draws are always the same."""
    return abs(z_of(got, wanted)) < 10


def expected(*owners, weights=WEIGHTS):
    total = sum(weights.get(one, 1.0) for one in owners)
    return {one: DRAWS * weights.get(one, 1.0) / total for one in owners}


def test_owners_are_drawn_by_their_weights_and_others_weigh_1():
    found = world("ann", "bob", "cleo")
    assert fits(by_owner(found), expected("ann", "bob", "cleo"))


@pytest.mark.slow
def test_only_eligible_owners_count_also_when_they_have_to_be_listed():
    found = world("ann", "bob", "cleo")
    for n in range(_TRIES * 20):
        found.put(owner=f"far{n}", sites=("B",))
    assert fits(by_owner(found), expected("ann", "bob", "cleo"))


def test_owners_that_come_and_go_are_weighed_at_once():
    found = world("ann", "bob")
    found.draw()
    third = found.put(owner="cleo")
    assert fits(by_owner(found), expected("ann", "bob", "cleo"))
    found.index.take(third, now=0.0)
    found.index.forget_idle(10_000.0)
    assert not found.index.has(third)
    got = found.draws()
    assert fits({"ann": got[0], "bob": got[1]}, expected("ann", "bob"))


def test_weights_are_taken_back_and_a_group_that_shares_its_jobs_has_none():
    found = world("ann", "bob")
    found.draw()
    found.lottery.set_shares({})
    assert fits(by_owner(found), {"ann": DRAWS / 2, "bob": DRAWS / 2})
    found.lottery.set_shares({"g00": GroupShare(owner_weights=WEIGHTS, job_sharing=True)})
    assert fits(by_owner(found), {"ann": DRAWS / 2, "bob": DRAWS / 2})


def test_the_weights_of_one_group_do_not_touch_another():
    found = world("ann", "bob")
    found.put(owner="ann", group="g01")
    found.put(owner="bob", group="g01")
    got = found.draws()
    assert fits({"ann": got[2], "bob": got[3]}, dict.fromkeys(("ann", "bob"), (got[2] + got[3]) / 2))


@given(st.dictionaries(st.sampled_from(["ann", "bob", "cleo"]), st.floats(0.2, 5)), st.booleans())
def test_the_director_parts_a_share_by_the_same_weights(weights, sharing):
    queues = [(n, replace(KEY, owner=owner), 1) for n, owner in enumerate(["ann", "bob", "cleo"])]
    shares = {"g00": GroupShare(share=700, job_sharing=sharing, owner_weights={} if sharing else weights)}
    found = director_weights(queues, shares)
    assert sum(found.values()) == pytest.approx(700)
    if not sharing:
        assert found[0] / found[1] == pytest.approx(weights.get("ann", 1.0) / weights.get("bob", 1.0))
