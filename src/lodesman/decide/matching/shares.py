"""Shares of groups and weights of UserPriority: what the lottery draws by, and one weight per task queue from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final

from lodesman.decide.matching.task_queue import TaskQueueKey

DEFAULT_SHARE: Final = 1000.0
_LEAST_WEIGHT: Final = 0.001
_BACKGROUND_AT: Final = 0.1

_NO_PRIORITY: Final = 1e-5
_TOP_PRIORITY: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """What a group may have of the resources, in proportion to the shares of the others.

    A share of 0 (or less) is served only when no group with a share has a fitting job. `job_sharing`: owners
    in the group are not distinguished. `background`: the director gives task queues of very low UserPriority
    the least weight instead of a part of the share (AllowBackgroundTQs). `owner_weights`: of owners that are not drawn
    like the others, whose weight is 1.
    """

    share: float = DEFAULT_SHARE
    job_sharing: bool = False
    background: bool = False
    owner_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isfinite(self.share):
            raise ValueError(f"a share is a finite number, not {self.share}")


DEFAULT_GROUP: Final = GroupShare()


def priority_weight(user_priority: int) -> float:
    """The weight of a UserPriority, 0 to 10: itself, but 0 nearly nothing and 10 nearly everything."""
    if user_priority <= 0:
        return _NO_PRIORITY
    if user_priority >= 10:
        return _TOP_PRIORITY
    return float(user_priority)


def director_weights(
    queues: Iterable[tuple[int, TaskQueueKey, int]], shares: Mapping[str, GroupShare]
) -> dict[int, float]:
    """The director weight of each task queue with waiting jobs (DIRAC's TQ Priority, consolidated by AVG).

    `queues` are (id, key, waiting). A group's share is parted among its owners by weight (not with job sharing), an
    owner's by UserPriority among task queues; nothing is below 0.001. Task queues that differ only in sites and banned
    sites get the sum of their weights: at one site mostly one of them competes.
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
        all_weights = sum(weight_of.get(one, 1.0) for one in owners[vo, group])
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
    asked = {tq_id: priority_weight(key.user_priority) for tq_id, key in members}
    behind = {tq_id for tq_id, weight in asked.items() if background and weight <= _BACKGROUND_AT}
    total = sum(weight for tq_id, weight in asked.items() if tq_id not in behind)
    return {
        tq_id: _LEAST_WEIGHT if tq_id in behind else max(share * weight / total, _LEAST_WEIGHT)
        for tq_id, weight in asked.items()
    }


def parts_of(groups: Collection[str], shares: Mapping[str, GroupShare]) -> dict[str, float]:
    """What each group deserves of one claim; parts sum to 1. Without any share all parts are equal."""
    known = {group: max(shares.get(group, DEFAULT_GROUP).share, 0.0) for group in groups}
    total = sum(known.values())
    if total <= 0:
        return dict.fromkeys(known, 1.0 / len(known)) if known else {}
    return {group: share / total for group, share in known.items()}
