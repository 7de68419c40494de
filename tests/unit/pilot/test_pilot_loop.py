"""The pilot as a whole, around a server that is only a few functions: what ends it, and with which exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import Any

import pytest

from lodesman.base.errors import StorageFull, Unauthorized, Unavailable
from lodesman.pilot import loop
from lodesman.pilot.decisions import Load
from lodesman.pilot.features import Features
from lodesman.pilot.loop import (
    EXIT_DISOWNED,
    EXIT_FAULT,
    EXIT_IN_ORDER,
    EXIT_NO_SERVER,
    EXIT_NODE,
    EXIT_REFUSED,
    EXIT_UNDELIVERED,
    PilotProcess,
    _slot_of,
)
from lodesman.pilot.nursery import LOST
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.protocol import AttemptKey, ClaimReply, HeartbeatReply, JoinReply, parse_join
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.server_threads import _AttemptJournal
from lodesman.pilot.session import JoinRefused
from lodesman.pilot.trial import NodeTrial
from lodesman.site.jobstatus.timeline import LastStatus
from lodesman.site.jobstatus.values import Status
from lodesman.wire.client import Aborted

TERMS = JoinReply(pilot=7, token="tok", lease_s=600, heartbeat_s=0.05, idle_s=600)


class Thread:
    """Stands for a client that can be stopped."""

    def __init__(self):
        self.ended = threading.Event()

    def abort(self):
        self.ended.set()

    def rearm(self):
        self.ended.clear()

    def close(self):
        """Nothing is open."""


class Served:
    """Stands for the session."""

    def __init__(self) -> None:
        self.terms = TERMS
        self.join_fault: Exception | None = None
        self.claims: list[ClaimReply] = []
        self.orders = HeartbeatReply()
        self.reports: list[dict[str, Any]] = []
        self.left: list[tuple[str, str]] = []
        self.away = False
        self.lost = False
        self.no_space: list[str] = []
        self.lease_s = 600.0
        self.last_contact = time.monotonic()
        self.file = None
        self.place: Any = None
        self.node: Any = None

    def join(self, node, *, nonce, wait, queue):
        self.queue, self.node = queue, node
        if self.join_fault is not None:
            wait(0)
            raise self.join_fault
        return self.terms

    def client(self, **_):
        return Thread()

    def claim(self, client, ask, token):
        if self.claims:
            return self.claims.pop(0)
        if self.terms.idle_s < 600:
            client.ended.wait(ask.wait_s)
            return ClaimReply()
        assert client.ended.wait(60)
        raise Aborted("Ended.")

    def beat(self, client, jobs, state):
        if self.lost:
            raise Unauthorized("Who?")
        return self.orders

    def report(self, client, records):
        if self.away:
            raise Unavailable("Away.")
        self.reports += records
        return {"results": [{"id": r["id"], "attempt": r["attempt"], "accepted": True} for r in records]}

    def upload(self, client, path, file, sha256):
        if self.away:
            raise Unavailable("Away.")
        if self.no_space:
            self.no_space.append(path)
            raise StorageFull("Full.")

    def leave(self, reason, message):
        self.left.append((reason, message))
        return True

    @property
    def ends(self):
        return {r["id"]: (r["state"], r["cause"]) for r in self.reports if r["state"] != "Running"}


@pytest.fixture
def served(monkeypatch):
    stand_in = Served()
    monkeypatch.setattr(loop, "ServerSession", lambda context, on_lost: stand_in)
    # It would end what other tests have started in this process.
    monkeypatch.setattr(Reaper, "kill_rest", lambda self: None)
    return stand_in


@pytest.fixture
def make(make_context, served):
    def build(*, ticker=time.monotonic, **options) -> PilotProcess:
        values = {"watch_s": 0.05, "kill_grace_s": 0.3, "flush_s": 60.0, **options}
        return PilotProcess(make_context(clock=time.time, ticker=ticker, **values))

    return build


def later(condition, action) -> None:
    """Do something when a condition holds, from another thread; if it never does, the test fails with that."""

    def run():
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        held = condition()
        action()
        assert held, "it did not happen in time"

    threading.Thread(target=run, daemon=True).start()


def running(served):
    return lambda: any(record["state"] == "Running" for record in served.reports)


@pytest.mark.slow
def test_idle(make, served):
    served.terms = JoinReply(pilot=7, token="tok", idle_s=0.1)
    assert make().run() == EXIT_IN_ORDER
    assert served.left == [("idle", "")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "job"), [({"bound_job": 42}, 42), ({"bound_job": None}, None), ({}, None)]
)
def test_the_log_names_the_job_of_a_bound_pilot(make, served, monkeypatch, answer, job):
    said = {}
    served.terms = parse_join({"pilot": 7, "token": "tok", "idle_s": 0.1, **answer}, JoinReply())
    pilot = make()
    object.__setattr__(pilot._context, "log", lambda event, **facts: said.setdefault(event, facts))
    assert pilot.run() == EXIT_IN_ORDER
    assert said["joined"].get("bound_job") == job


@pytest.mark.slow
def test_jobs_and_then_drain(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1), make_job(2, "/bin/false")), drain=True)]
    served.orders = HeartbeatReply(drain=True)
    assert make().run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "ok"), 2: ("Failed", "exit")}
    assert served.left == [("drained", "")]
    assert {path.name for path in tmp_path.iterdir()} == {"attempts.journal"}


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [("**",), ()])
def test_a_payload_that_digs_deep_ends_alone(make, served, make_job, wanted):
    dig = "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')"
    served.claims = [
        ClaimReply((make_job(1, sys.executable, "-c", dig, output_sandbox=wanted), make_job(2))),
        ClaimReply((make_job(3),), drain=True),
    ]
    pilot = make()
    later(lambda: len(served.ends) == 3, lambda: setattr(served, "orders", HeartbeatReply(drain=True)))
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == dict.fromkeys((1, 2, 3), ("Done", "ok"))


@pytest.mark.slow
def test_terminate(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, "sleep", "60", cores=2), make_job(2)))]
    pilot = make()
    later(running(served), pilot.terminate)
    assert pilot.run() == EXIT_IN_ORDER
    # The one that never started goes back as well.
    assert served.ends == {1: ("Released", "pilot-shutdown"), 2: ("Released", "returned")}
    assert served.left == [("sigterm", "")]


@pytest.mark.slow
def test_terminate_twice_does_not_wait(make, served, make_job, lines):
    served.claims = [
        ClaimReply((make_job(1, "/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"),))
    ]
    pilot = make(kill_grace_s=1000.0)
    later(running(served), pilot.terminate)
    later(lambda: "stopping" in [event for event, _ in lines], pilot.terminate)
    began = time.monotonic()
    assert pilot.run() == EXIT_IN_ORDER
    assert time.monotonic() - began < 200


@pytest.mark.slow
def test_a_thread_that_dies_ends_the_pilot_in_order(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    pilot = make()
    later(running(served), pilot.crash)
    assert pilot.run() == EXIT_FAULT
    assert served.ends == {1: ("Released", "pilot-shutdown")}
    assert served.left == [("error", "exit code 1")]


@pytest.mark.slow
def test_disowned(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    later(running(served), lambda: setattr(served, "lost", True))
    assert make().run() == EXIT_DISOWNED
    assert served.left == []


@pytest.mark.slow
def test_disowned_it_hands_in_what_it_had_finished(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1),))]
    served.away = True

    pilot = make()

    def disown():
        served.lost = True
        later(lambda: pilot._outbox._hurried, lambda: setattr(served, "away", False))

    later(lambda: (tmp_path / "outbox/1.1.json").exists(), disown)
    assert pilot.run() == EXIT_DISOWNED
    assert served.ends == {1: ("Done", "ok")}
    assert served.left == []
    assert not (tmp_path / "outbox").exists()


@pytest.mark.slow
def test_disowned_it_hands_in_what_is_still_being_packed(make, served, make_job, monkeypatch):
    """The payload has ended and its output is being packed when the pilot hears that it is disowned."""
    served.claims = [ClaimReply((make_job(1),))]
    packing, go_on = threading.Event(), threading.Event()
    real = PayloadRun._hand_in

    def slow(payload, *rest, **more):
        packing.set()
        assert go_on.wait(60)
        real(payload, *rest, **more)

    monkeypatch.setattr(PayloadRun, "_hand_in", slow)
    pilot, looks = make(), []
    tick = pilot.tick
    monkeypatch.setattr(pilot, "tick", lambda now: looks.append(served.lost) or tick(now))
    later(packing.is_set, lambda: setattr(served, "lost", True))
    later(lambda: looks.count(True) >= 3, go_on.set)
    assert pilot.run() == EXIT_DISOWNED
    assert served.ends == {1: ("Done", "ok")}
    assert served.left == []


@pytest.mark.slow
def test_disowned_it_waits_no_longer_than_its_deadline(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1),))]
    served.away = True
    passed = [0.0]
    pilot = make(flush_s=1_000.0, ticker=lambda: time.monotonic() + sum(passed))
    later(lambda: (tmp_path / "outbox/1.1.json").exists(), lambda: setattr(served, "lost", True))
    later(lambda: pilot._deadline < float("inf"), lambda: passed.append(2_000.0))
    assert pilot.run() == EXIT_DISOWNED
    assert (tmp_path / "outbox/1.1.json").exists()


@pytest.mark.slow
def test_a_disowned_pilot_leaves_its_undelivered_results(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1),))]
    served.away = True
    later(lambda: (tmp_path / "outbox/1.1.json").exists(), lambda: setattr(served, "lost", True))
    assert make(flush_s=0.2).run() == EXIT_DISOWNED
    assert (tmp_path / "outbox/1.1.json").exists()


@pytest.mark.slow
def test_end_of_the_slot_gives_jobs_back(make, served, make_job):
    passed = [0.0]
    served.lease_s = 1e9
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    later(running(served), lambda: passed.append(1_000.0))
    pilot = make(life_seconds=1_000, ticker=lambda: time.monotonic() + sum(passed))
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Released", "pilot-shutdown")}
    assert served.left == [("drained", "")]


@pytest.mark.slow
def test_a_promise_is_kept_after_its_reason_is_gone(make, served, make_job):
    """The site took the shutdown back, but the server still drains: the promised end holds."""
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    pilot = make()
    promise = Status(can_postpone_last_job=False)
    later(
        running(served),
        lambda: setattr(pilot._promises, "said", LastStatus(promise, promised_end=int(time.time()))),
    )
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Released", "pilot-shutdown")}
    assert served.left == [("drained", "")]


@pytest.mark.slow
def test_an_announced_shutdown_ends_payloads_before_it(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    said = [Features()]
    pilot = make(features=lambda: said[0], flush_s=5.0)
    soon = int(time.time() + 7)
    later(running(served), lambda: said.insert(0, Features(shutdowntime=soon)))
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Released", "pilot-shutdown")}
    assert served.left == [("drained", "")]
    assert pilot._roster.slot.ends == pytest.approx(time.monotonic() + soon - time.time(), abs=1)


@pytest.mark.slow
def test_after_a_notice_what_ends_in_time_goes_on(make, served, make_job, lines):
    served.claims = [ClaimReply((make_job(1, "sleep", "1"),))]
    read: list[None] = []
    pilot = make(read_features=lambda: read.append(None), flush_s=5.0)
    later(running(served), lambda: pilot.notice(60))
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "ok")}
    assert served.left == [("drained", "")]
    assert ("notice", {"seconds": 60}) in lines
    assert read, "the site may have said when"


def test_a_shutdown_before_the_start_is_ignored_and_logged(make, served, lines):
    served.join_fault = JoinRefused("No.")
    make(features=lambda: Features(shutdowntime=1000))
    assert [event for event, _ in lines] == ["shutdown-ignored"]


@pytest.mark.slow
def test_results_that_no_server_accepts(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1),))]
    pilot = make(flush_s=0.2)

    def go_away():
        served.away = True

    go_away()
    later(lambda: (tmp_path / "outbox/1.1.json").exists(), pilot.terminate)
    assert pilot.run() == EXIT_UNDELIVERED
    assert (tmp_path / "outbox/1.1.json").exists()


LARGE = ("/bin/sh", "-c", "head -c 20000 /dev/urandom")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["drained", "told"])
def test_an_output_without_space_is_kept_until_the_pilot_ends(make, served, make_job, tmp_path, end):
    """An idle pilot that has one stays for a lease; one that has to end does not wait."""
    served.claims = [ClaimReply((make_job(1, *LARGE),), drain=True)]
    served.no_space, served.orders = ["none yet"], HeartbeatReply(drain=True)
    pilot = make()
    begun, archive = time.monotonic(), tmp_path / "outbox/1.1.tar.gz"

    def go_on():
        assert (served.ends, archive.exists()) == ({}, True)
        if end == "told":
            pilot.terminate()
        else:
            served.last_contact += 1_000.0
            served.lease_s = time.monotonic() - begun

    later(lambda: len(served.no_space) > 3, go_on)
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "storage-full")}
    assert not archive.exists()


def test_a_job_that_comes_while_it_is_about_to_end_takes_that_back(make, served, monkeypatch):
    pilot = make()
    pilot._reaper = Reaper(pilot._context.nursery)
    pilot._assemble(TERMS)
    kept = {"unsent": 1, "held_up": 1}
    now, hurried = time.monotonic(), []
    idle = Load(no_job_fits=True, idle_since=now - 900.0, **kept)
    pilot._roster.last_end = now - 500.0
    for at, load in ((now, idle), (now + 150, idle), (now + 151, Load(running=1, **kept)), (now + 152, idle)):
        monkeypatch.setattr(pilot._roster, "load", lambda load=load: load)
        served.last_contact = at
        assert pilot.tick(at) is None
        hurried.append(pilot._outbox._hurried)
    assert hurried == [False, True, False, True]
    pilot._stop_all("sigterm", "Told.", now)
    pilot._roster.last_end = now
    assert pilot.tick(now) is None
    assert pilot._outbox._hurried, "one that was told to end does not wait"


@pytest.mark.slow
def test_an_output_is_handed_in_when_there_is_space_again(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, *LARGE),), drain=True)]
    served.no_space, served.orders = ["none yet"], HeartbeatReply(drain=True)
    later(lambda: len(served.no_space) > 3, served.no_space.clear)
    assert make().run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "ok")}
    assert served.left == [("drained", "")]


@pytest.mark.slow
def test_a_lease_without_contact(make, served, make_job):
    served.claims = [ClaimReply((make_job(1),))]
    served.away = True
    served.lease_s = 0.2
    assert make().run() == EXIT_UNDELIVERED
    assert served.left == [("error", "exit code 6")]


@pytest.mark.slow
def test_results_outlive_a_server_that_is_away_for_most_of_a_lease(make, served, make_job, tmp_path):
    served.claims = [ClaimReply((make_job(1),))]
    served.away = True
    passed = [0.0]
    pilot = make(ticker=lambda: time.monotonic() + sum(passed))

    def come_back():
        # The pilot has read its clock: the server is there again.
        passed.append(0.9 * served.lease_s)
        later(lambda: pilot._watch._next > time.monotonic() + 0.8 * served.lease_s, return_)

    def return_():
        served.away = False
        served.last_contact = time.monotonic() + sum(passed)
        later(lambda: served.ends, pilot.terminate)

    later(lambda: (tmp_path / "outbox/1.1.json").exists(), come_back)
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "ok")}


@pytest.mark.slow
def test_a_payload_that_comes_stirs_the_heartbeat(make, served, make_job, monkeypatch):
    stirs = []
    monkeypatch.setattr(loop.Heartbeat, "stir", lambda self: stirs.append(1))
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    pilot = make()
    later(lambda: stirs and running(served)(), pilot.terminate)
    assert pilot.run() == EXIT_IN_ORDER


@pytest.mark.slow
def test_kill_orders(make, served, make_job):
    served.claims = [ClaimReply((make_job(1, "sleep", "60", cores=2), make_job(2), make_job(3)))]
    pilot = make()
    # In this order: where the first one ran the second could start, and be done before it is killed.
    later(
        running(served),
        lambda: setattr(served, "orders", HeartbeatReply({AttemptKey(2, 1): "b", AttemptKey(1, 1): "a"})),
    )
    later(lambda: len(served.ends) == 3, pilot.terminate)
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Failed", "killed"), 2: ("Failed", "killed"), 3: ("Done", "ok")}


@pytest.mark.slow
def test_jobs_that_cannot_be_read_are_reported(make, served):
    served.claims = [ClaimReply(unreadable={AttemptKey(4, 1): "odd"}, drain=True)]
    served.orders = HeartbeatReply(drain=True)
    assert make().run() == EXIT_IN_ORDER
    assert served.ends == {4: ("Failed", "not-started")}


def test_joins_that_fail(make, served):
    served.join_fault = JoinRefused("No.")
    assert make().run() == EXIT_REFUSED
    served.join_fault = Unavailable("Away.")
    assert make().run() == EXIT_NO_SERVER
    pilot = make()
    pilot.terminate()
    assert pilot.run() == EXIT_IN_ORDER


@pytest.mark.slow
def test_processes_that_cannot_be_killed_do_not_hold_the_pilot(make, served, make_job, monkeypatch):
    kill, signal_ = Reaper.kill, Reaper.signal
    stuck: list[Any] = []
    monkeypatch.setattr(Reaper, "kill", lambda self, key: stuck.append((self, key)))
    monkeypatch.setattr(Reaper, "signal", lambda self, key, number: None)
    served.claims = [ClaimReply((make_job(1, "sleep", "60"),))]
    pilot = make(flush_s=0.3)
    later(running(served), pilot.terminate)
    assert pilot.run() == EXIT_UNDELIVERED
    assert served.ends == {}
    monkeypatch.setattr(Reaper, "kill", kill)
    monkeypatch.setattr(Reaper, "signal", signal_)
    reaper, key = stuck[0]
    reaper.kill(key)
    deadline = time.monotonic() + 60  # its thread waits for it
    while key in reaper._accounts:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the slot ---------------------------------------------------------------------------------------


@pytest.fixture
def slot(make_context):
    def of(features=None, **options):
        context = make_context(ticker=lambda: 50.0, clock=lambda: 1000.0, **options)
        return _slot_of(context, features or Features()).slot

    return of


def test_a_slot_without_end(slot):
    found = slot(cpu_scaling_factor=2.0)
    assert (found.cores, found.memory_mb, found.jobs_at_once, found.scaling) == (2, 100, 2, 2.0)
    assert found.ends is None


def test_the_first_end_counts(slot):
    assert slot(life_seconds=100).ends == 150
    assert slot(Features(shutdowntime=1040), life_seconds=100).ends == 90
    assert slot(Features(wall_limit_secs=1000), life_seconds=100).ends == 150
    assert slot(jobs_at_once=1).jobs_at_once == 1


def test_the_pilot_reports_its_remaining_life(make, served):
    served.join_fault = JoinRefused("No.")
    make().run()
    assert (served.node.host, served.node.life_s, served.node.cpu_scaling_factor) == ("h", None, 1.0)
    make(life_seconds=1_000, cpu_scaling_factor=2.5).run()
    assert 970 < served.node.life_s <= 980  # 2 % are kept for the last results
    assert served.node.cpu_scaling_factor == 2.5


@pytest.mark.slow
def test_an_outbox_that_empties_late_is_waited_for(make, served, make_job, monkeypatch, lines):
    """SIGTERM right after the end of a payload: its result is still handed in."""
    stopping = threading.Event()
    uploads = Outbox.run_uploads

    def late(self, post):
        assert stopping.wait(60)
        uploads(self, post)

    monkeypatch.setattr(Outbox, "run_uploads", late)
    served.claims = [ClaimReply((make_job(1),))]
    pilot = make()
    later(lambda: "payload-ended" in [event for event, _ in lines], pilot.terminate)
    later(lambda: "stopping" in [event for event, _ in lines], stopping.set)
    assert pilot.run() == EXIT_IN_ORDER
    assert served.ends == {1: ("Done", "ok")}


# --- a node of no use -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_node_that_fails_its_trial_gets_no_job(make, served, make_job, monkeypatch, tmp_path):
    monkeypatch.setattr(NodeTrial, "fault", lambda _: "No space left on device in /s")
    served.claims = [ClaimReply((make_job(1),))]
    assert make().run() == EXIT_NODE
    assert served.left == [("node-fault", "No space left on device in /s")]
    assert (len(served.claims), served.reports) == (1, [])
    assert not (tmp_path / "attempts.journal").exists()


@pytest.mark.slow
def test_a_node_that_is_known_to_be_bad_at_the_start_is_reported(make_context, served):
    pilot = PilotProcess(make_context(clock=time.time), node_fault="Read-only file system in /s")
    assert pilot.run() == EXIT_NODE
    assert served.left == [("node-fault", "Read-only file system in /s")]


@pytest.mark.slow
def test_a_pilot_that_leaves_a_node_of_no_use_tidies_up(make, make_context, served, monkeypatch, tmp_path):
    """Also one that knew it at its start. What an earlier pilot could not hand in stays."""
    killed = []
    monkeypatch.setattr(NodeTrial, "fault", lambda _: "No space left on device in /s")
    monkeypatch.setattr(Reaper, "kill_rest", lambda self: killed.append(self))
    (tmp_path / "outbox").mkdir()
    (tmp_path / "work" / "w1").mkdir(parents=True)
    assert make().run() == EXIT_NODE
    assert (len(killed), list(tmp_path.iterdir())) == (1, [])
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "1.1.json").touch()
    (tmp_path / "work" / "w1").mkdir(parents=True)
    pilot = PilotProcess(make_context(clock=time.time), node_fault="Read-only file system in /s")
    assert pilot.run() == EXIT_NODE
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")] == ["outbox", "outbox/1.1.json"]


@pytest.mark.slow
def test_a_pilot_leaves_a_node_where_all_hangs(make, served, monkeypatch, tmp_path):
    """Its trial does not end, nor does what it would tidy up."""
    go_on, sync = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (go_on.wait(60), sync(number)))
    monkeypatch.setattr(loop, "remove_tree", lambda _: go_on.wait(60))
    monkeypatch.setattr(loop, "NodeTrial", partial(NodeTrial, patience_s=0.05))
    monkeypatch.setattr(loop, "_TIDY_S", 0.05)
    pilot, others = make(), threading.enumerate()
    try:
        assert pilot.run() == EXIT_NODE
    finally:
        go_on.set()
        for left in set(threading.enumerate()).difference(others):
            left.join(60)
    ((reason, words),) = served.left
    assert (reason, words.partition(":")[0]) == ("node-fault", f"{tmp_path} does not answer")


@pytest.mark.slow
def test_a_trial_that_a_signal_to_all_ends_is_no_fault_of_the_node_at_the_start(make, served, monkeypatch):
    pilot = make()
    monkeypatch.setattr(
        NodeTrial, "fault", lambda _: pilot.terminate() or "A program in /s ended with -15, not 0"
    )
    assert pilot.run() == EXIT_IN_ORDER
    assert served.left == [("sigterm", "")]


@pytest.mark.slow
def test_a_node_that_breaks_under_its_jobs_gets_no_more(make, served, make_job, monkeypatch):
    """What ran goes back, what waits goes back, what runs goes on, and the pilot leaves with the words."""
    said = iter(["", "No space left on device in /s"])
    monkeypatch.setattr(NodeTrial, "fault", lambda *_, **__: next(said))
    jobs = (make_job(1, "nothing"), make_job(2, "sleep", "0.5"), make_job(3, cores=2), make_job(4))
    served.claims = [ClaimReply(jobs)]
    assert make().run() == EXIT_NODE
    assert served.ends == {
        1: ("Released", "node-fault"),
        2: ("Done", "ok"),
        3: ("Released", "returned"),
        4: ("Released", "returned"),
    }
    assert served.left == [("node-fault", "No space left on device in /s")]


@pytest.mark.slow
def test_a_journal_that_cannot_be_written_is_the_nodes_fault(make, served, make_job, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_AttemptJournal, "take", refuse)
    served.claims = [ClaimReply((make_job(1),))]
    assert make().run() == EXIT_NODE
    assert served.left == [("node-fault", f"No space left on device in {tmp_path}")]
    assert served.ends == {}


@pytest.mark.slow
def test_a_pilot_whose_helper_was_killed_ends_for_that_and_blames_no_node(make, served, make_job, nursery):
    """What runs goes on to its end, what waits goes back."""
    served.claims = [ClaimReply((make_job(1, "sleep", "0.5"), make_job(2, cores=2), make_job(3)))]
    later(running(served), lambda: os.kill(nursery.pid, signal.SIGKILL))
    assert make().run() == EXIT_FAULT
    assert served.ends == {1: ("Done", "ok"), 2: ("Released", "returned"), 3: ("Released", "returned")}
    assert served.left == [("error", LOST)]


@pytest.mark.slow
def test_a_helper_that_is_killed_before_the_first_job_is_the_pilots_end(make, served, nursery):
    pilot = make()
    nursery.open()
    os.kill(nursery.pid, signal.SIGKILL)
    assert pilot.run() == EXIT_FAULT
    assert served.left == [("error", LOST)]
