"""Whose turn is next: pilots' starts, shared among competing task queues.

Average starts are rounded to whole ones, older task queues first, so that no more are promised than exist. A pilot
starts within a minute if its CE queue has a free slot, or pilots like it waited no longer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from math import ceil
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct

from lodesman.decide.masks.bits import mask_of
from lodesman.decide.matching import GroupShare, TaskQueueKey, parts_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.matching.shares import DEFAULT_GROUP, priority_weight
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import ClampName

SOON_SECONDS: Final = 60.0


class Size(NamedTuple):
    """Free cores and MB of memory."""

    cores: int
    memory_mb: int

    def jobs(self, key: TaskQueueKey) -> int:
        """How many such jobs fit at once."""
        by_cores = self.cores // max(1, key.cores)
        return min(by_cores, self.memory_mb // key.memory_mb) if key.memory_mb else by_cores


class PilotCounts(NamedTuple):
    """Our pilots in a CE queue."""

    running: int = 0
    waiting: int = 0
    # How many a minute start, by those that joined lately; None: all, as the slots are unknown.
    quick: int | None = 0


class QueueSlots(Struct, frozen=True):
    """A CE queue at the director's last iteration, and our pilots there now."""

    slots: int | None  # None: unknown
    others: int | None  # pilots of others; None: unknown
    own: PilotCounts

    @classmethod
    def of(cls, room: Mapping[str, Any] | None, own: PilotCounts) -> QueueSlots:
        """`room`: of the director's record; None if it did not consider the queue."""
        facts = room or {}
        return cls(facts.get("slots"), facts.get("others"), own)

    @property
    def free(self) -> int | None:
        """Slots in which nothing runs; None: unknown."""
        if self.slots is None or self.others is None:
            return None
        return max(0, self.slots - self.others - self.own.running)

    def starting(self, more: int = 0) -> int:
        """How many pilots, waiting and `more`, start within a minute."""
        waiting = self.own.waiting + more
        if self.own.quick is None and self.free is None:
            return waiting
        return min(waiting, (self.free or 0) + (self.own.quick or 0))


class VOSlots(Struct, frozen=True, kw_only=True):
    """A VO's CE queues, as masks by number of slots or pilots. Unknown numbers are left out."""

    sendable: Mapping[tuple[int, Size], int]  # by the pilots that may be sent and start within a minute
    slots: Mapping[int, int]
    free: Mapping[int, int]  # by free slots
    most: float  # the pilots that the director is expected to send at once
    # By free slots without a waiting pilot, where only closings let none come.
    unfilled: Mapping[tuple[int, Size], int] = {}

    def starts(self, key: TaskQueueKey, queues: int) -> int:
        """How many jobs of a task queue start within a minute in pilots sent to these queues."""
        return self._starts(self.sendable, key, queues)

    def fills(self, key: TaskQueueKey, queues: int) -> int:
        """How many would start in free slots but for closings."""
        return self._starts(self.unfilled, key, queues)

    def _starts(self, pilots_of: Mapping[tuple[int, Size], int], key: TaskQueueKey, queues: int) -> int:
        jobs_started, largest = 0, 0
        for (pilots, size), mask in pilots_of.items():
            count, jobs = (mask & queues).bit_count(), size.jobs(key)
            if count and jobs:
                jobs_started, largest = jobs_started + count * pilots * jobs, max(largest, jobs)
        return int(min(jobs_started, self.most * largest + 0.5))

    def count(self, queues: int) -> tuple[int, int]:
        """The known and the free slots."""
        slots, free = (
            sum(n * (mask & queues).bit_count() for n, mask in by.items()) for by in (self.slots, self.free)
        )
        return slots, free


