"""What a pilot decides: when to claim, wait or leave; whether a limit is passed; why an attempt ended. Pure.

Times are monotonic seconds. Limits hold for the process tree; the kernel's, per process, lie above them (`launch`).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lodesman.pilot import protocol
from lodesman.pilot.protocol import MB, AssignedJob, PayloadLimits, PayloadReport, PayloadUsage

# "No end known", as the number that is sent: 68 years.
_ENDLESS_S = 2**31 - 1
# With less time left no job is claimed.
_LEAST_LIFE_S = 30.0
# How long the server may hold an unanswered claim; it ends it earlier by itself, at a random time.
_MAX_WAIT_S = 60.0
# An idle pilot leaves when the server has answered that no job fits; after this time also without that answer.
_MAX_SILENCE_S = 60.0
# With more undelivered results no job is claimed.
_MAX_UNSENT = 256
# Jobs are claimed ahead for this time, at the rate at which payloads ended in it; not all of them with one claim.
AHEAD_S = 1.0
MOST_AHEAD = 1_000
MOST_ASKED = 500
# Payloads that began together end together: their rate is counted over this time at least.
_LEAST_COUNTED_S = 0.1
# What was claimed this long ago and has not started goes back to the server.
_OVERDUE_S = 2.0

# Causes of a drain; HELD lets the pilot stay.
SERVER, NODE, PILOT, SLOT_END, NO_TIME, HELD = "server", "node", "pilot", "slot-end", "no-time", "held"
STOPPING = "stopping"
# Why a pilot leaves, as the server is informed.
IDLE, DRAINED, SIGTERM, ERROR = "idle", "drained", "sigterm", "error"
# A check of all processes costs up to some milliseconds.
_MIN_CHECK_S = 0.1
# What a node that passes its trial has room for many times.
_LITTLE_BYTES = 1 << 20
_NOT_FOUND = {126: "it or its interpreter cannot be executed", 127: "it or its interpreter was not found"}


# --- the pilot ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """What the batch system gave."""

    cores: int
    memory_mb: int  # 0: unknown
    jobs_at_once: int
    scaling: float = 1.0
    ends: float | None = None  # None: no end is known
    reserve_s: float = 0.0
    shutdown: float | None = None  # the end that the site announced after the pilot's start
    retires: float | None = None  # from then on the pilot asks for nothing more because of it

    def seconds_left(self, now: float) -> float:
        """For payloads: without the time for the last results."""
        return float(_ENDLESS_S) if self.ends is None else self.ends - self.reserve_s - now

    def life_left(self, now: float) -> float | None:
        """The same for the server at the join; None when no end is known."""
        return None if self.ends is None else max(0.0, self.seconds_left(now))

    def left_to_end(self, now: float) -> float | None:
        """None when no end is known."""
        return None if self.ends is None else self.ends - now

    def is_over(self, now: float) -> bool:
        """Whether its end lets the pilot ask for nothing more."""
        return self.seconds_left(now) < _LEAST_LIFE_S or (self.retires is not None and now >= self.retires)

    def has_time_for(self, job: AssignedJob, now: float) -> bool:
        """Whether a payload that starts now should end before an announced shutdown."""
        if self.shutdown is None:
            return True  # the matcher knew the end of the slot
        return 0 < job.expected_seconds <= self.seconds_left(now)

    def memory_of(self, job: AssignedJob) -> int:
        """What a job declares, else its cores' part."""
        return job.memory_mb or self.memory_mb * job.cores // self.cores


class Load(NamedTuple):
    """What the pilot has in hand."""

    running: int = 0
    cores: int = 0
    expected_end: float | None = None  # of the last payload, None: unknown
    memory_mb: int = 0
    backlog: int = 0
    ahead: int = 0  # how many jobs it will start within AHEAD_S
    unsent: int = 0
    held_up: int = 0
    idle_since: float = 0.0
    no_job_fits: bool = False  # the server's answer since `idle_since`
    draining: bool = False
    held: bool = False  # nothing may start for some time, but the pilot does not leave
    stopping: bool = False


@dataclass(frozen=True)
class ClaimRequest:
    """Asks for jobs that fit into the free capacity; 0 means unknown, but for `count` and `ahead`."""

    count: int
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    wait_s: float
    last_end_s: float | None = None  # until the last payload is expected to end; 0: none runs, None: unknown
    ahead: int = 0  # more that can be run after them


def reserve_s(life_s: float) -> float:
    """For packing and reporting: 2 % of the life, 2 s to a minute."""
    return min(60.0, max(2.0, 0.02 * life_s))


