"""Files of a local pilot that a power cut, a disk or a hand damaged: its slot, what is named, what is repaired."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from tests.kits.shell_pilots import same, send
from tests.kits.table import hold_all

from lodesman.decide.resources import QueueId
from lodesman.server.engines import local, local_pilots, pilot_directory, pilot_processes
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.isolation import Isolation
from lodesman.server.engines.keeper import write_json
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory

QUEUE = QueueId("LCG.One.de", "ce.one.de", "long")
HERE = "11111111-2222-3333-4444-555555555555\n"
ANOTHER = "99999999-2222-3333-4444-555555555555\n"


def foreign(whole: bytes) -> bytes:
    """The file of another pilot, or in `uncertain` of nothing."""
    return whole.replace(b"lost-1", b"else-1") if b"lost-1" in whole else b"else-1"


def cut(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": cut,
    "cut by a byte or two": lambda whole: whole[:-2],
    "zeros": lambda whole: bytes(len(whole)),
    "garbage": lambda whole: b"\xff\xfe{" + whole,
    "deep": lambda whole: b"[" * 100_000,
    "of another kind": lambda whole: b"{}",
    "foreign": foreign,
    "huge": lambda whole: whole + bytes(5 << 20),
    "a changed byte": lambda whole: whole.replace(b"1.5", b"7.5") if b"1.5" in whole else whole[1:],
    "a folder": None,
    "a link to itself": None,
    "a FIFO": None,
}


@pytest.fixture
def machine(monkeypatch):
    """The start of the machine, by `now`; what is started is only counted."""
    boot = {"now": HERE}
    monkeypatch.setattr(pilot_directory, "boot_id", lambda: boot["now"])
    monkeypatch.setattr(local_pilots, "sweep", lambda pilots, timeout: set())
    monkeypatch.setattr(local_pilots, "living_processes", dict)
    monkeypatch.setattr(local_pilots, "find_stamps", lambda root, _: set())
    monkeypatch.setattr(local, "launch", lambda directory, **_: None)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    return boot


def lost(root: Path, *, certain=False) -> PilotDirectory:
    """A pilot whose keeper ended without a word, beside another that waits."""
    send(LocalBackend(root, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    pilot = PilotDirectory(root / "lost-1")
    record = {
        "stamp": "lost-1", "queue": list(QUEUE), "keeper": [2**22 + 1, 5], "guard": [2**22 + 2, 5],
        "boot": HERE, "certain": certain, "cgroup": None, "started_at": 1.5,
    }  # fmt: skip
    write_json(str(pilot.path / "keeper.json"), record)
    return pilot


def end(pilot: PilotDirectory) -> None:
    values = {"stamp": "lost-1", "cause": "keeper-lost", "exit_code": None, "message": "", "ended_at": 1.5}
    write_json(str(pilot.path / "ended.json"), values)


def plant(path: Path, damage: str) -> None:
    whole, change = path.read_bytes(), DAMAGE[damage]
    if change:
        path.write_bytes(change(whole))
        assert path.read_bytes() != whole
        return
    path.unlink()
    if damage == "a folder":
        path.mkdir()
        (path / "kept").touch()
    elif damage == "a FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(path)


@pytest.mark.parametrize("boot", [HERE, ANOTHER])
@pytest.mark.parametrize("name", ["entry.json", "keeper.json", "ended.json", "uncertain"])
def test_a_damaged_file_is_named_and_frees_the_slot_after_a_start_of_the_machine_alone(
    tmp_path, machine, name, boot
):
    def check(damage):
        root = tmp_path / damage
        machine["now"] = HERE
        pilot = lost(root)
        if name in {"ended.json", "uncertain"}:
            end(pilot)
        if name == "uncertain":
            (pilot.path / name).write_text(HERE)
        plant(pilot.path / name, damage)
        machine["now"] = boot
        for server in range(2):  # and one that begins later
            backend = LocalBackend(root, {QUEUE: 1})
            backend.tick()
            load = backend.loads([QUEUE])[QUEUE]
            assert (load.waiting, load.running) == (1, int(boot == HERE))
            assert backend.tick() == (() if boot == HERE else ("next-1",))
            if server == 0:
                assert backend.damaged == [f"{name} of pilot lost-1"]
        if name == "uncertain":
            return
        found = PilotDirectory(root / "lost-1").status(2.0)
        assert found.state is NativeState.ENDED
        assert name in found.detail

    hold_all(list(DAMAGE), check)


def test_records_of_two_pilots_that_a_power_cut_emptied_take_no_slots(tmp_path, machine):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "a-1", "b-1", "c-1", "d-1")
    for stamp in ("a-1", "b-1"):
        (tmp_path / stamp / "keeper.json").touch()
    machine["now"] = ANOTHER
    assert LocalBackend(tmp_path, {QUEUE: 2}).tick() == ("c-1", "d-1")


def test_an_end_that_is_damaged_is_recorded_again(tmp_path, machine):
    pilot = lost(tmp_path, certain=True)
    end(pilot)
    (pilot.path / "ended.json").write_bytes(b"")
    assert LocalBackend(tmp_path, {QUEUE: 1}).tick() == ("next-1",), "its keeper left nothing"
    assert pilot.is_ended()
    again = LocalBackend(tmp_path, {QUEUE: 1})
    again.tick()
    assert again.damaged == []


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "foreign"])
def test_a_cancelled_pilot_never_starts_even_if_its_end_is_damaged(tmp_path, machine, damage):
    backend = LocalBackend(tmp_path, {QUEUE: 0})
    send(backend, QUEUE, "lost-1", "next-1")
    assert backend.cancel(same("lost-1")) == {"lost-1": CancelOutcome.REMOVED}
    plant(tmp_path / "lost-1" / "ended.json", damage)
    again = LocalBackend(tmp_path, {QUEUE: 2})
    assert again.tick() == ("next-1",)
    assert again.damaged == ["ended.json of pilot lost-1"]
    assert "ended.json" in again.status(same("lost-1"))["lost-1"].detail


@pytest.mark.parametrize("damage", ["none", "a folder", "a link to itself", "a FIFO"])
def test_one_without_its_lock_never_starts_and_takes_no_slot(tmp_path, machine, damage):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1", "next-1")
    if damage == "none":
        (tmp_path / "lost-1" / "lock").unlink()
    else:
        plant(tmp_path / "lost-1" / "lock", damage)
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    assert backend.tick() == ("next-1",)
    assert backend.damaged == ["lock of pilot lost-1"]
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.ENDED


@pytest.mark.parametrize("damage", ["a file", "a link to itself", "a FIFO", "a link to a folder"])
def test_what_is_no_directory_of_a_pilot_is_named_and_costs_nothing(tmp_path, machine, damage):
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "next-1")
    stranger = tmp_path / "lost-1"
    stranger.touch()
    if damage == "a link to a folder":
        stranger.unlink()
        stranger.symlink_to(tmp_path / "next-1")
    elif damage != "a file":
        plant(stranger, damage)
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    assert backend.tick() == ("next-1",)
    assert backend.damaged == ["the directory of pilot lost-1, which is none"]
    assert backend.census() == same("next-1")
    assert backend.stop_all() == ()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_directory_that_cannot_be_read_costs_its_pilot_alone(tmp_path, machine, monkeypatch, is_known):
    """Each call of the system on it fails, as one of a user without rights, or of a file system that went away."""
    pilot, faults = lost(tmp_path), [errno.EACCES, errno.ESTALE, errno.EPERM, errno.ENOTDIR]
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    if is_known:
        with pilot.locked():
            backend.tick()
    backend.slots = {QUEUE: 2}
    for name in ("open", "stat", "lstat", "rename", "replace", "mkdir", "unlink"):
        real = getattr(os, name)

        def fail(path, *args, real=real, **names):
            if str(path).startswith(str(pilot.path)):
                raise OSError(faults[0], os.strerror(faults[0]), str(path))
            return real(path, *args, **names)

        monkeypatch.setattr(os, name, fail)
    started = []
    for _ in list(faults):
        started += backend.tick()
        load = backend.loads([QUEUE])[QUEUE]
        assert load.running == 1, "what is not known is not zero"
        assert backend.status(same("next-1"))["next-1"].state is NativeState.WAITING
        assert backend.cancel(same("lost-1")) == {"lost-1": CancelOutcome.FAILED}
        assert backend.purge(1e12) == ()
        backend.forget(same("lost-1"))
        assert backend.status(same("lost-1"))["lost-1"].state is NativeState.UNKNOWN
        faults.append(faults.pop(0))
    assert started == ["next-1"] * len(faults)
    assert {words.partition(" (")[0] for words in backend.damaged} == {"the directory of pilot lost-1"}


def test_one_that_runs_is_not_ended_because_its_submission_is_damaged(tmp_path, machine):
    pilot = lost(tmp_path)
    (pilot.path / "entry.json").write_bytes(b"")
    with pilot.locked():
        backend = LocalBackend(tmp_path, {QUEUE: 1})
        assert backend.tick() == ()
        assert backend.loads([QUEUE])[QUEUE].running == 1
        assert backend.status(same("lost-1"))["lost-1"].state is NativeState.RUNNING
        (pilot.path / "keeper.json").write_bytes(b"")
        again = LocalBackend(tmp_path, {QUEUE: 1})
        assert again.tick() == (), "it may have a slot of any queue"
        assert again.loads([QUEUE])[QUEUE].running == 1
        assert again.status(same("lost-1"))["lost-1"].state is NativeState.RUNNING
        assert again.damaged == ["entry.json, keeper.json of pilot lost-1"]
    again.tick()
    assert again.status(same("lost-1"))["lost-1"].state is NativeState.ENDED


def test_a_submission_that_is_damaged_after_it_was_read_ends_that_pilot_alone(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(local, "launch", pilot_processes.launch)
    monkeypatch.setattr(pilot_processes, "_spawn", lambda *_: 2**22 + 1)
    backend = LocalBackend(tmp_path, {QUEUE: 0}, cgroups=False)
    send(backend, QUEUE, "lost-1", "next-1")
    (tmp_path / "lost-1" / "entry.json").write_bytes(b"")
    backend.slots = {QUEUE: 1}
    assert backend.tick() == ("next-1",)
    backend.tick()
    assert backend.damaged == ["entry.json of pilot lost-1"]
    assert backend.status(same("lost-1"))["lost-1"].state is NativeState.ENDED


def test_a_pilot_belongs_to_the_start_of_the_machine_in_which_its_keeper_began(
    tmp_path, machine, monkeypatch
):
    """It waited since the one before. Were `keeper.json` lost now, its slot would be free while processes of it live."""
    send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "lost-1")
    pilot, synced = PilotDirectory(tmp_path / "lost-1"), []
    assert pilot.entry().boot == HERE
    machine["now"] = ANOTHER
    monkeypatch.setattr(os, "fsync", synced.append)
    seen = []
    monkeypatch.setattr(
        pilot_processes, "_spawn", lambda *_: seen.append((pilot.entry().boot, len(synced))) or 1
    )
    pilot_processes.launch(pilot, python="", cgroups=False, isolation=Isolation())
    assert seen == [(ANOTHER, 2)], "on the disk, file and folder, before the keeper begins"
    assert pilot.is_of_this_boot()
    pilot_processes.launch(pilot, python="", cgroups=False, isolation=Isolation())
    assert seen[1:] == [(ANOTHER, 2)], "and in general without a write"


# --- what a start needs, and what others see meanwhile ------------------------------------------------------


@pytest.fixture
def spawned(machine, monkeypatch):
    """The pilots whose keepers are started, and do not run."""
    found = []
    monkeypatch.setattr(local, "launch", pilot_processes.launch)
    monkeypatch.setattr(
        os, "posix_spawn", lambda _python, words, *_, **__: found.append(Path(words[4]).name) or 2**22
    )
    return found


AT_A_START = [
    ("keeper.log", "a folder"), ("keeper.log", "a link to itself"), ("keeper.log", "a FIFO"),
    *[("work/pilot.json", one) for one in ("a folder", "a link to itself", "a FIFO", "empty", "cut", "garbage", "huge")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), AT_A_START)
def test_what_a_start_needs_is_looked_at_and_its_pilot_ends_named(tmp_path, spawned, name, damage):
    backend = LocalBackend(tmp_path, {QUEUE: 0}, cgroups=False)
    send(backend, QUEUE, "lost-1", "next-1")
    (tmp_path / "lost-1" / "keeper.log").touch()
    plant(tmp_path / "lost-1" / name, damage)
    backend.slots = {QUEUE: 2}
    assert backend.tick() == ("next-1",)
    assert spawned == ["next-1"]
    assert backend.damaged == [f"{Path(name).name} of pilot lost-1"]
    status = backend.status(same("lost-1"))["lost-1"]
    assert (status.state, Path(name).name in status.detail) == (NativeState.ENDED, True)


def test_no_pilot_has_the_file_of_another(tmp_path, spawned):
    backend = LocalBackend(tmp_path, {QUEUE: 0}, cgroups=False)
    send(backend, QUEUE, "a-1", "b-1", "c-1")
    first, second, third = (tmp_path / stamp / "work" for stamp in ("a-1", "b-1", "c-1"))
    shutil.copy(third / "pilot.json", first / "pilot.json")
    second.rename(tmp_path / ".aside")
    second.symlink_to(tmp_path / ".aside")
    backend.slots = {QUEUE: 3}
    assert backend.tick() == ("c-1",)
    assert backend.damaged == ["pilot.json of pilot a-1", "pilot.json of pilot b-1"]


@pytest.mark.parametrize(
    "damage", ["a folder", "a link to itself", "a FIFO", "empty", "cut", "a file above", "a link above"]
)
def test_a_damaged_program_starts_no_pilot_and_is_written_again(tmp_path, spawned, damage):
    backend = LocalBackend(tmp_path, {QUEUE: 0}, cgroups=False)
    send(backend, QUEUE, "lost-1")
    (program,) = tmp_path.glob(".programs/*/pilot.pyz")
    if damage.endswith("above"):
        shutil.rmtree(program.parent)
        program.parent.touch() if damage == "a file above" else program.parent.symlink_to("nowhere")
    else:
        plant(program, damage)
    backend.slots = {QUEUE: 2}
    assert backend.tick() == ()
    assert backend.damaged == ["pilot.pyz of local pilots"]
    assert set(send(backend, QUEUE, "next-1").accepted) == {"next-1"}
    assert spawned == ["next-1"]
    assert backend.damaged[1:] == ["pilot.pyz of local pilots, which was written again"]


@pytest.mark.parametrize("name", ["entry.json", "keeper.json", "lock"])
def test_one_file_without_rights_costs_its_pilot_alone(tmp_path, machine, monkeypatch, name):
    """The other files of its directory can be read. Its keeper and guard were killed."""
    pilot = lost(tmp_path)
    backend = LocalBackend(tmp_path, {QUEUE: 2})
    real = os.open

    def fail(path, *args, **names):
        if str(path) == str(pilot.path / name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **names)

    monkeypatch.setattr(os, "open", fail)
    assert backend.tick() == ("next-1",)
    assert backend.loads([QUEUE])[QUEUE].running == 1
    assert backend.cancel(same("lost-1", "next-1"))["next-1"] is CancelOutcome.REMOVED
    backend.stop_all(grace_seconds=0.0, deadline_seconds=0.0)
    assert backend.damaged == [f"{name} of pilot lost-1"]


def test_a_pilot_whose_directory_goes_while_it_runs_keeps_its_slot(tmp_path, machine, monkeypatch):
    pilot = lost(tmp_path)
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    with pilot.locked():
        assert backend.tick() == ()
    shutil.move(pilot.path, tmp_path / ".aside")
    monkeypatch.setattr(local_pilots, "find_marked", lambda paths, _: dict(enumerate(paths)))
    assert backend.tick() == ()
    assert backend.loads([QUEUE])[QUEUE].running == 1
    assert backend.damaged == ["the directory of pilot lost-1, which is gone while it runs"]
    monkeypatch.setattr(local_pilots, "find_marked", lambda paths, _: {})
    assert backend.tick() == ("next-1",)


def test_what_a_killed_submission_left_goes_whatever_it_is(tmp_path, machine):
    backend = LocalBackend(tmp_path, {QUEUE: 1})
    (tmp_path / ".new-lost-1").touch()
    (tmp_path / ".new-next-1").mkdir()
    assert set(send(LocalBackend(tmp_path, {QUEUE: 0}), QUEUE, "next-1").accepted) == {"next-1"}
    (tmp_path / ".gone-else-1").symlink_to("nowhere")
    (tmp_path / ".gone-else-2").symlink_to(tmp_path)
    backend.tick()
    assert set(send(backend, QUEUE, "lost-1").accepted) == {"lost-1"}
    assert not list(tmp_path.glob(".gone-*"))
