"""The choice of jobs to vacate: its CPU time on many jobs, and what it loses on the reference workload."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import fields

from bench.context import Context
from bench.figures import Figure
from bench.oracle import WrongAnswer
from bench.vacate_world import HOUR, NOW, candidates, node

from lodesman.site.jobstatus.vacate.candidates import Candidate, Terms
from lodesman.site.jobstatus.vacate.plan import STRICT, TIEBREAK, VacateRequest, make_plan
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.vacate.simulation import Losses, compare

JOBS, NODES, SEEDS, FREED = 10_000, 1_000, 5, 16
LOSSES = [field.name for field in fields(Losses)]


def measure(context: Context) -> list[Figure]:
    """CPU seconds of one thread, and ratios of lost core-hours: the worst of the seeds counts."""
    jobs = candidates(random.Random(7), context.less(JOBS, 4_000))
    means = [_means(seed, context.less(NODES)) for seed in range(1, context.less(SEEDS) + 1)]
    details = {name: [one[name] / HOUR for one in means] for name in LOSSES}
    kept = {
        "killed": [one["kills"] / one["youngest"] for one in means],
        "beside-best": [one["kills"] / one["best_kills"] for one in means],
        "drained": [one["mixed"] / one["kills"] for one in means],
    }
    words = {
        "killed": ("16 of 64 cores now, core-hours lost, beside youngest first", 0.50),
        "beside-best": ("the same beside the best choice there is", 1.001),
        "drained": ("within 4 h, ends known to 0.3, beside kills alone", 0.80),
    }
    return [
        *(_timed(context, jobs, cores, priority, target=target) for cores, priority, target in (
            (1_024, TIEBREAK, 1.0), (10_000, TIEBREAK, 10.0), (1_024, STRICT, None),
        )),
        *(
            Figure(row=f"vacate-{name}", what=what, unit="x", value=max(kept[name]), target=target, less=True,
                   samples=kept[name], details=details, size=f"{NODES:,} nodes, {SEEDS} seeds")
            for name, (what, target) in words.items()
        ),
    ]  # fmt: skip


def _timed(
    context: Context, jobs: Sequence[Candidate], cores: int, priority: str, *, target: float | None
) -> Figure:
    """The whole plan, of jobs that were read."""
    request, samples = VacateRequest(ResourceNeed(cores), priority=priority), []
    for _ in range(context.samples):
        begun = time.process_time()
        plan = make_plan(jobs, request, NOW)
        samples.append(time.process_time() - begun)
        if not plan.is_feasible or sum(one.cores for one in plan.victims) < cores:
            raise WrongAnswer(f"{cores} cores are not freed")
    name = "" if priority == TIEBREAK else f"{priority}-"
    return Figure(
        row=f"vacate-{name}{cores}", unit="s", value=min(samples), target=target, less=True, samples=samples,
        what=f"plan of {cores:,} cores out of {len(jobs):,} jobs, priority {priority}",
    )  # fmt: skip


def _means(seed: int, nodes: int) -> dict[str, float]:
    rng = random.Random(seed)
    found = [compare(node(rng, 0.3), FREED, NOW, Terms(within=4 * HOUR)) for _ in range(nodes)]
    return {name: sum(getattr(one, name) for one in found) / len(found) for name in LOSSES}
