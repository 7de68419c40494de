"""The pilot's own folder where jobs can lock it: it is unlocked, and neither another job nor the node is blamed."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, cast

import pytest

from lodesman.pilot import payload as payloads
from lodesman.pilot.context import OwnFolder
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.output import pack
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import report_end
from lodesman.pilot.trial import NodeTrial

DENIED = OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_what_was_locked_is_unlocked_and_counted(tmp_path):
    directory = tmp_path / "above/pilot"
    directory.mkdir(parents=True)
    folder = OwnFolder(directory)
    folder.unlock()
    assert (folder.changes, sorted(one.name for one in directory.iterdir())) == (0, ["outbox", "work"])
    places = (directory / "work", directory / "outbox", directory, tmp_path / "above")
    for place in places:
        place.chmod(0o055)
    folder.unlock()
    assert folder.changes == len(places)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in places]
    assert modes == [0o755, 0o755, 0o755, 0o155]
    folder.unlock()
    assert folder.changes == len(places)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_stands_in_the_place_of_a_folder_is_not_followed(tmp_path, kind):
    directory, other = tmp_path / "pilot", tmp_path / "other"
    for place in (directory, other):
        place.mkdir()
    other.chmod(0o500)
    work = directory / "work"
    work.symlink_to(other) if kind == "link" else work.touch()
    folder = OwnFolder(directory)
    folder.unlock()
    assert (folder.changes, stat.S_IMODE(other.stat().st_mode)) == (1, 0o500)


def test_a_folder_that_was_renamed_counts_and_one_that_never_was_does_not(tmp_path):
    folder = OwnFolder(tmp_path / "pilot")
    folder.unlock()
    assert folder.changes == 0
    (tmp_path / "pilot").mkdir()
    folder.unlock()
    (tmp_path / "pilot").rename(tmp_path / "gone")
    folder.unlock()
    assert folder.changes > 0


def test_a_node_does_not_fail_its_trial_by_a_job_that_locks_the_folder(tmp_path, monkeypatch):
    trial = NodeTrial(tmp_path, {}, None)

    def lock(self, room):
        tmp_path.chmod(0)
        return "Permission denied in /s"

    monkeypatch.setattr(NodeTrial, "_try_room", lock)
    assert (trial.fault(), trial.pilot_fault) == (
        "",
        f"Its folder was locked or changed by a job: {tmp_path}",
    )
    monkeypatch.setattr(NodeTrial, "_try_room", lambda *_: "Permission denied in /s")
    assert trial.fault() == "Permission denied in /s"


@pytest.fixture
def payload(make_context, make_job):
    pilot = make_context()
    context = PayloadContext(pilot, cast(Any, None), Outbox(pilot), cast(Any, None))
    context.__dict__["trial"] = NodeTrial(pilot.directory, {}, None)
    return PayloadRun(make_job(1, output_sandbox=("result",)), context)


def test_a_job_that_meets_a_locked_folder_is_not_charged(payload, tmp_path):
    end = payload._suspect(DENIED)
    assert (end.state, end.cause) == ("Failed", "input")
    tmp_path.chmod(0)
    end = payload._suspect(DENIED)
    assert (end.state, end.cause) == ("Released", "pilot-shutdown")
    assert end.message == f"Its folder was locked or changed by a job: {tmp_path}."
    assert (payload.node_fault, payload.pilot_fault) == ("", "")


@pytest.mark.parametrize(("times", "state"), [(3, "Done"), (99, "Released")])
def test_a_result_is_packed_again_when_the_folder_was_locked(payload, tmp_path, monkeypatch, times, state):
    (payload._home).mkdir(parents=True)
    (payload._home / "result").write_text("42")
    left = [1] * times

    def refuse(*words, **more):
        if left:
            left.pop()
            tmp_path.chmod(0)
            raise DENIED
        return pack(*words, **more)

    monkeypatch.setattr(payloads, "pack", refuse)
    end, _ = payload._pack(report_end(payload.job.key, "ok", exit_code=0))
    assert (end.state, end.output is not None) == (state, state == "Done")


def test_what_a_lock_kept_out_of_an_output_is_packed_after_all(payload, tmp_path, monkeypatch):
    payload._home.mkdir(parents=True)
    (payload._home / "result").write_text("42")
    homes = [tmp_path / "nothing"]

    def miss(home, *words, **more):
        if homes:
            tmp_path.chmod(0)
            homes[0].mkdir()
        return pack(homes.pop() if homes else home, *words, **more)

    monkeypatch.setattr(payloads, "pack", miss)
    end, _ = payload._pack(report_end(payload.job.key, "ok", exit_code=0))
    assert (end.state, homes) == ("Done", [])
    assert "result" not in end.message


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_job_that_cannot_be_started_in_a_locked_folder_is_not_charged(payload, tmp_path, is_locked):
    tmp_path.chmod(0 if is_locked else 0o700)
    end = payload._weigh(report_end(payload.job.key, "not-started", "Permission denied."))
    assert (end.state, end.cause) == (
        ("Released", "pilot-shutdown") if is_locked else ("Failed", "not-started")
    )
