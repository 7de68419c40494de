"""When a job starts: the interval holds what it says, of a stream of starts at an even rate, and of slots that become free.

Whole worlds: tests/scenario/test_foretold_starts.py.
"""

from __future__ import annotations

import random

import pytest

from lodesman.decide.explain.starts import (
    Durations,
    FreedSlots,
    RunningKind,
    StartHistory,
    StartRate,
    TimedJob,
    estimate,
)
from lodesman.decide.explain.turns import Turn
from lodesman.decide.explain.verdict import ago, between, lasting


@pytest.mark.parametrize(("starts", "jobs"), [(2, 1), (2, 20), (5, 3), (36, 1), (36, 2_000), (400, 10)])
def test_nine_of_ten_starts_fall_into_the_interval(starts, jobs):
    """The rate of a stream is any; what is seen is as long as so many starts took, and the wait is as long as the next."""
    rng, inside, tries = random.Random(1), 0, 2_000
    for _ in range(tries):
        rate = 10 ** rng.uniform(-3, 1)
        seen = StartRate(starts, rng.gammavariate(starts, 1 / rate))
        found = estimate(jobs, seen)
        inside += found.low_seconds <= rng.gammavariate(jobs, 1 / rate) <= found.high_seconds
    assert 0.85 <= inside / tries <= 0.93


def test_more_jobs_take_longer_and_more_starts_make_it_narrower():
    few, many = estimate(10, StartRate(4, 400.0)), estimate(10, StartRate(40, 4_000.0))
    assert few.low_seconds < many.low_seconds < 1_000 < many.high_seconds < few.high_seconds
    assert estimate(20, StartRate(4, 400.0)).high_seconds > few.high_seconds
    assert (few.starts, few.seconds) == (4, 400.0)


@pytest.mark.parametrize("seen", [StartRate(0, 100.0), StartRate(-1, 0.0), StartRate(3, 0.0)])
def test_where_nothing_was_measured_it_is_unknown(seen):
    assert estimate(1, seen) is None


@pytest.mark.parametrize(
    ("silent", "known"), [(0.0, True), (40.0, True), (50.0, True), (51.0, False), (100.0, False)]
)
def test_what_is_over_says_nothing_of_what_runs_now(silent, known):
    """Many short jobs started, and long ones fill the slots since."""
    assert (estimate(1, StartRate(30, 100.0, silent)) is not None) == known


def test_a_cluster_whose_jobs_start_together_goes_on():
    """Six start every ten minutes: between two rounds nothing starts, which is no end."""
    assert estimate(1, StartRate(11, 1_190.0, 590.0)) is not None
    assert estimate(1, StartRate(5, 590.0, 590.0)) is None  # the first round may take any time


def test_a_full_cluster():
    """Six cores, ten minutes a job: 1,975 jobs before it are 55 hours."""
    found = estimate(1_976, StartRate(35, 3_590.0))
    assert found.low_seconds < 55 * 3_600 < found.high_seconds < 2 * 55 * 3_600


@pytest.mark.parametrize(
    ("seconds", "lasts", "since"),
    [(0.0, "", "just now"), (0.4, "", "just now"), (3.0, " for 3 s", "3 s ago")],
)
def test_no_length_of_time_is_zero(seconds, lasts, since):
    assert (lasting(seconds), ago(seconds)) == (lasts, since)
    assert between(0.0, seconds) == ("within 3 s" if seconds > 1 else "within 1 s")
    assert between(seconds, 600.0) == ("within 10 min" if seconds < 1 else "in about 3 s to 10 min")


# --- how long jobs take -------------------------------------------------------------------------------------------------


def ended(*seconds, begun=0.0):
    return [TimedJob(begun + n, one) for n, one in enumerate(seconds)]


def running(*ages, now=1_000.0):
    return [TimedJob(now - age, age, ended=False) for age in ages]


def test_equal_jobs_have_one_length():
    found = Durations(ended(*[10.0] * 20))
    assert (9.9 < found.mean < 10.3, found.spread < 0.2, found.error < 0.1) == (True, True, True)
    assert (found.lasting(8.9), found.quantile(0.5)) == (1.0, 10.0)
    assert found.lasting(9.5) == pytest.approx(0.5, abs=0.05)
    assert found.going_on(9.0, 1.0) == pytest.approx(found.lasting(10.0))
    assert found.lasting(10.0) < 0.05


