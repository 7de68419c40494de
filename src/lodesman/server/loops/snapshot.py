"""Keeps a fresh snapshot of what explanations go by; the more a refresh costs, the rarer it is."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from threading import Lock
from typing import Final

import msgspec
from msgspec.structs import replace

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.closing import NONE_SHUT, ShutHosts
from lodesman.decide.explain.facts import DirectorState, Snapshot, fresh_seconds
from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.explain.survey import ALL, Survey, WaitingTaskQueues
from lodesman.decide.explain.turns import SOON_SECONDS, Contest, VOSlots, Waiting, vo_slots
from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.group_index import startable
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.loops.left_out import LeftOutItems, StepPass, task_queue
from lodesman.server.loops.pilot_book import PilotBook
from lodesman.server.loops.traffic import JobsOfLate, StartsOfLate
from lodesman.server.store import Reader
from lodesman.server.store.changes import Marks, change_marks
from lodesman.server.store.director import iteration_after, iteration_at
from lodesman.server.store.hosts import host_records
from lodesman.server.store.read.pilots import taken_jobs
from lodesman.server.store.submit_pools import pass_requests
from lodesman.server.store.task_queues import keys_by_id, keys_version, waiting_by_queue
from lodesman.server.writer.pool_map import KnownPools, PoolMap, PoolQueues
from lodesman.server.writer.site_ads import KnownAds
from lodesman.server.writer.site_mask import KnownMask
from lodesman.wire.hosts import reported_host

_FRESH_SECONDS: Final = fresh_seconds(120.0)
_LEAST_SECONDS: Final = 0.1
_CHEAP_SECONDS: Final = 0.015
_REST: Final = 200.0  # seconds between refreshes, for each second that one takes
_UNCHANGED_REST: Final = 500.0  # the same where nothing changed
_PROMPT_SECONDS: Final = 4.0  # a longer rest is cut down to _SHORT_REST
_SHORT_REST: Final = 10.0
_OLDEST_SECONDS: Final = (
    60.0  # of a snapshot: the next refresh is done by then, whatever it costs, if nothing changed
)


class KnownQueues:
    """The task queues with waiting jobs, but for those whose jobs wait for others. One thread calls `read` and uses
    `table`; any may ask for a `survey`.
    """

    def __init__(self, db: Reader, left_out: LeftOutItems | None = None, step: str = "task queues") -> None:
        """`step`: what those that cannot be read are left out of."""
        self._db, self._left_out, self._step = db, left_out or LeftOutItems(), step
        self._keys: dict[int, TaskQueueKey] = {}
        self.version = 0  # changes when a key or a count does
        self._waiting: Mapping[int, int] = {}
        self._rows: list[Waiting] = []  # as `read` returned them
        self._rekeyed: int | None = None
        self._changing = Lock()
        self.table = KeyTable()

    def read(self) -> list[Waiting]:
        """(id, key, waiting) of every task queue with waiting jobs now, by id; the same list as long as it is the same."""
        with self._db:  # one moment: a task queue may be joined to another between two
            rekeyed, waiting = keys_version(self._db), waiting_by_queue(self._db)
            known_ids = self._keys.keys() if rekeyed == self._rekeyed else set[int]()
            come = sorted(waiting.keys() - known_ids)
            keys: dict[int, TaskQueueKey] = {}
            with self._left_out.step(self._step) as left:
                for some in left.in_parts(come, partial(keys_by_id, self._db), task_queue) if come else []:
                    keys |= some
        if rekeyed == self._rekeyed and not keys and waiting == self._waiting:
            return self._rows
        with self._changing:
            self._rekeyed = rekeyed
            for tq_id in self._keys.keys() - (waiting.keys() & known_ids):
                if not self._keys.pop(tq_id).waits_for_jobs:
                    self.table.drop(tq_id)
            for tq_id, key in keys.items():
                self._keys[tq_id] = key
                if not key.waits_for_jobs:
                    self.table.put(tq_id, key)
            self._waiting = waiting
        all_keys = self._keys
        self._rows = [
            (tq_id, all_keys[tq_id], jobs) for tq_id, jobs in sorted(waiting.items()) if tq_id in all_keys
        ]
        self.version += 1
        return self._rows

    def startable(self, waiting: list[Waiting]) -> list[Waiting]:
        """Those that may start by `AtMost`, with the number of their jobs that may."""
        if not any(key.at_most for _, key, _ in waiting):
            return waiting
        return startable(waiting, taken_jobs(self._db))

    def survey(
        self, request: ResourceRequest, criteria: Collection[str] = ALL, *,
        private_pools: Collection[str] | None = None,
    ) -> Survey:  # fmt: skip
        """All as of the last `read`, held against a resource (`WaitingTaskQueues.survey`)."""
        with self._changing:
            keys = {tq_id: key for tq_id, key in self._keys.items() if not key.waits_for_jobs}
            waiting = {tq_id: self._waiting.get(tq_id, 0) for tq_id in keys}
            queues = WaitingTaskQueues(table=self.table, keys=keys, waiting=waiting)
            return queues.survey(request, criteria, private_pools=private_pools)


class SnapshotKeeper:
    """Any thread may refresh, one at a time, and any may ask."""

    def __init__(
        self, db: Reader, *, fresh_seconds: float = _FRESH_SECONDS, left_out: LeftOutItems | None = None
    ) -> None:
        self.fresh_seconds = fresh_seconds
        self.left_out = left_out or LeftOutItems()
        # Where a director runs, what it says of itself.
        self.ask_director: Callable[[], DirectorState] = DirectorState
        self.pilots = PilotBook()
        self.shut_hosts = NONE_SHUT
        self.snapshot = Snapshot(at=0.0, fresh_seconds=fresh_seconds, waiting=(), groups={}, iteration=None)
        self.at: float | None = None  # of the last refresh
        self.version = 0  # changes with a refresh that found anything changed
        self._db = db
        self.task_queues = KnownQueues(db, self.left_out, "the snapshot: task queues")
        self.startable: list[Waiting] = []  # as of the last refresh (`KnownQueues.startable`)
        self.polling_seconds = SOON_SECONDS  # between two iterations of the director
        # The groups whose owners are not distinguished.
        self.sharing: Callable[[], Collection[str]] = frozenset
        self.ads = KnownAds()  # of sites, as they are now
        self.contest = Contest()
        self.starts, self.jobs = StartsOfLate(db), JobsOfLate(db)
        self._vo_slots: dict[tuple[str, str, float], VOSlots] = {}
        self._apart: Collection[int] = frozenset()
        self._where: Mapping[str, tuple[str, Mapping[int, int]]] = {}
        self._known_pools = KnownPools(db)
        self.pools = PoolMap()  # as of the last refresh
        self._mask = KnownMask()
        self._iteration: RecordedIteration | None = None  # as it is stored
        self._competing: tuple[object, ...] = ()  # what the contest was made of
        self._marks: Marks | None = None  # as of the last refresh
        self._contents: tuple[object, ...] = ()  # what `version` stands for
        self._cost = self._changed_cost = 0.0  # of the last refresh, and of the last that found a change
        self._refreshing = Lock()

    def refresh(self, now: float, *, rest: float = 1.0) -> None:
        """Read when the director last decided, and all else if the last refresh has had its rest, `rest` times
        over; where nothing changed the rest is the longest. Only the first refresh is waited for.
        """
        if not self._refreshing.acquire(blocking=self.at is None):
            return
        try:
            marks = self._due(now, rest)
            if marks is None:
                self.snapshot = replace(
                    self.snapshot, decided_after=iteration_at(self._db), director=self.ask_director(),
                    left_out=self.left_out.named(),
                )  # fmt: skip
                return
            begun = time.thread_time()  # what waits for others costs nothing
            with self.left_out.step("the snapshot") as left:
                snapshot = self._read(now, left)
                rooms = snapshot.iteration.record["rooms"] if snapshot.iteration else {}
                with left.item("hosts"):
                    shut = {host: record for host, record in host_records(self._db).items() if record.shut}
                    self.shut_hosts = ShutHosts(shut, reported_host(socket.gethostname()))
                with left.item("pilots"):
                    mask, sites = self._mask.look(self._db), self.shut_hosts.sites
                    self.pilots.refresh(self._db, now, rooms, mask=mask, left=left, shut=sites)
                    if snapshot.iteration is not None:
                        ended = self.pilots.traffic.ended_since(snapshot.iteration.at)
                        snapshot = replace(snapshot, iteration=snapshot.iteration.after_ends(ended))
                with left.item("starts of late"):
                    new = self.starts.read(now, snapshot.waiting)
                    self.jobs.read(self.pilots.attempts, new, self.starts)
                with left.item("SubmitPools"):
                    self.pools = self._known_pools.look()
            contents = marks, self.task_queues.version, self.pilots.version, snapshot.iteration, self.pools
            self._vo_slots, self.snapshot, self._marks = {}, snapshot, marks
            self._cost = time.thread_time() - begun
            if contents != self._contents:
                self.version, self._contents, self._changed_cost = self.version + 1, contents, self._cost
            self.at = now
        finally:
            self._refreshing.release()

    def _due(self, now: float, rest: float) -> Marks | None:
        """The marks of the database before a refresh; None if none is due."""
        age = inf if self.at is None or now < self.at else now - self.at
        if age < self._rest_seconds(rest, changed=True):
            return None
        marks = change_marks(self._db)
        is_due = marks != self._marks or age >= self._rest_seconds(rest, changed=False)
        return marks if is_due else None

    def _rest_seconds(self, rest: float, *, changed: bool) -> float:
        longest = max(self._cost, _OLDEST_SECONDS - 2 * self._cost)
        usual = self._cost * _UNCHANGED_REST
        if changed:
            usual = min(self._cost * _REST, max(_PROMPT_SECONDS, self._cost * _SHORT_REST))
        return min(longest, rest * max(_LEAST_SECONDS, usual))

    def _read(self, now: float, left: StepPass) -> Snapshot:
        waiting, groups = self.task_queues.read(), self.snapshot.groups
        if waiting is not self.snapshot.waiting:
            groups = Counter[tuple[str, str]]()
            for _, key, jobs in waiting:
                groups[key.vo, key.group] += jobs
        self.startable = self.task_queues.startable(waiting)
        self._compete()
        iteration = self._iteration
        with left.item("the director's last iteration"):
            newer = iteration_after(self._db, iteration.number if iteration else 0)
            if newer is not None:
                record = msgspec.json.decode(newer[2])
                iteration = RecordedIteration(newer[0], float(newer[1]), record, before=iteration)
        self._iteration = iteration
        return Snapshot(
            at=now, fresh_seconds=self.fresh_seconds, waiting=waiting, groups=groups, iteration=iteration,
            director=self.ask_director(), polling_seconds=self.polling_seconds, left_out=self.left_out.named(),
        )  # fmt: skip

    def know_who_competes(
        self, where: Mapping[str, tuple[str, Mapping[int, int]]], apart: Collection[int]
    ) -> None:
        """Let task queues compete by this, but for those `apart`, which nothing could start. `where`: by VO the
        version of its configuration, and the queues that can run each task queue.
        """
        if (where, apart) != (self._where, self._apart):
            self._where, self._apart = where, apart
            self._compete()

    def _compete(self) -> None:
        """Make the contest anew if anything of it changed."""
        competing = self.startable, self.sharing(), self._apart, self._where
        if competing != self._competing:
            where = {vo: masks for vo, (_, masks) in self._where.items()}
            self._competing, self.contest = competing, Contest(*competing[:3], where)

    def contest_for(self, config: VOConfig, eligible: int) -> tuple[Contest, bool]:
        """Who competes for the queues that can run a job; the whole VO and False if these are not known."""
        if self._where.get(config.vo, ("",))[0] != config.version:
            return self.contest, False
        return self.contest.beside(config.vo, eligible), True

    def known_where(self, config: VOConfig, tq_id: int) -> int | None:
        """The queues that can run a task queue, as a mask; None if not known."""
        version, masks = self._where.get(config.vo, ("", {}))
        return masks.get(tq_id) if version == config.version else None

    def vo_slots(self, config: VOConfig, now: float) -> VOSlots | None:
        """As of the last refresh; None if the director has made no iteration lately."""
        snapshot, own = self.snapshot, self.pilots.own
        decision = snapshot.decision(now)
        if decision is None:
            return None
        key = config.vo, config.version, snapshot.at
        slots = self._vo_slots.get(key)
        if slots is None:
            rooms = decision.record["rooms"]
            slots = self._vo_slots[key] = vo_slots(config, rooms, own, most=decision.expected_pilots)
        return slots

    def serving(self, db: Reader, pool: str) -> PoolQueues | None:
        """None if the pools have changed since the last refresh."""
        return self._known_pools.serving(pool, pass_requests(db).version)

    def mask(self, db: Reader) -> SiteMask:
        """What is closed now. `db`: the connection of the thread that asks."""
        return self._mask.look(db)

    @property
    def is_cheap(self) -> bool:
        """Whether a request may wait for a refresh."""
        return self._changed_cost < _CHEAP_SECONDS
