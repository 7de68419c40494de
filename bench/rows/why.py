"""`why` of single waiting jobs: over HTTP, and the explanation alone. Each compares every queue with the job.

Three task queues in ten have Requirements. The director decides about all task queues and queues as it does in
production; only the pilots that it asks for are not started.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure
from bench.generator import Connection, LoadFault, encode
from bench.stats import percentile
from bench.stores import database
from bench.world import WISHES, resources

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.reads.explain import Explainer
from lodesman.server.store.read.jobs import job_by_id

# In the processes of the server, before all else.
NO_PILOTS = """
from lodesman.server.loops.direct import Director
Director._launch = lambda director, decision: None
"""
DIRECTOR = {"director.pilotsPerIteration": 1_000, "director.totalThreadsInPool": 10_000}


def measure(context: Context) -> list[Figure]:
    """One question after the other, about jobs drawn at random."""
    size = context.size()
    data = context.world(size, WISHES)
    token = context.tokens(data)["admin"]
    rng = random.Random(5)
    asked = [
        encode("GET", f"/v1/jobs/{rng.randrange(1, size.jobs + 1)}/why", token)
        for _ in range(50 if context.quick else 500)
    ]
    grid = context.home / "why.toml"
    grid.write_text(resources(WISHES, backend="local"))
    with context.server(data, settings=DIRECTOR, resources_file=grid, prelude=NO_PILOTS) as server:
        server.wait_for_calm()
        answered = [_ask(server.port, asked) for _ in range(context.samples)]
    jobs = [rng.randrange(1, size.jobs + 1) for _ in asked]
    alone = [_alone(data, grid, jobs) for _ in range(context.samples)]
    context.drop(data)
    verdicts = answered[0][0]
    p50s, p99s = ([1e3 * percentile(latencies, q) for _, latencies in answered] for q in (50, 99))
    hot50s, hot99s = ([1e3 * percentile(seconds, q) for seconds in alone] for q in (50, 99))
    shared: dict[str, Any] = {
        "unit": "ms",
        "less": True,
        "floor_name": "spawn",
        "floor": 1e3 / context.floors.spawns,
        "size": str(size),
    }
    return [
        Figure(row="why-p50", what="why of one waiting job over HTTP, half of them within", value=min(p50s),
               samples=p50s, details={"verdicts": verdicts}, **shared),
        Figure(row="why-p99", what="99 % of them within", value=min(p99s), samples=p99s, target=5.0, **shared),
        Figure(row="why-hot", what="the explanation alone, 99 % within", value=min(hot99s), samples=hot99s,
               target=2.0, details={"p50_ms": hot50s}, **shared),
    ]  # fmt: skip


def _alone(data: Path, resources: Path, jobs: list[int]) -> list[float]:
    """Seconds of each explanation, without HTTP, on an existing snapshot, with the memory settings of the server."""
    db = database(data).reader()
    policy = Policy(load_resources([(str(resources), resources.read_text())]))
    keeper = SnapshotKeeper(database(data).reader())
    keeper.refresh(time.time())
    for vo in policy.config.vos:
        policy.vo_config(vo)
    gc.collect()
    gc.freeze()
    seconds = []
    try:
        for number in [*jobs[:10], *jobs]:
            begun = time.perf_counter()
            job = job_by_id(db, number)
            assert job is not None
            Explainer(db, policy, keeper, time.time()).job(job)
            seconds.append(time.perf_counter() - begun)
    finally:
        gc.unfreeze()
        db.close()
    return seconds[10:]


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
