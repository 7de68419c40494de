"""Share received against share deserved."""

from __future__ import annotations

import random

import pytest
from examples.demo.shares import Claim, share_rows
from hypothesis import given
from hypothesis import strategies as st

SHARES = {"physics": 3000.0, "bio": 1000.0}
BOTH = frozenset(SHARES)


def rows(*claims, shares=SHARES):
    return {row.group: row for row in share_rows(claims, shares)}


def test_deserved_is_summed_over_the_claims_where_the_group_was_eligible():
    got = rows(
        Claim(group="physics", eligible=BOTH, count=70),
        Claim(group="bio", eligible=BOTH, count=30),
        Claim(group="bio", eligible=frozenset({"bio"}), count=50),
    )
    assert (got["physics"].received, got["physics"].deserved) == (70, pytest.approx(75))
    assert (got["bio"].received, got["bio"].deserved) == (80, pytest.approx(75))


def test_the_distance_is_in_standard_deviations_of_a_fair_lottery():
    got = rows(Claim(group="physics", eligible=BOTH, count=70), Claim(group="bio", eligible=BOTH, count=30))
    assert got["physics"].sigmas == pytest.approx((70 - 75) / (100 * 0.75 * 0.25) ** 0.5)
    assert got["bio"].sigmas == pytest.approx(-got["physics"].sigmas)


def test_where_nothing_was_drawn_nothing_is_off():
    got = rows(Claim(group="bio", eligible=frozenset({"bio"}), count=5))
    assert (got["bio"].deserved, got["bio"].sigmas) == (5, 0.0)
    assert (got["physics"].received, got["physics"].deserved, got["physics"].sigmas) == (0, 0, 0.0)


def test_no_claims_at_all():
    assert [(row.received, row.deserved) for row in share_rows([], SHARES)] == [(0, 0.0), (0, 0.0)]
    assert share_rows([], {}) == ()


@pytest.mark.parametrize(
    "odd",
    [
        Claim(group="bio", eligible=None),
        Claim(group="bio", eligible=frozenset({"physics"})),
        Claim(group="bio", eligible=frozenset({"bio", "strangers"})),
    ],
)
def test_one_claim_that_was_not_recorded_makes_the_deserts_unknown(odd):
    got = rows(Claim(group="physics", eligible=BOTH, count=10), odd)
    assert {row.deserved for row in got.values()} == {None}
    assert {row.sigmas for row in got.values()} == {None}
    assert (got["physics"].received, got["bio"].received) == (10, 1)


def test_a_group_without_a_share_deserves_nothing():
    got = rows(Claim(group="bio", eligible=BOTH, count=4), shares={"bio": 1000, "physics": 0})
    assert (got["bio"].deserved, got["physics"].deserved) == (4, 0)
    assert rows(Claim(group="bio", eligible=BOTH), shares={"bio": 0, "physics": 0})["bio"].deserved is None


subsets = st.sets(st.sampled_from("abcd"), min_size=1).map(frozenset)


@given(st.lists(st.tuples(subsets, st.integers(1, 50), st.randoms(use_true_random=False)), max_size=20))
def test_received_and_deserved_add_up_to_the_same(draws):
    claims = [Claim(group=dice.choice(sorted(s)), eligible=s, count=n) for s, n, dice in draws]
    got = share_rows(claims, {"a": 1, "b": 2, "c": 30, "d": 0.5})
    total = sum(claim.count for claim in claims)
    assert sum(row.received for row in got) == total
    assert sum(row.deserved or 0 for row in got) == pytest.approx(total)


def test_a_fair_lottery_stays_within_four_sigma():
    dice = random.Random(7)
    claims = []
    for _ in range(4000):
        eligible = dice.choice([BOTH, BOTH, frozenset({"bio"})])
        weights = [SHARES[group] for group in sorted(eligible)]
        claims.append(Claim(group=dice.choices(sorted(eligible), weights)[0], eligible=eligible))
    assert all(row.sigmas is not None and abs(row.sigmas) < 4 for row in share_rows(claims, SHARES))
