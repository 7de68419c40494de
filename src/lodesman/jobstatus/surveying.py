"""What running jobs publish: the directories of all jobs that a batch system names, read here or on their nodes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from lodesman.jobstatus.sites.door import JobPlaces, SiteDoor, SiteFault, answer
from lodesman.jobstatus.vacate.candidates import Candidate
from lodesman.jobstatus.values import KEYS, Flags, Status
from lodesman.jobstatus.waste import Estimate, estimate

_REMOTE_SECONDS = 30.0
_WORD = re.compile(r"[A-Za-z0-9_:-]{1,60}")


@dataclass(frozen=True)
class Look:
    """What was found in one directory. fault: why there is no status, in one word of the reader's."""

    status: Status | None
    age_s: float | None = None
    flags: Flags = ()
    fault: str | None = None


LookAt = Callable[[Candidate, str, int, float], Look]
"""Of a job, one of its nodes, its cores there, and the time now."""


def survey(door: SiteDoor, look_at: LookAt, now: float) -> list[Candidate]:
    """All running jobs, with what they publish. Raises SiteFault."""
    return [with_status(replace(one, can_drain=door.can_drain(one)), look_at, now) for one in door.running()]


def with_status(one: Candidate, look_at: LookAt, now: float) -> Candidate:
    """The job with what it publishes now. On several nodes, each has a directory and an equal part of the cores."""
    nodes = one.nodes or ("",)
    part = one.cores // len(nodes)
    looks = [look_at(one, node, part, now) for node in nodes]
    faults = [look.fault or "no-status" for look in looks if look.status is None]
    if faults:
        return replace(one, note=f"its numbers cannot be read ({faults[0]})" if faults[0] != "absent" else "")
    found = [
        estimate(
            look.status, now=now, allocated=part, jobstart=one.started, batch_ends=one.batch_ends,
            suspended=one.suspended_seconds, age=look.age_s,
        )
        for look in looks if look.status
    ]  # fmt: skip
    ages = [look.age_s for look in looks]
    flags = {flag for look in looks for flag in look.flags} | {flag for part in found for flag in part.flags}
    return replace(
        one,
        status=looks[0].status,
        estimate=replace(_sum(found), flags=tuple(sorted(flags))),
        age=None if None in ages else max(age for age in ages if age is not None),
    )


def _sum(found: Sequence[Estimate]) -> Estimate:
    """Of all nodes: wastes add up, and the job stays as long as its longest part. What one does not say is unknown."""

    def all_of(values: Sequence[int | None], join: Callable[[list[int]], int]) -> int | None:
        known = [value for value in values if value is not None]
        return join(known) if len(known) == len(values) else None

    return Estimate(
        remaining_expected=all_of([one.remaining_expected for one in found], max),
        remaining_max=all_of([one.remaining_max for one in found], max),
        draining_waste=all_of([one.draining_waste for one in found], sum),
        kill_waste=all_of([one.kill_waste for one in found], sum),
    )


def read_by_command(command: str, places: JobPlaces) -> LookAt:
    """Read with a command such as `ssh {node} python3 /opt/jobstatus.pyz`, to which `show --json` and more is added."""
    words = shlex.split(command)

    def look_at(one: Candidate, node: str, cores: int, now: float) -> Look:
        asked = ["show", "--json", "--now", f"{now:.0f}", "--allocated", str(cores)]
        user = [] if one.uid is None else ["--uid", str(one.uid)]
        line = [word.replace("{node}", node) for word in words]
        try:
            text = answer(
                [*line, *asked, *user, places.status_of(one, node)], seconds=_REMOTE_SECONDS, most=5
            )
        except SiteFault:
            return Look(None, fault="not-reached")
        return read_shown(text)

    return look_at


def read_shown(text: str) -> Look:
    """What `jobstatus show --json` printed of one directory."""
    try:
        found = json.loads(text)
        keys, age, flags, fault = (found[name] for name in ("keys", "age_s", "flags", "error"))
        values = {key: value for key, value in keys.items() if key in KEYS and isinstance(value, int)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Look(None, fault="no-answer")
    if fault is not None or "used_CPU" not in values:
        return Look(None, fault=_word(fault))
    words = flags if isinstance(flags, list) else []
    return Look(
        Status.of(_typed(values)),
        float(age) if isinstance(age, (int, float)) and age >= 0 else None,
        tuple(sorted(_word(flag) for flag in words)),
    )


def _typed(values: Mapping[str, int]) -> dict[str, int]:
    """3.8 is a truth, all others are numbers."""
    return {key: bool(value) if key == KEYS[7] else int(value) for key, value in values.items()}


def _word(text: object) -> str:
    """A word of the reader's, and nothing else of what came."""
    return text if isinstance(text, str) and _WORD.fullmatch(text) else "no-status"


def read_here(places: JobPlaces, take: Callable[[Path, float, int, int | None], Look]) -> LookAt:
    """Read on this machine. `take`: of a directory, the time, the cores and the user id by the batch system."""

    def look_at(one: Candidate, node: str, cores: int, now: float) -> Look:
        directory = places.status_of(one, node)
        return take(Path(directory), now, cores, one.uid) if places.jobstatus else Look(None, fault="absent")

    return look_at
