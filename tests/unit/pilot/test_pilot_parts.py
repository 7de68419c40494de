"""Roster, claims, heartbeat and watch: the pilot's threads, each alone, around payloads made of nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lodesman.base.errors import Conflict, Unauthorized, Unavailable
from lodesman.pilot import roster as roster_module
from lodesman.pilot.decisions import SERVER, SLOT_END, Slot, Stop
from lodesman.pilot.loop import _Wake
from lodesman.pilot.protocol import AttemptKey, ClaimReply, HeartbeatReply, PayloadUsage
from lodesman.pilot.roster import Roster
from lodesman.pilot.server_threads import _BUSY_S, Claimer, Heartbeat, _AttemptJournal
from lodesman.pilot.watch import Watch
from lodesman.site.jobstatus.timeline import LastStatus
from lodesman.site.jobstatus.values import Status
from lodesman.wire.client import Aborted

STOP = Stop("killed", "why")


class Puppet:
    """A payload that runs until it is ended or stopped."""

    def __init__(self, job, bench=None):
        self.job = job
        self.node_fault = self.pilot_fault = ""
        self.usage = PayloadUsage()
        self.stops: list[tuple[Stop, float]] = []
        self.kill_at: float | None = None
        self.began = -1.0
        self.tail: str | None = "text"
        self.delivered: Any = ()
        self.over = PayloadUsage(0, 0, 0, 0)
        self.ended = threading.Event()
        self.started = threading.Event()
        self.handed_in = threading.Event()
        self.handed_in.set()
        self.output_unwanted = False
        self.uncommitted = 0.0
        self.leaves_nothing = False
        self.next = None
        self.thread = 0

    def expected_end(self, now):
        return now + self.job.expected_seconds if self.job.expected_seconds else None

    def run(self, on_free, on_done):
        self.thread = threading.get_ident()
        self.started.set()
        assert self.ended.wait(60)
        on_free(self)
        assert self.handed_in.wait(60)
        on_done(self)

    def stop(self, stop, *, grace_s):
        self.stops.append((stop, grace_s))
        self.ended.set()

    @property
    def stopping(self):
        return bool(self.stops)

    def measured(self, now):
        return self.over

    def new_tail(self):
        return "version", self.tail


class NoOutbox:
    def __init__(self):
        self.kept: list[Any] = []
        self.reports: list[Any] = []

    def put(self, report):
        self.reports.append(report)

    def keys(self):
        return self.kept

    def held_up(self):
        return 0

    def count(self):
        return len(self.kept)


@pytest.fixture
def puppets(monkeypatch):
    made: list[Puppet] = []

    def make(job, bench):
        made.append(Puppet(job))
        return made[-1]

    monkeypatch.setattr(roster_module, "PayloadRun", make)
    return made


@pytest.fixture
def changes():
    return []


@pytest.fixture
def bench(context):
    return SimpleNamespace(pilot=context, outbox=NoOutbox())


@pytest.fixture
def roster(bench, changes, puppets):
    slot = Slot(cores=2, memory_mb=1000, jobs_at_once=2)
    made = Roster(slot, bench, on_change=lambda goes_on: changes.append(1))
    yield made
    made.stop_all(STOP, grace_s=0)
    for puppet in puppets:
        puppet.handed_in.set()
    until(lambda: not made.load().running and made.load().unsent == len(bench.outbox.kept))


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


# --- the roster -------------------------------------------------------------------------------------


def test_what_fits_starts_and_the_rest_waits_in_order(roster, puppets, make_job, changes, clock):
    roster.admit([make_job(1), make_job(2), make_job(3, cores=2), make_job(4)])
    until(lambda: all(puppet.started.is_set() for puppet in puppets))
    assert [puppet.job.key.id for puppet in puppets] == [1, 2]
    load = roster.load()
    assert (load.running, load.cores, load.memory_mb, load.backlog, load.unsent) == (2, 2, 1000, 2, 0)
    assert changes == [1]  # jobs came
    clock.now += 5
    puppets[0].ended.set()
    until(lambda: len(changes) > 1)
    assert len(puppets) == 2  # the next one needs both cores, and no other overtakes it
    puppets[1].ended.set()
    until(lambda: len(puppets) == 3)
    assert roster.last_end == clock.now
    puppets[2].ended.set()
    until(lambda: len(puppets) == 4)
    assert puppets[3].job.key.id == 4


def test_room_is_free_before_the_result_is_packed(roster, puppets, make_job, clock):
    roster.admit([make_job(1)])
    puppets[0].handed_in.clear()
    clock.now += 7
    puppets[0].ended.set()
    until(lambda: not roster.load().running)
    load = roster.load()
    assert (load.unsent, load.idle_since, load.no_job_fits) == (1, clock.now, False)
    assert roster.unreported() == {(1, 1): True}
    puppets[0].handed_in.set()
    until(lambda: roster.load().unsent == 0)


def test_an_order_to_end_what_is_being_packed_ends_the_packing(roster, puppets, make_job, bench):
    roster.admit([make_job(1), make_job(2)])
    puppets[0].handed_in.clear()
    puppets[0].ended.set()
    until(lambda: roster.load().running == 1)
    roster.stop_one(AttemptKey(1, 1), STOP)
    assert (puppets[0].output_unwanted, puppets[0].stops) == (True, [])
    roster.stop_one(AttemptKey(2, 1), STOP)
    assert (puppets[1].output_unwanted, puppets[1].stops) == (False, [(STOP, 10)])
    assert bench.outbox.reports == []
    puppets[0].handed_in.set()


def test_unreported_are_all_that_hold_no_room(roster, puppets, make_job, bench):
    bench.outbox.kept = [AttemptKey(9, 1)]
    roster.admit([make_job(1, cores=2), make_job(2)])
    assert roster.unreported() == {(2, 1): False, (9, 1): True}
    assert roster.load().unsent == 1


def test_an_empty_answer_is_remembered_until_something_ran(roster, puppets, make_job, changes):
    roster.admit([])
    assert roster.load().no_job_fits
    assert changes
    roster.admit([make_job(1)])
    assert not roster.load().no_job_fits


def test_stop_all(roster, puppets, make_job, bench):
    roster.admit([make_job(1, cores=2), make_job(2)])
    roster.stop_all(STOP, grace_s=3)
    assert [(report.key, report.cause) for report in bench.outbox.reports] == [((2, 1), "returned")]
    assert puppets[0].stops == [(STOP, 3)]
    until(lambda: not roster.load().running)
    assert roster.load().stopping
    roster.admit([make_job(3)])
    assert len(puppets) == 1


def test_stop_one(roster, puppets, make_job, bench, changes):
    roster.admit([make_job(1, cores=2), make_job(2), make_job(3)])
    changes.clear()
    for key in (AttemptKey(2, 1), AttemptKey(9, 9), AttemptKey(1, 1)):
        roster.stop_one(key, STOP)
    assert len(changes) >= 3
    assert puppets[0].stops == [(STOP, 10)]
    assert [(report.key, report.cause, report.message) for report in bench.outbox.reports] == [
        ((2, 1), "killed", "why")
    ]
    until(lambda: len(puppets) == 2)
    assert puppets[1].job.key.id == 3


def test_drain_is_reported_once(roster, changes, lines):
    roster.drain(SERVER)
    roster.drain(SERVER)
    assert roster.load().draining
    assert len(changes) == 1
    assert lines == [("draining", {"causes": ["server"]})]


def test_a_drain_is_over_with_its_last_cause(roster, changes):
    roster.drain(SERVER)
    roster.drain(SLOT_END)
    roster.drain(SERVER, holds=False)
    roster.drain(SERVER, holds=False)
    assert roster.load().draining
    roster.drain(SLOT_END, holds=False)
    assert not roster.load().draining
    assert len(changes) == 4
    assert roster.next_claim(60.0) is not None


def test_while_it_is_held_nothing_starts_and_it_stays(roster, puppets, make_job, clock):
    firm = Status(can_postpone_last_job=True)
    roster._promises.said = LastStatus(firm, at=clock.now, held_until=clock.now + 600)
    roster.drain(SERVER, holds=False)
    roster.admit([make_job(1)])
    load = roster.load()
    assert (load.held, load.draining, load.running, load.backlog) == (True, False, 0, 1)
    assert roster.next_claim(60.0) is None
    clock.now += 600
    roster.drain(SERVER, holds=False)
    until(lambda: len(puppets) == 1)


def test_what_would_end_after_an_announced_shutdown_goes_back(roster, puppets, make_job, bench, clock):
    roster.admit([make_job(1, cores=2, expected_seconds=50), make_job(2, expected_seconds=50)])
    end = clock.now + 100
    roster.resize(replace(roster.slot, ends=end, shutdown=end, reserve_s=10.0, retires=end))
    assert (roster.load().backlog, roster.load().draining) == (1, False)
    roster.admit([make_job(3, expected_seconds=95)])
    assert [(report.key.id, report.state) for report in bench.outbox.reports] == [(3, "Released")]
    assert roster.load().draining  # the server would send the like again
    clock.now += 45
    puppets[0].ended.set()
    until(lambda: not roster.load().backlog)
    assert [report.key.id for report in bench.outbox.reports] == [3, 2]
    assert len(puppets) == 1
    roster.resize(replace(roster.slot, ends=None, shutdown=None, retires=None))
    assert not roster.load().draining


def test_jobs_that_wait_go_back_when_their_time_has_passed(roster, make_job, bench, clock):
    """One by one, while the same causes hold."""
    end = clock.now + 100
    roster.resize(replace(roster.slot, ends=end, shutdown=end, reserve_s=10.0, retires=end))
    roster.admit([make_job(1, cores=2, expected_seconds=80)])
    roster.admit([make_job(2, expected_seconds=50), make_job(3, expected_seconds=20)])
    for passed, waiting in ((41, 1), (30, 0)):
        clock.now += passed
        roster.drain(SERVER, holds=False)
        assert roster.load().backlog == waiting
    assert [report.key.id for report in bench.outbox.reports] == [2, 3]


def test_a_node_that_failed_drains(roster, puppets, make_job):
    roster.admit([make_job(1)])
    puppets[0].node_fault = "No space"
    puppets[0].ended.set()
    until(lambda: roster.load().draining)


# --- claims -----------------------------------------------------------------------------------------


class Mouth:
    """Stands for session and client: answers by a list, then hangs until it is aborted."""

    def __init__(self, clock):
        self.clock = clock
        self.answers: list[Any] = []
        self.asked: list[Any] = []
        self.lost = False
        self.aborted = threading.Event()

    def client(self):
        return self

    def abort(self):
        self.aborted.set()

    def rearm(self):
        self.aborted.clear()

    def claim(self, client, ask, token):
        self.asked.append((ask, token))
        if not self.answers:
            assert self.aborted.wait(60)
            raise Aborted("Ended.")
        answer = self.answers.pop(0)
        if isinstance(answer, Unauthorized):
            self.lost = True
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, ClaimReply):
            self.clock.now += 45  # it waited for it
            answer = ClaimReply()
        return answer


@pytest.fixture
def mouth(clock):
    return Mouth(clock)


@pytest.fixture
def claimer(context, mouth, roster):
    made: Any = Claimer(context, mouth, roster, idle_s=600)
    threads: list[threading.Thread] = []

    def start():
        threads.append(threading.Thread(target=made.run))
        threads[0].start()

    made.start = start
    yield made
    made.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_each_answer_has_its_own_token(claimer, mouth, puppets, make_job):
    mouth.answers = [ClaimReply((make_job(1),)), "nothing"]
    claimer.start()
    until(lambda: len(mouth.asked) == 3)
    assert len({token for _, token in mouth.asked}) == 3
    assert [ask.cores for ask, _ in mouth.asked] == [2, 1, 1]
    assert [puppet.job.key.id for puppet in puppets] == [1]


def test_an_answer_that_is_lost_is_asked_for_again(claimer, context, mouth, make_job):
    mouth.answers = [Unavailable("Lost."), Unavailable("Lost."), ClaimReply((make_job(1),))]
    claimer.start()
    until(lambda: len(mouth.asked) == 4)
    tokens = [token for _, token in mouth.asked]
    assert tokens[0] == tokens[1] == tokens[2] != tokens[3]
    assert context.delays == [1, 2]


def test_supervision_does_not_end_a_pause(claimer, context, mouth, roster, monkeypatch):
    class Counting(threading.Condition):
        waits = 0

        def wait(self, timeout=None):
            self.waits += 1
            return super().wait(timeout)

    monkeypatch.setattr(roster, "changed", Counting())
    monkeypatch.setattr(type(context), "delay", lambda self, failures: 60.0)
    mouth.answers = [Unavailable("Lost.")] * 9
    claimer.start()
    for number in (1, 2, 3):
        until(lambda number=number: roster.changed.waits == number)
        with roster.changed:
            roster.changed.notify_all()
    assert len(mouth.asked) == 1


def test_a_refusal_ends_the_token(claimer, mouth):
    mouth.answers = [Conflict("No.")]
    claimer.start()
    until(lambda: len(mouth.asked) == 2)
    assert mouth.asked[0][1] != mouth.asked[1][1]


def test_its_last_end_is_known_if_that_of_each_payload_is(roster, make_job, clock):
    assert roster.load().expected_end is None
    roster.admit([make_job(1, expected_seconds=50), make_job(2, expected_seconds=90)])
    assert roster.load().expected_end == clock.now + 90


def test_one_payload_of_unknown_length_makes_its_last_end_unknown(roster, make_job):
    roster.admit([make_job(1, expected_seconds=50), make_job(2)])
    assert roster.load().expected_end is None


def test_a_last_end_that_comes_nearer_does_not_end_the_poll(claimer, mouth, puppets, make_job, clock):
    mouth.answers = [ClaimReply((make_job(1, expected_seconds=50),))]
    claimer.start()
    until(lambda: len(mouth.asked) == 2)
    assert [ask.last_end_s for ask, _ in mouth.asked] == [0, 50]
    puppets[0].expected_end = lambda now: now + 20
    claimer.renew()
    assert not mouth.aborted.is_set()


def test_answers_that_did_not_wait_do_not_spin(claimer, context, mouth):
    mouth.answers = [ClaimReply(), ClaimReply(), ClaimReply()]
    claimer.start()
    until(lambda: len(mouth.asked) == 4)
    assert context.delays == [1, 2, 3]


def test_a_full_slot_asks_again_when_room_is_free(claimer, mouth, puppets, make_job, roster):
    mouth.answers = [ClaimReply((make_job(1, cores=2),))]
    claimer.start()
    until(lambda: puppets)
    assert len(mouth.asked) == 1
    puppets[0].ended.set()
    until(lambda: len(mouth.asked) == 2)


def test_more_room_ends_the_poll_and_keeps_its_token(claimer, mouth, puppets, make_job, roster):
    mouth.answers = [ClaimReply((make_job(1),))]
    claimer.start()
    until(lambda: len(mouth.asked) == 2)
    claimer.renew()  # nothing changed: the poll goes on
    assert not mouth.aborted.is_set()
    puppets[0].ended.set()
    until(lambda: not roster.load().running)
    claimer.renew()
    until(lambda: len(mouth.asked) == 3)
    assert [ask.cores for ask, _ in mouth.asked] == [2, 1, 2]
    assert mouth.asked[1][1] == mouth.asked[2][1]


def test_another_end_of_the_slot_ends_the_poll(claimer, mouth, roster):
    claimer.start()
    until(lambda: len(mouth.asked) == 1)
    roster.resize(replace(roster.slot, ends=10_000.0))
    claimer.renew()
    until(lambda: len(mouth.asked) == 2)
    (before, token), (since, same) = mouth.asked
    assert since.norm_cpu_seconds < before.norm_cpu_seconds
    assert same == token


def test_drain_by_the_answer(claimer, mouth, roster, puppets, make_job):
    mouth.answers = [ClaimReply((make_job(1),), drain=True)]
    claimer.start()
    until(lambda: roster.load().draining)
    until(lambda: puppets)
    assert len(mouth.asked) == 1


def test_attempts_seen_before_are_not_run(claimer, mouth, puppets, make_job, lines):
    mouth.answers = [ClaimReply((make_job(1),)), ClaimReply((make_job(1), make_job(2)))]
    claimer.start()
    until(lambda: len(puppets) == 2)
    assert [puppet.job.key.id for puppet in puppets] == [1, 2]
    assert ("attempt-seen-before", {"job": "1.1"}) in lines


def test_jobs_that_cannot_be_read_are_reported(claimer, mouth, bench):
    mouth.answers = [ClaimReply(unreadable={AttemptKey(1, 1): "odd"})]
    claimer.start()
    until(lambda: bench.outbox.reports)
    (report,) = bench.outbox.reports
    assert (report.key, report.cause) == ((1, 1), "not-started")
    assert "odd" in report.message


def test_a_journal_that_fails_runs_nothing_and_drains(claimer, mouth, roster, puppets, make_job, monkeypatch):
    def fail(self, jobs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_AttemptJournal, "take", fail)
    mouth.answers = [ClaimReply((make_job(1),))]
    claimer.start()
    until(lambda: roster.load().draining)
    assert puppets == []


def test_a_disowned_pilot_stops_asking(claimer, mouth):
    mouth.answers = [Unauthorized("Who?")]
    claimer.start()
    until(lambda: mouth.lost)
    assert len(mouth.asked) == 1


# --- heartbeat --------------------------------------------------------------------------------------


class Ear:
    """Stands for session and client of the heartbeat."""

    def __init__(self):
        self.beats: list[Any] = []
        self.orders: list[Any] = [HeartbeatReply()]
        self.aborted = False

    def client(self):
        return self

    def abort(self):
        self.aborted = True

    def beat(self, client, jobs, state):
        self.beats.append((jobs, state))
        orders = self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]
        if isinstance(orders, Exception):
            raise orders
        return orders


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def heartbeat(context, ear, roster):
    return Heartbeat(context, ear, roster, every_s=0.01)


def test_a_heartbeat_reports_everything(heartbeat, ear, roster, puppets, make_job, bench):
    heartbeat.beat()
    roster.admit([make_job(1), make_job(2), make_job(3)])
    bench.outbox.kept = [AttemptKey(9, 1)]
    puppets[0].over = PayloadUsage(cpu_seconds=1.23456, wall_seconds=2, rss_mb=3.21, stream_bytes=5)
    puppets[1].tail = None
    heartbeat.beat()
    assert ear.beats[0] == ([], "idle")
    jobs, state = ear.beats[1]
    assert state == "running"
    assert jobs[0] == {
        "id": 1,
        "attempt": 1,
        "cpu_seconds": 1.235,
        "wall_seconds": 2,
        "rss_mb": 3.2,
        "tail": "text",
    }
    assert "tail" not in jobs[1]
    assert jobs[2:] == [{"id": 3, "attempt": 1}, {"id": 9, "attempt": 1, "state": "completing"}]
    assert not any("state" in one for one in jobs[:2])
    assert puppets[0].delivered == "version"
    roster.drain(SERVER)
    heartbeat.beat()
    assert ear.beats[2][1] == "draining"


def test_a_heartbeat_reports_uploads(heartbeat, ear, roster, puppets, make_job, bench):
    roster.admit([make_job(1)])
    puppets[0].handed_in.clear()
    heartbeat.beat()
    puppets[0].ended.set()
    until(lambda: not roster.load().running)
    heartbeat.beat()  # it packs
    bench.outbox.kept = [AttemptKey(1, 1)]
    puppets[0].handed_in.set()
    until(lambda: roster.load().unsent == 1)
    heartbeat.beat()  # it uploads
    bench.outbox.kept = []
    heartbeat.beat()
    told = [[(one["id"], one.get("state")) for one in jobs] for jobs, _ in ear.beats]
    assert told == [[(1, None)], [(1, "completing")], [(1, "completing")], []]


def test_an_undelivered_tail_is_sent_again(heartbeat, ear, roster, puppets, make_job):
    roster.admit([make_job(1)])
    ear.orders = [Unavailable("Away.")]
    with pytest.raises(Unavailable):
        heartbeat.beat()
    assert puppets[0].delivered == ()


def test_orders_are_obeyed(heartbeat, ear, roster, puppets, make_job):
    roster.admit([make_job(1), make_job(2)])
    ear.orders = [HeartbeatReply({AttemptKey(1, 1): "why", AttemptKey(2, 1): ""}, drain=True)]
    heartbeat.beat()
    assert puppets[0].stops[0][0] == Stop("killed", "why")
    assert puppets[1].stops[0][0].message
    assert roster.load().draining


def test_beats_go_on_after_failures_and_end_when_closed(heartbeat, context, ear, lines):
    ear.orders = [Unavailable("Away."), Unavailable("Away."), HeartbeatReply()]
    thread = threading.Thread(target=heartbeat.run)
    thread.start()
    until(lambda: len(ear.beats) >= 5)
    heartbeat.close()
    thread.join(60)
    assert not thread.is_alive()
    assert ear.aborted
    assert context.delays == [1, 2]
    assert [event for event, _ in lines] == ["heartbeat-failed"] * 2


class Rests:
    """Stands for one of the thread's events: every wait ends at once, and its seconds are noted."""

    def __init__(self):
        self.told = False
        self.waits: list[float] = []

    def wait(self, seconds):
        self.waits.append(seconds)
        return self.told

    def is_set(self):
        return self.told

    def clear(self):
        self.told = False


