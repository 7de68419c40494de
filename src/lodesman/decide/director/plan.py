"""How many pilots each task queue gets in one iteration: the seed's formula (taskqueue-director, "TaskqueueDirector
Algorithm"), everything recorded.

    n = poisson((pilotsPerPriority * priority + pilotsPerJob * jobs) * maxCPU / max(CPU, lowestCPUBoost))
    n = min(n, int((1 + extraPilotFraction) * jobs) + extraPilots - waitingPilots)

The boost stops at lowestCPUBoost, as the page says in words.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from lodesman.base.errors import counted
from lodesman.decide.director.limits import Clamp, Limit, clamp
from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.target import COUNTING
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.wire.director import DirectorPlan, DirectorTarget
from lodesman.wire.vocabulary import ClampName

# Weights start at 0.001; a sum under this is zero but for rounding, and must not become infinite below.
_NO_PRIORITY = 1e-9


class TaskQueueDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A task queue with waiting jobs."""

    tq_id: int
    key: TaskQueueKey
    weight: float  # its director weight (the seed's TQ Priority)
    waiting_jobs: int
    job_sharing: bool = False  # a private pilot serves the whole group


def cpu_bucket(norm_cpu_seconds: int, buckets: Sequence[int]) -> int:
    """The CPU time rounded up to its bucket, or the last."""
    return buckets[min(bisect_left(buckets, norm_cpu_seconds), len(buckets) - 1)]


def allowance(waiting_jobs: int, options: DirectorOptions) -> int:
    """Pilots that may wait for these jobs."""
    return int((1.0 + options.extra_pilot_fraction) * waiting_jobs) + options.extra_pilots


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task queue's line."""

    tq_id: int
    weight: float
    waiting_jobs: int
    norm_cpu_seconds: int
    cpu_bucket: int
    from_priority: float
    from_jobs: float
    boost: float
    mean: float  # (from_priority + from_jobs) * boost
    drawn: int  # a Poisson number of that mean
    allowance: int
    usable_waiting: int
    cap: int  # allowance - usable_waiting; negative when more pilots wait than are allowed
    asked: int  # what is left
    clamps: tuple[Clamp, ...] = ()


class Plan(DirectorPlan, frozen=True, kw_only=True):
    """One iteration's arithmetic; every row can be recomputed, but for the draw."""

    rows: tuple[PlanRow, ...] = ()

    @property
    def asked(self) -> int:
        """Pilots asked for in all."""
        return sum(row.asked for row in self.rows)


def make_plan(
    demands: Sequence[TaskQueueDemand],
    *,
    usable_waiting: Mapping[int, int],
    target: DirectorTarget,
    options: DirectorOptions,
    rng: Random,
) -> Plan:
    """Rows by id, so that a seed replays it. `target` stands for pilotsPerIteration. A zero sum makes its contribution
    zero.
    """
    ordered, value = sorted(demands, key=lambda demand: demand.tq_id), target.value
    taking_part = [demand for demand in ordered if demand.waiting_jobs > 0]
    priority_sum = sum(demand.weight for demand in taking_part)
    waiting_jobs = sum(demand.waiting_jobs for demand in taking_part)
    head = Plan(
        target=value,
        priority_sum=priority_sum,
        waiting_jobs=waiting_jobs,
        pilots_per_priority=value / priority_sum if priority_sum > _NO_PRIORITY else 0.0,
        pilots_per_job=value / waiting_jobs if waiting_jobs > 0 else 0.0,
        max_cpu=options.max_cpu,
        lowest_cpu_boost=options.lowest_cpu_boost,
        extra_fraction=options.extra_pilot_fraction,
        extra_pilots=options.extra_pilots,
    )
    rows = [
        _row(demand, head, waiting=usable_waiting.get(demand.tq_id, 0), options=options, rng=rng)
        for demand in ordered
    ]
    return msgspec.structs.replace(head, rows=_capped(rows, target, rng))


