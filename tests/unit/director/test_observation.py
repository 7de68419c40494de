"""Unknown is not zero: when a number may be acted on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.director.limits import Observation, age_s, doubt, known


def seen(value: int | None, at: float = 100.0) -> Observation:
    return Observation(value=value, observed_at=at, source="slurm")


def test_a_fresh_number_is_known():
    assert known(seen(7), now=110.0, max_age_s=10.0) == 7
    assert doubt(seen(7), now=110.0, max_age_s=10.0) == ""


def test_zero_is_a_number():
    assert known(seen(0), now=100.0, max_age_s=10.0) == 0


@pytest.mark.parametrize(
    ("observation", "now", "why"),
    [
        (seen(None), 100.0, "slurm did not know"),
        (seen(-1), 100.0, "slurm said -1, which is no count"),
        (seen(3), 110.5, "seen 10 s ago, older than 10 s"),
    ],
)
def test_what_is_not_known_says_why(observation, now, why):
    assert known(observation, now=now, max_age_s=10.0) is None
    assert doubt(observation, now=now, max_age_s=10.0) == why


def test_a_source_without_name_is_still_told():
    assert doubt(Observation(value=None, observed_at=0.0), now=0.0, max_age_s=1.0) == (
        "the source did not know"
    )


def test_a_clock_that_ran_ahead_gives_age_zero():
    assert age_s(seen(1, at=200.0), now=100.0) == 0.0
    assert known(seen(1, at=200.0), now=100.0, max_age_s=1.0) == 1


@given(st.one_of(st.none(), st.integers(-3, 50)), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5))
def test_a_number_is_known_exactly_when_there_is_no_doubt(value, at, now, max_age):
    observation = seen(value, at)
    is_known = known(observation, now=now, max_age_s=max_age) is not None
    assert is_known == (doubt(observation, now=now, max_age_s=max_age) == "")
