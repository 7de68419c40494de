"""One attempt at a time, with real processes and no server."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import tarfile
import tempfile
import threading
import time
from base64 import b64decode

import pytest

from lodesman.base.errors import NotFound, Unavailable
from lodesman.pilot.decisions import Stop
from lodesman.pilot.launch import remove_tree
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import AttemptKey, SandboxFile
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.trial import NodeTrial
from lodesman.wire.client import Aborted, BadChecksum, LocalFault
from lodesman.wire.client.exchange import local_fault

INPUT = (SandboxFile("data", "/v1/sandboxes/x", "good", 1, unpack=False),)


class Shelf:
    """Stands for the client of a payload."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.hang = False
        self.aborted = threading.Event()
        self.asked = threading.Event()
        self.closed = False

    def download(self, url, file, sha256, size):
        self.asked.set()
        if self.hang:
            assert self.aborted.wait(60)
            raise Aborted("Ended.")
        if self.fault is not None:
            raise self.fault
        file.write_bytes(b"content")

    def abort(self):
        self.aborted.set()

    def close(self):
        self.closed = True


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def context(make_context, shelf):
    pilot = make_context(clock=time.time, ticker=time.monotonic)
    return PayloadContext(pilot, Reaper(pilot.nursery), Outbox(pilot), lambda: shelf)


@pytest.fixture
def play(context, make_job):
    """Run a job to its end: (payload, report or None, names in order of what was called)."""

    def run(*command, payload=None, **more):
        payload = payload or PayloadRun(make_job(1, *command, **more), context)
        calls: list[str] = []
        payload.run(lambda _: calls.append("free"), lambda _: calls.append("done"))
        assert calls == ["free", "done"]
        ends = [item.report.as_json() for item in context.outbox._items.values() if item.final]
        return payload, ends[0] if ends else None

    return run


def start(payload):
    thread = threading.Thread(target=payload.run, args=(lambda _: None, lambda _: None))
    thread.start()
    return thread


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end_of(context):
    return next(item.report.as_json() for item in context.outbox._items.values() if item.final)


def files(context):
    """What is in the archive, which travels in the report if it is small."""
    content = (end_of(context)["output"] or {}).get("content")
    archive = context.outbox.archive(AttemptKey(1, 1)).read_bytes() if content is None else b64decode(content)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


@pytest.mark.slow
def test_success(play, context, tmp_path, lines):
    _, report = play("/bin/sh", "-c", "echo out; echo x > f", output_sandbox=("f",))
    assert (report["state"], report["cause"], report["exit_code"]) == ("Done", "ok", 0)
    assert files(context) == {"std.out": b"out\n", "std.err": b"", "f": b"x\n"}
    assert report["tail"] == "out\n"
    assert report["wall_seconds"] > 0
    assert report["max_rss_mb"] >= 0
    assert not (tmp_path / "work/1.1").exists()
    assert [event for event, _ in lines] == ["payload-ended"]
    assert context.reaper.measure() == {}


@pytest.mark.slow
def test_inputs_are_there(play, context, shelf):
    _, report = play("/bin/cat", "data", inputs=INPUT)
    assert report["state"] == "Done"
    assert files(context)["std.out"] == b"content"
    assert shelf.closed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "state", "cause"),
    [
        (BadChecksum("Bad."), "Failed", "input"),
        (NotFound("Gone."), "Failed", "input"),
        (Unavailable("Away."), "Released", "pilot-shutdown"),
        (OSError(errno.ENOSPC, "No space left on device"), "Released", "pilot-shutdown"),
        (local_fault(OSError(errno.ENOSPC, "No space left on device")), "Released", "pilot-shutdown"),
        (local_fault(OSError(errno.EISDIR, "Is a directory")), "Failed", "input"),
    ],
)
def test_inputs_that_cannot_be_had(play, shelf, fault, state, cause):
    """A wrong sandbox is the job's fault; a server that is away, or a disk that was full for a moment, is not."""
    shelf.fault = fault
    payload, report = play("/bin/true", inputs=INPUT)
    assert (report["state"], report["cause"], report["output"]) == (state, cause, None)
    assert payload.node_fault == ""
    assert not isinstance(fault, (OSError, LocalFault)) or os.strerror(fault.errno) in report["message"]


