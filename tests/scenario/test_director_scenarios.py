"""The director over many iterations in a small world: sites that run pilots, hide them, refuse or go silent.

The world keeps the truth (what really is in the batch systems) apart from the records (what a server knows
and stores). The director sees records and observations only; the caps are checked against the truth.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lodesman.decide.director.iteration import Decision, DirectorInput, decide
from lodesman.decide.director.limits import Breaker, TokenBucket, note_failure, note_success
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.plan import TaskQueueDemand
from lodesman.decide.director.queues import CandidateQueue, OwnPilots, QueueCaps, QueueLoad
from lodesman.decide.director.record import Stories, to_record
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.director.supply import PilotStanding, PilotView
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.nodes import Closing
from lodesman.wire.vocabulary import BreakerState, ClampName

TICK_S = 60.0
START = 1_000_000.0


class Says(StrEnum):
    """What a batch system answers when its load is asked."""

    TRUTH = "truth"
    NOTHING_THERE = "nothing there"
    UNKNOWN = "unknown"
    SILENCE = "silence"  # the last observation gets older


class Takes(StrEnum):
    """What a batch system does with a submission."""

    ALL = "all"
    REFUSES = "refuses"
    LOSES_ANSWER = "takes it, and the answer is lost"


@dataclass(kw_only=True)
class Site:
    """One CE queue: its shape, its temper, and the last observation of it."""

    queue_id: QueueId
    slots: int
    caps: QueueCaps
    platform: str = "x86"
    norm_cpu_seconds: int = 86_400
    pools: tuple[str, ...] = ("Local",)
    says: Says = Says.TRUTH
    takes: Takes = Takes.ALL
    starts: bool = True
    seen: tuple[int | None, int | None, float] = (0, 0, START)

    def template(self) -> ResourceRequest:
        return ResourceRequest(
            vo="lab",
            site=self.queue_id.site,
            ce=self.queue_id.ce,
            queue=self.queue_id.queue,
            platforms=(self.platform,),
            cores=4,
            memory_mb=8_000,
            norm_cpu_seconds=self.norm_cpu_seconds,
        )


@dataclass(kw_only=True)
class Pilot:
    """A pilot: the truth about it, and what the records say (`recorded` lags behind)."""

    pilot_id: int
    queue_id: QueueId
    request: ResourceRequest
    tq_id: int
    submitted_at: float
    running: bool = False
    ended: bool = False
    busy_until: float | None = None
    recorded: PilotStanding | None = PilotStanding.SUBMITTING


@dataclass(kw_only=True)
class World:
    """Sites, task queues, pilots and the state that a director's service keeps."""

    sites: list[Site]
    demands: dict[int, TaskQueueDemand]
    section: dict[str, object] = field(default_factory=dict)
    now: float = START
    job_s: float = 120.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    pilots: list[Pilot] = field(default_factory=list)
    breakers: dict[QueueId, Breaker] = field(default_factory=dict)
    buckets: dict[NodePath, TokenBucket] = field(default_factory=dict)
    suspects: dict[int, float] = field(default_factory=dict)
    done: Counter[int] = field(default_factory=Counter)
    attempts: Counter[QueueId] = field(default_factory=Counter)
    decisions: list[Decision] = field(default_factory=list)
    mask: SiteMask = field(default_factory=SiteMask)

    # --- what a service does ------------------------------------------------------------------------

    def tick(self) -> Decision:
        """One iteration of the director, then a minute of the world."""
        self._observe()
        options = read_options({"PrivatePilotFraction": "0"} | self.section)
        decision = decide(self._snapshot(), options=options, now=self.now, seed=self.rng.getrandbits(32))
        self.decisions.append(decision)
        self.breakers = dict(decision.breakers)
        self.buckets = dict(decision.buckets)
        self.suspects = dict(decision.excess.suspects)
        for placed in decision.placement.placements:
            for _ in range(placed.count):
                self._submit(placed.queue_id, placed.request, placed.order.tq_id, options.breaker)
        for pilot in self.pilots:
            if pilot.pilot_id in decision.excess.cancel:
                pilot.ended, pilot.recorded = True, None
            if pilot.pilot_id in decision.excess.too_old:
                breaker = self.breakers.get(pilot.queue_id, Breaker())
                self.breakers[pilot.queue_id] = note_failure(
                    breaker, now=self.now, rules=options.breaker, reason="waits too long"
                )
        self._pass_time()
        return decision

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    def restart(self) -> None:
        """The server dies and comes back: pilots are stored, all else that the director kept is lost."""
        self.breakers, self.buckets, self.suspects = {}, {}, {}

    def _observe(self) -> None:
        for site in self.sites:
            waiting, running = len(self.waiting(site)), len(self.running(site))
            if site.says is Says.TRUTH:
                site.seen = (waiting, running, self.now)
                self._learn(site)
            elif site.says is Says.NOTHING_THERE:
                site.seen = (0, 0, self.now)
            elif site.says is Says.UNKNOWN:
                site.seen = (None, None, self.now)

    def _learn(self, site: Site) -> None:
        """The states of a site's pilots come into the records; those that ended leave them."""
        for pilot in self.pilots:
            if pilot.queue_id != site.queue_id or pilot.recorded is None:
                continue
            if pilot.ended:
                pilot.recorded = None
            elif not pilot.running:
                pilot.recorded = PilotStanding.WAITING
            else:
                pilot.recorded = PilotStanding.IDLE if pilot.busy_until is None else PilotStanding.BUSY

    def _snapshot(self) -> DirectorInput:
        known = [pilot for pilot in self.pilots if pilot.recorded is not None]
        views = [
            PilotView(
                pilot_id=pilot.pilot_id,
                standing=pilot.recorded,
                request=pilot.request,
                submitted_at=pilot.submitted_at,
                tq_id=pilot.tq_id,
            )
            for pilot in known
            if pilot.recorded is not None
        ]
        return DirectorInput(
            demands=list(self.demands.values()),
            table=KeyTable({tq_id: one.key for tq_id, one in self.demands.items()}),
            serving=PoolMap(),
            pilots=views,
            queues=[self._candidate(site, known) for site in self.sites],
            pools={name: PoolState(name=name) for name in ("Local", "Other")},
            running_jobs=sum(pilot.busy_until is not None for pilot in self.pilots),
            suspects=self.suspects,
            breakers=self.breakers,
            buckets=self.buckets,
        )

    def _candidate(self, site: Site, known: list[Pilot]) -> CandidateQueue:
        here = [pilot for pilot in known if pilot.queue_id == site.queue_id]
        started = {PilotStanding.IDLE, PilotStanding.BUSY}
        waiting, running, at = site.seen
        return CandidateQueue(
            queue_id=site.queue_id,
            bit=self.sites.index(site),
            templates={"lab": site.template()},
            submission_pools=site.pools,
            load=QueueLoad(waiting, running, at, site.queue_id.ce),
            own=OwnPilots(
                waiting=sum(pilot.recorded not in started for pilot in here),
                running=sum(pilot.recorded in started for pilot in here),
                since_load=sum(pilot.submitted_at >= at for pilot in here),
            ),
            caps=site.caps,
            slots=site.slots or None,  # 0: unknown, and nothing starts
            closed=self.mask.reason(site.queue_id, self.now),
        )

    def _submit(self, queue_id: QueueId, request: ResourceRequest, tq_id: int, rules) -> None:
        site = next(one for one in self.sites if one.queue_id == queue_id)
        self.attempts[queue_id] += 1
        breaker = self.breakers.get(queue_id, Breaker())
        if site.takes is Takes.REFUSES:
            self.breakers[queue_id] = note_failure(breaker, now=self.now, rules=rules, reason="sbatch: error")
            return
        pilot = Pilot(
            pilot_id=len(self.pilots),
            queue_id=queue_id,
            request=request,
            tq_id=tq_id,
            submitted_at=self.now,
        )
        self.pilots.append(pilot)
        if site.takes is Takes.LOSES_ANSWER:
            self.breakers[queue_id] = note_failure(breaker, now=self.now, rules=rules, reason="time-out")
            return
        pilot.recorded = PilotStanding.WAITING
        self.breakers[queue_id] = note_success(breaker)

    # --- what the sites do --------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.now += TICK_S
        for site in self.sites:
            free = site.slots - len(self.running(site))
            for pilot in self.waiting(site)[: max(0, free)] if site.starts else ():
                pilot.running = True
            for pilot in self.running(site):
                self._work(pilot)

    def _work(self, pilot: Pilot) -> None:
        """A pilot finishes its job, takes the next one, or ends because there is none for it."""
        if pilot.busy_until is not None and pilot.busy_until > self.now:
            return
        pilot.busy_until = None
        fitting = [
            one for one in self.demands.values() if one.waiting_jobs and not explain(one.key, pilot.request)
        ]
        if not fitting:
            pilot.ended = True
            return
        one = self.rng.choice(fitting)
        self.set_jobs(one.tq_id, one.waiting_jobs - 1)
        self.done[one.tq_id] += 1
        pilot.busy_until = self.now + self.job_s

    def set_jobs(self, tq_id: int, count: int) -> None:
        old = self.demands[tq_id]
        self.demands[tq_id] = TaskQueueDemand(tq_id=tq_id, key=old.key, weight=old.weight, waiting_jobs=count)

    # --- the truth ----------------------------------------------------------------------------------

    def waiting(self, site: Site) -> list[Pilot]:
        return [p for p in self._live(site) if not p.running]

    def running(self, site: Site) -> list[Pilot]:
        return [p for p in self._live(site) if p.running]

    def _live(self, site: Site) -> list[Pilot]:
        return [p for p in self.pilots if p.queue_id == site.queue_id and not p.ended]

    def check_caps(self) -> None:
        for site in self.sites:
            waiting, running = len(self.waiting(site)), len(self.running(site))
            assert site.caps.max_waiting is None or waiting <= site.caps.max_waiting
            assert site.caps.max_total is None or waiting + running <= site.caps.max_total


