"""Shares of groups and weights of UserPriority for lottery and director, and corrections by usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final

from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.wire.groups import Arena, CorrectedOwner, CorrectedShare, KnownUsage, TimeSlice

DEFAULT_SHARE: Final = 1000.0
_LEAST_WEIGHT: Final = 0.001
_BACKGROUND_AT: Final = 0.1

_NO_PRIORITY: Final = 1e-5
_TOP_PRIORITY: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """What a group may have, in proportion to others' shares."""

    share: float = DEFAULT_SHARE  # 0 or less: served only when no group with a share has a fitting job
    job_sharing: bool = False  # owners in the group are not distinguished
    # very low UserPriority gets the least weight, not a part of the share (AllowBackgroundTQs)
    background: bool = False
    owner_weights: Mapping[str, float] = field(default_factory=dict)  # of owners whose weight is not 1

    def __post_init__(self) -> None:
        if not isfinite(self.share):
            raise ValueError(f"a share is a finite number, not {self.share}")


DEFAULT_GROUP: Final = GroupShare()


def priority_weight(user_priority: int) -> float:
    """UserPriority itself, but 0 nearly nothing and 10 nearly everything."""
    if user_priority <= 0:
        return _NO_PRIORITY
    if user_priority >= 10:
        return _TOP_PRIORITY
    return float(user_priority)


def director_weights(
    queues: Iterable[tuple[int, TaskQueueKey, int]], shares: Mapping[str, GroupShare]
) -> dict[int, float]:
    """The weight of each task queue (DIRAC's TQ Priority, consolidated by AVG).

    `queues` are (id, key, waiting). A group's share is parted among its owners (not with job sharing), an owner's by
    UserPriority; nothing is below 0.001. Task queues that differ only in sites and banned sites get the sum of their
    weights: at one site mostly one of them competes.
    """
    entities: dict[tuple[str, str, str], list[tuple[int, TaskQueueKey]]] = defaultdict(list)
    owners: dict[tuple[str, str], set[str]] = defaultdict(set)
    for tq_id, key, waiting in queues:
        if waiting <= 0:
            continue
        sharing = shares.get(key.group, DEFAULT_GROUP).job_sharing
        owner = "" if sharing else key.owner
        entities[key.vo, key.group, owner].append((tq_id, key))
        owners[key.vo, key.group].add(owner)
    weights: dict[int, float] = {}
    twins: dict[TaskQueueKey, list[int]] = defaultdict(list)
    for (vo, group, owner), members in entities.items():
        group_share = shares.get(group, DEFAULT_GROUP)
        weight_of = group_share.owner_weights
        all_weights = sum(weight_of.get(name, 1.0) for name in owners[vo, group])
        share = max(group_share.share, 0.0) * weight_of.get(owner, 1.0) / all_weights
        weights.update(_within_entity(members, share=share, background=group_share.background))
        for tq_id, key in members:
            twin = replace(key, sites=(), banned_sites=()) if key.sites or key.banned_sites else key
            twins[twin].append(tq_id)
    for alike in twins.values():
        together = sum(weights[tq_id] for tq_id in alike)
        weights.update(dict.fromkeys(alike, together))
    return weights


def _within_entity(
    members: Collection[tuple[int, TaskQueueKey]], *, share: float, background: bool
) -> dict[int, float]:
    weights = {tq_id: priority_weight(key.user_priority) for tq_id, key in members}
    behind = {tq_id for tq_id, weight in weights.items() if background and weight <= _BACKGROUND_AT}
    total = sum(weight for tq_id, weight in weights.items() if tq_id not in behind)
    return {
        tq_id: _LEAST_WEIGHT if tq_id in behind else max(share * weight / total, _LEAST_WEIGHT)
        for tq_id, weight in weights.items()
    }


def parts_of(groups: Collection[str], shares: Mapping[str, GroupShare]) -> dict[str, float]:
    """What each group deserves of one claim; parts sum to 1. Without any share all are equal."""
    positive = {group: max(shares.get(group, DEFAULT_GROUP).share, 0.0) for group in groups}
    total = sum(positive.values())
    if total <= 0:
        return dict.fromkeys(positive, 1.0 / len(positive)) if positive else {}
    return {group: share / total for group, share in positive.items()}


