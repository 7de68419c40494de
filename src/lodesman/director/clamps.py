"""Clamps: ordered upper limits on a number of pilots, each recording what it took away.

They stand around the seed's formula (DESIGN 3.4). Clamps of a task queue: usable supply, pilots per
iteration. Clamps of a CE queue: closed, no backend, unknown load, breaker, MaxWaitingJobs, MaxTotalJobs, token bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lodesman.answers.vocabulary import ClampName


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An upper limit and the arithmetic or the reason behind it, for people."""

    name: ClampName
    limit: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """One bite: `before` pilots came in, `after` = min(before, max(limit, 0)) went on."""

    name: ClampName
    before: int
    after: int
    limit: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """What is left, and the bites in order; a limit that did not bite leaves no trace."""

    count: int
    clamps: tuple[Clamp, ...] = ()


def clamp(count: int, limits: Iterable[Limit]) -> Clamped:
    """Send `count` through the limits in order; never negative."""
    left = max(0, count)
    bites = []
    for limit in limits:
        after = min(left, max(0, limit.limit))
        if after < left:
            bites.append(
                Clamp(name=limit.name, before=left, after=after, limit=limit.limit, detail=limit.detail)
            )
        left = after
    return Clamped(count=left, clamps=tuple(bites))
