"""The CE queues as the director's candidates.

What holds for all pilots of a queue is the least of the VOs whose pilots may be sent there.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from lodesman.decide.director import limits
from lodesman.decide.director.options import DirectorOptions, PoolOptions
from lodesman.decide.director.orders import PoolState, name_as
from lodesman.decide.director.queues import REMOTE_CAPS, CandidateQueue, OwnPilots, QueueCaps, QueueLoad
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import BACKENDS, never_sent, not_sent
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import (
    LOCAL,
    QueueId,
    QueueSettings,
    ResourceTree,
    effective_params,
    queue_settings,
)
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.left_out import Item, Kinds, task_queue
from lodesman.server.loops.list_match import ListMatch
from lodesman.server.store.read.pilots import LivePilot
from lodesman.wire import why_queues
from lodesman.wire.nodes import BreakerOrder
from lodesman.wire.vocabulary import BreakerState, ClampName


class Loads(Protocol):
    """Says how full the queues of a batch system are."""

    def load(self, queue: QueueId) -> BatchLoad:
        """What was seen last of one queue."""


@dataclass(slots=True)
class OwnQueue:
    """Our live pilots in one CE queue."""

    waiting: int = 0
    running: int = 0
    # One for each pilot; infinite while that is under way.
    submitted_at: list[float] = field(default_factory=list)

    def seen(self, observed_at: float) -> OwnPilots:
        """The numbers, beside a load that was observed then."""
        unseen = sum(1 for at in self.submitted_at if at > observed_at)
        return OwnPilots(waiting=self.waiting, running=self.running, since_load=unseen)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMaker:
    """Makes the candidates of an iteration."""

    policy: Policy
    watches: Mapping[str, Loads]
    pools: Mapping[str, PoolOptions]  # the submission pools
    own: Mapping[QueueId, OwnQueue]
    now: float
    mask: SiteMask = field(default_factory=SiteMask)  # what is closed
    orders: Mapping[QueueId, BreakerOrder] = field(default_factory=dict)  # of administrators, for breakers
    # What batch systems say of the pilots of their queues.
    list_match: ListMatch = field(default_factory=ListMatch)
    # By backend and identity, why nothing may be submitted with that.
    doubts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # By site, what this machine lets through (`local_hosts`).
    hosts: Mapping[str, limits.Limit] = field(default_factory=dict)

    def make(self, vos: Iterable[str], but: Collection[QueueId] = ()) -> list[CandidateQueue]:
        """All queues that one of the VOs may use, `but` these."""
        by_queue: dict[QueueId, dict[str, QueueOffer]] = defaultdict(dict)
        for vo in vos:
            for offer in self.policy.vo_config(vo).offers:
                if offer.queue not in but:
                    by_queue[offer.queue][vo] = offer
        return [self._candidate(queue, self._sent(offers) or offers) for queue, offers in by_queue.items()]

    def make_one(self, vo: str, offer: QueueOffer, vos: Iterable[str]) -> CandidateQueue:
        """One queue as a VO sees it, with the limits that it shares with the other `vos`."""
        offers = {vo: offer}
        for other in vos:
            other_offer = self.policy.vo_config(other).offer(offer.queue)
            if other_offer is not None:
                offers.setdefault(other, other_offer)
        sent = self._sent(offers)
        return self._candidate(offer.queue, sent if vo in sent else {vo: offer})

    def _sent(self, offers: Mapping[str, QueueOffer]) -> dict[str, QueueOffer]:
        """VOs whose pilots may be sent there; the others set no limits."""
        return {
            vo: offer
            for vo, offer in offers.items()
            if never_sent(offer, self.policy.backends, self.policy.submission_pools) is None
            and offer.backend in self.watches
        }

    def _candidate(self, queue_id: QueueId, offers: Mapping[str, QueueOffer]) -> CandidateQueue:
        names = sorted({offer.backend for offer in offers.values()})
        loads = [self.watches[name].load(queue_id) for name in names if name in self.watches]
        seen_at = min((load.observed_at for load in loads), default=self.now)
        source = ", ".join(names) if loads else "no backend"
        waiting, running = _sum(load.waiting for load in loads), _sum(load.running for load in loads)
        shapes = frozenset(offer.shape for offer in offers.values())
        refusal = self.list_match.refusal(shapes)
        serving = [
            name
            for name, pool in self.pools.items()
            if all(pool.scope.serves(queue_id, backend) for backend in names)
        ]
        closed = None if loads else not_sent(next(iter(offers.values())), self.policy.backends)
        return CandidateQueue(
            queue_id=queue_id,
            bit=self.policy.bits[queue_id],
            templates={vo: offer.request for vo, offer in offers.items()},
            submission_pools=tuple(name for name in serving if not self.pools[name].elsewhere),
            load=QueueLoad(
                waiting,
                running,
                seen_at,
                source,
                held=_sum(load.held for load in loads),
                others=_sum(n for load in loads for n in (load.others_waiting, load.others_running)),
                free=_sum(_free(load, offers.values()) for load in loads),
                fault="; ".join(load.fault for load in loads if load.fault),
            ),
            own=self.own.get(queue_id, OwnQueue()).seen(seen_at),
            caps=_tightest_caps(offers.values()),
            slots=_least(
                [*(offer.settings.slots for offer in offers.values()), *(load.slots for load in loads)]
            ),
            closed=self.mask.reason(queue_id, self.now, find_longest_life(offers.values())),
            order=self.orders.get(queue_id),
            no_backend="" if closed is None else closed.text,
            shapes=shapes,
            never=refusal.never,
            refused=refusal.for_now,
            private_only=[vo for vo, offer in offers.items() if not offer.settings.generic_pilots],
            no_pool="" if closed is not None else self._no_pool(serving),
            shut_for={who: text for name in names for who, text in self.doubts.get(name, {}).items()},
            host=self.hosts.get(queue_id.site) if names == [LOCAL] else None,
            credential="; ".join(load.credential for load in loads if load.credential),
        )

    def _no_pool(self, serving: Sequence[str]) -> str:
        if not serving:
            return f"no submission pool serves it ({', '.join(self.pools)})"
        handlers = {name: self.pools[name].elsewhere for name in serving}
        if "" in handlers.values():
            return ""
        return "; ".join(f"submission pool {name} is handled by {who}" for name, who in handlers.items())


def _tightest_caps(offers: Iterable[QueueOffer]) -> QueueCaps:
    caps = [_caps_of(offer) for offer in offers]
    return QueueCaps(
        max_waiting=_least(each.max_waiting for each in caps),
        max_total=_least(each.max_total for each in caps),
        waiting_to_running=min(each.waiting_to_running for each in caps),
        max_running=_least(each.max_running for each in caps),
        max_held=_least(each.max_held for each in caps),
        ramp=any(each.ramp for each in caps),
    )


def _caps_of(offer: QueueOffer) -> QueueCaps:
    settings = offer.settings
    usual = QueueCaps() if offer.backend == LOCAL else REMOTE_CAPS
    return QueueCaps(
        max_waiting=usual.max_waiting if settings.max_waiting_jobs is None else settings.max_waiting_jobs,
        max_total=usual.max_total if settings.max_total_jobs is None else settings.max_total_jobs,
        waiting_to_running=float(settings.waiting_to_running_ratio or 0.0),
        max_running=settings.max_running_jobs,
        max_held=usual.max_held if settings.max_held_jobs is None else settings.max_held_jobs,
        ramp=usual.ramp,
    )


def find_longest_life(offers: Iterable[QueueOffer]) -> int:
    """In seconds; 0: no end is known."""
    lives = [offer.life_seconds for offer in offers]
    return max(lives, default=0) if all(lives) else 0


def _free(load: BatchLoad, offers: Iterable[QueueOffer]) -> int | None:
    """None if not known."""
    cores = max(offer.request.cores for offer in offers)
    return None if load.free_cores is None else load.free_cores // cores


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None if a number is unknown, or there is none."""
    values = list(numbers)
    return sum(number for number in values if number is not None) if values and None not in values else None


