"""Jobs ahead: how many a pilot claims before there is room for them, and how they go back."""

# ruff: noqa: F811 - the fixtures of another module are arguments here
from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pilot.test_pilot_parts import (  # noqa: F401 - fixtures
    STOP,
    Puppet,
    bench,
    changes,
    claimer,
    mouth,
    puppets,
    roster,
    until,
)

from lodesman.pilot.decisions import (
    AHEAD_S,
    MOST_AHEAD,
    MOST_ASKED,
    NODE,
    SERVER,
    SLOT_END,
    Load,
    Slot,
    is_overdue,
    jobs_ahead,
    next_claim,
)
from lodesman.pilot.protocol import RETURNED, AttemptKey, ClaimReply, HeartbeatReply, SandboxFile, report_end
from lodesman.pilot.server_threads import _DRY_S, _REMEMBERED, Heartbeat, _AttemptJournal
from lodesman.pilot.threads import PayloadThreads
from lodesman.pilot.usage import PendingWaste

SLOT = Slot(cores=4, memory_mb=1000, jobs_at_once=4)
NOW = 100.0

# --- how many ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [
        ([], 0),
        ([99.9], 0),
        ([99.8, 99.9], 0),  # these may have run for hours
        ([99.0, 99.9, 100.0], 3),
        ([98.99, 99.9, 100.0], 0),  # the first one is too long ago
        ([90.0, 99.5, 99.75, 100.0], 6),  # three in half a second
        ([100.0] * 3, 30),  # together they count as three in 0.1 s
        ([99.9] * 3, 30),
        ([99.0 + number / 100 for number in range(100)], 100),
        ([99.5 + number / 2000 for number in range(1_000)], MOST_AHEAD),
    ],
)
def test_jobs_are_claimed_ahead_at_the_rate_at_which_they_end(ends, wanted):
    assert jobs_ahead(ends, NOW) == pytest.approx(wanted, abs=1)
    assert (jobs_ahead(ends, NOW) == 0) == (wanted == 0)


AGES = st.lists(st.floats(0, 10) | st.floats(0, 1.5) | st.just(0.0), max_size=2_000)


@given(AGES)
def test_never_more_than_most_and_none_at_a_slow_pace(ages):
    found = jobs_ahead([NOW - age for age in sorted(ages, reverse=True)], NOW)
    recent = sum(NOW - (NOW - age) <= AHEAD_S for age in ages)
    assert 0 <= found <= MOST_AHEAD
    assert (found == 0) == (recent < 3)
    assert found >= min(MOST_AHEAD, recent) or recent < 3


@pytest.mark.parametrize(("waited", "late"), [(0.0, False), (2.0, False), (2.01, True), (3_600.0, True)])
def test_what_waits_too_long_is_overdue(waited, late):
    assert is_overdue(NOW - waited, NOW) == late


@pytest.mark.parametrize(
    ("load", "asked"),
    [
        (Load(), (4, 0)),
        (Load(ahead=100), (4, 100)),
        (Load(running=1, cores=1, ahead=100), (3, 100)),
        (Load(running=4, cores=4), None),
        (Load(running=4, cores=4, ahead=100), (0, 100)),
        (Load(running=4, cores=4, ahead=100, backlog=50), (0, 50)),
        (Load(running=4, cores=4, ahead=100, backlog=51), None),  # not one by one
        (Load(running=4, cores=4, ahead=1), (0, 1)),
        (Load(running=4, cores=4, ahead=1, backlog=1), None),
        # What waits does not fit into what is free: the like would not, either.
        (Load(running=1, cores=1, ahead=100, backlog=10), (0, 90)),
        (Load(running=1, cores=1, backlog=10), None),
        (Load(running=1, cores=1, memory_mb=1000), None),
        (Load(running=1, cores=1, memory_mb=1000, ahead=10), (0, 10)),
        (Load(running=4, cores=2, ahead=10), (0, 10)),  # as many as run at once
        (Load(ahead=MOST_AHEAD), (4, MOST_ASKED)),
        (Load(running=4, cores=4, ahead=MOST_AHEAD, backlog=MOST_ASKED), (0, MOST_ASKED)),
        (Load(running=4, cores=4, ahead=MOST_AHEAD, backlog=MOST_ASKED + 1), None),
        (Load(ahead=100, draining=True), None),
        (Load(ahead=100, held=True), None),
        (Load(ahead=100, stopping=True), None),
        (Load(ahead=100, unsent=257), None),
    ],
)
def test_what_is_asked_for(load, asked):
    claim = next_claim(SLOT, load, NOW, idle_s=60.0)
    assert (claim and (claim.count, claim.ahead)) == asked


