"""List-match: whether a batch system would ever run the pilots that the director wants in its queues
(`Backend.check`).

An answer is kept for ListMatchDelay minutes. A refusal that may pass is no *never* until it has lasted (ADR 0045).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.placement import PlacementResult
from lodesman.decide.matching.offers import PilotShape
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import Check, PilotSpec
from lodesman.server.loops.census import BackendWatch
from lodesman.wire.nodes import utc

_LATELY_SECONDS: Final = 600.0
_MOST_AT_ONCE: Final = 20
_BEGIN_SECONDS: Final = 10.0  # no check begins later in a tick
_MOST_WORDS: Final = 400
# A node that is down, or a controller that starts, refuses in the words of what a queue never has.
_AGAIN_SECONDS: Final = 15.0
_LASTS_SECONDS: Final = 120.0
_LASTS_ANSWERS: Final = 3


class Refusal(NamedTuple):
    """Why a batch system runs no pilot of some shapes; both are '' if it may run one."""

    never: str = ""
    for_now: str = ""


class _Answer(NamedTuple):
    at: float
    refusal: str = ""  # why it runs no such pilots, '' if it does
    since: float = 0.0  # the first of `times` refusals in a row
    times: int = 0
    final: bool = False  # its reason cannot pass

    @property
    def lasts(self) -> bool:
        """Whether it is *never*."""
        return self.final or (self.times >= _LASTS_ANSWERS and self.at - self.since >= _LASTS_SECONDS)

    def again(self, seconds: float) -> float:
        """What may pass is asked again after as long as it has lasted."""
        may_pass = bool(self.refusal) and not self.final
        return self.at + (min(seconds, max(_AGAIN_SECONDS, self.at - self.since)) if may_pass else seconds)


class _BackendAnswers(Struct, frozen=True, kw_only=True):
    how: tuple[object, ...] = ()  # the backend, and the words for submissions, that were asked with
    answers: Mapping[PilotShape, _Answer] = field(default_factory=dict)
    standing: frozenset[PilotShape] = frozenset()  # the shapes whose last answers are not out of date
    asked: Mapping[PilotShape, float] = field(default_factory=dict)  # the last time, whatever came of it


class ListMatch:
    """The answers of all batch systems. One thread a backend asks, any may read."""

    def __init__(self) -> None:
        self._wanted: Mapping[PilotShape, float] = {}
        self._wanted_at: Mapping[QueueId, float] = {}
        self._known: dict[str, _BackendAnswers] = {}

    def want(self, placement: PlacementResult, options: DirectorOptions, now: float) -> None:
        """Take in an iteration: the queues where it wanted pilots lately, those first that get most."""
        demand: Counter[QueueId] = Counter()
        for queue, room in placement.rooms.items():
            demand[queue] = room.wanted
        most = max(demand.values(), default=0)
        for placed in placement.placements:
            demand[placed.queue_id] += most + placed.count
        here = {queue: now for queue, count in demand.most_common() if count}
        before = {q: at for q, at in self._wanted_at.items() if q not in here and now - at < _LATELY_SECONDS}
        self._wanted_at = {**here, **before}
        places = placement.places.queues.values()
        queues = {place.queue_id: place for place in places if not place.closed}
        kept = {queue: options.list_match_seconds(place.submission_pools) for queue, place in queues.items()}
        self._wanted = {
            shape: seconds
            for queue in self._wanted_at
            if (seconds := kept.get(queue)) is not None
            for shape in queues[queue].shapes
        }

    def refusal(self, shapes: Collection[PilotShape]) -> Refusal:
        """Why no pilot of these shapes would run, if that is known of all."""
        refusals = [self._refusal(shape) for shape in shapes]
        passing = [refusal.for_now for refusal in refusals if refusal.for_now]
        if not refusals or Refusal() in refusals:
            return Refusal()
        return Refusal(for_now=min(passing)) if passing else min(refusals)

    def _refusal(self, shape: PilotShape) -> Refusal:
        seconds, system = self._wanted.get(shape), self._known.get(shape.backend)
        if seconds is None or system is None or shape not in system.standing:
            return Refusal()
        answer = system.answers[shape]
        if not answer.refusal:
            return Refusal()
        again = utc(answer.again(seconds), "%H:%M:%S")
        text = f"{answer.refusal} (since {utc(answer.since)}, it is asked again after {again})"
        if answer.lasts:
            return Refusal(never=f"{shape.backend} says that it never runs pilots of {shape} there: {text}")
        return Refusal(for_now=f"{shape.backend} refuses pilots of {shape} there, which may pass: {text}")

    def tick(self, watch: BackendWatch, now: float) -> int:
        """Ask about a few shapes that are due; returns how many. After LodesmanError the next tick asks again."""
        backend, options = watch.backend, watch.options
        how, last = (backend, options), self._known.get(watch.name, _BackendAnswers())
        if last.how != how:  # another one, or asked in other words
            last = _BackendAnswers(how=how)
        periods = {shape: seconds for shape, seconds in self._wanted.items() if shape.backend == watch.name}
        answers = {
            shape: last.answers[shape]
            for shape in periods
            if shape in last.answers and last.answers[shape].at <= now
        }
        standing = {shape for shape, answer in answers.items() if now - answer.at < periods[shape]}
        asked_at = {shape: at for shape, at in last.asked.items() if shape in periods}
        due = sorted(
            (
                shape
                for shape in periods
                if shape not in answers or answers[shape].again(periods[shape]) <= now
            ),
            key=lambda shape: (not answers.get(shape, _NOTHING).refusal, asked_at.get(shape, 0.0)),
        )
        until, number = time.monotonic() + _BEGIN_SECONDS, 0
        try:
            for shape in due[:_MOST_AT_ONCE]:
                if number and time.monotonic() >= until:
                    break
                asked_at[shape] = now
                number += 1
                standing.discard(shape)
                before = answers.pop(shape, _NOTHING)
                check = backend.check(_spec(shape, options))
                if check.possible is not None:
                    answers[shape] = _heard(check, before, now)
                    standing.add(shape)
        finally:
            self._known[watch.name] = _BackendAnswers(
                how=how, answers=answers, standing=frozenset(standing), asked=asked_at
            )
        return number


_NOTHING: Final = _Answer(0.0)


def _spec(shape: PilotShape, options: tuple[str, ...]) -> PilotSpec:
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


def _heard(check: Check, before: _Answer, now: float) -> _Answer:
    """`before`: the last answer, unless a failure came between."""
    if check.possible:
        return _Answer(now)
    words = " ".join(check.detail.split())[:_MOST_WORDS] or "it gives no reason"
    since = before.since if before.refusal else now
    return _Answer(now, refusal=words, since=since, times=before.times + 1, final=check.final)
