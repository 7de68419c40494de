"""When a job starts, by the rate at which jobs like it started lately. Pure."""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

from lodesman.answers.why_jobs import StartEstimate

_Z80: Final = 1.2816
"""Quantile of the normal distribution: between its negative and itself lie 80 %."""


class Measured(NamedTuple):
    """Job starts that followed a first one, in the seconds since that."""

    starts: int
    seconds: float


def estimate(jobs: float, seen: Measured) -> StartEstimate | None:
    """In how many seconds this number of jobs will have started, in 80 % of cases; None if nothing was measured.

    Starts are taken for a Poisson stream whose rate is known by a Gamma distribution of `starts` + 1/2 in `seconds`. The
    time to the k-th start is then k times the mean distance of starts, times a number with the distribution F.
    """
    if seen.starts <= 0 or seen.seconds <= 0.0:
        return None
    shape = seen.starts + 0.5
    middle = jobs * seen.seconds / shape
    low, high = (middle * _f_quantile(z, 2.0 * jobs, 2.0 * shape) for z in (-_Z80, _Z80))
    return StartEstimate(low_seconds=low, high_seconds=high, starts=seen.starts, seconds=seen.seconds)


def _f_quantile(z: float, up: float, down: float) -> float:
    """The quantile of F(up, down) where the normal distribution has z, by Paulson's approximation; `down` is 3 or more."""
    a, b = 2.0 / (9.0 * up), 2.0 / (9.0 * down)
    x, y = 1.0 - a, 1.0 - b
    square = y * y - z * z * b
    root = (x * y + z * sqrt(a * y * y + b * x * x - z * z * a * b)) / square
    return max(0.0, root) ** 3