@pytest.mark.parametrize(
    ("load", "waits"), [(Load(running=4, cores=4, ahead=9), False), (Load(ahead=9), True)]
)
def test_only_a_claim_for_free_cores_waits_at_the_server(load, waits):
    claim = next_claim(SLOT, load._replace(idle_since=NOW), NOW, idle_s=60.0)
    assert (claim.wait_s > 0) == waits


@pytest.mark.parametrize(("held_up", "wait_s"), [(0, 0.0), (1, 60.0)])
def test_a_pilot_that_stays_for_an_output_does_not_ask_again_and_again(held_up, wait_s):
    load = Load(held_up=held_up, unsent=held_up, idle_since=NOW - 90.0)
    assert next_claim(SLOT, load, NOW, idle_s=60.0).wait_s == wait_s


LOADS = st.builds(
    Load,
    running=st.integers(0, 6),
    cores=st.integers(0, 6),
    memory_mb=st.integers(0, 1_500),
    backlog=st.integers(0, MOST_AHEAD),
    ahead=st.integers(0, MOST_AHEAD),
    unsent=st.integers(0, 300),
    idle_since=st.just(NOW),
)


@given(LOADS, st.integers(0, 6))
def test_a_claim_asks_for_no_more_than_is_free(load, at_once):
    claim = next_claim(replace(SLOT, jobs_at_once=at_once), load, NOW, idle_s=60.0)
    if claim is not None:
        free = max(0, SLOT.cores - load.cores)
        assert 0 <= claim.count <= min(free, max(0, at_once - load.running))
        assert claim.cores == free
        assert claim.ahead + load.backlog <= max(load.ahead, load.backlog)
        assert claim.count or claim.ahead
        assert not (claim.count and load.backlog)


# --- what goes back -----------------------------------------------------------------------------------------


@pytest.fixture
def returned(bench):
    """Attempts that were given back so far."""
    return lambda: [report.key.id for report in bench.outbox.reports if report.cause == RETURNED]


@pytest.fixture
def full(roster, make_job):
    """A roster whose slot is taken by one job, with jobs 2 to 6 behind it."""
    roster.admit([make_job(1, cores=2), *map(make_job, range(2, 7))])
    assert roster.load().backlog == 5
    return roster


def test_the_later_half_is_shared_at_most_once_in_a_while(full, returned, clock, lines):
    full.share()
    assert returned() == [4, 5, 6]
    assert ("shared", {"jobs": 3}) in lines
    clock.now += 0.9 * AHEAD_S
    full.share()
    assert returned() == [4, 5, 6]
    clock.now += 0.1 * AHEAD_S
    full.share()
    assert returned() == [4, 5, 6, 3]
    clock.now += AHEAD_S
    full.share()
    assert full.load().backlog == 1  # the last one is its own next
    assert returned() == [4, 5, 6, 3]


def test_while_others_take_what_was_shared_half_as_much_is_claimed_ahead(full, clock):
    clock.now += AHEAD_S / 10
    full._ends.extend([clock.now - AHEAD_S / 2, *[clock.now] * 19])
    assert full.load().ahead == 40
    full.share()
    assert full.load().ahead == 20
    clock.now += AHEAD_S
    full._ends.extend([clock.now] * 20)
    assert full.load().ahead == pytest.approx(40, abs=1)


def test_what_was_shared_does_not_start_and_the_rest_does(full, puppets, returned):
    full.share()
    puppets[0].ended.set()
    until(lambda: len(puppets) == 3)
    for puppet in puppets:
        puppet.ended.set()
    until(lambda: not full.load().running)
    assert [puppet.job.key.id for puppet in puppets] == [1, 2, 3]
    assert returned() == [4, 5, 6]
    assert full.load().backlog == 0


def test_the_heartbeat_may_ask_to_share(full, returned, context):
    class Ear:
        def client(self):
            return None

        def beat(self, client, jobs, state):
            return HeartbeatReply(others_wait=True)

    Heartbeat(context, Ear(), full, every_s=1).beat()
    assert returned() == [4, 5, 6]


