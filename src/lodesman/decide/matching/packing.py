"""Packing: which task queue leaves a pilot that runs several payloads the least draining waste. Pure.

Formula 10 of $JOBSTATUS, with its rest written out: a pilot of A cores whose payloads hold c cores each and end at e idles
A x last - sum(c x e) core-seconds until the last end, if it is drained now. One more job of c cores and s seconds makes
that A x max(last, s) - c x s, and the sum over what runs, which is the same for all jobs (ADR 0064).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from lodesman.decide.matching.group_index import IndexedQueue
from lodesman.decide.matching.task_queue import TaskQueueKey


class SharedSlot(NamedTuple):
    """What a pilot that runs several payloads has.

    `free`: cores of its `cores` that hold nothing. `busy_s`: seconds until the last of its payloads is expected to end, 0 if
    none runs. `scaling`: norm_cpu_seconds for each second of a core.
    """

    cores: int
    free: int
    busy_s: float
    scaling: float = 1.0

    def with_job(self, key: TaskQueueKey) -> SharedSlot:
        """The same with a job of a task queue."""
        ends = max(self.busy_s, expected_seconds(key, self.scaling))
        return SharedSlot(self.cores, max(0, self.free - key.cores), ends, self.scaling)


def expected_seconds(key: TaskQueueKey, scaling: float) -> float:
    """How long a job of a task queue is expected to run: what its user says, else its CPU time by its cores."""
    return key.expected_seconds or key.norm_cpu_seconds / (key.cores * scaling)


def least_waste(shared: SharedSlot, queues: Iterable[IndexedQueue]) -> list[IndexedQueue]:
    """Those whose job fits into what is free and leaves the least draining waste; all that are alike."""
    cores, free, busy_s, scaling = shared
    least, found = inf, list[IndexedQueue]()
    for queue in queues:
        key = queue.key
        takes = key.cores
        if takes > free:
            continue
        # `expected_seconds`, written out: on the writer's thread for up to 16 task queues of each claim.
        seconds = key.expected_seconds or key.norm_cpu_seconds / (takes * scaling)
        waste = max(busy_s, seconds) * cores - takes * seconds
        if waste < least:
            least, found = waste, [queue]
        elif waste == least:
            found.append(queue)
    return found
