"""Rooms of the CE queues while pilots are seated one by one: what is left per queue and per CE."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from lodesman.director.breaker import Breaker
from lodesman.director.clamps import Clamp, clamp
from lodesman.director.queues import CandidateQueue, queue_limits
from lodesman.masks.bits import Tally, mask_of
from lodesman.resources import NodePath, QueueId


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGates:
    """What stands before the queues besides their load: breakers (absent: closed), whole tokens of the
    CEs (absent: not limited), and the age in seconds at which a load is no longer believed.
    """

    breakers: Mapping[QueueId, Breaker]
    tokens: Mapping[NodePath, int]
    max_load_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Pilots wanted in a CE queue, pilots it would take at most, and what its clamps took away: of the wanted ones, or
    of a single one where none is wanted, so that what shuts a queue is always known.

    Without any limit the room is what is wanted.
    """

    wanted: int
    room: int
    clamps: tuple[Clamp, ...] = ()


def room_of(queue: CandidateQueue, wanted: int, *, gates: QueueGates, now: float) -> Room:
    """The room of one queue before anybody is seated."""
    limits = tuple(
        queue_limits(
            queue,
            breaker=gates.breakers.get(queue.queue_id, Breaker()),
            tokens=gates.tokens.get(queue.queue_id.ce_path),
            now=now,
            max_age_s=gates.max_load_age_s,
        )
    )
    # All of the free room, not only what is wanted of it: rooms are the weights of the draw.
    room = max(0, min((limit.limit for limit in limits), default=wanted))
    return Room(wanted=wanted, room=room, clamps=clamp(max(1, wanted), limits).clamps)


class Floor:
    """Who sits where. Queue i is bit i; `seats` counts by (number of the ask, bit)."""

    def __init__(
        self, queues: Sequence[CandidateQueue], rooms: Sequence[Room], tokens: Mapping[NodePath, int]
    ) -> None:
        self.seats: Counter[tuple[int, int]] = Counter()
        self._ce_ids = [queue.queue_id.ce_path for queue in queues]
        self._tokens = dict(tokens)
        siblings: defaultdict[NodePath, list[int]] = defaultdict(list)
        for bit, ce_path in enumerate(self._ce_ids):
            siblings[ce_path].append(bit)
        self._siblings = {ce_path: mask_of(members) for ce_path, members in siblings.items()}
        # What each queue would still take; and of these, how many pilots would start at once.
        self._left = Tally({bit: room.room for bit, room in enumerate(rooms)})
        self._at_once = Tally(
            {
                bit: min(room.room, free_slots(queue))
                for bit, (queue, room) in enumerate(zip(queues, rooms, strict=True))
            }
        )
        self.had_room = self._left.positive
        """The queues that had room at the start."""

    def put(self, ask: int, eligible: int, rng: Random) -> None:
        """Seat one pilot of an ask, if any queue of `eligible` has room."""
        free = eligible & self._left.positive
        if not free:
            return
        # A pilot that would start at once is better than one that waits, where slots are known.
        at_once = eligible & self._at_once.positive
        bit = self._at_once.draw(at_once, rng) if at_once else self._left.draw(free, rng)
        self.seats[ask, bit] += 1
        self._left.take_one(1 << bit)
        self._at_once.take_one(1 << bit)
        ce_path = self._ce_ids[bit]
        if ce_path in self._tokens:
            self._tokens[ce_path] -= 1
            for tally in (self._left, self._at_once):
                tally.limit(self._siblings[ce_path], self._tokens[ce_path])


def free_slots(queue: CandidateQueue) -> int:
    """Slots in which a new pilot would start at once; 0 if the number of slots is unknown."""
    if queue.slots is None:
        return 0
    taken = (queue.load_waiting.value or 0) + (queue.load_running.value or 0)
    return max(0, queue.slots - max(taken + queue.own.since_load, queue.own.waiting + queue.own.running))
