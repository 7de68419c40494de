"""What policies would have lost, on jobs whose payloads and real ends are known. Pure. What ran and was saved is no part of
accounting: it is assumed, at random.
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
from lodesman.site.jobstatus.vacate.history import MOST_ENDS, JobEnd, VacateHistory
from lodesman.site.jobstatus.vacate.plan import VacateRequest, make_plan
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.waste import RunningPayload, estimate, publish

_HOUR = 3600.0
_MOST_PAYLOADS = 1000  # of one place in a pilot, one after the other


@dataclass(frozen=True)
class Assumptions:
    """What accounting does not say."""

    pilots: float = 0.5  # part of the jobs that run payloads one after the other
    payload_hours: float = 2.5  # the median of such payloads
    payload_sigma: float = 1.0  # of its logarithm
    commits: float = 0.2  # part of the other jobs that save their work every hour
    silent: float = 0.0  # part of all that publish nothing
    error: float = 0.3  # sigma of the logarithm of expected over real time left
    spread: float = 0.5  # sigma of the logarithm of the owners' errors

    def error_of(self, owner: str) -> float:
        """An owner has the same at each call."""
        return self.error * math.exp(random.Random(owner).gauss(0, self.spread))


@dataclass(frozen=True)
class SimulatedJob:
    """A job as the site sees it, and what is so."""

    candidate: Candidate
    payloads: Sequence[RunningPayload]
    real_ends: Sequence[float]  # of each payload

    def killed(self, now: float) -> float:
        """The loss of a kill in core-seconds."""
        return sum(payload.cores * (now - payload.committed) for payload in self.payloads)

    def drained(self, now: float, within: float) -> float:
        """In core-seconds: a drain kills what still runs when the time is over."""
        ends = [min(end, now + within) for end in self.real_ends]
        last = max(ends, default=now)
        idle = self.candidate.cores * (last - now)
        used = sum(payload.cores * (end - now) for payload, end in zip(self.payloads, ends))
        cut = (
            payload.cores * (end - payload.committed)
            for payload, end, real in zip(self.payloads, ends, self.real_ends) if real > end
        )  # fmt: skip
        return idle - used + sum(cut)


@dataclass(frozen=True)
class LoggedJob:
    """Times in seconds of the accounting log."""

    job: str
    owner: str
    place: str
    cores: int
    started: float
    ended: float
    limit: float | None = None  # how long it was allowed to run


def read_swf(lines: Iterable[str]) -> Iterator[LoggedJob]:
    """The jobs of a log in the Standard Workload Format 2.2; cores can be freed together within a partition."""
    for line in lines:
        fields = line.split()
        if len(fields) < 18 or fields[0].startswith(";"):
            continue
        try:
            job, submitted, waited, ran, used, _, _, requested, limit = (float(field) for field in fields[:9])
        except ValueError:
            continue
        cores = int(used if used > 0 else requested)
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


def simulate_job(logged: LoggedJob, assumed: Assumptions, rng: random.Random, now: float) -> SimulatedJob:
    """As it is `now`, while it runs."""
    if rng.random() < assumed.pilots:
        slots = _slots(logged.cores, rng)
        payloads = [_payload(logged, cores, assumed, rng, now) for cores in slots]
    else:
        saved = math.floor((now - logged.started) / _HOUR) * _HOUR if rng.random() < assumed.commits else 0.0
        payloads = [RunningPayload(logged.cores, logged.started, logged.started + saved, logged.ended)]
    limit, error = (
        None if logged.limit is None else logged.started + logged.limit,
        assumed.error_of(logged.owner),
    )
    seen = [
        replace(each, expected_end=_expected(each.expected_end, error, rng, now), enforced_end=limit)
        for each in payloads
    ]
    candidate = Candidate(
        logged.job, logged.owner, (logged.place,), logged.cores, logged.started, batch_ends=limit
    )
    if rng.random() >= assumed.silent:
        status = publish(
            seen,
            allocated=logged.cores,
            pending_waste=0,
            slot_ends=limit,
            can_postpone=True,
            priority=0,
            now=now,
        )
        expected = estimate(
            status, now=now, allocated=logged.cores, jobstart=logged.started, batch_ends=limit, age=0
        )
        candidate = replace(candidate, status=status, estimate=expected, age=0.0)
    return SimulatedJob(candidate, payloads, [each.expected_end for each in payloads])


def _slots(cores: int, rng: random.Random) -> Iterator[int]:
    while cores > 0:
        part = min(cores, rng.choice((1, 2, 4)))
        cores -= part
        yield part


def _payload(
    logged: LoggedJob, cores: int, assumed: Assumptions, rng: random.Random, now: float
) -> RunningPayload:
    """The one of those since the start that runs now; it ends with its pilot at the latest."""
    begun = logged.started
    for _ in range(_MOST_PAYLOADS):
        end = begun + _HOUR * assumed.payload_hours * math.exp(rng.gauss(0, assumed.payload_sigma))
        if end > now:
            break
        begun = end
    return RunningPayload(cores, begun, begun, min(max(end, now), logged.ended))


def _expected(real: float, error: float, rng: random.Random, now: float) -> float:
    return now + (real - now) * math.exp(rng.gauss(0, error))


def learn_errors(
    log: Iterable[LoggedJob], assumed: Assumptions, rng: random.Random, now: float
) -> dict[str, float]:
    """Errors by owner, after the jobs that have ended by now."""
    ended: dict[str, int] = {}
    for logged in log:
        if logged.ended <= now:
            ended[logged.owner] = min(MOST_ENDS, ended.get(logged.owner, 0) + 1)
    seen = {
        owner: tuple(JobEnd(now, rng.gauss(0, assumed.error_of(owner))) for _ in range(count))
        for owner, count in ended.items()
    }
    return VacateHistory(ends=seen).sigmas()


# --- policies -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Core-seconds lost by policy. `risk` learns of owners, the best know the future."""

    youngest: float
    kills: float
    best_kills: float
    mixed: float
    risk: float
    best_mixed: float