@pytest.mark.parametrize("usual", [60.0, 5.0])
def test_a_busy_pilot_sends_heartbeats_often_enough_for_orders(context, ear, roster, make_job, usual):
    heartbeat = Heartbeat(context, ear, roster, every_s=usual)
    stirred: Any = Rests()
    closed: Any = Rests()
    heartbeat._stirred, heartbeat._closed = stirred, closed
    assert heartbeat._wait_for_beat(0)
    assert (stirred.waits, closed.waits) == ([usual], [])  # idle: as the server said
    roster.admit([make_job(1)])
    assert heartbeat._wait_for_beat(0)
    assert heartbeat._wait_for_beat(1)
    assert (stirred.waits, closed.waits[0]) == ([usual], min(usual, _BUSY_S))
    closed.told = True
    assert not heartbeat._wait_for_beat(0)
    assert not heartbeat._wait_for_beat(1)


def test_a_payload_that_starts_brings_the_next_beat_nearer(context, ear, roster, monkeypatch):
    monkeypatch.setattr("lodesman.pilot.server_threads._BUSY_S", 0.01)
    heartbeat = Heartbeat(context, ear, roster, every_s=3_600.0)
    thread = threading.Thread(target=heartbeat.run)
    thread.start()

    def has_beaten():
        heartbeat.stir()  # again and again: whether it rests already is not known
        return len(ear.beats) > 2

    until(has_beaten)
    heartbeat.close()
    thread.join(60)
    assert not thread.is_alive()


