"""Keeps a fresh snapshot of what explanations go by: waiting task queues, live pilots, SubmitPools, the director's word.

The background process refreshes it beside the requests that use it, so that an explanation costs milliseconds whatever
the size of the installation; the more a refresh costs, the rarer it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

import msgspec

from lodesman.answers.nodes import QueueId
from lodesman.answers.why_jobs import JobPilots
from lodesman.commands.pool_map import KnownPools, PoolMap, PoolQueues
from lodesman.commands.sessions import PilotSession, takes_jobs
from lodesman.commands.site_mask import KnownMask
from lodesman.director.site_mask import DrainedNodes, SiteMask
from lodesman.director.supply import PilotStanding
from lodesman.masks.bits import mask_of
from lodesman.matching import ResourceRequest, TaskQueueKey
from lodesman.matching.tables import KeyTable, RequestTable
from lodesman.store import Reader
from lodesman.store.director import iteration_after, iteration_at
from lodesman.store.read.pilots import LivePilot, PilotRow, pilots_by_id, pilots_in_short
from lodesman.store.read.submit_pools import pass_requests
from lodesman.store.read.task_queues import keys_by_id, keys_version, waiting_by_queue
from lodesman.why.facts import DirectorNow, RecordedIteration, Snapshot, Waiting, fresh_seconds
from lodesman.why.survey import ALL, Survey, WaitingTaskQueues
from lodesman.why.verdict import since

_FRESH_SECONDS: Final = fresh_seconds(120.0)
_LEAST_SECONDS: Final = 0.1
_CHEAP_SECONDS: Final = 0.015
# Seconds between refreshes, for each second that one takes; where that is more than _PROMPT_SECONDS, fewer.
_REST: Final = 200.0
_SHORT_REST: Final = 20.0
_PROMPT_SECONDS: Final = 4.0
_OLDEST_SECONDS: Final = (
    60.0  # of a snapshot, whatever it costs: the next one begins so early that it is done by then
)


class KnownQueues:
    """The task queues with waiting jobs: read once, then only what changed.

    An id is never given out again, and keys change only when declared types do, which is counted: so only new task
    queues are read. One thread calls `read`, to which `table` belongs, too; any thread may ask for a `survey`.
    """

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._keys: dict[int, TaskQueueKey] = {}
        self._waiting: Mapping[int, int] = {}
        self._rekeyed: int | None = None
        self._changing = Lock()
        self.table = KeyTable()

    def read(self) -> list[Waiting]:
        """(id, key, waiting) of every task queue with waiting jobs now, by id."""
        with self._db:  # one moment: a task queue may be joined to another between two
            rekeyed, waiting = keys_version(self._db), waiting_by_queue(self._db)
            known = self._keys.keys() if rekeyed == self._rekeyed else set[int]()
            come = sorted(waiting.keys() - known)
            keys = keys_by_id(self._db, come) if come else {}
        with self._changing:
            self._rekeyed = rekeyed
            for tq_id in self._keys.keys() - (waiting.keys() & known):
                del self._keys[tq_id]
                self.table.drop(tq_id)
            for tq_id, key in keys.items():
                self._keys[tq_id] = key
                self.table.put(tq_id, key)
            self._waiting = waiting
        return [(tq_id, self._keys[tq_id], count) for tq_id, count in sorted(waiting.items())]

    def survey(self, request: ResourceRequest, criteria: Collection[str] = ALL) -> Survey:
        """All of them, as of the last `read`, held against a resource."""
        with self._changing:
            queues = WaitingTaskQueues(table=self.table, keys=self._keys, waiting=self._waiting)
            return queues.survey(request, criteria)


class PilotBook:
    """Live pilots as masks: which of them could take the jobs of a task queue.

    The predicate is the claim's own, on what a pilot presents when nothing runs in it. The SubmitPools that it serves
    follow from its queue. One thread refreshes, any may ask; answers are as of the last `refresh`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
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
        self._inhabited: dict[frozenset[QueueId], frozenset[ResourceRequest]] = {}
        self._by_vo: dict[str, int] = {}
        self._heard: dict[str, float] = {}

    def refresh(self, db: Reader, now: float) -> None:
        """Read who lives; only pilots that are new, have joined since or whose queue has changed are read whole."""
        rows, known = pilots_in_short(db), self._slots
        changed = [
            row.id
            for row in rows
            if row.id not in known or known[row.id][1:] != (row.joined_at is not None, hash(row.request))
        ]
        found = pilots_by_id(db, changed) if changed else []
        alive = {row.id for row in rows}
        with self._lock:
            for number in [number for number in known if number not in alive]:
                self._drop(number)
            for pilot in found:
                self._put(pilot, now)
            self._grow_old(now)
            self._sort(rows, now)

    def usable(
        self, key: TaskQueueKey, served: Container[QueueId] | None, *, now: float, alike: Hashable = None,
        drained: DrainedNodes | None = None,
    ) -> JobPilots:  # fmt: skip
        """The pilots for a key; `served` are the queues that serve its SubmitPool (None: it has none), and `alike` an equal
        value for equal queues: they are found once. `drained`: where pilots leave since the last refresh, or sooner.
        """
        place = replace(key, submit_pool="") if key.submit_pool else key
        with self._lock:
            standing = self._standing
            coming = standing[PilotStanding.SUBMITTING] | standing[PilotStanding.WAITING]
            idle, busy = standing[PilotStanding.IDLE], standing[PilotStanding.BUSY]
            silent, draining = standing[PilotStanding.SILENT], standing[PilotStanding.DRAINING]
            alive = idle | busy | coming | silent
            leave = 0 if drained is None else alive & self._pilots_in(drained, drained)
            fit = self._table.narrow(alive & ~leave, place)
            if served is not None:
                fit &= self._pilots_in(served, alike)
            mine = self._by_vo.get(key.vo, 0)
            return JobPilots(
                live=mine.bit_count(),
                usable_idle=(fit & idle).bit_count(),
                usable_busy=(fit & busy).bit_count(),
                usable_waiting=(fit & coming).bit_count(),
                draining=(mine & (draining | leave)).bit_count(),
                silent=(fit & silent).bit_count(),
                seen_seconds_ago=since(self._heard.get(key.vo), now),
            )

    def inhabited(self, queues: frozenset[QueueId]) -> frozenset[ResourceRequest]:
        """What the pilots in these queues that take jobs now or later present while nothing runs in them."""
        with self._lock:
            found = self._inhabited.get(queues)
            if found is None:
                away = self._standing[PilotStanding.SILENT] | self._standing[PilotStanding.DRAINING]
                there = self._pilots_in(queues, None) & ~away
                requests = self._requests
                found = self._inhabited[queues] = (
                    frozenset(
                        requests[number] for number, (slot, *_) in self._slots.items() if there >> slot & 1
                    )
                    if there
                    else frozenset()
                )
            return found

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
        self._free.append(slot)

    def _put(self, row: PilotRow, now: float) -> None:
        if row.id in self._slots:
            self._drop(row.id)
        session = PilotSession(row, now=now)
        request = session.empty(now)
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[row.id] = slot, row.joined_at is not None, hash(row.request)
        self._requests[row.id] = request
        self._table.add(slot, request)
        if session.is_mortal:
            self._mortal[row.id] = session

    def _grow_old(self, now: float) -> None:
        """Pilots whose life has an end offer less than at the last refresh."""
        for number, session in self._mortal.items():
            request, before = session.empty(now), self._requests[number]
            if request is not before:
                slot = self._slots[number][0]
                self._table.remove(slot, before)
                self._table.add(slot, request)
                self._requests[number] = request

    def _sort(self, rows: Sequence[LivePilot], now: float) -> None:
        """Who is what and where, anew: a few appends for each pilot."""
        slots: dict[PilotStanding, list[int]] = {one: [] for one in PilotStanding}
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
        self._standing = {one: mask_of(found) for one, found in slots.items()}
        self._by_place = {place: mask_of(found) for place, found in by_place.items()}
        self._there = {}
        self._inhabited = {}
        self._by_vo = {vo: mask_of(found) for vo, found in by_vo.items()}


