"""Where the jobs of a task queue can run: as little as can be kept of each of very many."""

from __future__ import annotations

from functools import cached_property, reduce
from operator import or_

from msgspec import Struct

from lodesman.decide.masks.bits import bits
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.submission import Exclusions
from lodesman.decide.submission.exclusions import REQUIREMENTS
from lodesman.wire.nodes import QueueId


class Fit(Struct, frozen=True):
    """What is kept of the queues that a task queue was held against: all that follows from its key and Requirements."""

    key: TaskQueueKey
    config: VOConfig
    eligible: int  # the queues that can run its jobs
    served: int | None  # those that fulfil its Requirements; None: it has none
    worst: str  # the criterion that excludes most queues, if none is eligible

    @classmethod
    def of(cls, exclusions: Exclusions) -> Fit:
        """Without the single criteria."""
        key, eligible, served = exclusions.key, exclusions.eligible, None
        if key.submit_pool:
            lost = (mask for name, mask in exclusions.planes if name.startswith(REQUIREMENTS))
            served = exclusions.full & ~reduce(or_, lost, 0)
        is_never = exclusions.total and not eligible
        return cls(key, exclusions.config, eligible, served, exclusions.counts()[0][0] if is_never else "")


class ServedQueues:
    """Queues of a VO by a mask, listed when needed."""

    def __init__(self, config: VOConfig, mask: int) -> None:
        self._config, self.mask = config, mask

    @cached_property
    def _places(self) -> frozenset[QueueId]:
        return frozenset(map(self._config.table.queues.__getitem__, bits(self.mask)))

    def __contains__(self, place: object) -> bool:
        return place in self._places
