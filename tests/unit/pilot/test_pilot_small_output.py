"""What a payload's output costs: nothing where there is none, no upload of its own where it is small."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import time
from dataclasses import replace

import pytest

from lodesman.pilot.outbox import Outbox
from lodesman.pilot.output import SMALL_OUTPUT_BYTES
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper

KEY = AttemptKey(1, 1)


@pytest.fixture
def context(make_context):
    """Of a payload that may ask the server for nothing."""

    def no_client():
        pytest.fail("it has asked the server")

    pilot = make_context(clock=time.time, ticker=time.monotonic)
    return PayloadContext(pilot, Reaper(pilot.nursery), Outbox(pilot), no_client)


@pytest.fixture
def play(context, make_job):
    """Run a shell script; the payload and what the outbox has of its end."""

    def run(script, **more):
        payload = PayloadRun(make_job(1, "/bin/sh", "-c", script, **more), context)
        payload.run(lambda _: False, lambda _: None)
        return payload, context.outbox._items[KEY, True]

    return run


@pytest.fixture
def folders(tmp_path):
    """What is left of the folders of payloads, and of archives."""
    return lambda: [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("1.1*")]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "state"), [("true", "Done"), ("exit 3", "Failed")])
def test_without_output_there_is_no_archive(play, folders, monkeypatch, script, state):
    monkeypatch.setattr("lodesman.pilot.payload.pack", lambda *_, **__: pytest.fail("it was packed"))
    payload, item = play(script)
    assert payload.leaves_nothing
    assert (item.report.state, item.report.output, item.report.tail, item.archive) == (state, None, "", None)
    assert folders() == []


@pytest.mark.slow
@pytest.mark.parametrize("shift", [-3_600.0, 3_600.0])
def test_how_long_it_ran_is_right_if_the_clock_is_set_meanwhile(context, make_context, make_job, shift):
    runs = []
    pilot = make_context(
        clock=lambda: time.time() + (shift if runs and runs[0].began else 0.0), ticker=time.monotonic
    )
    runs.append(PayloadRun(make_job(1), replace(context, pilot=pilot)))
    runs[0].run(lambda _: False, lambda _: None)
    report = context.outbox._items[KEY, True].report
    assert 0.0 < report.wall_seconds < 600.0
    assert report.ended - report.started == pytest.approx(report.wall_seconds, abs=0.001)


@pytest.mark.slow
def test_a_small_output_travels_in_the_report(play, folders):
    payload, item = play("echo out; echo err >&2; echo x > f", output_sandbox=("f",))
    assert not payload.leaves_nothing
    assert item.archive is None
    output = item.report.output
    content = base64.b64decode(output["content"], validate=True)
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (output["sha256"], output["size"])
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}
    assert found == {"std.out": b"out\n", "std.err": b"err\n", "f": b"x\n"}
    assert item.report.as_json()["output"] == output
    assert item.report.tail
    assert folders() == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, 1])
def test_an_output_that_is_larger_is_uploaded(play, context, folders, monkeypatch, more):
    """Numbers at random cannot be made smaller by packing."""
    size = SMALL_OUTPUT_BYTES * (1 + more) - 600
    _, item = play(f"head -c {size} /dev/urandom")
    assert (item.archive is not None, "content" in item.report.output) == (bool(more), not more)
    if item.archive is not None:
        content = item.archive.read_bytes()
        output = item.report.output
        assert output == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        assert folders() == ["outbox/1.1.tar.gz"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "echo > left; mkdir -p deep/er; echo > deep/er/left",
        "mkdir -p locked/in && chmod 0 locked/in locked",
        'echo > "$TMPDIR/left"',
        "rm -f std.out std.err",
        'rmdir "$HOME/.tmp"',
    ],
)
def test_the_folder_of_a_job_that_left_files_is_removed(play, folders, script):
    """They are not wanted: it has no output."""
    payload, item = play(script)
    assert (item.report.state, item.report.output) == ("Done", None)
    assert payload.leaves_nothing
    assert folders() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "more", "nothing"),
    [
        ("true", {}, True),
        ("echo > f", {}, True),
        ("true", {"output_sandbox": ("f",)}, False),
        ("printf x", {}, False),
        ("printf x >&2", {}, False),
    ],
)
def test_what_leaves_nothing(play, script, more, nothing):
    assert play(script, **more)[0].leaves_nothing == nothing


@pytest.mark.slow
@pytest.mark.parametrize(("goes_on", "waits_s"), [(True, 0.05), (False, 0.0)])
def test_a_report_waits_for_others_only_if_the_pilot_goes_on(make_context, make_job, clock, goes_on, waits_s):
    pilot = make_context(clock=time.time)
    context = PayloadContext(pilot, Reaper(pilot.nursery), Outbox(pilot), lambda: None)
    PayloadRun(make_job(1, "/bin/true"), context).run(lambda _: goes_on, lambda _: None)
    assert context.outbox._items[KEY, True].due == pytest.approx(clock.now + waits_s)
