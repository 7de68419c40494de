"""The oracle: which task queues a resource may be served from, by reading every one of them. Pure.

It uses no bitsets and no lottery, only keys, waiting counts, and the predicate `explain`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.criteria import explain


class WrongAnswer(AssertionError):
    """The server said "no job" while one waited, or gave one that does not fit."""


def eligible(queues: Iterable[tuple[int, TaskQueueKey, int]], request: ResourceRequest) -> set[int]:
    """The task queues (id, key, waiting) with a waiting job that the request fits."""
    return {tq_id for tq_id, key, waiting in queues if waiting > 0 and not explain(key, request)}


def check_answer(allowed: Collection[int], given: Collection[int], request: ResourceRequest) -> None:
    """Raises WrongAnswer unless the task queues of an answer are right for what was allowed."""
    if allowed and not given:
        raise WrongAnswer(f"no job, while {len(allowed)} task queues had one for {request}")
    wrong = set(given) - set(allowed)
    if wrong:
        raise WrongAnswer(f"jobs of task queues {sorted(wrong)} do not fit {request}")
