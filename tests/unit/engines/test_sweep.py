"""What a pilot left is found by its mark or its place, and nothing else is touched."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from lodesman.base.processes import Process, living_processes
from lodesman.server.engines import pilot_processes as module
from lodesman.server.engines.pilot_directory import PilotDirectory
from lodesman.server.engines.pilot_processes import MARK, find_marked, sweep

SLEEPER = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture
def start():
    children = []

    def run(*, environment=None, cwd="/", code=SLEEPER, **more):
        command = [sys.executable, "-I", "-S", "-c", code]
        child = subprocess.Popen(command, env=environment or {}, cwd=cwd, stdout=subprocess.PIPE, **more)
        children.append(child)
        assert child.stdout.readline() == b"ready\n"
        return child

    yield run
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def stamp():
    return f"sweep-{os.getpid()}"


def test_the_mark_is_found(start, stamp, tmp_path):
    ours = start(environment={"A": "b", MARK: stamp})
    other = start(environment={MARK: stamp + "x"})
    named = start(environment={"NOT_" + MARK: stamp, "B": f"{MARK}={stamp}"})
    found = find_marked({stamp: tmp_path}, living_processes())
    assert found == {ours.pid: stamp}
    assert other.poll() is None
    assert named.poll() is None


def test_a_clean_environment_is_found_by_its_place(start, stamp, tmp_path):
    inside = tmp_path / stamp / "work" / "job"
    inside.mkdir(parents=True)
    (tmp_path / (stamp + "-other")).mkdir()
    ours = start(cwd=inside, start_new_session=True)
    start(cwd=tmp_path / (stamp + "-other"), start_new_session=True)
    assert find_marked({stamp: tmp_path / stamp}, living_processes()) == {ours.pid: stamp}


def test_a_process_that_only_reads_the_files_is_spared(stamp, tmp_path):
    # A shell with a terminal whose directory is the pilot's.
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", SLEEPER], {})
    os.read(terminal, 100)
    found = find_marked({stamp: tmp_path}, living_processes())
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert found == {}


def test_oneself_and_ones_ancestors_are_spared(stamp, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_stamp_of", lambda process, paths: stamp)
    found = find_marked({stamp: tmp_path}, living_processes())
    assert os.getpid() not in found
    assert os.getppid() not in found


def test_a_process_that_is_gone_or_of_another_user_is_not_ours(stamp, tmp_path):
    table = {2**22 + 1: Process(2**22 + 1, 1, 1, "S", 0)}
    assert find_marked({stamp: tmp_path}, table) == {}


@pytest.mark.slow
def test_all_of_it_is_killed_with_its_children(start, stamp, tmp_path):
    # The child has no mark, no place and its own session: only its parent shows whose it is.
    orphan = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    code = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.chdir('/')\n"
        f"    os.execve('/proc/self/exe', ['python', '-I', '-S', '-c', {orphan!r}], {{}})\n"
        "signal.pause()\n"
    )
    parent = start(environment={MARK: stamp}, code=code)
    bystander = start()
    children = [item.pid for item in living_processes().values() if item.parent == parent.pid]
    assert len(children) == 1
    assert sweep([PilotDirectory(tmp_path / stamp)], timeout=60.0) == set()
    assert parent.wait(60) == -9
    assert children[0] not in living_processes()
    assert bystander.poll() is None


def test_roots_go_whatever_they_carry(start, stamp, tmp_path):
    root = start()
    assert sweep([PilotDirectory(tmp_path / stamp)], roots=[root.pid], timeout=60.0) == set()
    assert root.wait(60) == -9


def test_nothing_to_sweep(stamp, tmp_path):
    pilot = PilotDirectory(tmp_path / stamp)
    pilot.path.mkdir()
    (pilot.path / "keeper.json").write_text(json.dumps({"cgroup": str(tmp_path / "gone")}))
    assert sweep([pilot], timeout=60.0) == set()
    assert sweep([], timeout=60.0) == set()


def test_a_process_that_cannot_be_killed_is_reported(start, stamp, tmp_path, monkeypatch):
    start(environment={MARK: stamp})
    monkeypatch.setattr(module, "kill_family", lambda find, timeout: find())
    assert sweep([PilotDirectory(tmp_path / name) for name in (stamp, "other")], timeout=0.0) == {stamp}
