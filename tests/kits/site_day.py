"""A site in a simulated time: its jobs come, are submitted, run and end; its ads are lost, late, reordered and doubled.

There is always another job to match. Time is that of a heap of events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from tests.kits.broker_kit import ad_text

from lodesman.decide.broker.ad import SiteAd, read_site_ad, replaces
from lodesman.decide.broker.gate import SiteGate, SiteMatch
from lodesman.languages.classad import write_ad
from lodesman.wire.vocabulary import GateMode

EVERY_S = 300.0
"""Between two ads, and between two cycles that nothing woke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What happens to the ads, and how long a job takes (means and bounds in seconds)."""

    lost: float = 0.1
    late_s: float = 600.0
    doubled: float = 0.05
    on_its_way_s: tuple[float, float] = (5.0, 60.0)
    submitting_s: tuple[float, float] = (20.0, 180.0)
    running_s: float = 14_400.0
    known_ended_s: float = 60.0
    failed: float = 0.02
    stamps: bool = True


@dataclass(slots=True)
class _Job:
    stamp: str
    matched_at: float
    state: str = "on its way"
    arrived_at: float = 0.0
    row_ended: bool = False


@dataclass(slots=True)
class SiteDay:
    """One day of one site. `mode` None: an oracle that knows all at once. What it found is in the last fields."""

    seed: int
    mode: GateMode | None
    hours: float = 24.0
    max_jobs: int = 100
    max_submitting: int = 10
    weather: Weather = field(default_factory=Weather)
    over_jobs_s: float = 0.0
    over_submitting_s: float = 0.0
    most_jobs: int = 0
    most_submitting: int = 0
    running_seconds: float = 0.0
    ads: int = 0

    @property
    def use(self) -> float:
        """The mean part of MaxJobs that ran."""
        return self.running_seconds / (self.hours * 3600.0 * self.max_jobs)

    def run(self) -> SiteDay:
        """Live through it."""
        _World(self).run()
        return self


class _World:
    def __init__(self, day: SiteDay) -> None:
        self.day, self.weather = day, day.weather
        self.rng = Random(day.seed)
        self.now = 0.0
        self.jobs: dict[str, _Job] = {}
        self.ad: SiteAd | None = None
        self.others: int | None = None
        self.published = 0
        self.incarnation = 1
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._stamps = count()

    def at(self, after_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + after_s, next(self._order), event))

    def run(self) -> None:
        day, end = self.day, self.day.hours * 3600.0
        self.at(self.rng.uniform(0, EVERY_S), self.publish)
        self.at(self.rng.uniform(0, EVERY_S), self.cycle_by_time)
        self.at(self.rng.uniform(0.2, 0.8) * end, self.restart_publisher)
        self.at(self.rng.uniform(0.2, 0.8) * end, self.restart_server)
        while self._events and self._events[0][0] <= end:
            then, _, event = heapq.heappop(self._events)
            self._count(then - self.now)
            self.now = then
            event()
            if day.mode is None:
                self.cycle()

    def _count(self, seconds: float) -> None:
        """What holds until the next event. A job on its way counts as being submitted."""
        day = self.day
        there = [job.state for job in self.jobs.values() if job.state != "gone"]
        running = there.count("running")
        day.running_seconds += seconds * running
        day.over_jobs_s += seconds * (len(there) > day.max_jobs)
        day.over_submitting_s += seconds * (len(there) - running > day.max_submitting)
        day.most_jobs = max(day.most_jobs, len(there))
        day.most_submitting = max(day.most_submitting, len(there) - running)

    # --- the broker ------------------------------------------------------------------------------------------

    def cycle_by_time(self) -> None:
        self.cycle()
        self.at(EVERY_S, self.cycle_by_time)

    def cycle(self) -> None:
        day = self.day
        if day.mode is None:
            there = [job.state for job in self.jobs.values() if job.state != "gone"]
            room = min(day.max_jobs - len(there), day.max_submitting - len(there) + there.count("running"))
            for _ in range(room):
                self.match()
            return
        if self.ad is None:
            return  # a site that never advertised has configured caps: here 0
        gate = self.gate(self.ad, day.mode)
        while gate.admits():
            gate.take()
            self.match()

    def gate(self, ad: SiteAd, mode: GateMode) -> SiteGate:
        rows = [
            SiteMatch(stamp=job.stamp, matched_at=job.matched_at, submitted_at=job.matched_at, ended=job.row_ended,
                      joined=job.state in {"running", "gone"})
            for job in self.jobs.values()
        ]  # fmt: skip
        return SiteGate("FNAL", ad, mode=mode, matches=rows, now=self.now)

    def restart_server(self) -> None:
        """It remembers what is stored."""
        if self.ad is not None:
            ad = read_site_ad(write_ad(self.ad.ad), site="FNAL", now=self.ad.received_at)
            self.ad = replace(ad, others=self.others)

    # --- the site --------------------------------------------------------------------------------------------

    def match(self) -> None:
        job = _Job(stamp=f"p{next(self._stamps)}", matched_at=self.now)
        self.jobs[job.stamp] = job
        event = self.fails if self.rng.random() < self.weather.failed else self.arrives
        self.at(self.rng.uniform(*self.weather.on_its_way_s), lambda: event(job))

    def fails(self, job: _Job) -> None:
        job.state = "gone"
        job.row_ended = True

    def arrives(self, job: _Job) -> None:
        job.state, job.arrived_at = "submitting", self.now
        self.at(self.rng.uniform(*self.weather.submitting_s), lambda: self.runs(job))

    def runs(self, job: _Job) -> None:
        job.state = "running"
        self.at(self.rng.expovariate(1 / self.weather.running_s), lambda: self.ends(job))

    def ends(self, job: _Job) -> None:
        job.state = "gone"
        self.at(self.rng.uniform(0, self.weather.known_ended_s), lambda: setattr(job, "row_ended", True))

    # --- its ads ---------------------------------------------------------------------------------------------

    def restart_publisher(self) -> None:
        """Its file with the number is lost."""
        self.incarnation += 1
        self.published = 0

    def publish(self) -> None:
        self.published += 1
        states = [job.state for job in self.jobs.values()]
        recent = [
            job.stamp for job in self.jobs.values()
            if job.state in {"submitting", "running"} and self.now - job.arrived_at < 1_800
        ]  # fmt: skip
        text = ad_text(
            sequence=self.published,
            Incarnation=f'"{self.incarnation}"',
            MaxJobs=self.day.max_jobs,
            MaxSubmittingJobs=self.day.max_submitting,
            CurrentJobs=states.count("running"),
            CurrentSubmittingJobs=states.count("submitting"),
            PilotStamps="{" + ", ".join(f'"{stamp}"' for stamp in recent) + "}"
            if self.weather.stamps
            else None,
        )
        copies = 2 if self.rng.random() < self.weather.doubled else 1
        for _ in range(copies):
            if self.rng.random() >= self.weather.lost:
                self.at(self.rng.uniform(0, self.weather.late_s), lambda: self.receive(text))
        self.at(EVERY_S, self.publish)

    def receive(self, text: str) -> None:
        new = read_site_ad(text, site="FNAL", now=self.now)
        if replaces(new, self.ad):
            follows = self.ad is not None and new.incarnation == self.ad.incarnation
            if self.day.mode is GateMode.LEDGER:
                follows = follows and not self.ad.is_too_old(self.now)
                self.others = self.gate(new, self.day.mode).others(self.others if follows else None)
            self.ad = replace(new, others=self.others)
            self.day.ads += 1
            self.cycle()
