"""What was learned of owners and jobs: how far ends were from what was published, and who claims too much. Pure.

An end is compared with what was first published after the last start or commit: until then payloads could begin.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lodesman.site.jobstatus.vacate.candidates import SIGMA, Candidate
from lodesman.site.jobstatus.values import SKEW_SECONDS, Status
from lodesman.site.jobstatus.waste import STALE_SECONDS

CREDULITY = 10
"""An assumption about an owner weighs as much as this many observed ends."""
MOST_ENDS, MOST_AGE_S = 50, 90 * 86_400.0
"""An owner's ends that are kept: the last, none older (seconds)."""
MOST_AT_CAP = 3
"""A job found at its cap more often than this in a row is not believed."""
_LEAST_LEFT_S = 60.0  # nearer ends say more of our clock than of the job
_MOST_ERROR = 3.0  # a factor of 20
_CLOSE, _CLOSE_S = (
    0.2,
    120.0,
)  # an end is known if it is between two looks that are as near, in parts of what it took
_APART_S = 60.0  # looks that count for a claim
_LEAVING = -1


class Sighting(NamedTuple):
    """What is remembered of a job; UNIX seconds."""

    owner: str
    started: float
    last_seen: float
    mark: int | None = None  # the last start or commit, or that the job may start no more
    seen: float = 0.0  # when `ends` was first read since `mark`
    ends: float | None = None  # the expected end then
    cores: int = 0  # used_CPU then
    start: int = 0  # last_job_start then
    at_cap: int = 0  # how often in a row it claimed all that it can lose
    judged: float = 0.0  # when that was counted
    killed: bool = False  # `vacate` ends it


class JobEnd(NamedTuple):
    """When a job ended, and the logarithm of its real over its expected time."""

    at: float
    error: float


@dataclass(frozen=True)
class VacateHistory:
    """What `vacate` remembers."""

    running: Mapping[str, Sighting] = field(default_factory=dict)  # by job
    ends: Mapping[str, tuple[JobEnd, ...]] = field(default_factory=dict)  # by owner, the oldest first

    def sigmas(self) -> dict[str, float]:
        """The standard deviation by owner, of the logarithm of real over expected times; '': all others."""
        site = sigma((end.error for ends in self.ends.values() for end in ends), SIGMA)
        return {
            "": site,
            **{owner: sigma((end.error for end in ends), site) for owner, ends in self.ends.items()},
        }

    def judged(self, job: Candidate) -> Candidate:
        """Silent if it has claimed too much too often."""
        before = self.running.get(job.job)
        if before is None or before.started != job.started or before.at_cap <= MOST_AT_CAP:
            return job
        return replace(
            job, is_believed=False, note=f"it claimed all that it can lose {before.at_cap} times in a row"
        )


def sigma(errors: Iterable[float], assumed: float) -> float:
    """Of these and CREDULITY other errors of the assumed size. Few ends change little."""
    squares = [error * error for error in errors]
    return math.sqrt((CREDULITY * assumed**2 + sum(squares)) / (CREDULITY + len(squares)))


def after_list(
    before: VacateHistory, running: Iterable[Candidate], now: float, killed: Collection[str] = ()
) -> VacateHistory:
    """All running jobs were listed: the missing have ended; `killed` are made to end now."""
    listed = {candidate.job: candidate for candidate in running}
    still: dict[str, Sighting] = {}
    ends = dict(before.ends)
    for job, sighting in before.running.items():
        if job in listed and listed[job].started == sighting.started:
            still[job] = sighting._replace(last_seen=now, killed=sighting.killed or job in killed)
            continue
        error = _error(sighting, now)
        if error is not None:
            ends[sighting.owner] = (*ends.get(sighting.owner, ()), JobEnd(now, error))[-MOST_ENDS:]
    return VacateHistory(still, _recent(ends, now))


def _recent(ends: Mapping[str, tuple[JobEnd, ...]], now: float) -> dict[str, tuple[JobEnd, ...]]:
    kept = {
        owner: tuple(end for end in all_of if end.at > now - MOST_AGE_S) for owner, all_of in ends.items()
    }
    return {owner: recent for owner, recent in kept.items() if recent}


def _error(sighting: Sighting, now: float) -> float | None:
    """None: what was expected, or when it ended, is not known. A killed job says only that it was late."""
    if sighting.ends is None or now - sighting.last_seen > max(
        _CLOSE_S, _CLOSE * (sighting.last_seen - sighting.seen)
    ):
        return None
    took, expected = (sighting.last_seen + now) / 2 - sighting.seen, sighting.ends - sighting.seen
    if sighting.killed and took <= expected:
        return None
    return min(_MOST_ERROR, max(-_MOST_ERROR, math.log(max(1.0, took) / expected)))


def after_look(before: VacateHistory, looked: Iterable[Candidate], now: float) -> VacateHistory:
    """What these running jobs publish was read."""
    sightings = {
        job.job: _sighting(before.running.get(job.job), job, job.status, now)
        for job in looked
        if job.status is not None
        and job.estimate is not None
        and job.age is not None
        and job.age <= STALE_SECONDS
    }
    return replace(before, running={**before.running, **sightings})


def _sighting(before: Sighting | None, job: Candidate, status: Status, now: float) -> Sighting:
    if before is None or before.started != job.started:
        before = Sighting(job.owner, job.started, now)
    sighting, mark = before, _LEAVING if status.can_postpone_last_job is False else status.last_job_start
    if mark != before.mark:
        ends = status.last_exp_job_end
        is_known = ends is not None and status.used_cpu and ends - now >= _LEAST_LEFT_S
        sighting = sighting._replace(
            mark=mark, seen=now, ends=float(ends) if is_known and ends is not None else None
        )
    if now - before.judged >= _APART_S:
        sighting = sighting._replace(
            at_cap=_times_at_cap(before, job, status, now), judged=now,
            cores=status.used_cpu or 0, start=status.last_job_start or 0,
        )  # fmt: skip
    return sighting._replace(last_seen=now)


def _times_at_cap(before: Sighting, job: Candidate, status: Status, now: float) -> int:
    """In a row. Without a commit since its start a job is honestly at its cap; after a payload began or ended not."""
    uncommitted, start, used = status.add_uncom_time, status.last_job_start, status.used_cpu
    if uncommitted is None or start is None or not used:
        return 0
    claim, most = uncommitted + used * max(0.0, now - start), job.cap(now) / max(1, len(job.nodes))
    if claim < most:
        return 0
    ended = before.judged > 0 and (start > before.start or used < before.cores)
    return before.at_cap + (ended or claim > most + SKEW_SECONDS * job.cores)
