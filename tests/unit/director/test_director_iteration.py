"""One whole iteration: the parts in order, what is handed on, and that it replays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lodesman.decide.director.iteration import DirectorInput, decide
from lodesman.decide.director.limits import Breaker, TokenBucket
from lodesman.decide.director.options import DirectorOptions, read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.queues import OwnPilots, QueueCaps
from lodesman.decide.director.supply import PilotStanding
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import BreakerState, PoolOutcome

NOW = 1_000_000.0
A = QueueId("A", "ce", "q")
B = QueueId("B", "ce", "q")


def snapshot(demands, queues, pilots=(), **given) -> DirectorInput:
    base = {
        "demands": demands,
        "table": KeyTable({one.tq_id: one.key for one in demands}),
        "serving": PoolMap(),
        "pilots": pilots,
        "queues": queues,
        "pools": {"Local": PoolState(name="Local")},
        "suspects": {},
        "breakers": {},
        "buckets": {},
    }
    return DirectorInput(**(base | given))


@pytest.fixture(scope="session")
def run():
    def decided(given_snapshot, *, options=None, now=NOW, seed=1):
        return decide(
            given_snapshot,
            options=options or read_options({"PrivatePilotFraction": "0"}),
            now=now,
            seed=seed,
        )

    return decided


# --- the road -----------------------------------------------------------------------------------------


def test_jobs_that_wait_get_pilots_on_a_queue_that_fits(run, demand, queue):
    decision = run(snapshot([demand(1, waiting_jobs=10, sites=("A",))], [queue("A"), queue("B")]))
    assert decision.plan.asked == 16
    (placed,) = decision.placement.placements
    assert (placed.queue_id, placed.count, placed.order.tq_id) == (A, 16, 1)
    assert decision.orders[0].identity.owner == "generic"


def test_pilots_on_their_way_are_not_asked_for_again(run, demand, queue, pilot):
    pilots = [pilot(k) for k in range(16)]
    decision = run(snapshot([demand(1, waiting_jobs=10)], [queue("A")], pilots))
    assert decision.supply.counted == {1: 16}
    assert decision.plan.asked == 0
    assert decision.placement.placements == ()


def test_idle_pilots_that_cannot_run_the_jobs_do_not_stop_new_ones(run, demand, queue, pilot):
    dying = [pilot(k, standing=PilotStanding.IDLE, norm_cpu_seconds=10) for k in range(100)]
    decision = run(snapshot([demand(1, waiting_jobs=10)], [queue("A")], dying))
    assert decision.placement.placed == 16


def test_no_jobs_no_pilots(run, queue):
    decision = run(snapshot([], [queue("A")]))
    assert decision.placement.placed == 0
    assert decision.plan.rows == ()


def test_the_adaptive_target_follows_the_waiting_jobs(run, demand, queue):
    options = read_options({"TargetPolicy": "adaptive", "targetWaitingJobs": "100"})
    demands = [demand(1, waiting_jobs=30), demand(2, waiting_jobs=20)]
    decision = run(snapshot(demands, [queue("A")], running_jobs=7), options=options)
    assert (decision.target.value, decision.target.running_jobs) == (20.0, 7)
    assert decision.plan.target == 20.0


def test_the_gap_is_between_the_jobs_and_the_pilots_that_each_could_use(run, demand, queue, pilot):
    """Task queue 1 has 9 jobs and 2 pilots that wait, 1 idle; task queue 2 has 6 jobs and 20 pilots."""
    options = read_options({"TargetPolicy": "gap", "PrivatePilotFraction": "0"})
    demands = [
        demand(1, waiting_jobs=9, sites=("A",), norm_cpu_seconds=100),
        demand(2, waiting_jobs=6, sites=("B",)),
    ]
    pilots = [pilot(k) for k in (1, 2)] + [pilot(3, standing=PilotStanding.IDLE)]
    pilots += [pilot(4, standing=PilotStanding.BUSY), pilot(5, standing=PilotStanding.DRAINING)]
    pilots += [pilot(k, site="B", tq_id=2) for k in range(10, 30)]
    decision = run(snapshot(demands, [queue("A"), queue("B")], pilots), options=options)
    target = decision.target
    assert (target.waiting_jobs, target.usable_pilots, target.value) == (15, 3 + 6, 4)
    assert (target.waiting_pilots, target.running_pilots) == (22, 2)
    # The formula would ask for 8 x 150, and the allowance lets 11 through.
    assert decision.plan.asked == 4
    (bite,) = decision.plan.rows[0].clamps[1:]
    assert bite.detail.startswith("target of gap 4 for ")


# --- pools --------------------------------------------------------------------------------------------


def test_without_a_pool_nothing_is_submitted_and_it_is_recorded(run, demand, queue):
    full = {"Local": PoolState(name="Local", running=2, queued=40)}
    decision = run(snapshot([demand(1)], [queue("A")], pools=full))
    assert decision.placement.placed == 0
    assert decision.orders == ()
    (refusal,) = decision.pool_refusals
    assert (refusal.tq_id, refusal.asked) == (1, decision.plan.asked)
    assert refusal.tries[0].outcome is PoolOutcome.FULL


def test_a_pool_takes_as_many_task_queues_as_it_has_places(run, demand, queue):
    pools = {"Local": PoolState(name="Local", max=1, total=2)}
    demands = [demand(k) for k in range(1, 8)]
    taken = [run(snapshot(demands, [queue("A")], pools=pools), seed=seed) for seed in range(20)]
    assert {len(one.orders) for one in taken} == {3}
    assert {len(one.pool_refusals) for one in taken} == {4}
    # Which ones is drawn anew: no task queue is left out for ever.
    assert {ask.tq_id for one in taken for ask in one.orders} == set(range(1, 8))


def test_a_pool_disabled_in_the_cycle_before_is_asked_again(run, demand, queue):
    pools = {"Local": PoolState(name="Local", enabled=False)}
    assert run(snapshot([demand(1)], [queue("A")], pools=pools)).placement.placed == 16


def test_the_identity_follows_the_options_of_the_pool_drawn(run, demand, queue):
    options = read_options(
        {
            "SubmitPools": "One, Two",
            "PrivatePilotFraction": "0",
            "Two": {"PrivatePilotFraction": "1"},
        }
    )
    pools = {name: PoolState(name=name) for name in ("One", "Two")}
    queues = [queue("A", submission_pools=("One", "Two"))]
    demands = [demand(1, submission_pools=("One",)), demand(2, submission_pools=("Two",))]
    decision = run(snapshot(demands, queues, pools=pools), options=options)
    assert {ask.tq_id: ask.identity.private for ask in decision.orders} == {1: False, 2: True}


# --- what is handed on --------------------------------------------------------------------------------


def test_tokens_are_taken_and_come_back(run, demand, queue):
    options = read_options({"pilotBurst": "10", "pilotsPerMinute": "6", "PrivatePilotFraction": "0"})
    first = run(snapshot([demand(1, waiting_jobs=100)], [queue("A")]), options=options)
    assert first.placement.placed == 10
    assert first.buckets == {NodePath("A", "ce"): TokenBucket(tokens=0.0, updated_at=NOW)}
    again = snapshot([demand(1, waiting_jobs=100)], [queue("A")], buckets=first.buckets)
    assert run(again, options=options).placement.placed == 0
    later = replace(again, queues=[queue("A", observed_at=NOW + 30)])
    assert run(later, options=options, now=NOW + 30).placement.placed == 3


def test_the_bucket_of_a_vanished_ce_is_dropped(run, demand, queue):
    gone = {NodePath("Z", "ce"): TokenBucket(tokens=1.0, updated_at=NOW)}
    assert set(run(snapshot([demand(1)], [queue("A")], buckets=gone)).buckets) == {NodePath("A", "ce")}


def test_an_open_breaker_is_probed_when_its_time_has_come(run, demand, queue):
    opened = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=NOW + 100, reason="no")
    given = snapshot([demand(1)], [queue("A")], breakers={A: opened})
    early = run(given)
    assert early.placement.placed == 0
    assert early.breakers == {A: opened}
    late = run(replace(given, queues=[queue("A", observed_at=NOW + 100)]), now=NOW + 100)
    assert late.placement.placed == 1
    assert late.breakers[A].probing
    second = replace(given, breakers=late.breakers, queues=[queue("A", observed_at=NOW + 101)])
    assert run(second, now=NOW + 101).placement.placed == 0


def test_a_half_open_queue_that_gets_no_pilot_is_not_being_probed(run, demand, queue):
    half = Breaker(state=BreakerState.HALF_OPEN, failures=3)
    given = snapshot([demand(1, sites=("B",))], [queue("A"), queue("B")], breakers={A: half})
    assert run(given).breakers == {A: half}


def test_pilots_that_lost_their_jobs_are_cancelled_at_the_second_sight(run, demand, queue, pilot):
    pilots = [pilot(k, tq_id=9, site="B") for k in range(3)]
    given = snapshot([demand(1, sites=("A",))], [queue("A")], pilots)
    first = run(given)
    assert first.excess.cancel == ()
    second = run(
        replace(given, suspects=first.excess.suspects, queues=[queue("A", observed_at=NOW + 60)]),
        now=NOW + 60,
    )
    assert set(second.excess.cancel) == {0, 1, 2}


# --- the rest -----------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_decision(run, demand, queue, pilot):
    given = snapshot(
        [demand(k, waiting_jobs=20 * k, owner=f"o{k}") for k in range(1, 6)],
        [queue("A", caps=QueueCaps(max_waiting=9)), queue("B")],
        [pilot(k, tq_id=k % 5) for k in range(12)],
    )
    options = DirectorOptions()
    assert run(given, seed=3, options=options) == run(given, seed=3, options=options)
    assert run(given, seed=3, options=options) != run(given, seed=4, options=options)


def test_the_order_of_the_snapshot_does_not_change_the_plan(run, demand, queue, pilot):
    demands = [demand(k, waiting_jobs=20 * k) for k in range(1, 6)]
    pilots = [pilot(k, tq_id=k % 5) for k in range(12)]
    forward = run(snapshot(demands, [queue("A")], pilots))
    backward = run(snapshot(demands[::-1], [queue("A")], pilots[::-1]))
    assert forward.plan == backward.plan


def test_an_unknown_load_stops_its_queue_and_no_other(run, demand, queue):
    decision = run(snapshot([demand(1)], [queue("A", waiting=None), queue("B")]))
    assert {one.queue_id for one in decision.placement.placements} == {B}


def test_own_pilots_that_no_batch_system_shows_fill_the_queue(run, demand, queue):
    hidden = queue("A", own=OwnPilots(waiting=10), caps=QueueCaps(max_waiting=10))
    assert run(snapshot([demand(1)], [hidden])).placement.placed == 0
