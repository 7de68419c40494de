"""When a pilot asks, for how much, and when it leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot.life import (
    BACKLOG,
    DRAINED,
    DRAINING,
    END_OF_LIFE,
    ENDLESS_S,
    IDLE,
    KEPT_LEASES,
    LONGEST_WAIT_S,
    MOST_UNSENT,
    NO_ROOM,
    SIGTERM,
    SILENCE_S,
    STOPPING,
    UNSENT,
    Ask,
    Load,
    Pause,
    Slot,
    contact_lost,
    exclusive_must_end,
    fits,
    reserve_s,
    room,
    what_to_ask,
    why_leave,
)
from lodesman.pilot.protocol import Job

SLOT = Slot(cores=4, memory_mb=8000, jobs_at_once=4)


def job(cores: int = 1, memory_mb: int = 0) -> Job:
    return Job(id=1, attempt=1, executable="x", cores=cores, memory_mb=memory_mb)


def test_an_empty_slot_asks_for_all_of_it():
    assert what_to_ask(SLOT, Load(), 0.0, idle_s=120) == Ask(4, 4, 8000, ENDLESS_S, LONGEST_WAIT_S)


def test_what_runs_is_taken_off():
    load = Load(running=[(1, 3000), (2, 0)])
    assert room(SLOT, load) == (1, 1000)  # who names no memory has its cores' part
    ask = what_to_ask(SLOT, load, 0.0, idle_s=0)
    assert isinstance(ask, Ask)
    assert (ask.count, ask.cores, ask.memory_mb) == (1, 1, 1000)
    assert ask.wait_s == LONGEST_WAIT_S  # it is not idle


def test_what_is_left_of_a_life():
    slot = Slot(cores=1, memory_mb=0, jobs_at_once=1, scaling=2.0, ends=1_000.0, reserve_s=20.0)
    assert [slot.life_left(now) for now in (0.0, 980.0, 5_000.0)] == [980.0, 0.0, 0.0]
    assert SLOT.life_left(0.0) is None


def test_time_left_is_normalised_and_shortens_the_wait():
    slot = Slot(cores=1, memory_mb=100, jobs_at_once=1, scaling=2.0, ends=1000.0, reserve_s=20.0)
    ask = what_to_ask(slot, Load(idle_since=900.0), 945.0, idle_s=600)
    assert ask == Ask(1, 1, 100, 70, 35.0)


def test_nothing_left_is_never_told_as_unknown():
    slow = Slot(cores=1, memory_mb=100, jobs_at_once=1, scaling=0.001, ends=100.0)
    ask = what_to_ask(slot=slow, load=Load(), now=50.0, idle_s=600)
    assert isinstance(ask, Ask)
    assert ask.norm_cpu_seconds == 1


def test_an_idle_pilot_waits_no_longer_than_it_may_be_idle():
    ask = what_to_ask(SLOT, Load(idle_since=100.0), 110.0, idle_s=15)
    assert isinstance(ask, Ask)
    assert ask.wait_s == 5
    overdue = what_to_ask(SLOT, Load(idle_since=100.0), 200.0, idle_s=15)
    assert isinstance(overdue, Ask)
    assert overdue.wait_s == 0


def reason(slot: Slot, load: Load, now: float = 0.0) -> str:
    pause = what_to_ask(slot, load, now, idle_s=60)
    assert isinstance(pause, Pause)
    return pause.reason


def test_reasons_to_ask_for_nothing():
    assert reason(SLOT, Load(stopping=True, draining=True)) == STOPPING
    assert reason(SLOT, Load(draining=True)) == DRAINING
    assert reason(Slot(cores=1, memory_mb=1, jobs_at_once=1, ends=100.0), Load(), 71.0) == END_OF_LIFE
    assert reason(SLOT, Load(running=[(1, 0)], backlog=1)) == BACKLOG
    assert reason(SLOT, Load(unsent=MOST_UNSENT + 1)) == UNSENT
    assert reason(SLOT, Load(running=[(4, 0)])) == NO_ROOM
    assert reason(SLOT, Load(running=[(1, 8000)])) == NO_ROOM
    assert reason(Slot(cores=4, memory_mb=0, jobs_at_once=1), Load(running=[(1, 0)])) == NO_ROOM


def test_a_slot_of_unknown_memory_still_asks():
    ask = what_to_ask(Slot(cores=2, memory_mb=0, jobs_at_once=2), Load(running=[(1, 500)]), 0.0, idle_s=1)
    assert isinstance(ask, Ask)
    assert (ask.cores, ask.memory_mb) == (1, 0)


def test_what_fits():
    assert fits(SLOT, Load(running=[(3, 1000)]), job(1, 7000))
    assert not fits(SLOT, Load(running=[(3, 1000)]), job(2))
    assert not fits(SLOT, Load(running=[(1, 4000)]), job(1, 4001))
    assert not fits(Slot(cores=4, memory_mb=0, jobs_at_once=1), Load(running=[(1, 0)]), job())
    # Alone, anything: the matcher let it in, and nobody else will ever make more room.
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
    ask = what_to_ask(slot, Load(running=running), now, idle_s=60)
    if isinstance(ask, Pause):
        return
    assert 1 <= ask.count <= ask.cores <= cores
    assert 0 <= ask.wait_s <= LONGEST_WAIT_S
    assert 0 < ask.norm_cpu_seconds <= ENDLESS_S
    assert fits(slot, Load(running=running), job(ask.cores, ask.memory_mb))
    assert sum(used for used, _ in running) + ask.cores <= cores


def test_reasons_to_leave():
    assert why_leave(SLOT, Load(stopping=True), 0.0, idle_s=60) == SIGTERM
    assert why_leave(SLOT, Load(draining=True), 0.0, idle_s=60) == DRAINED
    assert why_leave(Slot(cores=1, memory_mb=1, jobs_at_once=1, ends=10.0), Load(), 0.0, idle_s=60) == DRAINED
    assert why_leave(SLOT, Load(), 59.0, idle_s=60) == ""


def test_idle_means_that_the_server_said_so():
    silent = Load(idle_since=0.0)
    assert why_leave(SLOT, silent, 60.0, idle_s=60) == ""
    assert why_leave(SLOT, silent, 60.0 + SILENCE_S, idle_s=60) == IDLE
    assert why_leave(SLOT, Load(idle_since=0.0, told_nothing=True), 60.0, idle_s=60) == IDLE
    assert why_leave(SLOT, silent, 0.0, idle_s=0) == ""  # it shall ask once at least


def test_nobody_leaves_anything_behind():
    for left in (
        Load(running=[(1, 0)], stopping=True),
        Load(backlog=1, draining=True),
        Load(unsent=1, stopping=True),
    ):
        assert why_leave(SLOT, left, 1e9, idle_s=0) == ""


def lost(slot: Slot, now: float, *, contact: float = 0.0, end: float = 0.0) -> bool:
    return contact_lost(slot, now, last_contact=contact, last_end=end, lease_s=60.0)


def test_results_are_kept_for_several_leases_of_silence():
    assert KEPT_LEASES >= 3
    last = 60 * KEPT_LEASES
    assert not lost(SLOT, last)
    assert lost(SLOT, last + 1)
    assert not lost(SLOT, last + 1, end=1.0)  # a newer result
    assert not lost(SLOT, last + 1, contact=1.0)


def test_results_are_kept_to_the_end_of_a_slot_whose_end_is_known():
    long = Slot(cores=1, memory_mb=0, jobs_at_once=1, ends=10_000.0, reserve_s=60.0)
    assert not lost(long, 9_999.0)  # what is reserved is for the last results
    assert lost(long, 10_000.0)
    # A slot that is over and still there gives the server a lease.
    assert not lost(long, 10_030.0, contact=9_980.0)
    assert lost(long, 10_041.0, contact=9_980.0)


def test_a_claim_may_wait_longer_than_any_draw_of_the_server():
    # The server ends unanswered claims at 45 to 60 s; a pilot that hangs up before would undo the jitter.
    assert what_to_ask(SLOT, Load(running=[(1, 0)]), 0.0, idle_s=0).wait_s == 60.0


def test_exclusive_payloads_end_before_the_lease():
    assert not exclusive_must_end(now=53, last_contact=0, lease_s=60)
    assert exclusive_must_end(now=54, last_contact=0, lease_s=60)


def test_reserve():
    assert [reserve_s(life) for life in (10, 1000, 100_000)] == [2, 20, 60]
