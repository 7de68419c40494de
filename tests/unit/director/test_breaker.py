"""The circuit breaker of a CE queue: every transition, and that it always comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.limits import (
    Breaker,
    breaker_allowance,
    describe_breaker,
    note_failure,
    note_submission,
    note_success,
    settle_breaker,
)
from lodesman.decide.director.options import BreakerRules
from lodesman.wire.vocabulary import BreakerState

RULES = BreakerRules(failures=3, open_s=100.0, max_open_s=350.0)


def trip(breaker: Breaker, *, now: float, times: int = 3) -> Breaker:
    for _ in range(times):
        breaker = note_failure(breaker, now=now, rules=RULES, reason="qsub: no")
    return breaker


def test_a_new_breaker_limits_nothing():
    assert breaker_allowance(Breaker()) is None


def test_it_opens_at_the_third_failure_in_a_row():
    two = trip(Breaker(), now=10.0, times=2)
    assert two.state is BreakerState.CLOSED
    assert breaker_allowance(two) is None
    three = note_failure(two, now=10.0, rules=RULES, reason="qsub: no")
    assert three.state is BreakerState.OPEN
    assert three.retry_at == 110.0
    assert breaker_allowance(three) == 0


def test_a_success_in_between_starts_the_count_anew():
    breaker = note_success(trip(Breaker(), now=0.0, times=2))
    assert breaker == Breaker()
    assert trip(breaker, now=0.0, times=2).state is BreakerState.CLOSED


def test_an_open_one_waits_its_time():
    opened = trip(Breaker(), now=0.0)
    assert settle_breaker(opened, now=99.9) == opened
    half = settle_breaker(opened, now=100.0)
    assert half.state is BreakerState.HALF_OPEN
    assert breaker_allowance(half) == 1


def test_only_one_probe_goes_out():
    half = settle_breaker(trip(Breaker(), now=0.0), now=100.0)
    probing = note_submission(half, now=100.0, rules=RULES)
    assert breaker_allowance(probing) == 0
    assert breaker_allowance(settle_breaker(probing, now=199.0)) == 0


def test_a_probe_that_never_answers_is_given_up():
    half = settle_breaker(trip(Breaker(), now=0.0), now=100.0)
    probing = note_submission(half, now=100.0, rules=RULES)
    assert breaker_allowance(settle_breaker(probing, now=200.0)) == 1


def test_a_good_probe_closes_it():
    probing = note_submission(settle_breaker(trip(Breaker(), now=0.0), now=100.0), now=100.0, rules=RULES)
    assert note_success(probing) == Breaker()


def test_a_bad_probe_opens_it_for_longer_up_to_the_limit():
    breaker, now, waits = trip(Breaker(), now=0.0), 0.0, []
    for _ in range(5):
        now = breaker.retry_at
        breaker = note_submission(settle_breaker(breaker, now=now), now=now, rules=RULES)
        breaker = note_failure(breaker, now=now, rules=RULES, reason="still no")
        waits.append(breaker.retry_at - now)
    assert waits == [200.0, 350.0, 350.0, 350.0, 350.0]
    assert breaker.reason == "still no"


def test_late_answers_change_neither_state_nor_wait():
    opened = trip(Breaker(), now=0.0)
    assert note_success(opened) == opened
    late = note_failure(opened, now=50.0, rules=RULES, reason="late")
    assert (late.state, late.retry_at, late.trips) == (opened.state, opened.retry_at, opened.trips)
    half = settle_breaker(opened, now=100.0)
    assert note_success(half) == half


def test_submitting_matters_in_half_open_only():
    opened = trip(Breaker(), now=0.0)
    assert note_submission(Breaker(), now=0.0, rules=RULES) == Breaker()
    assert note_submission(opened, now=0.0, rules=RULES) == opened


def test_a_queue_broken_for_ever_overflows_nothing():
    rules = BreakerRules(failures=1, open_s=300.0, max_open_s=3600.0)
    breaker = Breaker(trips=100_000)
    assert note_failure(breaker, now=0.0, rules=rules, reason="").retry_at == 3600.0


@pytest.mark.parametrize(
    ("breaker", "text"),
    [
        (Breaker(failures=2), "closed, 2 failures in a row"),
        (trip(Breaker(), now=0.0), "pilots do not start there: qsub: no"),
        (
            settle_breaker(trip(Breaker(), now=0.0), now=100.0),
            "pilots did not start there, and one may try it: qsub: no",
        ),
        (
            Breaker(state=BreakerState.HALF_OPEN, failures=3, probing=True),
            "pilots did not start there, and one tries it now: the reason is not known",
        ),
    ],
)
def test_it_describes_itself(breaker, text):
    assert describe_breaker(breaker) == text


STEPS = st.lists(st.tuples(st.sampled_from(["ok", "no", "submit", "wait"]), st.floats(0, 500)), max_size=40)


@given(STEPS)
def test_whatever_happened_it_can_be_tried_again_in_bounded_time(steps):
    breaker, now = Breaker(), 0.0
    for what, elapsed in steps:
        now += elapsed
        breaker = settle_breaker(breaker, now=now)
        if what == "ok":
            breaker = note_success(breaker)
        elif what == "no":
            breaker = note_failure(breaker, now=now, rules=RULES, reason="x")
        elif what == "submit":
            breaker = note_submission(breaker, now=now, rules=RULES)
        assert breaker_allowance(breaker) in {None, 0, 1}
    later = settle_breaker(breaker, now=now + RULES.max_open_s)
    assert breaker_allowance(later) in {None, 1}
