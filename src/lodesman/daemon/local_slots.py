"""How many pilots each queue of the local backend runs at once, from what its VOs are told there."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from lodesman.matching import QueueOffer
from lodesman.matching.offers import never_sent
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId, QueueSettings, effective_params, queue_settings

LOCAL: Final = "local"


def local_slots(policy: Policy) -> dict[QueueId, int]:
    """The queues where a VO's pilots go to the local backend.

    As for the director (`services.candidates`), the least that one of the VOs to whom pilots may be sent is told there
    counts for all. If there is none, it is what a VO without values of its own is told, whose name the configuration
    need not hold; else, for the sake of pilots that were sent before, what those are told to whom none is sent now.
    """
    offers: dict[QueueId, list[QueueOffer]] = defaultdict(list)
    for vo in policy.config.vos:
        for offer in policy.vo_config(vo).offers:
            if offer.backend == LOCAL:
                offers[offer.queue].append(offer)
    tree, types = policy.config.tree, policy.config.types
    found = {}
    for queue in tree.queue_ids():
        settings = [offer.settings for offer in offers[queue] if never_sent(offer) is None]
        if not settings:
            plain = queue_settings(effective_params(tree, queue, types=types), types)
            is_local = plain.backend.lower() in ("", LOCAL)
            settings = [plain] if is_local else [offer.settings for offer in offers[queue]]
        if settings:
            found[queue] = slots_of(settings, os.cpu_count() or 1)
    return found


def slots_of(settings: Collection[QueueSettings], cpus: int) -> int:
    """The least `Slots` that is told, else the least `MaxTotalJobs`, else as many as the machine has room for."""
    slots = [one.slots for one in settings if one.slots is not None]
    told = slots or [one.max_total_jobs for one in settings if one.max_total_jobs is not None]
    return min(told) if told else max(1, cpus // max(one.processors or 1 for one in settings))
