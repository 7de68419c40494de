"""The keeper's parts: children reaped, records written, output bounded. Whole lives are in tests/e2e."""

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

from lodesman.base import kernel, processes
from lodesman.server.engines import keeper, namespaces
from lodesman.server.engines.keeper import _chase_children, _Output, read_json, write_json


@pytest.mark.parametrize("module", [keeper, namespaces, kernel, processes])
def test_it_needs_only_what_travels_with_it(module):
    tree = ast.parse(Path(module.__file__).read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    shipped = {"lodesman.base", "lodesman.base.processes", "lodesman.server.engines"}
    assert {name.partition(".")[0] for name in names - shipped} <= sys.stdlib_module_names | {"__future__"}
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


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