def _row(
    demand: TaskQueueDemand, head: Plan, *, waiting: int, options: DirectorOptions, rng: Random
) -> PlanRow:
    bucket = cpu_bucket(demand.key.norm_cpu_seconds, options.cpu_buckets)
    from_priority = head.pilots_per_priority * demand.weight if demand.waiting_jobs else 0.0
    from_jobs = head.pilots_per_job * demand.waiting_jobs
    boost = head.max_cpu / max(bucket, head.lowest_cpu_boost)
    mean = (from_priority + from_jobs) * boost
    drawn = poisson(mean, rng)
    allowed = allowance(demand.waiting_jobs, options)
    cap, count = allowed - waiting, drawn
    clamps: tuple[Clamp, ...] = ()
    if drawn > max(0, cap):
        usable = counted(waiting, "usable pilot")
        detail = f"{allowed} allowed for {counted(demand.waiting_jobs, 'job')} - {usable} waiting or idle"
        cut = clamp(drawn, (Limit(name=ClampName.USABLE_SUPPLY, limit=cap, detail=detail),))
        count, clamps = cut.count, cut.clamps
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
        cap=cap,
        asked=count,
        clamps=clamps,
    )


def _capped(rows: Sequence[PlanRow], target: DirectorTarget, rng: Random) -> tuple[PlanRow, ...]:
    """Each pilot has the same chance, so proportions stay."""
    total, cap = sum(row.asked for row in rows), target.most
    if cap <= 0 or total <= cap:
        return tuple(rows)
    kept = Counter(rng.sample([row.tq_id for row in rows], counts=[row.asked for row in rows], k=cap))
    name = f"target of {target.policy}" if target.policy in COUNTING else "maxPilotsPerIteration"
    detail = f"{name} {cap} for {total} asked by all task queues"
    capped = []
    for row in rows:
        limit = Limit(name=ClampName.ITERATION_CAP, limit=kept[row.tq_id], detail=detail)
        cut = clamp(row.asked, (limit,))
        capped.append(replace(row, asked=cut.count, clamps=(*row.clamps, *cut.clamps)))
    return tuple(capped)


def arithmetic(plan: Plan, row: PlanRow) -> tuple[str, ...]:
    """One step a line, as `why` shows it."""
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
        *(f"{clamp.name}: {clamp.before} -> {clamp.after} ({clamp.detail})" for clamp in row.clamps),
        f"asked = {row.asked}",
    )


# --- an exact Poisson sampler on `random.Random` alone -----------------------------------------------------------------
#
# Small means: Knuth's product of uniforms. Large means: the transformed rejection PTRS of W. Hoermann, "The transformed
# rejection method for generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993), 39-45; its
# cost does not grow with the mean and it approximates nothing.

# Above this the logarithms below lose the digits that make the rejection exact.
MAX_MEAN = 1e12

_PTRS_FROM = 10.0
_MAX_TRIES = 10_000


def poisson(mean: float, rng: Random) -> int:
    """0 for a mean <= 0. Raises ValueError over `MAX_MEAN`."""
    if not math.isfinite(mean) or mean > MAX_MEAN:
        raise ValueError(f"a Poisson mean must be a number up to {MAX_MEAN:g}, not {mean!r}")
    if mean <= 0.0:
        return 0
    if mean >= _PTRS_FROM:
        return _transformed_rejection(mean, rng)
    # Arrivals in one unit of time: uniforms are multiplied until they fall under exp(-mean).
    floor = math.exp(-mean)
    product, count = rng.random(), 0
    while product > floor:
        product *= rng.random()
        count += 1
    return count


def _transformed_rejection(mean: float, rng: Random) -> int:
    """PTRS, for means of 10 and more; names as in the paper."""
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    log_inverse_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    log_mean = math.log(mean)
    for _ in range(_MAX_TRIES):
        u = rng.random() - 0.5
        v = 1.0 - rng.random()
        u_s = 0.5 - abs(u)
        if u_s <= 0.0:
            continue
        k = math.floor((2.0 * a / u_s + b) * u + mean + 0.43)
        if u_s >= 0.07 and v <= v_r:
            return k
        if k < 0 or (u_s < 0.013 and v > u_s):
            continue
        if math.log(v) + log_inverse_alpha - math.log(a / (u_s * u_s) + b) <= (
            k * log_mean - mean - math.lgamma(k + 1.0)
        ):
            return k
    # At most one try in four is refused, so only a broken source of randomness comes here.
    raise ArithmeticError("the random source gives no usable numbers")
