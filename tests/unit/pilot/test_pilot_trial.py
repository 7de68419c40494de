"""The trial of a node: one table of what may be wrong with one, as values, and on real file systems."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import time

import pytest

from lodesman.pilot import __main__ as start
from lodesman.pilot.decisions import (
    EXECUTE,
    NO_PYTHON,
    SCRATCH,
    WARDEN,
    StepResult,
    Stop,
    is_of_node,
    judge_step,
    smells_of_node,
)
from lodesman.pilot.loop import EXIT_IN_ORDER, EXIT_NODE
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import AttemptKey, SandboxFile, report_end
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.trial import NodeTrial
from lodesman.wire.client.exchange import local_fault

NOEXEC = "No program can be executed in /s: Permission denied (is it mounted with noexec?)"
# What may be wrong, what the trial meets with, and its words.
FAULTS = {
    "full": (StepResult(SCRATCH, "/s", errno.ENOSPC), "No space left on device in /s"),
    "quota": (StepResult(SCRATCH, "/s", errno.EDQUOT), "Disk quota exceeded in /s"),
    "read-only": (StepResult(SCRATCH, "/s", errno.EROFS), "Read-only file system in /s"),
    "broken disk": (StepResult(SCRATCH, "/s", errno.EIO), "Input/output error in /s"),
    "lost file server": (StepResult(SCRATCH, "/s", errno.ESTALE), "Stale file handle in /s"),
    "no inodes": (
        StepResult(SCRATCH, "/s", errno.ENOSPC, no_inodes=True),
        "No space left on device for more files (no inodes are left) in /s",
    ),
    "noexec": (StepResult(EXECUTE, "/s", status=126), NOEXEC),
    "no interpreter": (StepResult(EXECUTE, "/s", status=127), NOEXEC),
    "no memory": (
        StepResult(WARDEN, "/s", errno.ENOMEM),
        "No process can be kept apart for a payload: Cannot allocate memory",
    ),
    "killed at once": (
        StepResult(WARDEN, "/s"),
        "No process can be kept apart for a payload: it was killed at its start",
    ),
    "warden killed": (
        StepResult(EXECUTE, "/s"),
        "No process can be kept apart for a payload: it was killed at its start",
    ),
    "no shell": (
        StepResult(EXECUTE, "/s", errno.ENOENT),
        "/bin/sh cannot be started: No such file or directory",
    ),
    "no Python": (StepResult(EXECUTE, "/s", status=NO_PYTHON), "The pilot's Python does not run any more"),
    "killed": (StepResult(EXECUTE, "/s", status=-9), "A program in /s ended with -9, not 0"),
    "": (StepResult(EXECUTE, "/s", status=0), ""),
}


def test_what_is_wrong_with_a_node():
    assert {name: judge_step(met) for name, (met, _) in FAULTS.items()} == {
        name: words for name, (_, words) in FAULTS.items()
    }


def test_errors_that_say_more_of_the_node_than_of_a_job():
    of_node = {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
        errno.EAGAIN,
    }  # fmt: skip
    of_job = {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EACCES, None}
    assert {number for number in of_node | of_job if is_of_node(number)} == of_node


@pytest.mark.parametrize(
    ("cause", "more", "smells"),
    [
        ("exit", {"exit_code": 126}, True),
        ("exit", {"exit_code": 127}, True),
        ("exit", {"exit_code": 1}, False),
        ("not-started", {}, True),
        ("never-started", {}, True),
        ("ok", {}, False),
        ("signal", {"signal": 9}, False),
        ("memory-limit", {"exit_code": 126}, False),
        ("killed", {}, False),
        ("pilot-shutdown", {}, False),
    ],
)
def test_ends_after_which_the_node_is_tried(cause, more, smells):
    assert smells_of_node(report_end(AttemptKey(1, 1), cause, **more)) is smells


# --- on real file systems -----------------------------------------------------------------------------------------------

_TRY = """
import os, signal, subprocess, sys
from pathlib import Path
from lodesman.base import kernel
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.trial import NodeTrial
kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
place, harm = Path(sys.argv[1]), sys.argv[2:]
hidden = [place / "work", place / "outbox"]
for one in hidden:
    one.mkdir()
nursery = Nursery(*map(str, hidden))
nursery.open()
reaper = Reaper(nursery)
taken = nursery.take()
if harm == ["kill"]:
    os.kill(nursery.pid, signal.SIGKILL)
elif harm:
    subprocess.run(harm, check=True)
