"""How many pilots each task queue gets in one iteration: the seed's formula, everything recorded.

    n = poisson((pilotsPerPriority * priority + pilotsPerJob * jobs) * maxCPU / max(CPU, lowestCPUBoost))
    n = min(n, int((1 + extraPilotFraction) * jobs) + extraPilots - waitingPilots)

Source: seed taskqueue-director, "TaskqueueDirector Algorithm". The page writes maxCPU / taskQueueCPU and
says in words that the boost stops at lowestCPUBoost; the original program divides by the larger of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from lodesman.answers.vocabulary import ClampName
from lodesman.director.clamps import Clamp, Clamped, Limit, clamp
from lodesman.director.demand import TaskQueueDemand, allowance, cpu_bucket
from lodesman.director.options import DirectorOptions
from lodesman.director.poisson import poisson

# Weights start at 0.001; a sum under this is zero but for rounding, and must not become infinite below.
_NO_PRIORITY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The line of one task queue: inputs, the two contributions, the draw, the cap and the bites.

    from_priority + from_jobs, times boost = mean; drawn = a Poisson number of that mean; allowance -
    usable_waiting = cap (negative when more pilots wait than are allowed); asked = what is left.
    """

    tq_id: int
    weight: float
    waiting_jobs: int
    norm_cpu_seconds: int
    cpu_bucket: int
    from_priority: float
    from_jobs: float
    boost: float
    mean: float
    drawn: int
    allowance: int
    usable_waiting: int
    cap: int
    asked: int
    clamps: tuple[Clamp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One iteration's arithmetic. With these numbers every row can be computed again, but for the draw."""

    target: float
    priority_sum: float
    waiting_jobs: int
    pilots_per_priority: float
    pilots_per_job: float
    max_cpu: int
    lowest_cpu_boost: int
    extra_fraction: float
    extra_pilots: int
    rows: tuple[PlanRow, ...] = ()

    @property
    def asked(self) -> int:
        """Pilots asked for, all task queues together."""
        return sum(row.asked for row in self.rows)


def make_plan(
    demands: Sequence[TaskQueueDemand],
    *,
    usable_waiting: Mapping[int, int],
    target: float,
    options: DirectorOptions,
    rng: Random,
) -> Plan:
    """The plan of one iteration; rows in the order of the task queues' ids, so a seed replays it.

    `target` is pilotsPerIteration (or what `adapt` made of it); `usable_waiting` is the supply counted for
    each task queue. Task queues that have no job waiting take no part in the sums and get nothing; a
    zero sum makes its contribution zero.
    """
    taking_part = [demand for demand in demands if demand.waiting_jobs > 0]
    priority_sum = sum(demand.weight for demand in taking_part)
    waiting_jobs = sum(demand.waiting_jobs for demand in taking_part)
    head = Plan(
        target=target,
        priority_sum=priority_sum,
        waiting_jobs=waiting_jobs,
        pilots_per_priority=target / priority_sum if priority_sum > _NO_PRIORITY else 0.0,
        pilots_per_job=target / waiting_jobs if waiting_jobs > 0 else 0.0,
        max_cpu=options.max_cpu,
        lowest_cpu_boost=options.lowest_cpu_boost,
        extra_fraction=options.extra_pilot_fraction,
        extra_pilots=options.extra_pilots,
    )
    rows = [
        _row(demand, head, waiting=usable_waiting.get(demand.tq_id, 0), options=options, rng=rng)
        for demand in sorted(demands, key=lambda one: one.tq_id)
    ]
    return replace(head, rows=_capped(rows, cap=options.max_pilots_per_iteration, rng=rng))


def _row(
    demand: TaskQueueDemand, head: Plan, *, waiting: int, options: DirectorOptions, rng: Random
) -> PlanRow:
    active = demand.waiting_jobs > 0
    bucket = cpu_bucket(demand.key.norm_cpu_seconds, options.cpu_buckets)
    from_priority = head.pilots_per_priority * demand.weight if active else 0.0
    from_jobs = head.pilots_per_job * demand.waiting_jobs if active else 0.0
    boost = head.max_cpu / max(bucket, head.lowest_cpu_boost)
    mean = (from_priority + from_jobs) * boost
    drawn = poisson(mean, rng)
    allowed = allowance(
        demand.waiting_jobs, extra_fraction=head.extra_fraction, extra_pilots=head.extra_pilots
    )
    result = _clamped(drawn, demand, allowed=allowed, waiting=waiting)
    return PlanRow(
        tq_id=demand.tq_id,
        weight=demand.weight,
        waiting_jobs=demand.waiting_jobs,
        norm_cpu_seconds=demand.key.norm_cpu_seconds,
        cpu_bucket=bucket,
        from_priority=from_priority,
        from_jobs=from_jobs,
        boost=boost,
        mean=mean,
        drawn=drawn,
        allowance=allowed,
        usable_waiting=waiting,
        cap=allowed - waiting,
        asked=result.count,
        clamps=result.clamps,
    )


def _clamped(drawn: int, demand: TaskQueueDemand, *, allowed: int, waiting: int) -> Clamped:
    if drawn <= max(0, allowed - waiting):
        return Clamped(count=drawn)
    supply = Limit(
        name=ClampName.USABLE_SUPPLY,
        limit=allowed - waiting,
        detail=f"{allowed} allowed for {demand.waiting_jobs} jobs - {waiting} usable pilots waiting or idle",
    )
    return clamp(drawn, (supply,))


def _capped(rows: Sequence[PlanRow], *, cap: int, rng: Random) -> tuple[PlanRow, ...]:
    """The rows under `cap` pilots together (0: no cap): a random part of what all rows ask for.

    Each pilot asked for has the same chance, so the proportions of the formula stay.
    """
    total = sum(row.asked for row in rows)
    if cap <= 0 or total <= cap:
        return tuple(rows)
    kept = Counter(rng.sample([row.tq_id for row in rows], counts=[row.asked for row in rows], k=cap))
    detail = f"maxPilotsPerIteration {cap} for {total} asked by all task queues"
    return tuple(_cut(row, kept[row.tq_id], detail) for row in rows)


def _cut(row: PlanRow, kept: int, detail: str) -> PlanRow:
    cut = clamp(row.asked, (Limit(name=ClampName.ITERATION_CAP, limit=kept, detail=detail),))
    return replace(row, asked=cut.count, clamps=(*row.clamps, *cut.clamps))


def arithmetic(plan: Plan, row: PlanRow) -> tuple[str, ...]:
    """The row's arithmetic, one step a line, as `why` shows it."""
    if row.waiting_jobs == 0:
        return ("none asked: no job waits",)
    per_priority, per_job = f"{plan.pilots_per_priority:g}", f"{plan.pilots_per_job:g}"
    summed = f"{per_priority} x {row.weight:g} + {per_job} x {row.waiting_jobs}"
    allowed = f"int((1 + {plan.extra_fraction:g}) x {row.waiting_jobs}) + {plan.extra_pilots}"
    return (
        f"pilotsPerPriority = {plan.target:g} / {plan.priority_sum:g} = {per_priority}",
        f"pilotsPerJob = {plan.target:g} / {plan.waiting_jobs} = {per_job}",
        f"CPU boost = {plan.max_cpu} / max({row.cpu_bucket}, {plan.lowest_cpu_boost}) = {row.boost:g}",
        f"mean = ({summed}) x {row.boost:g} = {row.mean:g}",
        f"poisson({row.mean:g}) = {row.drawn}",
        f"cap = {allowed} - {row.usable_waiting} = {row.cap}",
        *(f"{bite.name}: {bite.before} -> {bite.after} ({bite.detail})" for bite in row.clamps),
        f"asked = {row.asked}",
    )