def test_a_disowned_pilot_beats_no_more(heartbeat, ear):
    ear.orders = [Unauthorized("Who?")]
    heartbeat.run()
    assert len(ear.beats) == 1


# --- watch ------------------------------------------------------------------------------------------


class Eye:
    """Stands for the reaper: what was used, and what was killed."""

    def __init__(self):
        self.used: dict[str, Any] = {}
        self.looks = 0
        self.killed: list[Any] = []
        self.shared: float | None = None

    def measure(self):
        self.looks += 1
        return self.used

    def kill(self, key):
        self.killed.append(key)

    def shared_mb(self, key):
        return self.shared


@pytest.fixture
def eye():
    return Eye()


@pytest.fixture
def watch(context, eye):
    session: Any = SimpleNamespace(last_contact=0.0, lease_s=100.0)
    made: Any = Watch(context, eye, session)
    made.session = session
    return made


def test_nothing_to_watch_costs_nothing(watch, eye):
    assert watch.tick([], 5.0) == 6.0
    assert eye.looks == 0


def test_looks_are_as_rare_as_may_be(watch, eye, make_job):
    puppet = Puppet(make_job(1))
    eye.used = {(1, 1): PayloadUsage(cpu_seconds=3.0)}
    assert watch.tick([puppet], 0.0) == 1.0
    assert watch.tick([puppet], 0.5) == 1.0
    assert eye.looks == 1
    assert puppet.usage.cpu_seconds == 3.0
    watch.tick([puppet], 1.0)
    assert eye.looks == 2


