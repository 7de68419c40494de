"""The local backend before anything runs: slots, refusals, order, upkeep. No process is started here."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.shell_pilots import PROGRAM, send, shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import local, local_pilots, pilot_processes
from lodesman.server.engines.backend import BatchLoad, CancelOutcome, NativeState
from lodesman.server.engines.keeper import read_json, write_json
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory

QUEUE = QueueId("LCG.One.de", "ce.one.de", "long")
OTHER = QueueId("LCG.Two.fr", "ce.two.fr", "short")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "pilots"


@pytest.fixture
def backend(root):
    """Its queues have no slot, so that nothing ever starts."""
    return LocalBackend(root, {QUEUE: 0, OTHER: 0}, clock=lambda: 1000.0)


def load_of(backend, queue=QUEUE):
    return backend.loads([queue])[queue]


def idle_load(**numbers):
    found = {"waiting": 0, "running": 0, "held": 0, "others_waiting": 0, "others_running": 0, "slots": 0}
    return BatchLoad(observed_at=1000.0, **(found | numbers))


def same(*stamps):
    """Stamp -> native id, which are equal."""
    return {stamp: stamp for stamp in stamps}


class TestSubmit:
    def test_all_is_private(self, backend, root):
        assert send(backend, QUEUE, "s1-1").accepted == {"s1-1": "s1-1"}
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        for path in (root / "s1-1").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

    def test_the_secret_is_in_its_own_file_only(self, backend, root):
        send(backend, QUEUE, "s1-1", script="hush-hush")
        holding = [
            path.name
            for path in (root / "s1-1").rglob("*")
            if path.is_file() and b"hush" in path.read_bytes()
        ]
        assert holding == ["pilot.json"]

    def test_the_command_names_the_program_the_pilots_file_and_the_copy(self, backend, root):
        send(backend, QUEUE, "s1-1")
        (program,) = (root / ".programs").glob("*/pilot.pyz")
        assert json.loads((root / "s1-1" / "entry.json").read_text())["argv"] == [
            "python3",
            "-I",
            str(program),
            "--file",
            str(root / "s1-1" / "work" / "pilot.json"),
            "--copy",
            "1",
        ]
        assert program.read_bytes() == PROGRAM
        assert stat.S_IMODE(program.stat().st_mode) == 0o755

    @pytest.mark.parametrize("left", [b"", PROGRAM[:-1], b"another" * 100])
    def test_a_program_that_a_power_cut_damaged_is_written_again(self, backend, root, left):
        send(backend, QUEUE, "s1-1")
        (program,) = (root / ".programs").glob("*/pilot.pyz")
        program.write_bytes(left)
        send(backend, QUEUE, "s2-1")
        assert program.read_bytes() == PROGRAM
        assert [path.name for path in program.parent.iterdir()] == ["pilot.pyz"]
        assert backend.damaged == ["pilot.pyz of local pilots, which was written again"]

    def test_what_a_pilot_is_started_by_is_on_the_disk_when_it_is_stored(self, backend, root, monkeypatch):
        synced = set()

        def fsync(descriptor):
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            synced.add(name.removeprefix(".").partition(".pyz.")[0])

        monkeypatch.setattr(os, "fsync", fsync)
        send(backend, QUEUE, "s1-1")
        assert {"pilot", "pilot.json", "entry.json"} <= synced

    def test_the_servers_secrets_stay_here(self, backend, root, monkeypatch):
        monkeypatch.setenv("PGPASSWORD", "hush")
        monkeypatch.setenv("LANG", "C.UTF-8")
        send(
            backend, QUEUE, "s1-1", environment={"X": "1", "LODESMAN_STAMP": "forged", "LODESMAN_PILOTS": "x"}
        )
        environment = json.loads((root / "s1-1" / "entry.json").read_text())["environment"]
        assert environment["LODESMAN_STAMP"] == "s1-1"
        assert environment["LODESMAN_PILOTS"] == pilot_processes.root_mark(root)
        assert (environment["X"], environment["LANG"]) == ("1", "C.UTF-8")
        assert "PGPASSWORD" not in environment

    @pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "a\0", "ß", "x" * 49, "a.b", "-\n", "a-b"])
    def test_a_hostile_name_is_refused(self, backend, root, name):
        result = send(backend, QUEUE, "s1-1", f"{name}-1", "s2-1")
        assert sorted(result.accepted) == ["s1-1", "s2-1"]
        assert not result.refused[f"{name}-1"].transient
        assert {path.name for path in root.iterdir()} == {".lock", ".programs", "s1-1", "s2-1"}

    @given(st.builds(QueueId, st.text(), st.text(), st.text()))
    def test_any_queue_name(self, tmp_path_factory, queue):
        root = tmp_path_factory.mktemp("any") / "pilots"
        backend = LocalBackend(root, {queue: 0})
        assert send(backend, queue, "s1-1").refused == {}
        again = LocalBackend(root, {queue: 0})
        assert load_of(again, queue).waiting == 1
        assert {path.name for path in root.parent.iterdir()} == {"pilots"}

    def test_an_unknown_queue_never_works(self, backend):
        refusal = send(backend, QueueId("a", "b", "c"), "s1-1").refused["s1-1"]
        assert not refusal.transient
        assert "a/b/c" in refusal.reason

    def test_a_command_that_never_works(self, backend):
        result = send(backend, QUEUE, "s1-1", "s2-1", python="py\0thon")
        assert {stamp: refusal.transient for stamp, refusal in result.refused.items()} == {
            "s1-1": False,
            "s2-1": False,
        }

    def test_a_stamp_is_taken_once(self, backend):
        send(backend, QUEUE, "s1-1")
        assert not send(backend, QUEUE, "s1-1").refused["s1-1"].transient
        twice = send(backend, QUEUE, "s2-1", "s2-1")
        assert twice.accepted == {"s2-1": "s2-1"}

    def test_no_copies(self, backend):
        assert backend.submit(shell_spec(QUEUE, "s1", count=0)).accepted == {}

    def test_a_place_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("not a directory")
        backend = LocalBackend(tmp_path / "file" / "pilots", {QUEUE: 1})
        result = send(backend, QUEUE, "s1-1", "s2-1")
        assert result.accepted == {}
        assert {stamp: refusal.transient for stamp, refusal in result.refused.items()} == {
            "s1-1": True,
            "s2-1": True,
        }
        assert "Not a directory" in result.refused["s1-1"].reason

    def test_a_full_disk_refuses_each_copy_for_now(self, backend, monkeypatch):
        real = PilotDirectory.create

        def full(directory, entry, pilot_file, *, mode):
            if directory.stamp == "s2-1":
                raise OSError(28, "No space left on device", str(directory.path))
            real(directory, entry, pilot_file, mode=mode)

        monkeypatch.setattr(PilotDirectory, "create", full)
        result = send(backend, QUEUE, "s1-1", "s2-1", "s3-1")
        assert sorted(result.accepted) == ["s1-1", "s3-1"]
        assert result.refused["s2-1"].transient
        assert "No space left" in result.refused["s2-1"].reason
        monkeypatch.undo()
        assert send(backend, QUEUE, "s2-1").accepted == {"s2-1": "s2-1"}

    def test_many_threads_and_backends_at_once(self, backend, root):
        others = [LocalBackend(root, {QUEUE: 0}) for _ in range(3)]
        results = []

        def run(number):
            stamps = [f"both{i}-1" for i in range(10)] + [f"own{number}{i}-1" for i in range(5)]
            results.append(send((backend, *others)[number], QUEUE, *stamps))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        accepted = [stamp for result in results for stamp in result.accepted]
        assert len(accepted) == len(set(accepted)) == 10 + 4 * 5
        assert load_of(backend, QUEUE).waiting == 30

    def test_one_waits_for_the_other(self, backend, root):
        other = LocalBackend(root, {QUEUE: 0})
        thread = threading.Thread(target=send, args=(other, QUEUE, "s1-1"))
        with backend._exclusive():
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
            assert backend.census() == {}
        thread.join(30)
        assert backend.census() == {"s1-1": "s1-1"}


class TestStatus:
    def test_waiting_is_real(self, backend):
        send(backend, QUEUE, "s1-1")
        status = backend.status(same("s1-1"))["s1-1"]
        assert (status.state, status.observed_at, status.exit_code) == (NativeState.WAITING, 1000.0, None)

    @pytest.mark.parametrize("native_id", ["nobody", "", "..", ".lock", "../pilots/s1", "\0"])
    def test_not_listed_is_unknown(self, backend, native_id):
        send(backend, QUEUE, "s1-1")
        assert backend.status(same(native_id))[native_id].state is NativeState.UNKNOWN
        assert backend.cancel(same(native_id)) == {native_id: CancelOutcome.UNKNOWN}

    def test_no_news_when_it_cannot_be_read(self, backend, monkeypatch):
        send(backend, QUEUE, "s1-1")

        def broken(directory, now):
            raise fault

        monkeypatch.setattr(PilotDirectory, "status", broken)
        fault = OSError(errno.EMFILE, "Too many open files", "s1-1")
        with pytest.raises(BackendFault) as caught:
            backend.status(same("s1-1"))
        assert caught.value.data["transient"]
        fault = OSError(errno.EIO, "Input/output error", "s1-1")
        assert backend.status(same("s1-1"))["s1-1"].state is NativeState.UNKNOWN
        assert backend.damaged == ["the directory of pilot s1-1 (Input/output error)"]

    def test_no_news_when_the_root_is_gone(self, backend, root):
        (root / ".lock").unlink(missing_ok=True)
        root.rmdir()
        asks = (
            backend.census, backend.tick, lambda: backend.cancel(same("s1-1")), lambda: backend.purge(0.0),
            lambda: backend.loads([QUEUE]), lambda: backend.forget(same("s1-1")),
        )  # fmt: skip
        for ask in asks:
            with pytest.raises(BackendFault):
                ask()

    def test_load_counts_one_queue(self, backend):
        send(backend, QUEUE, "s1-1", "s2-1")
        send(backend, OTHER, "s3-1")
        assert load_of(backend, QUEUE) == idle_load(waiting=2)
        assert load_of(backend, OTHER).waiting == 1
        assert load_of(backend, QueueId("no", "such", "queue")).waiting == 0

    def test_census(self, backend, root):
        send(backend, QUEUE, "s1-1", "s2-1")
        (root / ".new-s9").mkdir()
        (root / "not a stamp").mkdir()
        assert backend.census() == {"s1-1": "s1-1", "s2-1": "s2-1"}


class TestCancel:
    def test_one_that_waits_never_starts(self, backend):
        send(backend, QUEUE, "s1-1")
        assert backend.cancel(same("s1-1")) == {"s1-1": CancelOutcome.REMOVED}
        assert backend.cancel(same("s1-1")) == {"s1-1": CancelOutcome.ENDED}
        backend.slots[QUEUE] = 5
        assert backend.tick() == ()
        assert backend.status(same("s1-1"))["s1-1"].detail == "cancelled before it started"

    def test_a_full_disk_fails_the_cancel(self, backend, monkeypatch):
        send(backend, QUEUE, "s1-1")

        def full(directory, cause, message=""):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(PilotDirectory, "write_end", full)
        assert backend.cancel(same("s1-1")) == {"s1-1": CancelOutcome.FAILED}

    def test_an_order_is_left_for_a_keeper_that_is_still_starting(self, backend, root):
        send(backend, QUEUE, "s1-1")
        with PilotDirectory(root / "s1-1").locked():
            assert backend.cancel(same("s1-1")) == {"s1-1": CancelOutcome.ORDERED}
        assert (root / "s1-1" / "cancel").exists()

    def test_an_order_is_left_before_a_starting_keeper_is_sought(self, backend, root, monkeypatch):
        """It writes its record, then looks for an order: one of both sees the other."""
        send(backend, QUEUE, "s1-1")
        orders = []

        def record_after_this(pilot):
            orders.append((pilot.path / "cancel").exists())
            return []

        monkeypatch.setattr(PilotDirectory, "processes", record_after_this)
        with PilotDirectory(root / "s1-1").locked():
            assert backend.cancel(same("s1-1")) == {"s1-1": CancelOutcome.ORDERED}
        assert orders[-1] is True


class TestUpkeep:
    def launched(self, monkeypatch):
        """The stamps that are handed to keepers, in order; each one then holds its lock."""
        stamps = []
        held = []

        def launch(directory, *, python, cgroups, isolation):
            stamps.append(directory.stamp)
            held.append(os.open(directory.path / "keeper.json", os.O_WRONLY | os.O_CREAT, 0o600))
            context = directory.locked()
            assert context.__enter__() is not None
            held.append(context)

        monkeypatch.setattr(local, "launch", launch)
        return stamps

    def test_first_come_first_served_within_the_slots(self, backend, monkeypatch):
        stamps = self.launched(monkeypatch)
        send(backend, QUEUE, "z-1", "a-1")
        send(backend, OTHER, "o1-1", "o2-1")
        send(backend, QUEUE, "m-1", "b-1")
        backend.slots = {QUEUE: 3, OTHER: 1}
        assert backend.tick() == ("z-1", "a-1", "o1-1", "m-1")
        assert backend.tick() == ()
        assert stamps == ["z-1", "a-1", "o1-1", "m-1"]
        assert load_of(backend, QUEUE).running == 3

    def test_order_survives_a_restart(self, backend, root, monkeypatch):
        self.launched(monkeypatch)
        send(backend, QUEUE, "z-1", "a-1")
        again = LocalBackend(root, {QUEUE: 0})
        send(again, QUEUE, "b-1")
        again.slots[QUEUE] = 3
        assert again.tick() == ("z-1", "a-1", "b-1")

    def test_a_queue_that_is_no_longer_configured_starts_nothing(self, backend, monkeypatch):
        stamps = self.launched(monkeypatch)
        send(backend, QUEUE, "s1-1")
        del backend.slots[QUEUE]
        assert backend.tick() == ()
        assert stamps == []
        assert load_of(backend, QUEUE).waiting == 1

    def test_a_start_that_fails_is_tried_again(self, backend, monkeypatch):
        def full(directory, **_):
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(local, "launch", full)
        send(backend, QUEUE, "s1-1")
        backend.slots[QUEUE] = 1
        for _ in range(10):
            assert backend.tick() == ()
        assert backend.status(same("s1-1"))["s1-1"].state is NativeState.WAITING

    def test_a_keeper_that_never_starts_is_given_up(self, backend, monkeypatch):
        monkeypatch.setattr(local, "launch", lambda directory, **_: 2**22 + 1)
        send(backend, QUEUE, "s1-1", "s2-1")
        backend.slots[QUEUE] = 1
        for _ in range(local_pilots.MOST_LAUNCHES):
            assert backend.tick() == ("s1-1",)
        assert backend.tick() == ("s2-1",), "what is given up holds no slot"
        status = backend.status(same("s1-1"))["s1-1"]
        assert (status.state, status.detail) == (
            NativeState.ENDED,
            "its keeper cannot start (see keeper.log)",
        )

    @pytest.mark.parametrize("record", [{"certain": True}, {"certain": False}])
    def test_a_lost_pilot_is_swept_and_frees_its_slot(self, backend, root, monkeypatch, record):
        lost = f"lost_{os.getpid()}-1"
        send(backend, QUEUE, lost, "s2-1")
        record |= {
            "keeper": [2**22 + 1, 5],
            "guard": [2**22 + 2, 5],
            "boot": "99999999-2222-3333-4444-555555555555\n",
            "started_at": 1.0,
        }
        (root / lost / "keeper.json").write_text(json.dumps(record))
        assert backend.status(same(lost))[lost].state is NativeState.UNKNOWN
        assert load_of(backend, QUEUE) == idle_load(waiting=1, running=1)
        stamps = self.launched(monkeypatch)
        backend.slots[QUEUE] = 1
        assert backend.tick() == ("s2-1",)
        assert stamps == ["s2-1"]
        assert "keeper" in backend.status(same(lost))[lost].detail

    def test_what_may_have_left_processes_keeps_its_slot_until_someone_acts(self, backend, root, monkeypatch):
        """Without a PID namespace nothing says what a killed keeper left."""
        lost = f"lost_{os.getpid()}-1"
        send(backend, QUEUE, lost, "s2-1")
        (root / lost / "keeper.json").write_text("{}")
        self.launched(monkeypatch)
        backend.slots[QUEUE] = 1
        assert backend.tick() == ()
        found = backend.status(same(lost))[lost]
        assert found.state is NativeState.ENDED
        assert "may have left processes" in found.detail
        again = LocalBackend(root, {QUEUE: 1})
        assert again.tick() == ()
        assert (load_of(again, QUEUE).waiting, load_of(again, QUEUE).running) == (1, 1)
        assert again.purge(float("inf")) == ()
        assert str(root / lost / "uncertain") in found.detail
        (root / lost / "uncertain").unlink()
        assert again.tick() == ("s2-1",)

    def test_the_slot_is_free_after_a_restart_of_the_machine(self, backend, root, monkeypatch):
        lost = f"lost_{os.getpid()}-1"
        send(backend, QUEUE, lost, "s2-1")
        (root / lost / "keeper.json").write_text("{}")
        self.launched(monkeypatch)
        backend.slots[QUEUE] = 1
        backend.tick()
        (root / lost / "uncertain").write_text("0" * 36 + "\n")
        assert backend.tick() == ("s2-1",)

    def test_a_closed_backend_starts_nothing_and_ends_what_waits(self, backend, root, monkeypatch):
        send(backend, QUEUE, "s1-1")
        self.launched(monkeypatch)
        backend.slots[QUEUE] = 1
        backend.closed = lambda: "jobs are not isolated"
        assert backend.tick() == ()
        assert backend.status(same("s1-1"))["s1-1"].detail == "jobs are not isolated"
        assert send(backend, QUEUE, "s2-1").refused["s2-1"].reason == "jobs are not isolated"

    def test_a_lost_pilot_that_cannot_be_swept_keeps_its_slot(self, backend, root, monkeypatch):
        lost = f"lost_{os.getpid()}-1"
        send(backend, QUEUE, lost, "s2-1")
        (root / lost / "keeper.json").write_text("{}")
        monkeypatch.setattr(local_pilots, "sweep", lambda pilots, timeout: {lost})
        backend.slots[QUEUE] = 1
        assert backend.tick() == ()
        assert backend.status(same(lost))[lost].state is NativeState.UNKNOWN

    @pytest.mark.parametrize("text", ["", "{}", "null"])
    def test_one_that_a_power_cut_damaged_has_ended(self, backend, root, text):
        send(backend, QUEUE, "s1-1", "s2-1")
        (root / "s1-1" / "entry.json").write_text(text)
        again = LocalBackend(root, {QUEUE: 0})
        assert load_of(again, QUEUE).waiting == 1
        ended = again.status(same("s1-1"))["s1-1"]
        assert ended.state is NativeState.ENDED
        assert "entry.json of s1-1" in ended.detail
        assert again.damaged == ["entry.json of pilot s1-1"]

    def test_half_done_work_is_removed(self, backend, root):
        send(backend, QUEUE, "s1-1")
        for name in (".new-s2", ".gone-s3"):
            (root / name / "work").mkdir(parents=True)
        backend.tick()
        assert {path.name for path in root.iterdir()} == {".lock", ".programs", "s1-1"}

    def test_purge_removes_only_jobs_that_ended_long_ago(self, backend, root):
        send(backend, QUEUE, "old-1", "new-1", "waits-1")
        backend.cancel(same("old-1", "new-1"))
        path = str(root / "old-1" / "ended.json")
        write_json(path, {**read_json(path), "ended_at": 100.0})
        assert backend.purge(before=200.0) == ("old-1",)
        assert sorted(backend.census()) == ["new-1", "waits-1"]
        assert backend.status(same("old-1"))["old-1"].state is NativeState.UNKNOWN
        assert backend.purge(before=200.0) == ()
        assert send(backend, QUEUE, "old-1").accepted == {"old-1": "old-1"}
        assert load_of(backend, QUEUE).waiting == 2

    def test_stopping_all_that_waits(self, backend, monkeypatch):
        stamps = self.launched(monkeypatch)
        send(backend, QUEUE, "s1-1", "s2-1")
        backend.slots[QUEUE] = 9
        assert backend.stop_all(grace_seconds=1.0, deadline_seconds=60.0) == ()
        assert backend.tick() == ()
        assert stamps == []
        assert {status.state for status in backend.status(same("s1-1", "s2-1")).values()} == {
            NativeState.ENDED
        }