def test_what_has_waited_too_long_goes_back_and_what_came_later_stays(full, make_job, returned, clock):
    clock.now += 1.5
    full.admit([make_job(7), make_job(8)])
    full.return_overdue(clock.now)
    assert returned() == []
    clock.now += 1.0
    full.return_overdue(clock.now)
    assert sorted(returned()) == [2, 3, 4, 5, 6]
    assert sorted(full.unreported()) == [(7, 1), (8, 1)]


def test_after_a_return_nothing_is_claimed_ahead_until_payloads_end_again(roster, make_job, puppets, clock):
    for number in range(1, 5):
        roster.admit([make_job(number, cores=2)])
        puppets[-1].ended.set()
        until(lambda: not roster.load().running)
    clock.now += 0.1
    assert roster.load().ahead > 0
    roster.admit([make_job(5, cores=2), make_job(6)])
    roster._ends.extend([clock.now + 2] * 3)  # the others were quick until now
    clock.now += 2.1
    roster.return_overdue(clock.now)
    assert roster.load().ahead == 0


def test_while_it_is_held_what_waits_is_not_overdue(full, returned, clock, monkeypatch):
    monkeypatch.setattr(full, "_causes", frozenset({"held"}))
    clock.now += 60
    full.return_overdue(clock.now)
    assert returned() == []
    monkeypatch.undo()
    full.return_overdue(clock.now)
    assert returned() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("cause", "back"), [(SERVER, [2, 3, 4, 5, 6]), (NODE, [2, 3, 4, 5, 6]), (SLOT_END, [])]
)
def test_a_drain_returns_what_has_not_started_if_others_are_to_run_it(full, returned, cause, back):
    full.drain(cause)
    assert returned() == back
    assert full.load().backlog == 5 - len(back)
    assert full.load().running == 1


def test_a_node_that_fails_returns_what_has_not_started(full, puppets, returned, bench):
    puppets[0].node_fault = "No space"
    puppets[0].ended.set()
    until(lambda: full.load().draining)
    full.drain(SERVER, holds=False)  # as each heartbeat does
    started = {puppet.job.key.id for puppet in puppets}
    assert (started, set(returned())) == ({1}, set(range(2, 7)))
    assert "No space" in bench.outbox.reports[-1].message
    assert full.load().backlog == 0


def test_a_stop_returns_what_has_not_started(full, puppets, returned):
    full.stop_all(STOP, grace_s=3)
    assert returned() == [2, 3, 4, 5, 6]
    assert [puppet.stops for puppet in puppets] == [[(STOP, 3)]]


def test_one_that_waits_is_killed_without_a_start(full, puppets, bench, returned):
    full.stop_one(AttemptKey(3, 1), STOP)
    assert [(report.key.id, report.cause) for report in bench.outbox.reports] == [(3, "killed")]
    full.share()
    assert returned() == [5, 6]
    full.stop_one(AttemptKey(6, 1), STOP)  # it is no longer this pilot's
    assert len(bench.outbox.reports) == 3


# --- threads ------------------------------------------------------------------------------------------------


class Empty(Puppet):
    """A payload that has ended as soon as it runs, and leaves nothing."""

    threads: list[int]

    def run(self, on_free, on_done):
        self.threads.append(threading.get_ident())
        self.leaves_nothing = True
        on_free(self)
        on_done(self)


def test_a_payload_that_leaves_nothing_hands_its_thread_to_the_next(roster, make_job, monkeypatch):
    Empty.threads = []
    monkeypatch.setattr("lodesman.pilot.roster.PayloadRun", lambda job, bench: Empty(job))
    roster.admit([make_job(number, cores=2) for number in range(50)])
    until(lambda: len(Empty.threads) == 50 and not roster.load().running)
    assert len(set(Empty.threads)) == 1


@pytest.mark.slow
def test_no_payload_of_a_thread_that_goes_on_stays_in_memory(roster, make_job, monkeypatch):
    """But the first: a pilot may run a million of them."""
    Empty.threads, seen = [], []

    def make(job, bench):
        made = Empty(job) if job.key.id < 50 else Puppet(job)
        seen.append(weakref.ref(made))
        return made

    monkeypatch.setattr("lodesman.pilot.roster.PayloadRun", make)
    roster.admit([make_job(number, cores=2) for number in range(51)])
    until(lambda: len(seen) == 51 and seen[50]().started.is_set())
    last = seen[50]()
    assert last.thread == Empty.threads[0]
    gc.collect()
    assert [number for number, found in enumerate(seen) if found() is not None] == [0, 50]
    last.ended.set()
    until(lambda: not roster.load().unsent)


