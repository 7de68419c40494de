"""Which configured queues could ever run the jobs of a key: the one predicate of submission and of each pass."""

from __future__ import annotations

from dataclasses import replace

from lodesman.matching import TaskQueueKey
from lodesman.submission.draft import Draft, World


def possible_queues(key: TaskQueueKey, pool_mask: int, world: World) -> int:
    """The queues, by ordinal, whose pilots could take jobs of the key. Owner, group and kind of pilot are the
    director's choice, so pilots made for this key are assumed.

    `pool_mask`: the queues that fulfil its Requirements; without Requirements it is not looked at.
    """
    if not key.submit_pool:
        return world.places.narrow(world.table.open_to_vo, key)
    return world.places.narrow(pool_mask, replace(key, submit_pool=""))


def eligible_sites(draft: Draft, world: World) -> tuple[str, ...]:
    """The sites, sorted, of the queues that can run a job with Requirements; () for one without."""
    if draft.key is None or not draft.submit_pool:
        return ()
    return world.table.sites(possible_queues(draft.key, draft.pool_mask, world))
