"""`why` of single waiting jobs over HTTP: every queue of the grid is held against the job."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from typing import Any

from bench.context import Context
from bench.figures import Figure
from bench.generator import Connection, LoadFault, encode
from bench.stats import percentile


def measure(context: Context) -> list[Figure]:
    """One question after the other, about jobs drawn at random."""
    size = context.size()
    data = context.world(size)
    token = context.tokens(data)["admin"]
    rng = random.Random(5)
    asked = [
        encode("GET", f"/v1/jobs/{rng.randrange(1, size.jobs + 1)}/why", token)
        for _ in range(50 if context.quick else 500)
    ]
    with context.server(data) as server:
        server.wait_for_calm()
        verdicts, latencies = _ask(server.port, asked)
    context.drop(data)
    p50, p99 = (1e3 * percentile(latencies, q) for q in (50, 99))
    shared: dict[str, Any] = {
        "unit": "ms",
        "less": True,
        "floor_name": "spawn",
        "floor": 1e3 / context.floors.spawns,
        "size": str(size),
    }
    return [
        Figure(row="why-p50", what="why of one waiting job over HTTP, half of them within", value=p50,
               details={"verdicts": verdicts}, **shared),
        Figure(row="why-p99", what="99 % of them within", value=p99, **shared),
    ]  # fmt: skip


def _ask(port: int, requests: list[bytes]) -> tuple[dict[str, int], list[float]]:
    """The verdicts, and the seconds of each answer, the first ten unmeasured."""
    verdicts: Counter[str] = Counter()
    latencies = []
    connection = Connection(port)
    for number, request in enumerate([*requests[:10], *requests]):
        begun = time.perf_counter()
        status, body = connection.ask(request)
        if status != 200:
            raise LoadFault(f"why: {status} {body[:300]!r}")
        if number >= 10:
            latencies.append(time.perf_counter() - begun)
            verdicts[json.loads(body)["verdict"]] += 1
    connection.close()
    return dict(verdicts), latencies
