"""The rate limit of a CE."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.limits import TokenBucket, refill_tokens, take_tokens, whole_tokens
from lodesman.decide.director.options import RateRules

RULES = RateRules(per_minute=6.0, burst=5)


def test_a_new_ce_may_burst():
    assert whole_tokens(refill_tokens(None, now=0.0, rules=RULES)) == 5


def test_tokens_come_back_at_the_rate():
    empty = take_tokens(refill_tokens(None, now=0.0, rules=RULES), 5)
    assert whole_tokens(empty) == 0
    assert whole_tokens(refill_tokens(empty, now=9.9, rules=RULES)) == 0
    assert whole_tokens(refill_tokens(empty, now=10.0, rules=RULES)) == 1
    assert whole_tokens(refill_tokens(empty, now=30.0, rules=RULES)) == 3


def test_parts_of_tokens_are_kept():
    bucket = take_tokens(refill_tokens(None, now=0.0, rules=RULES), 5)
    for now in (5.0, 10.0, 15.0, 20.0):
        bucket = refill_tokens(bucket, now=now, rules=RULES)
    assert whole_tokens(bucket) == 2


def test_a_long_pause_gives_no_more_than_the_burst():
    assert whole_tokens(refill_tokens(TokenBucket(tokens=0.0, updated_at=0.0), now=1e9, rules=RULES)) == 5


def test_a_clock_that_went_back_gives_nothing():
    bucket = TokenBucket(tokens=1.0, updated_at=100.0)
    assert refill_tokens(bucket, now=50.0, rules=RULES).tokens == 1.0


def test_a_lowered_burst_holds_at_once():
    bucket = TokenBucket(tokens=40.0, updated_at=0.0)
    assert whole_tokens(refill_tokens(bucket, now=0.0, rules=RULES)) == 5


@pytest.mark.parametrize("count", [-1, 3])
def test_what_is_not_there_cannot_be_taken(count):
    with pytest.raises(ValueError, match="cannot be taken"):
        take_tokens(TokenBucket(tokens=2.9, updated_at=0.0), count)


@given(st.lists(st.tuples(st.floats(0, 120), st.integers(0, 50)), max_size=50))
def test_over_any_time_no_more_than_burst_and_rate(steps):
    bucket, now, taken = refill_tokens(None, now=0.0, rules=RULES), 0.0, 0
    for elapsed, wish in steps:
        now += elapsed
        bucket = refill_tokens(bucket, now=now, rules=RULES)
        count = min(wish, whole_tokens(bucket))
        bucket = take_tokens(bucket, count)
        taken += count
        assert taken <= RULES.burst + now * RULES.per_minute / 60.0 + 1e-6
