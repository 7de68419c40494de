"""One iteration of the director's service: what it sees, what it posts, whom it cancels."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from lodesman.batch import CancelOutcome, QueueLoad
from lodesman.director import PoolState, QueueId, plan_of, read_options
from lodesman.resources import load_resources
from lodesman.services.direct import Director
from lodesman.services.known_queues import KnownQueues
from lodesman.services.pilots import DrainPilots, Join, NewPilot, PilotSubmitted, PreparePilots, hash_token
from lodesman.services.policy import Policy
from lodesman.services.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.store.task_queues import load_queues

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")
OFFER = {"vo": "lab", "cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 1_000, "site": "North", "ce": "cn",
         "queue": "short", "platforms": ["el9"]}  # fmt: skip


class Batch:
    """Tells its load and cancels."""

    def __init__(self) -> None:
        self.now = QueueLoad(waiting=0, running=0, observed_at=1_000.0)
        self.cancelled: list[str] = []
        self.outcome = CancelOutcome.REMOVED

    def load(self, _queue):
        return self.now

    def cancel(self, native_ids):
        self.cancelled += native_ids
        return dict.fromkeys(native_ids, self.outcome)


class World:
    """A director over one database and one batch system."""

    def __init__(self, base, policy, make_key) -> None:
        self.base, self.make_key, self.batch = base, make_key, Batch()
        self.posted: list[Any] = []
        self.launched: list[Any] = []
        self.pool = PoolState(name="Local", running=0, queued=0, max=5, total=50)
        self.pilots = 0
        self.director = Director(
            db=base.db, policy=policy, options=read_options({"extraPilots": 0}), backends={"local": cast("Any", self.batch)},
            post=lambda *words: self.posted.append(words), pools=lambda: {"Local": self.pool},
            launch=lambda decision, offers: self.launched.append((decision, offers)), rng=random.Random(2),
        )  # fmt: skip

    def submit(self, count=50, pools=(), **key):
        one = self.make_key(**key)
        cohort = PreparedCohort(key=one, template="{}", expand=False, max_attempts=3, runs=((0, count),))
        self.base.do(Submit(self.base.live, PreparedSubmission(
            owner=one.owner, group=one.group, vo=one.vo, name="", form="json", record="", members=None,
            count=count, cohorts=(cohort,), pools=pools,
        )))  # fmt: skip

    def pilot(self, *, joined=False, drain=False):
        self.pilots += 1
        stamp, base = f"stamp{self.pilots}", self.base
        (number,) = base.do(PreparePilots(base.live, [NewPilot(
            stamp=stamp, vo="lab", site="North", ce="cn", queue="short", request=OFFER, join_hash=hash_token(stamp),
        )]))  # fmt: skip
        base.do(PilotSubmitted(base.live, {stamp: (f"native-{stamp}", "")}))
        if joined:
            base.do(Join(base.live, stamp, "nonce", {}))
        if drain:
            base.do(DrainPilots(base.live, [number]))
        return number

    def tick(self, now=1_000.0):
        self.posted.clear()
        self.launched.clear()
        return self.director.tick(now)

    def snapshot(self, now=1_000.0):
        """What the director sees now."""
        return self.director._snapshot(KnownQueues(self.base.db).look(), ["lab"], now)

    @property
    def placements(self):
        return [one for decision, _ in self.launched for one in decision.placement.placements]


@pytest.fixture
def world(base, policy, make_key):
    return World(base, policy, make_key)


def test_without_jobs_nothing_is_sent(world):
    assert world.tick() == 0
    assert world.launched == []


def test_jobs_that_wait_bring_pilots_to_a_queue_that_can_run_them(world):
    world.submit()
    placed = world.tick()
    assert placed > 0
    assert {one.queue_id for one in world.placements} == {SHORT}
    assert sum(one.count for one in world.placements) == placed
    ((name, body),) = world.posted
    assert name == "iteration"
    plan = plan_of(body["plan"])
    assert [row.waiting_jobs for row in plan.rows] == [50]


def test_the_iteration_is_stored_before_pilots_are_launched(world):
    order: list[str] = []
    world.director.post = lambda name, _: order.append(name)
    world.director.launch = lambda *_: order.append("launch")
    world.submit()
    world.tick()
    assert order == ["iteration", "launch"]


def test_the_caps_of_the_queue_hold(world):
    world.submit(1_000)
    assert world.tick() <= 3  # MaxWaitingJobs
    for _ in range(3):
        world.pilot()
    assert world.tick() == 0


def test_running_pilots_count_against_the_total_cap(world):
    world.submit(1_000)
    for _ in range(7):
        world.pilot(joined=True)
    assert world.tick() == 0  # MaxTotalJobs


def test_a_queue_of_a_backend_that_is_not_there_is_closed(world):
    world.submit(norm_cpu_seconds=5_000)  # only the queue of the other backend is long enough
    assert world.tick() == 0
    text = str(world.posted)
    assert "slurm" in text


def test_a_load_that_nobody_knows_lets_nothing_through(world):
    world.submit()
    world.batch.now = QueueLoad(waiting=None, running=None, observed_at=1_000.0)
    assert world.tick() == 0


def test_a_load_that_is_old_lets_nothing_through(world):
    world.submit()
    assert world.tick(now=1_000.0 + 3_600) == 0


def test_a_full_submission_pool_takes_nothing(world):
    world.submit()
    world.pool = PoolState(name="Local", running=5, queued=50, max=5, total=50)
    assert world.tick() == 0


def test_pilots_that_are_idle_are_not_sent_again(world):
    world.submit(1)
    for _ in range(3):
        world.pilot(joined=True)
    assert world.tick() == 0


def test_refusals_open_the_breaker_of_their_queue_at_the_next_iteration(world):
    world.submit(1_000)
    for _ in range(50):
        world.director.told(SHORT, accepted=False, reason="Permission denied", now=1_000.0)
    assert world.director.breakers == {}  # heard at the next iteration only
    assert world.tick() == 0
    assert "Permission denied" in str(world.posted)
    world.director.told(SHORT, accepted=True, reason="", now=1_001.0)
    world.tick(now=1_001.0)
    assert SHORT in world.director.breakers


def test_standing_of_pilots(world):
    numbers = [world.pilot(), world.pilot(joined=True), world.pilot(joined=True, drain=True)]
    seen = {one.pilot_id: one.standing.name for one in world.snapshot().pilots}
    assert [seen[number] for number in numbers] == ["WAITING", "IDLE", "DRAINING"]


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [(CancelOutcome.REMOVED, True), (CancelOutcome.ENDED, True), (CancelOutcome.ORDERED, False),
     (CancelOutcome.UNKNOWN, False), (CancelOutcome.FAILED, False)],
)  # fmt: skip
def test_a_cancelled_pilot_has_ended_only_if_it_never_starts(world, outcome, ended):
    number = world.pilot()
    world.batch.outcome = outcome
    world.director._cancel([number, 999])
    assert world.batch.cancelled == ["native-stamp1"]
    assert [name for name, _ in world.posted] == (["ended"] if ended else [])


def test_weights_follow_the_shares_of_the_groups(world):
    world.submit(10, group="physics")
    world.submit(10, group="other", owner="bob")
    queues = world.director._demands(list(load_queues(world.base.db)))
    weights = {one.key.group: one.weight for one in queues}
    assert weights["physics"] > weights["other"] > 0


def test_task_queues_are_read_once_and_forgotten_when_they_are_empty(world):
    world.submit(5)
    world.tick()
    known = world.director._known
    (first,) = known.look()
    world.submit(7, owner="bob")
    world.tick()
    assert world.director._known is known
    assert [waiting for _, _, waiting in known.look()] == [5, 7]
    assert known.look()[0][1] is first[1]


def test_a_pilot_serves_the_submit_pools_of_its_queue_as_they_are_now(world):
    """A SubmitPool that came after the pilot was sent counts: the matcher takes them from the queue, too."""
    world.pilot(joined=True)
    pool = "req1:memory"
    new = NewPool(id=pool, requirements="{}", vo="lab", queues=(tuple(SHORT),))
    world.submit(1, pools=(new,), submit_pool=pool)
    assert world.tick() == 0
    other = NewPool(id="req1:other", requirements="{}", vo="lab", queues=(tuple(LONG),))
    world.submit(1, pools=(other,), submit_pool="req1:other", owner="bob")
    world.tick()
    (row,) = [
        one for one in plan_of(world.posted[0][1]["plan"]).rows if one.waiting_jobs and not one.usable_waiting
    ]
    assert row.tq_id != 1


def test_pilots_in_queues_of_a_vo_that_no_site_names_can_be_cancelled(base, make_key):
    """Sites without a list of VOs are open to all; the VO is known from its jobs and pilots alone."""
    resources = load_resources([("open.toml", "[site.North.ce.cn.queue.short]\nCPUTime = 1000\n")])
    world = World(base, Policy(resources), make_key)
    assert not world.director.policy.config.vos
    world.pilot()
    world.director.options = read_options({"excessConfirmSeconds": "0"})
    for now in (1_000.0, 1_001.0):
        world.tick(now)
    assert world.batch.cancelled == ["native-stamp1"]


def test_slots_and_ratio_of_a_queue_reach_the_decision(world):
    (short, long) = world.snapshot().queues
    assert (short.queue_id, short.slots, long.slots) == (SHORT, 2, None)
    assert (short.caps.max_waiting, short.caps.max_total) == (3, 7)
    assert (short.caps.waiting_to_running, long.caps.waiting_to_running) == (0.0, 0.0)
    text = (
        "[site.North.ce.cn.queue.short]\nMaxWaitingJobs = 1\nMaxTotalJobs = 99\nWaitingToRunningRatio = 0.5\n"
    )
    world.director.policy = Policy(load_resources([("ratio.toml", text)]))
    (short,) = world.snapshot().queues
    assert (short.caps.max_waiting, short.caps.waiting_to_running, short.slots) == (1, 0.5, None)
    for _ in range(6):
        world.pilot(joined=True)
    world.batch.now = QueueLoad(waiting=0, running=6, observed_at=1_000.0)
    world.submit(1_000)
    assert world.tick() == 3


def test_a_pilot_is_added_to_a_load_that_is_older_than_its_submission(world):
    world.pilot()
    world.batch.now = QueueLoad(waiting=1, running=0, observed_at=1_000.0)
    assert world.snapshot().queues[0].own.since_load == 0
    world.batch.now = QueueLoad(waiting=2, running=0, observed_at=999.0)
    assert world.snapshot().queues[0].own.since_load == 1
    world.submit(1_000)
    assert world.tick() == 0  # MaxWaitingJobs 3: two that are seen, one that came after


def test_a_submission_under_way_is_added_whatever_the_load_says(world):
    base = world.base
    base.do(PreparePilots(base.live, [NewPilot(
        stamp="under-way", vo="lab", site="North", ce="cn", queue="short", request=OFFER, join_hash=b"x",
    )]))  # fmt: skip
    own = world.snapshot().queues[0].own
    assert (own.waiting, own.since_load) == (1, 1)


def test_a_pilot_is_told_every_submit_pool_of_its_queue(world):
    """getSubmitPoolsForQueue; what is stored of it names the pool of its task queue alone."""
    pools = [
        NewPool(id=f"req1:{name}", requirements="{}", vo="lab", queues=(tuple(SHORT),)) for name in ("a", "b")
    ]
    world.submit(5, pools=tuple(pools), submit_pool="req1:b")
    assert world.tick() > 0
    ((decision, offers),) = world.launched
    assert set(offers) == {SHORT}
    assert offers[SHORT].request.submit_pools == ("req1:a", "req1:b")
    assert {one.request.submit_pools for one in decision.placement.placements} == {("req1:b",)}


def test_every_platform_of_a_queue_counts_for_placement_and_claim(base, make_key):
    text = "[site.North.ce.cn.queue.short]\nPlatform = ['el8', 'el9']\nMaxTotalJobs = 99\n"
    world = World(base, Policy(load_resources([("two.toml", text)])), make_key)
    world.submit(3, platforms=("el9",), norm_cpu_seconds=100)
    assert world.tick() > 0
    assert {one.request.platforms for one in world.placements} == {("el8", "el9")}
    world.submit(3, platforms=("el7",), norm_cpu_seconds=100)
    world.tick()
    assert {one.key.platforms for one in world.placements} == {("el9",)}
