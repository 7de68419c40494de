"""When a pilot asks, for how much, and when it leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot.decisions import (
    _ENDLESS_S,
    _MAX_SILENCE_S,
    _MAX_UNSENT,
    _MAX_WAIT_S,
    DRAINED,
    IDLE,
    SIGTERM,
    ClaimRequest,
    Load,
    Slot,
    contact_lost,
    fits,
    next_claim,
    reserve_s,
    why_leave,
)
from lodesman.pilot.protocol import AssignedJob, AttemptKey

SLOT = Slot(cores=4, memory_mb=8000, jobs_at_once=4)


def job(cores: int = 1, memory_mb: int = 0) -> AssignedJob:
    return AssignedJob(AttemptKey(1, 1), "x", cores=cores, memory_mb=memory_mb)


def load(*running: tuple[int, int], slot: Slot = SLOT, **more) -> Load:
    """The load of payloads that declare these cores and MB."""
    cores, memory_mb = sum(cores for cores, _ in running), sum(slot.memory_of(job(*one)) for one in running)
    return Load(running=len(running), cores=cores, memory_mb=memory_mb, **more)


def test_an_empty_slot_asks_for_all_of_it():
    assert next_claim(SLOT, Load(), 0.0, idle_s=120) == ClaimRequest(4, 4, 8000, _ENDLESS_S, _MAX_WAIT_S, 0.0)


def test_what_runs_is_taken_off():
    # A job that declares no memory takes its cores' part.
    ask = next_claim(SLOT, load((1, 3000), (2, 0)), 0.0, idle_s=0)
    assert isinstance(ask, ClaimRequest)
    assert (ask.count, ask.cores, ask.memory_mb) == (1, 1, 1000)
    assert ask.wait_s == _MAX_WAIT_S  # it is not idle


@pytest.mark.parametrize(
    ("in_hand", "seconds"),
    [
        (load((1, 0), expected_end=160.0), 60),
        (load((1, 0), expected_end=90.0), 0),
        (load((1, 0)), None),
        (load(expected_end=None), 0),
    ],
)
def test_it_says_when_its_last_payload_is_expected_to_end(in_hand, seconds):
    ask = next_claim(SLOT, in_hand, 100.0, idle_s=600)
    assert isinstance(ask, ClaimRequest)
    assert ask.last_end_s == seconds


def test_what_is_left_of_a_life():
    slot = Slot(cores=1, memory_mb=0, jobs_at_once=1, scaling=2.0, ends=1_000.0, reserve_s=20.0)
    assert [slot.life_left(now) for now in (0.0, 980.0, 5_000.0)] == [980.0, 0.0, 0.0]
    assert SLOT.life_left(0.0) is None


def test_time_left_is_normalised_and_shortens_the_wait():
    slot = Slot(cores=1, memory_mb=100, jobs_at_once=1, scaling=2.0, ends=1000.0, reserve_s=20.0)
    ask = next_claim(slot, Load(idle_since=900.0), 945.0, idle_s=600)
    assert ask == ClaimRequest(1, 1, 100, 70, 35.0, 0.0)


def test_no_time_left_is_never_reported_as_unknown():
    slow = Slot(cores=1, memory_mb=100, jobs_at_once=1, scaling=0.001, ends=100.0)
    ask = next_claim(slot=slow, load=Load(), now=50.0, idle_s=600)
    assert isinstance(ask, ClaimRequest)
    assert ask.norm_cpu_seconds == 1


def test_an_idle_pilot_waits_no_longer_than_it_may_be_idle():
    ask = next_claim(SLOT, Load(idle_since=100.0), 110.0, idle_s=15)
    assert isinstance(ask, ClaimRequest)
    assert ask.wait_s == 5
    overdue = next_claim(SLOT, Load(idle_since=100.0), 200.0, idle_s=15)
    assert isinstance(overdue, ClaimRequest)
    assert overdue.wait_s == 0


ONE = Slot(cores=4, memory_mb=0, jobs_at_once=1)


@pytest.mark.parametrize(
    ("slot", "busy", "now"),
    [
        (SLOT, load(stopping=True), 0.0),
        (SLOT, load(draining=True), 0.0),
        (Slot(cores=1, memory_mb=1, jobs_at_once=1, ends=100.0), load(), 71.0),
        (SLOT, load((1, 0), backlog=1), 0.0),
        (SLOT, load(unsent=_MAX_UNSENT + 1), 0.0),
        (SLOT, load((4, 0)), 0.0),
        (SLOT, load((1, 8000)), 0.0),
        (ONE, load((1, 0), slot=ONE), 0.0),
    ],
)
def test_reasons_to_ask_for_nothing(slot, busy, now):
    assert next_claim(slot, busy, now, idle_s=60) is None


def test_a_slot_of_unknown_memory_still_asks():
    ask = next_claim(Slot(cores=2, memory_mb=0, jobs_at_once=2), load((1, 500)), 0.0, idle_s=1)
    assert isinstance(ask, ClaimRequest)
    assert (ask.cores, ask.memory_mb) == (1, 0)


def test_what_fits():
    assert fits(SLOT, load((3, 1000)), job(1, 7000))
    assert not fits(SLOT, load((3, 1000)), job(2))
    assert not fits(SLOT, load((1, 4000)), job(1, 4001))
    assert not fits(ONE, load((1, 0), slot=ONE), job())
    # Alone, anything: the matcher admitted it, and no other payload can free more.
    assert fits(SLOT, Load(), job(64, 10**6))


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 9000)), max_size=6),
    st.integers(1, 16),
    st.integers(0, 16000),
    st.integers(1, 8),
    st.floats(0, 1e6),
    st.floats(0, 1e6) | st.none(),
)
def test_what_is_asked_for_always_fits(running, cores, memory_mb, at_once, now, ends):
    slot = Slot(cores=cores, memory_mb=memory_mb, jobs_at_once=at_once, ends=ends, reserve_s=2)
    busy = load(*running, slot=slot)
    ask = next_claim(slot, busy, now, idle_s=60)
    if ask is None:
        return
    assert 1 <= ask.count <= ask.cores <= cores
    assert 0 <= ask.wait_s <= _MAX_WAIT_S
    assert 0 < ask.norm_cpu_seconds <= _ENDLESS_S
    assert fits(slot, busy, job(ask.cores, ask.memory_mb))
    assert sum(used for used, _ in running) + ask.cores <= cores


def test_reasons_to_leave():
    assert why_leave(SLOT, Load(stopping=True), 0.0, idle_s=60) == SIGTERM
    assert why_leave(SLOT, Load(draining=True), 0.0, idle_s=60) == DRAINED
    assert why_leave(Slot(cores=1, memory_mb=1, jobs_at_once=1, ends=10.0), Load(), 0.0, idle_s=60) == DRAINED
    assert why_leave(SLOT, Load(), 59.0, idle_s=60) == ""


def test_idle_means_that_the_server_said_so():
    silent = Load(idle_since=0.0)
    assert why_leave(SLOT, silent, 60.0, idle_s=60) == ""
    assert why_leave(SLOT, silent, 60.0 + _MAX_SILENCE_S, idle_s=60) == IDLE
    assert why_leave(SLOT, Load(idle_since=0.0, no_job_fits=True), 60.0, idle_s=60) == IDLE
    assert why_leave(SLOT, silent, 0.0, idle_s=0) == ""  # it shall ask once at least


def test_a_pilot_with_unfinished_work_does_not_leave():
    for left in (
        load((1, 0), stopping=True),
        Load(backlog=1, draining=True),
        Load(unsent=1, stopping=True),
    ):
        assert why_leave(SLOT, left, 1e9, idle_s=0) == ""


def lost(now: float, *, contact: float = 0.0, end: float = 0.0) -> bool:
    return contact_lost(now, last_contact=contact, last_end=end, lease_s=60.0)


def test_results_are_kept_for_a_lease_of_silence():
    assert not lost(60)
    assert lost(61)
    assert not lost(61, end=1.0)  # a newer result
    assert not lost(61, contact=1.0)


def test_a_claim_may_wait_longer_than_any_draw_of_the_server():
    # The server ends unanswered claims at 45 to 60 s; a pilot that hangs up before would undo the jitter.
    assert next_claim(SLOT, load((1, 0)), 0.0, idle_s=0).wait_s == 60.0


def test_reserve():
    assert [reserve_s(life) for life in (10, 1000, 100_000)] == [2, 20, 60]
