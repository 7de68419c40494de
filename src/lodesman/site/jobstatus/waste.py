"""What a job would lose and how long it stays: formulas 9 to 11 of the seed, from both sides. Pure.

A core-second is one core of the allocation for one second of wall time. Killed, a job loses what its payloads computed since
their commits. Drained, it loses the cores that are idle until its last payload ends. Between events both grow linearly, so
that a site computes them with its own clock:

    remaining = last_exp_job_end - now, or last_max_job_end - now
    draining  = (allocated - used_CPU) * (first_exp_job_end - now) + add_final_exp_waste
    kill      = add_uncom_time + used_CPU * (now - last_job_start)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .values import SKEW_SECONDS, Flags, Status

STALE_SECONDS = 600
"""Values this old are flagged."""
SILENT_SECONDS = 3600
"""Values this old are as if nothing was published."""
LEAST_OVERRUN_SECONDS = 300


@dataclass(frozen=True)
class RunningPayload:
    """As the writer knows it; UNIX seconds."""

    cores: int
    started: float
    committed: float  # the last commit, else the start
    expected_end: float  # a good-faith estimate
    enforced_end: float | None = None  # None: nothing ends it


@dataclass(frozen=True)
class Estimate:
    """For use cases 9 to 11. None: unknown, which is never zero."""

    remaining_expected: int | None = None  # seconds
    remaining_max: int | None = None  # seconds
    draining_waste: int | None = None  # core-seconds
    kill_waste: int | None = None  # core-seconds
    flags: Flags = ()  # what was repaired, clamped or doubtful


def publish(
    running: Sequence[RunningPayload],
    *,
    allocated: int,
    pending_waste: float,
    slot_ends: float | None,
    can_postpone: bool,
    priority: int,
    now: float,
) -> Status:
    """Starts are rounded down and ends up: never promise too much.

    `pending_waste`: core-seconds of ended payloads whose output is not safe. `slot_ends`: when anything ends everything.
    """
    pending = math.ceil(pending_waste)
    if not running:
        end = math.ceil(now)
        return Status(0, math.floor(now), end, end, end, pending, 0, can_postpone, priority)
    used = sum(payload.cores for payload in running)
    commits = [(payload.cores, math.floor(payload.committed)) for payload in running]
    ends = [(payload.cores, expected_end(payload, slot_ends, now)) for payload in running]
    limits = [_enforced_end(payload, slot_ends, now) for payload in running]
    start = max(moment for _, moment in commits)
    first, last = min(end for _, end in ends), max(end for _, end in ends)
    return Status(
        used_cpu=min(used, allocated),
        last_job_start=start,
        first_exp_job_end=first,
        last_exp_job_end=last,
        last_max_job_end=None if None in limits else max(limit for limit in limits if limit is not None),
        add_uncom_time=pending + sum(cores * (start - moment) for cores, moment in commits),
        add_final_exp_waste=max(
            0, allocated * (last - first) - sum(cores * (end - first) for cores, end in ends)
        ),
        can_postpone_last_job=can_postpone,
        priority_factor=priority,
    )


def expected_end(payload: RunningPayload, slot_ends: float | None, now: float) -> int:
    """Not in the past nor after the payload is made to end. An estimate that has passed is made anew: a quarter of the run
    is added, at least 300 s, then twice as much.
    """
    end = payload.expected_end
    step = max(LEAST_OVERRUN_SECONDS, (end - payload.started) / 4)
    while end <= now:
        end, step = end + step, step * 2
    limit = _enforced_end(payload, slot_ends, now)
    return math.ceil(end) if limit is None else min(math.ceil(end), limit)


def _enforced_end(payload: RunningPayload, slot_ends: float | None, now: float) -> int | None:
    limits = [limit for limit in (payload.enforced_end, slot_ends) if limit is not None]
    return math.ceil(max(now, min(limits))) if limits else None


@dataclass(frozen=True)
class _Site:
    """The site's own numbers bound claims. `worked`: wall seconds without suspension."""

    now: int
    allocated: int | None
    worked: int | None
    batch_ends: int | None


def estimate(
    status: Status,
    *,
    now: float,
    allocated: int | None,
    jobstart: float | None,
    batch_ends: float | None = None,
    suspended: float = 0,
    age: float | None = None,
) -> Estimate:
    """Of a job with this repaired status; the site's numbers clamp claims. `jobstart`, `batch_ends`: by the batch system,
    which kept it from working for `suspended` seconds. None: unknown.
    """
    if status.used_cpu is None or (age is not None and age > SILENT_SECONDS):
        return Estimate(flags=("silent",))
    flags = {"stale"} if age is not None and age > STALE_SECONDS else set[str]()
    worked = None if jobstart is None else max(0, math.ceil(now - jobstart - suspended))
    site = _Site(math.floor(now), allocated, worked, None if batch_ends is None else math.ceil(batch_ends))
    return Estimate(
        remaining_expected=_remaining(status, status.last_exp_job_end, site, flags),
        remaining_max=_remaining(status, _last_end(status, site), site, flags),
        draining_waste=_draining(status, site, flags),
        kill_waste=_kill(status, site, suspended, flags),
        flags=tuple(sorted(flags)),
    )


def _last_end(status: Status, site: _Site) -> int | None:
    limits = [limit for limit in (status.last_max_job_end, site.batch_ends) if limit is not None]
    return min(limits) if limits else None


def _remaining(status: Status, end: int | None, site: _Site, flags: set[str]) -> int | None:
    if status.used_cpu == 0:
        return 0
    if end is None:
        return None
    if site.batch_ends is not None and max(end, status.last_max_job_end or 0) > site.batch_ends:
        flags.add("beyond-batch-end")
        end = min(end, site.batch_ends)
    if end < site.now:
        flags.add("overdue")
    return max(0, end - site.now)


def _draining(status: Status, site: _Site, flags: set[str]) -> int | None:
    first, waste = status.first_exp_job_end, status.add_final_exp_waste
    if status.used_cpu == 0:
        return 0
    if status.used_cpu is None or first is None or waste is None:
        return None
    if first < site.now:
        flags.add("overdue")
    if site.allocated is None:
        flags.add("allocated-unknown")
        return max(0, waste)
    total = (site.allocated - status.used_cpu) * max(0, first - site.now) + waste
    end = _last_end(status, site)
    most = None if end is None else site.allocated * max(0, end - site.now)
    return _clamp("draining", total, most, flags)


def _kill(status: Status, site: _Site, suspended: float, flags: set[str]) -> int | None:
    start, uncommitted = status.last_job_start, status.add_uncom_time
    if status.used_cpu == 0:
        start = site.now
    if status.used_cpu is None or start is None or uncommitted is None:
        return None
    if start - site.now > SKEW_SECONDS:
        flags.add("skew")
    since = max(0, site.now - start)
    if site.worked is not None and since > site.worked:
        flags.add("suspended" if suspended else "kill-clamped")
        since = site.worked
    total = uncommitted + status.used_cpu * since
    is_known = site.worked is not None and site.allocated is not None
    return _clamp("kill", total, (site.worked or 0) * (site.allocated or 0) if is_known else None, flags)


def _clamp(name: str, total: int, most: int | None, flags: set[str]) -> int:
    if total < 0:
        flags.add(f"{name}-negative")
    if most is not None and total > most:
        flags.add(f"{name}-clamped")
        return most
    return max(0, total)
