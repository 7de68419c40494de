"""What choices of jobs would have lost: policies beside each other on jobs whose payloads and real ends are known. Pure.

Accounting knows when jobs began and ended; what they ran and saved is assumed, and drawn at random.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from lodesman.site.jobstatus.vacate.candidates import DRAIN, Candidate, Confidence, Terms
from lodesman.site.jobstatus.vacate.choice import Release, cheapest
from lodesman.site.jobstatus.vacate.history import MOST_ENDS, KnownEnd, VacateHistory
from lodesman.site.jobstatus.vacate.plan import VacateRequest, make_plan
from lodesman.site.jobstatus.vacate.several import ToFree
from lodesman.site.jobstatus.waste import Running, estimate, publish

_HOUR = 3600.0
_MOST_PAYLOADS = 1000  # of one place in a pilot, one after the other


@dataclass(frozen=True)
class Assumed:
    """What accounting does not say."""

    pilots: float = 0.5  # part of the jobs that run payloads one after the other
    payload_hours: float = 2.5  # the median of such payloads
    payload_sigma: float = 1.0  # of its logarithm
    commits: float = 0.2  # part of the other jobs that save their work every hour
    silent: float = 0.0  # part of all that publish nothing
    error: float = 0.3  # sigma of the logarithm of expected over real time left
    spread: float = 0.5  # sigma of the logarithm of the owners' errors

    def error_of(self, owner: str) -> float:
        """Of this owner, always the same."""
        return self.error * math.exp(random.Random(owner).gauss(0, self.spread))


@dataclass(frozen=True)
class SimulatedJob:
    """A job at one moment: what the site sees of it, and what is so."""

    candidate: Candidate
    payloads: Sequence[Running]
    real_ends: Sequence[float]  # of each payload

    def killed(self, now: float) -> float:
        """Core-seconds that a kill loses."""
        return sum(one.cores * (now - one.committed) for one in self.payloads)

    def drained(self, now: float, within: float) -> float:
        """Core-seconds that a drain loses: it kills what still runs when the time is over."""
        ends = [min(end, now + within) for end in self.real_ends]
        last = max(ends, default=now)
        idle = self.candidate.cores * (last - now)
        used = sum(one.cores * (end - now) for one, end in zip(self.payloads, ends))
        cut = (
            one.cores * (end - one.committed)
            for one, end, real in zip(self.payloads, ends, self.real_ends) if real > end
        )  # fmt: skip
        return idle - used + sum(cut)


@dataclass(frozen=True)
class LoggedJob:
    """A job of an accounting log; times in seconds of its own."""

    job: str
    owner: str
    place: str
    cores: int
    started: float
    ended: float
    limit: float | None = None  # how long it was allowed to run


def read_swf(lines: Iterable[str]) -> Iterator[LoggedJob]:
    """The jobs that ran, of a log in the Standard Workload Format 2.2. Its partitions are the places where cores can be
    freed together.
    """
    for line in lines:
        fields = line.split()
        if len(fields) < 18 or fields[0].startswith(";"):
            continue
        try:
            job, submitted, waited, ran, used, _, _, asked, limit = (float(field) for field in fields[:9])
        except ValueError:
            continue
        cores = int(used if used > 0 else asked)
        if not (ran > 0 and cores > 0 and math.isfinite(submitted + waited + ran)):
            continue
        started = submitted + max(0.0, waited)
        yield LoggedJob(
            f"{job:.0f}",
            fields[11],
            fields[15],
            cores,
            started,
            started + ran,
            max(limit, ran) if limit > 0 else None,
        )


def simulate_job(one: LoggedJob, assumed: Assumed, rng: random.Random, now: float) -> SimulatedJob:
    """The job as it is `now`, while it runs."""
    if rng.random() < assumed.pilots:
        slots = _slots(one.cores, rng)
        payloads = [_payload(one, cores, assumed, rng, now) for cores in slots]
    else:
        saved = math.floor((now - one.started) / _HOUR) * _HOUR if rng.random() < assumed.commits else 0.0
        payloads = [Running(one.cores, one.started, one.started + saved, one.ended)]
    limit, error = None if one.limit is None else one.started + one.limit, assumed.error_of(one.owner)
    seen = [
        replace(each, expected_end=_expected(each.expected_end, error, rng, now), enforced_end=limit)
        for each in payloads
    ]
    candidate = Candidate(one.job, one.owner, (one.place,), one.cores, one.started, batch_ends=limit)
    if rng.random() >= assumed.silent:
        status = publish(
            seen,
            allocated=one.cores,
            pending_waste=0,
            slot_ends=limit,
            can_postpone=True,
            priority=0,
            now=now,
        )
        known = estimate(status, now=now, allocated=one.cores, jobstart=one.started, batch_ends=limit, age=0)
        candidate = replace(candidate, status=status, estimate=known, age=0.0)
    return SimulatedJob(candidate, payloads, [each.expected_end for each in payloads])


def _slots(cores: int, rng: random.Random) -> Iterator[int]:
    """The cores of a pilot, parted among payloads of 1, 2 or 4."""
    while cores > 0:
        part = min(cores, rng.choice((1, 2, 4)))
        cores -= part
        yield part


def _payload(one: LoggedJob, cores: int, assumed: Assumed, rng: random.Random, now: float) -> Running:
    """The one that runs now, of those since the start; it ends with its pilot at the latest."""
    begun = one.started
    for _ in range(_MOST_PAYLOADS):
        end = begun + _HOUR * assumed.payload_hours * math.exp(rng.gauss(0, assumed.payload_sigma))
        if end > now:
            break
        begun = end
    return Running(cores, begun, begun, min(max(end, now), one.ended))


def _expected(real: float, error: float, rng: random.Random, now: float) -> float:
    return now + (real - now) * math.exp(rng.gauss(0, error))


def learned(log: Iterable[LoggedJob], assumed: Assumed, rng: random.Random, now: float) -> dict[str, float]:
    """What a site knows of the errors of owners, after the jobs that have ended by now."""
    ended: dict[str, int] = {}
    for one in log:
        if one.ended <= now:
            ended[one.owner] = min(MOST_ENDS, ended.get(one.owner, 0) + 1)
    seen = {
        owner: tuple(KnownEnd(now, rng.gauss(0, assumed.error_of(owner))) for _ in range(count))
        for owner, count in ended.items()
    }
    return VacateHistory(ends=seen).sigmas()


# --- policies -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Core-seconds that freeing some cores would lose: by killing the youngest first, by our kills now, by the best kills
    there are, by our kills and drains, by these with the risk learned of each owner, and by the best of these.
    """

    youngest: float
    kills: float
    best_kills: float
    mixed: float
    risk: float
    best_mixed: float


