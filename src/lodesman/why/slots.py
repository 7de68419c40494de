"""Which pilots start within a minute: those with a free slot in their CE queue, or whose like waited no longer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lodesman.answers.nodes import QueueId
from lodesman.masks.bits import mask_of
from lodesman.matching import TaskQueueKey
from lodesman.matching.policy import VOConfig

SOON_SECONDS: Final = 60.0


class Size(NamedTuple):
    """The free cores and MB of memory of a pilot."""

    cores: int
    memory_mb: int

    def jobs(self, key: TaskQueueKey) -> int:
        """The jobs of a task queue that fit at once."""
        by_cores = self.cores // max(1, key.cores)
        return min(by_cores, self.memory_mb // key.memory_mb) if key.memory_mb else by_cores


class PilotsThere(NamedTuple):
    """Our pilots in a CE queue that run, and those that wait. `quick`: of those like them that joined lately, how many a
    minute to count on; None if all of them, as nothing says how many slots there are.
    """

    running: int = 0
    waiting: int = 0
    quick: int | None = 0


@dataclass(frozen=True, slots=True)
class QueueSlots:
    """A CE queue as the director's last iteration saw it, and our pilots there now. `slots` and `others`, the pilots of
    others, are None if unknown.
    """

    slots: int | None
    others: int | None
    own: PilotsThere

    @classmethod
    def of(cls, room: Mapping[str, Any] | None, own: PilotsThere) -> QueueSlots:
        """From a room of the director's record; None: the director did not consider the queue."""
        found = room or {}
        return cls(found.get("slots"), found.get("others"), own)

    @property
    def free(self) -> int | None:
        """Slots in which nothing runs; None if unknown."""
        if self.slots is None or self.others is None:
            return None
        return max(0, self.slots - self.others - self.own.running)

    def starting(self, more: int = 0) -> int:
        """Of the pilots that wait there, and of some more, those expected to start within a minute."""
        waiting = self.own.waiting + more
        if self.own.quick is None and self.free is None:
            return waiting
        return min(waiting, (self.free or 0) + (self.own.quick or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class VOSlots:
    """The CE queues of a VO as masks. `sendable`: by the number of pilots that the director may send there and that start
    within a minute, and their size. `slots` and `free` slots: by their number; those that are unknown are left out.
    `most`: the pilots that the director is expected to send at once.
    """

    sendable: Mapping[tuple[int, Size], int]
    slots: Mapping[int, int]
    free: Mapping[int, int]
    most: float

    def starts(self, key: TaskQueueKey, queues: int) -> int:
        """The jobs of a task queue that pilots sent to these queues would start within a minute."""
        found, largest = 0, 0
        for (pilots, size), mask in self.sendable.items():
            count, jobs = (mask & queues).bit_count(), size.jobs(key)
            if count and jobs:
                found, largest = found + count * pilots * jobs, max(largest, jobs)
        return int(min(found, self.most * largest + 0.5))

    def count(self, queues: int) -> tuple[int, int]:
        """Known slots of these queues, and how many of them are free."""
        one, two = (
            sum(n * (mask & queues).bit_count() for n, mask in by.items()) for by in (self.slots, self.free)
        )
        return one, two


def vo_slots(
    config: VOConfig,
    rooms: Mapping[str, Mapping[str, Any]],
    own: Mapping[QueueId, PilotsThere],
    *,
    most: float,
) -> VOSlots:
    """`rooms`: those of the director's record; `own`: our pilots, where some are."""
    sendable: list[tuple[tuple[int, Size], int]] = []
    slots: list[tuple[int, int]] = []
    free: list[tuple[int, int]] = []
    for bit, offer in config.by_bit.items():
        room = rooms.get("/".join(offer.queue))
        there = QueueSlots.of(room, own.get(offer.queue, _NONE))
        left = 0 if room is None else max(0, room.get("left", room["room"]))
        soon = there.starting(left) - there.starting() if left else 0
        if soon > 0:
            sendable.append(((soon, Size(offer.request.cores, offer.request.memory_mb)), bit))
        if there.free is not None and there.slots is not None:
            slots.append((there.slots, bit))
            free.append((there.free, bit))
    return VOSlots(sendable=masks(sendable), slots=masks(slots), free=masks(free), most=most)


_NONE: Final = PilotsThere()


def masks(bits: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    """Each key with the mask of its bits."""
    found: dict[Any, list[int]] = {}
    for key, bit in bits:
        found.setdefault(key, []).append(bit)
    return {key: mask_of(members) for key, members in found.items()}
