"""What running jobs publish: their directories, read here or on their nodes."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Callable

from lodesman.site.jobstatus.channel import READER_WAIT_S
from lodesman.site.jobstatus.reader import JobDirectory, StatusSnapshot, take_snapshots
from lodesman.site.jobstatus.sites.door import JobPlaces, SiteDoor, SiteFault, answer
from lodesman.site.jobstatus.vacate.candidates import Candidate
from lodesman.site.jobstatus.values import KEYS, Flags, Status
from lodesman.site.jobstatus.waste import Estimate, estimate

_REMOTE_SECONDS, _REMOTE_AT_ONCE = 30.0, 32
_NOTHING_THERE = ("absent", f"no-status:{KEYS[0]}")
_WORD = re.compile(r"[A-Za-z0-9_:-]{1,60}")


@dataclass(frozen=True)
class Look:
    """What one directory says. `fault`: the reader's word for no status."""

    status: Status | None
    age_s: float | None = None
    flags: Flags = ()
    fault: str | None = None


@dataclass(frozen=True)
class JobPart:
    """A job's cores on one of its nodes; '' for the node of a job without any."""

    job: Candidate
    node: str
    cores: int


LookAt = Callable[[Sequence[JobPart], float], Sequence[Look]]
"""What each part publishes at a time. They are read together: none waits for another."""


def survey(door: SiteDoor, look_at: LookAt, now: float) -> list[Candidate]:
    """Running jobs, with what they publish. Raises SiteFault."""
    running = [replace(job, can_drain=door.can_drain(job)) for job in door.running() if not job.leaving]
    return with_status(running, look_at, now)


def with_status(jobs: Sequence[Candidate], look_at: LookAt, now: float) -> list[Candidate]:
    """On several nodes, each has a directory and an equal part of the cores."""
    parts = [_parts(job) for job in jobs]
    looks = iter(look_at(list(chain.from_iterable(parts)), now))
    return [_with_looks(job, list(islice(looks, len(own))), now) for job, own in zip(jobs, parts)]


def _parts(job: Candidate) -> list[JobPart]:
    nodes = job.nodes or ("",)
    return [JobPart(job, node, job.cores // len(nodes)) for node in nodes]


def _with_looks(job: Candidate, looks: Sequence[Look], now: float) -> Candidate:
    part = job.cores // len(looks)
    faults = [look.fault or "no-status" for look in looks if look.status is None]
    if faults:
        is_there = faults[0] not in _NOTHING_THERE
        return replace(job, note=f"its numbers cannot be read ({faults[0]})" if is_there else "")
    estimates = [
        estimate(
            look.status, now=now, allocated=part, jobstart=job.started, batch_ends=job.batch_ends,
            suspended=job.suspended_seconds, age=look.age_s,
        )
        for look in looks if look.status
    ]  # fmt: skip
    ages = [look.age_s for look in looks]
    flags = {flag for look in looks for flag in look.flags} | {
        flag for part in estimates for flag in part.flags
    }
    return replace(
        job,
        status=looks[0].status,
        estimate=replace(_sum_parts(estimates), flags=tuple(sorted(flags))),
        age=None if None in ages else max(age for age in ages if age is not None),
    )


def _sum_parts(estimates: Sequence[Estimate]) -> Estimate:
    """Wastes add up; the job stays as long as its longest part. What one does not say is unknown."""

    def all_of(values: Sequence[int | None], join: Callable[[list[int]], int]) -> int | None:
        numbers = [value for value in values if value is not None]
        return join(numbers) if len(numbers) == len(values) else None

    return Estimate(
        remaining_expected=all_of([estimate.remaining_expected for estimate in estimates], max),
        remaining_max=all_of([estimate.remaining_max for estimate in estimates], max),
        draining_waste=all_of([estimate.draining_waste for estimate in estimates], sum),
        kill_waste=all_of([estimate.kill_waste for estimate in estimates], sum),
    )


def read_by_command(command: str, places: JobPlaces) -> LookAt:
    """By a command such as `ssh {node} python3 /opt/jobstatus.pyz`, to which `show --json` is added."""
    words = shlex.split(command)

    def look_at_one(part: JobPart, now: float) -> Look:
        job, node, cores = part.job, part.node, part.cores
        options = ["show", "--json", "--now", f"{now:.0f}", "--allocated", str(cores)]
        user = [] if job.uid is None else ["--uid", str(job.uid)]
        line = [word.replace("{node}", node) for word in words]
        try:
            text = answer(
                [*line, *options, *user, places.status_of(job, node)], seconds=_REMOTE_SECONDS, most=5
            )
        except SiteFault:
            return Look(None, fault="not-reached")
        return read_shown(text)

    def look_at(parts: Sequence[JobPart], now: float) -> Sequence[Look]:
        with ThreadPoolExecutor(_REMOTE_AT_ONCE) as pool:
            return list(pool.map(look_at_one, parts, repeat(now)))

    return look_at


def read_shown(text: str) -> Look:
    """Of `jobstatus show --json`, for one directory."""
    try:
        record = json.loads(text)
        keys, age, flags, fault = (record[name] for name in ("keys", "age_s", "flags", "error"))
        values = {key: value for key, value in keys.items() if key in KEYS and isinstance(value, int)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Look(None, fault="no-answer")
    if fault is not None or "used_CPU" not in values:
        return Look(None, fault=_word(fault))
    words = flags if isinstance(flags, list) else []
    return Look(
        Status.of(_set_types(values)),
        float(age) if isinstance(age, (int, float)) and age >= 0 else None,
        tuple(sorted(_word(flag) for flag in words)),
    )


def _set_types(values: Mapping[str, int]) -> dict[str, int]:
    return {key: bool(value) if key == KEYS[7] else int(value) for key, value in values.items()}


def _word(text: object) -> str:
    return text if isinstance(text, str) and _WORD.fullmatch(text) else "no-status"


def read_here(places: JobPlaces) -> LookAt:
    """On this machine. A job whose lock was held all the time is not waited for again."""
    held: set[Path] = set()

    def look_at(parts: Sequence[JobPart], now: float) -> Sequence[Look]:
        looks = [Look(None, fault="absent")] * len(parts)
        sought = {}
        for at, part in enumerate(parts if places.jobstatus else ()):
            directory = Path(places.status_of(part.job, part.node))
            if os.path.isdir(directory):  # noqa: PTH112 - one that may not be entered is none
                # Most jobs of most sites have none: no process is needed for that.
                sought[at] = JobDirectory(directory, part.cores, part.job.uid)
        patience = 0.0 if held.issuperset(job.path for job in sought.values()) else READER_WAIT_S
        for (at, job), snapshot in zip(
            sought.items(), take_snapshots([*sought.values()], now=now, limit_s=patience)
        ):
            looks[at] = Look(snapshot.status, snapshot.age_s, snapshot.flags, snapshot.fault)
            (held.add if _is_held(snapshot) else held.discard)(job.path)
        return looks

    return look_at


def _is_held(snapshot: StatusSnapshot) -> bool:
    return snapshot.fault is not None and snapshot.fault.partition(":")[0] in ("locked", "no-answer")
