"""Nodes of 64 cores full of jobs, the reference workload of the choice of jobs to vacate (synthetic: it shows an order)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from lodesman.site.jobstatus.vacate.candidates import Candidate
from lodesman.site.jobstatus.vacate.simulation import Assumptions, LoggedJob, SimulatedJob, simulate_job
from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import Estimate

NOW, HOUR = 1_000_000_000.0, 3600.0
CORES, OWNERS = 64, 4
PILOT, PLAIN = (
    Assumptions(pilots=1.0, commits=0.0, silent=0.0),
    Assumptions(pilots=0.0, commits=0.2, silent=0.0),
)


def node(rng: random.Random, error: float, spread: float = 0.0) -> list[SimulatedJob]:
    """Half of its jobs are pilots of 8 or 16 cores, a third have one core, the rest 4 or 8. spread: see `Assumed`."""
    known = Assumptions(error=error, spread=spread)
    return [_job(rng, number, cores, known) for number, cores in enumerate(_sizes(rng))]


def _sizes(rng: random.Random) -> Iterator[int]:
    """Negative: a pilot."""
    left = CORES
    while left:
        kind = rng.random()
        size = rng.choice((8, 16)) if kind < 0.5 else 1 if kind < 0.8 else rng.choice((4, 8))
        if size <= left:
            left -= size
            yield -size if kind < 0.5 else size


def _job(rng: random.Random, number: int, size: int, known: Assumptions) -> SimulatedJob:
    """Pilots live for 48 h; other jobs take 6 h in the median, and are seen the more often the longer they take."""
    hours = 48.0 if size < 0 else 6.0 * math.exp(rng.gauss(0, 1) + 1)
    age = rng.uniform(0, hours * HOUR)
    limit = 48.0 if size < 0 else min(96.0, max(hours, 24.0) * 1.5)
    logged = LoggedJob(
        f"{number:03}", f"u{rng.randrange(OWNERS)}", "n", abs(size), NOW - age, NOW - age + hours * HOUR,
        max(hours, limit) * HOUR,
    )  # fmt: skip
    kind = PILOT if size < 0 else PLAIN
    return simulate_job(logged, replace(known, pilots=kind.pilots, commits=kind.commits), rng, NOW)


def candidates(rng: random.Random, count: int) -> list[Candidate]:
    """Many jobs of up to 256 cores, most of them of a few sizes, of 50 owners with 5 priorities."""
    found = []
    for number in range(count):
        cores = rng.choice((1, 1, 2, 4, 8, 8, 16, 32, 64, rng.randint(1, 256)))
        known = Estimate(kill_waste=int(cores * rng.expovariate(1 / 9000)))
        status = Status(priority_factor=rng.randrange(5))
        found.append(
            Candidate(
                f"{number}", f"u{number % 50}", (f"n{number % 300}",), cores, NOW - 100 * HOUR,
                status=status, estimate=known, age=0.0,
            )
        )  # fmt: skip
    return found
