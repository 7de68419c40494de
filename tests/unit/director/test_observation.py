"""Unknown is not zero: when the load of a queue may be acted on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.queues import QueueLoad


def seen(waiting: int | None, running: int | None = 0, at: float = 100.0) -> QueueLoad:
    return QueueLoad(waiting, running, at, "slurm")


def test_a_fresh_load_is_known():
    assert seen(7).doubts(now=110.0, max_age_s=10.0) == ""


def test_zero_is_a_number():
    assert seen(0, 0).doubts(now=100.0, max_age_s=10.0) == ""


@pytest.mark.parametrize(
    ("load", "now", "why"),
    [
        (seen(None), 100.0, "waiting: slurm did not know"),
        (seen(-1), 100.0, "waiting: slurm said -1, which is not a count"),
        (seen(None, -2), 100.0, "waiting: slurm did not know; running: slurm said -2, which is not a count"),
        (
            seen(3),
            110.5,
            "waiting: seen 10 s ago, older than 10 s; running: seen 10 s ago, older than 10 s",
        ),
    ],
)
def test_what_is_not_known_says_why(load, now, why):
    assert load.doubts(now=now, max_age_s=10.0) == why


def test_a_clock_that_ran_ahead_gives_age_zero():
    assert seen(1, at=200.0).age_s(100.0) == 0.0
    assert seen(1, at=200.0).doubts(now=100.0, max_age_s=1.0) == ""


NUMBER = st.one_of(st.none(), st.integers(-3, 50))


@given(NUMBER, NUMBER, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5))
def test_a_load_may_be_acted_on_when_it_is_known_and_fresh(waiting, running, at, now, max_age):
    load = seen(waiting, running, at)
    assert load.is_known == all(number is not None and number >= 0 for number in (waiting, running))
    assert (load.doubts(now=now, max_age_s=max_age) == "") == (load.is_known and now - at <= max_age)


def test_what_a_batch_system_said_instead_is_the_doubt():
    unknown = QueueLoad(None, None, 0.0, "slurm", fault="squeue failed: no controller.")
    assert unknown.doubts(now=10.0, max_age_s=60.0) == "slurm does not answer: squeue failed: no controller."
    fresh = QueueLoad(1, 2, 0.0, "slurm", fault="squeue failed: no controller.")
    assert fresh.doubts(now=10.0, max_age_s=60.0) == ""
    assert "does not answer" in fresh.doubts(now=100.0, max_age_s=60.0)