@pytest.mark.slow
def test_stopped_while_its_input_is_fetched(context, make_job, shelf):
    shelf.hang = True
    payload = PayloadRun(make_job(1, "/bin/true", inputs=INPUT), context)
    thread = start(payload)
    assert shelf.asked.wait(60)
    payload.stop(Stop("killed", "by order"), grace_s=5)
    thread.join(60)
    report = end_of(context)
    assert (report["state"], report["cause"], report["message"]) == ("Failed", "killed", "by order")


@pytest.mark.slow
def test_stopped_before_it_began(context, make_job, play):
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", "echo ran"), context)
    payload.stop(Stop("pilot-shutdown", "ended"), grace_s=5)
    _, report = play(payload=payload)
    assert (report["state"], report["cause"], report["output"]) == ("Released", "pilot-shutdown", None)


@pytest.mark.slow
def test_the_first_stop_counts_and_the_deadline_only_comes_nearer(context, make_job):
    stubborn = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", stubborn), context)
    thread = start(payload)
    until(lambda: payload.new_tail()[1] == "deaf\n")
    payload.stop(Stop("wall-limit", "first"), grace_s=1000)
    assert payload.stopping
    far = payload.kill_at
    assert far is not None
    payload.stop(Stop("killed", "second"), grace_s=500)
    near = payload.kill_at
    assert near is not None
    assert near < far
    payload.stop(Stop("killed", "third"), grace_s=5000)
    assert payload.kill_at == near
    payload.stop(Stop("killed", "at once"), grace_s=0)
    thread.join(60)
    report = end_of(context)
    assert (report["cause"], report["message"], report["signal"]) == ("wall-limit", "first", 9)
    assert report["output"] is not None


@pytest.mark.slow
def test_released_attempts_bring_no_output(context, make_job):
    payload = PayloadRun(make_job(1, "sleep", "60"), context)
    thread = start(payload)
    until(lambda: payload.began is not None)
    payload.stop(Stop("pilot-shutdown", "ended"), grace_s=60)
    thread.join(60)
    report = end_of(context)
    assert (report["state"], report["output"], report["signal"]) == ("Released", None, 15)
    assert not context.outbox.archive(AttemptKey(1, 1)).exists()


@pytest.mark.slow
@pytest.mark.parametrize("word", ["kill -TERM $$", "exit 143"])
@pytest.mark.parametrize(("cause", "state"), [("pilot-shutdown", "Released"), ("killed", "Failed")])
def test_a_sigterm_that_reaches_the_payload_before_the_pilot(context, make_job, play, word, cause, state):
    """A batch system sends it to all; only the end of the pilot counts as the cause."""
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", word), context)

    class Later(threading.Event):
        def wait(self, timeout=None):
            payload.stop(Stop(cause, "a little later"), grace_s=0)
            return super().wait(timeout)

    payload._stopped = Later()
    _, report = play(payload=payload)
    assert (report["state"], report["cause"] == cause) == (state, state == "Released")


@pytest.fixture
def noticed():
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.slow
def test_what_a_batch_system_sends_to_all_processes_does_not_end_a_payload(noticed, play):
    _, report = play("/bin/sh", "-c", "kill -USR2 $$; exit 3")
    assert report["exit_code"] == 3


@pytest.mark.slow
def test_a_payload_can_use_the_signals_of_users(play):
    _, report = play("/bin/sh", "-c", "trap 'exit 4' USR2; kill -USR2 $$; exit 3")
    assert report["exit_code"] == 4


@pytest.mark.slow
def test_what_cannot_start(play, tmp_path):
    payload, report = play("nothing")
    assert (report["state"], report["cause"]) == ("Failed", "not-started")
    assert report["started"] is None
    assert payload.began is None


