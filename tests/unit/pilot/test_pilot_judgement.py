"""Limits, ends and tails: pure judgement about a payload."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot.decisions import _MIN_CHECK_S, Stop, excess, judge, next_check_s
from lodesman.pilot.output import _TAIL_BYTES, PackedOutput, _join_tails, read_tail, report_output
from lodesman.pilot.protocol import MB, AssignedJob, AttemptKey, PayloadUsage
from lodesman.pilot.protocol import PayloadLimits as Limits

FREE = PayloadUsage(cpu_seconds=1e9, wall_seconds=1e9, rss_mb=1e9, stream_bytes=10**15)


# --- limits -----------------------------------------------------------------------------------------


def test_no_limit_is_never_passed():
    assert excess(FREE, Limits()) is None
    assert next_check_s(FREE, Limits(), cores=1, usual_s=1.0) == 1.0


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (Limits(cpu_seconds=10), "cpu-limit"),
        (Limits(wall_seconds=10), "wall-limit"),
        (Limits(memory_mb=10), "memory-limit"),
        (Limits(output_mb=10), "output-limit"),
        (Limits(output_mb=1000, sandbox_mb=10), "output-limit"),
        (Limits(cpu_seconds=1, wall_seconds=1, memory_mb=1), "memory-limit"),
    ],
)
def test_each_limit(limits, cause):
    over = excess(FREE, limits)
    assert over is not None
    assert over.cause == cause
    assert over.message.endswith(".")
    assert excess(PayloadUsage(1, 1, 1, 1), limits) is None


def test_exactly_at_the_limit_is_allowed():
    at = PayloadUsage(cpu_seconds=10, wall_seconds=10, rss_mb=10, stream_bytes=10 * MB)
    assert excess(at, Limits(10, 10, 10, 10)) is None


def test_looks_come_sooner_near_a_limit():
    def look(measured, limits, cores=1):
        return next_check_s(measured, limits, cores=cores, usual_s=1.0)

    calm = PayloadUsage(0, 0, 0, 0)
    assert look(calm, Limits(100, 100, 100, 100)) == 1.0
    assert look(calm, Limits(wall_seconds=0.4)) == 0.4
    assert look(PayloadUsage(9.5, 0, 0, 0), Limits(cpu_seconds=10)) == 0.5
    assert look(PayloadUsage(9, 0, 0, 0), Limits(cpu_seconds=10), cores=4) == 0.25
    assert look(PayloadUsage(0, 0, 80, 0), Limits(memory_mb=100)) == 0.25
    assert look(PayloadUsage(0, 0, 0, 6 * MB), Limits(output_mb=10)) == 0.25
    assert look(PayloadUsage(0, 0, 0, 6 * MB), Limits(sandbox_mb=10)) == 0.25
    assert look(PayloadUsage(11, 0, 0, 0), Limits(cpu_seconds=10)) == _MIN_CHECK_S


# --- ends -------------------------------------------------------------------------------------------


def judged(code, number, **more):
    status = code if number is None else -number
    job = AssignedJob(AttemptKey(1, 1), "x", limits=more.pop("limits", Limits()))
    return judge(job, status, **{"stop": None, "cpu_seconds": 0.0, **more})


def test_a_payload_whose_warden_was_killed_is_tried_again():
    """It ended with the warden, not by itself."""
    end = judged(None, None)
    assert (end.state, end.cause, end.exit_code, end.signal) == ("Released", "warden-lost", None, None)
    stopped = judged(None, None, stop=Stop("wall-limit", "The job ran for 9 s; 8 are allowed."))
    assert (stopped.state, stopped.cause) == ("Failed", "wall-limit")


@pytest.mark.parametrize(
    ("code", "number", "state", "cause"),
    [
        (0, None, "Done", "ok"),
        (3, None, "Failed", "exit"),
        (127, None, "Failed", "exit"),
        (None, 11, "Failed", "signal"),
        (None, 9, "Failed", "signal"),
        (None, 24, "Failed", "cpu-limit"),
        (None, 25, "Failed", "signal"),
        (None, 63, "Failed", "signal"),
    ],
)
def test_ends_by_itself(code, number, state, cause):
    outcome = judged(code, number)
    assert (outcome.state, outcome.cause) == (state, cause)
    assert (outcome.exit_code, outcome.signal) == (code, number)
    assert (outcome.message == "") == (cause == "ok")


def test_kernel_limits_are_named_as_limits():
    assert judged(None, 25, limits=Limits(output_mb=1)).cause == "output-limit"
    assert judged(152, None, limits=Limits(cpu_seconds=2), cpu_seconds=2.0).cause == "cpu-limit"
    assert judged(0, None, limits=Limits(cpu_seconds=2), cpu_seconds=2.0).cause == "ok"  # it made it


def test_code_127_is_explained():
    assert "not found" in judged(127, None).message
    assert "executed" in judged(126, None).message


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        ("wall-limit", "Failed"),
        ("killed", "Failed"),
        ("pilot-shutdown", "Released"),
        ("memory-limit", "Failed"),
    ],
)
def test_the_pilots_own_decision_goes_first(cause, state):
    for code, number in ((0, None), (None, 15), (1, None)):
        outcome = judged(code, number, stop=Stop(cause, "why"))
        assert (outcome.state, outcome.cause, outcome.message) == (state, cause, "why")
        assert (outcome.exit_code, outcome.signal) == (code, number)


def test_packing_may_change_an_end():
    def packed(**more):
        return PackedOutput("ab", 5, **more)

    done, failed = judged(0, None), judged(1, None)
    assert report_output(done, packed(), max_mb=1) == replace(done, output={"sha256": "ab", "size": 5})
    over = report_output(done, packed(cut=("std.out",)), max_mb=1)
    assert (over.state, over.cause, over.exit_code) == ("Failed", "output-limit", 0)
    assert over.message == "The output sandbox is larger than 1 MB. Only the end was kept of std.out."
    still = report_output(failed, packed(left_out=("big", "bigger")), max_mb=2)
    assert (still.state, still.cause) == ("Failed", "exit")
    assert still.message.endswith(
        "exit code 1. The output sandbox is larger than 2 MB. Left out: big, bigger."
    )
    lacking = report_output(done, packed(missing=("a (not found)", "b (not a regular file)")), max_mb=1)
    assert (lacking.state, lacking.message) == (
        "Done", "Missing in the output: a (not found), b (not a regular file).",
    )  # fmt: skip
    many = report_output(done, packed(left_out=tuple("abcdefghijkl")), max_mb=1)
    assert many.message.endswith("Left out: a, b, c, d, e, f, g, h, i, j and 2 more.")


# --- tails ------------------------------------------------------------------------------------------


def test_one_stream_has_no_heading():
    assert _join_tails({"out": b"text\n", "err": b""}) == "text\n"
    assert _join_tails({}) == ""


def test_two_streams_have():
    assert _join_tails({"out": b"a", "err": b"b\n"}) == "--- out ---\na\n--- err ---\nb\n"


def test_the_short_stream_leaves_its_room_to_the_long_one():
    text = _join_tails({"out": b"x" * 1000, "err": b"e" * 10}, limit=500)
    assert 480 <= len(text.encode()) <= 500
    assert "e" * 10 in text


def test_the_cut_is_between_characters():
    assert _join_tails({"out": "äöü".encode()}, limit=3) == "ü"
    assert _join_tails({"out": "€€".encode()}, limit=4) == "€"


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(60, 200))
def test_tails_are_bounded_valid_text(out, err, limit):
    text = _join_tails({"o": out, "e": err}, limit=limit)
    assert len(text.encode("utf-8")) <= limit
    assert "\0" not in text


def test_the_end_of_a_large_file(tmp_path):
    file = tmp_path / "out"
    file.write_bytes(b"a" * 200_000 + b"the end")
    descriptor = os.open(file, os.O_RDONLY)
    try:
        tail = read_tail({"out": descriptor})
    finally:
        os.close(descriptor)
    assert len(tail) == _TAIL_BYTES
    assert tail.endswith("the end")
