"""What it costs to vacate a job, by killing it now or by letting it drain. Pure.

The batch system's own numbers bound what a job claims; a silent job is charged by what the others say.
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
"""How far ends are from what was expected of them, as the standard deviation of the logarithm, where nothing was learned."""


@dataclass(frozen=True)
class Candidate:
    """A running job, by the batch system's own record, with what it publishes."""

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
        """The most that a kill can lose: all cores since the start, without suspension."""
        return self.cores * max(0, math.ceil(now - self.started - self.suspended_seconds))

    @property
    def is_silent(self) -> bool:
        """It publishes nothing that can be used."""
        return not self.is_believed or self.estimate is None or self.age is None or self.age > SILENT_SECONDS


@dataclass(frozen=True)
class Confidence:
    """When a drain is in time."""

    kind: str = "margin"  # `expected`, `max`, `margin` or `risk`
    value: float | None = MARGIN  # part of the deadline, or sigma (None: that of each owner)

    def in_time(self, estimate: Estimate, within: float) -> bool:
        """Whether a draining job is counted on to end in so many seconds. `risk` prices the chance that it does not."""
        expected, most = estimate.remaining_expected, estimate.remaining_max
        enforced = most is not None and most <= within
        if self.kind == "max":
            return enforced
        if self.kind == "margin":
            return enforced or (expected is not None and expected <= (self.value or 0.0) * within)
        return expected is not None and (self.kind == "risk" or expected <= within)

    def missed(self, estimate: Estimate, within: float, sigma: float) -> float:
        """The chance that it runs longer; 0 but for `risk`."""
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
    # how far ends of an owner are from what was expected; '': of all others
    sigmas: Mapping[str, float] = field(default_factory=dict)
    kill_s: float = 0.0  # for which a killed job may keep its cores: SIGKILL waits, and the site's epilog

    @property
    def drains_within(self) -> float:
        """Seconds after which a job is killed, so that its cores are free in time."""
        return max(0.0, self.within - self.kill_s)

    def sigma(self, owner: str) -> float:
        """For the risk that a job of this owner ends late."""
        given = self.confidence.value if self.confidence.kind == "risk" else None
        return self.sigmas.get(owner, self.sigmas.get("", SIGMA)) if given is None else given


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
    """Core-seconds for each core of a silent job: silent_factor times the median of what others would lose by a kill. Those
    that lose nothing count only with others.
    """
    rates = [_kill_waste(one, now) / one.cores for one in candidates if _is_priced(one)]
    middle = median(rates) if rates else 0.0
    if not middle:
        positive = [rate for rate in rates if rate > 0]
        middle = median(positive) if positive else 0.0
    return terms.silent_factor * middle or None


def _is_priced(one: Candidate) -> bool:
    return (
        not one.is_silent
        and one.cores > 0
        and one.estimate is not None
        and one.estimate.kill_waste is not None
    )


def _kill_waste(one: Candidate, now: float) -> int:
    """Never more than the whole run, whatever was claimed."""
    claimed = one.estimate and one.estimate.kill_waste
    return min(claimed or 0, one.cap(now))


def price(one: Candidate, terms: Terms, rate: float | None, now: float) -> Price:
    """The cheaper action, a kill if both cost the same. `rate`: of `silent_rate`."""
    flags = one.estimate.flags if one.estimate else ()
    kill = _kill(one, terms, rate, now)
    drain = _drain(one, terms, kill.cost, now)
    best = kill if drain is None or kill.cost <= drain.cost else drain
    return Price(best.action, best.cost, best.frees_expected, best.frees_max, best.reason, flags)


def _kill(one: Candidate, terms: Terms, rate: float | None, now: float) -> Price:
    most = math.ceil(terms.kill_s)
    if _is_priced(one):
        return Price(KILL, _kill_waste(one, now), 0, most, "loses what it has not committed")
    why = one.note or ("its numbers are too old" if one.age is not None else "it publishes nothing")
    if rate is None:
        return Price(KILL, one.cap(now), 0, most, f"{why}: charged its full age")
    charge = min(one.cap(now), round(rate * one.cores))
    return Price(KILL, charge, 0, most, f"{why}: charged {terms.silent_factor:g} of the median")


def _drain(one: Candidate, terms: Terms, kill_cost: int, now: float) -> Price | None:
    """None: it cannot drain in time, or its numbers do not say."""
    known, within = one.estimate, terms.drains_within
    if known is None or not one.can_drain or one.is_silent or within <= 0 or known.draining_waste is None:
        return None
    if not terms.confidence.in_time(known, within):
        return None
    batch_left = None if one.batch_ends is None else max(0, math.floor(one.batch_ends - now))
    lefts = [left for left in (known.remaining_max, batch_left) if left is not None]
    waste = min([known.draining_waste, *(one.cores * left for left in lefts)])
    missed = terms.confidence.missed(known, within, terms.sigma(one.owner))
    cost = round((1 - missed) * waste + missed * (kill_cost + one.cores * within))
    most = min([math.ceil(within), *lefts]) + math.ceil(terms.kill_s)
    reason = "ends by itself in time" + (f", but for a chance of {missed:.0%}" if missed >= 0.005 else "")
    return Price(DRAIN, cost, known.remaining_expected, most, reason)
