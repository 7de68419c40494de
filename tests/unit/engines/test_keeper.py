"""The keeper's parts: /proc read, families found and killed, output bounded. Whole lives are in tests/e2e."""

from __future__ import annotations

import ast
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lodesman.server.engines import keeper, namespaces, process_tree
from lodesman.server.engines.keeper import _chase_children, _Output, read_json, write_json
from lodesman.server.engines.process_tree import (
    Process,
    _freeze,
    _lives,
    descendants,
    kill_family,
    process_table,
    read_process,
    signal_process,
)

SLEEPER = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def process(pid, parent, start=1):
    return Process(pid, parent, start, "S", 0)


@pytest.mark.parametrize("module", [keeper, namespaces, process_tree])
def test_it_needs_only_what_travels_with_it(module):
    tree = ast.parse(Path(module.__file__).read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    shipped = {"lodesman.base", "lodesman.server.engines", "lodesman.server.engines.process_tree"}
    assert {name.partition(".")[0] for name in names - shipped} <= sys.stdlib_module_names | {"__future__"}
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def test_one_reads_oneself():
    me = read_process(os.getpid())
    assert me is not None
    assert me.pid == os.getpid()
    assert me.parent == os.getppid()
    assert me.start > 0


def test_a_hostile_name_does_not_move_the_fields():
    code = (
        "import ctypes, signal\n"
        "ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0)\n"
        "print('ready', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = read_process(child.pid)
        child.kill()
    assert seen is not None
    assert seen.parent == os.getpid()
    assert seen.state in "RS"


def test_a_number_that_is_not_there():
    assert read_process(0) is None
    assert read_process(2**22 + 1) is None


def test_a_zombie_is_not_in_the_table(sleeper):
    assert sleeper.pid in process_table()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert sleeper.pid not in process_table()
    assert read_process(sleeper.pid) is not None


def test_descendants_are_found_at_any_depth():
    table = {pid: process(pid, parent) for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (7, 4)]}
    assert [item.pid for item in descendants(table, [2])] == [3, 4, 7]
    assert {item.pid for item in descendants(table, [2, 5])} == {3, 4, 6, 7}
    assert descendants(table, [7]) == []
    assert descendants({}, [1]) == []


def test_a_circle_ends():
    # A table is read while processes die and numbers are used again: it may contradict itself.
    table = {2: process(2, 3), 3: process(3, 2), 4: process(4, 4)}
    assert {item.pid for item in descendants(table, [2])} == {3}
    assert descendants(table, [4]) == []


def test_a_signal_reaches_the_process(sleeper):
    seen = read_process(sleeper.pid)
    assert seen is not None
    assert signal_process(seen, signal.SIGTERM)
    assert sleeper.wait(60) == -signal.SIGTERM


def test_a_number_used_again_is_spared(sleeper):
    seen = read_process(sleeper.pid)
    assert seen is not None
    assert not signal_process(seen._replace(start=seen.start - 1), signal.SIGKILL)
    assert not signal_process(process(2**22 + 1, 1), signal.SIGKILL)
    assert sleeper.poll() is None


def test_freezing_stops_what_is_found(sleeper):
    def find():
        seen = read_process(sleeper.pid)
        return [seen] if seen else []

    assert [item.pid for item in _freeze(find)] == [sleeper.pid]
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert read_process(sleeper.pid).state == "T"


def test_freezing_gives_up_on_an_endless_family():
    looks: list[int] = []

    def find():
        looks.append(len(looks))
        return [process(2**22 + 1 + len(looks), 1)]

    assert len(_freeze(find, passes=5)) == 5
    assert len(looks) == 5


def test_a_process_hidden_by_the_end_of_its_parent_is_killed(sleeper):
    """Found once, below a parent that then ends: no later scan finds it."""
    seen = read_process(sleeper.pid)
    looks = [[seen]]
    assert kill_family(lambda: looks.pop(0) if looks else [], 60.0) == []
    assert sleeper.wait(60) == -signal.SIGKILL


@pytest.mark.slow
def test_killing_waits_for_the_end_of_what_it_no_longer_finds():
    """A process that fills much memory is no longer found once it was killed, and ends slowly."""
    code = "x = bytearray(b'1') * (128 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        seen = read_process(child.pid)
        assert seen is not None
        looks = [[seen], [seen]]
        assert kill_family(lambda: looks.pop(0) if looks else [], 60.0) == []
        assert not _lives(seen)


def test_a_process_that_outlives_the_timeout_is_reported_though_it_is_not_found_again(sleeper, monkeypatch):
    monkeypatch.setattr(process_tree, "signal_process", lambda process, signum: True)
    seen = read_process(sleeper.pid)
    looks = [[seen]]
    assert kill_family(lambda: looks.pop(0) if looks else [], 0.01) == [seen]


def test_killing_repeats_until_nothing_is_found():
    rounds: list[int] = []

    def find():
        return [process(2**22 + 1, 1)] if len(rounds) < 3 else []

    assert kill_family(find, 60.0, lambda: rounds.append(1)) == []
    assert len(rounds) == 3


def test_killing_reports_what_the_timeout_did_not_end():
    endless = [process(2**22 + 1, 1)]
    assert kill_family(lambda: endless, 0.01) == endless


def test_reaping_reports_each_end_and_whether_a_child_is_left():
    code = (
        "import os, json\n"
        "from lodesman.server.engines.keeper import _reap\n"
        "seen = {}\n"
        "first = _reap(seen.__setitem__)\n"
        "read, write = os.pipe()\n"
        "quick, slow = os.spawnvp(os.P_NOWAIT, 'sh', ['sh', '-c', 'exit 3']), os.fork()\n"
        "if slow == 0:\n"
        "    os.close(write); os.read(read, 1); os._exit(4)\n"
        "os.waitid(os.P_PID, quick, os.WEXITED | os.WNOWAIT)\n"
        "second = _reap(seen.__setitem__)\n"
        "os.close(write)\n"
        "os.waitid(os.P_PID, slow, os.WEXITED | os.WNOWAIT)\n"
        "third = _reap(seen.__setitem__)\n"
        "codes = [os.waitstatus_to_exitcode(seen[quick]), os.waitstatus_to_exitcode(seen[slow])]\n"
        "print(json.dumps([first, second, third, codes]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=package_path(), capture_output=True, check=True)
    assert json.loads(done.stdout) == [False, True, False, [3, 4]]


def test_chasing_kills_children_and_returns():
    code = (
        "import os, json\n"
        "from lodesman.server.engines.keeper import _chase_children\n"
        "seen = {}\n"
        "children = [os.spawnvp(os.P_NOWAIT, 'sleep', ['sleep', '60']) for _ in range(3)]\n"
        "_chase_children(seen.__setitem__, rounds=10**9)\n"
        "print(json.dumps([seen[child] for child in children]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=package_path(), capture_output=True, check=True)
    assert json.loads(done.stdout) == [signal.SIGKILL] * 3


def package_path():
    return {**os.environ, "PYTHONPATH": str(Path(keeper.__file__).parents[3])}


def test_chasing_is_bounded():
    noted = []
    _chase_children(lambda *pair: noted.append(pair), rounds=0)
    assert noted == []


def test_a_record_is_written_at_one_stroke(tmp_path):
    name = str(tmp_path / "record.json")
    write_json(name, {"a": 1})
    write_json(name, {"a": 2})
    assert read_json(name) == {"a": 2}
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_record_is_on_the_disk_before_and_after_it_is_put_in_its_place(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(
        os, "fsync", lambda number: done.append(Path(f"/proc/self/fd/{number}").readlink().name)
    )
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: done.append("replace") or real(old, new))
    write_json(str(tmp_path / "record.json"), {"a": 1})
    assert done == [f"record.json.{os.getpid()}", "replace", tmp_path.name]


@pytest.mark.parametrize(
    "change", [lambda text: b"", lambda text: text[:-1], lambda text: text.replace(b"1", b"2", 1)]
)
def test_a_record_that_is_not_whole_is_refused(tmp_path, change):
    path = tmp_path / "record.json"
    write_json(str(path), {"a": 1})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=r"damaged|Expecting"):
        read_json(str(path))


def test_a_record_of_an_earlier_release_is_read(tmp_path):
    (tmp_path / "record.json").write_text('{"a": 1}')
    assert read_json(str(tmp_path / "record.json")) == {"a": 1}


def test_output_keeps_the_end_and_is_bounded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = _Output("std.out", cap=1000)
    for number in range(500):
        os.write(output.target, f"line {number:04}\n".encode())
        assert output.pump()
    text = Path("std.out.1").read_text() + Path("std.out").read_text()
    assert text.endswith("line 0498\nline 0499\n")
    assert 1000 <= len(text) <= 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["std.out", "std.out.1"]
    close(output)


def test_output_in_large_pieces_is_bounded_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = _Output("std.out", cap=1000)
    os.write(output.target, b"x" * 5000 + b"end")
    while output.pump():
        pass
    content = Path("std.out.1").read_bytes() + Path("std.out").read_bytes()
    assert content.endswith(b"xend")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2000
    assert stat.S_IMODE(Path("std.out").stat().st_mode) & 0o077 == 0
    close(output)


def test_nothing_to_pump(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = _Output("std.err", cap=1000)
    assert not output.pump()
    os.close(output.target)
    assert not output.pump()
    os.close(output.source)
    os.close(output.file)


def test_a_disk_that_takes_nothing_loses_output_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = _Output("std.out", cap=10)
    os.write(output.target, b"0123456789")
    output.pump()
    for path in tmp_path.iterdir():
        path.unlink()  # the next turn to a new file fails
    os.write(output.target, b"abc")
    assert output.pump()
    close(output)


def close(output):
    for descriptor in (output.source, output.target, output.file):
        os.close(descriptor)