@pytest.mark.slow
def test_a_folder_that_a_job_has_replaced_is_the_fault_of_no_node_and_no_other_job(play, tmp_path):
    (tmp_path / "work").write_text("in the way")
    payload, report = play("/bin/true")
    words = f"Its folder was locked or changed by a job: {tmp_path}"
    assert (payload.node_fault, payload.pilot_fault) == ("", words)
    assert (report["state"], report["cause"]) == ("Released", "pilot-shutdown")
    assert report["message"] == f"{words}."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (errno.EAGAIN, ("Released", "pilot-shutdown")),
        (errno.ENOMEM, ("Released", "pilot-shutdown")),
        (errno.E2BIG, ("Failed", "not-started")),
    ],
)
def test_what_the_node_refuses_for_a_moment_gives_the_job_back(play, monkeypatch, number, ends):
    spawn, faults = Reaper.spawn, [OSError(number, os.strerror(number))]

    def refuse_first(*given):
        if faults:
            raise faults.pop()
        return spawn(*given)

    monkeypatch.setattr(Reaper, "spawn", refuse_first)
    payload, report = play("/bin/true")
    assert ((report["state"], report["cause"]), payload.node_fault) == (ends, "")


@pytest.mark.slow
def test_what_the_node_refuses_again_within_a_minute_is_its_fault(play, monkeypatch, context):
    """Jobs that bring little would all meet with it; those that bring much may not."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Reaper, "spawn", refuse)
    monkeypatch.setattr(NodeTrial, "fault", lambda *_, **__: "")
    ends = [play("/bin/true")[1]["cause"] for _ in range(2)]
    assert ends == ["pilot-shutdown", "node-fault"]
    trial = context.trial
    assert trial.cause(errno.ENOSPC, 1 << 20, "input") == "pilot-shutdown"
    assert trial.cause(errno.ENOSPC, 0, "pilot-shutdown") == "pilot-shutdown"  # its output
    assert trial.cause(errno.EISDIR, 0, "input") == "input"
    trial._refused_at -= 61
    assert trial.cause(errno.ENOMEM, 0, "input") == "pilot-shutdown"


@pytest.mark.slow
def test_output_that_cannot_be_packed_gives_the_job_back(play, context):
    context.outbox.archive(AttemptKey(1, 1)).mkdir()
    payload, report = play("/bin/echo", "packed")
    assert (payload.node_fault, report["state"], report["output"]) == ("", "Released", None)


@pytest.mark.slow
def test_a_failure_over_the_cpu_limit_has_that_cause(play):
    spin = "import time\nwhile time.process_time() < 0.6: pass\nraise SystemExit(1)"
    _, report = play("python3", "-c", spin, limit_cpu_seconds=0.5)
    assert report["cause"] == "cpu-limit"


@pytest.mark.slow
def test_more_output_than_the_server_takes_keeps_what_fits(play, context):
    """No MaxOutput: the server's limit counts, for what is unpacked as well."""
    script = "truncate -s 6G s.bin; echo small > a; echo done"
    _, report = play("/bin/sh", "-c", script, output_sandbox=("s.bin", "a"), limit_sandbox_mb=1)
    assert (report["state"], report["cause"], report["exit_code"]) == ("Failed", "output-limit", 0)
    assert report["message"] == "The output sandbox is larger than 1 MB. Left out: s.bin."
    assert files(context) == {"std.out": b"done\n", "std.err": b"", "a": b"small\n"}


@pytest.mark.slow
def test_noise_as_large_as_the_limit_does_not_lose_the_small_results(play, context):
    """Packed, it is larger than the server takes: that would be refused as a whole."""
    script = "head -c 1048560 /dev/urandom > noise; echo small > z; printf done"
    _, report = play("/bin/sh", "-c", script, output_sandbox=("noise", "z"), limit_sandbox_mb=1)
    assert (report["cause"], report["output"]["size"] < 1 << 20) == ("output-limit", True)
    assert files(context) == {"std.out": b"done", "std.err": b"", "z": b"small\n"}


