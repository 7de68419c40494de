"""What a kill now or a drain of a job costs. The batch system's numbers bound what a job claims; a silent job is charged by
what others say. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import SILENT_SECONDS, Estimate

KILL, DRAIN = "kill", "drain"
SILENT_FACTOR = 0.8
MARGIN = 0.7
SIGMA = 0.3
"""How far ends are from the expected, as the standard deviation of the logarithm, where nothing was learned."""


@dataclass(frozen=True)
class Candidate:
    """A running job by the batch system's record, with what it publishes."""

    job: str
    owner: str  # the name of the account
    nodes: Sequence[str]
    cores: int
    started: float  # UNIX seconds
    uid: int | None = None  # None: the account is not known here
    memory_mb: int = 0  # what the batch system takes back, as `gpus`
    gpus: int = 0
    batch_ends: float | None = None  # UNIX seconds; None: no limit known
    suspended_seconds: float = 0.0
    status: Status | None = None
    estimate: Estimate | None = None
    age: float | None = None  # seconds since the job last wrote; None: never
    can_drain: bool = True  # there is a way to ask it
    note: str = ""  # why its numbers cannot be read, or are not believed
    task: str = ""  # its name as a task of an array, where commands need that
    is_believed: bool = True
    leaving: bool = False  # it ends, and holds its cores until then; nothing else of it need be known

    @property
    def priority(self) -> int:
        """The owner's own factor; 0 if he gives none."""
        return (self.status and self.status.priority_factor) or 0

    def cap(self, now: float) -> int:
        """The most that a kill loses: all cores since the start, without suspension."""
        return self.cores * max(0, math.ceil(now - self.started - self.suspended_seconds))

    @property
    def is_silent(self) -> bool:
        """Nothing that it publishes can be used."""
        return not self.is_believed or self.estimate is None or self.age is None or self.age > SILENT_SECONDS


@dataclass(frozen=True)
class Confidence:
    """When a drain is in time."""

    kind: str = "margin"  # `expected`, `max`, `margin` or `risk`
    value: float | None = MARGIN  # part of the deadline, or sigma (None: that of each owner)

    def in_time(self, estimate: Estimate, within: float) -> bool:
        """Whether a draining job is counted on to end in time. `risk` prices the chance that it does not."""
        expected, most = estimate.remaining_expected, estimate.remaining_max
        enforced = most is not None and most <= within
        if self.kind == "max":
            return enforced
        if self.kind == "margin":
            return enforced or (expected is not None and expected <= (self.value or 0.0) * within)
        return expected is not None and (self.kind == "risk" or expected <= within)

    def missed(self, estimate: Estimate, within: float, sigma: float) -> float:
        """The chance of running longer; 0 but for `risk`."""
        expected, most = estimate.remaining_expected, estimate.remaining_max
        if self.kind != "risk" or expected is None or (most is not None and most <= within):
            return 0.0
        if not sigma or expected <= 0:
            return float(expected > within)
        return 0.5 * math.erfc(math.log(within / expected) / (sigma * math.sqrt(2)))


@dataclass(frozen=True)
class Terms:
    """How jobs are priced."""

    within: float = 0.0  # seconds until the cores must be free; 0: now, so that nothing can drain
    confidence: Confidence = Confidence()
    silent_factor: float = SILENT_FACTOR
    # How far ends of an owner are from what was expected; '': of all others.
    sigmas: Mapping[str, float] = field(default_factory=dict)
    kill_s: float = 0.0  # how long a killed job may keep its cores: until SIGKILL, and the epilog

    @property
    def drains_within(self) -> float:
        """Seconds after which a job is killed, to free its cores in time."""
        return max(0.0, self.within - self.kill_s)

    def sigma(self, owner: str) -> float:
        """For the risk that the owner's job ends late."""
        value = self.confidence.value if self.confidence.kind == "risk" else None
        return self.sigmas.get(owner, self.sigmas.get("", SIGMA)) if value is None else value


@dataclass(frozen=True)
class Price:
    """The cheaper way to vacate a job."""

    action: str
    cost: int  # core-seconds
    frees_expected: int | None  # seconds from now
    frees_max: int | None  # seconds from now
    reason: str
    flags: Sequence[str] = ()


def silent_rate(candidates: Iterable[Candidate], terms: Terms, now: float) -> float | None:
    """For each core, silent_factor times the median of what others would lose by a kill."""
    rates = [_kill_waste(job, now) / job.cores for job in candidates if _is_priced(job)]
    middle = median(rates) if rates else 0.0
    if not middle:
        positive = [rate for rate in rates if rate > 0]
        middle = median(positive) if positive else 0.0
    return terms.silent_factor * middle or None


def _is_priced(job: Candidate) -> bool:
    return (
        not job.is_silent
        and job.cores > 0
        and job.estimate is not None
        and job.estimate.kill_waste is not None
    )


def _kill_waste(job: Candidate, now: float) -> int:
    """At most the whole run, whatever was claimed."""
    claimed = job.estimate and job.estimate.kill_waste
    return min(claimed or 0, job.cap(now))


def price(job: Candidate, terms: Terms, rate: float | None, now: float) -> Price:
    """A kill if both cost the same. `rate`: of `silent_rate`."""
    flags = job.estimate.flags if job.estimate else ()
    kill = _kill(job, terms, rate, now)
    drain = _drain(job, terms, kill.cost, now)
    best = kill if drain is None or kill.cost <= drain.cost else drain
    return Price(best.action, best.cost, best.frees_expected, best.frees_max, best.reason, flags)


def _kill(job: Candidate, terms: Terms, rate: float | None, now: float) -> Price:
    most = math.ceil(terms.kill_s)
    if _is_priced(job):
        return Price(KILL, _kill_waste(job, now), 0, most, "loses what it has not committed")
    why = job.note or ("its numbers are too old" if job.age is not None else "it publishes nothing")
    if rate is None:
        return Price(KILL, job.cap(now), 0, most, f"{why}: charged its full age")
    charge = min(job.cap(now), round(rate * job.cores))
    return Price(KILL, charge, 0, most, f"{why}: charged {terms.silent_factor:g} of the median")


def _drain(job: Candidate, terms: Terms, kill_cost: int, now: float) -> Price | None:
    expected, within = job.estimate, terms.drains_within
    if (
        expected is None
        or not job.can_drain
        or job.is_silent
        or within <= 0
        or expected.draining_waste is None
    ):
        return None
    if not terms.confidence.in_time(expected, within):
        return None
    batch_left = None if job.batch_ends is None else max(0, math.floor(job.batch_ends - now))
    lefts = [left for left in (expected.remaining_max, batch_left) if left is not None]
    waste = min([expected.draining_waste, *(job.cores * left for left in lefts)])
    missed = terms.confidence.missed(expected, within, terms.sigma(job.owner))
    cost = round((1 - missed) * waste + missed * (kill_cost + job.cores * within))
    most = min([math.ceil(within), *lefts]) + math.ceil(terms.kill_s)
    reason = "ends by itself in time" + (f", but for a chance of {missed:.0%}" if missed >= 0.005 else "")
    return Price(DRAIN, cost, expected.remaining_expected, most, reason)
