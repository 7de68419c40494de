"""List-match: whether a batch system would ever run the pilots that the director wants in its queues (`Backend.check`).

Asked beside the polls, about those queues alone to which pilots were or would have been sent lately, a few at a time. An
answer is kept for ListMatchDelay minutes, a failure not at all, and what is not known closes nothing (ADR 0045).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from lodesman.background.census import BackendWatch
from lodesman.batch.backend import Check, PilotSpec
from lodesman.director.options import DirectorOptions
from lodesman.director.placement import PlacementResult
from lodesman.matching.offers import PilotShape
from lodesman.resources import QueueId

_LATELY_SECONDS: Final = 600.0
_MOST_AT_ONCE: Final = 20
# A slow batch system is asked about fewer; a check that is under way ends.
_BEGIN_SECONDS: Final = 10.0
_MOST_WORDS: Final = 400


class _Answer(NamedTuple):
    """What was said `at` that time; `never`: why it never runs such pilots, '' if it does."""

    at: float
    never: str


class _Known(Struct, frozen=True, kw_only=True):
    """What is known of one batch system. `how`: the backend and the words for its submissions that were asked with;
    `asked`: when each shape was asked about last, whatever came of it.
    """

    how: tuple[object, ...] = ()
    answers: Mapping[PilotShape, _Answer] = field(default_factory=dict)
    asked: Mapping[PilotShape, float] = field(default_factory=dict)


class ListMatch:
    """Of all batch systems. The director says what it wants, one thread a backend asks, any thread may read."""

    def __init__(self) -> None:
        self._wanted: Mapping[PilotShape, float] = {}
        self._wanted_at: Mapping[QueueId, float] = {}
        self._known: dict[str, _Known] = {}

    def want(self, placement: PlacementResult, options: DirectorOptions, now: float) -> None:
        """Take in an iteration: the queues where it wanted pilots, those first that get most."""
        wanted: Counter[QueueId] = Counter()
        for queue, room in placement.rooms.items():
            wanted[queue] = room.wanted
        most = max(wanted.values(), default=0)
        for one in placement.placements:
            wanted[one.queue_id] += most + one.count
        here = {queue: now for queue, count in wanted.most_common() if count}
        before = {q: at for q, at in self._wanted_at.items() if q not in here and now - at < _LATELY_SECONDS}
        self._wanted_at = {**here, **before}
        queues = {one.queue_id: one for one in placement.places.queues.values() if not one.closed}
        kept = {queue: options.list_match_seconds(one.submission_pools) for queue, one in queues.items()}
        self._wanted = {
            shape: seconds
            for queue in self._wanted_at
            if (seconds := kept.get(queue)) is not None
            for shape in queues[queue].shapes
        }

    def never(self, shapes: Collection[PilotShape]) -> str:
        """Why no pilot of these shapes would ever run; '' if one might, or that is not known."""
        found = [self._never(shape) for shape in shapes]
        return min(found) if found and all(found) else ""

    def _never(self, shape: PilotShape) -> str:
        known = self._known.get(shape.backend) if shape in self._wanted else None
        answer = None if known is None else known.answers.get(shape)
        if answer is None or not answer.never:
            return ""
        return f"{shape.backend} says that it never runs pilots of {shape} there: {answer.never}"

    def tick(self, watch: BackendWatch, now: float) -> int:
        """Ask about those that are due; returns how many. What is out of date and not asked about again is forgotten.

        Raises LodesmanError where the batch system does not answer; it is asked again at the next tick.
        """
        backend, options = watch.backend, watch.options
        how, known = (backend, options), self._known.get(watch.name, _Known())
        if known.how != how:  # another one, or asked in other words
            known = _Known(how=how)
        wanted = {shape: seconds for shape, seconds in self._wanted.items() if shape.backend == watch.name}
        answers = {
            shape: known.answers[shape]
            for shape, seconds in wanted.items()
            if shape in known.answers and 0.0 <= now - known.answers[shape].at < seconds
        }
        asked = {shape: at for shape, at in known.asked.items() if shape in wanted}
        due = sorted(
            (shape for shape in wanted if shape not in answers),
            key=lambda shape: (not known.answers.get(shape, _NOTHING).never, asked.get(shape, 0.0)),
        )
        until, number = time.monotonic() + _BEGIN_SECONDS, 0
        try:
            for shape in due[:_MOST_AT_ONCE]:
                if number and time.monotonic() >= until:
                    break
                asked[shape] = now
                number += 1
                check = backend.check(_spec(shape, options))
                if check.possible is not None:
                    answers[shape] = _Answer(now, _refusal(check))
        finally:
            self._known[watch.name] = _Known(how=how, answers=answers, asked=asked)
        return number


_NOTHING: Final = _Answer(0.0, "")


def _spec(shape: PilotShape, options: tuple[str, ...]) -> PilotSpec:
    """One pilot, without what only a submission has."""
    return PilotSpec(
        queue=shape.queue,
        submission="list_match",
        count=1,
        program=b"",
        pilot_file=b"",
        cores=shape.cores,
        memory_mb=shape.memory_mb,
        wall_seconds=shape.wall_seconds,
        options=(*options, *shape.options),
    )


def _refusal(check: Check) -> str:
    return "" if check.possible else " ".join(check.detail.split())[:_MOST_WORDS] or "it gives no reason"
