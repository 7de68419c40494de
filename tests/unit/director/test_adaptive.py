"""The target that follows the jobs waiting and running (the seed's proposed fix)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.director.options import AdaptiveRules, DirectorOptions
from lodesman.director.plan import adapt

ON = AdaptiveRules(enabled=True, target_waiting_jobs=200, target_running_jobs=1000, max_factor=5.0)


def value(waiting: int, running: int, rules: AdaptiveRules = ON) -> float:
    return adapt(DirectorOptions(adaptive=rules), waiting_jobs=waiting, running_jobs=running).value


def test_off_it_is_the_plain_number_of_pilots():
    target = adapt(DirectorOptions(adaptive=AdaptiveRules()), waiting_jobs=9_999, running_jobs=5)
    assert (target.value, target.base, target.waiting_factor, target.running_factor) == (40.0, 40.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("waiting", "running", "expected"),
    [
        (200, 0, 40.0),
        (100, 0, 20.0),
        (400, 0, 80.0),
        (100_000, 0, 200.0),
        (200, 500, 20.0),
        (200, 1000, 0.0),
        (200, 5000, 0.0),
        (0, 0, 0.0),
    ],
)
def test_on_it_follows_both(waiting, running, expected):
    assert value(waiting, running) == pytest.approx(expected)


def test_without_running_target_running_jobs_do_not_matter():
    rules = AdaptiveRules(enabled=True, target_running_jobs=0)
    assert value(200, 10**9, rules) == 40.0


@given(st.integers(0, 10**7), st.integers(0, 10**6))
def test_the_record_multiplies_up_and_stays_in_bounds(waiting, running):
    target = adapt(DirectorOptions(adaptive=ON), waiting_jobs=waiting, running_jobs=running)
    assert target.value == pytest.approx(target.base * target.waiting_factor * target.running_factor)
    assert 0.0 <= target.value <= 40.0 * ON.max_factor


@given(st.integers(0, 10**6), st.integers(0, 2000), st.integers(1, 1000))
def test_more_waiting_never_lowers_it_and_more_running_never_raises_it(waiting, running, more):
    assert value(waiting + more, running) >= value(waiting, running)
    assert value(waiting, running + more) <= value(waiting, running)