def vo_slots(
    config: VOConfig,
    rooms: Mapping[str, Mapping[str, Any]],
    own: Mapping[QueueId, PilotCounts],
    *,
    most: float,
) -> VOSlots:
    """`rooms`: of the director's record; `own`: our pilots."""
    sendable: list[tuple[tuple[int, Size], int]] = []
    slots: list[tuple[int, int]] = []
    free: list[tuple[int, int]] = []
    unfilled: list[tuple[tuple[int, Size], int]] = []
    for bit, offer in config.by_bit.items():
        room = rooms.get("/".join(offer.queue))
        queue = QueueSlots.of(room, own.get(offer.queue, _NONE))
        left = 0 if room is None else max(0, room.get("left", room["room"]))
        soon = queue.starting(left) - queue.starting() if left else 0
        size = Size(offer.request.cores, offer.request.memory_mb)
        if soon > 0:
            sendable.append(((soon, size), bit))
        more = (queue.free or 0) - queue.own.waiting
        if more > 0 and (left or _only_closed(room)):
            unfilled.append(((more, size), bit))
        if queue.free is not None and queue.slots is not None:
            slots.append((queue.slots, bit))
            free.append((queue.free, bit))
    return VOSlots(
        sendable=masks(sendable), slots=masks(slots), free=masks(free), most=most, unfilled=masks(unfilled)
    )


def _only_closed(room: Mapping[str, Any] | None) -> bool:
    # A closing is the first limit.
    return any(name == ClampName.CLOSED for name, *_ in (room or {}).get("clamps", ()))


_NONE: Final = PilotCounts()