@pytest.mark.slow
def test_output_that_exists_and_cannot_be_packed_is_reported(play, context):
    script = "ln -s /etc/hostname p; mkfifo q; echo real > r"
    _, report = play("/bin/sh", "-c", script, output_sandbox=("p", "q", "r"))
    assert report["state"] == "Done"
    out = "p (a link that leads out of the job's directory), q (not a regular file)"
    assert report["message"] == f"Missing in the output: {out}."
    assert files(context)["r"] == b"real\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope", "is not among the files of the job (InputSandbox)."),
        ("data/x", "is not among the files of the job (InputSandbox)."),
        ("/no/such", "is not on this node."),
        ("/usr", "is not a file."),
        (".tmp", "is not a file."),
        ("/proc/self/fd", "is not a file."),
        (f"x{'y' * 300}", "cannot be opened: File name too long."),
    ],
)
def test_an_input_that_cannot_be_opened_is_named_as_in_the_job(play, name, said):
    _, report = play("/bin/cat", inputs=INPUT, std_input=name)
    assert (report["cause"], report["output"]) == ("not-started", None)
    assert report["message"] == f"The StdInput {name[:200]!r} {said}"


@pytest.mark.slow
def test_a_fifo_is_no_input_and_is_not_waited_for(play):
    # Not in /dev/shm, where tests may have their folders: of that payloads have one of their own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.mkfifo(f"{place}/pipe")
        _, report = play("/bin/cat", std_input=f"{place}/pipe")
    assert report["message"] == f"The StdInput '{place}/pipe' is not a file."


@pytest.mark.slow
def test_a_file_of_the_job_is_an_input(play, context):
    _, report = play("/bin/sh", "-c", "cat", inputs=INPUT, std_input="./data")
    assert report["state"] == "Done"
    assert files(context)["std.out"] == b"content"


@pytest.mark.slow
def test_packing_ends_when_the_job_is_killed(context, make_job):
    job = make_job(1, "/bin/sh", "-c", "truncate -s 60G s.bin", output_sandbox=("s.bin",))
    payload = PayloadRun(job, context)
    thread = start(payload)
    target = context.outbox.archive(job.key)
    until(lambda: target.exists() and target.stat().st_size > 0)
    payload.output_unwanted = True
    thread.join(10)
    assert not thread.is_alive()
    report = end_of(context)
    assert (report["state"], report["exit_code"], report["output"]) == ("Done", 0, None)
    assert "not packed" in report["message"]
    assert not target.exists()


@pytest.mark.slow
def test_a_packing_that_takes_too_long_fails_the_job(play, context, monkeypatch):
    monkeypatch.setattr("lodesman.pilot.payload._PACKING_S", -1.0)
    _, report = play("/bin/sh", "-c", "echo 1 > one", output_sandbox=("*",))
    assert (report["state"], report["cause"], report["output"]) == ("Failed", "output-limit", None)
    assert "not packed" in report["message"]


@pytest.mark.slow
def test_news_only_when_there_are_some(context, make_job):
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", "echo one; sleep 60"), context)
    assert payload.new_tail()[1] is None
    thread = start(payload)
    until(lambda: payload.new_tail()[1] == "one\n")
    stamp, tail = payload.new_tail()
    assert tail == "one\n"
    payload.delivered = stamp
    assert payload.new_tail()[1] is None
    assert payload.measured(time.monotonic()).stream_bytes == 4
    payload.stop(Stop("killed", ""), grace_s=0)
    thread.join(60)
    assert payload.measured(time.monotonic()).stream_bytes == 0


@pytest.mark.slow
def test_when_it_is_expected_to_end(context, make_job):
    payload = PayloadRun(make_job(1, "x", expected_seconds=30), context)
    assert payload.expected_end(100.0) == 130  # it is not started yet
    payload.began = 90.0
    assert [payload.expected_end(now) for now in (100.0, 119.0, 500.0)] == [120, 120, 500]
    assert PayloadRun(make_job(1, "x"), context).expected_end(100.0) is None


COMMITS = 'touch "$LODESMAN_COMMIT" && echo $JOBSTATUS > ready && exec sleep 60'


