"""Two ways to send pilots to the sites of `black_hole`: the program's director with its rules for hosts, queues and surplus
pilots; and the seed's formula to the letter, where the middleware puts each pilot anywhere and nothing is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.black_hole import CPU_SECONDS, SITES, Pilot, Result, World

from lodesman.decide.director.iteration import DirectorInput, decide
from lodesman.decide.director.limits import Breaker, TokenBucket, note_failure, note_success
from lodesman.decide.director.options import DirectorOptions, read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.plan import make_plan
from lodesman.decide.director.queues import REMOTE_CAPS, CandidateQueue, OwnPilots, QueueLoad
from lodesman.decide.director.supply import PilotStanding, PilotView
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.hosts import HostName

POLLS_EVERY_S: Final = 30.0
ITERATES_EVERY_S: Final = 60.0
# The program does each second where a single host is suspect.
JUDGES_EVERY_S: Final = 10.0


def request_of(site: str) -> ResourceRequest:
    """What a generic pilot there presents."""
    return ResourceRequest(
        vo="vo",
        site=site,
        ce="ce",
        queue="q",
        platforms=("x",),
        cores=1,
        memory_mb=4_000,
        norm_cpu_seconds=CPU_SECONDS,
    )


def literal(world: World, options: DirectorOptions) -> None:
    """One iteration of the seed: the formula, and a middleware that chooses among all sites."""
    demands, too_old = world.demands(), world.now - options.max_pilot_waiting_hours * 3_600.0
    waiting = Counter(
        one.tq_id for one in world.live.values() if one.host is None and one.submitted_at > too_old
    )
    facts = TargetFacts(waiting_jobs=0, running_jobs=0, usable_pilots=0, waiting_pilots=0, running_pilots=0)
    plan = make_plan(
        demands, usable_waiting=waiting, target=target_of(facts, options), options=options, rng=world.rng
    )
    for row in plan.rows:
        for _ in range(row.asked):
            site = world.rng.choice(list(SITES))
            world.submit(site, row.tq_id, request_of(site))


@dataclass(slots=True)
class Director:
    """The program's director over the simulated sites: what its service keeps between two iterations."""

    world: World
    options: DirectorOptions
    breakers: dict[QueueId, Breaker] = field(default_factory=dict)
    buckets: Mapping[NodePath, TokenBucket] = field(default_factory=dict)
    suspects: Mapping[int, float] = field(default_factory=dict)
    loads: dict[str, QueueLoad] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)

    def poll(self) -> None:
        """What the watches of the batch systems see: loads, and pilots that joined, which count for their queue."""
        world = self.world
        for site in SITES:
            running = sum(one.site == site and one.host is not None for one in world.live.values())
            self.loads[site] = QueueLoad(len(world.waiting[site]), running, world.now, site, held=0)
        for pilot in world.live.values():
            if pilot.joined and pilot.number not in self.joined:
                self.joined.add(pilot.number)
                self._hear(pilot)

    def _hear(self, pilot: Pilot) -> None:
        queue = QueueId(pilot.site, "ce", "q")
        breaker, record = (
            self.breakers.get(queue, Breaker()),
            self.world.hosts.get(pilot.host or HostName("", "")),
        )
        if (record is not None and record.shut) or pilot.site in self.world.failing:
            reason = f"{pilot.host} gets no jobs"
            breaker = note_failure(breaker, now=self.world.now, rules=self.options.breaker, reason=reason)
        else:
            breaker = note_success(breaker)
        self.breakers[queue] = breaker

    def iterate(self) -> None:
        """One iteration, carried out."""
        world = self.world
        decision = decide(
            self.snapshot(), options=self.options, now=world.now, seed=world.rng.getrandbits(53)
        )
        self.breakers, self.buckets = dict(decision.breakers), decision.buckets
        self.suspects = decision.excess.suspects
        for one in decision.placement.placements:
            world.submit(one.queue_id.site, one.order.tq_id, one.request, one.count)
        world.cancel(decision.excess.cancel)

    def snapshot(self) -> DirectorInput:
        """What the service would read."""
        world, demands = self.world, self.world.demands()
        views = [
            PilotView(
                pilot_id=one.number, standing=self._standing(one), request=one.request, submitted_at=one.submitted_at,
                tq_id=one.tq_id,
            )
            for one in world.live.values()
        ]  # fmt: skip
        return DirectorInput(
            demands=demands,
            table=KeyTable({one.tq_id: one.key for one in demands}),
            serving=PoolMap(),
            pilots=views,
            queues=[self._candidate(bit, site) for bit, site in enumerate(SITES)],
            pools={"Local": PoolState(name="Local")},
            running_jobs=sum(one.job is not None for one in world.live.values()),
            suspects=self.suspects,
            breakers=self.breakers,
            buckets=self.buckets,
        )

    def _standing(self, pilot: Pilot) -> PilotStanding:
        if not pilot.joined:
            return PilotStanding.WAITING
        record = self.world.hosts.get(pilot.host) if pilot.host else None
        if record is not None and record.shut:
            return PilotStanding.SHUT
        return PilotStanding.IDLE if pilot.job is None else PilotStanding.BUSY

    def _candidate(self, bit: int, site: str) -> CandidateQueue:
        here = [one for one in self.world.live.values() if one.site == site]
        load = self.loads[site]
        running = sum(one.joined for one in here)
        return CandidateQueue(
            queue_id=QueueId(site, "ce", "q"),
            bit=bit,
            templates={"vo": request_of(site)},
            submission_pools=("Local",),
            load=load,
            own=OwnPilots(
                waiting=len(here) - running,
                running=running,
                since_load=sum(one.submitted_at > load.observed_at for one in here),
            ),
            caps=REMOTE_CAPS,
        )


def by_the_seed(seed: int, section: Mapping[str, object], **world: Any) -> Result:
    """A day of the formula to the letter."""
    one, options = World(seed, **world), read_options(section)
    one.every(ITERATES_EVERY_S, lambda: literal(one, options))
    return one.run()


def by_the_director(seed: int, section: Mapping[str, object], **world: Any) -> Result:
    """A day of the program's director."""
    one = World(seed, **world)
    director = Director(one, read_options(section))
    one.every(POLLS_EVERY_S, director.poll)
    one.every(ITERATES_EVERY_S, director.iterate)
    one.every(JUDGES_EVERY_S, one.judge)
    return one.run()
