"""Clamps: order, records, bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.limits import Clamp, Limit, clamp
from lodesman.wire.vocabulary import ClampName


def limit(name: ClampName, value: int) -> Limit:
    return Limit(name=name, limit=value, detail=f"{name} {value}")


def test_without_limits_nothing_is_taken():
    assert clamp(7, ()).count == 7
    assert clamp(7, ()).clamps == ()


def test_each_bite_is_recorded_in_order():
    limits = [
        limit(ClampName.MAX_WAITING, 8),
        limit(ClampName.MAX_TOTAL, 9),
        limit(ClampName.TOKEN_BUCKET, 3),
    ]
    result = clamp(12, limits)
    assert result.count == 3
    assert result.clamps == (
        Clamp(name=ClampName.MAX_WAITING, before=12, after=8, limit=8, detail="max-waiting 8"),
        Clamp(name=ClampName.TOKEN_BUCKET, before=8, after=3, limit=3, detail="token-bucket 3"),
    )


def test_a_negative_limit_takes_all_and_is_recorded_as_it_was():
    result = clamp(4, [limit(ClampName.USABLE_SUPPLY, -6)])
    assert result.count == 0
    assert result.clamps[0].limit == -6
    assert result.clamps[0].after == 0


def test_a_negative_count_is_none():
    assert clamp(-3, [limit(ClampName.MAX_TOTAL, 5)]).count == 0


def test_after_zero_no_further_limit_applies():
    result = clamp(1, [limit(ClampName.CLOSED, 0), limit(ClampName.BREAKER, 0)])
    assert [bite.name for bite in result.clamps] == [ClampName.CLOSED]


LIMITS = st.lists(st.tuples(st.sampled_from(list(ClampName)), st.integers(-20, 100)), max_size=8)


@given(st.integers(-5, 120), LIMITS)
def test_the_result_is_the_least_and_the_bites_chain(count, pairs):
    result = clamp(count, [limit(name, value) for name, value in pairs])
    assert result.count == max(0, min([count, *(value for _, value in pairs)]))
    chain = [max(0, count), *(bite.after for bite in result.clamps)]
    assert [bite.before for bite in result.clamps] == chain[:-1]
    assert all(bite.after < bite.before for bite in result.clamps)
    assert chain[-1] == result.count
