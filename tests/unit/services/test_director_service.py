"""One iteration of the director's service: what it sees, what it posts, whom it cancels."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from lodesman.batch import CancelOutcome, QueueLoad
from lodesman.director import PoolState, QueueId, plan_of, read_options
from lodesman.services.direct import Director
from lodesman.services.pilots import DrainPilots, Join, NewPilot, PilotSubmitted, PreparePilots, hash_token
from lodesman.services.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.store.task_queues import load_queues

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")
OFFER = {"vo": "lab", "cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 1_000, "site": "North", "ce": "cn",
         "queue": "short", "platform": "el9"}  # fmt: skip


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

    def submit(self, count=50, **key):
        one = self.make_key(**key)
        cohort = PreparedCohort(key=one, template="{}", expand=False, max_attempts=3, runs=((0, count),))
        self.base.do(Submit(self.base.live, PreparedSubmission(
            owner=one.owner, group=one.group, vo=one.vo, name="", form="json", record="", members=None,
            count=count, cohorts=(cohort,),
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
    seen = {one.pilot_id: one.standing.name for one in world.director._pilots()}
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