def test_pending_waste_is_forgotten_with_what_was_handed_in():
    unsent = {AttemptKey(1, 1)}
    waste = PendingWaste(lambda: unsent)
    for number in range(1, 10_000):
        waste.add(AttemptKey(number, 1), 2.0)
        assert len(waste._seconds) <= 1_002
    unsent.add(AttemptKey(9_999, 1))
    assert waste.total() == 4.0
    unsent.clear()
    assert waste.total() == 0.0


def test_one_that_leaves_files_does_not(roster, make_job, puppets):
    """The next one runs while they are packed."""
    roster.admit([make_job(1, cores=2), make_job(2, cores=2)])
    puppets[0].handed_in.clear()
    puppets[0].ended.set()
    until(lambda: len(puppets) == 2)
    assert puppets[1].started.wait(60)
    assert puppets[0].next is None
    assert roster.load().unsent == 1
    puppets[0].handed_in.set()


def test_the_report_of_one_does_not_wait_for_the_inputs_of_the_next(roster, make_job, puppets):
    inputs = (SandboxFile("data", "/v1/sandboxes/x", "good", 1, unpack=False),)
    roster.admit([make_job(1, cores=2), make_job(2, cores=2, inputs=inputs), make_job(3, cores=2)])
    for puppet in puppets:
        puppet.leaves_nothing = True
    puppets[0].ended.set()
    until(lambda: len(puppets) == 2)
    assert puppets[1].started.wait(60)
    assert puppets[0].next is None
    puppets[1].leaves_nothing = True
    puppets[1].ended.set()
    until(lambda: len(puppets) == 3)
    assert puppets[2].started.wait(60)
    assert puppets[1].thread == puppets[2].thread != puppets[0].thread
    until(lambda: roster.load().unsent == 0)


def test_when_its_thread_dies_the_next_payload_runs_on_another(roster, make_job, monkeypatch):
    """It has a warden and may run already: it must be waited for."""
    Empty.threads, died = [], []
    monkeypatch.setattr("lodesman.pilot.roster.PayloadRun", lambda job, bench: Empty(job))
    monkeypatch.setattr(threading, "excepthook", lambda what: died.append(what.exc_type))
    done = roster._done

    def fail(payload):
        done(payload)
        if payload.job.key.id == 1:
            raise ZeroDivisionError

    monkeypatch.setattr(roster, "_done", fail)
    roster.admit([make_job(number, cores=2) for number in range(1, 5)])
    until(lambda: len(Empty.threads) == 4 and died)
    until(lambda: not roster.load().running)
    assert died == [ZeroDivisionError]


def test_threads_are_used_again():
    threads, used, done = PayloadThreads(), [], threading.Semaphore(0)

    def call():
        used.append(threading.current_thread())
        done.release()

    for number in range(20):
        threads.run(f"call-{number}", call)
        assert done.acquire(timeout=60)
        until(lambda: threads._free == 1)
    assert len(set(used)) == 1
    assert used[0].name == "call-19"
    assert used[0].daemon


def test_calls_that_last_do_not_wait_for_each_other():
    threads, together = PayloadThreads(), threading.Barrier(6)
    for number in range(5):
        threads.run(f"call-{number}", lambda: together.wait(60))
    together.wait(60)
    until(lambda: threads._free == 5)
    again = threading.Barrier(7)
    for number in range(6):  # one more than are free
        threads.run(f"call-{number}", lambda: again.wait(60))
    again.wait(60)
    until(lambda: threads._free == 6)


