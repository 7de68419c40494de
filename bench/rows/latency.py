"""From before the POST to the start of the payload, with a real pilot that waits for work."""

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
PATIENCE, POLL, REST = 60.0, 0.004, 0.05


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
        jobs = 20 if context.quick else 200
        times = _all(server, token, jobs)
    p50, p99 = (1e3 * percentile(times, q) for q in (50, 99))
    shared: dict[str, Any] = {
        "unit": "ms",
        "less": True,
        "floor_name": "spawn",
        "floor": 1e3 / context.floors.spawns,
        "size": f"{jobs} jobs",
    }
    return [
        Figure(row="latency-p50", what="submit to payload start on an idle pilot, half of them within", value=p50,
               target=10, details={"least_ms": 1e3 * min(times)}, **shared),
        Figure(row="latency-p99", what="99 % of them within", value=p99, target=40,
               details={"worst_ms": 1e3 * max(times)}, **shared),
    ]  # fmt: skip


def _all(server: Server, token: str, jobs: int) -> list[float]:
    connection = Connection(server.port)
    post = encode("POST", "/v1/jobs", token, BODY)
    for _ in range(3):  # brings the pilot, and warms it up
        _one(connection, token, post)
    times = [_one(connection, token, post) for _ in range(jobs)]
    connection.close()
    return times


def _one(connection: Connection, token: str, post: bytes) -> float:
    """Submit one job; the seconds until its payload read the clock."""
    begun = time.time()
    status, body = connection.ask(post)
    if status != 200:
        raise LoadFault(f"{status} {body!r}")
    number = json.loads(body)["first"]
    end = time.monotonic() + PATIENCE
    while _state(connection, token, number) not in ("Done", "Failed"):
        if time.monotonic() > end:
            raise LoadFault(f"job {number} did not end")
        time.sleep(POLL)
    status, packed = connection.ask(encode("GET", f"/v1/jobs/{number}/output", token))
    time.sleep(REST)  # the pilot asks for its next job and waits
    return _said(packed) - begun


def _state(connection: Connection, token: str, number: int) -> str:
    """The state of a job; unknown while the reading process starts."""
    status, body = connection.ask(encode("GET", f"/v1/jobs/{number}", token))
    return str(json.loads(body)["state"]) if status == 200 else ""


def _said(packed: bytes) -> float:
    """The time that the payload wrote."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = next(one for one in archive.getmembers() if Path(one.name).name == "std.out")
        file = archive.extractfile(member)
        assert file is not None
        return float(file.read())