def masks(bits: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    """A mask for each key."""
    bits_of: dict[Any, list[int]] = {}
    for key, bit in bits:
        bits_of.setdefault(key, []).append(bit)
    return {key: mask_of(members) for key, members in bits_of.items()}


_LITTLE: Final = 1e-9


class Turn(NamedTuple):
    """A job's place among those that wait."""

    ahead: int = 0  # jobs of its own task queue before it
    others: int = 0  # jobs of task queues that compete
    part: float = 1.0  # of the starts, for its task queue
    older: float = 0.0  # of the starts, for older task queues

    def allotted(self, starts: int) -> int:
        """The task queue's part of these starts, and what others leave."""
        before = ceil(starts * self.older - _LITTLE)
        return max(ceil(starts * (self.older + self.part) - _LITTLE) - before, starts - self.others)

    def is_next(self, starts: int) -> bool:
        """Whether these starts reach the job."""
        return self.ahead < self.allotted(starts)

    @property
    def before(self) -> int:
        """About how many jobs start earlier."""
        drawn = (self.ahead + 1) * (1.0 - self.part) / max(self.part, _LITTLE)
        return self.ahead + min(self.others, ceil(drawn - _LITTLE))


FIRST: Final = Turn()
Waiting = tuple[int, TaskQueueKey, int]
"""A task queue's id, its key, and how many jobs wait."""
_MOST_KINDS: Final = 1_000
_MOST_RIVALS: Final = 300_000
"""With more kinds of task queues, or members of all contests, kinds have no own contests."""


class Contest:
    """The task queues that compete in the lottery."""

    def __init__(
        self,
        waiting: Sequence[Waiting] = (),
        sharing: Container[str] = (),  # groups whose owners are not told apart
        apart: Container[int] = (),  # task queues that nothing could start now
        # VO -> task queue -> the queues that can run it, a mask; anywhere if it is not there.
        where: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        self._waiting = [row for row in waiting if row[0] not in apart]
        self._sharing, self._where = sharing, where
        self._beside: dict[str, dict[int, Contest]] = {}
        self.jobs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The waiting jobs of each group, by VO."""
        # (VO, group) -> owner -> rank, and the weight of its task queues so far.
        self._owners: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
        # Of each task queue the weight of the older ones of its owner, and its waiting jobs.
        self._own: dict[int | None, tuple[float, int]] = {}
        # (VO, group) -> the running sums of the weights of its owners.
        self._sums: dict[tuple[str, str], list[float]] = {}
        # Groups that compete -> group -> its part, and those of the groups before it.
        self._parts: dict[frozenset[str], dict[str, tuple[float, float]]] = {}
        for tq_id, key, jobs in self._waiting:
            self.jobs[key.vo][key.group] += jobs
            owners, owner = self._owners.setdefault((key.vo, key.group), {}), self._owner(key)
            rank, before = owners.get(owner, (len(owners), 0.0))
            self._own[tq_id] = before, jobs
            owners[owner] = rank, before + priority_weight(key.user_priority)

    def _owner(self, key: TaskQueueKey) -> str:
        return "" if key.group in self._sharing else key.owner

    def beside(self, vo: str, queues: int) -> Contest:
        """The contest of a VO's task queues that could run in one of these queues, a mask; of all if unknown, or of
        too many kinds.
        """
        if vo not in self._where:
            return self
        contests = self._beside.get(vo)
        if contests is None:
            contests = self._beside[vo] = self._narrow(vo)
        contest = contests.get(queues)
        if contest is None and contests:  # of a job that is not stored yet
            where = self._where[vo]
            contest = Contest(
                [row for row in self._waiting if row[1].vo == vo and where.get(row[0], -1) & queues],
                self._sharing,
            )
        return self if contest is None else contest

    def _narrow(self, vo: str) -> dict[int, Contest]:
        """Empty if they are too many."""
        where, kinds = self._where[vo], dict[int, list[int]]()
        for number, (tq_id, key, _) in enumerate(self._waiting):
            if key.vo == vo:
                kinds.setdefault(where.get(tq_id, -1), []).append(number)
        if len(kinds) > _MOST_KINDS:
            return {}
        rivals = {mask: tuple(other for other in kinds if mask & other) for mask in kinds}
        alike = {
            beside: sorted(chain.from_iterable(kinds[mask] for mask in beside))
            for beside in set(rivals.values())
        }
        if sum(map(len, alike.values())) > _MOST_RIVALS:
            return {}
        contests = {
            beside: Contest([self._waiting[number] for number in members], self._sharing)
            for beside, members in alike.items()
        }
        return {mask: contests[beside] for mask, beside in rivals.items()}

    def turn(
        self, key: TaskQueueKey, tq_id: int | None, *, ahead: int, shares: Mapping[str, GroupShare]
    ) -> Turn:
        """`tq_id`: None for a new task queue."""
        groups: Mapping[str, int] = self.jobs.get(key.vo, {})
        part, older = self._parts_of({*groups, key.group}, shares)[key.group]
        owners = self._owners.get((key.vo, key.group), {})
        rank, total = owners.get(self._owner(key), (len(owners), 0.0))
        before_owner, of_owner = self._owner_parts(key, shares, rank)
        each = part * of_owner
        weight, jobs = priority_weight(key.user_priority), 0
        before, total = total, total + weight
        if tq_id in self._own:
            (before, jobs), total = self._own[tq_id], total - weight
        return Turn(
            ahead=ahead,
            others=max(0, sum(groups.values()) - jobs),
            part=each * weight / total,
            older=older + part * before_owner + each * before / total,
        )

    def _owner_parts(
        self, key: TaskQueueKey, shares: Mapping[str, GroupShare], rank: int
    ) -> tuple[float, float]:
        """Of the group's part: that of the owners before this one, and its own; it may be new."""
        weights = shares.get(key.group, DEFAULT_GROUP).owner_weights
        owners = self._owners.get((key.vo, key.group), {})
        if not weights:
            count = max(len(owners), rank + 1)
            return rank / count, 1 / count
        sums = self._sums.get((key.vo, key.group))
        if sums is None:
            sums = [0.0, *accumulate(weights.get(owner, 1.0) for owner in owners)]
            self._sums[key.vo, key.group] = sums
        own = weights.get(self._owner(key), 1.0)
        total = sums[-1] + (own if rank == len(owners) else 0.0)
        return sums[rank] / total, own / total

    def _parts_of(
        self, groups: Collection[str], shares: Mapping[str, GroupShare]
    ) -> dict[str, tuple[float, float]]:
        key = frozenset(groups)
        parts = self._parts.get(key)
        if parts is None:
            parts, sum_of = {}, 0.0
            for group, part in sorted(parts_of(key, shares).items()):
                parts[group] = part, sum_of
                sum_of += part
            self._parts[key] = parts
        return parts
