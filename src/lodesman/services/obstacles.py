"""What stands between a task-queue key and each configured queue, counted: the material of `why`.

The predicates are the matcher's and the resources' own; nothing is judged here a second way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lodesman.matching import QueueOffer, TaskQueueKey
from lodesman.resources import QueueId
from lodesman.resources import describe as describe_requirement
from lodesman.submission import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """All queues of a VO held against one key. `counts`: queues per criterion that rules them out."""

    total: int
    eligible: tuple[QueueOffer, ...]
    counts: tuple[tuple[str, int], ...]
    nearest: tuple[dict[str, Any], ...] = field(default=())


def find_obstacles(key: TaskQueueKey, requirements: Mapping[str, Any], world: World) -> Obstacles:
    """Hold a key and its Requirements against every queue of its VO.

    nearest: the smallest changes that would make it run: fewest criteria, over single queues; among equals
    those that gain most queues first.
    """
    table = world.table
    criteria = table.compile(requirements) if requirements else ()
    pool_mask = table.eligible_mask(criteria) if criteria else 0
    counts: Counter[str] = Counter()
    failing: dict[QueueId, dict[str, str]] = {}
    eligible = []
    for offer in world.offers:
        against = _against(key, offer, pool_mask)
        if criteria and not pool_mask >> offer.ordinal & 1:
            for reason in table.reasons(offer.ordinal, criteria):
                against[f"Requirements.{reason.parameter}"] = describe_requirement(reason)
        counts.update(against.keys())
        if against:
            failing[offer.queue] = against
        else:
            eligible.append(offer)
    ordered = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    nearest = () if eligible else _nearest(failing)
    return Obstacles(total=len(world.offers), eligible=tuple(eligible), counts=ordered, nearest=nearest)


def _against(key: TaskQueueKey, offer: QueueOffer, pool_mask: int) -> dict[str, str]:
    """What the matcher has against the queue, but for the SubmitPool: its criteria are told one by one."""
    reasons = offer.reasons(key, pool_mask | 1 << offer.ordinal)
    return {type(reason).__name__: str(reason) for reason in reasons}


def _nearest(failing: Mapping[QueueId, dict[str, str]]) -> tuple[dict[str, Any], ...]:
    if not failing:
        return ()
    fewest = min(len(against) for against in failing.values())
    groups: dict[tuple[str, ...], list[QueueId]] = {}
    for queue, against in failing.items():
        if len(against) == fewest:
            groups.setdefault(tuple(sorted(against)), []).append(queue)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        {
            "change": list(names),
            "queues": len(queues),
            "example": {
                "site": queues[0].site,
                "ce": queues[0].ce,
                "queue": queues[0].queue,
                "reasons": list(failing[queues[0]].values()),
            },
        }
        for names, queues in ranked[:5]
    )
