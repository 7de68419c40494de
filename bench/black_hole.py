"""Four sites of 500, 500, 200 and 300 slots, the last a black hole, and 6,600 jobs of about an hour: a day in one process.

Batch systems, pilots and the clock are simulated; claims are the matcher's, and what is known of hosts is the program's.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lodesman.decide.director.hosts import (
    FAILS_WITHIN_S,
    WINDOW_S,
    Failure,
    HostTrial,
    failing_sites,
    judge_hosts,
    may_probe,
    open_host,
    outlived_s,
    shut_host,
    shut_with_sites,
    suspects_by_site,
)
from lodesman.decide.director.plan import TaskQueueDemand
from lodesman.decide.matching import GroupShare, ResourceRequest, TaskQueueKey, director_weights
from lodesman.decide.matching.matcher import Matcher
from lodesman.wire.hosts import HostEvidence, HostName, HostRecord

SITES: Final = {"a": 500, "b": 500, "c": 200, "hole": 300}
HOLE: Final = "hole"
JOBS: Final = 6_600
SLOTS_OF_A_HOST: Final = 20
SHARES: Final = {
    "g1": GroupShare(share=1000.0),
    "g2": GroupShare(share=1000.0),
    "g3": GroupShare(share=1000.0),
}
OWNERS: Final = 2
JOB_SECONDS: Final = (3_600.0, 600.0)
FAILS_AFTER: Final = (5.0, 30.0)
SCHEDULES_EVERY_S: Final = 30.0
JOINS_AFTER_S: Final = 10.0
IDLE_SECONDS: Final = 120.0
LIMIT_SECONDS: Final = 24 * 3_600.0
# The longest CPU time there is: its boost is 1, and the formula asks for twice the target.
CPU_SECONDS: Final = 1_080_000


@dataclass(slots=True, eq=False)
class Pilot:
    """One pilot. `job`: task queue, number and start of what it runs; `jobs`: how many it ran."""

    number: int
    site: str
    tq_id: int
    request: ResourceRequest
    submitted_at: float
    host: HostName | None = None
    joined: bool = False
    ended: bool = False
    job: tuple[int, int, float] | None = None
    jobs: int = 0
    probes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a day came to; `makespan_s` is infinite if jobs are left."""

    pilots: int
    to_hole: int
    cancelled: int
    empty: int
    failed: int
    makespan_s: float


