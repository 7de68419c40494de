"""What a pilot in a configured queue would ask with, before it exists.

A pilot presents no more than its queue's offer, whatever its node reports (ADR 0023). Of Platform, Tag and Memory a
queue offers what it declares; ANY is a wildcard, and the node's Memory then counts at the claim. Without CPUTime only
pilots' life is a limit. Without NumberOfProcessors a pilot has one core.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.decide.matching.criteria import Reason, explain
from lodesman.decide.matching.request import PRIVATE, ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import (
    ANY,
    LOCAL,
    MANUAL,
    EffectiveParam,
    QueueId,
    QueueSettings,
    QueueTable,
    fold,
    queue_settings,
)
from lodesman.decide.resources.settings import with_processor_tags
from lodesman.languages.gridengine.jclist import AmbiguousJcList, offered_classes
from lodesman.languages.gridengine.vocabulary import Vocabulary

UNLIMITED = 10**9
MEMORY = (fold("MaxRAM"), fold("Memory"))

BACKENDS: Final = frozenset({LOCAL})  # the batch systems that there always are
SUBMISSION_POOLS: Final = "SubmitPools"  # the option of the director that names the submission pools
# what can keep all pilots away
CAUSES: Final = ("Backend", SUBMISSION_POOLS, "MaxTotalJobs", "MaxWaitingJobs", "Slots")

CPU_STEP = 60  # what is left of a life is presented in whole minutes: requests that are alike wait together
JOIN_SECONDS = 10  # of its life, what a pilot may need until it asks for its first job


class PoolScope(NamedTuple):
    """What a submission pool serves; without any name all queues."""

    backends: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # SITE/CE or SITE/CE/QUEUE

    def serves(self, queue: QueueId, backend: str) -> bool:
        """Whether it serves a queue of that backend."""
        if not any(self) or queue.site in self.sites:
            return True
        if (
            backend in self.backends or backend.partition("+")[0] in self.backends
        ):  # also as an identity reaches it
            return True
        return "/".join(queue) in self.queues or "/".join(queue[:2]) in self.queues


Pools = Mapping[str, PoolScope]  # the submission pools by name


class PilotShape(Struct, frozen=True, kw_only=True):
    """What pilots ask of the batch system; 0 asks for nothing."""

    backend: str
    queue: QueueId
    cores: int
    memory_mb: int
    wall_seconds: int
    options: tuple[str, ...]  # words for the submit command

    def __str__(self) -> str:
        sizes = (
            (self.cores, f"core{'s' * (self.cores != 1)}"),
            (self.memory_mb, "MB"),
            (self.wall_seconds, "s"),
        )
        text = ", ".join(f"{n} {unit}" for n, unit in sizes if n)
        return f"{text} with {' '.join(self.options)}" if self.options else text


class QueueOffer(Struct, frozen=True, kw_only=True):
    """A CE queue for a VO."""

    bit: int  # its place in masks of queues
    queue: QueueId
    # without SubmitPools, which are masks of queues; with the job classes of all its hosts
    request: ResourceRequest
    settings: QueueSettings
    life_seconds: int = 0  # how long its pilots live at most; 0: no end is known

    @property
    def backend(self) -> str:
        """The name of the batch system behind the queue."""
        return self.settings.backend or LOCAL

    def classes_on(self, host: str, vocabulary: Vocabulary) -> tuple[str, ...] | None:
        """The job classes that it takes on a host, as `request.job_classes`."""
        lists = self.settings.jc_lists
        if lists is None:
            return None
        names = lists.on(host, vocabulary.groups_of(host))
        return () if isinstance(names, AmbiguousJcList) else offered_classes(names)

    @property
    def shape(self) -> PilotShape:
        """What its pilots ask for."""
        settings = self.settings
        return PilotShape(
            backend=self.backend,
            queue=self.queue,
            cores=self.request.cores,
            memory_mb=settings.memory_mb or 0,
            wall_seconds=settings.wall_seconds or 0,
            options=settings.submit_options,
        )

    def reasons(self, key: TaskQueueKey, pool_mask: int) -> tuple[Reason, ...]:
        """Why a pilot made for this key never takes its jobs here; () if it could. `pool_mask`: the queues of the
        key's SubmitPool.
        """
        served = (key.submit_pool,) if key.submit_pool and pool_mask >> self.bit & 1 else ()
        return explain(key, as_if_made_for(key, replace(self.request, submit_pools=served)))


def as_if_made_for(key: TaskQueueKey, request: ResourceRequest) -> ResourceRequest:
    """The request of a pilot that the director makes for this key."""
    return replace(
        request,
        vo=request.vo,
        groups=(key.group,),
        owner=key.owner,
        pilot_type=key.pilot_type,
        submission_pool=key.submission_pools[0] if key.submission_pools else request.submission_pool,
    )


def offers_of(table: QueueTable, vo: str, *, life_seconds: int = 0) -> tuple[QueueOffer, ...]:
    """The queues that the VO may use. `life_seconds`: the longest life of pilots, 0 for any."""
    offers = []
    for bit, queue in table.queues.items():
        if table.open_to_vo >> bit & 1:
            params = table.params(bit)
            settings = queue_settings(params, table.types)
            life = settings.life_seconds(life_seconds)
            lists = settings.jc_lists
            request = ResourceRequest(
                vo=vo,
                site=queue.site,
                ce=queue.ce,
                queue=queue.queue,
                platforms=settings.platforms,
                tags=with_processor_tags(settings.tags, settings.processors or 1),
                required_tags=settings.required_tags,
                job_classes=None if lists is None else offered_classes(lists.anywhere),
                cores=settings.processors or 1,
                memory_mb=_memory(settings, params),
                norm_cpu_seconds=_cpu(settings, life),
            )
            offers.append(
                QueueOffer(bit=bit, queue=queue, settings=settings, request=request, life_seconds=life)
            )
    return tuple(offers)


def kept_seconds(life_seconds: float) -> float:
    """What a pilot keeps of its life for its last reports (`pilot.life.reserve_s`; a test holds the two equal)."""
    return min(60.0, max(2.0, 0.02 * life_seconds))


def _memory(settings: QueueSettings, params: Mapping[str, EffectiveParam]) -> int:
    if settings.memory_mb is not None:
        return settings.memory_mb
    return UNLIMITED if any(name in params and params[name].value == ANY for name in MEMORY) else 0


def _cpu(settings: QueueSettings, life_seconds: int) -> int:
    limit = UNLIMITED if settings.norm_cpu_seconds is None else settings.norm_cpu_seconds
    if not life_seconds:
        return limit
    seconds = life_seconds - kept_seconds(life_seconds) - JOIN_SECONDS
    left = max(0, int(seconds * settings.cpu_scaling_factor))
    return min(limit, left - left % CPU_STEP)


class NoPilotsReason(NamedTuple):
    """Why no pilot comes to a queue."""

    parameter: str  # of the queue
    text: str


PRIVATE_ONLY: Final = NoPilotsReason("GenericPilots", "it takes private pilots only: GenericPilots is no")


def gets_private(key: TaskQueueKey, private_pools: Collection[str]) -> bool:
    """Whether the director ever sends private pilots for a key. `private_pools`: pools that draw some for task queues
    that take both kinds; '': the default ones.
    """
    if key.force_generic or key.pilot_type == PRIVATE:
        return not key.force_generic
    return not set(key.submission_pools or ("",)).isdisjoint(private_pools)


def not_sent(
    offer: QueueOffer, backends: Collection[str], pools: Pools | None = None
) -> NoPilotsReason | None:
    """Why this server sends no pilot to a queue."""
    if offer.backend == MANUAL:
        return NoPilotsReason("Backend", "pilots there are started manually")
    return never_sent(offer, backends, pools)


def never_sent(
    offer: QueueOffer, backends: Collection[str], pools: Pools | None = None
) -> NoPilotsReason | None:
    """Why no pilot is ever sent to a queue; None if some may be, or come by themselves."""
    settings = offer.settings
    if offer.backend == MANUAL:
        return None
    if offer.backend not in backends:
        return NoPilotsReason("Backend", f"there is no backend {offer.backend!r} here")
    if pools is not None and not any(pool.serves(offer.queue, offer.backend) for pool in pools.values()):
        return NoPilotsReason(SUBMISSION_POOLS, "no submission pool serves it")
    if settings.max_total_jobs == 0:
        return NoPilotsReason("MaxTotalJobs", "MaxTotalJobs is 0")
    if settings.max_waiting_jobs == 0 and not settings.waiting_to_running_ratio:
        return NoPilotsReason("MaxWaitingJobs", "MaxWaitingJobs is 0")
    if settings.slots == 0:
        return NoPilotsReason("Slots", "Slots is 0")
    return None
