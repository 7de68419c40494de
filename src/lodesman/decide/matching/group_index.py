"""The task queues of one group: slots, masks, owners, weights, and caps by `AtMost`. Masks are only as wide as one
group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from lodesman.decide.masks.bits import Slots, bits
from lodesman.decide.masks.cells import Cell
from lodesman.decide.masks.table import Table
from lodesman.decide.matching.criteria import HOW_MUCH, WHERE, wanted_of
from lodesman.decide.matching.shares import priority_weight
from lodesman.decide.matching.task_queue import TaskQueueKey

_ALL_OWNERS: Final = ""
_RECENT: Final = 64  # arrivals remembered
_CATCH_UP: Final = 24  # arrivals up to which a mask is mended, not made anew; more if masks are wide
_WIDE: Final = 4096
_HOLDS: Final = tuple(criterion.relation.holds for criterion in WHERE)
_LONG: Final = 16  # values from which on a set is faster than a tuple

# Slot, and what the task queue asks: (place of the criterion, value).
_Arrival = tuple[int, tuple[tuple[int, Any], ...]]


@dataclass(slots=True, eq=False)
class OwnerLoad:
    """What one owner has waiting."""

    waiting: int = 0  # jobs
    queues: int = 0  # task queues with such jobs


@dataclass(slots=True, eq=False)
class Cap:
    """Task queues of a submission with `AtMost`, open or not together."""

    group: GroupIndex
    full: bool  # as many of its jobs are taken as may be
    mask: int = 0  # slots of the group


@dataclass(slots=True, eq=False)
class IndexedQueue:
    """One task queue in the index."""

    tq_id: int
    key: TaskQueueKey
    group: GroupIndex
    waiting: int
    load: OwnerLoad  # all that its owner has
    slot: int = -1
    limits: frozenset[str] = frozenset()  # the names of the full limits that block it
    cap: Cap | None = None  # blocks it, too, while it is full

    @property
    def is_open(self) -> bool:
        """Whether a job waits and nothing blocks it."""
        return self.waiting > 0 and not self.limits and (self.cap is None or not self.cap.full)


class OwnerQueues:
    """An owner's task queues (all owners' if the group shares jobs), by UserPriority weight."""

    __slots__ = ("by_weight", "everyone", "name", "place", "weighted")

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.place = place  # in the list that the lottery draws from
        self.everyone = Cell()
        self.by_weight: dict[float, Cell] = {}
        self.weighted: list[tuple[float, Cell]] = []

    def add(self, slot: int, weight: float) -> None:
        """Add a task queue of this weight."""
        cell = self.by_weight.get(weight)
        if cell is None:
            cell = self.by_weight[weight] = Cell()
            self.weighted = list(self.by_weight.items())
        cell.add(slot)
        self.everyone.add(slot)

    def remove(self, slot: int, weight: float) -> None:
        """Undo `add`."""
        cell = self.by_weight[weight]
        cell.remove(slot)
        self.everyone.remove(slot)
        if not cell.size:
            del self.by_weight[weight]
            self.weighted = list(self.by_weight.items())


class GroupIndex:
    """All task queues of a group of a VO."""

    __slots__ = (
        "_numbers", "_sums", "_where", "alive", "arrived", "changes", "job_sharing", "limited", "name", "number", "occupied",
        "open", "owner_weights", "owners", "owners_drawn", "recent", "slots", "vo",
    )  # fmt: skip

    def __init__(self, vo: str, name: str, *, number: int, birth: int) -> None:
        self.vo = vo
        self.name = name
        self.number = number  # its place in the lists of a view
        self.arrived = birth << 40  # counts arrivals; `birth` makes it different for each group
        self.recent: list[_Arrival] = []  # the last arrivals, by which remembered masks catch up
        self.open = 0  # may be drawn: a job waits, and no limit or full cap blocks; no bit for a free slot
        self.changes = 0  # of the open slots
        self.alive = 0  # a job waits
        self.limited = 0  # a limit blocks
        self.job_sharing = False
        self.slots = Slots[IndexedQueue]()
        self.owners: dict[str, OwnerQueues] = {}
        self.owners_drawn: list[OwnerQueues] = []
        self.owner_weights: Mapping[str, float] = {}  # of owners that are not drawn like the others
        self._sums: list[float] = []
        self.occupied = 0  # the slots of task queues
        self._where = Table(criterion.relation.of_keys() for criterion in WHERE)
        self._numbers = Table(criterion.relation.of_keys() for criterion in HOW_MUCH)

    def add(self, queue: IndexedQueue) -> int:
        """Give a task queue the lowest free slot."""
        slot = queue.slot = self.slots.put(queue)
        self.occupied |= 1 << slot
        if queue.cap is not None:
            queue.cap.mask |= 1 << slot
        values_of_where = wanted_of(queue.key, WHERE)
        self._where.add(slot, values_of_where)
        self._numbers.add(slot, wanted_of(queue.key, HOW_MUCH))
        self._plant(queue)
        self.refresh(queue)
        self.arrived += 1
        needs = ((place, values) for place, values in enumerate(values_of_where) if values is not None)
        self.recent.append(
            (slot, tuple((place, frozenset(v) if len(v) > _LONG else v) for place, v in needs))
        )
        if len(self.recent) > _RECENT:
            del self.recent[: _RECENT // 2]
        return slot

    def remove(self, queue: IndexedQueue) -> None:
        """Free the slot of a task queue."""
        slot = queue.slot
        bit = 1 << slot
        self.slots.free(slot)
        self.occupied ^= bit
        self.alive &= ~bit
        self.open &= ~bit
        self.limited &= ~bit
        if queue.cap is not None:
            queue.cap.mask &= ~bit
        self.changes += 1
        self._where.remove(slot, wanted_of(queue.key, WHERE))
        self._numbers.remove(slot, wanted_of(queue.key, HOW_MUCH))
        self._uproot(queue)

    def refresh(self, queue: IndexedQueue) -> None:
        """Set the bits of a task queue."""
        bit = 1 << queue.slot
        if bool(self.alive & bit) != (queue.waiting > 0):
            self.alive ^= bit
        if bool(self.open & bit) != queue.is_open:
            self.open ^= bit
            self.changes += 1

    def flip(self, cap: Cap) -> None:
        """Close or open a cap's task queues."""
        cap.full = not cap.full
        self.open = self.open & ~cap.mask if cap.full else self.open | cap.mask & self.alive & ~self.limited
        self.changes += 1

    def catch_up(self, mask: int, missed: int, where: Sequence[Any]) -> int:
        """The slots that a resource may serve, but for numbers, emptiness and limits. `mask`: as it was `missed`
        arrivals ago.
        """
        if missed > len(self.recent) or missed > _CATCH_UP + len(self.slots) // _WIDE:
            return self._where.narrow(self.occupied, where)
        for slot, needs in self.recent[-missed:]:
            bit = 1 << slot
            for place, values in needs:
                offered = where[place]
                if offered is not None and not _HOLDS[place](values, offered):
                    mask &= ~bit
                    break
            else:
                mask |= bit
        return mask

    def narrow_numbers(self, mask: int, numbers: Sequence[int]) -> int:
        """The slots of `mask` whose cores, memory and CPU time suffice."""
        cores, memory, cpu_time = self._numbers.columns
        mask = cpu_time.narrow(memory.narrow(mask, numbers[1]), numbers[2])
        return cores.narrow(mask, numbers[0]) if mask else 0

    def fitting(self, mask: int, where: Sequence[Any], numbers: Sequence[int]) -> int:
        """The slots of `mask` that every criterion passes."""
        return self._numbers.narrow(self._where.narrow(mask, where), numbers)

    def queues(self, mask: int) -> Iterator[IndexedQueue]:
        """The task queues of a mask."""
        for slot in bits(mask):
            queue = self.slots[slot]
            if queue is not None:
                yield queue

    def set_job_sharing(self, job_sharing: bool) -> None:
        """Draw owners, or (job sharing) only task queues."""
        if job_sharing == self.job_sharing:
            return
        self.job_sharing = job_sharing
        self.owners = {}
        self.owners_drawn = []
        self._sums = []
        for queue in self.queues(self.occupied):
            self._plant(queue)

    def weigh_owners(self, weights: Mapping[str, float]) -> None:
        """Set the owners' weights; those without one have 1."""
        self.owner_weights = weights
        self._sums = []

    def owner_sums(self) -> list[float]:
        """The running sums of the weights of `owners_drawn`."""
        if not self._sums:
            weight = self.owner_weights.get
            self._sums = list(accumulate(weight(owner.name, 1.0) for owner in self.owners_drawn))
        return self._sums

    def _owner_of(self, queue: IndexedQueue) -> str:
        return _ALL_OWNERS if self.job_sharing else queue.key.owner

    def _plant(self, queue: IndexedQueue) -> None:
        name = self._owner_of(queue)
        owner = self.owners.get(name)
        if owner is None:
            owner = self.owners[name] = OwnerQueues(name, len(self.owners_drawn))
            self.owners_drawn.append(owner)
            self._sums = []
        owner.add(queue.slot, priority_weight(queue.key.user_priority))

    def _uproot(self, queue: IndexedQueue) -> None:
        name = self._owner_of(queue)
        owner = self.owners[name]
        owner.remove(queue.slot, priority_weight(queue.key.user_priority))
        if owner.everyone.size:
            return
        del self.owners[name]
        self._sums = []
        last = self.owners_drawn.pop()
        if last is not owner:
            self.owners_drawn[owner.place] = last
            last.place = owner.place