def site(name: str, **given) -> Site:
    base: dict[str, Any] = {
        "queue_id": QueueId(name, "ce", "q"),
        "slots": 8,
        "caps": QueueCaps(max_waiting=10, max_total=20),
    }
    return Site(**(base | given))


def task_queue(tq_id: int, jobs: int, *, weight: float = 1.0, **key) -> TaskQueueDemand:
    named: dict[str, Any] = {"owner": "ann", "group": "users", "vo": "lab", "norm_cpu_seconds": 3600} | key
    return TaskQueueDemand(tq_id=tq_id, key=TaskQueueKey(**named), weight=weight, waiting_jobs=jobs)


def world(sites: list[Site], *task_queues: TaskQueueDemand, **section) -> World:
    return World(sites=sites, demands={one.tq_id: one for one in task_queues}, section=section)


# --- demand is served ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_jobs_run_at_sites_of_different_shape():
    three = [
        site("A"),
        site("B", slots=3, platform="arm", caps=QueueCaps(max_waiting=4, max_total=6)),
        site("C", norm_cpu_seconds=7200),
    ]
    one = world(
        three,
        task_queue(1, 80),
        task_queue(2, 40, platforms=("arm",)),
        task_queue(3, 30, norm_cpu_seconds=50_000, owner="bob"),
        task_queue(4, 20, sites=("C",)),
        task_queue(5, 1, banned_sites=("A", "B")),
    )
    for _ in range(120):
        one.tick()
        one.check_caps()
    assert one.done == {1: 80, 2: 40, 3: 30, 4: 20, 5: 1}
    assert not [pilot for pilot in one.pilots if not pilot.ended]


