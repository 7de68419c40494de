"""Decisions of a pilot about its own life: ask for more, wait, or leave. Pure: values to values.

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lodesman.pilot.protocol import Job

# "No end known", as the number that is sent: 68 years.
ENDLESS_S = 2**31 - 1
# With less time left than this no job is asked for.
LEAST_LIFE_S = 30.0
# How long the server may hold an unanswered claim; it ends it earlier by itself, at a time drawn anew for each.
LONGEST_WAIT_S = 60.0
# An idle pilot leaves when the server has said that there is nothing; after this long even if it was silent.
SILENCE_S = 60.0
# Results that the server has not taken yet; with more of them no job is asked for.
MOST_UNSENT = 64
# Results are kept for so many leases of silence where the slot has no end that is known.
KEPT_LEASES = 4

# Why nothing is asked for now.
STOPPING, DRAINING, END_OF_LIFE = "stopping", "draining", "end-of-life"
NO_ROOM, BACKLOG, UNSENT = "no-room", "backlog", "unsent"

# Why a pilot leaves, as the server is told.
IDLE, DRAINED, SIGTERM, LOST = "idle", "drained", "sigterm", "error"


@dataclass(frozen=True)
class Slot:
    """What the batch system gave. `memory_mb` 0: unknown. `ends`: None when no end is known."""

    cores: int
    memory_mb: int
    jobs_at_once: int
    scaling: float = 1.0
    ends: float | None = None
    reserve_s: float = 0.0

    def life_left(self, now: float) -> float | None:
        """For payloads, None when no end is known: what the server is told at the join."""
        return None if self.ends is None else max(0.0, self.seconds_left(now))

    def seconds_left(self, now: float) -> float:
        """For payloads: what is reserved for the last results is taken off."""
        return float(ENDLESS_S) if self.ends is None else self.ends - self.reserve_s - now


@dataclass(frozen=True)
class Load:
    """What the pilot has in hand. `running` are (cores, memory_mb) of payloads that hold their room.

    `told_nothing`: since `idle_since` the server has answered that no job fits.
    """

    running: Sequence[tuple[int, int]] = ()
    backlog: int = 0
    unsent: int = 0
    idle_since: float = 0.0
    told_nothing: bool = False
    draining: bool = False
    stopping: bool = False


@dataclass(frozen=True)
class Ask:
    """Ask for at most `count` jobs that fit into what is free; 0 means unknown, never nothing."""

    count: int
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    wait_s: float


@dataclass(frozen=True)
class Pause:
    """Ask for nothing now."""

    reason: str


def reserve_s(life_s: float) -> float:
    """Of a life of that length, how much is kept for packing and reporting: 2 %, 2 s to a minute."""
    return min(60.0, max(2.0, 0.02 * life_s))


def room(slot: Slot, load: Load) -> tuple[int, int]:
    """Free (cores, memory_mb). A payload that names no memory takes its cores' part."""
    cores = slot.cores - sum(used for used, _ in load.running)
    memory_mb = slot.memory_mb
    for used, declared in load.running:
        memory_mb -= declared or slot.memory_mb * used // slot.cores
    return max(0, cores), max(0, memory_mb)


def fits(slot: Slot, load: Load, job: Job) -> bool:
    """Whether one more payload may start now. Alone in the slot any may: the matcher let it in."""
    if not load.running:
        return True
    free_cores, free_mb = room(slot, load)
    enough = job.cores <= free_cores and (job.memory_mb <= free_mb or not slot.memory_mb)
    return enough and len(load.running) < slot.jobs_at_once


def what_to_ask(slot: Slot, load: Load, now: float, *, idle_s: float) -> Ask | Pause:
    """What to ask the server for now, or why nothing."""
    left = slot.seconds_left(now)
    cores, memory_mb = room(slot, load)
    count = min(cores, slot.jobs_at_once - len(load.running))
    reason = _pause(load, left=left, count=count, memory_mb=memory_mb if slot.memory_mb else 1)
    if reason:
        return Pause(reason)
    wait_s = min(LONGEST_WAIT_S, left)
    if not load.running:
        wait_s = min(wait_s, load.idle_since + idle_s - now)
    norm = ENDLESS_S if slot.ends is None else max(1, min(ENDLESS_S, int(left * slot.scaling)))
    return Ask(count, cores, memory_mb, norm, max(0.0, wait_s))


def why_leave(slot: Slot, load: Load, now: float, *, idle_s: float) -> str:
    """The reason to leave now, or "" to stay. Nobody leaves a payload or an unsent result behind."""
    if load.running or load.backlog or load.unsent:
        return ""
    if load.stopping:
        return SIGTERM
    if load.draining or slot.seconds_left(now) < LEAST_LIFE_S:
        return DRAINED
    overdue = now - load.idle_since - idle_s
    return IDLE if overdue >= SILENCE_S or (overdue >= 0 and load.told_nothing) else ""


def contact_lost(slot: Slot, now: float, *, last_contact: float, last_end: float, lease_s: float) -> bool:
    """Whether results need not be kept any longer: the server is silent, and none is newer.

    A server that comes back gives its pilots a whole new lease, so one lease of silence loses nothing: results are kept
    until the slot ends, or for several leases where its end is not known.
    """
    silent_s = now - max(last_contact, last_end)
    if slot.ends is None:
        return silent_s > KEPT_LEASES * lease_s
    return silent_s > lease_s and now >= slot.ends


def exclusive_must_end(*, now: float, last_contact: float, lease_s: float) -> bool:
    """Whether a payload that must never run twice at once has to be stopped (DESIGN 3.2: at 0.9 lease)."""
    return now - last_contact >= 0.9 * lease_s


def _pause(load: Load, *, left: float, count: int, memory_mb: int) -> str:
    if load.stopping:
        return STOPPING
    if load.draining:
        return DRAINING
    if left < LEAST_LIFE_S:
        return END_OF_LIFE
    if load.backlog:
        return BACKLOG
    if load.unsent > MOST_UNSENT:
        return UNSENT
    return NO_ROOM if count < 1 or memory_mb < 1 else ""
