"""`plan`: dry runs against the live state over HTTP, of a job, of a changed resource file and of a changed share."""

from __future__ import annotations

import json
import time
from typing import Any

from bench import bodies
from bench.context import Context
from bench.figures import Figure
from bench.generator import Connection, LoadFault, encode
from bench.oracle import WrongAnswer
from bench.stats import percentile
from bench.world import GRID, resources

JOBS, WHOLE = 200, 5


def measure(context: Context) -> list[Figure]:
    """Plans one after the other. A job plan counts with its percentile, the large plans with their best."""
    size = context.size()
    data = context.world(size)
    token = context.tokens(data)["admin"]
    asked = [encode("POST", "/v1/plan/job", token, _job(number)) for number in range(context.less(JOBS, 10))]
    with context.server(data) as server:
        server.wait_for_calm()
        connection = Connection(server.port)
        for one in asked[:10]:
            _ask(connection, one)
        meter = server.meter()
        jobs = [_ask(connection, one)[0] for one in asked]
        meter.read()
        large = {
            name: [
                _ask(connection, encode("POST", f"/v1/plan/{name}", token, body))
                for _ in range(context.less(WHOLE))
            ]
            for name, body in (("resources", _resources()), ("shares", _shares()))
        }
        connection.close()
    context.drop(data)
    shown = {name: answers[0][1] for name, answers in large.items()}
    if not shown["resources"]["queues"]:
        raise WrongAnswer("a plan with changed queues names none")
    shared: dict[str, Any] = {"less": True, "size": str(size)}
    seconds = {name: [taken for taken, _ in answers] for name, answers in large.items()}
    return [
        Figure(row="plan-job", what="plan of one job over HTTP, 99 % within", unit="ms",
               value=1e3 * percentile(jobs, 99), cpu_us=meter.cpu_us(len(jobs)),
               details={"p50_ms": 1e3 * percentile(jobs, 50)}, **shared),
        Figure(row="plan-resources", what="plan of a resource file with ten changed sites", unit="s",
               value=min(seconds["resources"]), samples=seconds["resources"], **shared),
        Figure(row="plan-share", what="plan of a changed share", unit="s", value=min(seconds["shares"]),
               samples=seconds["shares"], **shared),
    ]  # fmt: skip


def _job(number: int) -> bytes:
    return json.dumps({"jobs": [bodies.job(number)], "hold_if_impossible": True}).encode()


def _resources() -> bytes:
    """The large grid, of which ten sites have much more memory."""
    lines = resources(GRID).split("\n")
    at = [n for n, line in enumerate(lines) if line.startswith("MaxRAM")][:20]
    for n in at:
        lines[n] = "MaxRAM = 1000000"
    return json.dumps({"files": [{"name": "grid.toml", "text": "\n".join(lines)}]}).encode()


def _shares() -> bytes:
    return json.dumps({"shares": {"group00": 1_000}}).encode()


def _ask(connection: Connection, request: bytes) -> tuple[float, Any]:
    """Seconds until the answer, and the answer."""
    begun = time.perf_counter()
    status, body = connection.ask(request)
    if status != 200:
        raise LoadFault(f"plan: {status} {body[:300]!r}")
    return time.perf_counter() - begun, json.loads(body)
