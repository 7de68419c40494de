"""Actual starts against those by share."""

from __future__ import annotations

import random

import pytest
from examples.demo.report import share_rows
from hypothesis import given
from hypothesis import strategies as st

from lodesman.wire.server import Claims

SHARES = {"physics": 3000.0, "bio": 1000.0}
BOTH = frozenset(SHARES)


def claim(*, group, eligible, count=1, shares=SHARES) -> Claims:
    held = None if eligible is None else {one: shares[one] for one in sorted(eligible)}
    return Claims(group=group, shares=held, count=count)


def rows(*claims, shares=SHARES):
    return {row.group: row for row in share_rows(claims, shares)}


def test_the_target_is_summed_over_the_claims_where_the_group_was_eligible():
    got = rows(
        claim(group="physics", eligible=BOTH, count=70),
        claim(group="bio", eligible=BOTH, count=30),
        claim(group="bio", eligible=frozenset({"bio"}), count=50),
    )
    assert (got["physics"].actual, got["physics"].target) == (70, pytest.approx(75))
    assert (got["bio"].actual, got["bio"].target) == (80, pytest.approx(75))


def test_the_distance_is_in_standard_deviations_of_a_fair_lottery():
    got = rows(claim(group="physics", eligible=BOTH, count=70), claim(group="bio", eligible=BOTH, count=30))
    assert got["physics"].deviation == pytest.approx((70 - 75) / (100 * 0.75 * 0.25) ** 0.5)
    assert got["bio"].deviation == pytest.approx(-got["physics"].deviation)


def test_where_nothing_was_drawn_nothing_is_off():
    got = rows(claim(group="bio", eligible=frozenset({"bio"}), count=5))
    assert (got["bio"].target, got["bio"].deviation) == (5, 0.0)
    assert (got["physics"].actual, got["physics"].target, got["physics"].deviation) == (0, 0, 0.0)


def test_no_claims_at_all():
    assert [(row.actual, row.target) for row in share_rows([], SHARES)] == [(0, 0.0), (0, 0.0)]
    assert share_rows([], {}) == []


@pytest.mark.parametrize(
    "odd",
    [
        claim(group="bio", eligible=None),
        claim(group="bio", eligible=frozenset({"physics"})),
    ],
)
def test_one_claim_that_was_not_recorded_makes_the_targets_unknown(odd):
    got = rows(claim(group="physics", eligible=BOTH, count=10), odd)
    assert {row.target for row in got.values()} == {None}
    assert {row.deviation for row in got.values()} == {None}
    assert (got["physics"].actual, got["bio"].actual) == (10, 1)


def test_the_target_without_a_share_is_nothing():
    shares = {"bio": 1000, "physics": 0}
    got = rows(claim(group="bio", eligible=BOTH, count=4, shares=shares), shares=shares)
    assert (got["bio"].target, got["physics"].target) == (4, 0)


def test_the_starts_of_private_pilots_are_left_out():
    got = rows(claim(group="bio", eligible=BOTH, count=4), claim(group="bio", eligible=(), count=7))
    assert (got["bio"].actual, got["bio"].target) == (4, 1)


subsets = st.sets(st.sampled_from("abcd"), min_size=1).map(frozenset)


@given(st.lists(st.tuples(subsets, st.integers(1, 50), st.randoms(use_true_random=False)), max_size=20))
def test_actual_and_target_add_up_to_the_same(draws):
    shares = {"a": 1, "b": 2, "c": 30, "d": 0.5}
    claims = [claim(group=dice.choice(sorted(s)), eligible=s, count=n, shares=shares) for s, n, dice in draws]
    got = share_rows(claims, shares)
    total = sum(one.count for one in claims)
    assert sum(row.actual for row in got) == total
    assert sum(row.target or 0 for row in got) == pytest.approx(total)


def test_a_fair_lottery_stays_within_four_sigma():
    dice = random.Random(7)
    claims = []
    for _ in range(4000):
        eligible = dice.choice([BOTH, BOTH, frozenset({"bio"})])
        weights = [SHARES[group] for group in sorted(eligible)]
        claims.append(claim(group=dice.choices(sorted(eligible), weights)[0], eligible=eligible))
    assert all(row.deviation is not None and abs(row.deviation) < 4 for row in share_rows(claims, SHARES))
