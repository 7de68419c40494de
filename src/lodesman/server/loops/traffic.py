"""What was measured lately of pilots that waited, and of jobs that started and ended."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lodesman.decide.explain.starts import (
    Durations,
    FreedSlots,
    JobsInPilots,
    RunningKind,
    StartRate,
    TimedJob,
)
from lodesman.decide.explain.turns import SOON_SECONDS, PilotCounts, QueueSlots, Waiting
from lodesman.decide.matching import TaskQueueKey
from lodesman.server.store import UNREADABLE, Reader
from lodesman.server.store.read.pilots import LivePilot, RunningAttempt
from lodesman.server.store.read.why import ended_attempts, last_attempt_before, starts_after
from lodesman.server.store.task_queues import keys_by_id
from lodesman.wire.nodes import QueueId

_HOUR: Final = 3_600.0
_MINUTE: Final = 60.0
_WAITS_KEPT: Final = 20
_AT_ONCE: Final = 20_000
_GROUPS_KEPT: Final = 100_000
_ENDS_KEPT: Final = 48  # ended jobs of each task queue and group
_KINDS_KEPT: Final = 2_000  # task queues and groups
_ENDS_AT_ONCE: Final = 2_000
_ENOUGH: Final = 8  # ended jobs that speak for a task queue
_KINDS_SEEN: Final = 12  # the largest running task queues by which an answer goes
_AGES_SEEN: Final = 64  # jobs of all of them together
_ROUNDS: Final = 3.0  # times the length of its jobs, over which is averaged how many run at once
_LITTLE: Final = 1e-3

Group = tuple[str, str]  # VO and group


class PilotTraffic:
    """How our pilots get on in their CE queues; for one thread. Waits count only of pilots that joined where no
    free slot was known.
    """

    def __init__(self) -> None:
        self.own: dict[QueueId, PilotCounts] = {}
        self._joined: set[int] | None = None
        self._free: set[QueueId] = set()
        # When pilots joined, and how long they had waited.
        self._waits: dict[QueueId, deque[tuple[float, float]]] = {}
        # Where live pilots were sent, as of a time; where those were that have ended, after such a time.
        self._sent_to: dict[int, QueueId] = {}
        self._taken_at = 0.0
        self._ended: deque[tuple[float, QueueId]] = deque(maxlen=_AT_ONCE)

    def take(self, rows: Sequence[LivePilot], rooms: Mapping[str, Mapping[str, Any]], now: float) -> set[int]:
        """Take in who lives; returns the waiting pilots that should join within a minute. `rooms`: of the
        director's last record.
        """
        self._note_joined(rows, rooms)
        self._note_ended(rows, now)
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
            slots = QueueSlots.of(room, PilotCounts(running[queue], len(pilots)))
            quick = self._quick(queue, pilots, now)
            own = self.own[queue] = PilotCounts(
                running[queue], len(pilots), None if quick and slots.free is None else quick
            )
            if slots.free:
                self._free.add(queue)
            expected = QueueSlots(slots.slots, slots.others, own).starting()
            soon |= {row.id for row in pilots[:expected]}
        return soon

    def _note_joined(self, rows: Sequence[LivePilot], rooms: Mapping[str, Mapping[str, Any]]) -> None:
        first, before = self._joined is None, self._joined or set()
        self._joined = {row.id for row in rows if row.joined_at is not None}
        for row in rows:
            if row.joined_at is None or row.id in before or row.queue_id in self._free:
                continue
            room = rooms.get("/".join(row.queue_id)) if first else None
            if QueueSlots.of(room, PilotCounts()).free is None:
                kept = self._waits.setdefault(row.queue_id, deque(maxlen=_WAITS_KEPT))
                kept.append((row.joined_at, row.joined_at - (row.submitted_at or row.created_at)))

    def _note_ended(self, rows: Sequence[LivePilot], now: float) -> None:
        before, self._sent_to = self._sent_to, {row.id: _sent_to(row) for row in rows}
        self._ended += ((self._taken_at, before[number]) for number in before.keys() - self._sent_to.keys())
        self._taken_at = now

    def ended_since(self, at: float) -> Counter[QueueId]:
        """By CE queue, how many have ended since then for sure; what ended before is forgotten."""
        while self._ended and self._ended[0][0] < at:
            self._ended.popleft()
        return Counter(queue for _, queue in self._ended)

    def _quick(self, queue: QueueId, waiting: Sequence[LivePilot], now: float) -> int:
        """How many joined within the last minute, at least one if any in the last hour; 0 if one waited longer, or
        does now.
        """
        lately = [(at, wait) for at, wait in self._waits.get(queue, ()) if now - at <= _HOUR]
        longest = max((now - (row.submitted_at or row.created_at) for row in waiting), default=0.0)
        if not lately or max(longest, *(wait for _, wait in lately)) > SOON_SECONDS:
            return 0
        return sum(now - at <= SOON_SECONDS for at, _ in lately)


class Portion(NamedTuple):
    """The attempts after one, up to the last."""

    after: int
    last: int


class StartsOfLate:
    """Job starts of the last hour by task queue and by group, without time in which none of their jobs waited.

    One thread reads, any may ask.
    """

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._last: int | None = None
        self._groups: dict[int, Group] = {}
        # Minute -> task queue or group -> (starts, the first of them, the last), in the time in which jobs waited.
        self._minutes: dict[int, dict[int | Group, tuple[int, float, float]]] = {}
        # The seconds in which none waited so far; since when none waits.
        self._idle: dict[int | Group, float] = {}
        self._idle_since: dict[int | Group, float] = {}

    def read(self, now: float, waiting: Sequence[Waiting] | None = None) -> Portion:
        """Read what started since. `waiting`: the task queues with waiting jobs (None: all)."""
        if self._last is None:
            self._last = last_attempt_before(self._db, now - _HOUR)
        before = self._last
        starts, self._last = starts_after(self._db, before, most=_AT_ONCE)
        groups = self.groups({tq_id for tq_id, *_ in starts})
        for tq_id, minute, count, first, last in starts:
            counts = self._minutes.setdefault(minute, {})
            for who in (tq_id, groups.get(tq_id)):
                if who is not None:
                    idle = self._idle.get(who, 0.0)
                    so_far, at, until = counts.get(who, (0, first - idle, last - idle))
                    counts[who] = so_far + count, min(at, first - idle), max(until, last - idle)
        for minute in [each for each in self._minutes if (each + 1) * _MINUTE < now - _HOUR]:
            del self._minutes[minute]
        if waiting is not None:
            self._note_idle(now, waiting)
        return Portion(before, self._last)

    def groups(self, task_queues: Collection[int]) -> Mapping[int, Group]:
        """By task queue."""
        new = set(task_queues) - self._groups.keys()
        if len(self._groups) + len(new) > _GROUPS_KEPT:
            self._groups, new = {}, set(task_queues)
        self._groups |= {tq_id: (key.vo, key.group) for tq_id, key in keys_by_id(self._db, new, {}).items()}
        return self._groups

    def _note_idle(self, now: float, waiting: Sequence[Waiting]) -> None:
        started = {who for counts in self._minutes.values() for who in counts}
        if not (started or self._idle or self._idle_since):
            return
        busy: set[int | Group] = {tq_id for tq_id, *_ in waiting}
        busy |= {(key.vo, key.group) for _, key, _ in waiting}
        for who in self._idle_since.keys() & busy:
            self._idle[who] = self._idle.get(who, 0.0) + max(0.0, now - self._idle_since.pop(who))
        for who in started - busy - self._idle_since.keys():
            self._idle_since[who] = now
        for forgotten in (self._idle.keys() | self._idle_since.keys()) - started:
            self._idle.pop(forgotten, None)
            self._idle_since.pop(forgotten, None)

    def of(self, who: int | Group | None, now: float) -> StartRate:
        """The starts of a task queue or a group."""
        minutes = [
            counts[who] for counts in list(self._minutes.values()) if who is not None and who in counts
        ]
        if who is None or not minutes:
            return StartRate(0, 0.0)
        counts, firsts, lasts = zip(*minutes, strict=True)
        at = min(now, self._idle_since.get(who, now)) - self._idle.get(who, 0.0)
        return StartRate(sum(counts) - 1, max(0.0, at - min(firsts)), max(0.0, at - max(lasts)))


class JobsOfLate:
    """Which jobs run, and how long ended ones took. One thread reads, any may ask."""

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._new = Portion(0, 0)
        self._live: dict[int, int] = {}
        self._ended: dict[int | Group, deque[TimedJob]] = {}
        self._begun: dict[int, list[float]] = {}
        self._groups: Mapping[int, Group] = {}
        # Worked out since the last read.
        self._durations: dict[int | Group, Durations | None] = {}
        self._slots: dict[Hashable, FreedSlots] = {}

    def read(self, attempts: Sequence[RunningAttempt], new: Portion, starts: StartsOfLate) -> None:
        """Take what runs now, and read what ended since. `new`: see `StartsOfLate.read`."""
        live = {attempt.id: attempt.task_queue for attempt in attempts}
        # An attempt of the last portion has ended since, or it is known to run now.
        rows = ended_attempts(self._db, *self._new, self._live.keys() - live.keys(), most=_ENDS_AT_ONCE)
        self._live, self._new = live, new
        groups = starts.groups({*live.values(), *(tq_id for tq_id, *_ in rows)})
        for tq_id, begun, ended in rows:
            for who in (tq_id, groups.get(tq_id)):
                if who is not None:
                    kept = self._ended.pop(who, None) or deque(maxlen=_ENDS_KEPT)
                    kept.append(TimedJob(begun, max(0.0, ended - begun)))
                    self._ended[who] = kept  # the last of them
        while len(self._ended) > _KINDS_KEPT:
            del self._ended[next(iter(self._ended))]
        begun_by: dict[int, list[float]] = {}
        for attempt in attempts:
            begun_by.setdefault(attempt.task_queue, []).append(attempt.claimed_at)
        self._begun, self._groups, self._durations, self._slots = begun_by, groups, {}, {}

    def _lasts(self, tq_id: int, now: float) -> Durations | None:
        """How long its jobs take, or those of its group if hardly any ended; None if nothing is known."""
        if tq_id not in self._durations:
            group = self._groups.get(tq_id)
            ended = self._ended_of(tq_id)
            if len(ended) < _ENOUGH and group is not None:
                ended = max(ended, self._ended_of(group), key=len)
            begun = sorted(self._begun.get(tq_id, ()))[-_ENDS_KEPT:]
            jobs = [*ended, *(TimedJob(at, max(0.0, now - at), ended=False) for at in begun)]
            self._durations[tq_id] = Durations(jobs) if jobs else None
        return self._durations[tq_id]

    def _ended_of(self, who: int | Group) -> list[TimedJob]:
        return list(self._ended.get(who, ()))

    def slots(
        self, there: JobsInPilots, key: TaskQueueKey, tq_id: int | None, *, now: float, free: int, soon: int
    ) -> FreedSlots:  # fmt: skip
        """What becomes free for a job, in numbers of such jobs: `there` in pilots that may take it
        (`PilotBook.running`), in what is `free`, and in pilots that come `soon`.
        """
        asked_for = there.pilots, key, free, soon, int(now)
        slots = self._slots.get(asked_for)
        if slots is None:
            usual = None if tq_id is None else self._lasts(tq_id, now)
            kinds = list(self._kinds(there, key.cores, now))
            slots = self._slots[asked_for] = FreedSlots(kinds, now=now, free=free, soon=soon, usual=usual)
        return slots

    def _kinds(self, there: JobsInPilots, cores: int, now: float) -> Iterator[RunningKind]:
        """The largest kinds of jobs there, which stand for all."""
        rows = sorted(there.begun.items(), key=lambda row: -len(row[1]))
        seen = rows[:_KINDS_SEEN]
        share = sum(len(begun) for _, begun in rows) / max(1, sum(len(begun) for _, begun in seen))
        for (tq_id, of_each), begun in seen:
            lasts, some = self._lasts(tq_id, now), _some(begun, len(seen))
            if lasts is not None:
                room = share * len(begun) / len(some) * min(1.0, of_each / max(1, cores))
                yield RunningKind(some, lasts, room)

    def own(self, tq_id: int | None, now: float) -> FreedSlots:
        """What becomes free for a job behind a limit: where jobs of its task queue run."""
        begun = self._begun.get(tq_id or 0, ())
        lasts = self._lasts(tq_id or 0, now) if begun else None
        if lasts is None:
            return FreedSlots((), now=now)
        ended = self._ended_of(tq_id or 0)
        since = now - _ROUNDS * lasts.mean
        if len(ended) == _ENDS_KEPT:
            since = max(since, min(job.begun + job.seconds for job in ended))
        since = min(since, now - _LITTLE)
        used = sum(max(0.0, job.begun + job.seconds - max(since, job.begun)) for job in ended)
        used += sum(now - max(since, at) for at in begun)
        some = _some(begun)
        kind = RunningKind(some, lasts, len(begun) / len(some))
        return FreedSlots([kind], now=now, limited=True, used=used / (now - since))


def _some(begun: Sequence[float], kinds: int = 1) -> Sequence[float]:
    """A sample from all of the range, of this number of kinds of jobs."""
    ordered = sorted(begun)
    return ordered[:: 1 + (len(ordered) - 1) * kinds // _AGES_SEEN]


def _sent_to(row: LivePilot) -> QueueId:
    """Where its batch system counts a pilot; where it runs if that cannot be read."""
    try:
        return row.submitted_to
    except UNREADABLE:
        return row.queue_id
