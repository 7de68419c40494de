"""Chooses jobs for a resource, one by one, and counts what it may draw from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from lodesman.decide.matching.criteria import WHERE
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.lottery import Lottery, SharedSlot
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.spots import NONE_SHUT
from lodesman.decide.matching.views import Views, numbers_of
from lodesman.wire.vocabulary import MainReason


class Chances(Struct, frozen=True, kw_only=True):
    """What a request may draw from."""

    of_vo: int  # open task queues of its VO
    elsewhere: int  # open task queues of other VOs
    groups: tuple[tuple[str, int], ...]  # (group, eligible task queues) with a share
    without_share: tuple[tuple[str, int], ...]  # served only when no group with a share is eligible
    blocked: Mapping[str, int]  # by full limit, how many task queues it blocks

    @property
    def eligible(self) -> int:
        """How many task queues it may draw from."""
        return sum(n for _, n in (*self.groups, *self.without_share))


class Remainder(Struct, frozen=True, gc=False):
    """What a resource has left."""

    numbers: Sequence[int] = ()  # as `numbers_of`; (): what the resource presents
    shared: SharedSlot | None = None  # its slot, if several payloads share it and jobs are packed


_ALL_LEFT = Remainder()


class Matcher:
    """Index and lottery. Used from one thread."""

    __slots__ = ("_views", "index", "lottery")

    def __init__(self) -> None:
        self.index = Index()
        self.lottery = Lottery(self.index)
        self._views = Views(self.index)

    def choose(
        self,
        request: ResourceRequest,
        count: int,
        *,
        now: float,
        rng: random.Random,
        undo: list[Callable[[], object]],
        competed: list[str] | None = None,
        left: Remainder | None = None,
        place: RunPlace | None = None,
    ) -> list[int]:
        """Take up to `count` jobs, each by its own draw; returns their task queues in order.

        The inverse goes on `undo`, to be called last first. `competed` gets each job's competing groups with shares,
        as JSON. `left`: what the resource has left, if less than it presents; `place`: if its host is known.
        """
        view = self._views.view_of(request)
        left = left or _ALL_LEFT
        numbers, shared = left.numbers or numbers_of(request), left.shared
        index = self.index
        draw, limits, place = self.lottery.draw, index.limits, place or place_of(request, "")
        is_limited = limits.active
        chosen: list[int] = []
        as_of, among = (-1, -1), ""
        shut = NONE_SHUT
        for _ in range(count):
            if is_limited:
                shut = limits.shut_slots(place)
            if shared is not None and chosen:
                shared = shared.with_job(index.key(chosen[-1]))
            if competed is not None and (index.changes, shut.number) != as_of:
                as_of, among = (index.changes, shut.number), self.lottery.competing(view, numbers, shut)
            queue = draw(view, numbers, rng, shut, shared)
            if queue is None:
                break
            if competed is not None:
                competed.append(among)
            if not chosen:
                undo.append(partial(_give_back, index, chosen, place, now))
            index.take(queue.tq_id, 1, now=now)
            if is_limited or queue.cap is not None:
                index.count_start(queue.key, place)
            chosen.append(queue.tq_id)
        return chosen

    def eligible(self, request: ResourceRequest, host: str = "") -> list[int]:
        """The task queues that a request may draw from now. Not fast."""
        view = self._views.view_of(request)
        numbers = numbers_of(request)
        ballot = self.lottery.find_ballot(view)
        shut = self.index.limits.shut_slots(place_of(request, host))
        return [
            queue.tq_id
            for group in (*ballot.groups, *ballot.without_share)
            for queue in group.queues(view.mask(group, numbers, shut))
        ]

    def chances(self, request: ResourceRequest, host: str = "") -> Chances:
        """How much a resource may draw from."""
        view = self._views.view_of(request)
        numbers = numbers_of(request)
        ballot = self.lottery.find_ballot(view)
        place = place_of(request, host)
        shut = self.index.limits.shut_slots(place)
        of_vo = elsewhere = 0
        for group in self.index.groups():
            n = group.open.bit_count()
            of_vo, elsewhere = (of_vo + n, elsewhere) if group.vo == request.vo else (of_vo, elsewhere + n)
        groups, without_share = (
            tuple((group.name, n) for group in some if (n := view.mask(group, numbers, shut).bit_count()))
            for some in (ballot.groups, ballot.without_share)
        )
        blocked: Counter[str] = Counter()
        where = [criterion.of_request(request) for criterion in WHERE]
        for group in (*ballot.groups, *ballot.without_share):
            closed = group.alive & ~group.open
            if closed:
                for queue in group.queues(group.fitting(closed, where, numbers)):
                    blocked.update(queue.limits)
                    blocked[MainReason.AT_MOST] += queue.cap is not None and queue.cap.full
            if shut[group.number]:
                fitting = group.fitting(group.alive, where, numbers)
                for rule, masks in self.index.limits.closed_by(place):
                    blocked[rule] += (masks.get(group.number, 0) & fitting).bit_count()
        return Chances(
            of_vo=of_vo, elsewhere=elsewhere, groups=groups, without_share=without_share, blocked=+blocked
        )


def place_of(request: ResourceRequest, host: str) -> RunPlace:
    """Where a resource's jobs run, as limits see it."""
    return RunPlace(request.site, request.ce, request.queue, host)


def _give_back(index: Index, chosen: list[int], place: RunPlace, now: float) -> None:
    for tq_id in reversed(chosen):
        index.undo_start(index.key(tq_id), place)
        index.add_waiting(tq_id, 1, now=now)
