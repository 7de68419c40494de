"""What other limits would change for waiting jobs and running ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from msgspec import Struct

from lodesman.decide.matching.limit_rules import BucketUse, RuleBook, RunPlace
from lodesman.decide.matching.limit_takers import RunningJob
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.spots import Spot
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId

_GROUP = 0
_OFTEN = 64


class WaitingQueue(NamedTuple):
    """A task queue with waiting jobs."""

    key: TaskQueueKey
    jobs: int
    may_run: Sequence[QueueId]  # the CE queues that can run them


class WorkToLimit(Struct, frozen=True, kw_only=True):
    """What limits are held against."""

    waiting: Sequence[WaitingQueue]
    live: Sequence[RunningJob]
    places: Iterable[RunPlace]
    tick: Callable[[], None]  # called now and then; raises when all takes too long


class LimitEffect(Struct, frozen=True, kw_only=True):
    """What rules do to the work."""

    limited: Mapping[int, str]  # position of a task queue that may start nowhere -> the rule that stops it
    over: Sequence[BucketUse]  # buckets of which more is used than there is


def hold_against(book: RuleBook, work: WorkToLimit) -> LimitEffect:
    """Limit the work by rules."""
    limits, by_queue = RunLimits(book), dict[QueueId, dict[Spot, RunPlace]]()
    for place in work.places:
        # Of places that rules see alike, one is enough.
        by_queue.setdefault(QueueId(*place[:3]), {})[limits.spot(place)] = place
    for slot, row in enumerate(work.waiting):
        if slot % _OFTEN == 0:
            work.tick()
        limits.add(_GROUP, slot, row.key)
    for number, live in enumerate(work.live):
        if number % _OFTEN == 0:
            work.tick()
        limits.take(live.key, live.place)
    shut = {
        queue: reduce(and_, (limits.shut_slots(place)[_GROUP] for place in places.values()))
        for queue, places in by_queue.items()
    }
    limited = {}
    for slot, row in enumerate(work.waiting):
        queues = [queue for queue in row.may_run if queue in shut]
        if queues and all(shut[queue] >> slot & 1 for queue in queues):
            place = next(iter(by_queue[queues[0]].values()))
            limited[slot] = limits.refusals(row.key, place)[0][0].rule
    over = [use for use, _ in limits.uses() if not isinstance(use.limit, str) and use.used > use.limit]
    return LimitEffect(limited=limited, over=over)
