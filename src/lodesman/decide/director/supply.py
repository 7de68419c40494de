"""Which pilot waits for which task queue: each for one, where the matcher would give it a job, first where it was
submitted for (the seed's rule).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.places import PoolServing, ServedTaskQueues
from lodesman.decide.director.plan import TaskQueueDemand, allowance
from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.resources import QueueId


class PilotStanding(StrEnum):
    """A live pilot. One unknown to its batch system counts as waiting; one bound to a job has not joined."""

    SUBMITTING = "submitting"
    WAITING = "waiting"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    SILENT = "silent"
    SHUT = "host shut"
    BOUND = "bound to a job"
    UNSTARTED = "not started yet by whoever has its file"


_NOT_STARTED = frozenset({PilotStanding.SUBMITTING, PilotStanding.WAITING})
_MAY_AGE = _NOT_STARTED | {PilotStanding.BOUND}
_TAKES_JOBS = frozenset({PilotStanding.IDLE, PilotStanding.BUSY})


class AsideReason(StrEnum):
    """Why a live pilot counts for no task queue."""

    TOO_OLD = "waits longer than maxPilotWaitingHours"
    BUSY = "runs jobs"
    DRAINING = "takes no more jobs"
    SILENT = "was not heard for long"
    SHUT = "runs on a host that gets no jobs"
    BOUND = "waits for the job that it is bound to"
    UNSTARTED = "is not started yet by whoever has its file"


_SET_ASIDE = {
    PilotStanding.BUSY: AsideReason.BUSY,
    PilotStanding.DRAINING: AsideReason.DRAINING,
    PilotStanding.SILENT: AsideReason.SILENT,
    PilotStanding.SHUT: AsideReason.SHUT,
    PilotStanding.BOUND: AsideReason.BOUND,
    PilotStanding.UNSTARTED: AsideReason.UNSTARTED,
}


class PilotView(Struct, frozen=True, kw_only=True):
    """A live pilot."""

    pilot_id: int
    standing: PilotStanding
    request: ResourceRequest  # what it presents, or will; of an idle pilot what is *left* of it
    submitted_at: float
    tq_id: int | None = None  # for which it was submitted
    barred: frozenset[int] = frozenset()  # task queues that limits keep from starting where it is


class Supply(Struct, frozen=True, kw_only=True):
    """The pilots of all task queues."""

    # usable waiting and idle pilots of each task queue (every one is present, maybe with 0)
    counted: Mapping[int, int]
    borrowed: Mapping[int, int]  # how many of these were submitted for another
    waiting: int = 0  # pilots that have not started and that a task queue could use
    running: int = 0  # pilots that run and take jobs, busy or idle
    spare: tuple[PilotView, ...] = ()  # no task queue needs them
    useless: frozenset[int] = frozenset()  # those of `spare` (ids) that none could use even if it needed more
    aged: tuple[PilotView, ...] = ()  # those of `aside` that wait too long
    aside: Mapping[AsideReason, int]  # pilots that count nowhere, by reason


def count_supply(
    demands: Sequence[TaskQueueDemand],
    pilots: Iterable[PilotView],
    *,
    table: KeyTable,
    serving: PoolServing,
    options: DirectorOptions,
    now: float,
) -> Supply:
    """Each usable pilot goes to one task queue: its own first, then the neediest. Needs are first the waiting jobs,
    then the formula's; pilots beyond that are spare.
    """
    max_waiting_s = options.max_pilot_waiting_hours * 3600.0
    aside: Counter[AsideReason] = Counter()
    usable: list[PilotView] = []
    aged: list[PilotView] = []
    running = 0
    for pilot in pilots:
        running += pilot.standing in _TAKES_JOBS
        reason = _SET_ASIDE.get(pilot.standing)
        if pilot.standing in _MAY_AGE and now - pilot.submitted_at >= max_waiting_s:
            reason = AsideReason.TOO_OLD
            aged.append(pilot)
        if reason is None:
            usable.append(pilot)
        else:
            aside[reason] += 1
    ledger = _Ledger(demands, table, serving)
    groups = _groups(usable)
    jobs = {demand.tq_id: demand.waiting_jobs for demand in demands}
    ledger.fill(groups, jobs)
    ledger.fill(groups, {tq_id: allowance(n, options) if n else 0 for tq_id, n in jobs.items()})
    useless = frozenset(
        pilot.pilot_id for group in groups if not ledger.usable(group) for pilot in group.pilots
    )
    return Supply(
        counted=ledger.counted,
        borrowed=ledger.borrowed,
        waiting=sum(view.standing in _NOT_STARTED and view.pilot_id not in useless for view in usable),
        running=running,
        spare=tuple(pilot for group in groups for pilot in group.pilots),
        useless=useless,
        aged=tuple(aged),
        aside=dict(aside),
    )


@dataclass(slots=True)
class _AlikePilots:
    tq_id: int | None
    request: ResourceRequest
    barred: frozenset[int]
    pilots: list[PilotView]


def _groups(pilots: Iterable[PilotView]) -> list[_AlikePilots]:
    """Private first, so that generic ones are left for others. A group is used from its end: idle pilots first, then
    the longest waiting.
    """
    by_kind: defaultdict[tuple[int | None, ResourceRequest, frozenset[int]], list[PilotView]] = defaultdict(
        list
    )
    for pilot in sorted(
        pilots, key=lambda pilot: (pilot.standing is PilotStanding.IDLE, -pilot.submitted_at, -pilot.pilot_id)
    ):
        by_kind[pilot.tq_id, pilot.request, pilot.barred].append(pilot)
    groups = [_AlikePilots(*kind, alike) for kind, alike in by_kind.items()]
    return sorted(groups, key=lambda group: group.request.groups is None)


class _NeedyQueues:
    """Most in need first."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._rank = {bit: rank for rank, bit in enumerate(order)}
        self.open = mask_of(order)

    def among(self, mask: int) -> Iterator[int]:
        """`close` may be called meanwhile."""
        open_queues = mask & self.open
        count = open_queues.bit_count()
        if count * count <= len(self._order):  # few: look them up; many: the next one is never far
            return iter(sorted(bits(open_queues), key=self._rank.__getitem__))
        return (bit for bit in self._order if open_queues >> bit & 1)

    def close(self, bit: int) -> None:
        self.open &= ~(1 << bit)
        if 2 * self.open.bit_count() < len(self._order):
            self._order = [bit for bit in self._order if self.open >> bit & 1]


