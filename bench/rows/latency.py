"""From before the POST to the start of the payload, and to the answer that it is Done; a real pilot waits for work."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure
from bench.generator import Connection, LoadFault, encode
from bench.server import Server
from bench.stats import percentile

SITE = """
[site.here]
VO = ["bench"]
[site.here.ce.ce]
Backend = "local"
[site.here.ce.ce.queue.default]
Slots = 1
NumberOfProcessors = 1
MaxWaitingJobs = 1
MaxTotalJobs = 1
CPUTime = "1 d"
[group.users]
vo = "bench"
"""
# The program that prints the time and starts fastest.
JOB = {"Executable": "/bin/date", "Arguments": ["+%s.%N"], "StdOutput": "std.out", "CPUTime": 3600}
BODY = json.dumps({"jobs": [JOB]}).encode()
REST = 0.05


def measure(context: Context) -> list[Figure]:
    """200 jobs, one after the other."""
    folder = context.home / "one-site"
    folder.mkdir()
    (folder / "site.toml").write_text(SITE)
    settings = {
        "director.PollingTime": 1, "director.pilotsPerIteration": 5, "director.PrivatePilotFraction": 0,
        "pilots.idle_seconds": 600, "pilots.stop_at_exit": True, "pilots.python": sys.executable,
    }  # fmt: skip
    server = Server(
        folder / "data", resources=folder / "site.toml", settings=settings, prelude=context.prelude
    )
    (folder / "data").mkdir()
    with server:
        token = (folder / "data" / "admin.token").read_text().strip()
        jobs = context.less(200)
        times = _all(server, token, jobs)
    starts, ends = ([1e3 * one for one in of] for of in zip(*times, strict=True))
    shared: dict[str, Any] = {
        "unit": "ms",
        "less": True,
        "floor_name": "spawn",
        "floor": 1e3 / context.floors.spawns,
        "size": f"{jobs} jobs",
    }
    return [
        Figure(row="latency-p50", what="submit to payload start on an idle pilot, half of them within",
               value=percentile(starts, 50), target=10, details={"least_ms": min(starts)}, **shared),
        Figure(row="latency-p99", what="99 % of them within", value=percentile(starts, 99), target=40,
               details={"worst_ms": max(starts), "p95_ms": percentile(starts, 95)}, **shared),
        Figure(row="latency-done-p50", what="submit to the answer to a waiting client that it is Done, half within",
               value=percentile(ends, 50), **shared),
        Figure(row="latency-done-p95", what="95 % of them within", value=percentile(ends, 95), **shared),
    ]  # fmt: skip


def _all(server: Server, token: str, jobs: int) -> list[tuple[float, float]]:
    connection = Connection(server.port)
    post = encode("POST", "/v1/jobs", token, BODY)
    for _ in range(3):  # brings the pilot, and warms it up
        _one(connection, token, post)
    times = [_one(connection, token, post) for _ in range(jobs)]
    connection.close()
    return times


def _one(connection: Connection, token: str, post: bytes) -> tuple[float, float]:
    """Submit one job; the seconds until its payload read the clock, and until a client that waits has the answer."""
    begun = time.time()
    status, body = connection.ask(post)
    if status != 200:
        raise LoadFault(f"{status} {body!r}")
    number = json.loads(body)["first"]
    status, body = connection.ask(encode("GET", f"/v1/jobs/wait?jobs={number}", token))
    ended = time.time()
    if status != 200 or json.loads(body)["left"]:
        raise LoadFault(f"job {number} did not end: {status} {body!r}")
    status, packed = connection.ask(encode("GET", f"/v1/jobs/{number}/output", token))
    time.sleep(REST)  # the pilot asks for its next job and waits
    return _said(packed) - begun, ended - begun


def _said(packed: bytes) -> float:
    """The time that the payload wrote."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = next(one for one in archive.getmembers() if Path(one.name).name == "std.out")
        file = archive.extractfile(member)
        assert file is not None
        return float(file.read())
