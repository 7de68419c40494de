"""Submission pools: order, fullness, disabled until the next cycle."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.vocabulary import PoolOutcome
from lodesman.director.pools import PoolState, PoolTry, choose_pool, new_cycle


def pools(**given_states) -> dict[str, PoolState]:
    return {name: PoolState(name=name, **fields) for name, fields in given_states.items()}


def choose(wanted, states, *, defaults=("A",), seed=1):
    return choose_pool(wanted, defaults=defaults, states=states, rng=random.Random(seed))


@pytest.mark.parametrize(
    ("running", "queued", "full"),
    [(0, 0, False), (2, 0, False), (2, 4, False), (2, 5, True), (0, 5, False), (0, 6, False), (0, 7, True)],
)
def test_full_is_no_free_thread_and_no_room_in_the_queue(running, queued, full):
    assert PoolState(name="A", running=running, queued=queued, max=2, total=5).is_full is full


def test_the_default_pools_serve_who_names_none():
    choice = choose((), pools(A={}, B={}), defaults=("B",))
    assert choice.pool == "B"
    assert choice.tries == (PoolTry(pool="B", outcome=PoolOutcome.TAKEN),)


def test_named_pools_beat_the_defaults():
    assert choose(("A",), pools(A={}, B={}), defaults=("B",)).pool == "A"


def test_the_order_is_drawn_anew_each_time():
    seen = Counter(choose(("A", "B", "C"), pools(A={}, B={}, C={}), seed=seed).pool for seed in range(3000))
    assert set(seen) == {"A", "B", "C"}
    assert min(seen.values()) > 880  # 1000 +- 4 standard errors


def test_a_choice_counts_as_one_task():
    states = pools(A={"running": 2, "total": 2})
    first = choose((), states)
    second = choose((), first.states)
    third = choose((), second.states)
    assert (first.pool, second.pool, third.pool) == ("A", "A", None)
    assert states["A"].queued == 0  # the caller's states are left alone


def test_a_full_pool_is_disabled_and_the_next_is_asked():
    states = pools(A={"running": 2, "queued": 40}, B={})
    choice = next(c for c in (choose(("A", "B"), states, seed=s) for s in range(50)) if len(c.tries) == 2)
    assert [one.outcome for one in choice.tries] == [PoolOutcome.FULL, PoolOutcome.TAKEN]
    assert choice.pool == "B"
    assert not choice.states["A"].enabled


def test_a_disabled_pool_stays_so_until_the_next_cycle():
    full = choose((), pools(A={"running": 2, "queued": 40}))
    assert full.tries[0].outcome is PoolOutcome.FULL
    again = choose((), full.states)
    assert again.tries[0].outcome is PoolOutcome.DISABLED
    drained = {name: PoolState(name=name, enabled=one.enabled) for name, one in again.states.items()}
    assert choose((), drained).pool is None
    assert choose((), new_cycle(drained)).pool == "A"


def test_an_unknown_pool_takes_nothing_and_is_told():
    choice = choose(("Nowhere",), pools(A={}))
    assert choice.pool is None
    assert choice.tries == (PoolTry(pool="Nowhere", outcome=PoolOutcome.UNKNOWN),)


def test_no_pool_at_all():
    choice = choose((), {}, defaults=())
    assert (choice.pool, choice.tries) == (None, ())


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
    choice = choose_pool(wanted, defaults=(), states=states, rng=random.Random(seed))
    able = {name for name in wanted if name in states and states[name].enabled and not states[name].is_full}
    assert (choice.pool in able) if able else (choice.pool is None)
    assert {one.pool for one in choice.tries} <= set(wanted)
    assert [one.outcome for one in choice.tries].count(PoolOutcome.TAKEN) == (1 if able else 0)
    if not able:
        assert len(choice.tries) == len(wanted)
    for name, state in choice.states.items():
        before = states[name].queued
        assert state.queued == before + (name == choice.pool)
