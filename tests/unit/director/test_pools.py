"""Submission pools: order, fullness, disabled until the next cycle."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.orders import PoolState, PoolTry, choose_pool, make_orders
from lodesman.decide.director.plan import make_plan
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.wire.vocabulary import PoolOutcome


def pools(**given_states) -> dict[str, PoolState]:
    return {name: PoolState(name=name, **fields) for name, fields in given_states.items()}


def choose(wanted, states, *, seed=1):
    return choose_pool(wanted, states, random.Random(seed))


@pytest.mark.parametrize(
    ("running", "queued", "full"),
    [(0, 0, False), (2, 0, False), (2, 4, False), (2, 5, True), (0, 5, False), (0, 6, False), (0, 7, True)],
)
def test_full_is_no_free_thread_and_no_room_in_the_queue(running, queued, full):
    assert PoolState(name="A", running=running, queued=queued, max=2, total=5).is_full is full


def order(demand, states, **options):
    """What is ordered for a task queue that gets two pilots."""
    rules = DirectorOptions(**options)
    nothing = TargetFacts(waiting_jobs=0, running_jobs=0, usable_pilots=0, waiting_pilots=0, running_pilots=0)
    target = target_of(nothing, replace(rules, pilots_per_iteration=1e6))
    plan = make_plan([demand], usable_waiting={}, target=target, options=rules, rng=random.Random(1))
    return make_orders([demand], plan, states, rules, random.Random(1))


def test_the_default_pools_serve_task_queues_that_name_none(demand):
    (ordered,), refused = order(demand(), pools(A={}, B={}), default_submission_pools=("B",))
    assert (ordered.pool, refused) == ("B", [])


def test_named_pools_beat_the_defaults(demand):
    (ordered,), _ = order(demand(submission_pools=("A",)), pools(A={}, B={}), default_submission_pools=("B",))
    assert ordered.pool == "A"


def test_the_order_is_drawn_anew_each_time():
    seen = Counter(choose(("A", "B", "C"), pools(A={}, B={}, C={}), seed=seed)[0] for seed in range(3000))
    assert set(seen) == {"A", "B", "C"}
    assert min(seen.values()) > 880  # 1000 +- 4 standard errors


def test_a_choice_counts_as_one_task():
    states = pools(A={"running": 2, "total": 2})
    assert [choose(("A",), states)[0] for _ in range(3)] == ["A", "A", None]
    assert states["A"].queued == 2


def test_an_order_leaves_the_states_of_the_caller_alone(demand):
    states = pools(Local={"running": 2, "queued": 40})
    _, (refused,) = order(demand(), states)
    assert refused.tries == (PoolTry("Local", PoolOutcome.FULL),)
    assert states["Local"].enabled


def test_a_full_pool_is_disabled_and_the_next_is_asked():
    for seed in range(50):
        states = pools(A={"running": 2, "queued": 40}, B={})
        pool, tries = choose(("A", "B"), states, seed=seed)
        assert pool == "B"
        if len(tries) == 2:
            assert [one.outcome for one in tries] == [PoolOutcome.FULL, PoolOutcome.TAKEN]
            assert not states["A"].enabled
            return
    raise AssertionError("A was never asked first")


def test_a_disabled_pool_stays_so_until_the_next_cycle(demand):
    states = pools(Local={"running": 2, "queued": 40})
    assert choose(("Local",), states)[1][0].outcome is PoolOutcome.FULL
    assert choose(("Local",), states)[1][0].outcome is PoolOutcome.DISABLED
    drained = {name: PoolState(name=name, enabled=one.enabled) for name, one in states.items()}
    assert choose(("Local",), drained)[0] is None
    (ordered,), _ = order(demand(), drained)
    assert ordered.pool == "Local"


def test_an_unknown_pool_takes_no_pilots_and_is_reported():
    assert choose(("Nowhere",), pools(A={})) == (None, (PoolTry("Nowhere", PoolOutcome.UNKNOWN),))


def test_no_pool_at_all():
    assert choose((), {}) == (None, ())


NAMES = st.sampled_from(["A", "B", "C", "D"])
STATES = st.dictionaries(
    NAMES,
    st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 8), st.integers(1, 3), st.integers(1, 6)),
)


@given(STATES, st.lists(NAMES, unique=True), st.integers(0, 2**32))
def test_a_pool_is_found_exactly_when_one_can_take_it(given_states, wanted, seed):
    states = {
        name: PoolState(name=name, enabled=on, running=running, queued=queued, max=most, total=total)
        for name, (on, running, queued, most, total) in given_states.items()
    }
    before = dict(states)
    pool, tries = choose_pool(wanted, states, random.Random(seed))
    able = {name for name in wanted if name in before and before[name].enabled and not before[name].is_full}
    assert (pool in able) if able else (pool is None)
    assert {one.pool for one in tries} <= set(wanted)
    assert [one.outcome for one in tries].count(PoolOutcome.TAKEN) == (1 if able else 0)
    if not able:
        assert len(tries) == len(wanted)
    for name, state in states.items():
        assert state.queued == before[name].queued + (name == pool)