def test_no_more_pilots_than_jobs_and_extras_ask_for():
    one = world([site("A", slots=50, caps=QueueCaps(max_waiting=None, max_total=None))], task_queue(1, 200))
    one.run(40)
    assert one.done == {1: 200}
    # Each pilot could run several jobs; the bound is one pilot for each job, and the extras.
    assert len(one.pilots) <= 1.2 * 200 + 4


def test_an_impossible_task_queue_gets_no_pilot_and_stops_no_other():
    one = world([site("A")], task_queue(1, 10), task_queue(2, 1000, cores=64, weight=100.0))
    one.run(30)
    assert one.done == {1: 10}
    assert {pilot.tq_id for pilot in one.pilots} == {1}
    lines = Stories(to_record(one.decisions[0])).lines(2)
    assert lines[0].endswith("asked, none placed because no CE queue would take one")
    assert lines[-1] == "  A/ce/q: the job needs 64 cores, the resource has 4"


@pytest.mark.slow
def test_a_new_task_queue_is_served_while_another_floods():
    one = world([site("A", slots=4)], task_queue(1, 5000))
    one.run(10)
    one.demands[2] = task_queue(2, 5, weight=50.0, owner="bob")
    one.run(20)
    assert one.done[2] == 5


@pytest.mark.slow
def test_room_is_shared_by_priority_and_jobs():
    """Weights 3 : 1 and equal jobs: the formula's means are (3/4 + 1/2) to (1/4 + 1/2)."""
    asked: Counter[int] = Counter()
    one = world([site("A", slots=0, starts=False)], task_queue(1, 10_000, weight=3.0), task_queue(2, 10_000))
    for _ in range(60):
        decision = one.tick()
        asked.update({row.tq_id: row.drawn for row in decision.plan.rows})
    assert asked[1] / asked[2] == pytest.approx(1.25 / 0.75, rel=0.02)


