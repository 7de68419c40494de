"""Cancelling of waiting pilots that no task queue needs: seen twice, rate limited, never what is unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.iteration import choose_excess
from lodesman.decide.director.options import ExcessRules
from lodesman.decide.director.supply import PilotStanding, PilotView, Supply
from lodesman.decide.matching.request import ResourceRequest

RULES = ExcessRules(tolerated_fraction=0.5, max_cancels=3, confirm_s=60.0)


def spare(pilot_id, *, useless=False, standing=PilotStanding.WAITING, at=0.0) -> tuple[PilotView, bool]:
    request = ResourceRequest(vo="lab")
    return PilotView(pilot_id=pilot_id, standing=standing, request=request, submitted_at=at), useless


def choose(pilots, *, aged=(), counted=0, suspects=None, rules=RULES, now=1000.0):
    supply = Supply(
        counted={7: counted},
        borrowed={},
        spare=tuple(pilot for pilot, _ in pilots),
        useless=frozenset(pilot.pilot_id for pilot, useless in pilots if useless),
        aged=tuple(pilot for pilot, _ in aged),
        aside={},
    )
    return choose_excess(supply, suspects=suspects or {}, rules=rules, now=now)


def test_a_pilot_seen_spare_once_is_only_a_suspect():
    excess = choose([spare(1, useless=True)])
    assert excess.cancel == ()
    assert excess.suspects == {1: 1000.0}


def test_it_is_cancelled_when_it_is_spare_still():
    first = choose([spare(1, useless=True)], now=1000.0)
    early = choose([spare(1, useless=True)], suspects=first.suspects, now=1059.0)
    assert early.cancel == ()
    late = choose([spare(1, useless=True)], suspects=early.suspects, now=1060.0)
    assert late.cancel == (1,)


def test_a_pilot_that_had_a_use_in_between_starts_anew():
    first = choose([spare(1, useless=True)], now=1000.0)
    used = choose([], suspects=first.suspects, now=1030.0)
    assert used.suspects == {}
    assert choose([spare(1, useless=True)], suspects=used.suspects, now=2000.0).cancel == ()


def test_even_without_waiting_time_it_must_be_seen_twice():
    rules = ExcessRules(confirm_s=0.0)
    first = choose([spare(1, useless=True)], rules=rules)
    assert first.cancel == ()
    assert choose([spare(1, useless=True)], suspects=first.suspects, rules=rules).cancel == (1,)


@pytest.mark.parametrize("standing", [s for s in PilotStanding if s is not PilotStanding.WAITING])
def test_only_pilots_known_to_wait_are_cancelled(standing):
    excess = choose([spare(1, useless=True, standing=standing)], suspects={1: 0.0})
    assert (excess.cancel, excess.suspects) == ((), {})


def test_a_maximum_is_cancelled_at_a_time():
    pilots = [spare(k, useless=True, at=float(k)) for k in range(10)]
    excess = choose(pilots, suspects=dict.fromkeys(range(10), 0.0))
    assert excess.cancel == (9, 8, 7)
    assert set(excess.suspects) == set(range(10))


def test_surplus_within_the_tolerance_stays():
    pilots = [spare(k, at=float(k)) for k in range(6)]
    excess = choose(pilots, counted=8, suspects=dict.fromkeys(range(6), 0.0))
    assert excess.cancel == (5, 4)


def test_useless_pilots_are_not_tolerated_and_go_first():
    pilots = [spare(1, at=5.0), spare(2, useless=True, at=1.0)]
    suspects = {1: 0.0, 2: 0.0}
    assert choose(pilots, counted=0, suspects=suspects).cancel == (2, 1)
    assert choose(pilots, counted=100, suspects=suspects).cancel == (2,)


def test_switched_off_it_cancels_nothing_and_still_watches():
    rules = ExcessRules(enabled=False)
    excess = choose([spare(1, useless=True)], suspects={1: 0.0}, rules=rules)
    assert (excess.cancel, excess.suspects) == ((), {1: 0.0})


def test_pilots_that_wait_too_long_go_first_the_oldest_before_others():
    pilots = [spare(1, useless=True, at=900.0)]
    aged = [spare(k, useless=True, at=float(k)) for k in (4, 2, 3, 5)]
    first = choose(pilots, aged=aged, now=1000.0)
    assert (first.cancel, first.too_old) == ((), frozenset())
    later = choose(pilots, aged=aged, suspects=first.suspects, now=1060.0)
    assert later.cancel == (2, 3, 4)  # as many at a time as of any
    assert later.too_old == {2, 3, 4}
    rest = choose(pilots, aged=aged[-1:], suspects=later.suspects, now=1120.0)
    assert (rest.cancel, rest.too_old) == ((5, 1), {5})


def test_demand_does_not_keep_pilots_that_wait_too_long():
    aged = [spare(1, useless=True)]
    assert choose([], aged=aged, counted=1_000, suspects={1: 0.0}).cancel == (1,)


@pytest.mark.parametrize(
    "standing", sorted(set(PilotStanding) - {PilotStanding.WAITING, PilotStanding.BOUND})
)
def test_of_the_aged_only_those_known_to_wait_are_cancelled(standing):
    excess = choose([], aged=[spare(1, useless=True, standing=standing)], suspects={1: 0.0})
    assert (excess.cancel, excess.suspects) == ((), {})


def test_of_those_that_wait_too_long_it_is_said_which_are_bound_to_a_job():
    aged = [spare(1), spare(2, standing=PilotStanding.BOUND)]
    assert choose([], aged=aged).bound == frozenset()  # seen once
    excess = choose([], aged=aged, suspects={1: 0.0, 2: 0.0})
    assert (set(excess.cancel), excess.too_old, excess.bound) == ({1, 2}, {1, 2}, {2})


def test_switched_off_aged_pilots_stay_too():
    rules = ExcessRules(enabled=False)
    assert choose([], aged=[spare(1, useless=True)], suspects={1: 0.0}, rules=rules).cancel == ()


def test_a_clock_that_went_back_does_not_hurry():
    excess = choose([spare(1, useless=True)], suspects={1: 5000.0}, now=1000.0)
    assert excess.cancel == ()
    assert excess.suspects == {1: 1000.0}


SPARES = st.lists(
    st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from(list(PilotStanding)), st.floats(0, 999)),
    unique_by=lambda one: one[0],
    max_size=25,
)


@given(SPARES, st.dictionaries(st.integers(0, 30), st.floats(0, 2000)), st.integers(0, 40))
def test_whatever_is_seen_only_confirmed_waiting_pilots_go(pilots, suspects, counted):
    given_spares = [spare(i, useless=u, standing=s, at=t) for i, u, s, t in pilots]
    excess = choose(given_spares, counted=counted, suspects=suspects)
    by_id = {one.pilot_id: one for one, _ in given_spares}
    useless = {one.pilot_id for one, is_useless in given_spares if is_useless}
    assert len(excess.cancel) == len(set(excess.cancel)) <= RULES.max_cancels
    for pilot_id in excess.cancel:
        assert by_id[pilot_id].standing is PilotStanding.WAITING
        assert suspects[pilot_id] <= 1000.0 - RULES.confirm_s
    surplus = [i for i, one in by_id.items() if one.standing is PilotStanding.WAITING and i not in useless]
    gone = sum(i not in useless for i in excess.cancel)
    assert gone <= max(0, len(surplus) - math.ceil(RULES.tolerated_fraction * counted))