def test_processes_of_payloads_that_have_just_begun_are_not_looked_for(watch, eye, make_job):
    young, other = Puppet(make_job(1)), Puppet(make_job(2))
    young.began, other.began = 4.9, None
    assert watch.tick([young, other], 5.0) == pytest.approx(5.9)
    assert eye.looks == 0
    other.began = 5.0
    watch.tick([young, other], 5.89)
    assert eye.looks == 0
    watch.tick([young, other], 5.91)
    assert eye.looks == 1


def test_limits_are_held(watch, make_job, lines):
    puppet = Puppet(make_job(1, limit_wall_seconds=10))
    puppet.over = PayloadUsage(0, 11, 0, 0)
    watch.tick([puppet], 0.0)
    assert [(stop.cause, grace_s) for stop, grace_s in puppet.stops] == [("wall-limit", 10.0)]
    assert ("limit-passed", {"job": "1.1", "cause": "wall-limit"}) in lines
    watch.tick([puppet], 5.0)
    assert len(puppet.stops) == 1


def test_memory_is_measured_precisely_before_a_kill(watch, eye, make_job):
    puppet = Puppet(make_job(1, limit_memory_mb=100))
    puppet.over = PayloadUsage(0, 0, 500, 0)
    eye.shared = 90.0
    watch.tick([puppet], 0.0)
    assert puppet.stops == []
    eye.shared = None
    watch.tick([puppet], 5.0)
    assert [(stop.cause, grace_s) for stop, grace_s in puppet.stops] == [("memory-limit", 0.0)]