def test_a_fault_ends_its_thread_and_is_reported(monkeypatch):
    threads, faults, ran = PayloadThreads(), [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", faults.append)

    def fail():
        raise ZeroDivisionError

    threads.run("broken", fail)
    until(lambda: faults)
    (fault,) = faults
    assert (fault.exc_type, fault.thread.name) == (ZeroDivisionError, "broken")
    until(lambda: not fault.thread.is_alive())
    assert threads._free == 0
    threads.run("next", ran.set)  # no thread is free: it has one of its own
    assert ran.wait(60)


# --- claims -------------------------------------------------------------------------------------------------


@pytest.fixture
def busy(roster, monkeypatch):
    """A roster whose slot is taken, and which could start ten jobs within AHEAD_S."""
    monkeypatch.setattr("lodesman.pilot.roster.jobs_ahead", lambda ends, now: 10)
    monkeypatch.setattr("lodesman.pilot.roster._COUNTED_FOR_S", -1.0)
    return roster


def test_a_claim_ahead_that_brought_nothing_is_not_repeated_at_once(
    claimer, busy, mouth, make_job, puppets, clock
):
    busy.admit([make_job(1, cores=2)])
    mouth.answers = [ClaimReply(), ClaimReply()]
    claimer.start()
    until(lambda: len(mouth.asked) == 1)
    until(lambda: claimer._dry_until > clock.now)
    assert (mouth.asked[0][0].count, mouth.asked[0][0].ahead) == (0, 10)
    clock.now += 0.9 * _DRY_S
    assert claimer._next_request() is None
    with busy.changed:
        busy.changed.notify_all()
    assert len(mouth.asked) == 1
    clock.now += 0.2 * _DRY_S
    with busy.changed:
        busy.changed.notify_all()
    until(lambda: len(mouth.asked) == 2)


def test_a_claim_for_free_cores_is_made_at_once(claimer, busy, mouth, make_job, puppets, clock):
    busy.admit([make_job(1, cores=2)])
    mouth.answers = [ClaimReply()]
    claimer.start()
    until(lambda: claimer._dry_until > clock.now)
    puppets[0].ended.set()
    until(lambda: len(mouth.asked) == 2)
    assert (mouth.asked[1][0].count, mouth.asked[1][0].ahead) == (2, 10)


def test_a_claim_ahead_that_brought_jobs_may_be_repeated(claimer, busy, mouth, make_job, puppets, clock):
    busy.admit([make_job(1, cores=2)])
    mouth.answers = [ClaimReply(tuple(map(make_job, range(2, 6)))), ClaimReply()]
    claimer.start()
    until(lambda: len(mouth.asked) == 2)
    assert [(ask.count, ask.ahead) for ask, _ in mouth.asked] == [(0, 10), (0, 6)]


def test_jobs_ahead_that_come_nearer_do_not_end_the_poll(claimer, busy, mouth, monkeypatch):
    """The number changes with each payload that ends."""
    claimer.start()
    until(lambda: len(mouth.asked) == 1)
    monkeypatch.setattr("lodesman.pilot.roster.jobs_ahead", lambda ends, now: 11)
    claimer.renew()
    assert not mouth.aborted.is_set()


def test_a_claim_for_jobs_ahead_alone_is_not_ended(claimer, busy, mouth, make_job, puppets):
    """It is answered at once: to hang up would lose the answer, and the connection."""
    busy.admit([make_job(1, cores=2)])
    claimer.start()
    until(lambda: len(mouth.asked) == 1)
    assert mouth.asked[0][0].count == 0
    puppets[0].ended.set()
    until(lambda: not busy.load().running)
    claimer.renew()
    assert not mouth.aborted.is_set()


# --- the journal --------------------------------------------------------------------------------------------


def test_the_journal_remembers_the_last_attempts(make_job, tmp_path):
    """The file has all of them; the server knows by then that the first have ended."""
    file = tmp_path / "journal"
    file.write_text("".join(f"{number}.1\n" for number in range(1, _REMEMBERED + 6)))
    book = _AttemptJournal(file)
    assert len(book._seen) == _REMEMBERED
    assert book.take([make_job(5), make_job(6), make_job(_REMEMBERED + 5)]) == [make_job(5)]
    assert len(book._seen) == _REMEMBERED
    assert file.read_text().endswith(f"\n{_REMEMBERED + 5}.1\n5.1\n")


@pytest.mark.slow
def test_one_portion_is_never_forgotten_in_part(make_job, tmp_path):
    """Also if a claim brings what was taken when it had just begun to forget."""
    book = _AttemptJournal(tmp_path / "journal")
    for first in range(0, _REMEMBERED + MOST_AHEAD, MOST_AHEAD):
        jobs = [make_job(number) for number in range(first, first + MOST_AHEAD)]
        assert book.take(jobs) == jobs
        assert book.take(jobs) == []
    assert book.take([make_job(MOST_AHEAD)]) == []
    later = _AttemptJournal(tmp_path / "journal")
    assert set(later._seen) == set(book._seen)
    assert later.take([make_job(MOST_AHEAD), make_job(_REMEMBERED + 1)]) == []


def test_a_return_is_a_release():
    assert report_end(AttemptKey(1, 1), RETURNED, "").state == "Released"
