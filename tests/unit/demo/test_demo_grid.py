"""The demo's grid without a server: what is asked again, what ends it, what pilots wrote down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from examples.demo import grid as grids
from examples.demo.grid import Grid, NoStart, running
from examples.demo.interrupts import Interrupts

from lodesman.errors import Conflict, Unavailable


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
        found._process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )

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


def lode_says(monkeypatch, code, out="", err=""):
    done = subprocess.CompletedProcess([], code, out, err)
    monkeypatch.setattr(grids.subprocess, "run", lambda *_, **__: done)


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
    done = iter(
        [subprocess.CompletedProcess([], 5, "", "no server"), subprocess.CompletedProcess([], 0, "{}", "")]
    )
    monkeypatch.setattr(grids.subprocess, "run", lambda *_, **__: next(done))
    assert grid.lode(tmp_path, "submit", "a.jdl") == {}


def test_what_pilots_wrote_down_is_counted(grid, tmp_path):
    one, two = tmp_path / "data" / "pilots" / "one", tmp_path / "data" / "pilots" / "two"
    for directory in (one, two):
        directory.mkdir(parents=True)

    def line(event, job):
        return json.dumps({"time": 1.0, "event": event, "job": job}) + "\n"

    (one / "std.err.1").write_text("half a line\n" + line("payload-started", "1.1"))
    (one / "std.err").write_text(line("payload-ended", "1.1") + line("payload-started", "2.1") + '["odd"]\n')
    (one / "std.out").write_text(line("payload-started", "9.1"))
    (two / "std.err").write_text(line("payload-started", "2.1") + line("payload-started", "2.2")[:-9])
    assert grid.payloads_started() == {"1.1": 1, "2.1": 2}


def test_without_pilots_nothing_was_started(grid):
    assert grid.payloads_started() == {}