def fits(slot: Slot, load: Load, job: AssignedJob) -> bool:
    """Alone in the slot any payload may start: the matcher let it in."""
    if not load.running:
        return True
    enough_memory = job.memory_mb <= max(0, slot.memory_mb - load.memory_mb) or not slot.memory_mb
    return job.cores <= slot.cores - load.cores and enough_memory and load.running < slot.jobs_at_once


def jobs_ahead(ends: Sequence[float], now: float) -> int:
    """How many jobs will start within AHEAD_S: as many as payloads ended in that time. `ends`: when, in order.

    After one or two, which may have run long, no job is claimed before there is room.
    """
    recent = [end for end in ends if now - end <= AHEAD_S]
    if len(recent) <= 2:
        return 0
    counted_s = min(AHEAD_S, max(_LEAST_COUNTED_S, now - recent[0]))
    return min(MOST_AHEAD, int(len(recent) * AHEAD_S / counted_s))


def is_overdue(claimed: float, now: float) -> bool:
    """Others may run a job that has waited too long for its start."""
    return now - claimed > _OVERDUE_S


def next_claim(slot: Slot, load: Load, now: float, *, idle_s: float) -> ClaimRequest | None:
    """What to ask the server for, if anything."""
    left = slot.seconds_left(now)
    if load.stopping or load.draining or load.held or load.unsent > _MAX_UNSENT:
        return None
    if slot.is_over(now):
        return None
    cores = max(0, slot.cores - load.cores)
    memory_mb = max(0, slot.memory_mb - load.memory_mb)
    count = min(cores, slot.jobs_at_once - load.running)
    if load.backlog or (slot.memory_mb and not memory_mb):
        count = 0
    # Not one by one: a claim brings half of it at least.
    ahead = min(MOST_ASKED, load.ahead - load.backlog) if 2 * load.backlog <= load.ahead else 0
    if count < 1 and ahead < 1:
        return None
    wait_s = min(_MAX_WAIT_S, left) if count > 0 else 0.0
    if not load.running and not load.held_up:  # with such it does not leave
        wait_s = min(wait_s, load.idle_since + idle_s - now)
    norm = _ENDLESS_S if slot.ends is None else max(1, min(_ENDLESS_S, int(left * slot.scaling)))
    last_end_s = None if load.expected_end is None else max(0.0, round(load.expected_end - now, 1))
    last_end_s = last_end_s if load.running else 0.0
    return ClaimRequest(max(0, count), cores, memory_mb, norm, max(0.0, wait_s), last_end_s, ahead)


def why_leave(slot: Slot, load: Load, now: float, *, idle_s: float) -> str:
    """The reason to leave now, or "" to stay. Payloads and unsent results keep the pilot, but not those `held_up` by the
    server's lack of space.
    """
    if load.running or load.backlog or load.unsent > load.held_up:
        return ""
    if load.stopping:
        return SIGTERM
    if load.draining or slot.is_over(now):
        return DRAINED
    overdue = now - load.idle_since - idle_s
    return IDLE if overdue >= _MAX_SILENCE_S or (overdue >= 0 and load.no_job_fits) else ""


def contact_lost(now: float, *, last_contact: float, last_end: float, lease_s: float) -> bool:
    """No server was found for a lease: results and slot are given up. A new contact gives a whole new lease."""
    return now - max(last_contact, last_end) > lease_s


# --- the node -------------------------------------------------------------------------------------

# What is tried of a node (`trial`): room in the scratch space, a warden, a program from the scratch space.
SCRATCH, WARDEN, EXECUTE = "scratch", "warden", "execute"
NO_PYTHON = 3
"""The exit code of that program if the pilot's Python does not run."""
# What makes a system call fail whatever the job: no room, a broken or lost disk, nothing left of what the kernel gives.
_OF_NODE = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN,
    errno.EREMOTEIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE,
})  # fmt: skip


@dataclass(frozen=True)
class StepResult:
    """How a step of the trial in the folder `place` ended."""

    step: str
    place: str
    number: int = 0  # an error of the system, 0: none that is known
    status: int | None = None  # of the program, as `judge` has it
    no_inodes: bool = False  # its file system takes no more files


def judge_step(met: StepResult) -> str:
    """In words; '' if nothing is wrong."""
    reason = os.strerror(met.number) if met.number else ""
    if met.number == errno.ENOSPC and met.no_inodes:
        reason = f"{reason} for more files (no inodes are left)"
    if met.step == SCRATCH:
        return f"{reason} in {met.place}"
    if met.step == WARDEN or (met.status is None and not met.number):
        return f"No process can be kept apart for a payload: {reason or 'it was killed at its start'}"
    if met.number:
        return f"/bin/sh cannot be started: {reason}"
    if met.status in (126, 127):
        return f"No program can be executed in {met.place}: {os.strerror(errno.EACCES)} (is it mounted with noexec?)"
    if met.status == NO_PYTHON:
        return "The pilot's Python does not run any more"
    return f"A program in {met.place} ended with {met.status}, not 0" if met.status else ""


