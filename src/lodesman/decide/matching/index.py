"""All task queues that may have waiting jobs, by VO and group. An emptied one keeps its slot for a while. For the
writer's thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from lodesman.decide.matching.group_index import Caps, GroupIndex, IndexedQueue, OwnerLoad
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.place_book import Delays
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources.place_limits import PlaceLimit

_IDLE_SECONDS: Final = 300.0
_CROWDED_SECONDS: Final = 1.0
_IDLE_AT_LEAST: Final = 1024
_IDLE_PART: Final = 4


class Index:
    """Task queues by id and key, and as bits of their group."""

    __slots__ = (
        "_births",
        "_by_key",
        "_free_numbers",
        "_groups",
        "_idle",
        "_loads",
        "_queues",
        "caps",
        "changes",
        "delays",
        "limits",
        "next_limits",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0  # changes with groups and shares: views are then made anew
        self.changes = 0  # changes when a task queue opens, closes, comes or goes
        self._queues: dict[int, IndexedQueue] = {}
        self._by_key: dict[TaskQueueKey, int] = {}
        self._groups: dict[tuple[str, str], GroupIndex] = {}
        self._idle: dict[int, float] = {}  # emptied at, longest ago first
        self._births = count(1)
        self._loads: dict[str, OwnerLoad] = {}
        self._free_numbers: list[int] = []
        self.limits = RunLimits()  # shut task queues at some places
        self.next_limits: RunLimits | None = None  # prepared, to be used when complete
        self.caps = Caps()
        self.delays = Delays(lambda: 0.0, self._review)

    def __len__(self) -> int:
        return len(self._queues)

    def put(self, tq_id: int, key: TaskQueueKey, waiting: int, *, now: float) -> int:
        """Add a task queue, new by id and key; returns its slot."""
        if tq_id in self._queues or key in self._by_key:
            raise ValueError(f"task queue {tq_id} or its key is in the index already")
        if waiting < 0:
            raise ValueError(f"task queue {tq_id} cannot have {waiting} waiting jobs")
        for values in (
            key.sites,
            key.banned_sites,
            key.grid_ces,
            key.platforms,
            key.tags,
            key.submission_pools,
        ):
            if len(values) > 1 and len(set(values)) != len(values):  # a bit would be set twice
                raise ValueError("the lists of a task-queue key have no duplicates")
        group = self._groups.get((key.vo, key.group))
        if group is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._groups)
            group = GroupIndex(key.vo, key.group, number=number, birth=next(self._births))
            self._groups[key.vo, key.group] = group
            self.version += 1
        load = self._loads.setdefault(key.owner, OwnerLoad())
        queue = IndexedQueue(tq_id, key, group, waiting, load)
        load.waiting += waiting
        load.queues += bool(waiting)
        self._queues[tq_id] = queue
        self._by_key[key] = tq_id
        if not waiting:
            self._idle[tq_id] = now
        self.changes += 1
        self.caps.enter(queue)
        slot = group.add(queue)
        self.limits.add(group.number, slot, key)
        if self.next_limits is not None:
            self.next_limits.add(group.number, slot, key)
        return slot

    def remove(self, tq_id: int) -> None:
        """Remove a task queue; its slot is free at once."""
        queue = self._queues.pop(tq_id)
        queue.load.waiting -= queue.waiting
        queue.load.queues -= bool(queue.waiting)
        del self._by_key[queue.key]
        self._idle.pop(tq_id, None)
        self.changes += 1
        group = queue.group
        self.limits.remove(group.number, queue.slot, queue.key)
        if self.next_limits is not None:
            self.next_limits.remove(group.number, queue.slot, queue.key)
        group.remove(queue)
        self.caps.leave(queue)
        if not group.occupied:
            del self._groups[group.vo, group.name]
            self._free_numbers.append(group.number)
            self.version += 1

    def has(self, tq_id: int) -> bool:
        """Whether the task queue is known."""
        return tq_id in self._queues

    def find(self, key: TaskQueueKey) -> int | None:
        """The id of the task queue."""
        return self._by_key.get(key)

    def key(self, tq_id: int) -> TaskQueueKey:
        """Raises KeyError if the task queue is unknown."""
        return self._queues[tq_id].key

    def waiting(self, tq_id: int) -> int:
        """Its waiting jobs; 0 if it is unknown."""
        queue = self._queues.get(tq_id)
        return 0 if queue is None else queue.waiting

    def load(self, owner: str) -> OwnerLoad:
        """What an owner has now, also of what is held."""
        return self._loads.get(owner) or OwnerLoad()

    def queues(self) -> Iterator[tuple[int, TaskQueueKey, int]]:
        """(id, key, waiting) of all."""
        for queue in self._queues.values():
            yield queue.tq_id, queue.key, queue.waiting

    def add_waiting(self, tq_id: int, n: int, *, now: float) -> None:
        """Raises KeyError if the task queue is unknown."""
        if n < 0:
            raise ValueError(f"cannot add {n} jobs")
        if not n:
            return
        queue = self._queues[tq_id]
        queue.waiting += n
        queue.load.waiting += n
        if queue.waiting == n:
            queue.load.queues += 1
            self._idle.pop(tq_id, None)
            self._refresh(queue)

    def take(self, tq_id: int, n: int = 1, *, now: float) -> None:
        """Raises ValueError if fewer wait."""
        queue = self._queues[tq_id]
        if not 0 <= n <= queue.waiting:
            raise ValueError(f"cannot take {n} of the {queue.waiting} jobs of task queue {tq_id}")
        if n:
            queue.waiting -= n
            queue.load.waiting -= n
            if not queue.waiting:
                queue.load.queues -= 1
                self._idle[tq_id] = now
                self._refresh(queue)

    def forget_idle(self, now: float) -> list[int]:
        """Remove task queues empty for 300 s, or 1 s if very many are; returns their ids. Not within a transaction: an
        undo must find its task queues.
        """
        surplus = len(self._idle) - max(_IDLE_AT_LEAST, (len(self._queues) - len(self._idle)) // _IDLE_PART)
        gone: list[int] = []
        for tq_id, since in self._idle.items():
            if now - since <= (_IDLE_SECONDS if len(gone) >= surplus else _CROWDED_SECONDS):
                break
            gone.append(tq_id)
        for tq_id in gone:
            self.remove(tq_id)
        return gone

    def block(self, tq_id: int, limit: str = "") -> None:
        """Note a full limit of the task queue."""
        queue = self._queues[tq_id]
        queue.limits |= {limit}
        queue.group.limited |= 1 << queue.slot
        self._refresh(queue)

    def unblock(self, tq_id: int, limit: str = "") -> None:
        """Note that the limit has room again."""
        queue = self._queues[tq_id]
        queue.limits -= {limit}
        if not queue.limits:
            queue.group.limited &= ~(1 << queue.slot)
        self._refresh(queue)

    def count_start(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Charge limits for a job that starts, and begin delays."""
        self.count_attempt(key, place)
        self.delays.begin(key, place)

    def undo_start(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Undo `count_start`."""
        self.uncount_attempt(key, place)
        self.delays.undo_begin(key, place)

    def count_attempt(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Count an attempt there."""
        self.limits.take(key, place)
        if key.at_most:
            self.changes += self.caps.count(key.submission, 1)

    def uncount_attempt(self, key: TaskQueueKey, place: RunPlace) -> None:
        """Undo `count_attempt`."""
        self.limits.give(key, place)
        if key.at_most:
            self.changes += self.caps.count(key.submission, -1)

    def recount(self, live: Iterable[TaskQueueKey]) -> int:
        """Count live attempts of submissions with `AtMost` anew. Returns how many submissions were wrong."""
        wrong = self.caps.recount(key.submission for key in live if key.at_most)
        self.changes += wrong
        return wrong

    def reread_host(self, host: str) -> None:
        """Read the limits on a host again: more is known of it."""
        self.limits.reread_host(host)
        if self.next_limits is not None:
            self.next_limits.reread_host(host)

    def _review(self, delay: PlaceLimit) -> None:
        for limits in (self.limits, self.next_limits):
            if limits is not None:
                limits.review(delay.rule, (str(delay.path),))

    def prepare(self, limits: RunLimits, tq_id: int) -> None:
        """Let limits know of a task queue, if it is still there."""
        queue = self._queues.get(tq_id)
        if queue is not None:
            limits.add(queue.group.number, queue.slot, queue.key)

    def is_shut(self, tq_id: int, place: RunPlace) -> bool:
        """Whether limits keep a task queue from being drawn there."""
        queue = self._queues[tq_id]
        return bool(self.limits.shut_slots(place)[queue.group.number] >> queue.slot & 1)

    def _refresh(self, queue: IndexedQueue) -> None:
        self.changes += 1
        queue.group.refresh(queue)

    def is_open(self, tq_id: int) -> bool:
        """Whether it may be drawn anywhere."""
        queue = self._queues.get(tq_id)
        return queue is not None and queue.is_open

    def groups(self) -> Iterable[GroupIndex]:
        """Groups with task queues."""
        return self._groups.values()

    def groups_for(self, vo: str, names: tuple[str, ...] | None) -> list[GroupIndex]:
        """The groups that a resource serves; `names` None: all."""
        if names is None:
            return [group for group in self._groups.values() if group.vo == vo]
        groups = (self._groups.get((vo, name)) for name in dict.fromkeys(names))
        return [group for group in groups if group is not None]

    def group_numbers(self) -> int:
        """One more than the greatest number of a group."""
        return len(self._groups) + len(self._free_numbers)
