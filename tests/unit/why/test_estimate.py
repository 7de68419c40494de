"""When a job starts: the interval holds what it says, of a stream of starts at an even rate."""

from __future__ import annotations

import random

import pytest

from lodesman.why.turns import Measured, estimate
from lodesman.why.verdict import ago, between, lasting


@pytest.mark.parametrize(("starts", "jobs"), [(2, 1), (2, 20), (5, 3), (36, 1), (36, 2_000), (400, 10)])
def test_eight_of_ten_starts_fall_into_the_interval(starts, jobs):
    """The rate of a stream is any; what is seen is as long as so many starts took, and the wait is as long as the next."""
    rng, inside, tries = random.Random(1), 0, 2_000
    for _ in range(tries):
        rate = 10 ** rng.uniform(-3, 1)
        seen = Measured(starts, rng.gammavariate(starts, 1 / rate))
        found = estimate(jobs, seen)
        inside += found.low_seconds <= rng.gammavariate(jobs, 1 / rate) <= found.high_seconds
    assert 0.75 <= inside / tries <= 0.86


def test_more_jobs_take_longer_and_more_starts_make_it_narrower():
    few, many = estimate(10, Measured(4, 400.0)), estimate(10, Measured(40, 4_000.0))
    assert few.low_seconds < many.low_seconds < 1_000 < many.high_seconds < few.high_seconds
    assert estimate(20, Measured(4, 400.0)).high_seconds > few.high_seconds
    assert (few.starts, few.seconds) == (4, 400.0)


@pytest.mark.parametrize("seen", [Measured(0, 100.0), Measured(-1, 0.0), Measured(3, 0.0)])
def test_where_nothing_was_measured_it_is_unknown(seen):
    assert estimate(1, seen) is None


@pytest.mark.parametrize(
    ("silent", "known"), [(0.0, True), (40.0, True), (50.0, True), (51.0, False), (100.0, False)]
)
def test_what_is_over_says_nothing_of_what_runs_now(silent, known):
    """Many short jobs started, and long ones fill the slots since."""
    assert (estimate(1, Measured(30, 100.0, silent)) is not None) == known


def test_a_cluster_whose_jobs_start_together_goes_on():
    """Six start every ten minutes: between two rounds nothing starts, which is no end."""
    assert estimate(1, Measured(11, 1_190.0, 590.0)) is not None
    assert estimate(1, Measured(5, 590.0, 590.0)) is None  # the first round may take any time


def test_a_full_cluster():
    """Six cores, ten minutes a job: 1,975 jobs before it are 55 hours."""
    found = estimate(1_976, Measured(35, 3_590.0))
    assert found.low_seconds < 55 * 3_600 < found.high_seconds < 2 * 55 * 3_600


@pytest.mark.parametrize(
    ("seconds", "lasts", "since"),
    [(0.0, "", "just now"), (0.4, "", "just now"), (3.0, " for 3 s", "3 s ago")],
)
def test_no_length_of_time_is_zero(seconds, lasts, since):
    assert (lasting(seconds), ago(seconds)) == (lasts, since)
    assert between(0.0, seconds) == ("within 3 s" if seconds > 1 else "within 1 s")
    assert between(seconds, 600.0) == ("within 10 min" if seconds < 1 else "in about 3 s to 10 min")
