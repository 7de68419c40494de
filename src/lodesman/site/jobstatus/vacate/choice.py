"""The cheapest jobs that free enough: an exact minimum over whole jobs (min-cost covering knapsack). Pure.

The cheapest of a size go first, so their summed costs are convex: one stage per size joins them to the costs so far, O(N log
N) for N cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, takewhile
from operator import add
from typing import Callable, NamedTuple

_FEW = 8  # jobs of one size, up to which trying each number of them is quickest
SWAP_FACTOR = 1.2
"""A job of lower priority may cost this times as much as the one it replaces (policy `tiebreak`)."""


class Release(NamedTuple):
    """What one job's end frees and costs (core-seconds). Priorities compare only within one owner."""

    job: str
    owner: str
    priority: int
    cores: int
    cost: int
    memory_mb: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class VacateChoice:
    """Jobs to vacate. `proven`: no other set costs less."""

    releases: Sequence[Release]
    proven: bool = True

    @property
    def cost(self) -> int:
        """Core-seconds of all."""
        return sum(release.cost for release in self.releases)


class Stage(NamedTuple):
    """Jobs of one size, cheapest first, their summed costs, and the least costs before them by cores."""

    jobs: Sequence[Release]
    sums: Sequence[int]
    before: list[int]


@dataclass(frozen=True)
class Cover:
    """Least costs for at least 0, 1, ... `need` cores, and how they come about; of equal costs fewer jobs win."""

    weight: Callable[[Release], int]
    impossible: int
    least: list[int]
    stages: list[Stage] = field(default_factory=list)

    def join(self, jobs: Iterable[Release]) -> Cover:
        """With these jobs to choose from, too."""
        least, stages, need = self.least, list(self.stages), len(self.least) - 1
        for size, alike in _by_size(jobs).items():
            usable = alike[: -(-need // size)]
            sums = list(accumulate(map(self.weight, usable), initial=0))
            stages.append(Stage(usable, sums, least))
            least = _with_few(least, size, sums) if len(usable) <= _FEW else _with_many(least, size, sums)
        return Cover(self.weight, self.impossible, least, stages)

    def shifted(self, jobs: Sequence[Release]) -> list[int]:
        """The least costs if all of these jobs are taken."""
        return _shift(self.least, sum(release.cores for release in jobs), sum(map(self.weight, jobs)))

    def trace(self, cores: int) -> tuple[list[Release], int]:
        """The jobs for a number of cores, and what is left to cover before the first stage."""
        chosen: list[Release] = []
        for jobs, sums, before in reversed(self.stages):
            size = jobs[0].cores
            costs = [cost + before[max(0, cores - number * size)] for number, cost in enumerate(sums)]
            number = costs.index(min(costs))
            chosen += jobs[:number]
            cores = max(0, cores - number * size)
        return chosen, cores


def _empty(releases: Sequence[Release], need: int) -> Cover:
    scale = len(releases) + 1
    impossible = scale * (sum(release.cost for release in releases) + 1)
    return Cover(lambda release: release.cost * scale + 1, impossible, [0] + [impossible] * need)


def _by_size(jobs: Iterable[Release]) -> dict[int, list[Release]]:
    """By cores, largest first, each list by cost, and of an owner by priority."""
    groups: dict[int, list[Release]] = {}
    for release in jobs:
        if release.cores > 0:
            groups.setdefault(release.cores, []).append(release)
    return {size: in_order(groups[size]) for size in sorted(groups, reverse=True)}


def in_order(jobs: Iterable[Release]) -> list[Release]:
    """By cost, then id; of one owner and cost those of lower priority first."""
    ordered = sorted(jobs, key=lambda release: (release.cost, release.job))
    places: dict[tuple[int, str], list[Release]] = {}
    for release in ordered:
        places.setdefault((release.cost, release.owner), []).append(release)
    turns = {
        key: iter(sorted(same, key=lambda release: (release.priority, release.job)))
        for key, same in places.items()
    }
    return [next(turns[release.cost, release.owner]) for release in ordered]


def _shift(least: list[int], cores: int, cost: int) -> list[int]:
    cores = min(cores, len(least))
    return [least[0] + cost] * cores + [release + cost for release in least[: len(least) - cores]]


def _with_few(least: list[int], size: int, sums: Sequence[int]) -> list[int]:
    shifts = (_shift(least, number * size, sums[number]) for number in range(1, len(sums)))
    return list(map(min, least, *shifts))


def _with_many(least: list[int], size: int, sums: Sequence[int]) -> list[int]:
    """Min-plus convolution with a convex row, one residue of `size` at a time."""
    costs = least[:]
    for first in range(min(size, len(least))):
        costs[first::size] = _convolve([least[0], *least[first::size]], sums)[1:]
    return costs


def _convolve(values: Sequence[int], sums: Sequence[int]) -> list[int]:
    """`result[i]` is the least `values[j] + sums[i - j]`. Since sums are convex, the best j never falls as i grows: each i
    halves the rest.
    """
    most, back = len(sums) - 1, sums[::-1]
    result = [0] * len(values)
    open_parts = [(0, len(values) - 1, 0, len(values) - 1)]
    while open_parts:
        first, last, low, high = open_parts.pop()
        i = (first + last) // 2
        start, end = max(low, i - most), min(high, i)
        row = list(map(add, values[start : end + 1], back[most - i + start :]))
        best = min(row)
        result[i] = best
        j = start + row.index(best)
        if first < i:
            open_parts.append((first, i - 1, low, j))
        if i < last:
            open_parts.append((i + 1, last, j, high))
    return result


def cheapest(releases: Sequence[Release], cores: int) -> VacateChoice | None:
    """Of the cheapest sets that of fewest jobs. None: all free less."""
    if sum(release.cores for release in releases) < cores:
        return None
    return VacateChoice(_empty(releases, cores).join(releases).trace(cores)[0])


# --- priority within one owner -----------------------------------------------------------------------------------------


def cheapest_strict(releases: Sequence[Release], cores: int) -> VacateChoice | None:
    """As `cheapest`, but no owner's job goes while one of his of lower priority stays."""
    if sum(release.cores for release in releases) < cores:
        return None
    cover = _empty(releases, cores)
    owners = [(_ranks(jobs), cover) for jobs in _by_owner(releases).values()]
    for at, (ranks, _) in enumerate(owners):
        owners[at] = ranks, cover
        after = [_at_rank(cover, ranks, rank).least for rank in range(len(ranks))]
        cover = Cover(cover.weight, cover.impossible, list(map(min, cover.least, *after)))
    chosen: list[Release] = []
    left = cores
    for ranks, before in reversed(owners):
        rows = [_at_rank(before, ranks, rank) for rank in range(len(ranks))]
        costs = [before.least[left], *(release.least[left] for release in rows)]
        rank = costs.index(min(costs)) - 1
        if rank >= 0:
            lower = list(chain(*ranks[:rank]))
            some, left = rows[rank].trace(left)
            chosen += lower + some
            left = max(0, left - sum(release.cores for release in lower))
    return VacateChoice(chosen)


def _at_rank(cover: Cover, ranks: Sequence[Sequence[Release]], rank: int) -> Cover:
    lower = list(chain(*ranks[:rank]))
    return Cover(cover.weight, cover.impossible, cover.shifted(lower)).join(ranks[rank])


def _by_owner(releases: Iterable[Release]) -> dict[str, list[Release]]:
    owners: dict[str, list[Release]] = {}
    for release in releases:
        owners.setdefault(release.owner, []).append(release)
    return dict(sorted(owners.items()))


def _ranks(jobs: Iterable[Release]) -> list[list[Release]]:
    ranks: dict[int, list[Release]] = {}
    for release in jobs:
        ranks.setdefault(release.priority, []).append(release)
    return [ranks[priority] for priority in sorted(ranks)]


def with_lower_priority(chosen: VacateChoice, releases: Sequence[Release]) -> VacateChoice:
    """A job's place goes to one of the same owner and lower priority that frees no less, if it costs at most SWAP_FACTOR
    times as much.
    """
    chosen_jobs = {release.job for release in chosen.releases}
    others = {
        owner: sorted(
            (release for release in jobs if release.job not in chosen_jobs),
            key=lambda release: (release.priority, release.cost, release.job),
        )
        for owner, jobs in _by_owner(releases).items()
    }
    kept = []
    for release in sorted(
        chosen.releases, key=lambda release: (-release.priority, -release.cost, release.job)
    ):
        rest = others[release.owner]
        swap = _swap(release, rest)
        if swap is not release:
            rest.remove(swap)
        kept.append(swap)
    return VacateChoice(kept, chosen.proven)


def _swap(release: Release, rest: Iterable[Release]) -> Release:
    lower = takewhile(lambda other: other.priority < release.priority, rest)
    fit = (
        other for other in lower if frees_no_less(other, release) and other.cost <= SWAP_FACTOR * release.cost
    )
    return next(fit, release)


def frees_no_less(release: Release, other: Release) -> bool:
    """A job can take the other's place."""
    return (
        release.cores >= other.cores and release.memory_mb >= other.memory_mb and release.gpus >= other.gpus
    )


def inversions(chosen: Iterable[Release], releases: Iterable[Release]) -> int:
    """How often a job goes while one of its owner and lower priority stays."""
    gone = {release.job for release in chosen}
    lowest: Mapping[str, int] = {
        owner: min(stays) for owner, jobs in _by_owner(releases).items()
        if (stays := [release.priority for release in jobs if release.job not in gone])
    }  # fmt: skip
    return sum(
        release.job in gone and release.priority > lowest.get(release.owner, release.priority)
        for release in releases
    )
