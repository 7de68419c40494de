"""A local pilot whose directory is changed for a copy while it runs is neither started again nor ended by that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from tests.kits.shell_pilots import same, send

from lodesman.base.processes import read_process
from lodesman.decide.resources import QueueId
from lodesman.server.engines import local, local_pilots, pilot_processes
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.keeper import write_json
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory

QUEUE = QueueId("LCG.One.de", "ce.one.de", "long")
OLDER = "the directory of pilot lost-1, which is older than what the server knows of it"
BOOT = "11111111-2222-3333-4444-555555555555\n"


class Child(subprocess.Popen[bytes]):
    """A process that carries the marks of the keeper of pilot lost-1."""

    def __init__(self, root):
        marks = {pilot_processes.MARK: "lost-1", pilot_processes.ROOT_MARK: pilot_processes.root_mark(root)}
        marks[pilot_processes._KEEPER_MARK] = "1"
        code = "import sys; print(flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__([sys.executable, "-I", "-S", "-c", code], env=marks, **pipes)
        assert self.stdout.readline() == b"\n"

    def end(self):
        with self:
            self.kill()


@pytest.fixture
def begun():
    """The children; they end with the test."""
    found = []
    yield found
    for one in found:
        one.end()


@pytest.fixture
def root(tmp_path, monkeypatch, begun):
    """The folder of pilots. What is started is a child for lost-1, and nothing for any other."""

    def launch(pilot, **_):
        if pilot.stamp == "lost-1":
            begun.append(Child(pilot.path.parent))
        return 2**22 + 1

    monkeypatch.setattr(local, "launch", launch)

    def table():
        found = [read_process(one.pid) for one in begun]
        return {one.pid: one for one in found if one is not None and one.state not in "ZX"}

    for module in (local_pilots, pilot_processes):
        monkeypatch.setattr(module, "living_processes", table)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    return tmp_path / "pilots"


def copy_of(root, **more):
    shutil.copytree(root / "lost-1", root.parent / "copy", **more)


def swap(root):
    (root / "lost-1").rename(root.parent / "away")
    (root.parent / "copy").rename(root / "lost-1")


def moved(root):
    (root / "lost-1").rename(root / "else-1")


def twice(root):
    shutil.copytree(root / "lost-1", root / "else-1")


def linked(root):
    (root / "lost-1").rename(root.parent / "away")
    (root / "lost-1").symlink_to(root.parent / "away")


def emptied(root):
    (root / "lost-1").rename(root.parent / "away")
    (root / "lost-1").mkdir()


def hardlinked(root):
    shutil.rmtree(root.parent / "copy")
    copy_of(root, copy_function=os.link)
    swap(root)


def write_record(root, child):
    """As its keeper, which this is, writes it."""
    start = read_process(child.pid).start
    record = {
        "stamp": "lost-1", "queue": list(QUEUE), "keeper": [child.pid, start], "guard": [2**22 + 2, 5],
        "boot": BOOT, "certain": True, "cgroup": None, "started_at": 1.5,
    }  # fmt: skip
    write_json(str(root / "lost-1" / "keeper.json"), record)


def started(root, *stamps):
    """A backend with one slot that has started lost-1, and a copy of its directory from before."""
    backend = LocalBackend(root, {QUEUE: 0})
    send(backend, QUEUE, "lost-1", *stamps)
    copy_of(root)
    backend.slots = {QUEUE: 1}
    assert backend.tick() == ("lost-1",)
    return backend


def test_what_this_server_launched_is_not_started_from_a_copy(root, begun):
    backend = started(root, "next-1")
    (child,) = begun
    swap(root)
    for _ in range(2):
        assert backend.tick() == ()
        load = backend.loads([QUEUE])[QUEUE]
        assert (load.waiting, load.running) == (1, 1), "its slot is taken as long as it lives"
        assert backend.status(same("lost-1"))["lost-1"].state is NativeState.WAITING
    assert (backend.damaged, child.poll()) == ([OLDER], None)
    child.end()
    assert backend.tick() == ("next-1",)
    status = backend.status(same("lost-1"))["lost-1"]
    ended = (NativeState.ENDED, "it ran before, and the record of that is gone")
    assert (status.state, status.detail) == ended


def test_what_this_server_saw_running_is_not_started_from_a_copy(root):
    send(LocalBackend(root, {QUEUE: 0}), QUEUE, "lost-1")
    copy_of(root)
    backend = LocalBackend(root, {QUEUE: 1})
    with PilotDirectory(root / "lost-1").locked():
        (root / "lost-1" / "keeper.json").touch()
        assert backend.tick() == ()
    swap(root)
    assert (backend.tick(), backend.damaged[-1]) == ((), OLDER)
    assert backend.loads([QUEUE])[QUEUE].running == 0, "no process of it lives"


def test_a_keeper_that_ended_in_order_started_it(root, monkeypatch):
    """It was never seen running, and its records were removed since."""
    with subprocess.Popen(["true"]) as keeper:
        monkeypatch.setattr(local, "launch", lambda pilot, **_: keeper.pid)
        backend = started(root)
        os.waitid(os.P_PID, keeper.pid, os.WEXITED | os.WNOWAIT)
        assert (backend.tick(), backend.damaged) == ((), [OLDER])


def test_one_that_another_process_started_meanwhile_is_not_started_from_a_copy(root, begun):
    backend = LocalBackend(root, {QUEUE: 1})
    backend.tick()  # it sought what lives when it began
    begun.append(Child(root))
    send(backend, QUEUE, "lost-1")
    assert (len(begun), backend.damaged) == (1, [OLDER])
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.WAITING
    assert backend.loads([QUEUE])[QUEUE].running == 1


def test_a_cancel_ends_the_one_that_runs(root, begun):
    backend = started(root)
    (child,) = begun
    swap(root)
    assert backend.cancel(same("lost-1")) == {"lost-1": CancelOutcome.ORDERED}
    assert child.wait(60.0) == -15
    assert backend.cancel(same("lost-1")) == {"lost-1": CancelOutcome.REMOVED}


@pytest.mark.parametrize("change", [emptied, hardlinked])
def test_a_cancel_ends_one_whose_directory_names_no_keeper(root, begun, change):
    backend = started(root)
    (child,) = begun
    write_record(root, child)
    with PilotDirectory(root / "lost-1").locked():
        backend.tick()  # it sees that it runs
        change(root)
        assert backend.cancel(same("lost-1")) == {"lost-1": CancelOutcome.ORDERED}
    assert child.wait(60.0) == -15


@pytest.mark.parametrize("is_later", [False, True])
def test_a_stop_ends_the_one_that_runs(root, begun, is_later):
    backend = started(root)
    (child,) = begun
    swap(root)
    backend = LocalBackend(root, {QUEUE: 1}) if is_later else backend
    assert backend.stop_all(grace_seconds=0.0, deadline_seconds=0.0) == ()
    assert child.wait(60.0) < 0
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.ENDED


def test_a_copy_from_while_it_ran_does_not_end_it(root, begun):
    """Nobody holds the lock of the copy: its keeper was taken for lost, and all that carried the mark was killed."""
    backend = started(root)
    (child,) = begun
    shutil.rmtree(root.parent / "copy")
    write_record(root, child)
    copy_of(root)
    swap(root)
    assert backend.tick() == ()
    assert (child.poll(), backend.damaged) == (None, [OLDER])
    assert backend.loads([QUEUE])[QUEUE].running == 1
    child.end()
    assert backend.tick() == ()
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.ENDED


def test_a_second_process_that_was_refused_does_not_end_the_first(root, begun):
    backend = started(root)
    (child,) = begun
    write_record(root, child)
    record = {"stamp": "lost-1", "cause": "exit", "exit_code": 3, "message": "", "ended_at": 1.5}
    write_json(str(root / "lost-1" / "ended.json"), record)
    status = backend.status(same("lost-1"))["lost-1"]
    assert (status.state, "refused" in status.detail) == (NativeState.UNKNOWN, True)
    assert (backend.tick(), backend.loads([QUEUE])[QUEUE].running) == ((), 1)
    child.end()
    assert backend.tick() == ()
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.ENDED
    assert backend.loads([QUEUE])[QUEUE].running == 0


@pytest.mark.parametrize("change", [swap, moved, twice, linked, emptied, hardlinked])
def test_nothing_starts_whatever_becomes_of_the_directory(root, begun, change):
    backend = started(root)
    (child,) = begun
    backend.slots = {QUEUE: 3}
    change(root)
    assert backend.tick() == ()
    assert backend.damaged, "it is named"
    assert LocalBackend(root, {QUEUE: 3}).tick() == ()
    assert (len(begun), child.poll()) == (1, None)


@pytest.mark.slow
@pytest.mark.parametrize("cgroups", [False, True])
def test_a_real_pilot_goes_on_beside_a_copy_of_its_directory_and_a_stop_ends_it(tmp_path, cgroups):
    root, pipe = tmp_path / "pilots", tmp_path / "pipe"
    paths = {"lost-1": root / "lost-1"}
    os.mkfifo(pipe)
    send(
        LocalBackend(root, {QUEUE: 0}),
        QUEUE,
        "lost-1",
        script=f"echo runs > {pipe}; while :; do sleep 1; done",
    )
    copy_of(root)
    backend = LocalBackend(root, {QUEUE: 1}, cgroups=cgroups)
    try:
        assert backend.tick() == ("lost-1",)
        assert pipe.read_text() == "runs\n"
        swap(root)
        living = pilot_processes.find_marked(paths, pilot_processes.living_processes()).keys()
        assert backend.tick() == ()
        assert backend.loads([QUEUE])[QUEUE].running == 1
        later = LocalBackend(root, {QUEUE: 1}, cgroups=cgroups)
        assert later.tick() == ()
        assert (backend.damaged, later.damaged) == ([OLDER], [OLDER])
        keepers = {
            one.pid
            for one in pilot_processes.find_keepers(paths["lost-1"], pilot_processes.living_processes())
        }
        assert (len(keepers), keepers <= living) == (2, True)
        assert backend.stop_all(grace_seconds=0.1, deadline_seconds=60.0) == ()
        assert not pilot_processes.find_marked(paths, pilot_processes.living_processes())
    finally:
        pilot_processes.sweep([PilotDirectory(paths["lost-1"])], timeout=60.0)