def is_of_node(number: int | None) -> bool:
    """Whether an error number says more of the node than of the job."""
    return number in _OF_NODE


def cause_of(number: int | None, *, size: int, again: bool, otherwise: str) -> str:
    """Why an attempt ends after an error of the system on a node that passes its trial.

    `size`: bytes of its input; jobs that bring little meet with what others will meet. `again`: another did so shortly
    before. `otherwise`: if the error says nothing of the node.
    """
    if not is_of_node(number):
        return otherwise
    is_nodes = again and otherwise == protocol.INPUT and size < _LITTLE_BYTES
    return protocol.NODE_FAULT if is_nodes else protocol.PILOT_SHUTDOWN


def smells_of_node(end: PayloadReport) -> bool:
    """Whether the node is to be tried: one of no use would make a payload end so."""
    return end.cause in (protocol.NOT_STARTED, protocol.NEVER_STARTED) or (
        end.cause == protocol.EXIT and end.exit_code in _NOT_FOUND
    )


# --- a payload ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """The pilot's decision to end a payload; the first one counts."""

    cause: str
    message: str


def excess(used: PayloadUsage, limits: PayloadLimits) -> Stop | None:
    """The first limit that is passed; those that harm others come first."""
    checks = (
        (used.rss_mb, limits.memory_mb, protocol.MEMORY_LIMIT,
         "The job held {:.0f} MB of memory; {:.0f} are allowed."),
        (used.stream_bytes / MB, limits.max_output_mb, protocol.OUTPUT_LIMIT,
         "Standard output and error grew over {1:.0f} MB."),
        (used.cpu_seconds, limits.cpu_seconds, protocol.CPU_LIMIT,
         "The job used {:.0f} s of CPU time; {:.0f} are allowed."),
        (used.wall_seconds, limits.wall_seconds, protocol.WALL_LIMIT,
         "The job ran for {:.0f} s; {:.0f} are allowed."),
    )  # fmt: skip
    for amount, limit, cause, message in checks:
        if limit and amount > limit:
            return Stop(cause, message.format(amount, limit))
    return None


def next_check_s(used: PayloadUsage, limits: PayloadLimits, *, cores: int, usual_s: float) -> float:
    """Seconds until the next check: fewer when a limit may be passed before."""
    waits = [usual_s]
    if limits.cpu_seconds:
        waits.append((limits.cpu_seconds - used.cpu_seconds) / cores)
    if limits.wall_seconds:
        waits.append(limits.wall_seconds - used.wall_seconds)
    memory_near = limits.memory_mb and used.rss_mb > 0.7 * limits.memory_mb
    if memory_near or (limits.max_output_mb and used.stream_bytes > 0.5 * limits.max_output_mb * MB):
        waits.append(usual_s / 4)
    return max(_MIN_CHECK_S, min(waits))


def judge(job: AssignedJob, status: int | None, *, stop: Stop | None, cpu_seconds: float) -> PayloadReport:
    """`status`: exit code, or minus a signal; None: its warden was killed."""
    if status is None:
        end = stop or Stop(protocol.WARDEN_LOST, "The warden above it was killed, and the payload with it.")
        return protocol.report_end(job.key, end.cause, end.message)
    end = stop or _end(status, job.limits, cpu_over=0 < job.limits.cpu_seconds <= cpu_seconds)
    how = {"exit_code": status} if status >= 0 else {"signal": -status}
    return protocol.report_end(job.key, end.cause, end.message, **how)


def _end(status: int, limits: PayloadLimits, *, cpu_over: bool) -> Stop:
    if status == 0:
        return Stop(protocol.OK, "")
    if status == -signal.SIGXCPU or cpu_over:
        return Stop(protocol.CPU_LIMIT, "The job used up its CPU time.")
    if status == -signal.SIGXFSZ and limits.output_mb:
        return Stop(protocol.OUTPUT_LIMIT, "The job wrote a file that is far over the limit of its output.")
    if status < 0:
        name = next((number.name for number in signal.Signals if number == -status), "no name")
        message = f"The job was ended by signal {-status} ({name}), not by the pilot."
        return Stop(protocol.SIGNAL, message)
    meaning = f"; for the executable this code means: {_NOT_FOUND[status]}" if status in _NOT_FOUND else ""
    return Stop(protocol.EXIT, f"The job ended with exit code {status}{meaning}.")