def compare(jobs: Sequence[SimulatedJob], cores: int, now: float, terms: Terms) -> Losses | None:
    """All policies on the same jobs. None: they have too few cores."""
    if sum(one.candidate.cores for one in jobs) < cores:
        return None
    by_id = {one.candidate.job: one for one in jobs}
    killed = {job: one.killed(now) for job, one in by_id.items()}
    drained = {job: one.drained(now, terms.within) for job, one in by_id.items()}
    lost: list[float] = []
    risk = replace(terms, confidence=Confidence("risk", None))
    for asked in (replace(terms, within=0.0), terms, risk):
        plan = make_plan(
            [one.candidate for one in jobs], VacateRequest(ToFree(cores), terms=asked, priority="off"), now
        )
        lost.append(sum((drained if one.action == DRAIN else killed)[one.job] for one in plan.victims))
    return Losses(
        youngest=sum(killed[one.candidate.job] for one in _youngest(jobs, cores)),
        kills=lost[0],
        best_kills=_best(jobs, killed, cores),
        mixed=lost[1],
        risk=lost[2],
        best_mixed=_best(jobs, {job: min(killed[job], drained[job]) for job in by_id}, cores),
    )


def _youngest(jobs: Sequence[SimulatedJob], cores: int) -> Iterator[SimulatedJob]:
    for one in sorted(jobs, key=lambda one: (-one.candidate.started, one.candidate.job)):
        if cores > 0:
            yield one
            cores -= one.candidate.cores


def _best(jobs: Sequence[SimulatedJob], lost: dict[str, float], cores: int) -> float:
    releases = [
        Release(
            one.candidate.job, one.candidate.owner, 0, one.candidate.cores, round(lost[one.candidate.job])
        )
        for one in jobs
    ]
    chosen = cheapest(releases, cores)
    return sum(lost[one.job] for one in chosen.releases) if chosen else math.inf


def moments(
    log: Sequence[LoggedJob], count: int, rng: random.Random
) -> Iterator[tuple[float, list[LoggedJob]]]:
    """Random moments, each with the jobs of one place: place and time come as often as cores were busy."""
    used = list(accumulate(one.cores * (one.ended - one.started) for one in log))
    places: dict[str, list[LoggedJob]] = {}
    for one in sorted(log, key=lambda one: one.started):
        places.setdefault(one.place, []).append(one)
    for _ in range(count if used else 0):
        one = log[bisect(used, rng.uniform(0, used[-1])) % len(log)]
        now = rng.uniform(one.started, one.ended)
        yield now, [each for each in places[one.place] if each.started < now < each.ended]
