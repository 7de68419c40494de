"""Each value of each record of a local pilot, forged in turn, costs that pilot alone and harms nobody where it is used."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path

import pytest
from tests.kits.shell_pilots import same, send
from tests.kits.table import hold_all

from lodesman.decide.resources import QueueId
from lodesman.server.engines import keeper, local, local_pilots, pilot_directory, pilot_processes
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory
from lodesman.server.engines.pilot_records import EndRecord, Entry, StartRecord, sayable

QUEUE = QueueId("LCG.One.de", "ce.one.de", "long")
HERE = "11111111-2222-3333-4444-555555555555\n"
HUGE = "9" * 400
# As JSON: what each value becomes.
FORGED = {
    "NUL": '"a\\u0000b"', "a lone surrogate": '"\\ud800"', "a long text": f'"{"x" * 100_000}"', "a text": '"x"',
    "a huge number": HUGE, "a large number": "9e300", "a negative number": "-5", "NaN": "NaN", "infinity": "Infinity",
    "nothing": "null", "a list": "[]", "a mapping": "{}", "a list of odd things": '[-1, "\\ud800", null]',
    "a mapping of odd things": '{"a\\u0000": "\\ud800"}', "yes": "true", "two numbers": f"[{HUGE}, 1]",
    "three texts": '["\\ud800", "a", "b"]', "one text": '["\\u0000"]',
}  # fmt: skip
RECORDS = {"entry.json": Entry, "keeper.json": StartRecord, "ended.json": EndRecord}


@pytest.fixture
def machine(monkeypatch):
    """Nothing is started, and no process of this machine is one of a pilot."""
    monkeypatch.setattr(pilot_directory, "boot_id", lambda: HERE)
    monkeypatch.setattr(pilot_processes, "living_processes", dict)
    monkeypatch.setattr(local_pilots, "living_processes", dict)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    monkeypatch.setattr(pilot_processes, "_spawn", lambda *_: 2**22 + 1)
    return monkeypatch


def written(root: Path) -> PilotDirectory:
    """A pilot with all its records but the last, beside one that waits."""
    send(LocalBackend(root, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    pilot = PilotDirectory(root / "lost-1")
    record = {
        "stamp": "lost-1", "queue": list(QUEUE), "keeper": [2**22 + 1, 5], "guard": [2**22 + 2, 5],
        "pilot": None, "boot": HERE, "certain": False, "cgroup": None, "started_at": 1.5,
    }  # fmt: skip
    keeper.write_json(str(pilot.path / "keeper.json"), record)
    return pilot


def forge(pilot: PilotDirectory, name: str, key: str, value: str) -> None:
    """As somebody would who writes no check sum."""
    path = pilot.path / name
    if name == "ended.json":
        pilot.write_end("exit")
    if name == "entry.json":
        (pilot.path / "keeper.json").unlink()
    record = json.loads(path.read_bytes())
    del record["crc32"]
    words = json.dumps({**record, key: "FORGED"}).replace('"FORGED"', value)
    path.write_text(words)


def hold_harmless(root: Path) -> None:
    """All calls answer, and what is said of the pilot can be written anywhere."""
    backend = LocalBackend(root, {QUEUE: 3}, cgroups=False)
    assert "next-1" in backend.tick()
    load = backend.loads([QUEUE])[QUEUE]
    assert (load.running or 0) + (load.waiting or 0) <= 2
    status = backend.status(same("lost-1", "next-1"))["lost-1"]
    assert len(status.detail) < 5_000
    for text in (status.detail, status.word, status.host, *backend.damaged):
        assert "\0" not in text.encode().decode()
    times = (status.started_at, status.ended_at, status.observed_at)
    assert all(one is None or (math.isfinite(one) and 0 <= one < 1e12) for one in times)
    assert -(2**31) < (status.exit_code or 0) < 2**31
    assert set(backend.output("lost-1", "lost-1") or b"") == set()
    backend.cancel(same("lost-1"))
    backend.purge(1.0)
    backend.stop_all(grace_seconds=0.0, deadline_seconds=0.0)
    backend.tick()
    state = backend.status(same("lost-1"))["lost-1"].state
    assert state is NativeState.ENDED
    backend.forget(same("lost-1"))


@pytest.mark.parametrize("value", list(FORGED))
@pytest.mark.parametrize("name", list(RECORDS))
def test_a_forged_value_costs_its_pilot_alone(tmp_path, machine, name, value):
    def check(key):
        root = tmp_path / key
        pilot = written(root)
        forge(pilot, name, key, FORGED[value])
        hold_harmless(root)

    hold_all(RECORDS[name].__struct_fields__, check)


def test_a_value_that_is_deep_or_long_is_damage(tmp_path, machine):
    pilot = written(tmp_path)
    for words in (
        f'{{"crc32": 1, "a": {"[" * 900}{"]" * 900}}}',
        f'{{"cause": "exit", "message": "{"x" * (5 << 20)}"}}',
    ):
        (pilot.path / "ended.json").write_text(words)
        assert pilot.damaged() == ["ended.json"]
        assert not pilot.is_ended()


def test_each_message_is_kept_as_text_that_any_database_takes(tmp_path, machine):
    """A path has bytes that are no UTF-8."""
    pilot = written(tmp_path)
    pilot.write_end("not-started", os.fsdecode(b"/home/\xff/a\0b is damaged") + "x" * 10_000)
    assert pilot.status(1.0).detail.startswith("/home/\\udcff/ab is damaged")
    assert len(pilot.status(1.0).detail) < 5_000
    assert sayable("") == ""


def test_an_environment_may_have_bytes_that_are_no_text(tmp_path, machine):
    machine.setenv("HOME", os.fsdecode(b"/home/\xff"))
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1")
    assert PilotDirectory(tmp_path / "lost-1").entry().environment["HOME"] == os.fsdecode(b"/home/\xff")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_cgroup_of_another_name_is_not_killed(tmp_path, machine, is_own):
    """Forged, or of the server from whose folder this one was copied."""
    killed = []
    machine.setattr(pilot_processes, "kill_cgroup", killed.append)
    machine.setattr(pilot_processes, "remove_cgroup", lambda _: None)
    root, copy = tmp_path / "p", tmp_path / "copy"
    pilot = written(root)
    made = []
    machine.setattr(pilot_processes, "make_cgroup", lambda name: made.append(f"/sys/fs/cgroup/a/{name}"))
    record = pilot.record()
    (pilot.path / "keeper.json").unlink()
    backend = LocalBackend(root, {QUEUE: 1})
    assert backend.tick() == ("lost-1",)
    keeper.write_json(str(pilot.path / "keeper.json"), {**record, "cgroup": made[0]})
    if not is_own:
        root.rename(copy)
    LocalBackend(root if is_own else copy, {QUEUE: 0}).tick()
    assert killed == (made[:1] if is_own else [])


@pytest.mark.parametrize("damage", ["a folder", "a link to itself", "a link to nothing", "a socket", "none"])
def test_a_lock_of_all_pilots_that_is_no_file_is_made_again(tmp_path, machine, damage):
    backend, lock = LocalBackend(tmp_path, {QUEUE: 0}), tmp_path / ".lock"
    if damage == "a folder":
        (lock / "a" / "b").mkdir(parents=True)
    elif damage == "a socket":
        os.mknod(lock, 0o600 | stat.S_IFSOCK)
    elif damage != "none":
        lock.symlink_to(lock if damage == "a link to itself" else tmp_path / "nowhere" / "file")
    assert set(send(backend, QUEUE, "next-1").accepted) == {"next-1"}
    assert lock.is_file()
    assert backend.damaged == ([] if damage == "none" else ["the lock of local pilots, which was made again"])


@pytest.mark.parametrize("damage", ["a file", "a link to itself", "a link to nothing", "a link to a folder"])
def test_a_folder_of_programs_that_is_none_is_made_again(tmp_path, machine, damage):
    backend, programs = LocalBackend(tmp_path, {QUEUE: 0}), tmp_path / ".programs"
    (tmp_path / ".aside").mkdir()
    if damage == "a file":
        programs.touch()
    else:
        there = {"a link to itself": programs, "a link to a folder": tmp_path / ".aside"}
        programs.symlink_to(there.get(damage, tmp_path / "nowhere"))
    assert set(send(backend, QUEUE, "next-1").accepted) == {"next-1"}
    named = [] if damage == "a link to a folder" else ["pilot.pyz of local pilots, which was written again"]
    assert backend.damaged == named


def test_a_folder_of_programs_that_cannot_be_written_is_named(tmp_path, machine):
    def fail(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "programs")

    machine.setattr(local, "keep_program", fail)
    backend = LocalBackend(tmp_path, {QUEUE: 0})
    assert set(send(backend, QUEUE, "next-1").refused) == {"next-1"}
    assert backend.damaged == ["the folder of programs of local pilots (Permission denied)"]


@pytest.mark.parametrize("damage", ["a folder", "a link to itself", "a FIFO"])
def test_one_that_runs_is_ordered_to_end_whatever_lies_there(tmp_path, machine, damage):
    pilot = written(tmp_path)
    order = pilot.path / "cancel"
    if damage == "a folder":
        order.mkdir()
    elif damage == "a FIFO":
        os.mkfifo(order)
    else:
        order.symlink_to(order)
    with pilot.locked():
        assert LocalBackend(tmp_path, {QUEUE: 0}).cancel(same("lost-1")) == {"lost-1": CancelOutcome.ORDERED}
    assert order.is_file()


def test_output_is_written_to_files_alone(tmp_path, monkeypatch):
    """A keeper that waited for the reader of a FIFO would keep its slot for ever."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("std.out")
    Path("std.err").symlink_to(tmp_path / "else")
    for name in ("std.out", "std.err"):
        with pytest.raises(OSError, match=name):
            keeper._Output(name, 10)
    assert not (tmp_path / "else").exists()