def test_private_pilots_serve_their_owner_and_all_jobs_are_done():
    one = world(
        [site("A"), site("B")],
        task_queue(1, 40),
        task_queue(2, 40, owner="bob", pilot_type="private"),
        PrivatePilotFraction="0.5",
    )
    one.run(60)
    assert one.done == {1: 40, 2: 40}
    for_bob = [pilot for pilot in one.pilots if pilot.tq_id == 2]
    assert {(pilot.request.owner, pilot.request.pilot_type) for pilot in for_bob} == {("bob", "private")}
    owners = Counter(pilot.request.owner for pilot in one.pilots if pilot.tq_id == 1)
    assert set(owners) == {"", "ann"}


@pytest.mark.parametrize(("policy", "most"), [("seed", 324), ("adaptive", 324), ("gap", 200), ("ratio", 140)])
def test_all_jobs_run_by_each_policy_of_the_target(policy, most):
    """The formula alone asks for all that the allowances let through: 1.2 x 260 + 8 = 320 pilots at once."""
    free = QueueCaps(max_waiting=None, max_total=None)
    one = world(
        [site("A", slots=100, caps=free), site("B", slots=40, caps=free)],
        task_queue(1, 200),
        task_queue(2, 60, weight=3.0, sites=("A",)),
        TargetPolicy=policy,
        pilotsPerMinute=10_000,
        pilotBurst=10_000,
    )
    one.run(40)
    assert sum(one.done.values()) == 260
    assert len(one.pilots) <= most
    if policy in ("gap", "ratio"):
        assert all(decision.plan.asked <= decision.target.value for decision in one.decisions)
        assert one.decisions[-1].plan.asked == 0


# --- sites that misbehave -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("starts", [True, False])
def test_a_site_that_hides_its_pilots_is_not_flooded(starts):
    hiding = site("A", says=Says.NOTHING_THERE, starts=starts)
    one = world([hiding], task_queue(1, 100_000))
    for _ in range(100):
        one.tick()
        one.check_caps()
    assert len(one.pilots) <= 20


@pytest.mark.slow
def test_running_pilots_that_vanish_from_view_still_count_in_the_total():
    one = world([site("A", slots=20, caps=QueueCaps(max_waiting=10, max_total=20))], task_queue(1, 100_000))
    one.run(5)
    assert len(one.running(one.sites[0])) == 20
    one.sites[0].says = Says.NOTHING_THERE
    for _ in range(20):
        one.tick()
        one.check_caps()


def test_a_site_whose_load_is_unknown_gets_nothing_until_it_is_known():
    dark = site("A", says=Says.UNKNOWN)
    one = world([dark], task_queue(1, 50))
    one.run(10)
    assert one.pilots == []
    rooms = one.decisions[-1].placement.rooms
    assert [bite.name for bite in rooms[dark.queue_id].clamps] == [ClampName.UNKNOWN_LOAD]
    dark.says = Says.TRUTH
    one.run(40)
    assert one.done == {1: 50}


