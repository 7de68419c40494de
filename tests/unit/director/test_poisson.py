"""The sampler against what the Poisson law says: moments, the whole distribution, its edges."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.plan import MAX_MEAN, poisson

DRAWS = 20_000


def draws(mean: float, seed: int = 7, count: int = DRAWS) -> list[int]:
    rng = random.Random(seed)
    return [poisson(mean, rng) for _ in range(count)]


def probability(mean: float, k: int) -> float:
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


def chi_square(mean: float, sample: list[int]) -> tuple[float, int]:
    """Chi-square against the law over cells of at least 10 expected, and the degrees of freedom."""
    seen = Counter(sample)
    n = len(sample)
    cells: list[tuple[float, int]] = []
    expected, observed, mass = 0.0, 0, 0.0
    for k in range(int(mean + 12 * math.sqrt(mean) + 20)):
        p = probability(mean, k)
        mass += p
        expected += n * p
        observed += seen[k]
        if expected >= 10:
            cells.append((expected, observed))
            expected, observed = 0.0, 0
    rest = n - sum(o for _, o in cells)
    cells[-1] = (cells[-1][0] + expected + n * max(0.0, 1 - mass), cells[-1][1] + rest)
    return sum((o - e) ** 2 / e for e, o in cells), len(cells) - 1


@pytest.mark.parametrize("mean", [0.05, 0.7, 3.0, 9.99, 10.0, 10.5, 37.0, 250.0, 12_000.0])
def test_mean_and_variance_are_the_mean(mean):
    sample = draws(mean)
    # Four standard errors: of the mean sqrt(m/n), of the variance sqrt((2 m^2 + m)/n).
    assert statistics.fmean(sample) == pytest.approx(mean, abs=4 * math.sqrt(mean / DRAWS))
    spread = 4 * math.sqrt((2 * mean * mean + mean) / DRAWS)
    assert statistics.pvariance(sample) == pytest.approx(mean, abs=spread)


@pytest.mark.parametrize("mean", [0.3, 2.5, 9.5, 10.0, 11.0, 30.0, 120.0])
def test_the_whole_distribution_is_right(mean):
    chi2, freedom = chi_square(mean, draws(mean, seed=11))
    # Wilson-Hilferty: the 99.99 % point of chi-square.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi2 < limit


def test_the_chi_square_of_a_wrong_law_is_seen():
    """The check above can fail: a rounded normal with the same mean and variance is refused."""
    rng = random.Random(3)
    wrong = [max(0, round(rng.gauss(11.0, math.sqrt(11.0)))) for _ in range(DRAWS)]
    chi2, freedom = chi_square(11.0, wrong)
    assert chi2 > 3 * freedom


@pytest.mark.parametrize("mean", [0.0, -0.0, -1e-300, -5.0, -MAX_MEAN])
def test_nothing_is_drawn_for_no_mean(mean):
    assert poisson(mean, random.Random(1)) == 0


def test_no_mean_uses_no_randomness():
    rng = random.Random(1)
    before = rng.getstate()
    poisson(0.0, rng)
    assert rng.getstate() == before


@pytest.mark.parametrize("mean", [math.nan, math.inf, -math.inf, MAX_MEAN * 1.01])
def test_impossible_means_are_refused(mean):
    with pytest.raises(ValueError, match="Poisson mean"):
        poisson(mean, random.Random(1))


@given(st.floats(min_value=0.0, max_value=MAX_MEAN), st.integers(0, 2**32))
def test_any_mean_gives_a_plausible_whole_number(mean, seed):
    drawn = poisson(mean, random.Random(seed))
    assert isinstance(drawn, int)
    assert 0 <= drawn <= mean + 12 * math.sqrt(mean) + 40


def test_a_seed_replays_the_draws():
    assert draws(25.0, seed=5, count=50) == draws(25.0, seed=5, count=50)
    assert draws(25.0, seed=5, count=50) != draws(25.0, seed=6, count=50)


class Stuck(random.Random):
    """A source that always says the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


def test_a_broken_source_ends_in_an_error_and_not_in_a_loop():
    with pytest.raises(ArithmeticError):
        poisson(50.0, Stuck(0.0))


def test_a_source_of_zeros_gives_no_arrival_for_a_small_mean():
    assert poisson(3.0, Stuck(0.0)) == 0
