"""What was measured lately: how long pilots waited in their CE queues, and how many jobs of each task queue started."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lodesman.answers.nodes import QueueId
from lodesman.store import Reader
from lodesman.store.read.pilots import LivePilot
from lodesman.store.read.task_queues import keys_by_id
from lodesman.store.read.why import last_attempt_before, starts_after
from lodesman.why.turns import SOON_SECONDS, Measured, PilotsThere, QueueSlots

_HOUR: Final = 3_600.0
_MINUTE: Final = 60.0
_WAITS_KEPT: Final = 20
_AT_ONCE: Final = 20_000
_GROUPS_KEPT: Final = 100_000

Group = tuple[str, str]
"""VO and group."""


class PilotTraffic:
    """How our pilots get on in their CE queues. Used by one thread.

    A pilot that found a free slot says nothing of how long one waits for a slot: only those count that joined where no
    slot was known to be free.
    """

    def __init__(self) -> None:
        self.own: dict[QueueId, PilotsThere] = {}
        self._joined: set[int] | None = None
        self._free: set[QueueId] = set()
        # When pilots joined, and how long they had waited.
        self._waits: dict[QueueId, deque[tuple[float, float]]] = {}

    def take(self, rows: Sequence[LivePilot], rooms: Mapping[str, Mapping[str, Any]], now: float) -> set[int]:
        """The live pilots as they are now; returns those that wait and are expected to join within a minute. `rooms`: of the
        director's last record.
        """
        self._note_joined(rows, rooms)
        running: Counter[QueueId] = Counter()
        waiting: dict[QueueId, list[LivePilot]] = {}
        for row in rows:
            if row.joined_at is None:
                waiting.setdefault(row.queue_id, []).append(row)
            else:
                running[row.queue_id] += 1
        self.own, self._free, soon = {}, set(), set[int]()
        for queue in {*running, *waiting}:
            pilots = sorted(waiting.get(queue, ()), key=lambda row: row.id)
            room = rooms.get("/".join(queue))
            slots = QueueSlots.of(room, PilotsThere(running[queue], len(pilots)))
            quick = self._quick(queue, pilots, now)
            own = self.own[queue] = PilotsThere(
                running[queue], len(pilots), None if quick and slots.free is None else quick
            )
            if slots.free:
                self._free.add(queue)
            expected = QueueSlots(slots.slots, slots.others, own).starting()
            soon |= {row.id for row in pilots[:expected]}
        return soon

    def _note_joined(self, rows: Sequence[LivePilot], rooms: Mapping[str, Mapping[str, Any]]) -> None:
        first, known = self._joined is None, self._joined or set()
        self._joined = {row.id for row in rows if row.joined_at is not None}
        for row in rows:
            if row.joined_at is None or row.id in known or row.queue_id in self._free:
                continue
            room = rooms.get("/".join(row.queue_id)) if first else None
            if QueueSlots.of(room, PilotsThere()).free is None:
                kept = self._waits.setdefault(row.queue_id, deque(maxlen=_WAITS_KEPT))
                kept.append((row.joined_at, row.joined_at - (row.submitted_at or row.created_at)))

    def _quick(self, queue: QueueId, waiting: Sequence[LivePilot], now: float) -> int:
        """How many joined within the last minute (at least one, if any did in the last hour), if all of late waited less
        than a minute, and none waits for longer now; else 0.
        """
        lately = [(at, wait) for at, wait in self._waits.get(queue, ()) if now - at <= _HOUR]
        longest = max((now - (row.submitted_at or row.created_at) for row in waiting), default=0.0)
        if not lately or max(longest, *(wait for _, wait in lately)) > SOON_SECONDS:
            return 0
        return sum(now - at <= SOON_SECONDS for at, _ in lately)


class StartsOfLate:
    """Job starts of the last hour by task queue and by group, read from the attempts in portions. One thread reads, any may
    ask.
    """

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._last: int | None = None
        self._groups: dict[int, Group] = {}
        # Minute -> task queue or group -> (starts, the first of them, the last).
        self._minutes: dict[int, dict[int | Group, tuple[int, float, float]]] = {}

    def read(self, now: float) -> None:
        """Read what started since, and forget what is more than an hour old."""
        if self._last is None:
            self._last = last_attempt_before(self._db, now - _HOUR)
        found, self._last = starts_after(self._db, self._last, most=_AT_ONCE)
        new = {tq_id for tq_id, *_ in found} - self._groups.keys()
        if len(self._groups) + len(new) > _GROUPS_KEPT:
            self._groups, new = {}, {tq_id for tq_id, *_ in found}
        self._groups |= {tq_id: (key.vo, key.group) for tq_id, key in keys_by_id(self._db, new).items()}
        for tq_id, minute, count, first, last in found:
            counts = self._minutes.setdefault(minute, {})
            for who in (tq_id, self._groups.get(tq_id)):
                if who is not None:
                    before, at, until = counts.get(who, (0, first, last))
                    counts[who] = before + count, min(at, first), max(until, last)
        for minute in [one for one in self._minutes if (one + 1) * _MINUTE < now - _HOUR]:
            del self._minutes[minute]

    def of(self, who: int | Group | None, now: float) -> Measured:
        """The starts of a task queue or a group."""
        found = [counts[who] for counts in list(self._minutes.values()) if who is not None and who in counts]
        if not found:
            return Measured(0, 0.0)
        counts, firsts, lasts = zip(*found, strict=True)
        return Measured(sum(counts) - 1, max(0.0, now - min(firsts)), max(0.0, now - max(lasts)))
