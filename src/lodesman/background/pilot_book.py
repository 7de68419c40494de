"""Live pilots as masks, kept up to date: which of them could take the jobs of a task queue.

The predicate is the claim's own, on what a pilot presents when nothing runs in it: what its queue is now, at most what
its node has, and what is left of its life. The SubmitPools that it serves follow from its queue, as they do at a claim.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

import msgspec

from lodesman.answers.nodes import QueueId
from lodesman.answers.why_jobs import JobPilots
from lodesman.commands.pool_map import PoolMap
from lodesman.commands.sessions import PilotSession, is_silent
from lodesman.director.site_mask import Drained
from lodesman.masks.bits import mask_of
from lodesman.matching import ResourceRequest, TaskQueueKey
from lodesman.matching.tables import RequestTable
from lodesman.store import Reader
from lodesman.store.read.pilots import PilotRow
from lodesman.store.read.why import PilotStatus, pilot_statuses, pilots_by_id
from lodesman.why.words import since

_NO_POOLS = PoolMap()
_KINDS: Final = ("idle", "busy", "coming", "draining", "silent")


class PilotBook:
    """One thread refreshes, any may ask; answers are as of the last `refresh`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._table = RequestTable()
        # pilot -> (slot, whether it had joined, the hash of its stored request)
        self._slots: dict[int, tuple[int, int, int]] = {}
        self._requests: dict[int, ResourceRequest] = {}
        self._mortal: dict[int, PilotSession] = {}
        self._free: list[int] = []
        self._kinds = dict.fromkeys(_KINDS, 0)
        self._by_place: dict[QueueId, int] = {}
        # Places that were asked about, by a value that stands for them -> the pilots there.
        self._there: dict[Hashable, int] = {}
        self.places: frozenset[QueueId] = frozenset()
        """Where pilots are that take jobs now or later."""
        self._by_vo: dict[str, int] = {}
        self._heard: dict[str, float] = {}

    def refresh(self, db: Reader, now: float) -> None:
        """Read who lives; only pilots that are new, have joined since or whose queue has changed are read whole."""
        rows, known = pilot_statuses(db), self._slots
        changed = [
            row.id
            for row in rows
            if row.id not in known or known[row.id][1:] != (row.joined, hash(row.request))
        ]
        found = list(pilots_by_id(db, changed)) if changed else []
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
        drained: Drained | None = None,
    ) -> JobPilots:  # fmt: skip
        """The pilots for a key; `served` are the queues that serve its SubmitPool (None: it has none), and `alike` an equal
        value for equal queues: they are found once. `drained`: where pilots leave since the last refresh, or sooner.
        """
        place = replace(key, submit_pool="") if key.submit_pool else key
        with self._lock:
            kinds = self._kinds
            alive = kinds["idle"] | kinds["busy"] | kinds["coming"] | kinds["silent"]
            leave = 0 if drained is None else alive & self._pilots_in(drained, drained)
            fit = self._table.narrow(alive & ~leave, place)
            if served is not None:
                fit &= self._pilots_in(served, alike)
            mine = self._by_vo.get(key.vo, 0)
            return JobPilots(
                live=mine.bit_count(),
                usable_idle=(fit & kinds["idle"]).bit_count(),
                usable_busy=(fit & kinds["busy"]).bit_count(),
                usable_waiting=(fit & kinds["coming"]).bit_count(),
                draining=(mine & (kinds["draining"] | leave)).bit_count(),
                silent=(fit & kinds["silent"]).bit_count(),
                seen_seconds_ago=since(self._heard.get(key.vo), now),
            )

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
        session = PilotSession(row, msgspec.json.decode(row.node), now=now)
        request = session.request(session.whole(now), _NO_POOLS)
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[row.id] = slot, row.joined_at is not None, hash(row.request)
        self._requests[row.id] = request
        self._table.add(slot, request)
        if session.is_mortal:
            self._mortal[row.id] = session

    def _grow_old(self, now: float) -> None:
        """Pilots whose life has an end offer less than at the last refresh."""
        for number, session in self._mortal.items():
            request, before = session.request(session.whole(now), _NO_POOLS), self._requests[number]
            if request is not before:
                slot = self._slots[number][0]
                self._table.remove(slot, before)
                self._table.add(slot, request)
                self._requests[number] = request

    def _sort(self, rows: Sequence[PilotStatus], now: float) -> None:
        """Who is what and where, anew: a few appends for each pilot."""
        kinds: dict[str, list[int]] = {kind: [] for kind in _KINDS}
        by_place: dict[QueueId, list[int]] = {}
        by_vo: dict[str, list[int]] = {}
        self._heard = {}
        for row in rows:
            if row.id not in self._slots:  # it joined between the two queries: next time
                continue
            slot = self._slots[row.id][0]
            kinds[_kind(row, now)].append(slot)
            by_place.setdefault(QueueId(row.site, row.ce, row.queue), []).append(slot)
            by_vo.setdefault(row.vo, []).append(slot)
            if row.last_seen is not None:
                self._heard[row.vo] = max(row.last_seen, self._heard.get(row.vo, row.last_seen))
        self._kinds = {kind: mask_of(slots) for kind, slots in kinds.items()}
        self._by_place = {place: mask_of(slots) for place, slots in by_place.items()}
        self._there = {}
        takers = self._kinds["idle"] | self._kinds["busy"] | self._kinds["coming"]
        places = frozenset(place for place, mask in self._by_place.items() if mask & takers)
        self.places = self.places if places == self.places else places
        self._by_vo = {vo: mask_of(slots) for vo, slots in by_vo.items()}


def _kind(row: PilotStatus, now: float) -> str:
    if row.drain:
        return "draining"
    if row.state != "Running":
        return "coming"
    if is_silent(row.last_seen, now):
        return "silent"
    return "busy" if row.busy else "idle"