def show_gate(
    queue: CandidateQueue, stops: Sequence[limits.Limit], breaker: limits.Breaker,
    serving: Iterable[tuple[PoolOptions, PoolState | None]], *, now: float,
) -> why_queues.QueueGate:  # fmt: skip
    """A candidate and the limits that stop new pilots. `serving`: its submission pools."""
    is_closed, load, own = breaker.state is BreakerState.CLOSED, queue.load, queue.own
    return why_queues.QueueGate(
        room=max(0, min(stop.limit for stop in stops)) if stops else None,
        limits=_limits(stops, queue.shut_for),
        breaker=why_queues.QueueBreaker(
            state=breaker.state,
            failures=breaker.failures,
            retry_seconds=None if is_closed else max(0.0, breaker.retry_at - now),
            probing=breaker.probing,
            reason=breaker.reason,
        ),
        load=why_queues.GateLoad(
            waiting=load.waiting,
            running=load.running,
            slots=queue.slots,
            source=load.source,
            age_seconds=load.age_s(now),
        ),
        own=why_queues.QueueOwn(waiting=own.waiting, running=own.running, since_load=own.since_load),
        submission_pools=[_shown(*pool) for pool in serving],
    )


def _limits(stops: Sequence[limits.Limit], shut_for: Mapping[str, str]) -> list[why_queues.QueueLimit]:
    """Limits of single identities leave the queue open for others."""
    return [
        *(why_queues.QueueLimit(stop.name, stop.limit, stop.detail, stop.limit <= 0) for stop in stops),
        *(
            why_queues.QueueLimit(
                ClampName.CREDENTIAL, 0, f"no pilots with the identity {name}: {text}", False
            )
            for name, text in shut_for.items()
        ),
    ]