print(NodeTrial(place, os.environ, reaper).fault())
left = [str(one.relative_to(place)) for one in place.rglob("*") if not one.name.startswith("w")]
assert left == ["outbox"], left
"""
# Options of the mount, and what is done to the node meanwhile; the words begin or end so.
HARM = {
    "full": ("size=64k", [], ("No space left on device in {}",)),
    "no inodes": ("nr_inodes=5", [], ("no inodes are left",)),
    "noexec": ("noexec", [], ("No program can be executed in {}", "noexec")),
    "read-only": ("size=9m", ["mount", "-o", "remount,ro", "{}"], ("Read-only file system in {}",)),
    "no shell": ("size=9m", ["mount", "--bind", "/dev/null", os.path.realpath("/bin/sh")], ("/bin/sh cannot", "")),
    "no Python": (
        "size=9m",
        ["mount", "--bind", os.path.realpath("/bin/false"), os.path.realpath(sys.executable)],
        ("Python does not run",),
    ),
    "no helper": ("size=9m", ["kill"], ("",)),  # that is the pilot's own
    "nothing": ("size=9m", [], ("",)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("name", HARM)
def test_a_node_of_no_use_is_found(tmp_path, name):
    """In mounts of its own: nothing of them is left, whatever becomes of the test."""
    options, harm, words = HARM[name]
    place = tmp_path / "scratch"
    place.mkdir()
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    command = [sys.executable, "-c", _TRY, str(place), *(one.format(place) for one in harm)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", options, str(place), *command],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("no mounts can be made here")
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip()
    assert all(one.format(place) in said for one in words), said
    assert bool(said) is (name not in ("nothing", "no helper"))


@pytest.mark.slow
def test_nothing_that_a_payload_or_a_killed_pilot_left_makes_a_node_fail(make_context, tmp_path):
    """Not in the pilot's folder, which payloads see, not where the warden's payloads lie, and not by modes."""
    work = tmp_path / "work"
    work.mkdir()
    for number in range(1000):
        (tmp_path / f".trial-{number}").symlink_to("/no/such")
        (work / f"0.{number}").mkdir()
    (tmp_path / ".probe").mkdir()
    work.chmod(0)
    tmp_path.chmod(0o055)
    pilot = make_context()
    assert NodeTrial(tmp_path, pilot.environment, Reaper(pilot.nursery)).fault() == ""
    assert [stat.S_IMODE(one.stat().st_mode) for one in (tmp_path, work)] == [0o755, 0o700]
    assert start._fault_at_start(tmp_path, pilot.nursery) == ""
    assert len(list(work.iterdir())) == 1000


@pytest.fixture
def hang(monkeypatch):
    """Writing to the disk returns when this is set."""
    event, sync = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (event.wait(60), sync(number)))
    yield event
    event.set()


def test_a_node_where_something_hangs_fails_its_trial(tmp_path, hang):
    """Each trial ends, also the next one, until the node answers."""
    trial = NodeTrial(tmp_path, {}, None, patience_s=0.05)
    words = f"{tmp_path} does not answer: it took longer than 0.05 s"
    assert [trial.fault(), trial.fault(trusted_s=5.0)] == [words, words]
    hang.set()
    trial._patience_s = 60.0
    assert trial.fault() == ""
    trial._patience_s = 0.01
    with trial._lock:  # as one that hangs holds it
        assert trial.fault(trusted_s=5.0) == words.replace("0.05", "0.01")


def test_payloads_that_fail_together_share_a_trial_that_began_after_it(tmp_path, monkeypatch):
    """Each waits its turn: with a trial for each, the last ones would wait too long."""
    began, try_room = [], NodeTrial._try_room
    monkeypatch.setattr(NodeTrial, "_try_room", lambda self, room: (began.append(1), try_room(self, room))[1])
    trial, failed = NodeTrial(tmp_path, {}, None), time.monotonic()
    assert [trial._try_all(failed, 1 << 20) for _ in range(64)] == [""] * 64
    assert len(began) == 1
    assert trial.fault(trusted_s=60.0) == ""
    assert len(began) == 1
    assert trial.fault() == ""
    assert len(began) == 2
    assert trial.fault(size=5 << 20, trusted_s=60.0) == ""
    assert len(began) == 3, "that one looked for less room"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Thread", "Timer"])
def test_a_node_without_threads_is_of_no_use(make_context, tmp_path, monkeypatch, kind):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    pilot = make_context()
    reaper = Reaper(pilot.nursery)
    monkeypatch.setattr(getattr(threading, kind), "start", refuse)
    said = NodeTrial(tmp_path, pilot.environment, reaper).fault()
    assert said == "No process can be kept apart for a payload: Resource temporarily unavailable"
    assert reaper._accounts == {}
    assert list((tmp_path).glob("work/trial*")) == []


@pytest.mark.slow
def test_a_program_that_a_signal_to_all_ends_is_started_once_more(make_context, tmp_path, monkeypatch):
    pilot, wait, signals = make_context(), Reaper.wait, [-15]
    monkeypatch.setattr(
        Reaper, "wait", lambda self, key: (wait(self, key), signals.pop() if signals else 0)[1]
    )
    trial = NodeTrial(tmp_path, pilot.environment, Reaper(pilot.nursery))
    assert trial.fault() == ""
    signals[:] = [-15, -15]
    assert trial.fault() == f"A program in {tmp_path} ended with -15, not 0"


# --- what follows from it -----------------------------------------------------------------------------------------------


@pytest.fixture
def verdict(monkeypatch):
    """What each trial says from now on, and what was asked of it."""
    said, asked = [""], []
    monkeypatch.setattr(NodeTrial, "fault", lambda self, **more: asked.append(more) or said[-1])
    return said, asked


ENDS = {
    # Executable, its text if it is a file of the job; the end on a good node; whether the node is suspect.
    "a file without an interpreter": ("tool", "#!/no/such\n", ("Failed", "exit", 127), True),
    "its own code 126": ("/bin/sh", "exit 126", ("Failed", "exit", 126), True),
    "not there": ("nothing", "", ("Failed", "not-started", None), True),
    "an ordinary failure": ("/bin/sh", "exit 1", ("Failed", "exit", 1), False),
    "a success": ("/bin/true", "", ("Done", "ok", 0), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_a_failure_is_the_nodes_only_if_that_fails_its_trial(play_one, verdict, name):
    executable, text, end, suspect = ENDS[name]
    words = (executable, "-c", text) if executable == "/bin/sh" else (executable,)
    inputs = {"tool": text} if executable == "tool" else {}
    payload, report = play_one(*words, inputs=inputs)
    assert ((report.state, report.cause, report.exit_code), payload.node_fault) == (end, "")
    verdict[0].append("No space left on device in /s")
    payload, report = play_one(*words, inputs=inputs)
    if suspect:
        assert (report.state, report.cause, report.exit_code) == ("Released", "node-fault", None)
        assert (report.message, report.output) == ("No space left on device in /s.", None)
    else:
        assert (report.state, report.cause, report.exit_code) == end
    assert payload.node_fault == ("No space left on device in /s" if suspect else "")
    assert len(verdict[1]) == 2 * suspect


@pytest.mark.slow
def test_a_job_that_is_too_big_for_a_node_blames_no_node(play_one, verdict):
    """Others find room there. It is tried elsewhere."""
    inputs = {"a": "x" * 3000, "full": "y" * 5000}
    payload, report = play_one("/bin/true", inputs=inputs)
    assert (report.state, report.cause, payload.node_fault) == ("Released", "pilot-shutdown", "")
    assert report.message == "The system refused what it needs: No space left on device."
    verdict[0].append("No space left on device in /s")
    payload, report = play_one("/bin/true", inputs=inputs)
    assert (report.state, report.cause, payload.node_fault) == ("Released", "node-fault", verdict[0][-1])
    assert verdict[1] == 2 * [{"size": 8_000, "trusted_s": 0.0}]


@pytest.mark.slow
@pytest.mark.parametrize("files", [{}, {"full": "y"}])
def test_a_trial_that_a_signal_to_all_ends_is_no_fault_of_the_node(
    make_context, make_job, play_one, monkeypatch, files
):
    playing = []
    begin = PayloadRun.begin
    monkeypatch.setattr(PayloadRun, "begin", lambda self: (playing.append(self), begin(self))[1])

    def end_all(self, **_):
        playing[-1].stop(Stop("pilot-shutdown", "The pilot was asked to end."), grace_s=0.0)
        return "A program in /s ended with -15, not 0"

    monkeypatch.setattr(NodeTrial, "fault", end_all)
    payload, report = play_one("nothing", inputs=files)
    assert (report.cause, payload.node_fault) == ("pilot-shutdown" if files else "not-started", "")


@pytest.fixture
def play_one(make_context, make_job):
    """Run a job with these files to its end: (payload, report). The file `full` finds no room."""
    pilot = make_context()
    files: dict[str, str] = {}

    class Shelf:
        def download(self, url, file, sha256, size):
            if file.name == "full":
                raise local_fault(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            file.write_text(files[url])

        def abort(self):
            """Nothing is under way."""

        close = abort

    context = PayloadContext(pilot, Reaper(pilot.nursery), Outbox(pilot), Shelf)
    numbers = iter(range(1, 100))

    def play(*words, inputs):
        files.update(inputs)
        given = tuple(SandboxFile(name, name, "", len(text)) for name, text in inputs.items())
        payload = PayloadRun(make_job(next(numbers), *words, inputs=given), context)
        payload.run(lambda _: None, lambda _: None)
        return payload, context.outbox._items[payload.job.key, True].report

    return play


def test_a_directory_on_a_bad_disk_is_the_nodes_fault_and_a_wrong_one_is_not(tmp_path, nursery):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert start._fault_at_start(tmp_path, full) == f"No space left on device in {tmp_path}"
    assert start._fault_at_start(tmp_path, nursery) == ""
    with pytest.raises(OSError, match="Not a directory"):
        start._fault_at_start(tmp_path, NotADirectoryError(errno.ENOTDIR, "Not a directory"))


@pytest.mark.slow
@pytest.mark.parametrize("code", [EXIT_NODE, EXIT_IN_ORDER])
def test_the_directory_of_a_pilot_is_removed_but_one_that_hangs_does_not_keep_it(tmp_path, monkeypatch, code):
    place, go_on = tmp_path / "place", threading.Event()
    place.mkdir()
    monkeypatch.chdir(tmp_path)
    start._remove(place, code)
    assert not place.exists()
    monkeypatch.setattr(start, "_REMOVAL_S", 0.01)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: code == EXIT_NODE and go_on.wait(60))
    start._remove(place, code)
    go_on.set()
