"""The demo's grid without a server: what is asked again, what ends it, what pilots wrote down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examples.demo import grid as grids
from examples.demo.engines import Engine
from examples.demo.grid import Grid, NoStart, running
from examples.demo.interrupts import SIGNALS, Interrupts

from lodesman.base.errors import BackendFault, Conflict, Unavailable
from lodesman.server.store import SqliteDatabase


@pytest.fixture
def told():
    return []


@pytest.fixture
def grid(tmp_path, told, monkeypatch):
    """A grid whose server is a program that sleeps, and that answers at once."""
    monkeypatch.setattr(grids, "POLL_SECONDS", 0.01)
    found = Grid(tmp_path, tmp_path / "sites.toml", port=1, note=told.append)
    found.starts = 0

    def start():
        found.starts += 1
        found._process = subprocess.Popen(["sleep", "600"], start_new_session=True)

    monkeypatch.setattr(found, "start", start)
    yield found
    found.stop()


def answers(*given):
    """Raises what is an error, gives what is none."""
    left = iter(given)

    def ask():
        one = next(left)
        if isinstance(one, Exception):
            raise one
        return one

    return ask


def test_the_server_starts_with_the_first_question(grid, told):
    assert grid.steadily(answers("well")) == "well"
    assert (grid.starts, told) == (1, [])


def test_a_server_that_is_away_is_asked_again(grid):
    assert grid.steadily(answers(Unavailable("not now"), Unavailable("not now"), "well")) == "well"
    assert grid.starts == 1


def test_a_killed_server_is_started_again_with_a_note(grid, told):
    grid.steadily(answers(1))
    grid._process.kill()
    grid._process.wait()
    assert grid.steadily(answers(2)) == 2
    assert grid.starts == 2
    assert told == ["The server was killed by SIGKILL; starting it again on the same data."]


def test_other_refusals_are_raised_at_once(grid):
    with pytest.raises(Conflict):
        grid.steadily(answers(Conflict("no"), "never asked"))


def test_patience_ends(grid, monkeypatch):
    monkeypatch.setattr(grids, "AWAY_SECONDS", 0.05)
    with pytest.raises(Unavailable, match="not now"):
        grid.steadily(answers(*[Unavailable("not now")] * 1_000))


def test_a_server_that_gives_up_again_and_again_is_given_up(grid):
    faults = [NoStart("a wrong configuration")] * 10
    with pytest.raises(NoStart):
        grid.steadily(answers(*faults))


def test_what_the_server_left_ends_with_it(grid):
    server = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    grid._process = server
    orphan = int(server.stdout.readline())
    server.kill()
    server.wait()
    server.stdout.close()
    os.kill(orphan, 0)
    grid._end_group(0.0)
    state = Path(f"/proc/{orphan}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_the_end_does_not_wait_for_unreaped_processes(grid, monkeypatch):
    """In a container without an init a killed process stays listed for ever."""
    monkeypatch.setattr(grids, "ORPHAN_SECONDS", 0.05)
    monkeypatch.setattr(grids, "KILLED_SECONDS", 0.05)
    grid.start()
    end_group, sent = os.killpg, []

    def still_listed(group, number):
        sent.append(number)
        with contextlib.suppress(ProcessLookupError):
            end_group(group, number)

    monkeypatch.setattr(os, "killpg", still_listed)
    grid.stop()
    assert sent[-1] == signal.SIGKILL


def test_it_is_stopped_also_by_an_interrupt_within_the_end(grid, monkeypatch):
    """A signal between the end of the work and the moment when signals are ignored."""
    stop, stops = grid.stop, []

    def stopped():
        stops.append("stop")
        stop()

    monkeypatch.setattr(grid, "stop", stopped)
    monkeypatch.setattr(grid, "call", lambda _call: None)
    interrupts = Interrupts()
    ignored = []

    def ignore():
        ignored.append("ignore")
        if len(ignored) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(interrupts, "ignore", ignore)
    with contextlib.suppress(KeyboardInterrupt), running(grid, interrupts):
        pass
    assert stops == ["stop"]


def test_stopping_twice_is_stopping_once(grid):
    grid.steadily(answers(1))
    process = grid._process
    grid.stop()
    grid.stop()
    assert process.returncode == -signal.SIGTERM


class Pilots:
    """What is done to the pilots of batch systems, in its order."""

    def __init__(self, monkeypatch, tmp_path):
        self.done, self.left, self.fault, self.wrote = [], [], None, {}
        SqliteDatabase(tmp_path / "data" / "lode.db").writer().close()
        for name in ("end_all", "read_pilots", "forget_pilots"):
            monkeypatch.setattr(grids, name, partial(self._note, name))

    def _note(self, name, _db, backends, **_more):
        self.done.append((name, sorted(backends)))
        if self.fault:
            raise self.fault
        return self.wrote if name == "read_pilots" else self.left


@pytest.fixture
def elsewhere(grid, monkeypatch, tmp_path):
    """The grid with pilots on a batch system of its own and on one that lasts."""
    (tmp_path / "data").mkdir()
    pilots = Pilots(monkeypatch, tmp_path)
    grid.send_to([
        Engine(kind="slurm", queue="q", section={"type": "slurm"}, is_ours=True),
        Engine(kind="gridengine", queue="q", section={"type": "gridengine"}, is_ours=False),
    ])  # fmt: skip
    return pilots


@pytest.mark.slow
def test_pilots_elsewhere_end_with_the_server_and_nothing_is_kept(grid, elsewhere, told):
    grid.steadily(answers(1))
    grid.stop()
    # That of its own ends as a whole.
    assert elsewhere.done == [("read_pilots", ["gridengine", "slurm"]), ("forget_pilots", ["gridengine"])]
    assert told == ["Ending the pilots."]


@pytest.mark.slow
def test_pilots_of_a_server_that_was_killed_are_ended(grid, elsewhere):
    grid.steadily(answers(1))
    grid._process.kill()
    grid._process.wait()
    grid.stop()
    assert elsewhere.done[0] == ("end_all", ["gridengine"])


def test_pilots_that_may_be_left_are_named(grid, elsewhere, told):
    elsewhere.left = ["gridengine 17"]
    grid.steadily(answers(1))
    grid.stop()
    assert told[-1] == "These pilots may not have ended: gridengine 17."


@pytest.mark.parametrize("fault", [BackendFault("qstat failed.", transient=True), Unavailable("no database")])
def test_the_end_goes_on_when_a_batch_system_does_not_answer(grid, elsewhere, told, fault):
    elsewhere.fault = fault
    grid.steadily(answers(1))
    grid.read_pilots()
    assert told == [f"What pilots wrote cannot be read now: {fault}"]
    grid.stop()
    assert told[-1] == f"Pilots may be left: {fault}"
    assert grid._process is None


@pytest.mark.slow
def test_without_a_database_there_are_no_pilots(grid, elsewhere, told, tmp_path):
    (tmp_path / "data" / "lode.db").write_bytes(b"nonsense" * 1_000)
    grid.steadily(answers(1))
    grid.stop()
    assert told[-1].startswith("Pilots may be left: ")
    assert elsewhere.done == []


@pytest.mark.slow
def test_what_pilots_wrote_is_kept_although_it_is_gone_later(grid, elsewhere):
    def line(job):
        return json.dumps({"event": "payload-started", "jobs": [job]}).encode() + b"\n"

    grid.steadily(answers(1))
    elsewhere.wrote = {"a-1": line("1.1"), "b-1": line("2.1")}
    grid.read_pilots()
    elsewhere.wrote = {"a-1": b"", "b-1": line("2.1") + line("3.1")}
    grid.stop()
    assert grid.payloads_started() == {"1.1": 1, "2.1": 1, "3.1": 1}


@pytest.mark.slow
def test_the_server_is_told_of_the_batch_systems(grid, elsewhere, tmp_path):
    words = list(grids._arguments(grid._settings))
    options = dict(word.split("=", 1) for word in words[1::2])
    assert json.loads(options["backend.slurm"]) == {"type": "slurm"}
    assert json.loads(options["pilots.stop_at_exit"]) is True
    assert json.loads(options["resources.files"]) == [str(tmp_path / "sites.toml")]
    assert "gridengine" in (tmp_path / "sites.toml").read_text()


def lode_says(monkeypatch, code, out="", err=""):
    monkeypatch.setattr(Grid, "_run", lambda *_: (code, out, err))


def test_what_lode_says_is_read(grid, monkeypatch, tmp_path):
    grid.steadily(answers(1))
    lode_says(monkeypatch, 0, '{"jobs": []}')
    assert grid.lode(tmp_path, "output", "1-2") == {"jobs": []}
    lode_says(monkeypatch, 3, '{"jobs": [1]}', "there is no job 2")
    assert grid.lode(tmp_path, "output", "1-2", partly=True) == {"jobs": [1]}
    with pytest.raises(Conflict, match=r"lode output failed: there is no job 2"):
        grid.lode(tmp_path, "output", "1-2")
    lode_says(monkeypatch, 0, "no JSON")
    with pytest.raises(Conflict, match="did not answer in JSON"):
        grid.lode(tmp_path, "output", "1-2")


def test_a_command_that_finds_no_server_is_called_again(grid, monkeypatch, tmp_path):
    grid.steadily(answers(1))
    done = iter([(5, "", "no server"), (0, "{}", "")])
    monkeypatch.setattr(Grid, "_run", lambda *_: next(done))
    assert grid.lode(tmp_path, "submit", "a.jdl") == {}


def test_what_pilots_wrote_down_is_counted(grid, tmp_path):
    one, two = tmp_path / "data" / "pilots" / "one", tmp_path / "data" / "pilots" / "two"
    for directory in (one, two):
        directory.mkdir(parents=True)

    def line(event, *jobs):
        return json.dumps({"time": 1.0, "event": event, "jobs": jobs}) + "\n"

    (one / "std.err.1").write_text("half a line\n" + line("payload-started", "1.1"))
    (one / "std.err").write_text(line("payload-ended", "1.1") + line("payload-started", "2.1") + '["odd"]\n')
    (one / "std.out").write_text(line("payload-started", "9.1"))
    (two / "std.err").write_text(line("payload-started", "2.1", "3.1") + line("payload-started", "2.2")[:-9])
    assert grid.payloads_started() == {"1.1": 1, "2.1": 2, "3.1": 1}


def test_without_pilots_nothing_was_started(grid):
    assert grid.payloads_started() == {}


@pytest.fixture
def signals():
    """They are afterwards as before: a demo that was interrupted ignores more of them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_an_interrupt_while_a_command_is_being_started_leaves_none_of_it(grid, tmp_path, monkeypatch):
    made = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *_: object, **options: Any) -> None:
            super().__init__(["sleep", "600"], **options)
            made.append(self)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with Interrupts() as interrupts:
        monkeypatch.setattr(grid, "_interrupts", interrupts)
        with pytest.raises(KeyboardInterrupt):
            grid._lode(tmp_path / "token", ["status"], partly=False)
    assert [process.returncode for process in made] == [-signal.SIGKILL]
