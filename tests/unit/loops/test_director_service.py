"""One iteration of the director's service: what it sees, what it posts, whom it cancels."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.loops.conftest import record

from lodesman.base.errors import BackendFault, Unavailable
from lodesman.decide.director.iteration import Excess
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.facts import fresh_seconds
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad, CancelOutcome, Check
from lodesman.server.loops.cancelling import UNKNOWN_TIMES, Canceller
from lodesman.server.loops.candidates import OwnQueue
from lodesman.server.loops.direct import _EMPTY_SECONDS, Director
from lodesman.server.loops.snapshot import KnownQueues
from lodesman.server.store.director import breakers, put_breakers
from lodesman.server.store.journal import Change
from lodesman.server.store.task_queues import queues_with_jobs
from lodesman.server.writer.pilots import (
    drain_pilots,
    end_pilot,
    hash_token,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.wire import inner_calls
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")
OFFER = {"vo": "lab", "cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 1_000, "site": "North", "ce": "cn",
         "queue": "short", "platforms": ["el9"]}  # fmt: skip


class Batch:
    """Reports its load and cancels."""

    def __init__(self) -> None:
        self.now = BatchLoad(waiting=0, running=0, observed_at=1_000.0)
        self.cancelled: list[str] = []
        self.outcome = CancelOutcome.REMOVED
        self.calls = 0
        self.backend = self

    def load(self, _queue):
        return self.now

    def cancel(self, pilots):
        self.calls += 1
        self.cancelled += pilots.values()
        return dict.fromkeys(pilots, self.outcome)


class World:
    """A director over one database and one batch system."""

    def __init__(self, base, policy, make_key) -> None:
        self.base, self.make_key, self.batch = base, make_key, Batch()
        self.posted: list[Any] = []
        self.launched: list[Any] = []
        self.pool = PoolState(name="Local", running=0, queued=0, max=5, total=50)
        self.pilots, self.now = 0, 1_000.0
        watches, post = {"local": cast("Any", self.batch)}, self.post
        self.cancelling = Canceller(base.db, post, self.note, watches)
        self.director = Director(
            db=base.db, policy=policy, options=read_options({"extraPilots": 0}), watches=watches,
            post=post, pools=lambda: {"Local": self.pool},
            launch=lambda decision, offers: self.launched.append((decision, offers)),
            cancel=self.cancelling.order, rng=random.Random(2),
        )  # fmt: skip

    def post(self, call, body):
        """Breakers are stored, as the hot process does."""
        if call is inner_calls.BREAKERS:
            self.base.do(Change(put_breakers, body))
        return record(self.posted, call, body)

    def note(self, queue, fault, reason):
        self.director.note_outcome(queue, accepted=fault is None, reason=reason, now=self.now)

    def submit(self, count=50, pools=(), **key):
        one = self.make_key(**key)
        cohort = PreparedCohort(key=one, template="{}", expand=False, max_attempts=3, runs=((0, count),))
        self.base.do(Submit(self.base.live, PreparedSubmission(
            owner=one.owner, group=one.group, vo=one.vo, name="", form="json", record="", members=None,
            count=count, cohorts=(cohort,), pools=pools,
        )))  # fmt: skip

    def pilot(self, *, joined=False, drain=False, submitted=True):
        self.pilots += 1
        stamp, base = f"stamp{self.pilots}", self.base
        (number,) = base.do(Change(prepare_pilots, base.live, [NewPilot(
            stamp=stamp, vo="lab", site="North", ce="cn", queue="short", request=OFFER, join_hash=hash_token(stamp),
        )]))  # fmt: skip
        if submitted:
            base.do(Change(pilots_submitted, base.live, {stamp: (f"native-{stamp}", "")}))
        if joined:
            base.do(Change(join_pilot, base.live, stamp, "nonce", {}))
        if drain:
            base.do(Change(drain_pilots, base.live, [number]))
        return number

    def cancel(self, *numbers, too_old=(), bound=()):
        """Have these cancelled, as an iteration would."""
        excess = Excess(cancel=numbers, too_old=frozenset(too_old), bound=frozenset(bound), suspects={})
        self.posted.clear()
        self.cancelling.order(excess)
        self.cancelling.tick()
        return [body["pilot"] for name, body in self.posted if name == "ended"]

    def tick(self, now=1_000.0):
        self.posted.clear()
        self.launched.clear()
        self.now = now
        try:
            return self.director.tick(now)
        finally:
            self.cancelling.tick()

    def snapshot(self, now=1_000.0, vos=("lab",)):
        """What the director sees now."""
        known = KnownQueues(self.base.db)
        return self.director.snapshot(known.read(), vos, table=known.table, serving=PoolMap(), now=now)

    @property
    def placements(self):
        return [one for decision, _ in self.launched for one in decision.placement.placements]


@pytest.fixture
def world(base, policy, make_key):
    return World(base, policy, make_key)


def test_without_jobs_nothing_is_sent(world):
    assert world.tick() == 0
    assert world.launched == []


def test_what_an_iteration_wants_is_asked_about_beside_it_and_clamps_the_next(world):
    """A batch system is never asked by the iteration itself."""
    asked = []
    world.batch.check = lambda spec: (
        asked.append(spec.queue) or Check(possible=False, detail="No such partition", final=True)
    )
    watch = cast("Any", SimpleNamespace(name="local", backend=world.batch, options=()))
    world.submit()
    assert world.tick(1_000.0) > 0
    assert asked == []
    assert world.director.list_match.tick(watch, 1_001.0) == 1
    assert asked == [SHORT]
    assert world.tick(1_010.0) == 0
    (room,) = [body["plan"]["rooms"]["North/cn/short"] for name, body in world.posted if name == "iteration"]
    name, *_, text = room["clamps"][0]
    assert (name, room["room"]) == ("list-match", 0)
    assert text.startswith("local says that it never runs pilots of 4 cores")
    assert "there: No such partition (since 1970-01-01 00:16 UTC, it is asked again after " in text
    # A dry run goes by what is known, and asks nothing.
    dry = replace(world.director, rng=random.Random(1))
    (candidate,) = [one for one in dry.look(1_010.0).queues if one.queue_id == SHORT]
    assert candidate.never == text
    world.director.options = read_options({"EnableListMatch": "no", "extraPilots": 0})
    world.tick(1_020.0)
    assert world.tick(1_030.0) > 0
    assert world.director.list_match.tick(watch, 9_999.0) == 0


def test_an_iteration_without_anything_to_decide_is_stored_now_and_then(world):
    stored = []
    for now in (1_000.0, 1_010.0, 1_029.0, 1_030.0, 1_050.0, 1_060.0, 900.0):
        world.tick(now)
        stored.append([(name, body["plan"]["now"]) for name, body in world.posted])
    assert stored == [[("iteration", 1_000.0)], [], [], [("iteration", 1_030.0)], [], [("iteration", 1_060.0)],
                      [("iteration", 900.0)]]  # fmt: skip
    assert _EMPTY_SECONDS == 30.0


@pytest.mark.parametrize("polling", [1.0, 5.0, 20.0, 60.0, 120.0, 600.0])
def test_an_idle_director_is_believed_at_any_time(polling):
    """Between two stored iterations never more than the time for which one is believed."""
    between = polling * math.ceil(_EMPTY_SECONDS / polling)
    assert between < fresh_seconds(polling)


def test_iterations_with_jobs_are_stored_each(world):
    world.submit()
    for now in (1_000.0, 1_001.0, 1_002.0):
        world.tick(now)
        assert [name for name, _ in world.posted] == ["iteration"]


def test_jobs_that_wait_bring_pilots_to_a_queue_that_can_run_them(world, plan_of):
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
    order: list[Any] = []
    world.director.post = lambda call, _: order.append(call)
    world.director.launch = lambda *_: order.append("launch")
    world.submit()
    world.tick()
    assert order == [inner_calls.ITERATION, "launch"]


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


def test_an_unknown_load_admits_no_pilot(world):
    world.submit()
    world.batch.now = BatchLoad(waiting=None, running=None, observed_at=1_000.0)
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
        world.director.note_outcome(SHORT, accepted=False, reason="Permission denied", now=1_000.0)
    assert world.director.breakers == {}  # heard at the next iteration only
    assert world.tick() == 0
    assert "Permission denied" in str(world.posted)
    world.director.note_outcome(SHORT, accepted=True, reason="", now=1_001.0)
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
    assert world.cancel(number, 999) == ([number] if ended else [])
    assert world.batch.cancelled == ["native-stamp1"]


def test_pilots_are_cancelled_in_one_call(world):
    numbers = [world.pilot() for _ in range(3)]
    assert world.cancel(*numbers) == numbers
    assert (world.batch.calls, len(world.batch.cancelled)) == (1, 3)


def test_a_pilot_that_waits_too_long_is_gone_only_if_it_is_unknown_several_times_in_a_row(world):
    number = world.pilot()
    found = []
    for outcome in "UNKNOWN", "UNKNOWN", "FAILED", "UNKNOWN", "UNKNOWN", "UNKNOWN":
        world.batch.outcome = CancelOutcome[outcome]
        found.append(world.cancel(number, too_old=[number]))
    assert found == [[]] * 5 + [[number]]


@pytest.mark.parametrize("outcome", [CancelOutcome.REMOVED, CancelOutcome.ORDERED])
def test_that_a_pilot_shall_end_is_stored_before_its_batch_system_is_asked(world, outcome):
    """Another loop may see it end before the answer is there: that says nothing of the queue."""
    number, old = world.pilot(), world.pilot()
    stored = []

    def cancel(pilots):
        stored.extend(body["pilots"] for name, body in world.posted if name == "ordered")
        return dict.fromkeys(pilots, outcome)

    world.batch.cancel = cancel
    world.cancel(number, old, too_old=[old])
    assert stored == [[number], [old]]


def test_a_surplus_pilot_that_runs_by_now_is_drained_and_speaks_against_no_queue(world):
    number, old = world.pilot(), world.pilot()
    world.batch.outcome = CancelOutcome.ORDERED
    assert world.cancel(number, old, too_old=[old]) == []
    assert [body for name, body in world.posted if name == "ordered"] == [
        {"pilots": [number], "reason": "not needed any more"},
        {"pilots": [old], "reason": "it waited longer than maxPilotWaitingHours"},
    ]
    world.director._record.apply_answers(world.director.breakers, world.director.options.breaker)
    assert world.director.breakers[SHORT].failures == 1  # of the one that waited too long
    world.base.do(Change(drain_pilots, world.base.live, [number, old], "not needed any more"))
    assert world.cancel() == []  # ordered again, and said once
    assert [name for name, _ in world.posted] == []


@pytest.mark.parametrize("submitted", [True, False])
@pytest.mark.parametrize("outcome", [CancelOutcome.UNKNOWN, CancelOutcome.ORDERED, CancelOutcome.FAILED])
def test_the_job_of_a_pilot_that_waits_too_long_goes_back_whatever_its_batch_system_says(
    world, outcome, submitted
):
    """Also if that never answered to its submission."""
    number = world.pilot(submitted=submitted)
    world.batch.outcome = outcome
    assert world.cancel(number, too_old=[number], bound=[number]) == []
    unbound = [body for name, body in world.posted if name == "unbind"]
    assert unbound == [{"pilots": [number], "reason": "it waited longer than maxPilotWaitingHours"}]
    world.director._record.apply_answers(world.director.breakers, world.director.options.breaker)
    assert world.director.breakers[SHORT].failures == 1


def test_a_pilot_unknown_to_the_batch_system_ends_whatever_its_queue_is_called_now(world):
    """Its stamp is unknown, and its queue is no longer configured: it must not count for ever."""
    number = world.pilot()
    world.director.policy = Policy(load_resources([("sites.toml", "[site.East.ce.c.queue.q]\n")]))
    world.batch.outcome = CancelOutcome.UNKNOWN
    assert [world.cancel(number, too_old=[number]) for _ in range(3)] == [[], [], [number]]


@pytest.mark.parametrize("outcome", [CancelOutcome.ENDED, CancelOutcome.UNKNOWN])
def test_a_pilot_that_joins_while_it_is_cancelled_is_not_aborted(world, outcome):
    number = world.pilot()

    def joins(pilots):
        world.base.do(Change(join_pilot, world.base.live, "stamp1", "nonce", {}))
        return dict.fromkeys(pilots, outcome)

    world.cancelling._unknown = {number: 9}
    world.batch.cancel = joins
    assert world.cancel(number, too_old=[number]) == []


@pytest.mark.parametrize("fault", [Unavailable("Away."), RuntimeError("a bug")])
def test_pilots_are_sent_and_cancelled_whatever_the_other_parts_of_an_iteration_meet_with(
    world, fault, caplog
):
    """Breakers and buckets have been charged for them."""
    number = world.pilot()
    world.submit(1_000)
    world.director.suspects = {number: 0.0}

    def post(call, _body):
        if call is inner_calls.ITERATION:
            raise fault

    world.director.post = post
    with pytest.raises(type(fault)):
        fill(world, 1_000.0 + 6 * HOURS)
    assert "a part of an iteration failed" in caplog.text
    assert sum(one.count for one in world.placements) == 2
    assert world.batch.cancelled == ["native-stamp1"]


def test_pilots_are_cancelled_beside_the_iteration_and_once_for_each(world):
    number = world.pilot()
    world.director.options = read_options({"excessConfirmSeconds": "0"})
    world.director.suspects = {number: 0.0}
    world.director.tick(1_000.0)
    assert world.batch.cancelled == []
    assert [world.cancelling.tick() for _ in range(2)] == [1, 0]
    assert world.batch.cancelled == ["native-stamp1"]


def test_pilots_that_cannot_be_sent_are_reported_and_the_others_are_sent(world):
    number = world.pilot()
    world.submit(1_000)
    world.director.suspects = {number: 0.0}

    def fail(*_):
        raise Unavailable("Away.")

    world.director.launch = fail
    with pytest.raises(Unavailable):
        fill(world, 1_000.0 + 6 * HOURS)
    assert [name for name, _ in world.posted] == ["iteration", "ordered", "ended"]


HOURS = 3_600.0


def aged(world, count=3):
    """A queue that is full of pilots that do not start."""
    world.submit(1_000)
    numbers = [world.pilot() for _ in range(count)]
    assert world.tick() == 0  # MaxWaitingJobs
    return numbers


def fill(world, now):
    """The load as it would be seen then."""
    world.batch.now = BatchLoad(waiting=0, running=0, observed_at=now)
    return world.tick(now)


@pytest.mark.parametrize("outcome", [CancelOutcome.REMOVED, CancelOutcome.UNKNOWN])
def test_pilots_that_do_not_start_do_not_shut_a_queue_for_ever(world, outcome):
    numbers = aged(world)
    world.batch.outcome = outcome
    late = 1_000.0 + 6 * HOURS
    assert fill(world, late - 1) == fill(world, late) == 0
    assert world.batch.cancelled == []
    for again in range(1 if outcome is CancelOutcome.REMOVED else UNKNOWN_TIMES):
        assert fill(world, late + 60 + again) == 0
    ends = [body for name, body in world.posted if name == "ended"]
    assert [one["pilot"] for one in ends] == numbers
    assert {(one["state"], one["reason"]) for one in ends} == {
        ("Aborted", "it waited longer than maxPilotWaitingHours")
    }
    for one in ends:
        world.base.do(Change(end_pilot, world.base.live, one["pilot"], PilotState.ABORTED, one["reason"]))
    assert fill(world, late + 120) == 0
    assert "longer than maxPilotWaitingHours" in world.director.breakers[SHORT].reason
    assert fill(world, late + 120 + 301) == 1  # its breaker lets one try
    world.director.note_outcome(SHORT, accepted=True, reason="", now=late + 500)  # which starts
    assert fill(world, late + 500) == 3


def test_pilots_that_do_not_start_are_cancelled_a_few_at_a_time(world):
    world.director.options = read_options({"maxCancelsPerIteration": "2", "excessConfirmSeconds": "0"})
    aged(world)
    late = 1_000.0 + 6 * HOURS
    fill(world, late)
    assert world.batch.cancelled == []
    fill(world, late + 1)
    assert world.batch.cancelled == ["native-stamp1", "native-stamp2"]


def test_a_batch_system_that_cannot_cancel_now_does_not_stop_the_iteration(world):
    world.submit(1_000)
    number = world.pilot()

    def away(_native_ids):
        raise BackendFault("It does not answer.", transient=True)

    world.batch.cancel = away
    world.director.suspects = {number: 0.0}
    assert fill(world, 1_000.0 + 6 * HOURS) == 2
    assert [name for name, _ in world.posted] == ["iteration", "ordered"]
    assert number in world.director.suspects  # and is cancelled again


def test_weights_follow_the_shares_of_the_groups(world):
    world.submit(10, group="physics")
    world.submit(10, group="other", owner="bob")
    queues = world.director._demands(list(queues_with_jobs(world.base.db)))
    weights = {one.key.group: one.weight for one in queues}
    assert weights["physics"] > weights["other"] > 0


def test_task_queues_are_read_once_and_dropped_when_they_are_empty(world):
    world.submit(5)
    world.tick()
    known = world.director._known
    (first,) = known.read()
    world.submit(7, owner="bob")
    world.tick()
    assert world.director._known is known
    assert [waiting for _, _, waiting in known.read()] == [5, 7]
    assert known.read()[0][1] is first[1]


def test_a_pilot_serves_the_submit_pools_of_its_queue_as_they_are_now(world, plan_of):
    """A SubmitPool that came after the pilot was sent counts: the matcher takes them from the queue, too."""
    world.pilot(joined=True)
    pool = "req1:memory"
    new = NewPool(id=pool, requirements="{}", vo="lab", queues=0b1)
    world.submit(1, pools=(new,), submit_pool=pool)
    assert world.tick() == 0
    other = NewPool(id="req1:other", requirements="{}", vo="lab", queues=0b10)
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
    world.batch.now = BatchLoad(waiting=0, running=6, observed_at=1_000.0)
    world.submit(1_000)
    assert world.tick() == 3


def test_a_pilot_is_added_to_a_load_that_is_older_than_its_submission(world):
    world.pilot()
    world.batch.now = BatchLoad(waiting=1, running=0, observed_at=1_000.0)
    assert world.snapshot().queues[0].own.since_load == 0
    world.batch.now = BatchLoad(waiting=2, running=0, observed_at=999.0)
    assert world.snapshot().queues[0].own.since_load == 1
    world.submit(1_000)
    assert world.tick() == 0  # MaxWaitingJobs 3: two that are seen, one that came after


def test_a_submission_under_way_is_added_whatever_the_load_says(world):
    base = world.base
    base.do(Change(prepare_pilots, base.live, [NewPilot(
        stamp="under-way", vo="lab", site="North", ce="cn", queue="short", request=OFFER, join_hash=b"x",
    )]))  # fmt: skip
    own = world.snapshot().queues[0].own
    assert (own.waiting, own.since_load) == (1, 1)


OVERLAY = """
[site.North]
VO = ["alpha", "beta"]
[site.North.ce.cn.queue.short]
NumberOfProcessors = 1
Memory = 2000
MaxWaitingJobs = 30
MaxTotalJobs = 90
[site.North.ce.cn.queue.short.vo.alpha]
NumberOfProcessors = 8
Memory = 16000
MaxTotalJobs = 20
"""


def test_pilots_get_the_settings_that_their_queue_has_for_their_vo(base, make_key):
    """Jobs of eight cores never matched: the pilots came with the settings of the last VO, one core, and left again."""
    world = World(base, Policy(load_resources([("overlay.toml", OVERLAY)])), make_key)
    world.submit(5, vo="alpha", group="a", cores=8, memory_mb=16_000)
    world.submit(5, vo="beta", group="b", owner="bob")
    assert world.tick() > 0
    ((decision, offers),) = world.launched
    found = {}
    for one in decision.placement.placements:
        settings = offers[one.request.vo, one.queue_id].settings
        assert (settings.processors, settings.memory_mb) == (one.request.cores, one.request.memory_mb)
        found[one.request.vo] = (settings.processors, settings.memory_mb)
    assert found == {"alpha": (8, 16_000), "beta": (1, 2_000)}


def test_why_shows_every_user_the_limits_of_the_director(base, make_key):
    world = World(base, Policy(load_resources([("overlay.toml", OVERLAY)])), make_key)
    world.submit(5, vo="beta", group="b", owner="bob")
    world.tick()
    (decided,) = world.snapshot(vos=world.director.vos).queues
    assert (decided.caps.max_waiting, decided.caps.max_total) == (30, 20)
    for vo in ("alpha", "beta"):
        (offer,) = world.director.policy.vo_config(vo).offers
        maker = world.director._candidates({offer.queue: OwnQueue()}, SiteMask(), 1_000.0)
        found = maker.make_one(vo, offer, world.director.vos)
        assert found == decided


def test_every_platform_of_a_queue_counts_for_placement_and_claim(base, make_key):
    text = "[site.North.ce.cn.queue.short]\nPlatform = ['el8', 'el9']\nMaxTotalJobs = 99\n"
    world = World(base, Policy(load_resources([("two.toml", text)])), make_key)
    world.submit(3, platforms=("el9",), norm_cpu_seconds=100)
    assert world.tick() > 0
    assert {one.request.platforms for one in world.placements} == {("el8", "el9")}
    world.submit(3, platforms=("el7",), norm_cpu_seconds=100)
    world.tick()
    assert {one.order.key.platforms for one in world.placements} == {("el9",)}


def test_breakers_that_open_and_close_are_noted(world):
    def noted():
        found = [one for call, notes in world.posted if call == "audit" for one in notes]
        return [(one["action"], one["subject"], one["detail"]) for one in found]

    world.submit(1_000)
    world.tick()
    assert noted() == []
    for _ in range(50):
        world.director.note_outcome(SHORT, accepted=False, reason="Permission denied", now=1_000.0)
    world.tick()
    opened = ("breaker-opened", "North/cn/short", "Permission denied")
    assert noted() == [opened]
    world.tick(now=1_001.0)
    assert noted() == []
    world.tick(now=1_310.0)  # one pilot tries the queue
    world.director.note_outcome(SHORT, accepted=True, reason="", now=1_311.0)
    world.tick(now=1_311.0)
    assert noted() == [("breaker-closed", "North/cn/short", "")]


def test_breakers_outlive_the_director(world):
    for _ in range(3):
        world.director.note_outcome(SHORT, accepted=False, reason="it is down", now=1_000.0)
    world.tick(1_001.0)
    assert [name for name, _ in world.posted].count("breakers") == 1
    again = replace(world.director, breakers={})
    again.tick(1_001.5)
    assert again.breakers == world.director.breakers
    assert again.breakers[SHORT].reason == "it is down"
    world.posted.clear()
    world.tick(1_002.0)
    assert "breakers" not in [name for name, _ in world.posted]
    world.director.breakers = {}
    world.tick(1_003.0)
    assert [name for name, _ in world.posted].count("breakers") == 1
    assert breakers(world.base.db) == {}