def standing_of(pilot: LivePilot, now: float) -> PilotStanding:
    """Whether a live pilot takes jobs now or later."""
    if not takes_jobs(pilot, now):
        return PilotStanding.DRAINING if pilot.drain else PilotStanding.SILENT
    if pilot.state != "Running":
        return PilotStanding.SUBMITTING if pilot.state == "Prepared" else PilotStanding.WAITING
    return PilotStanding.BUSY if pilot.is_busy else PilotStanding.IDLE


class SnapshotKeeper:
    """Has a read connection of its own. Any thread may refresh, one at a time, and any may ask."""

    def __init__(self, db: Reader, *, fresh_seconds: float = _FRESH_SECONDS) -> None:
        self.fresh_seconds = fresh_seconds
        self.ask_director: Callable[[], DirectorNow] = DirectorNow
        """Where a director runs, what it says of itself."""
        self.pilots = PilotBook()
        self.snapshot = Snapshot(at=0.0, fresh_seconds=fresh_seconds, waiting=(), groups={}, iteration=None)
        self.at: float | None = None
        """When the last refresh was; None before the first."""
        self.competing: dict[str, tuple[str, Mapping[str, int] | None]] = {}
        """VO -> version of its configuration, and the queues that can run waiting jobs of each group, as last judged."""
        self._db = db
        self.task_queues = KnownQueues(db)
        self._known_pools = KnownPools(db)
        self.pools = PoolMap()
        """The SubmitPools as of the last refresh."""
        self._mask = KnownMask()
        self._cost = 0.0
        self._refreshing = Lock()

    def refresh(self, now: float, *, rest: float = 1.0) -> None:
        """Read everything anew if the last refresh is older than its time of rest, `rest` times over. When the director last
        decided is read in any case.

        A refresh under way is not waited for, except the first.
        """
        if not self._refreshing.acquire(blocking=self.at is None):
            return
        try:
            if self.at is not None and 0.0 <= now - self.at < self._rest_seconds(rest):
                self.snapshot = replace(
                    self.snapshot, decided_after=iteration_at(self._db), director=self.ask_director()
                )
                return
            begun = time.perf_counter()
            self.pilots.refresh(self._db, now)
            self.snapshot = self._read(now)
            self.pools = self._known_pools.look()
            self._cost = time.perf_counter() - begun
            self.at = now
        finally:
            self._refreshing.release()

    def _rest_seconds(self, rest: float) -> float:
        longest = max(self._cost, _OLDEST_SECONDS - 2 * self._cost)
        usual = min(self._cost * _REST, max(_PROMPT_SECONDS, self._cost * _SHORT_REST))
        return min(longest, rest * max(_LEAST_SECONDS, usual))

    def _read(self, now: float) -> Snapshot:
        waiting = self.task_queues.read()
        groups: Counter[tuple[str, str]] = Counter()
        for _, key, jobs in waiting:
            groups[key.vo, key.group] += jobs
        iteration = self.snapshot.iteration
        found = iteration_after(self._db, iteration.number if iteration else 0)
        if found is not None:
            iteration = RecordedIteration(found[0], found[1], msgspec.json.decode(found[2]), before=iteration)
        return Snapshot(
            at=now, fresh_seconds=self.fresh_seconds, waiting=waiting, groups=groups, iteration=iteration,
            director=self.ask_director(),
        )  # fmt: skip

    def serving(self, db: Reader, pool: str) -> PoolQueues | None:
        """The queues that serve a SubmitPool now; None if the pools have changed since the last refresh."""
        return self._known_pools.serving(pool, pass_requests(db).version)

    def mask(self, db: Reader) -> SiteMask:
        """What is closed now, not as of the last refresh. `db`: the connection of the thread that asks."""
        return self._mask.look(db)

    @property
    def is_cheap(self) -> bool:
        """Whether a refresh costs so little that a request may wait for one."""
        return self._cost < _CHEAP_SECONDS
