"""What a pilot in a configured queue would ask with: the same predicate, before any pilot exists.

Submission (is this job possible?), director (where could a pilot serve this task queue?) and `why` all
hold task-queue keys against these offers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lodesman.matching.criteria import explain
from lodesman.matching.reasons import Reason
from lodesman.matching.request import ResourceRequest
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.resources import QueueId, QueueSettings, QueueTable, queue_settings

UNLIMITED = 10**9
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffer:
    """A CE queue as a VO sees it. `ordinal` is its bit in masks of queues; `request` has no SubmitPools:
    whether it serves a pool is told by a mask.
    """

    ordinal: int
    queue: QueueId
    request: ResourceRequest
    settings: QueueSettings

    @property
    def backend(self) -> str:
        """The name of the batch system behind the queue; the local one unless it is configured."""
        return self.settings.backend.lower() or LOCAL

    def reasons(self, key: TaskQueueKey, pool_mask: int) -> tuple[Reason, ...]:
        """Why a pilot here could never take jobs of this key; () if it could.

        `pool_mask`: the queues that serve the key's SubmitPool. Owner, group and kind of pilot are the
        director's choice, so a pilot made for this key is assumed.
        """
        served = (key.submit_pool,) if key.submit_pool and pool_mask >> self.ordinal & 1 else ()
        return explain(key, as_if_made_for(key, replace(self.request, submit_pools=served)))


def as_if_made_for(key: TaskQueueKey, request: ResourceRequest) -> ResourceRequest:
    """The request of a pilot that the director would make for this key in that place."""
    return replace(
        request,
        vo=request.vo,
        groups=(key.group,),
        owner=key.owner,
        pilot_type=key.pilot_type,
        submission_pool=key.submission_pools[0] if key.submission_pools else request.submission_pool,
    )


def eligible_offers(
    key: TaskQueueKey, offers: Iterable[QueueOffer], pool_mask: int, *, first_only: bool = False
) -> list[QueueOffer]:
    """The offers that could ever serve a key; only the first that is found if `first_only`."""
    found = []
    for offer in offers:
        if key.submit_pool and not pool_mask >> offer.ordinal & 1:
            continue
        if not offer.reasons(key, pool_mask):
            found.append(offer)
            if first_only:
                break
    return found


def offers_of(table: QueueTable, vo: str) -> tuple[QueueOffer, ...]:
    """Every queue of a table that the VO may use, in its order; ordinals are bits of its masks."""
    return tuple(
        _offer(ordinal, queue, queue_settings(table.params(queue), table.types), vo)
        for ordinal, queue in enumerate(table.queues)
        if table.open_to_vo >> ordinal & 1
    )


def _offer(ordinal: int, queue: QueueId, settings: QueueSettings, vo: str) -> QueueOffer:
    cpu = settings.norm_cpu_seconds
    return QueueOffer(
        ordinal=ordinal,
        queue=queue,
        settings=settings,
        request=ResourceRequest(
            vo=vo,
            site=queue.site,
            ce=queue.ce,
            queue=queue.queue,
            platforms=settings.platforms,
            tags=settings.tags,
            required_tags=settings.required_tags,
            cores=settings.processors or 1,
            memory_mb=UNLIMITED if settings.memory_mb is None else settings.memory_mb,
            norm_cpu_seconds=UNLIMITED if cpu is None else cpu,
        ),
    )
