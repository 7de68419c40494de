"""Live pilots as masks: which could take the jobs of a task queue, how many of these at once, and how soon."""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from operator import attrgetter, or_
from threading import Lock
from typing import Any, Final

from lodesman.decide.director.site_mask import NOTHING_CLOSED, DrainedNodes, SiteMask
from lodesman.decide.director.supply import PilotStanding
from lodesman.decide.explain.facts import UnreachedPilots
from lodesman.decide.explain.starts import JobsInPilots
from lodesman.decide.explain.turns import PilotCounts, Size, masks
from lodesman.decide.explain.verdict import since
from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.tables import RequestTable
from lodesman.server.loops.left_out import Item, StepPass, task_queue
from lodesman.server.loops.limit_use import NOWHERE, Barrier
from lodesman.server.loops.standing import AWAY, is_whole, mark_shut, standing_of
from lodesman.server.loops.traffic import PilotTraffic
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import (
    LivePilot,
    PilotRow,
    RunningAttempt,
    pilots_by_id,
    pilots_in_short,
    running_attempts,
)
from lodesman.server.store.task_queues import keys_by_id
from lodesman.server.writer.claim import reckon_free
from lodesman.server.writer.sessions import FreeResources, PilotSession
from lodesman.wire.nodes import QueueId
from lodesman.wire.why_jobs import JobPilots

_SIZES_KEPT: Final = 100_000


