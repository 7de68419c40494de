"""The report of a test job from its worker node. Anything unexpected is no report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from lodesman.server.engines.backend import NativeStatus
from lodesman.server.engines.job_script import NO_PYTHON, NO_SCRATCH
from lodesman.wire.site_tests import CheckName, Result

# Certificates and the times of jobs are wrong on a node whose clock is.
_CLOCK_SECONDS: Final = 60.0
_FEW_MB: Final = 100
_TAIL: Final = 300
_Text = Annotated[str, Meta(max_length=2_000)]


class ServerFact(Struct):
    """Whether one address of the server answered."""

    address: _Text
    is_private: bool
    tls: _Text
    fault: _Text
    ahead_s: float | None  # how far the node's clock is ahead; None: not known
    untrusted: bool  # the certificate of the server
    bad_ca_file: bool  # it cannot be used there
    seconds: float


class NodeReport(Struct, rename={"mark": "lode-site-test"}):
    """What a test job found (`pilot.probe`)."""

    mark: int
    host: _Text
    python: _Text
    executable: _Text
    has_python: bool  # the Python that is configured for pilots
    keeps_jobs_apart: bool
    folder: _Text
    free_mb: int | None
    scratch_fault: _Text
    servers: Annotated[list[ServerFact], Meta(max_length=100)]


class Finding(Struct, frozen=True, kw_only=True):
    """What one check found."""

    check: CheckName
    result: Result
    detail: str
    seconds: float = 0.0


def read_report(output: bytes) -> NodeReport | None:
    """The last line of an output that is a report; a site may print more."""
    for line in reversed(output.splitlines()):
        try:
            return msgspec.json.decode(line, type=NodeReport)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def judge_node(report: NodeReport, *, python: str) -> Iterator[Finding]:
    """`python`: the command that is configured for pilots."""
    yield _python(report, python)
    yield _scratch(report)
    yield from map(_server, report.servers)
    if not report.servers:
        yield Finding(check="server", result="unknown", detail="the server has no address for pilots")
    yield _clock(report)


def _python(report: NodeReport, python: str) -> Finding:
    which = f" ({report.executable})" if report.executable else ""
    version = f"Python {report.python}{which} on {report.host}"
    if not report.keeps_jobs_apart:
        words = f"{version}: its kernel, or a Python without ctypes, cannot keep jobs apart; pilots end at once there"
        return Finding(check="python", result="failed", detail=words)
    other = f"; {python!r} is not there: change `python` of [pilots]"
    return Finding(check="python", result="ok", detail=version + ("" if report.has_python else other))


def _scratch(report: NodeReport) -> Finding:
    free = "free space unknown" if report.free_mb is None else f"{report.free_mb:,} MB free"
    place = f"{report.folder} on {report.host}"
    if report.scratch_fault:
        words = f"no job can run in {place}: {report.scratch_fault} ({free}); mend it, or set TMPDIR there"
        return Finding(check="scratch", result="failed", detail=words)
    few = report.free_mb is not None and report.free_mb < _FEW_MB
    words = f"{place}: {free}" + ("; pilots need more, so make room, or set TMPDIR there" if few else "")
    return Finding(check="scratch", result="failed" if few else "ok", detail=words)


def _server(fact: ServerFact) -> Finding:
    if fact.fault or not fact.is_private:
        words = _fault_of(fact)
        return Finding(check="server", result="failed", detail=words, seconds=fact.seconds)
    way = f"by {fact.tls}" if fact.tls else "by plain HTTP on one machine: the server has no TLS"
    return Finding(check="server", result="ok", detail=f"{fact.address} {way}", seconds=fact.seconds)


def _fault_of(fact: ServerFact) -> str:
    if fact.bad_ca_file:
        return f"{fact.fault} Put it there, or get the server a certificate that nodes trust without it."
    if fact.untrusted:
        return (
            f"{fact.fault} Let tls_certificate of [server] hold the whole chain, and its name be the address."
        )
    if fact.fault:
        return (
            f"{fact.fault} Let public_url of [server] be an address that nodes reach, and firewalls admit it."
        )
    return (
        f"{fact.address} answers by plain HTTP, and pilots send no token in the clear: give the server TLS "
        "(tls_certificate of [server]), or a public_url by https."
    )


def _clock(report: NodeReport) -> Finding:
    clocks = [server.ahead_s for server in report.servers if server.ahead_s is not None]
    if not clocks:
        return Finding(check="clock", result="unknown", detail="no server answered with its time")
    ahead = max(clocks, key=abs)
    if not abs(ahead) > _CLOCK_SECONDS:
        return Finding(check="clock", result="ok", detail=f"{abs(ahead):.1f} s from the server's")
    way = "ahead of" if ahead > 0 else "behind"
    words = f"the clock of {report.host} is {abs(ahead):,.0f} s {way} the server's: let NTP set both"
    return Finding(check="clock", result="failed", detail=words)


def judge_silence(status: NativeStatus | None, output: bytes | None) -> Finding:
    """What it means that a test job wrote no report."""
    code = None if status is None else status.exit_code
    lines = (output or b"").decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")[-_TAIL:]
    wrote = f"; it wrote last: {last}" if last else ""
    if code == NO_SCRATCH:
        words = f"no folder can be made on the node: make room, or set TMPDIR there{wrote}"
        return Finding(check="scratch", result="failed", detail=words)
    if code == NO_PYTHON:
        words = f"the node has no Python 3.9 or newer: install one, or name it, `python` of [pilots]{wrote}"
        return Finding(check="python", result="failed", detail=words)
    end = "" if status is None else status.detail or (f"exit code {code}" if code is not None else "")
    if output is None and (code == 0 or not end):
        return Finding(check="python", result="unknown", detail="nothing is known of the node")
    words = f"the test job wrote no report ({end or 'it ended'}{wrote}): is `python` of [pilots] right?"
    return Finding(check="python", result="failed", detail=words)
