"""The director: a snapshot, a decision, pilots stored, then submitted."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from lodesman.decide.director import limits
from lodesman.decide.director.iteration import Decision, DirectorInput, Excess, decide, without_spare
from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.places import PoolServing
from lodesman.decide.director.plan import TaskQueueDemand
from lodesman.decide.director.queues import QueueGates, queue_limits
from lodesman.decide.director.record import to_record
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.director.site_matching import SiteMatching
from lodesman.decide.explain.facts import DirectorState, FailingPilots
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.matching import QueueOffer, director_weights
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.loops.breakers import BreakerRecord
from lodesman.server.loops.candidates import (
    CandidateMaker,
    OwnQueue,
    count_own_pilots,
    doubts,
    list_items,
    show_gate,
)
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.hosts import local_hosts
from lodesman.server.loops.launch import Offers
from lodesman.server.loops.left_out import (
    NOTHING,
    Item,
    LeftOutItems,
    Omission,
    StepPass,
    do_without_faulty,
    task_queue,
)
from lodesman.server.loops.limit_use import SeenLimits
from lodesman.server.loops.list_match import ListMatch
from lodesman.server.loops.site_matching import SiteMatcher
from lodesman.server.loops.snapshot import KnownQueues
from lodesman.server.loops.standing import mark_shut, pilot_view
from lodesman.server.store import Reader
from lodesman.server.store.read import pilots as read
from lodesman.server.writer.pool_map import KnownPools
from lodesman.server.writer.site_mask import KnownMask
from lodesman.wire import inner_calls, why_queues
from lodesman.wire.call import Post, encode
from lodesman.wire.nodes import NodePath, QueueId
from lodesman.wire.service import Iteration, LimitAnswer
from lodesman.wire.vocabulary import BreakerState

log = logging.getLogger(__name__)

# An empty iteration is stored that often, before the last one is too old to be believed (`explain.facts.fresh_seconds`).
_EMPTY_SECONDS = 30.0
_NONE: Final[frozenset[int]] = frozenset()
_SEED_BITS = 53  # of numbers that all readers of JSON take


@dataclass(slots=True)
class Director:
    """One director for all VOs. Buckets and suspects may be lost without harm."""

    db: Reader
    policy: Policy
    options: DirectorOptions
    watches: Mapping[str, BackendWatch]
    post: Post
    pools: Callable[[], dict[str, PoolState]]  # how full the submission pools are
    launch: Callable[[Decision, Offers], None]
    cancel: Callable[[Excess], None]
    rng: random.Random
    suspects: Mapping[int, float] = field(default_factory=dict)
    breakers: dict[QueueId, limits.Breaker] = field(default_factory=dict)
    buckets: dict[NodePath, limits.TokenBucket] = field(default_factory=dict)
    vos: Sequence[str] = ()  # of the last iteration
    iterated_at: float | None = None
    list_match: ListMatch = field(default_factory=ListMatch)
    # The task queues that limits keep from starting in CE queues.
    limited: Callable[[list[QueueId]], LimitAnswer] = lambda _: LimitAnswer()
    sites: SiteMatcher = field(default_factory=SiteMatcher)
    settings: Mapping[str, str] = field(default_factory=dict)  # see DirectorState
    left_out: LeftOutItems = field(default_factory=LeftOutItems)
    # By site, whether its gate was open after the last iteration.
    gates: Mapping[str, bool] = field(init=False, default_factory=dict)
    # What the last iteration could not be done with.
    _faulty: Omission = field(init=False, default_factory=Omission)
    _limited: LimitAnswer | None = field(init=False, default=None)
    _stored_at: float | None = field(init=False, default=None)
    _record: BreakerRecord = field(init=False)
    _known: KnownQueues = field(init=False)
    _pools: KnownPools = field(init=False)
    _mask: KnownMask = field(init=False, default_factory=KnownMask)
    # By task queue, the queues where limits kept it from starting at the last iteration.
    limited_in: Mapping[int, int] = field(init=False, default_factory=dict)
    # The task queues that limits keep from idle pilots.
    _barred: dict[int, frozenset[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._known = KnownQueues(self.db, self.left_out, "the director: task queues")
        self._pools = KnownPools(self.db)
        self._record = BreakerRecord(self.db)

    def tick(self, now: float) -> int:
        """One iteration; returns how many pilots were placed. A fault in one part stops no other; the first one is
        raised at the end.
        """
        with self.left_out.step("the director: breakers") as left:
            self.breakers = self._record.read_rows(self.breakers, left)
        self._record.apply_answers(self.breakers, self.options.breaker)
        with self.left_out.step("the director") as left:
            seen, decision = self._decide(now, left)
        self.gates = {site: gate.admits() for site, gate in seen.sites.gates.items()}
        self.suspects = decision.excess.suspects
        self.breakers = dict(decision.breakers)
        self.buckets = dict(decision.buckets)
        self.iterated_at = now
        faults = []
        for part in (self._cancel, self._want, self._store, self._launch, self._note_breakers):
            try:
                part(decision)
            except Exception as fault:
                log.exception("a part of an iteration failed", extra={"part": part.__name__})
                faults.append(fault)
        if faults:
            raise faults[0]
        return decision.placement.placed

    def _decide(self, now: float, left: StepPass) -> tuple[DirectorInput, Decision]:
        seed = self.rng.getrandbits(_SEED_BITS)
        limited = self._ask_limits() if self._known.read() else LimitAnswer()

        def decide_without(faulty: frozenset[Item]) -> tuple[DirectorInput, Decision]:
            seen = self.look(now, faulty, limited)
            return seen, decide(seen, options=self.options, now=now, seed=seed)

        items = partial(
            list_items, self.policy.config.tree, self._known.read, partial(read.pilots_in_short, self.db)
        )
        (seen, decision), self._faulty = do_without_faulty(decide_without, items, left, before=self._faulty)
        if any(item.kind != "CE queue" for item in self._faulty.items):
            # Spare pilots may be for what is left out.
            decision = replace(decision, excess=without_spare(decision.excess))
        return seen, decision

    @property
    def faulty(self) -> frozenset[Item]:
        """What the last iteration left out, since it could not be handled."""
        return self._faulty.items

    def look(
        self, now: float, without: frozenset[Item] = NOTHING, limited: LimitAnswer | None = None
    ) -> DirectorInput:
        """What an iteration goes by. `limited`: the answer about limits, if there is one."""
        waiting_now = self._known.read()
        if without:
            waiting_now = [row for row in waiting_now if task_queue(row[0]) not in without]
        waiting, pool_map = self._free(waiting_now, limited), self._pools.look()
        self.vos = self.vos_of(waiting)
        table = self._known.table
        return self.snapshot(waiting, self.vos, table=table, serving=pool_map, now=now, without=without)

    def _free(self, waiting: list[Waiting], limited: LimitAnswer | None) -> list[Waiting]:
        """Task queues that may start somewhere, with as many jobs as `AtMost` lets start."""
        limits_now, self._barred = LimitAnswer(), {}
        if waiting:
            limits_now = limited or self._ask_limits()
            waiting = self._known.startable(waiting)
        self.limited_in = SeenLimits.of(limits_now, self.policy.bits).queues
        for idle in limits_now.idle:
            self._barred |= dict.fromkeys(idle.pilots, frozenset(idle.ids))
        shut = set(limits_now.ids)
        return [row for row in waiting if not (row[1].waits_for_jobs or row[0] in shut)]

    def _ask_limits(self) -> LimitAnswer:
        """The last answer counts if limits cannot be evaluated."""
        with self.left_out.step("the director: limits") as left:
            try:
                self._limited = self.limited(list(self.policy.config.tree.queue_ids()))
            except Exception as fault:
                if self._limited is None:
                    raise
                left.leave_out("limits, which count as they did before", fault)
        return self._limited

    def _cancel(self, decision: Decision) -> None:
        self.cancel(decision.excess)

    def _want(self, decision: Decision) -> None:
        self.list_match.want(decision.placement, self.options, decision.now)

    def _store(self, decision: Decision) -> None:
        """An empty decision is stored now and then, and when the clock went back."""
        before = self._stored_at
        is_stale = before is None or not 0.0 <= decision.now - before < _EMPTY_SECONDS
        if decision.plan.rows or decision.excess.cancel or is_stale:
            self.post(inner_calls.ITERATION, Iteration(Raw(encode(to_record(decision)))))
            self._stored_at = decision.now

    def _note_breakers(self, _decision: Decision) -> None:
        self._record.store_changes(self.breakers, self.post)

    def note_outcome(self, queue_id: QueueId, *, accepted: bool, reason: str, now: float) -> None:
        """Keep an answer to a submission. Any thread may call this."""
        self._record.note_outcome(queue_id, accepted=accepted, reason=reason, now=now)

    def now(self) -> DirectorState:
        """What it says of itself between two iterations. Any thread may ask."""
        ordered = {queue for queue, order in self._record.orders.items() if order.state == "open"}
        failing = {
            queue: FailingPilots(breaker.failures, breaker.reason, breaker.state is not BreakerState.CLOSED)
            for queue, breaker in list(self.breakers.items())
            if breaker.failures and queue not in ordered
        }
        full = {name: state.is_full for name, state in self.pools().items()}
        return DirectorState(self.iterated_at, full, failing, self.settings)

    def vos_of(self, waiting: Sequence[Waiting]) -> list[str]:
        """The VOs with waiting jobs, and those that are configured."""
        return sorted({key.vo for _, key, _ in waiting} | set(self.policy.config.vos))

    def snapshot(
        self,
        waiting: Sequence[Waiting],
        vos: Sequence[str],
        *,
        table: KeyTable,
        serving: PoolServing,
        now: float,
        without: frozenset[Item] = NOTHING,
    ) -> DirectorInput:
        """What there is. `table` has the waiting task queues."""
        pilots = read.pilots_in_short(self.db)
        hosts = local_hosts(self.db, pilots, now)
        pilots = [*mark_shut(pilots, hosts)]
        shut: list[QueueId] = []
        if without:
            pilots = [pilot for pilot in pilots if Item("pilot", pilot.id) not in without]
            shut = [
                queue
                for queue in self.policy.config.tree.queue_ids()
                if Item("CE queue", queue) in without or Item("site", queue.site) in without
            ]
        own = count_own_pilots(
            (pilot.state, pilot.submitted_to, pilot.submitted_at or pilot.created_at) for pilot in pilots
        )
        mask = self._mask.look(self.db)
        maker = self._candidates(own, mask, now, hosts)
        return DirectorInput(
            demands=self._demands(waiting),
            table=table,
            serving=serving,
            pilots=[pilot_view(pilot, now, self._barred.get(pilot.id, _NONE), mask) for pilot in pilots],
            queues=maker.make(vos, shut),
            pools=self.pools(), running_jobs=read.running_jobs(self.db), suspects=self.suspects,
            breakers=self.breakers, buckets=self.buckets, limited=self.limited_in,
            sites=self.look_at_sites(now, pilots, without),
        )  # fmt: skip

    def look_at_sites(
        self, now: float, pilots: Sequence[read.LivePilot] | None = None, without: frozenset[Item] = NOTHING
    ) -> SiteMatching:
        """A decision uses the result up. `pilots`: those that live, if read already."""
        sites = [site for site in self.policy.config.tree.sites if Item("site", site) not in without]
        return self.sites.look(self.db, self.policy, self.options.pools, now, pilots, sites=sites)

    def _launch(self, decision: Decision) -> None:
        placements = decision.placement.placements
        if placements:
            vos = {placement.request.vo for placement in placements}
            offers = {(vo, offer.queue): offer for vo in vos for offer in self.policy.vo_config(vo).offers}
            self.launch(decision, offers)

    def _demands(self, queues: Sequence[Waiting]) -> list[TaskQueueDemand]:
        shares = self.policy.shares()
        weights = director_weights(queues, shares)
        return [
            TaskQueueDemand(
                tq_id=tq_id,
                key=key,
                weight=weights[tq_id],
                waiting_jobs=waiting,
                job_sharing=key.group in shares and shares[key.group].job_sharing,
            )
            for tq_id, key, waiting in queues
        ]

    def _candidates(
        self, own: Mapping[QueueId, OwnQueue], mask: SiteMask, now: float,
        hosts: Mapping[str, limits.Limit] = MappingProxyType({}),
    ) -> CandidateMaker:  # fmt: skip
        return CandidateMaker(
            policy=self.policy, watches=self.watches, pools=self.options.pools, own=own, now=now, mask=mask,
            orders=self._record.orders, list_match=self.list_match, doubts=doubts(self.options, self.watches), hosts=hosts,
        )  # fmt: skip

    def gate(
        self, vo: str, offer: QueueOffer, own: OwnQueue, *,
        mask: SiteMask, now: float, site: limits.Limit | None = None,
        hosts: Mapping[str, limits.Limit] = MappingProxyType({}),
    ) -> why_queues.QueueGate:  # fmt: skip
        """What stops new pilots in a queue between two iterations. Any thread may ask.

        `own`: our live pilots there; `site`, `hosts`: what the gate of its site, and this machine, let through.
        """
        queue_id, options, states = offer.queue, self.options, self.pools()
        candidate = self._candidates({queue_id: own}, mask, now, hosts).make_one(vo, offer, self.vos)
        breaker = limits.settle_breaker(self.breakers.get(queue_id, limits.Breaker()), now=now)
        bucket = limits.refill_tokens(self.buckets.get(queue_id.ce_path), now=now, rules=options.rate)
        gates = QueueGates(
            breakers={queue_id: breaker},
            tokens={queue_id.ce_path: limits.whole_tokens(bucket)},
            max_load_age_s=options.max_load_age_s,
        )
        stops = list(queue_limits(candidate, gates=gates, now=now, site=site))
        serving = [
            (pool, states.get(name))
            for name, pool in options.pools.items()
            if pool.scope.serves(queue_id, offer.backend)
        ]
        return show_gate(candidate, stops, breaker, serving, now=now)