class World:
    """Sites, jobs and pilots. `stays`: a pilot whose job failed asks for the next, as this program's do; else it ends."""

    def __init__(
        self, seed: int, *, stays: bool = False, jobs: int = JOBS, slots_of_a_host: int = SLOTS_OF_A_HOST
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.stays = stays
        self.hosts: dict[HostName, HostRecord] = {}
        self.failures: list[Failure] = []
        self.failing: Mapping[str, HostEvidence] = {}
        self.waiting: dict[str, deque[Pilot]] = {site: deque() for site in SITES}
        self.live: dict[int, Pilot] = {}
        self.counts: Counter[str] = Counter()
        self.done_at = 0.0
        self.left = jobs
        self._numbers = iter(range(10**9))
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._idle: dict[int, Pilot] = {}
        self._free = {
            site: [HostName(site, f"{site}{slot // slots_of_a_host}") for slot in range(slots)]
            for site, slots in SITES.items()
        }
        # The last attempts: (end, task queue, host, whether it failed).
        self._ended: deque[tuple[float, int, HostName, bool]] = deque()
        self.matcher = Matcher()
        self.keys: dict[int, TaskQueueKey] = {}
        groups = [(group, owner) for group in SHARES for owner in range(OWNERS)]
        self.jobs: dict[int, list[int]] = {}
        for tq_id, (group, owner) in enumerate(groups, 1):
            self.keys[tq_id] = TaskQueueKey(
                owner=f"{group}.{owner}", group=group, vo="vo", norm_cpu_seconds=CPU_SECONDS
            )
            self.jobs[tq_id] = list(range(tq_id, jobs + 1, len(groups)))
            self.matcher.index.put(tq_id, self.keys[tq_id], len(self.jobs[tq_id]), now=0.0)
        self.matcher.lottery.set_shares(SHARES)
        self.every(SCHEDULES_EVERY_S, self._schedule)

    # --- time -------------------------------------------------------------------------------------

    def after(self, seconds: float, do: Callable[..., None], *values: Any) -> None:
        """Do something later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), do, values))

    def every(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something again and again, from now on."""

        def again() -> None:
            do()
            self.after(seconds, again)

        self.after(0.0, again)

    def run(self) -> Result:
        """Until all jobs are done and all pilots gone."""
        while self._events and self.now < LIMIT_SECONDS and (self.left or self.live):
            self.now, _, do, values = heapq.heappop(self._events)
            do(*values)
        return Result(
            pilots=self.counts["pilots"], to_hole=self.counts[HOLE], cancelled=self.counts["cancelled"],
            empty=self.counts["empty"], failed=self.counts["failed"],
            makespan_s=float("inf") if self.left else self.done_at,
        )  # fmt: skip

    # --- what batch systems do --------------------------------------------------------------------

    def submit(self, site: str, tq_id: int, request: ResourceRequest, count: int = 1) -> None:
        """Pilots for a site."""
        for _ in range(count):
            pilot = Pilot(next(self._numbers), site, tq_id, request, self.now)
            self.live[pilot.number] = pilot
            self.waiting[site].append(pilot)
            self.counts.update(["pilots", site])

    def cancel(self, numbers: tuple[int, ...]) -> None:
        """Those that wait never start."""
        for number in numbers:
            pilot = self.live.get(number)
            if pilot is not None and pilot.host is None:
                self.waiting[pilot.site].remove(pilot)
                del self.live[number]
                self.counts["cancelled"] += 1

    def _schedule(self) -> None:
        for site, queue in self.waiting.items():
            free = self._free[site]
            while queue and free:
                pilot = queue.popleft()
                pilot.host = free.pop(self.rng.randrange(len(free)))
                self.after(JOINS_AFTER_S, self._joins, pilot)

    # --- what pilots do ---------------------------------------------------------------------------

    def _joins(self, pilot: Pilot) -> None:
        pilot.joined = True
        self._asks(pilot)

    def _asks(self, pilot: Pilot) -> None:
        """Take a job, or wait for one as long as an idle pilot does."""
        if not self._takes(pilot):
            self._idle[pilot.number] = pilot
            self.after(IDLE_SECONDS, self._tires, pilot, pilot.jobs)

    def _takes(self, pilot: Pilot) -> bool:
        assert pilot.host is not None
        record = self.hosts.get(pilot.host)
        if record is not None and record.shut:
            if not may_probe(record, self.now) or any(
                one.probes and one.host == pilot.host for one in self.live.values()
            ):
                return False
            pilot.probes = True
        chosen = self.matcher.choose(pilot.request, 1, now=self.now, rng=self.rng, undo=[])
        if not chosen:
            pilot.probes = False
            return False
        self._idle.pop(pilot.number, None)
        (tq_id,) = chosen
        pilot.job, pilot.jobs = (tq_id, self.jobs[tq_id].pop(), self.now), pilot.jobs + 1
        if pilot.site == HOLE:
            self.after(self.rng.uniform(*FAILS_AFTER), self._fails, pilot)
        else:
            self.after(max(600.0, self.rng.gauss(*JOB_SECONDS)), self._ends, pilot)
        return True

    def _tires(self, pilot: Pilot, jobs: int) -> None:
        if pilot.number in self._idle and pilot.jobs == jobs:
            self._leaves(pilot)

    def _leaves(self, pilot: Pilot) -> None:
        assert pilot.host is not None
        self._idle.pop(pilot.number, None)
        del self.live[pilot.number]
        self._free[pilot.site].append(pilot.host)
        self.counts["empty"] += not pilot.jobs

    def _ends(self, pilot: Pilot) -> None:
        """The job succeeded."""
        self._over(pilot, has_failed=False)
        self.left, self.done_at = self.left - 1, self.now
        self._asks(pilot)

    def _fails(self, pilot: Pilot) -> None:
        """The job goes back to its task queue, and to a pilot that waits for one."""
        tq_id, job, since = self._over(pilot, has_failed=True)
        assert pilot.host is not None
        self.counts["failed"] += 1
        self.failures.insert(0, Failure(self.now, pilot.host, tq_id, job, self.now - since))
        self.jobs[tq_id].append(job)
        self.matcher.index.add_waiting(tq_id, 1, now=self.now)
        if self.stays:
            self._asks(pilot)
        else:
            self._leaves(pilot)
        self.wake()

    def _over(self, pilot: Pilot, *, has_failed: bool) -> tuple[int, int, float]:
        job, host = pilot.job, pilot.host
        assert job is not None
        assert host is not None
        pilot.job = None
        self._ended.append((self.now, job[0], host, has_failed))
        if pilot.probes:
            pilot.probes = False
            record = self.hosts.get(host)
            if record is not None and record.shut:
                quick = has_failed and self.now - job[2] <= FAILS_WITHIN_S
                self.hosts[host] = shut_host(record, self.now) if quick else open_host(record, self.now)
        return job

    def wake(self) -> None:
        """Jobs wait: idle pilots take them, those that wait longest first."""
        for pilot in list(self._idle.values()):
            if any(self.jobs.values()):
                self._takes(pilot)

    # --- what is known of hosts -------------------------------------------------------------------

    def judge(self) -> None:
        """What the watch of hosts does each second."""
        recent = [one for one in self.failures if one.at > self.now - WINDOW_S]
        self.failures = recent
        against = suspects_by_site(recent, self.now)
        self.failing = {}
        if not against and not self.hosts:
            return
        found = list(self._tried({one.tq_id for one in against}, outlived_s(against))) if against else []
        self.failing = failing_sites(recent, found, self.now)
        judged: dict[HostName, HostRecord | None] = dict(
            shut_with_sites(self.failing, self.hosts, recent, self.now)
        )
        judged |= dict(judge_hosts(self.hosts, recent, found, self.now))
        for host, record in judged.items():
            if record is None:
                del self.hosts[host]
            else:
                self.hosts[host] = record

    def _tried(self, queues: set[int], outlived: float) -> Iterator[HostTrial]:
        while self._ended and self._ended[0][0] <= self.now - WINDOW_S:
            self._ended.popleft()
        sums: defaultdict[tuple[int, HostName], list[int]] = defaultdict(lambda: [0, 0])
        for _, tq_id, host, has_failed in self._ended:
            if tq_id in queues:
                one = sums[tq_id, host]
                one[0], one[1] = one[0] + 1, one[1] + has_failed
        for pilot in self.live.values():
            if pilot.job and pilot.host and pilot.job[0] in queues and pilot.job[2] <= self.now - outlived:
                sums[pilot.job[0], pilot.host][0] += 1
        for (tq_id, host), (attempts, n) in sums.items():
            yield HostTrial(tq_id, host, attempts, n)

    # --- what both ways go by ---------------------------------------------------------------------

    def demands(self) -> list[TaskQueueDemand]:
        """The task queues with waiting jobs."""
        waiting = [(tq_id, self.keys[tq_id], len(jobs)) for tq_id, jobs in self.jobs.items() if jobs]
        weights = director_weights(waiting, SHARES)
        return [
            TaskQueueDemand(tq_id=tq_id, key=key, weight=weights[tq_id], waiting_jobs=n)
            for tq_id, key, n in waiting
        ]
