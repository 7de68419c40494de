"""A pilot's directory: written whole or not at all, its state read from files and one lock."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.processes import read_process
from lodesman.server.engines import pilot_directory
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.damage import remove_tree
from lodesman.server.engines.pilot_directory import STAMP, PilotDirectory
from lodesman.server.engines.pilot_records import Entry


def entry(stamp="s1", **changes):
    values = {
        "stamp": stamp,
        "queue": ("site", "ce", "queue"),
        "order": 7,
        "argv": ("true",),
        "environment": {"A": "b"},
        "wall_seconds": 0,
        "grace_seconds": 1.0,
        "output_cap": 1000,
    }
    return Entry(**(values | changes))


@pytest.fixture
def pilot(tmp_path):
    directory = PilotDirectory(tmp_path / "s1")
    directory.create(entry(), b"secret")
    return directory


@contextlib.contextmanager
def no_room():
    """A disk on which no file can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def me():
    seen = read_process(os.getpid())
    return [seen.pid, seen.start]


def test_only_its_user_can_read_it(pilot):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in pilot.path.iterdir()}
    assert modes == {"work": 0o700, "lock": 0o600, "entry.json": 0o600}
    assert stat.S_IMODE(pilot.path.stat().st_mode) == 0o700
    assert (pilot.path / "work" / "pilot.json").read_bytes() == b"secret"


def test_what_was_submitted_comes_back(pilot):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    found = pilot.entry()
    assert found == entry(boot=boot, digest=found.digest)
    assert pilot.stamp == "s1"


@given(st.tuples(st.text(), st.text(), st.text()))
def test_queues_may_have_any_name(tmp_path_factory, queue):
    directory = PilotDirectory(tmp_path_factory.mktemp("pilots") / "s1")
    directory.create(entry(queue=queue), b"")
    assert directory.entry().queue == queue
    assert {path.name for path in directory.path.parent.iterdir()} == {"s1"}


def test_a_stamp_is_used_once(pilot):
    with pytest.raises(FileExistsError):
        pilot.create(entry(), b"other")
    assert (pilot.path / "work" / "pilot.json").read_bytes() == b"secret"


def test_without_room_nothing_is_left(tmp_path):
    directory = PilotDirectory(tmp_path / "s1")
    with no_room(), pytest.raises(OSError, match="File too large"):
        directory.create(entry(), b"secret")
    assert list(tmp_path.iterdir()) == []
    directory.create(entry(), b"secret")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ü", "x" * 65, ".new-a"])
def test_a_stamp_is_no_path(name):
    assert not STAMP.fullmatch(name)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"queue": 1}', '{"queue": ["a"], "argv": []}', '{"argv": [], "x": 1}']
)
def test_a_damaged_entry_is_reported(pilot, text):
    (pilot.path / "entry.json").write_text(text)
    with pytest.raises(ValueError, match=r"damaged|Expecting|missing required|Expected"):
        pilot.entry()


def test_a_new_one_waits(pilot):
    assert pilot.state() is NativeState.WAITING
    assert not pilot.kept()
    assert pilot.record() == {}
    assert pilot.processes() == []


def test_one_that_is_locked_runs(pilot):
    with pilot.locked() as lock:
        assert lock is not None
        assert pilot.state() is NativeState.RUNNING
        with pilot.locked() as second:
            assert second is None
        assert pilot.kept(), "a refused lock does not free the first one"
    assert pilot.state() is NativeState.WAITING


def test_the_lock_passes_to_a_child_without_a_gap(pilot):
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-S", "-c", code]
    with pilot.locked() as lock:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock], text=True
        )
    with child:
        assert pilot.kept()
        assert child.stdout.readline() == "ready\n"
        assert pilot.kept()
        child.kill()
        child.wait()
        assert not pilot.kept(), "the kernel frees it, whatever killed the holder"


def test_looking_at_the_lock_takes_nothing(pilot):
    for _ in range(3):
        assert not pilot.kept()
    with pilot.locked() as lock:
        assert lock is not None