class _Ledger:
    def __init__(self, demands: Sequence[TaskQueueDemand], table: KeyTable, serving: PoolServing) -> None:
        self.counted = {demand.tq_id: 0 for demand in demands}
        self.borrowed = dict(self.counted)
        self._table = table
        self._served = ServedTaskQueues(table, serving)
        self._usable: dict[ResourceRequest, int] = {}

    def usable(self, group: _AlikePilots) -> int:
        """The task queues that such pilots may serve."""
        request = group.request
        mask = self._usable.get(request)
        if mask is None:
            served = self._served.served_at(QueueId(request.site, request.ce, request.queue))
            mask = self._usable[request] = self._table.narrow_served(served, request)
        barred = [self._table.bit(tq_id) for tq_id in group.barred if tq_id in self.counted]
        return mask & ~mask_of(barred) if barred else mask

    def fill(self, groups: Sequence[_AlikePilots], levels: Mapping[int, int]) -> None:
        """One round: each task queue up to its level, own pilots first."""
        for group in groups:
            own = group.tq_id
            if own in self.counted and self.usable(group) >> self._table.bit(own) & 1:
                self._give(group, own, levels[own])
        left: dict[tuple[ResourceRequest, frozenset[int]], list[_AlikePilots]] = {}
        for group in groups:
            if group.pilots:
                left.setdefault((group.request, group.barred), []).append(group)
        lacking = {tq_id: n - levels[tq_id] for tq_id, n in self.counted.items() if n < levels[tq_id]}
        order = sorted((lack, tq_id) for tq_id, lack in lacking.items())
        needy = _NeedyQueues([self._table.bit(tq_id) for _, tq_id in order])
        for alike in left.values():
            self._lend(alike, needy, needy.among(self.usable(alike[0])), levels)

    def _lend(
        self,
        alike: Sequence[_AlikePilots],
        needy: _NeedyQueues,
        takers: Iterator[int],
        levels: Mapping[int, int],
    ) -> None:
        groups = list(alike)
        for bit in takers:
            tq_id = self._table.tq_id(bit)
            for group in groups:
                self._give(group, tq_id, levels[tq_id])
            if self.counted[tq_id] >= levels[tq_id]:
                needy.close(bit)
            groups = [group for group in groups if group.pilots]
            if not groups:
                return

    def _give(self, group: _AlikePilots, tq_id: int, level: int) -> None:
        count = min(len(group.pilots), max(0, level - self.counted[tq_id]))
        if count == 0:
            return
        del group.pilots[-count:]
        self.counted[tq_id] += count
        if group.tq_id != tq_id:
            self.borrowed[tq_id] += count