@pytest.mark.slow
def test_a_closed_site_gets_nothing_until_its_time_and_the_others_do_the_work():
    one = world([site("A"), site("B")], task_queue(1, 2_000), task_queue(2, 50, sites=("A",)))
    until = START + 20 * TICK_S
    one.mask = SiteMask([Closing("A", "", "", "power", "root", START, until, False)])
    one.run(20)
    assert {pilot.queue_id.site for pilot in one.pilots} == {"B"}
    assert (one.done[1] > 0, one.done[2]) == (True, 0)
    room = one.decisions[-1].placement.rooms[QueueId("A", "ce", "q")]
    assert (room.room, room.clamps[0].name) == (0, ClampName.CLOSED)
    assert room.clamps[0].detail.startswith("closed by root since 1970-01-12 13:46 UTC until")
    one.run(40)
    assert one.done[2] == 50
    assert min(pilot.submitted_at for pilot in one.pilots if pilot.queue_id.site == "A") >= until


@pytest.mark.slow
def test_a_silent_site_gets_nothing_once_its_load_is_stale():
    mute = site("A", slots=0, starts=False, caps=QueueCaps(max_waiting=None, max_total=None))
    one = world([mute], task_queue(1, 100_000))
    one.tick()
    mute.says = Says.SILENCE
    one.run(30)
    last = max(pilot.submitted_at for pilot in one.pilots)
    assert last - START <= 600.0
    assert last - START >= 500.0


@pytest.mark.slow
def test_a_refusing_site_is_left_alone_and_tried_again():
    """An hour of refusals: three in the first burst or a little more, then single probes further apart."""
    broken = site("A", takes=Takes.REFUSES)
    one = world([broken, site("B")], task_queue(1, 10_000))
    one.run(1)
    burst = one.attempts[broken.queue_id]
    assert burst <= 10
    one.run(60)
    assert one.attempts[broken.queue_id] - burst <= 4
    assert one.breakers[broken.queue_id].state is not BreakerState.CLOSED
    assert one.done[1] > 0
    broken.takes = Takes.ALL
    one.run(61)
    assert one.breakers[broken.queue_id] == Breaker()
    assert one.running(broken)


@pytest.mark.slow
def test_lost_answers_do_not_double_the_pilots():
    losing = site("A", takes=Takes.LOSES_ANSWER, says=Says.NOTHING_THERE, starts=False)
    one = world([losing], task_queue(1, 1000))
    for _ in range(200):
        one.tick()
        one.check_caps()
    assert 0 < len(one.pilots) <= 10


@pytest.mark.slow
def test_pilots_stuck_for_hours_are_replaced_elsewhere_and_never_above_the_cap():
    stuck = site("A", starts=False)
    one = world([stuck], task_queue(1, 3))
    one.run(6 * 60 + 5)
    one.check_caps()
    assert len(one.pilots) > 7  # the aged ones no longer count as supply
    assert all(pilot.ended for pilot in one.pilots[:7])  # and make room
    assert one.breakers[stuck.queue_id].state is not BreakerState.CLOSED
    one.sites.append(site("B"))
    one.run(20)
    one.check_caps()
    assert one.done == {1: 3}


# --- restart ------------------------------------------------------------------------------------------


def test_a_restart_submits_nothing_that_is_on_its_way_already():
    one = world([site("A", slots=0, starts=False)], task_queue(1, 6))
    one.run(10)
    before = len(one.pilots)
    assert before == 10  # MaxWaitingJobs; 11 would be allowed
    one.restart()
    one.run(10)
    assert len(one.pilots) == before


def test_a_restart_every_minute_is_no_flood_and_still_serves():
    one = world([site("A"), site("B", says=Says.NOTHING_THERE)], task_queue(1, 150))
    for _ in range(80):
        one.restart()
        one.tick()
        one.check_caps()
    assert one.done == {1: 150}
    assert len(one.pilots) <= 1.2 * 150 + 4


@pytest.mark.slow
def test_the_rate_limit_bounds_a_first_burst():
    free = QueueCaps(max_waiting=None, max_total=None)
    one = world(
        [site("A", slots=500, caps=free)], task_queue(1, 100_000), pilotBurst="25", pilotsPerMinute="5"
    )
    one.run(1)
    assert len(one.pilots) == 25
    one.run(10)
    assert 25 < len(one.pilots) <= 25 + 5 * 10