def test_started_and_not_kept_is_unknown(pilot):
    (pilot.path / "keeper.json").write_text(json.dumps({"keeper": me()}))
    assert pilot.state() is NativeState.UNKNOWN
    with pilot.locked():
        assert pilot.state() is NativeState.RUNNING


def test_an_end_is_final(pilot):
    pilot.write_end("cancelled")
    assert pilot.state() is NativeState.ENDED
    with pilot.locked():
        assert pilot.state() is NativeState.ENDED, "the keeper is about to free the lock"
    status = pilot.status(5.0)
    assert (status.exit_code, status.observed_at) == (None, 5.0)
    assert status.detail == "cancelled before it started"


def test_a_directory_that_is_gone_is_unknown(tmp_path):
    assert PilotDirectory(tmp_path / "s1").state() is NativeState.UNKNOWN


@pytest.mark.parametrize(
    ("end", "code", "detail"),
    [
        ({"cause": "exit", "exit_code": 0}, 0, "ended: exit code 0"),
        ({"cause": "exit", "exit_code": 3}, 3, "ended: exit code 3"),
        ({"cause": "signal", "exit_code": -9}, 137, "killed: signal 9"),
        ({"cause": "stopped", "exit_code": -15}, 143, "stopped by order: signal 15"),
        ({"cause": "wall", "exit_code": 1}, 1, "stopped at the wall clock limit of its queue: exit code 1"),
        ({"cause": "keeper-lost", "message": "the keeper was killed"}, None, "the keeper was killed"),
        ({"cause": "of a later release", "exit_code": None}, None, "of a later release"),
    ],
)
def test_the_end_in_words(pilot, end, code, detail):
    (pilot.path / "ended.json").write_text(json.dumps({"ended_at": 1.0, **end}))
    status = pilot.status(1.0)
    assert (status.state, status.exit_code, status.detail) == (NativeState.ENDED, code, detail)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"cause": "exit", "ended_at": 1.0, "exit_code": "seven"}']
)
def test_damaged_records_say_nothing(pilot, text):
    (pilot.path / "ended.json").write_text(text)
    (pilot.path / "keeper.json").write_text(text)
    assert pilot.end() == {}
    assert pilot.processes() == []
    assert pilot.damaged() == ["keeper.json", "ended.json"]
    assert pilot.status(1.0).state is NativeState.UNKNOWN
    pilot.write_swept_end()
    assert pilot.status(1.0).state is NativeState.ENDED
    assert pilot.damaged() == ["keeper.json"]


def test_only_the_very_processes_are_its_keepers(pilot):
    pid, start = me()
    record = {
        "keeper": [pid, start],
        "guard": [pid, start - 1],
        "boot": "",
        "certain": True,
        "started_at": 1.0,
    }
    (pilot.path / "keeper.json").write_text(json.dumps(record))
    assert [(process.pid, process.start) for process in pilot.processes()] == [(pid, start)]


def test_removing_leaves_nothing(pilot, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    inner = pilot.path / "work" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (pilot.path / "work" / "link").symlink_to(outside)
    inner.chmod(0)
    inner.parent.chmod(0o400)
    pilot.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.slow
def test_removing_directories_without_permissions_as_a_normal_user():
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from lodesman.server.engines.damage import remove_tree\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "top = Path(sys.argv[1]) / 'top'\n"
        "(top / 'a' / 'b').mkdir(parents=True)\n"
        "(top / 'a' / 'b' / 'file').write_text('x')\n"
        "(top / 'a' / 'b').chmod(0)\n"
        "(top / 'a').chmod(0o400)\n"
        "remove_tree(top)\n"
        "print(top.exists())\n"
    )
    source = str(Path(pilot_directory.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": source}
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        command = [sys.executable, "-c", code, place]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_removing_what_is_gone(tmp_path):
    remove_tree(tmp_path / "gone")
