"""The report of a test job: found among other lines, and each fact judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lodesman.server.engines.backend import NativeState, NativeStatus
from lodesman.server.engines.job_script import NO_PYTHON, NO_SCRATCH
from lodesman.server.loops.node_report import judge_node, judge_silence, read_report

SERVER: dict[str, Any] = {
    "address": "https://lode.example:7777", "is_private": True, "tls": "TLSv1.3", "fault": "", "ahead_s": 0.2,
    "untrusted": False, "bad_ca_file": False, "seconds": 0.25,
}  # fmt: skip
REPORT: dict[str, Any] = {
    "lode-site-test": 1, "host": "wn1", "python": "3.9.2", "executable": "/usr/bin/python3", "has_python": True,
    "keeps_jobs_apart": True, "folder": "/scratch/lode-1", "free_mb": 20_000, "scratch_fault": "", "servers": [SERVER],
}  # fmt: skip


def line(**changes: Any) -> bytes:
    return json.dumps({**REPORT, **changes}).encode()


def found(**changes: Any) -> dict[str, tuple[str, str]]:
    """Check -> (result, detail)."""
    report = read_report(line(**changes))
    assert report is not None
    return {one.check: (one.result, one.detail) for one in judge_node(report, python="python3")}


def asked(**changes: Any) -> dict[str, tuple[str, str]]:
    return found(servers=[{**SERVER, **changes}])


def test_a_good_node():
    assert found() == {
        "python": ("ok", "Python 3.9.2 (/usr/bin/python3) on wn1"),
        "scratch": ("ok", "/scratch/lode-1 on wn1: 20,000 MB free"),
        "server": ("ok", "https://lode.example:7777 by TLSv1.3"),
        "clock": ("ok", "0.2 s from the server's"),
    }


@pytest.mark.parametrize(
    ("changes", "check", "result", "words"),
    [
        ({"executable": ""}, "python", "ok", "Python 3.9.2 on wn1"),
        ({"has_python": False}, "python", "ok", "'python3' is not there"),
        ({"keeps_jobs_apart": False}, "python", "failed", "cannot keep jobs apart"),
        (
            {"scratch_fault": "Read-only file system in /scratch/lode-1"},
            "scratch",
            "failed",
            "no job can run in /scratch/lode-1 on wn1: Read-only file system in /scratch/lode-1 (20,000 MB free); mend it",
        ),
        ({"free_mb": 99}, "scratch", "failed", "99 MB free; pilots need more"),
        ({"free_mb": None}, "scratch", "ok", "free space unknown"),
        ({"servers": []}, "server", "unknown", "no address for pilots"),
        ({"servers": []}, "clock", "unknown", "no server answered"),
    ],
)
def test_facts_of_a_node(changes, check, result, words):
    got, detail = found(**changes)[check]
    assert got == result
    assert words in detail


@pytest.mark.parametrize(
    ("changes", "result", "words"),
    [
        (
            {"tls": "", "address": "http://127.0.0.1:7777"},
            "ok",
            "plain HTTP on one machine: the server has no TLS",
        ),
        ({"tls": "", "is_private": False}, "failed", "pilots send no token in the clear"),
        ({"fault": "It does not answer."}, "failed", "It does not answer. Let public_url of [server] be"),
        (
            {"fault": "Not trusted.", "untrusted": True},
            "failed",
            "Not trusted. Let tls_certificate of [server]",
        ),
        ({"fault": "No CA file.", "bad_ca_file": True}, "failed", "No CA file. Put it there"),
    ],
)
def test_the_way_to_the_server(changes, result, words):
    got, detail = asked(**changes)["server"]
    assert got == result
    assert words in detail


@pytest.mark.parametrize(
    ("ahead", "result", "words"),
    [
        (None, "unknown", "no server answered"),
        (60.0, "ok", "60.0 s from"),
        (-60.0, "ok", "60.0 s from"),
        (60.5, "failed", "60 s ahead of the server's: let NTP set both"),
        (-3_600.0, "failed", "the clock of wn1 is 3,600 s behind the server's"),
    ],
)
def test_the_clock(ahead, result, words):
    got, detail = asked(ahead_s=ahead)["clock"]
    assert got == result
    assert words in detail


def test_each_address_has_its_row_and_the_worst_clock_counts():
    far = {**SERVER, "address": "https://two.example", "ahead_s": -90.0}
    report = read_report(line(servers=[SERVER, far]))
    assert report is not None
    rows = [(one.check, one.result, one.seconds) for one in judge_node(report, python="python3")]
    assert rows[2:] == [("server", "ok", 0.25), ("server", "ok", 0.25), ("clock", "failed", 0.0)]


def test_the_report_is_the_last_line_that_is_one():
    output = b"Welcome to wn1\n" + line(host="first") + b"\n" + line() + b"\n{}\nbye \xff\n"
    report = read_report(output)
    assert report is not None
    assert report.host == "wn1"


@pytest.mark.parametrize(
    "output",
    [
        b"", b"\xff\xfe", b"null", b"[1]", b"{" * 100_000, line(host=5), line(host="x" * 3_000),
        line(servers=[SERVER] * 101), line()[:-1],
        json.dumps({name: value for name, value in REPORT.items() if name != "lode-site-test"}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_report(output):
    assert read_report(output) is None


def ended(code: int | None, detail: str = "") -> NativeStatus:
    return NativeStatus(state=NativeState.ENDED, observed_at=0.0, exit_code=code, detail=detail)


@pytest.mark.parametrize(
    ("status", "output", "check", "result", "words"),
    [
        (ended(NO_PYTHON), b"lodesman: no Python\n\n", "python", "failed", "install one, or name it"),
        (ended(NO_PYTHON), b"lodesman: no Python\n\n", "python", "failed", "it wrote last: lodesman: no Python"),
        (ended(NO_SCRATCH), None, "scratch", "failed", "no folder can be made on the node"),
        (ended(1), b"Traceback\n  line\nBad: x\n", "python", "failed", "exit code 1; it wrote last: Bad: x"),
        (ended(127, "ended: exit code 127"), b"", "python", "failed", "no report (ended: exit code 127): is `python`"),
        (ended(0), b"", "python", "failed", "no report (exit code 0)"),
        (ended(None, "out of memory"), None, "python", "failed", "out of memory"),
        (ended(0), None, "python", "unknown", "nothing is known of the node"),
        (ended(None), None, "python", "unknown", "nothing is known of the node"),
        (None, None, "python", "unknown", "nothing is known of the node"),
    ],
)  # fmt: skip
def test_what_silence_means(status, output, check, result, words):
    finding = judge_silence(status, output)
    assert (finding.check, finding.result) == (check, result)
    assert words in finding.detail


def test_only_the_end_of_a_long_last_line_is_shown():
    finding = judge_silence(ended(1), b"x" * 60_000)
    assert len(finding.detail) < 500