def compare(jobs: Sequence[SimulatedJob], cores: int, now: float, terms: Terms) -> Losses | None:
    """On the same jobs. None: they have too few cores."""
    if sum(job.candidate.cores for job in jobs) < cores:
        return None
    by_id = {job.candidate.job: job for job in jobs}
    killed = {name: job.killed(now) for name, job in by_id.items()}
    drained = {name: job.drained(now, terms.within) for name, job in by_id.items()}
    lost: list[float] = []
    risk = replace(terms, confidence=Confidence("risk", None))
    for variant in (replace(terms, within=0.0), terms, risk):
        request = VacateRequest(ResourceNeed(cores), terms=variant, priority="off")
        plan = make_plan([job.candidate for job in jobs], request, now)
        lost.append(
            sum((drained if victim.action == DRAIN else killed)[victim.job] for victim in plan.victims)
        )
    return Losses(
        youngest=sum(killed[job.candidate.job] for job in _youngest(jobs, cores)),
        kills=lost[0],
        best_kills=_best(jobs, killed, cores),
        mixed=lost[1],
        risk=lost[2],
        best_mixed=_best(jobs, {name: min(killed[name], drained[name]) for name in by_id}, cores),
    )


def _youngest(jobs: Sequence[SimulatedJob], cores: int) -> Iterator[SimulatedJob]:
    for job in sorted(jobs, key=lambda job: (-job.candidate.started, job.candidate.job)):
        if cores > 0:
            yield job
            cores -= job.candidate.cores


def _best(jobs: Sequence[SimulatedJob], lost: dict[str, float], cores: int) -> float:
    releases = [
        Release(
            job.candidate.job, job.candidate.owner, 0, job.candidate.cores, round(lost[job.candidate.job])
        )
        for job in jobs
    ]
    chosen = cheapest(releases, cores)
    return sum(lost[job.job] for job in chosen.releases) if chosen else math.inf


def moments(
    log: Sequence[LoggedJob], count: int, rng: random.Random
) -> Iterator[tuple[float, list[LoggedJob]]]:
    """Random moments, each with the jobs of one place, as often as cores were busy there."""
    used = list(accumulate(logged.cores * (logged.ended - logged.started) for logged in log))
    places: dict[str, list[LoggedJob]] = {}
    for logged in sorted(log, key=lambda logged: logged.started):
        places.setdefault(logged.place, []).append(logged)
    for _ in range(count if used else 0):
        logged = log[bisect(used, rng.uniform(0, used[-1])) % len(log)]
        now = rng.uniform(logged.started, logged.ended)
        yield now, [each for each in places[logged.place] if each.started < now < each.ended]
