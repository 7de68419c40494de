"""Live pilots as masks, kept up to date: which of them could take the jobs of a task queue.

The predicate is the claim's own, on what the pilot is when nothing runs in it. Which SubmitPools a pilot serves is
looked up by its queue when somebody asks, as it is at a claim.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import apsw
import msgspec

from lodesman.matching import TaskQueueKey
from lodesman.matching.cells import bits_of
from lodesman.matching.criteria import RequestMasks
from lodesman.services.pool_map import PoolMap
from lodesman.services.sessions import UNLIMITED, Free, PilotSession
from lodesman.store import pilots

LIVE = """SELECT p.id, p.state, p.vo, p.site, p.ce, p.queue, p.drain, p.last_seen, p.joined_at IS NOT NULL,
EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL)
FROM pilot p WHERE p.ended_at IS NULL"""
THESE = f"SELECT {pilots.COLUMNS} FROM pilot WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
WHOLE = Free(UNLIMITED, UNLIMITED, UNLIMITED)
NO_POOLS = PoolMap([])

Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """Live pilots of a VO, and those that could take a job: idle, busy (when they get free), on their way."""

    live: int
    idle: int
    busy: int
    coming: int
    draining: int
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

    @property
    def takers(self) -> int:
        """All that take jobs now or later."""
        return self.idle | self.busy | self.coming


class PilotBook:
    """One thread refreshes, any may ask. What is told is as of the last `refresh`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._table = RequestMasks()
        self._slots: dict[int, tuple[int, bool]] = {}  # pilot -> (slot, whether it had joined)
        self._requests: dict[int, Any] = {}
        self._free: list[int] = []
        self._masks = _Masks()
        self._by_place: dict[Place, int] = {}
        self._by_vo: dict[str, int] = {}
        self._heard: dict[str, float] = {}

    def refresh(self, db: apsw.Connection) -> None:
        """Read who lives; only pilots that are new or have joined since are read whole."""
        rows = list(db.execute(LIVE))
        known = self._slots
        fresh = [row[0] for row in rows if row[0] not in known or known[row[0]][1] != bool(row[8])]
        text = msgspec.json.encode(fresh).decode()
        found = [pilots.row_of(values) for values in db.execute(THESE, (text,))] if fresh else []
        alive = {row[0] for row in rows}
        with self._lock:
            for number in [number for number in known if number not in alive]:
                self._drop(number)
            for row in found:
                self._put(row)
            self._sort(rows)

    def usable(self, key: TaskQueueKey, served: Container[Place] | None) -> Usable:
        """The pilots for a key; `served` are the queues that serve its SubmitPool (None: it has none)."""
        place = replace(key, submit_pool="") if key.submit_pool else key
        with self._lock:
            masks = self._masks
            fit = self._table.narrow(masks.takers, place)
            if served is not None:
                here = 0
                for queue, mask in self._by_place.items():
                    if queue in served:
                        here |= mask
                fit &= here
            mine = self._by_vo.get(key.vo, 0)
            return Usable(
                live=mine.bit_count(),
                idle=(fit & masks.idle).bit_count(),
                busy=(fit & masks.busy).bit_count(),
                coming=(fit & masks.coming).bit_count(),
                draining=(mine & masks.draining).bit_count(),
                heard_at=self._heard.get(key.vo),
            )

    def _drop(self, number: int) -> None:
        slot, _ = self._slots.pop(number)
        self._table.remove(slot, self._requests.pop(number))
        self._free.append(slot)

    def _put(self, row: pilots.PilotRow) -> None:
        if row.id in self._slots:
            self._drop(row.id)
        node = msgspec.json.decode(row.node)
        request = PilotSession(row, node, now=0.0).request(WHOLE, NO_POOLS)
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[row.id] = slot, row.joined_at is not None
        self._requests[row.id] = request
        self._table.add(slot, request)

    def _sort(self, rows: Sequence[Sequence[Any]]) -> None:
        """Who is what and where, anew: a few appends for each pilot."""
        kinds: dict[str, list[int]] = {"idle": [], "busy": [], "coming": [], "draining": []}
        by_place: dict[Place, list[int]] = {}
        by_vo: dict[str, list[int]] = {}
        self._heard = {}
        for number, state, vo, site, ce, queue, drain, seen, _, busy in rows:
            if number not in self._slots:  # it joined between the two queries: next time
                continue
            slot = self._slots[number][0]
            kinds[_kind(state, drain, busy)].append(slot)
            by_place.setdefault((site, ce, queue), []).append(slot)
            by_vo.setdefault(vo, []).append(slot)
            if seen is not None:
                self._heard[vo] = max(seen, self._heard.get(vo, seen))
        self._masks = _Masks(**{name: bits_of(slots) for name, slots in kinds.items()})
        self._by_place = {place: bits_of(slots) for place, slots in by_place.items()}
        self._by_vo = {vo: bits_of(slots) for vo, slots in by_vo.items()}


def _kind(state: str, drain: int, busy: int) -> str:
    if drain:
        return "draining"
    if state != "Running":
        return "coming"
    return "busy" if busy else "idle"
