"""Which configured queues could ever run the jobs of a key: the one predicate of submission and of each pass.

A queue where no pilot is and none will ever be sent could not.
"""

from __future__ import annotations

from dataclasses import replace

from lodesman.matching import TaskQueueKey
from lodesman.submission.draft import World


def possible_queues(key: TaskQueueKey, pool_mask: int, world: World) -> int:
    """The queues, by ordinal, whose pilots could take jobs of the key. Owner, group and kind of pilot are the
    director's choice, so pilots made for this key are assumed.

    `pool_mask`: the queues that fulfil its Requirements; without Requirements it is not looked at.
    """
    mask, place = (
        (pool_mask, replace(key, submit_pool="")) if key.submit_pool else (world.table.open_to_vo, key)
    )
    if not world.has_pool_for(key):
        return 0
    for _, closed in world.without_pilots():
        mask &= ~closed
    return world.places.narrow(mask, place)
