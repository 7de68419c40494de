"""A local pilot is started once, whatever a copy of an earlier day, a disk or a hand left of its directory."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.kits.shell_pilots import same, send

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import local, local_pilots, pilot_processes
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory

QUEUE = QueueId("LCG.One.de", "ce.one.de", "long")


def ran(stamp):
    return "ran" if stamp == "lost-1" else ""


@pytest.fixture
def machine(monkeypatch):
    """What is started, by stamp; it does not run. `living`: stamps of which processes live."""
    living: set[str] = set()
    monkeypatch.setattr(local_pilots, "sweep", lambda pilots, timeout: set())
    monkeypatch.setattr(local_pilots, "living_processes", dict)
    monkeypatch.setattr(local_pilots, "find_marked", lambda paths, _: dict(enumerate(living & paths.keys())))
    monkeypatch.setattr(local_pilots, "find_stamps", lambda root, _: set(living))
    monkeypatch.setattr(local, "launch", lambda pilot, **_: 2**22 + 1)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    return living


@pytest.mark.parametrize("left", ["std.out", "std.err"])
def test_one_that_wrote_is_not_started_again_if_the_record_of_its_start_is_gone(tmp_path, machine, left):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    (tmp_path / "lost-1" / left).write_bytes(b"I ran")
    backend = LocalBackend(tmp_path, {QUEUE: 2})
    assert backend.tick() == ("next-1",)
    assert backend.damaged == ["keeper.json of pilot lost-1"]
    status = backend.status(same("lost-1"))["lost-1"]
    assert (status.state, "keeper.json" in status.detail) == (NativeState.ENDED, True)
    assert backend.loads([QUEUE])[QUEUE].running == 1, (
        "processes of it may be left until the machine starts anew"
    )


def test_a_directory_that_is_older_than_what_the_server_knows_starts_no_pilot(tmp_path, machine):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    backend = LocalBackend(tmp_path, {QUEUE: 2}, fate_of=ran)
    assert backend.tick() == ("next-1",)
    assert backend.damaged == [
        "the directory of pilot lost-1, which is older than what the server knows of it"
    ]
    status = backend.status(same("lost-1"))["lost-1"]
    ended = (NativeState.ENDED, "it ran before, and the record of that is gone")
    assert (status.state, status.detail) == ended


def test_such_a_pilot_that_still_runs_keeps_a_slot_and_does_not_end(tmp_path, machine):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1")
    backend = LocalBackend(tmp_path, {QUEUE: 2}, fate_of=ran)
    backend.tick()
    (tmp_path / "lost-1" / "ended.json").unlink()
    machine.add("lost-1")
    again = LocalBackend(tmp_path, {QUEUE: 2}, fate_of=ran)
    assert again.tick() == ()
    assert again.status(same("lost-1"))["lost-1"].state is NativeState.WAITING
    assert again.loads([QUEUE])[QUEUE].running == 1
    machine.clear()
    assert again.tick() == ()
    assert again.status(same("lost-1"))["lost-1"].state is NativeState.ENDED
    assert again.loads([QUEUE])[QUEUE].running == 0


def test_one_that_the_server_ended_before_it_started_never_does(tmp_path, machine):
    """It is no damage: the order to end it may be on its way. It is, if the record of that is gone."""
    backend = LocalBackend(tmp_path, {QUEUE: 0}, fate_of=lambda _: "ended")
    send(backend, QUEUE, "lost-1")
    backend.slots = {QUEUE: 1}
    assert backend.tick() == ()
    assert backend.damaged == []
    status = backend.status(same("lost-1"))["lost-1"]
    assert (status.state, status.detail) == (NativeState.ENDED, "the server ended it before it started")


def test_nothing_starts_while_it_is_not_known_whether_it_did(tmp_path, machine):
    def fate_of(stamp):
        if faults:
            raise BackendFault(faults.pop(), transient=True)
        return ""

    faults = ["It is away."]
    backend = LocalBackend(tmp_path, {QUEUE: 1}, fate_of=fate_of)
    assert set(send(backend, QUEUE, "next-1").accepted) == {"next-1"}
    assert backend.tick() == ("next-1",)


def test_one_that_lives_without_a_directory_keeps_a_slot_of_a_server_that_begins(tmp_path, machine):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    machine.add("lost-1")
    shutil.rmtree(tmp_path / "lost-1")
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    assert backend.tick() == ()
    assert backend.loads([QUEUE])[QUEUE].running == 1
    assert backend.damaged == ["the directory of pilot lost-1, which is gone while it runs"]
    machine.clear()
    assert backend.tick() == ("next-1",)


def test_living_pilots_of_a_folder_are_known_by_their_marks(tmp_path):
    marks = {pilot_processes.MARK: "lost-1", pilot_processes.ROOT_MARK: pilot_processes.root_mark(tmp_path)}
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], env=marks, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"\n"
        table = {child.pid: pilot_processes.living_processes()[child.pid]}
        assert pilot_processes.find_stamps(tmp_path, table) == {"lost-1"}
        assert pilot_processes.find_stamps(tmp_path / "other", table) == set()
        child.send_signal(signal.SIGKILL)


def test_a_record_is_damaged_only_if_something_was_written(tmp_path, machine):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1")
    pilot = PilotDirectory(tmp_path / "lost-1")
    assert pilot.damaged() == []
    (pilot.path / "keeper.log").touch()
    assert (pilot.damaged(), pilot.was_started()) == ([], False)


@pytest.mark.slow
@pytest.mark.parametrize("is_later", [False, True])
def test_a_stop_ends_a_pilot_whose_directory_is_gone_and_comes_back(tmp_path, is_later):
    """It waited for its keeper without end."""
    root = tmp_path / "p"
    backend = LocalBackend(root, {QUEUE: 1}, cgroups=False)
    # A keeper whose directory goes before it has started its pilot ends.
    send(backend, QUEUE, "lost-1", script=f"touch {tmp_path}/runs; while :; do sleep 1; done")
    paths = {"lost-1": root / "lost-1"}
    end = time.monotonic() + 60.0
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < end
        select.select([], [], [], 0.05)
    other = tmp_path / "copy"
    shutil.copytree(root, other, ignore=shutil.ignore_patterns("*.json.*"))  # which come and go
    LocalBackend(other, {QUEUE: 1}, cgroups=False).tick()
    assert pilot_processes.find_marked(paths, pilot_processes.living_processes()), (
        "a server on a copy ends no pilot of this one"
    )
    shutil.rmtree(root / "lost-1")
    assert backend.loads([QUEUE])[QUEUE].running == 1
    later = LocalBackend(root, {QUEUE: 1}, cgroups=False)
    assert later.loads([QUEUE])[QUEUE].running == 1
    ending = later if is_later else backend
    assert ending.stop_all(grace_seconds=1.0, deadline_seconds=60.0) == ()
    assert not pilot_processes.find_marked(paths, pilot_processes.living_processes())


def test_who_has_only_ended_pilots_is_idle_and_tells_of_new_ones(tmp_path, machine):
    told: list[int] = []
    backend = LocalBackend(tmp_path, {QUEUE: 0}, stored=lambda: told.append(1))
    assert not backend.is_idle  # nothing is known before the first tick
    backend.tick()
    assert (backend.is_idle, told) == (True, [])
    send(backend, QUEUE, "p-1")
    assert (backend.is_idle, told) == (False, [1])
    PilotDirectory(tmp_path / "p-1").write_swept_end()
    backend.tick()
    assert backend.is_idle
