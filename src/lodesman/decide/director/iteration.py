"""One iteration of the director, from a snapshot to a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.decide.director.limits import (
    Breaker,
    TokenBucket,
    note_submission,
    refill_tokens,
    settle_breaker,
    take_tokens,
    whole_tokens,
)
from lodesman.decide.director.options import DirectorOptions, ExcessRules
from lodesman.decide.director.orders import PilotOrder, PoolRefusal, PoolState, make_orders
from lodesman.decide.director.placement import PlacementResult, place
from lodesman.decide.director.places import Places, PoolServing
from lodesman.decide.director.plan import Plan, TaskQueueDemand, make_plan
from lodesman.decide.director.queues import CandidateQueue, QueueGates
from lodesman.decide.director.site_matching import NO_SITES, SiteMatching
from lodesman.decide.director.supply import PilotStanding, PilotView, Supply, count_supply
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.decide.masks.bits import Mask
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.resources import NodePath, QueueId
from lodesman.wire.director import DirectorTarget


class DirectorInput(Struct, frozen=True, kw_only=True):
    """What one iteration goes by. A decision uses it up: gates count."""

    demands: Sequence[TaskQueueDemand]
    table: KeyTable  # has the task queues of `demands`
    serving: PoolServing  # which queues serve which SubmitPool
    pilots: Sequence[PilotView]
    queues: Sequence[CandidateQueue]
    pools: Mapping[str, PoolState]
    running_jobs: int = 0
    suspects: Mapping[int, float]  # of the iteration before, as `breakers` and `buckets`; empty after a loss
    breakers: Mapping[QueueId, Breaker]
    buckets: Mapping[NodePath, TokenBucket]
    limited: Mapping[int, int] = field(default_factory=dict)  # where limits keep a task queue from starting
    sites: SiteMatching = NO_SITES  # how sites advertise themselves


class Excess(Struct, frozen=True, kw_only=True):
    """Waiting pilots to cancel: slowly, and only if seen twice, so that an odd snapshot never empties a site. Never
    one whose submission is under way.
    """

    cancel: tuple[int, ...] = ()  # now
    too_old: frozenset[int] = frozenset()  # those of `cancel` that wait too long
    # those of `too_old` whose job is to wait again, whatever the batch system says
    bound: frozenset[int] = frozenset()
    suspects: Mapping[int, float]  # spare pilots, and when each was first seen so: for the next iteration


class Decision(Struct, frozen=True, kw_only=True):
    """What to do, and why."""

    now: float
    seed: int
    options: DirectorOptions
    target: DirectorTarget
    supply: Supply
    plan: Plan
    orders: tuple[PilotOrder, ...]
    pool_refusals: tuple[PoolRefusal, ...]
    placement: PlacementResult
    excess: Excess
    breakers: Mapping[QueueId, Breaker]
    buckets: Mapping[NodePath, TokenBucket]


def decide(snapshot: DirectorInput, *, options: DirectorOptions, now: float, seed: int) -> Decision:
    """The same snapshot, options, time and seed give the same decision."""
    rng = Random(seed)
    supply = count_supply(
        snapshot.demands,
        snapshot.pilots,
        table=snapshot.table,
        serving=snapshot.serving,
        options=options,
        now=now,
    )
    target = target_of(_facts(snapshot, supply), options)
    plan = make_plan(snapshot.demands, usable_waiting=supply.counted, target=target, options=options, rng=rng)
    places = Places(snapshot.queues, _ServingBeforeAds(snapshot.serving, snapshot.sites), snapshot.limited)
    orders, refused = make_orders(
        snapshot.demands, plan, snapshot.pools, options, rng, serves=places.has_queue
    )
    breakers = {queue_id: settle_breaker(breaker, now=now) for queue_id, breaker in snapshot.breakers.items()}
    # The buckets of CEs that have no candidate queue any more are dropped.
    buckets = {
        ce_path: refill_tokens(snapshot.buckets.get(ce_path), now=now, rules=options.rate)
        for ce_path in dict.fromkeys(queue.queue_id.ce_path for queue in snapshot.queues)
    }
    gates = QueueGates(
        breakers=breakers,
        tokens={ce_path: whole_tokens(bucket) for ce_path, bucket in buckets.items()},
        max_load_age_s=options.max_load_age_s,
        sites=snapshot.sites,
    )
    placement = place(orders, places, pools=snapshot.pools, gates=gates, now=now, rng=rng)
    for placed in placement.placements:
        queue_id, ce_path = placed.queue_id, placed.queue_id.ce_path
        buckets[ce_path] = take_tokens(buckets[ce_path], placed.count)
        if queue_id in breakers:
            breakers[queue_id] = note_submission(breakers[queue_id], now=now, rules=options.breaker)
    return Decision(
        now=now,
        seed=seed,
        options=options,
        target=target,
        supply=supply,
        plan=plan,
        orders=tuple(orders),
        pool_refusals=tuple(refused),
        placement=placement,
        excess=choose_excess(supply, suspects=snapshot.suspects, rules=options.excess, now=now),
        breakers=breakers,
        buckets=buckets,
    )


class _ServingBeforeAds:
    """The queues that would serve SubmitPools whatever sites advertise."""

    __slots__ = ("_serving", "_sites", "bit")

    def __init__(self, serving: PoolServing, sites: SiteMatching) -> None:
        self._serving, self._sites, self.bit = serving, sites, serving.bit

    def mask(self, pool: str, /) -> Mask | None:
        mask = self._serving.mask(pool)
        return None if mask is None else mask | self._sites.wished(pool)


def _facts(snapshot: DirectorInput, supply: Supply) -> TargetFacts:
    demands = snapshot.demands
    return TargetFacts(
        waiting_jobs=sum(demand.waiting_jobs for demand in demands),
        running_jobs=snapshot.running_jobs,
        usable_pilots=sum(min(demand.waiting_jobs, supply.counted[demand.tq_id]) for demand in demands),
        waiting_pilots=supply.waiting,
        running_pilots=supply.running,
    )


def choose_excess(supply: Supply, *, suspects: Mapping[int, float], rules: ExcessRules, now: float) -> Excess:
    """A spare pilot that had a use between two iterations starts anew."""
    waiting = [pilot for pilot in supply.spare if pilot.standing is PilotStanding.WAITING]
    bound = {pilot.pilot_id for pilot in supply.aged if pilot.standing is PilotStanding.BOUND}
    stuck = [
        pilot for pilot in supply.aged if pilot.standing is PilotStanding.WAITING or pilot.pilot_id in bound
    ]
    seen = {pilot.pilot_id: min(suspects.get(pilot.pilot_id, now), now) for pilot in (*waiting, *stuck)}
    if not rules.enabled:
        return Excess(suspects=seen)
    tolerated = math.ceil(rules.tolerated_fraction * sum(supply.counted.values()))
    stuck.sort(key=lambda pilot: (pilot.submitted_at, pilot.pilot_id))
    waiting.sort(key=lambda pilot: (-pilot.submitted_at, -pilot.pilot_id))
    useless = [pilot for pilot in waiting if pilot.pilot_id in supply.useless]
    # The oldest surplus pilots stay: they are the nearest to starting.
    surplus = [pilot for pilot in waiting if pilot.pilot_id not in supply.useless]
    surplus = surplus[: max(0, len(surplus) - tolerated)]
    ripe = [
        pilot.pilot_id
        for pilot in (*stuck, *useless, *surplus)
        if pilot.pilot_id in suspects and now - seen[pilot.pilot_id] >= rules.confirm_s
    ]
    cancel = tuple(ripe[: rules.max_cancels])
    # Those stay suspects: if cancelling fails, the next iteration tries again at once.
    too_old = frozenset(cancel).intersection(pilot.pilot_id for pilot in stuck)
    return Excess(cancel=cancel, too_old=too_old, bound=too_old & bound, suspects=seen)


def without_spare(excess: Excess) -> Excess:
    """Only those that wait too long: not all demand is known."""
    return replace(excess, cancel=tuple(pilot_id for pilot_id in excess.cancel if pilot_id in excess.too_old))
