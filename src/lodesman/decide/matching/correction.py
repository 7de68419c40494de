"""Shares corrected by usage (DIRAC's history corrector, reference dirac 1.5).

Whoever used more than its share gets less, and whoever used less gets more, until usage follows the shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lodesman.decide.matching.shares import DEFAULT_GROUP, GroupShare
from lodesman.wire.shares import Arena, CorrectedOwner, CorrectedShare, KnownUsage, TimeSlice

Used = tuple[TimeSlice, Mapping[str, float]]
"""A time slice, and what each group, or each owner, used in it."""


def factors(shares: Mapping[str, float], slices: Sequence[Used], most: float) -> dict[str, float]:
    """The factor of each share: of every time slice its part in the shares over its part in the usage, within the slice's
    bounds; the mean of these by weight; within 1/most and most.

    Who used nothing gets the most of the slice. A slice in which nothing was used says nothing, and counts as 1.
    """
    weights, total = sum(one.weight for one, _ in slices), sum(shares.values())
    found = dict.fromkeys(shares, 0.0)
    for time_slice, usage in slices:
        used = {name: max(0.0, usage.get(name, 0.0)) for name in shares}
        all_used, bound = sum(used.values()), time_slice.max_correction
        for name, share in shares.items():
            factor = 1.0
            if all_used > 0 and total > 0:
                part = used[name] / all_used
                factor = _within(share / total / part, bound) if part > 0 else bound
            found[name] += factor * time_slice.weight / weights
    return {name: _within(factor, most) for name, factor in found.items()}


def _within(factor: float, most: float) -> float:
    return min(max(factor, 1.0 / most), most)


def corrected(shares: Mapping[str, float], by: Mapping[str, float]) -> dict[str, float]:
    """The shares times their factors, scaled so that the sum is what it was."""
    raw = {name: share * by[name] for name, share in shares.items()}
    total = sum(raw.values())
    scale = sum(shares.values()) / total if total > 0 else 1.0
    return {name: share * scale for name, share in raw.items()}


def corrections(shares: Mapping[str, GroupShare], known: KnownUsage) -> list[CorrectedShare]:
    """What becomes of the share of each group that takes part, and of its owners."""
    found = []
    for arena in known.arenas:
        before = {name: max(0.0, shares.get(name, DEFAULT_GROUP).share) for name in arena.groups}
        by = factors(before, [(one.time_slice, one.groups) for one in known.slices], known.most)
        after = corrected(before, by)
        for name in arena.groups:
            used = [one.groups.get(name, 0.0) for one in known.slices]
            owners = [] if shares.get(name, DEFAULT_GROUP).job_sharing else list(_owners(name, known))
            found.append(CorrectedShare(name, used, before[name], by[name], _short(after[name]), owners))
    return found


def _owners(group: str, known: KnownUsage) -> Iterable[CorrectedOwner]:
    """The owners of a group, who have equal shares."""
    equal = dict.fromkeys(known.owners.get(group, ()), 1.0)
    slices: list[Used] = [(one.time_slice, one.owners.get(group, {})) for one in known.slices]
    by = factors(equal, slices, known.most)
    for name, weight in corrected(equal, by).items():
        used = [usage.get(name, 0.0) for _, usage in slices]
        yield CorrectedOwner(name, used, by[name], _short(weight))


def _short(number: float) -> float:
    """In four digits: each claim is stored with the shares among which it was drawn."""
    return float(f"{number:.4g}")


def corrected_shares(shares: Mapping[str, GroupShare], known: KnownUsage) -> dict[str, GroupShare]:
    """All shares as they are drawn by; a group that takes no part has its own."""
    found = dict(shares)
    for one in corrections(shares, known):
        weights = {owner.owner: owner.weight for owner in one.owners if owner.weight != 1.0}
        found[one.group] = replace(
            shares.get(one.group, DEFAULT_GROUP), share=one.corrected, owner_weights=weights
        )
    return found


def arenas(groups: Iterable[tuple[str, str]]) -> list[Arena]:
    """Which of these (VO, group) are compared: shares belong to names, so VOs that have one in common are one arena."""
    found: list[tuple[set[str], set[str]]] = []
    for vo, group in groups:
        joined = [one for one in found if vo in one[0] or group in one[1]]
        found = [one for one in found if one not in joined]
        found.append(({vo}.union(*(one[0] for one in joined)), {group}.union(*(one[1] for one in joined))))
    return sorted((Arena(sorted(vos), sorted(names)) for vos, names in found), key=lambda one: one.vos)
