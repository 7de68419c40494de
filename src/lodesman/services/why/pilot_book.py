"""Live pilots as masks, kept up to date: which of them could take the jobs of a task queue.

The predicate is the claim's own, on what the pilot presents when nothing runs in it: what its queue is now, no more than
its node has, and what is left of its life. Which SubmitPools a pilot serves is looked up by its queue when somebody
asks, as it is at a claim.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import msgspec

from lodesman.commands.pool_map import PoolMap
from lodesman.commands.sessions import PilotSession, is_silent
from lodesman.director.site_mask import Drained
from lodesman.matching import ResourceRequest, TaskQueueKey
from lodesman.matching.cells import bits_of
from lodesman.matching.criteria import RequestMasks
from lodesman.store import pilots
from lodesman.store.engine import Reader

LIVE = """SELECT p.id, p.state, p.vo, p.site, p.ce, p.queue, p.drain, p.last_seen, p.joined_at IS NOT NULL, p.request,
EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL)
FROM pilot p WHERE p.ended_at IS NULL"""
THESE = f"SELECT {pilots.COLUMNS} FROM pilot WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
NO_POOLS = PoolMap([])

Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """Live pilots of a VO, and those that could take a job: idle, busy (when they get free), on their way. `silent` ones
    could, too, if they were alive: nobody counts on them.
    """

    live: int
    idle: int
    busy: int
    coming: int
    draining: int
    silent: int = 0
    heard_at: float | None

    @property
    def any(self) -> bool:
        """Whether one of them will be able to take it."""
        return bool(self.idle or self.busy or self.coming)


@dataclass(slots=True)
class _Masks:
    """Sets of pilots, by slot."""

    idle: int = 0
    busy: int = 0
    coming: int = 0
    draining: int = 0
    silent: int = 0

    @property
    def takers(self) -> int:
        """All that take jobs now or later."""
        return self.idle | self.busy | self.coming


class PilotBook:
    """One thread refreshes, any may ask. What is told is as of the last `refresh`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._table = RequestMasks()
        # pilot -> (slot, whether it had joined, the hash of its stored request)
        self._slots: dict[int, tuple[int, bool, int]] = {}
        self._requests: dict[int, ResourceRequest] = {}
        self._mortal: dict[int, PilotSession] = {}
        self._free: list[int] = []
        self._masks = _Masks()
        self._by_place: dict[Place, int] = {}
        # Whatever stands for the places that somebody asked about -> the pilots there.
        self._there: dict[Hashable, int] = {}
        self.places: frozenset[Place] = frozenset()
        """Where pilots are that take jobs now or later; the same object as long as they are the same."""
        self._by_vo: dict[str, int] = {}
        self._heard: dict[str, float] = {}

    def refresh(self, db: Reader, now: float) -> None:
        """Read who lives; only pilots that are new, have joined since or whose queue has changed are read whole."""
        rows = list(db.execute(LIVE))
        known = self._slots
        fresh = [row[0] for row in rows if row[0] not in known or known[row[0]][1:] != (row[8], hash(row[9]))]
        text = msgspec.json.encode(fresh).decode()
        found = [pilots.row_of(values) for values in db.execute(THESE, (text,))] if fresh else []
        alive = {row[0] for row in rows}
        with self._lock:
            for number in [number for number in known if number not in alive]:
                self._drop(number)
            for row in found:
                self._put(row, now)
            self._grow_old(now)
            self._sort(rows, now)

    def usable(
        self, key: TaskQueueKey, served: Container[Place] | None, *, alike: Hashable = None,
        drained: Drained | None = None,
    ) -> Usable:  # fmt: skip
        """The pilots for a key; `served` are the queues that serve its SubmitPool (None: it has none). Whoever asks for
        many keys gives an equal `alike` with equal queues: these are looked up once. `drained`: where pilots leave since
        the last look, or sooner.
        """
        place = replace(key, submit_pool="") if key.submit_pool else key
        with self._lock:
            masks = self._masks
            alive = masks.takers | masks.silent
            leave = 0 if drained is None else alive & self._pilots_in(drained, drained)
            fit = self._table.narrow(alive & ~leave, place)
            if served is not None:
                fit &= self._pilots_in(served, alike)
            mine = self._by_vo.get(key.vo, 0)
            return Usable(
                live=mine.bit_count(),
                idle=(fit & masks.idle).bit_count(),
                busy=(fit & masks.busy).bit_count(),
                coming=(fit & masks.coming).bit_count(),
                draining=(mine & (masks.draining | leave)).bit_count(),
                silent=(fit & masks.silent).bit_count(),
                heard_at=self._heard.get(key.vo),
            )

    def _pilots_in(self, served: Container[Place], alike: Hashable) -> int:
        here = None if alike is None else self._there.get(alike)
        if here is None:
            here = 0
            for queue, mask in self._by_place.items():
                if queue in served:
                    here |= mask
            if alike is not None:
                self._there[alike] = here
        return here

    def _drop(self, number: int) -> None:
        slot, *_ = self._slots.pop(number)
        self._table.remove(slot, self._requests.pop(number))
        self._mortal.pop(number, None)
        self._free.append(slot)

    def _put(self, row: pilots.PilotRow, now: float) -> None:
        if row.id in self._slots:
            self._drop(row.id)
        session = PilotSession(row, msgspec.json.decode(row.node), now=now)
        request = session.request(session.whole(now), NO_POOLS)
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[row.id] = slot, row.joined_at is not None, hash(row.request)
        self._requests[row.id] = request
        self._table.add(slot, request)
        if session.is_mortal:
            self._mortal[row.id] = session

    def _grow_old(self, now: float) -> None:
        """Pilots whose life has an end offer less than at the last look."""
        for number, session in self._mortal.items():
            request, before = session.request(session.whole(now), NO_POOLS), self._requests[number]
            if request is not before:
                slot = self._slots[number][0]
                self._table.remove(slot, before)
                self._table.add(slot, request)
                self._requests[number] = request

    def _sort(self, rows: Sequence[Sequence[Any]], now: float) -> None:
        """Who is what and where, anew: a few appends for each pilot."""
        kinds: dict[str, list[int]] = {"idle": [], "busy": [], "coming": [], "draining": [], "silent": []}
        by_place: dict[Place, list[int]] = {}
        by_vo: dict[str, list[int]] = {}
        self._heard = {}
        for number, state, vo, site, ce, queue, drain, seen, _, _, busy in rows:
            if number not in self._slots:  # it joined between the two queries: next time
                continue
            slot = self._slots[number][0]
            kinds[_kind(state, drain, busy, silent=is_silent(seen, now))].append(slot)
            by_place.setdefault((site, ce, queue), []).append(slot)
            by_vo.setdefault(vo, []).append(slot)
            if seen is not None:
                self._heard[vo] = max(seen, self._heard.get(vo, seen))
        self._masks = _Masks(**{name: bits_of(slots) for name, slots in kinds.items()})
        self._by_place = {place: bits_of(slots) for place, slots in by_place.items()}
        self._there = {}
        takers = self._masks.takers
        places = frozenset(place for place, mask in self._by_place.items() if mask & takers)
        self.places = self.places if places == self.places else places
        self._by_vo = {vo: bits_of(slots) for vo, slots in by_vo.items()}


def _kind(state: str, drain: int, busy: int, *, silent: bool) -> str:
    if drain:
        return "draining"
    if state != "Running":
        return "coming"
    if silent:
        return "silent"
    return "busy" if busy else "idle"
