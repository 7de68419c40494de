"""The cheapest jobs that free memory and GPUs beside cores: branch and bound for few jobs, else nearly. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable

from lodesman.site.jobstatus.vacate.choice import Release, VacateChoice, cheapest

MOST_JOBS = 60
"""With more jobs the set is good, not proven best."""
_MOST_STEPS = 100_000
_UNITS = 1024  # in which an amount is counted at most


@dataclass(frozen=True)
class ResourceNeed:
    """What is to be free afterwards, beside what is free now."""

    cores: int
    memory_mb: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class _Resource:
    need: int
    unit: int
    frees: Callable[[Release], int]


def _kinds(need: ResourceNeed) -> list[_Resource]:
    amounts: list[tuple[int, Callable[[Release], int]]] = [
        (need.cores, lambda release: release.cores),
        (need.memory_mb, lambda release: release.memory_mb),
        (need.gpus, lambda release: release.gpus),
    ]
    return [_Resource(amount, -(-amount // _UNITS), frees) for amount, frees in amounts if amount > 0]


def cheapest_for(releases: Sequence[Release], need: ResourceNeed) -> VacateChoice | None:
    """Of the cheapest that of fewest jobs. None: all free less."""
    if need.memory_mb <= 0 and need.gpus <= 0:
        return cheapest(releases, need.cores)
    kinds = _kinds(need)
    if any(sum(map(kind.frees, releases)) < kind.need for kind in kinds):
        return None
    tries = [_for_one_first(releases, kinds, first) for first in kinds]
    scale = len(releases) + 1
    best = min(
        tries,
        key=lambda release: (
            release.cost * scale + len(release.releases),
            sorted(job.job for job in release.releases),
        ),
    )
    if best.proven or len(releases) > MOST_JOBS:
        return best
    return _Search(releases, kinds, best).run()


def _for_one_first(releases: Sequence[Release], kinds: Sequence[_Resource], first: _Resource) -> VacateChoice:
    chosen: list[Release] = []
    for kind in (first, *(other for other in kinds if other is not first)):
        lacks = kind.need - sum(map(kind.frees, chosen))
        if lacks > 0:
            chosen += _cheapest_units([release for release in releases if release not in chosen], kind, lacks)
    alone = not any(_lacks(_cheapest_units(releases, first, first.need), kind) for kind in kinds)
    for release in sorted(chosen, key=lambda release: (-release.cost, release.job)):
        rest = [other for other in chosen if other is not release]
        if not any(_lacks(rest, kind) for kind in kinds):
            chosen = rest
    return VacateChoice(chosen, proven=alone and first.unit == 1)


def _lacks(chosen: Sequence[Release], kind: _Resource) -> bool:
    return sum(map(kind.frees, chosen)) < kind.need


def _cheapest_units(releases: Sequence[Release], kind: _Resource, lacks: int) -> list[Release]:
    """By whole units; all if rounding leaves too little."""
    amounts = [release._replace(cores=kind.frees(release) // kind.unit) for release in releases]
    chosen = cheapest(amounts, -(-lacks // kind.unit))
    names = {release.job for release in (amounts if chosen is None else chosen.releases)}
    return [release for release in releases if release.job in names]


class _Search:
    """Depth first, cheapest for what they free first. What each kind lacks alone bounds the cost from below."""

    def __init__(self, releases: Sequence[Release], kinds: Sequence[_Resource], best: VacateChoice) -> None:
        self.scale, self.kinds, self.best = len(releases) + 1, kinds, best
        self.jobs = sorted(
            releases, key=lambda release: (release.cost / max(self._share(release), 1e-9), release.job)
        )
        self.bounds = [self._bound(kind) for kind in kinds]
        self.least = best.cost * self.scale + len(best.releases)
        self.steps = 0

    def _share(self, release: Release) -> float:
        return sum(min(1.0, kind.frees(release) / kind.need) for kind in self.kinds)

    def _weight(self, release: Release) -> int:
        return release.cost * self.scale + 1

    def _bound(self, kind: _Resource) -> list[list[int]]:
        need = kind.need // kind.unit
        rows = [[0] + [sum(map(self._weight, self.jobs)) + 1] * need]
        for release in reversed(self.jobs):
            weight, units, row = (
                self._weight(release),
                min(-(-kind.frees(release) // kind.unit), need + 1),
                rows[-1],
            )
            rows.append(
                list(map(min, row, [weight] * units + [cost + weight for cost in row[: need + 1 - units]]))
            )
            rows[-1][0] = 0
        return rows[::-1]

    def run(self) -> VacateChoice:
        self._visit(0, 0, [kind.need for kind in self.kinds], [])
        return replace(self.best, proven=self.steps < _MOST_STEPS)

    def _visit(self, at: int, cost: int, lacks: Sequence[int], chosen: list[Release]) -> None:
        self.steps += 1
        if self.steps >= _MOST_STEPS:
            return
        rest = [max(0, lack) // kind.unit for lack, kind in zip(lacks, self.kinds)]
        if cost + max(rows[at][units] for rows, units in zip(self.bounds, rest)) >= self.least:
            return
        if all(lack <= 0 for lack in lacks):
            self.least, self.best = cost, VacateChoice(list(chosen))
            return
        if at == len(self.jobs):
            return
        release = self.jobs[at]
        left = [lack - kind.frees(release) for lack, kind in zip(lacks, self.kinds)]
        self._visit(at + 1, cost + self._weight(release), left, [*chosen, release])
        self._visit(at + 1, cost, lacks, chosen)