_Waiting = tuple[int, TaskQueueKey, int]  # a task queue, its key and its waiting jobs


@dataclass(slots=True, eq=False)
class _Submission:
    taken: int  # its jobs that are
    caps: dict[int, Cap]  # by the number allowed, which differs only where jobs were changed


class Caps:
    """Submissions with `AtMost`, each with its own task queues of one group; none is drawn while as many jobs are
    taken (ADR 0075). For the writer's thread.
    """

    __slots__ = ("_eased", "_known")

    def __init__(self) -> None:
        self._known: dict[int, _Submission] = {}
        self._eased: dict[Cap, int] = {}

    def enter(self, queue: IndexedQueue) -> None:
        """Give a task queue its submission's cap, before it has a slot."""
        if queue.key.at_most:
            entry = self._submission(queue.key.submission)
            most = queue.key.at_most
            cap = entry.caps.get(most)
            if cap is None:
                cap = entry.caps[most] = Cap(queue.group, full=entry.taken >= most)
            queue.cap = cap

    def leave(self, queue: IndexedQueue) -> None:
        """Forget the cap when its last task queue leaves the group."""
        if queue.cap is not None and not queue.cap.mask:
            number = queue.key.submission
            del self._known[number].caps[queue.key.at_most]
            self._eased.pop(queue.cap, None)
            self._forget(number)

    def taken(self, submission: int) -> int:
        """Taken jobs of a submission."""
        entry = self._known.get(submission)
        return 0 if entry is None else entry.taken

    def count(self, submission: int, by: int) -> bool:
        """Count a job taken (1), or no more (-1). Returns whether task queues opened or closed."""
        entry, flipped = self._submission(submission), False
        entry.taken += by
        for most, cap in entry.caps.items():
            if cap.full != (entry.taken >= most):
                cap.group.flip(cap)
                flipped = True
            if by < 0 and not cap.full:
                self._eased[cap] = most - entry.taken
        self._forget(submission)
        return flipped

    def recount(self, taken: Iterable[int]) -> int:
        """Correct the counts by the submissions of all jobs taken. Returns how many were wrong."""
        counts = Counter(taken)
        wrong = [number for number in {*self._known, *counts} if self.taken(number) != counts[number]]
        for number in wrong:
            self.count(number, counts[number] - self.taken(number))
        return len(wrong)

    def take_eased(self) -> Iterator[tuple[IndexedQueue, int]]:
        """Open task queues with jobs that ended since the last call, and how many jobs may start."""
        eased, self._eased = self._eased, {}
        for cap, room in eased.items():
            for queue in cap.group.queues(cap.mask & cap.group.open):
                yield queue, min(room, queue.waiting)

    def _submission(self, number: int) -> _Submission:
        return self._known.get(number) or self._known.setdefault(number, _Submission(0, {}))

    def _forget(self, number: int) -> None:
        entry = self._known[number]
        if not entry.taken and not entry.caps:
            del self._known[number]


def startable(waiting: Iterable[_Waiting], taken: Mapping[int, int]) -> list[_Waiting]:
    """Task queues with jobs that may start by `AtMost`, and how many: the first ones get what a submission has left."""
    startable_queues, handed_out = list[_Waiting](), Counter[int]()
    for tq_id, key, jobs in waiting:
        if key.at_most:
            room = max(0, key.at_most - taken.get(key.submission, 0) - handed_out[key.submission])
            jobs = min(jobs, room)  # noqa: PLW2901 - of all others all may start
            handed_out[key.submission] += jobs
        if jobs:
            startable_queues.append((tq_id, key, jobs))
    return startable_queues
