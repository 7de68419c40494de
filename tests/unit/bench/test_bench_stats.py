"""Percentiles, the tail of chi-square, and the test of starts against what was deserved."""

from __future__ import annotations

import math
import random

import pytest
from bench.stats import StartsTest, chi_square_tail, median, percentile
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]
)
def test_a_percentile_is_the_nearest_rank(percent, expected):
    values = list(range(1, 101))
    random.Random(1).shuffle(values)
    assert percentile(values, percent) == expected


def test_nothing_has_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_a_percentile_is_one_of_the_values(values, percent):
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9


def test_the_median_of_an_even_number_is_the_upper_one():
    assert median([3, 1, 2, 4]) == 3
    assert median([3, 1, 2]) == 2


# From tables: the 95 % and 99.9 % points.
@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    [
        (3.841, 1, 0.05),
        (5.991, 2, 0.05),
        (10.828, 1, 0.001),
        (30.144, 19, 0.05),
        (66.339, 49, 0.05),
        (85.351, 49, 0.001),
    ],
)
def test_the_tail_of_chi_square_is_that_of_the_tables(statistic, freedom, tail):
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=2e-3)


def test_the_tail_begins_at_one_and_needs_a_degree_of_freedom():
    assert chi_square_tail(0, 3) == 1.0
    assert chi_square_tail(1e4, 3) == pytest.approx(0, abs=1e-300)
    with pytest.raises(ValueError, match="freedom"):
        chi_square_tail(1, 0)


def drawn(chances: dict[str, float], rng: random.Random) -> str:
    return rng.choices(list(chances), list(chances.values()))[0]


KINDS = [{"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.9, "c": 0.1}, {"b": 1.0}, {"b": 0.4, "c": 0.6}]


def run(seed: int, claims: int, bias: float = 0.0) -> StartsTest:
    rng, test = random.Random(seed), StartsTest()
    for number in range(claims):
        kind = KINDS[number % len(KINDS)]
        winner = "a" if "a" in kind and rng.random() < bias else drawn(kind, rng)
        test.add(kind, winner)
    return test


@pytest.mark.slow
def test_fair_draws_of_many_kinds_give_evenly_spread_chances():
    chances = sorted(run(seed, 400).result()[2] for seed in range(200))
    # Kolmogorov and Smirnov: the largest distance from even spread, at 0.1 %.
    away = max(abs(chance - (k + 0.5) / 200) for k, chance in enumerate(chances))
    assert away < 1.95 / math.sqrt(200)


def test_a_bias_is_found():
    assert run(7, 10_000, bias=0.15).result()[2] < 1e-3


def test_degrees_of_freedom_count_what_can_vary():
    assert run(1, 400).result()[1] == 2
    alone = StartsTest()
    alone.add({"a": 1.0}, "a", times=5)
    assert alone.result() == (0.0, 0, 1.0)


def test_a_start_without_a_target_is_impossible():
    test = run(1, 400)
    test.add({"a": 1.0}, "stranger")
    assert test.result()[2] == 0.0


def test_times_multiplies_a_claim():
    once, often = StartsTest(), StartsTest()
    for _ in range(3):
        once.add(KINDS[0], "b")
    often.add(KINDS[0], "b", times=3)
    assert often.claims == once.claims == 3
    assert often.deserved == pytest.approx(once.deserved)
    assert often.result() == pytest.approx(once.result())
