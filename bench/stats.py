"""Percentiles, chi-square and the test of actual against target starts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed (nearest rank). Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def chi_square_tail(statistic: float, freedom: int) -> float:
    """The probability of a larger chi-square than `statistic` with `freedom` degrees of freedom."""
    if freedom < 1:
        raise ValueError("no degree of freedom")
    if statistic <= 0:
        return 1.0
    a, x = freedom / 2, statistic / 2
    front = math.exp(-x + a * math.log(x) - math.lgamma(a))
    return 1.0 - front * _series(a, x) if x < a + 1 else front * _fraction(a, x)


def _series(a: float, x: float) -> float:
    """The lower incomplete gamma function without its front, for x < a + 1."""
    term = total = 1 / a
    n = a
    while term > total * 1e-15:
        n += 1
        term *= x / n
        total += term
    return total


def _fraction(a: float, x: float) -> float:
    """The upper incomplete gamma function without its front, for x >= a + 1 (Lentz)."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    value = d
    for n in range(1, 1_000):
        factor = -n * (n - a)
        b += 2
        d = 1 / (factor * d + b or tiny)
        c = b + factor / c or tiny
        value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return value


class StartsTest:
    """Actual against target starts, when each claim has its own probabilities.

    Claims with different groups are not a single multinomial, so the plain sum of squares would be too lenient.
    The covariance of the counts is summed claim by claim. The statistic is the squared distance in that metric:
    exactly chi-square for many claims.
    """

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.deserved: dict[str, float] = {}
        self.claims = 0
        self._covariance: dict[tuple[str, str], float] = {}

    def add(self, parts: Mapping[str, float], winner: str, times: int = 1) -> None:
        """A claim with these probabilities of the groups, which went to `winner`."""
        self.received[winner] = self.received.get(winner, 0) + times
        self.claims += times
        for group, part in parts.items():
            self.deserved[group] = self.deserved.get(group, 0.0) + part * times
            for other, second in parts.items():
                shared = (part if group == other else 0.0) - part * second
                at = (group, other)
                self._covariance[at] = self._covariance.get(at, 0.0) + shared * times

    def result(self) -> tuple[float, int, float]:
        """(statistic, degrees of freedom, probability of such a distance or a larger one)."""
        if any(not self.deserved.get(group) for group in self.received):
            return math.inf, 1, 0.0
        names = sorted(self.deserved)
        away = [self.received.get(name, 0) - self.deserved[name] for name in names]
        matrix = [[self._covariance.get((a, b), 0.0) for b in names] for a in names]
        statistic, rank = _distance(matrix, away)
        return (statistic, rank, chi_square_tail(statistic, rank)) if rank else (0.0, 0, 1.0)


def _distance(matrix: list[list[float]], away: list[float]) -> tuple[float, int]:
    """(away' M^- away, rank of M) for a positive semidefinite M, by elimination with the largest pivot."""
    left = list(range(len(away)))
    least = 1e-9 * max((matrix[k][k] for k in left), default=0.0)
    total, rank = 0.0, 0
    while left:
        k = max(left, key=lambda row: matrix[row][row])
        pivot = matrix[k][k]
        if pivot <= least:
            break
        total += away[k] ** 2 / pivot
        rank += 1
        left.remove(k)
        for row in left:
            factor = matrix[row][k] / pivot
            away[row] -= factor * away[k]
            for column in left:
                matrix[row][column] -= factor * matrix[k][column]
    return total, rank


def median(values: Iterable[float]) -> float:
    """The middle value (the upper one of two)."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