# --- demand falls -------------------------------------------------------------------------------------


def test_pilots_of_killed_jobs_are_cancelled_slowly():
    far = site("A", slots=0, starts=False, caps=QueueCaps(max_waiting=None, max_total=None))
    one = world([far], task_queue(1, 100), maxCancelsPerIteration="7", pilotsPerIteration="500")
    one.run(10)
    waiting = len(one.waiting(far))
    assert waiting > 100
    one.set_jobs(1, 0)
    left = []
    for _ in range(20):
        one.tick()
        left.append(len(one.waiting(far)))
    assert left[0] == waiting  # seen once: only suspected
    drops = [before - after for before, after in pairwise(left)]
    assert max(drops) == 7
    one.run(20)
    assert one.waiting(far) == []


def test_one_odd_snapshot_cancels_nothing():
    far = site("A", slots=0, starts=False, caps=QueueCaps(max_waiting=None, max_total=None))
    one = world([far], task_queue(1, 100))
    one.run(10)
    waiting = len(one.waiting(far))
    for _ in range(5):
        one.set_jobs(1, 0)
        one.tick()
        one.set_jobs(1, 100)
        one.tick()
    assert len(one.waiting(far)) >= waiting


@pytest.mark.slow
def test_steady_work_cancels_no_pilot():
    """Pilots start and jobs leave together; small surpluses that come from this are tolerated."""
    one = world([site("A", slots=20, caps=QueueCaps(max_waiting=60, max_total=80))], task_queue(1, 2000))
    one.run(60)
    assert sum(len(decision.excess.cancel) for decision in one.decisions) == 0


# --- never above the caps, whatever is seen -----------------------------------------------------------

SITES = st.integers(0, 2)


class Provisioning(RuleBasedStateMachine):
    """Sites change their temper at random moments; servers restart; jobs come and go."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.world = world(
            [
                site("A"),
                site("B", slots=4, caps=QueueCaps(max_waiting=3, max_total=4)),
                site("C", slots=0, caps=QueueCaps(max_waiting=1, max_total=None)),
            ],
            task_queue(1, 30),
            task_queue(2, 0, sites=("B", "C"), owner="bob"),
            task_queue(3, 0, pilot_type="private"),
            PrivatePilotFraction="0.3",
            maxPilotWaitingHours="0.2",
        )
        self.world.rng = random.Random(seed)

    @rule(which=SITES, says=st.sampled_from(list(Says)))
    def load_changes(self, which, says):
        self.world.sites[which].says = says

    @rule(which=SITES, takes=st.sampled_from(list(Takes)))
    def submission_changes(self, which, takes):
        self.world.sites[which].takes = takes

    @rule(which=SITES, starts=st.booleans())
    def starts_change(self, which, starts):
        self.world.sites[which].starts = starts

    @rule(tq_id=st.integers(1, 3), count=st.integers(0, 500))
    def jobs_come_and_go(self, tq_id, count):
        self.world.set_jobs(tq_id, count)

    @rule()
    def server_restarts(self):
        self.world.restart()

    @rule(seconds=st.floats(0, 4000))
    def time_passes_unattended(self, seconds):
        self.world.now += seconds

    @rule(seconds=st.floats(0, 4000))
    def clock_goes_back(self, seconds):
        self.world.now -= seconds

    @rule(which=st.integers(0, 10_000))
    def a_pilot_dies_unseen(self, which):
        if self.world.pilots:
            self.world.pilots[which % len(self.world.pilots)].ended = True

    @rule(ticks=st.integers(1, 6))
    def director_works(self, ticks):
        for _ in range(ticks):
            decision = self.world.tick()
            self.world.check_caps()
            for row in decision.plan.rows:
                assert row.usable_waiting + row.asked <= max(row.allowance, row.usable_waiting)
            assert decision.placement.placed <= decision.plan.asked

    @invariant()
    def caps_hold(self):
        if hasattr(self, "world"):
            self.world.check_caps()


Provisioning.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestProvisioning = pytest.mark.slow(Provisioning.TestCase)
