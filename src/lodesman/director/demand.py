"""What waits: one task queue as the director sees it, and the two numbers its size and CPU time give.

Source: seed taskqueue-director, "Parameters" and "TaskqueueDirector Algorithm".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from lodesman.matching.task_queue import TaskQueueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQueueDemand:
    """A task queue with jobs waiting.

    weight: its director weight, derived from the shares (the seed's TQ Priority). job_sharing: its group shares
    jobs, so a private pilot serves the whole group. Raises ValueError for a weight or a job count that is not one.
    """

    tq_id: int
    key: TaskQueueKey
    weight: float
    waiting_jobs: int
    job_sharing: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight) or self.weight < 0.0:
            raise ValueError(f"task queue {self.tq_id}: the weight {self.weight!r} is none")
        if self.waiting_jobs < 0:
            raise ValueError(f"task queue {self.tq_id}: {self.waiting_jobs} jobs cannot wait")


def cpu_bucket(norm_cpu_seconds: int, buckets: Sequence[int]) -> int:
    """The CPU time rounded up to its bucket; more than the last bucket is put in the last.

    Buckets only label the term maxCPU / CPU of the formula (DESIGN 3.3); the matcher compares exact values.
    """
    return buckets[min(bisect_left(buckets, norm_cpu_seconds), len(buckets) - 1)]


def allowance(waiting_jobs: int, *, extra_fraction: float, extra_pilots: int) -> int:
    """Pilots that may wait for so many jobs: int((1 + extraPilotFraction) * jobs) + extraPilots."""
    return int((1.0 + extra_fraction) * waiting_jobs) + extra_pilots