@pytest.mark.slow
def test_a_payload_commits_by_touching_a_file(context, make_job, tmp_path):
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", COMMITS), context)
    assert payload.committed() is None
    before = time.time()
    thread, home = start(payload), tmp_path / "work/1.1"
    until(lambda: payload.started_at and (home / "ready").exists() and (home / "ready").read_text())
    assert (home / "ready").read_text() == "\n"
    file = home / ".tmp/.commit"
    committed = payload.committed()
    assert before <= committed <= time.time()
    os.utime(file, (5, 5))
    started = payload.committed()
    assert before <= started <= committed
    os.utime(file, (time.time() + 9_000,) * 2)
    assert started <= payload.committed() <= time.time()
    file.unlink()
    assert payload.committed() is None
    for make in (lambda: file.symlink_to("../ready"), file.mkdir, lambda: os.mkfifo(file)):
        make()
        assert payload.committed() is None
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    payload.stop(Stop("killed", "enough"), grace_s=0)
    thread.join(60)


@pytest.mark.slow
def test_an_abandoned_attempt_is_not_reported(context, make_job, monkeypatch):
    """Processes that cannot be killed: its end is unknown."""
    monkeypatch.setattr(Reaper, "_is_gone", lambda self, key, pause: False)
    payload = PayloadRun(make_job(1, "/bin/sh", "-c", "sleep 30 & exit 0"), context)
    thread = start(payload)
    until(lambda: payload.began is not None)
    payload.abandoned = True
    thread.join(60)
    assert not thread.is_alive()
    assert context.outbox.keys() == []
    monkeypatch.undo()
    context.reaper.kill(AttemptKey(1, 1))
    assert context.reaper.clear(AttemptKey(1, 1), lambda: False)
    context.reaper.give(AttemptKey(1, 1))


@pytest.mark.slow
def test_a_fault_of_the_pilot_gives_the_job_back(context, make_job, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("lodesman.pilot.payload.prepare", fail)
    calls: list[str] = []
    with pytest.raises(ZeroDivisionError):
        PayloadRun(make_job(), context).run(lambda _: calls.append("free"), lambda _: calls.append("done"))
    assert calls == ["free", "done"]
    assert (end_of(context)["state"], end_of(context)["cause"]) == ("Released", "pilot-shutdown")


def test_remove_tree(tmp_path):
    (tmp_path / "t/a/b").mkdir(parents=True)
    (tmp_path / "t/a/b/f").write_text("")
    (tmp_path / "outside").mkdir(mode=0o500)
    (tmp_path / "t/link").symlink_to(tmp_path / "outside")
    (tmp_path / "t/a/b").chmod(0)
    (tmp_path / "t/a").chmod(0)
    remove_tree(tmp_path / "t")
    assert not (tmp_path / "t").exists()
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o500
    remove_tree(tmp_path / "never")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["**", ""])
def test_a_tree_deeper_than_paths_and_recursion_ends_as_any_payload(play, context, tmp_path, wanted):
    dig = "import os\nos.mkdir('d')\nfor _ in range(2000): os.chdir('d'); os.mkdir('d')\nopen('low', 'w').close()"
    _, report = play(sys.executable, "-c", dig, output_sandbox=(wanted,) if wanted else ())
    assert (report["state"], report["exit_code"]) == ("Done", 0)
    missing = f"Missing in the output: {wanted} (files in more than 100 folders are left out)."
    assert report["message"] == (missing if wanted else "")
    assert os.listdir(tmp_path / "work") == []
    assert play("/bin/true")[1]["state"] == "Done"


def test_a_tree_is_removed_as_far_as_it_can_be_and_nothing_outside_it(tmp_path):
    descriptors = os.listdir("/proc/self/fd")
    (tmp_path / "kept").mkdir(mode=0o500)
    (tmp_path / "top").symlink_to("kept")
    (tmp_path / "file").write_text("")
    remove_tree(tmp_path / "top")
    remove_tree(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "kept", "top"]
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree/a").chmod(0o400)
    remove_tree(tmp_path / "tree")
    assert sorted(os.listdir(tmp_path)) == ["file", "kept", "top"]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o500
    assert os.listdir("/proc/self/fd") == descriptors
