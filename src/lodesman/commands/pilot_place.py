"""Where a pilot says that it runs, and whether it is believed (RFC #7: pilots that were sent to no known queue).

A pilot's word decides nothing for a pilot that was sent to a queue. One that was sent to none, or only to a site or CE,
may name a configured queue of its VO that agrees with what is known; from then on it is a pilot of that queue. It can
so choose among the queues of its VO, which is no more than whoever started it could do; which SubmitPools the queue
serves is looked up at each claim, never taken from the pilot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from lodesman.commands.pilots import Settled
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId
from lodesman.store.read.pilots import PilotRow


def believed(row: PilotRow, told: QueueId, policy: Policy) -> Settled | None:
    """The queue that a pilot named, if it is believed; None if not, or if the pilot was sent to a queue."""
    known = (row.site, row.ce, row.queue)
    if all(known) or any(part not in ("", said) for part, said in zip(known, told, strict=True)):
        return None
    world = policy.vo_config(row.vo)
    offer = world.offer(told)
    if offer is None:  # its access list does not admit the VO
        return None
    return Settled(told, msgspec.json.encode(asdict(offer.request)).decode())


def presented(number: int, pools: Sequence[str] | None, served: Sequence[str]) -> dict[str, Any]:
    """What is kept of the SubmitPools that a pilot presents, beside those that its queue serves now."""
    if pools is None:
        return {"pass": number, "serves": len(served)}
    stale = len(set(pools).symmetric_difference(served))
    return {"pass": number, "presented": len(pools), "serves": len(served), "stale": stale}
