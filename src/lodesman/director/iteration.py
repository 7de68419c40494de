"""One iteration of the director, from a snapshot to a decision.

Order of DESIGN 1, steps 7 and 8: supply, target, plan, then for each task queue a pool and an identity, then
placement on CE queues; beside it, which waiting pilots to cancel. The service takes the snapshot, calls
`decide`, stores the decision, and only then acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from lodesman.director.adaptive import Target, adapt
from lodesman.director.breaker import Breaker, settle, submitting
from lodesman.director.demand import TaskQueueDemand
from lodesman.director.excess import Excess, choose_excess
from lodesman.director.floor import QueueGates
from lodesman.director.options import DirectorOptions
from lodesman.director.pilot_type import choose_identity
from lodesman.director.placement import PlacementResult, place
from lodesman.director.places import Ask, Places
from lodesman.director.plan import Plan, make_plan
from lodesman.director.pools import PoolState, PoolTry, choose_pool, new_cycle
from lodesman.director.queues import CandidateQueue
from lodesman.director.serving import NoPools, Serving
from lodesman.director.supply import KnownTaskQueues, PilotView, Supply, count_supply
from lodesman.director.token_bucket import TokenBucket, full, refill, take, whole_tokens
from lodesman.matching.tables import KeyTable
from lodesman.resources import NodePath, QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorInput:
    """All that one iteration looks at. `suspects`, `breakers` and `buckets` come from the iteration before
    (empty after a loss: breakers closed, buckets full; the caps hold all the same). `table` has the task queues
    of `demands`; it is made anew if nobody kept one. `serving` says which queues serve which SubmitPool.
    """

    demands: Sequence[TaskQueueDemand]
    table: KeyTable | None = None
    serving: Serving = field(default_factory=NoPools)
    pilots: Sequence[PilotView]
    queues: Sequence[CandidateQueue]
    pools: Mapping[str, PoolState]
    running_jobs: int = 0
    suspects: Mapping[int, float]
    breakers: Mapping[QueueId, Breaker]
    buckets: Mapping[NodePath, TokenBucket]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRefusal:
    """A task queue whose pilots no submission pool took: none are submitted."""

    tq_id: int
    asked: int
    tries: tuple[PoolTry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do and how it came about; `breakers`, `buckets` and `excess.suspects` go into the next
    snapshot (breakers after the answers of the batch systems).
    """

    now: float
    target: Target
    supply: Supply
    plan: Plan
    asks: tuple[Ask, ...]
    pool_refusals: tuple[PoolRefusal, ...]
    placement: PlacementResult
    excess: Excess
    breakers: Mapping[QueueId, Breaker]
    buckets: Mapping[NodePath, TokenBucket]


def decide(snapshot: DirectorInput, *, options: DirectorOptions, now: float, rng: Random) -> Decision:
    """One iteration. Pure: the same snapshot, options, time and seed give the same decision."""
    supply = _supply(snapshot, options, now=now)
    target = adapt(
        options.pilots_per_iteration,
        waiting_jobs=sum(one.waiting_jobs for one in snapshot.demands),
        running_jobs=snapshot.running_jobs,
        rules=options.adaptive,
    )
    plan = make_plan(
        snapshot.demands,
        usable_waiting=supply.counted,
        target=target.value,
        options=options,
        rng=rng,
    )
    asks, refused = _asks(snapshot, plan, options, rng)
    breakers = {queue_id: settle(one, now=now) for queue_id, one in snapshot.breakers.items()}
    buckets = _refilled(snapshot, options, now=now)
    gates = QueueGates(
        breakers=breakers,
        tokens={ce_path: whole_tokens(one) for ce_path, one in buckets.items()},
        max_load_age_s=options.max_load_age_s,
    )
    places = Places(snapshot.queues, snapshot.serving)
    placement = place(asks, places, gates=gates, now=now, rng=rng)
    return Decision(
        now=now,
        target=target,
        supply=supply,
        plan=plan,
        asks=tuple(asks),
        pool_refusals=tuple(refused),
        placement=placement,
        excess=_excess(snapshot, supply, options, now=now),
        breakers=_probed(breakers, placement, options, now=now),
        buckets=_taken(buckets, placement),
    )


def _supply(snapshot: DirectorInput, options: DirectorOptions, *, now: float) -> Supply:
    table = snapshot.table or KeyTable({one.tq_id: one.key for one in snapshot.demands})
    return count_supply(
        snapshot.demands,
        snapshot.pilots,
        known=KnownTaskQueues(table=table, serving=snapshot.serving),
        now=now,
        max_waiting_s=options.max_pilot_waiting_hours * 3600.0,
        extra_fraction=options.extra_pilot_fraction,
        extra_pilots=options.extra_pilots,
    )


def _asks(
    snapshot: DirectorInput, plan: Plan, options: DirectorOptions, rng: Random
) -> tuple[list[Ask], list[PoolRefusal]]:
    """A pool and an identity for each task queue that gets pilots, in random order: pools may fill up."""
    by_id = {demand.tq_id: demand for demand in snapshot.demands}
    wanted = [(by_id[row.tq_id], row.asked) for row in plan.rows if row.asked > 0]
    rng.shuffle(wanted)
    states = new_cycle(snapshot.pools)
    asks, refused = [], []
    for demand, count in wanted:
        choice = choose_pool(
            demand.key.submission_pools,
            defaults=options.default_submission_pools,
            states=states,
            rng=rng,
        )
        states = dict(choice.states)
        if choice.pool is None:
            refused.append(PoolRefusal(tq_id=demand.tq_id, asked=count, tries=choice.tries))
            continue
        pool_options = options.pools.get(choice.pool, options.pool_defaults)
        identity = choose_identity(demand, options=pool_options, rng=rng)
        asks.append(Ask(tq_id=demand.tq_id, key=demand.key, count=count, pool=choice.pool, identity=identity))
    return asks, refused


def _excess(snapshot: DirectorInput, supply: Supply, options: DirectorOptions, *, now: float) -> Excess:
    return choose_excess(
        supply.spare,
        aged=supply.aged,
        counted=sum(supply.counted.values()),
        suspects=snapshot.suspects,
        rules=options.excess,
        now=now,
    )


def _refilled(
    snapshot: DirectorInput, options: DirectorOptions, *, now: float
) -> dict[NodePath, TokenBucket]:
    """The bucket of every CE that has a candidate queue; those of vanished CEs are dropped."""
    found: dict[NodePath, TokenBucket] = {}
    for queue in snapshot.queues:
        ce_path = queue.queue_id.ce_path
        bucket = snapshot.buckets.get(ce_path) or full(options.rate, now=now)
        found[ce_path] = refill(bucket, now=now, rules=options.rate)
    return found


def _taken(
    buckets: Mapping[NodePath, TokenBucket], placement: PlacementResult
) -> dict[NodePath, TokenBucket]:
    used: Counter[NodePath] = Counter()
    for one in placement.placements:
        used[one.queue_id.ce_path] += one.count
    return {ce_path: take(bucket, used[ce_path]) for ce_path, bucket in buckets.items()}


def _probed(
    breakers: Mapping[QueueId, Breaker],
    placement: PlacementResult,
    options: DirectorOptions,
    *,
    now: float,
) -> dict[QueueId, Breaker]:
    """Breakers after the decision: a half-open queue that got a pilot is being probed."""
    used = {one.queue_id for one in placement.placements}
    return {
        queue_id: submitting(one, now=now, rules=options.breaker) if queue_id in used else one
        for queue_id, one in breakers.items()
    }