def _shown(pool: PoolOptions, state: PoolState | None) -> why_queues.QueueSubmissionPool:
    if state is None:
        return why_queues.QueueSubmissionPool(
            name=pool.name, threads=0, busy=0, queued=0, full=True, handled_by=pool.elsewhere
        )
    return why_queues.QueueSubmissionPool(
        name=pool.name, threads=state.max, busy=state.running, queued=state.queued, full=state.is_full
    )


def count_own_pilots(rows: Iterable[tuple[str, QueueId, float]]) -> dict[QueueId, OwnQueue]:
    """Our live pilots by queue; rows are (state, queue, when it was submitted)."""
    queues: dict[QueueId, OwnQueue] = defaultdict(OwnQueue)
    for state, queue_id, submitted_at in rows:
        queue = queues[queue_id]
        if state == "Running":
            queue.running += 1
        else:
            queue.waiting += 1
        # Prepared: whether the batch system has it, and since when, is not known yet.
        queue.submitted_at.append(inf if state == "Prepared" else submitted_at)
    return queues


def find_local_slots(policy: Policy) -> dict[QueueId, int]:
    """Queue -> the pilots that the local backend runs at once: the least of the VOs that may send some. Without
    such a VO, the plain value; for a queue that has another backend by now, that of the VOs before.
    """
    offers: dict[QueueId, list[QueueOffer]] = defaultdict(list)
    for vo in policy.config.vos:
        for offer in policy.vo_config(vo).offers:
            if offer.backend == LOCAL:
                offers[offer.queue].append(offer)
    tree, types = policy.config.tree, policy.config.types
    slots = {}
    for queue in tree.queue_ids():
        settings = [offer.settings for offer in offers[queue] if never_sent(offer, BACKENDS) is None]
        if not settings:
            plain = queue_settings(effective_params(tree, queue, types=types), types)
            is_local = plain.backend in ("", LOCAL)
            settings = [plain] if is_local else [offer.settings for offer in offers[queue]]
        if settings:
            slots[queue] = _slots_of(settings, os.cpu_count() or 1)
    return slots


def _slots_of(settings: Collection[QueueSettings], cpus: int) -> int:
    slots = [setting.slots for setting in settings if setting.slots is not None]
    totals = [setting.max_total_jobs for setting in settings if setting.max_total_jobs is not None]
    if slots or totals:
        return min(slots or totals)
    return max(1, cpus // max(setting.processors or 1 for setting in settings))


def doubts(options: DirectorOptions, watches: Mapping[str, BackendWatch]) -> dict[str, dict[str, str]]:
    """By backend and identity, why nothing may be submitted with that."""
    doubtful: dict[str, dict[str, str]] = {}
    for name, rule in options.identities.items():
        for backend in rule.backends:
            watch = watches.get(name_as(backend, name))
            if watch is not None and watch.doubt:
                doubtful.setdefault(backend, {})[name] = watch.doubt
    return doubtful


def list_items(
    tree: ResourceTree, waiting: Callable[[], Iterable[Waiting]], pilots: Callable[[], Iterable[LivePilot]]
) -> list[Kinds]:
    """Items of an iteration, by kind: sites before their queues, the task queues of an owner together."""
    owned: dict[tuple[str, str], list[Item]] = {}
    for tq_id, key, _ in waiting():
        owned.setdefault((key.vo, key.owner), []).append(task_queue(tq_id))
    return [
        [[(Item("site", site),) for site in tree.sites]],
        [
            [tuple(items) for _, items in sorted(owned.items())],
            [(Item("CE queue", queue),) for queue in tree.queue_ids()],
            [(Item("pilot", pilot.id),) for pilot in pilots()],
        ],
    ]