def test_what_runs_for_less_than_others_took_changes_little():
    """Of a large cluster most jobs have just begun."""
    alone, many = Durations(ended(*[10.0] * 20)), Durations(ended(*[10.0] * 20) + running(*[1.0] * 500))
    assert many.mean == pytest.approx(alone.mean, rel=0.02)


@pytest.mark.parametrize(
    ("ages", "least", "most"), [(2.0, 9.5, 10.5), (15.0, 14.0, 40.0), (60.0, 60.0, 150.0)]
)
def test_what_outlives_all_others_says_that_jobs_take_longer_now(ages, least, most):
    found = Durations(ended(*[10.0] * 40) + running(*[ages] * 6))
    assert least < found.mean < most
    assert (found.unknown > 0.3) == (ages > 10.0)
    assert found.going_on(ages, ages) == pytest.approx(0.5 if ages > 10.0 else 1.0)


def test_new_lengths_count_alone_within_a_few_ends():
    """Down and up: a dozen of the new length after forty of the old one."""
    for old, new in ((100.0, 10.0), (10.0, 100.0)):
        found = Durations(ended(*[old] * 40) + ended(*[new] * 12, begun=100.0))
        assert abs(found.mean - new) < abs(found.mean - old) / 2
    same = Durations(ended(*[10.0, 12.0] * 26))
    assert same.mean == pytest.approx(11.0, rel=0.05)


def test_of_nothing_that_ended_nothing_is_known():
    assert Durations([]).evidence == Durations(running(5.0)).evidence == 0.0
    assert Durations([TimedJob(0.0, 0.0)]).mean > 0.0


# --- slots that become free ---------------------------------------------------------------------------------------------

TEN = Durations(ended(*[10.0] * 30))


def slots(*ages, **more):
    return FreedSlots([RunningKind([1_000.0 - age for age in ages], TEN)], now=1_000.0, **more)


def test_the_next_job_starts_when_the_oldest_ends():
    low, high = slots(9.0, 5.0, 1.0).start(1)
    assert low < 1.0 < high < 7.0
    low, high = slots(9.0, 5.0, 1.0).start(3)
    assert low < 9.0 < high < 16.0


@pytest.mark.parametrize(("jobs", "seconds"), [(30, 50.0), (600, 1_000.0), (60_000, 100_000.0)])
def test_far_positions_follow_from_how_long_jobs_take(jobs, seconds):
    low, high = slots(9.0, 7.5, 6.0, 4.0, 2.5, 1.0).start(jobs)
    assert seconds * 0.6 < low < seconds < high < seconds * 1.5


def test_of_a_part_of_the_starts_jobs_start_later_until_the_others_have_started():
    here = slots(9.0, 7.5, 6.0, 4.0, 2.5, 1.0)
    (whole, _), (_, part), (_, few) = (
        here.start(10),
        here.start(10, part=0.1, others=10**6),
        here.start(10, part=0.1, others=5),
    )
    assert (whole < 17.0 < few, few < 45.0, part > 150.0) == (True, True, True)
    assert here.start(10, part=0.0) is None


def test_twice_the_slots_and_free_ones_halve_the_time():
    usual = {"usual": TEN}
    (_, one), (_, two) = slots(5.0, 5.0).start(40), slots(5.0, 5.0, 5.0, 5.0).start(40)
    _, free = slots(5.0, 5.0, free=2, **usual).start(40)
    assert two < one * 0.65
    assert free < one * 0.65
    _, soon = slots(5.0, 5.0, soon=2, **usual).start(40)
    assert free < soon < one


def test_room_for_one_job_may_take_several_ends():
    kind = RunningKind([991.0, 992.0, 993.0, 994.0], TEN, room=0.25)
    low, high = FreedSlots([kind], now=1_000.0).start(2)
    assert low < 13.0 < high


def test_without_anything_that_ended_there_is_no_answer():
    young = RunningKind([990.0], Durations(running(10.0)))
    assert FreedSlots([young], now=1_000.0).start(1) is FreedSlots((), now=1.0).start(1) is None


def test_where_nothing_runs_the_rate_of_starts_tells():
    none = FreedSlots((), now=1.0)
    started = StartHistory(StartRate(0, 0.0), StartRate(20, 200.0), 0.5, none, none)
    found = started.estimate(Turn(ahead=4), limited=False)
    assert (found.job_seconds, found.low_seconds < 100.0 < found.high_seconds) == (None, True)
    assert started.estimate(Turn(ahead=4), limited=True) is None, "others of its group have other limits"
    assert started._replace(own=StartRate(9, 90.0)).estimate(Turn(), limited=True).high_seconds > 10