Used = tuple[TimeSlice, Mapping[str, float]]  # what each group, or each owner, used in a time slice


def factors(shares: Mapping[str, float], slices: Sequence[Used], most: float) -> dict[str, float]:
    """The factor of each share: the weighted mean of share over usage in each time slice, within 1/most and most. Who
    used nothing gets the most of the slice; a slice without usage counts as 1.
    """
    weights, total = sum(time_slice.weight for time_slice, _ in slices), sum(shares.values())
    means = dict.fromkeys(shares, 0.0)
    for time_slice, usage in slices:
        used = {name: max(0.0, usage.get(name, 0.0)) for name in shares}
        all_used, bound = sum(used.values()), time_slice.max_correction
        for name, share in shares.items():
            factor = 1.0
            if all_used > 0 and total > 0:
                part = used[name] / all_used
                factor = _within(share / total / part, bound) if part > 0 else bound
            means[name] += factor * time_slice.weight / weights
    return {name: _within(factor, most) for name, factor in means.items()}


def _within(factor: float, most: float) -> float:
    return min(max(factor, 1.0 / most), most)


def correct_shares(shares: Mapping[str, float], by: Mapping[str, float]) -> dict[str, float]:
    """Shares times factors, scaled to the old sum."""
    raw = {name: share * by[name] for name, share in shares.items()}
    total = sum(raw.values())
    scale = sum(shares.values()) / total if total > 0 else 1.0
    return {name: share * scale for name, share in raw.items()}


def list_corrections(shares: Mapping[str, GroupShare], known_usage: KnownUsage) -> list[CorrectedShare]:
    """New shares of groups that take part, and of their owners."""
    groups = []
    for arena in known_usage.arenas:
        before = {name: max(0.0, shares.get(name, DEFAULT_GROUP).share) for name in arena.groups}
        by = factors(
            before,
            [(used_slice.time_slice, used_slice.groups) for used_slice in known_usage.slices],
            known_usage.most,
        )
        after = correct_shares(before, by)
        for name in arena.groups:
            used = [used_slice.groups.get(name, 0.0) for used_slice in known_usage.slices]
            owners = [] if shares.get(name, DEFAULT_GROUP).job_sharing else list(_owners(name, known_usage))
            groups.append(CorrectedShare(name, used, before[name], by[name], _short(after[name]), owners))
    return groups


def _owners(group: str, known_usage: KnownUsage) -> Iterable[CorrectedOwner]:
    equal = dict.fromkeys(known_usage.owners.get(group, ()), 1.0)
    slices: list[Used] = [
        (used_slice.time_slice, used_slice.owners.get(group, {})) for used_slice in known_usage.slices
    ]
    by = factors(equal, slices, known_usage.most)
    for name, weight in correct_shares(equal, by).items():
        used = [usage.get(name, 0.0) for _, usage in slices]
        yield CorrectedOwner(name, used, by[name], _short(weight))


def _short(number: float) -> float:
    """Four digits: each claim is stored with its shares."""
    return float(f"{number:.4g}")


def corrected_shares(shares: Mapping[str, GroupShare], known_usage: KnownUsage) -> dict[str, GroupShare]:
    """The shares for draws (DIRAC's history corrector, reference dirac 1.5). A group that takes no part keeps its own."""
    shares_drawn = dict(shares)
    for row in list_corrections(shares, known_usage):
        weights = {owner.owner: owner.weight for owner in row.owners if owner.weight != 1.0}
        shares_drawn[row.group] = replace(
            shares.get(row.group, DEFAULT_GROUP), share=row.corrected, owner_weights=weights
        )
    return shares_drawn


def find_arenas(groups: Iterable[tuple[str, str]]) -> list[Arena]:
    """VOs with a group in common are one arena of comparison."""
    merged: list[tuple[set[str], set[str]]] = []
    for vo, group in groups:
        joined = [pair for pair in merged if vo in pair[0] or group in pair[1]]
        merged = [pair for pair in merged if pair not in joined]
        merged.append(
            ({vo}.union(*(pair[0] for pair in joined)), {group}.union(*(pair[1] for pair in joined)))
        )
    return sorted((Arena(sorted(vos), sorted(names)) for vos, names in merged), key=lambda arena: arena.vos)