class PilotBook:
    """Live pilots as masks, as of the last `refresh`. One thread refreshes, any may ask. Predicates are the claim's
    own, on what a pilot presents while nothing runs in it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.version = 0  # changes with what it answers, but for how long ago pilots were heard
        self._contents: tuple[object, ...] = ()  # what `version` stands for, beside what pilots present
        self._table = RequestTable()
        # pilot -> (slot, whether it had joined, the hash of its stored request)
        self._slots: dict[int, tuple[int, bool, int]] = {}
        self._requests: dict[int, ResourceRequest] = {}
        self._mortal: dict[int, PilotSession] = {}
        self._free: list[int] = []
        self._standing = dict.fromkeys(PilotStanding, 0)
        self._by_place: dict[QueueId, int] = {}
        # Places that were asked about, by a value that stands for them -> the pilots there.
        self._there: dict[Hashable, int] = {}
        self.own: Mapping[QueueId, PilotCounts] = {}  # our pilots in each CE queue where some are
        # By CE queue where none has joined, pilots that run and have not reached the server for too long.
        self.unreached: Mapping[QueueId, UnreachedPilots] = {}
        # All of them, and those in these queues.
        self._away = self._unreached = 0
        self.traffic = PilotTraffic()
        self._sizes: dict[int, tuple[int, int]] = {}
        # By what is free of pilots that joined, and by what those that join within a minute will have.
        self._free_now: dict[Size, int] = {}
        self._free_soon: dict[Size, int] = {}
        self.attempts: Sequence[RunningAttempt] = ()  # all that live
        self._begun: dict[int, list[tuple[int, int, float]]] = {}
        self._ends: dict[int, JobsInPilots] = {}
        self._inhabited: dict[frozenset[QueueId], frozenset[ResourceRequest]] = {}
        self._by_vo: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        self._mask = NOTHING_CLOSED
        # What those present but for closings that are announced.
        self._uncut: dict[int, ResourceRequest] = {}

    def refresh(
        self, db: Reader, now: float, rooms: Mapping[str, Mapping[str, Any]] | None = None, *,
        mask: SiteMask = NOTHING_CLOSED, left: StepPass | None = None, shut: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Read who lives; whole rows only of what is new, has joined, or has another queue. `rooms`: of CE queues,
        in the director's last record. `shut`: sites where local pilots get no jobs.
        """
        left = left or StepPass("pilots", {})
        before, self._mask = self._mask, mask
        rows, before_slots = mark_shut(pilots_in_short(db), shut), self._slots
        soon, attempts = self.traffic.take(rows, rooms or {}, now), running_attempts(db)
        held = self._held_by(db, attempts, left)
        changed = [
            row.id
            for row in rows
            if row.id not in before_slots
            or before_slots[row.id][1:] != (row.joined_at is not None, hash(row.request))
            or (
                before is not mask
                and before.end_of_jobs(row.queue_id, now) != mask.end_of_jobs(row.queue_id, now)
            )
        ]
        new = left.in_parts(changed, partial(pilots_by_id, db), partial(Item, "pilot")) if changed else []
        with self._lock:
            for number in before_slots.keys() - {row.id for row in rows}:
                self._drop(number)
            for pilot in chain.from_iterable(new):
                with left.item(Item("pilot", pilot.id)):
                    self._put(pilot, now)
            self._grow_old(now)
            self._sort([row for row in rows if is_whole(row, left)], now)
            self.own = self.traffic.own
            self._measure(rows, soon, held)
            self.attempts = attempts
            self._begun, self._ends = self._begun_in(attempts), {}
            contents = (
                self._standing, self._by_place, self._by_vo, self._away, self._unreached, self._free_now, self._free_soon,
                self._begun, self.own,
            )  # fmt: skip
            if contents != self._contents:
                self.version, self._contents = self.version + 1, contents

    def usable(
        self, key: TaskQueueKey, served: Container[QueueId] | None, *, now: float, alike: Hashable = None,
        drained: DrainedNodes | None = None, barred: Barrier = NOWHERE,
    ) -> JobPilots:  # fmt: skip
        """The pilots for a key. `served`: the queues of its SubmitPool (None: it has none); equal queues have an
        equal `alike`. `drained`: where pilots leave since the last refresh. `barred`: where limits keep its jobs
        from starting.
        """
        with self._lock:
            standing = self._standing
            coming = standing[PilotStanding.SUBMITTING] | standing[PilotStanding.WAITING]
            idle, busy = standing[PilotStanding.IDLE], standing[PilotStanding.BUSY]
            silent, draining = standing[PilotStanding.SILENT], standing[PilotStanding.DRAINING]
            shut = standing[PilotStanding.SHUT]
            alive = idle | busy | coming | silent | shut
            leave = 0 if drained is None else alive & self._pilots_in(drained, drained)
            fit = self._fitting(alive & ~leave, key, served, alike)
            limited = fit & self._barred(barred, idle, busy, coming)
            fit &= ~limited
            away = fit & self._unreached
            fit &= ~self._away
            mine = self._by_vo.get(key.vo, 0)
            return JobPilots(
                live=mine.bit_count(),
                usable_idle=(fit & idle).bit_count(),
                usable_busy=(fit & busy).bit_count(),
                usable_waiting=(fit & coming).bit_count(),
                draining=(mine & (draining | leave)).bit_count(),
                silent=(fit & silent).bit_count(),
                shut=(fit & shut).bit_count(),
                seen_seconds_ago=since(self._heard.get(key.vo), now),
                free_starts=_starts(self._free_now, key, fit & (idle | busy)),
                soon_starts=_starts(self._free_soon, key, fit & coming),
                unreached=away.bit_count(),
                limited=(limited & ~self._pilots_in(barred.never, None)).bit_count() if limited else 0,
            )

    def _barred(self, barred: Barrier, idle: int, busy: int, coming: int) -> int:
        if barred is NOWHERE:
            return 0
        named = self._slots_of(barred.pilots)
        placed = self._pilots_in(barred.queues, None)
        if barred.by_queue:
            return named & idle | placed & (busy | coming)
        return named & (idle | busy) | placed & coming

    def running(
        self, key: TaskQueueKey, served: Container[QueueId] | None, *, drained: DrainedNodes | None = None,
        barred: Barrier = NOWHERE,
    ) -> JobsInPilots:  # fmt: skip
        """What runs in the busy ones of these pilots."""
        with self._lock:
            busy = self._standing[PilotStanding.BUSY]
            busy &= ~(0 if drained is None else self._pilots_in(drained, drained)) & ~self._barred(
                barred, 0, busy, 0
            )
            fit = self._fitting(busy, key, served, None)
            jobs = self._ends.get(fit)
            if jobs is None:
                begun: dict[tuple[int, int], list[float]] = {}
                for slot in bits(fit):
                    for tq_id, cores, at in self._begun.get(slot, ()):
                        begun.setdefault((tq_id, cores), []).append(at)
                jobs = self._ends[fit] = JobsInPilots(fit, begun)
            return jobs

    def _fitting(
        self, pilots: int, key: TaskQueueKey, served: Container[QueueId] | None, alike: Hashable
    ) -> int:
        fit = self._table.narrow(pilots, replace(key, submit_pool="") if key.submit_pool else key)
        return fit if served is None else fit & self._pilots_in(served, alike)

    def _slots_of(self, pilots: Iterable[int]) -> int:
        return mask_of(self._slots[pilot][0] for pilot in pilots if pilot in self._slots)

    def inhabited(self, queues: frozenset[QueueId]) -> frozenset[ResourceRequest]:
        """What the pilots in these queues that take jobs now or later present while nothing runs in them."""
        with self._lock:
            presented = self._inhabited.get(queues)
            if presented is None:
                away = reduce(or_, map(self._standing.__getitem__, AWAY))
                here = self._pilots_in(queues, None) & ~away
                requests = self._requests
                presented = self._inhabited[queues] = (
                    frozenset(
                        self._uncut.get(number, requests[number])
                        for number, (slot, *_) in self._slots.items()
                        if here >> slot & 1
                    )
                    if here
                    else frozenset()
                )
            return presented

    def _pilots_in(self, places: Container[QueueId], alike: Hashable) -> int:
        here = None if alike is None else self._there.get(alike)
        if here is None:
            here = 0
            for queue, mask in self._by_place.items():
                if queue in places:
                    here |= mask
            if alike is not None:
                self._there[alike] = here
        return here

    def _drop(self, number: int) -> None:
        slot, *_ = self._slots.pop(number)
        self._table.remove(slot, self._requests.pop(number))
        self._mortal.pop(number, None)
        self._uncut.pop(number, None)
        self._free.append(slot)

    def _put(self, row: PilotRow, now: float) -> None:
        if row.id in self._slots:
            self._drop(row.id)
        session, end = PilotSession(row, now=now), self._mask.end_of_jobs(row.queue_id, now)
        request = session.empty(now, end)
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[row.id] = slot, row.joined_at is not None, hash(row.request)
        self._requests[row.id] = request
        self._table.add(slot, request)
        self.version += 1
        if end is not None:
            self._uncut[row.id] = session.empty(now)
        if session.is_mortal or end is not None:
            self._mortal[row.id] = session

    def _held_by(
        self, db: Reader, attempts: Sequence[RunningAttempt], left: StepPass
    ) -> dict[int, list[tuple[int, int]]]:
        """By pilot, the cores and MB (0: the part of its cores) of each live attempt."""
        new = {attempt.task_queue for attempt in attempts} - self._sizes.keys()
        if len(self._sizes) + len(new) > _SIZES_KEPT:
            self._sizes, new = {}, {attempt.task_queue for attempt in attempts}
        for keys in left.in_parts(sorted(new), partial(keys_by_id, db), task_queue) if new else ():
            self._sizes |= {tq_id: (key.cores, key.memory_mb) for tq_id, key in keys.items()}
        held: dict[int, list[tuple[int, int]]] = {}
        for attempt in attempts:
            held.setdefault(attempt.pilot, []).append(self._sizes.get(attempt.task_queue, (1, 0)))
        return held

    def _begun_in(self, attempts: Sequence[RunningAttempt]) -> dict[int, list[tuple[int, int, float]]]:
        begun: dict[int, list[tuple[int, int, float]]] = {}
        for attempt in attempts:
            slot = self._slots.get(attempt.pilot)
            if slot is not None:
                cores, _ = self._sizes.get(attempt.task_queue, (1, 0))
                begun.setdefault(slot[0], []).append((attempt.task_queue, cores, attempt.claimed_at))
        return begun

    def _measure(
        self, rows: Sequence[LivePilot], soon: Container[int], held: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        now: list[tuple[Size, int]] = []
        later: list[tuple[Size, int]] = []
        for row in rows:
            request = self._requests.get(row.id)
            if request is None or not (row.joined_at is not None or row.id in soon):
                continue
            whole = FreeResources(request.cores, request.memory_mb, request.norm_cpu_seconds)
            free = reckon_free(whole, None, held[row.id]) if row.id in held else whole
            sizes = now if row.joined_at is not None else later
            sizes.append((Size(free.cores, free.memory_mb), self._slots[row.id][0]))
        self._free_now, self._free_soon = masks(now), masks(later)

    def _grow_old(self, now: float) -> None:
        """Pilots whose life has an end offer what they have left."""
        for number, session in self._mortal.items():
            end = self._mask.end_of_jobs(session.queue, now)
            request, before = session.empty(now, end), self._requests[number]
            if request is not before:
                slot = self._slots[number][0]
                self._table.remove(slot, before)
                self._table.add(slot, request)
                self._requests[number] = request
                self.version += 1

    def _sort(self, rows: Sequence[LivePilot], now: float) -> None:
        slots: dict[PilotStanding, list[int]] = {standing: [] for standing in PilotStanding}
        by_place: dict[QueueId, list[int]] = {}
        by_vo: dict[str, list[int]] = {}
        self._heard = {}
        for row in rows:
            if row.id not in self._slots:  # it joined between the two queries: next time
                continue
            slot = self._slots[row.id][0]
            slots[standing_of(row, now)].append(slot)
            by_place.setdefault(row.queue_id, []).append(slot)
            by_vo.setdefault(row.vo, []).append(slot)
            if row.last_seen is not None:
                self._heard[row.vo] = max(row.last_seen, self._heard.get(row.vo, row.last_seen))
        self._note_unreached(rows, now)
        self._standing = {standing: mask_of(some) for standing, some in slots.items()}
        self._by_place = {place: mask_of(some) for place, some in by_place.items()}
        self._there = {}
        self._inhabited = {}
        self._by_vo = {vo: mask_of(some) for vo, some in by_vo.items()}

    def _note_unreached(self, rows: Sequence[LivePilot], now: float) -> None:
        joined = {row.queue_id for row in rows if row.joined_at is not None}
        away: dict[QueueId, list[LivePilot]] = {}
        for row in rows:
            if row.id in self._slots and row.is_unreached(now):
                away.setdefault(row.queue_id, []).append(row)
        self._away = mask_of(self._slots[row.id][0] for some in away.values() for row in some)
        of_new = ((queue, some) for queue, some in away.items() if queue not in joined)
        first = {queue: min(some, key=attrgetter("native_seen")) for queue, some in of_new}
        self.unreached = {
            queue: UnreachedPilots(len(away[queue]), row.native_seen or 0.0, row.host)
            for queue, row in first.items()
        }
        self._unreached = mask_of(self._slots[row.id][0] for queue in first for row in away[queue])


def _starts(by_size: Mapping[Size, int], key: TaskQueueKey, fit: int) -> int:
    return sum(size.jobs(key) * (mask & fit).bit_count() for size, mask in by_size.items()) if fit else 0