def test_a_payload_that_does_not_stop_in_time_is_killed(watch, eye, make_job):
    puppet = Puppet(make_job(1))
    puppet.stops, puppet.kill_at = [(STOP, 1.0)], 0.4
    assert watch.tick([puppet], 0.0) == 0.4
    assert eye.killed == []
    watch.tick([puppet], 0.4)
    watch.tick([puppet], 0.5)
    assert eye.killed == [(1, 1), (1, 1)]  # until it is gone


def test_exclusive_payloads_end_with_the_lease(watch, make_job):
    alone, other = Puppet(make_job(1, exclusive=True)), Puppet(make_job(2))
    watch.tick([alone, other], 89.0)
    assert alone.stops == []
    watch.tick([alone, other], 90.0)
    assert [stop.cause for stop, _ in alone.stops] == ["pilot-shutdown"]
    assert other.stops == []


# --- the bell ---------------------------------------------------------------------------------------


def test_wake():
    wake = _Wake()
    for _ in range(100_000):
        wake.ring()
    began = time.monotonic()
    wake.wait(200)
    assert time.monotonic() - began < 100
    for _ in range(50):
        wake.wait(0)
    began = time.monotonic()
    wake.wait(0.05)
    assert time.monotonic() - began >= 0.04
    threading.Timer(0.05, wake.ring).start()
    wake.wait(200)
    assert time.monotonic() - began < 100
