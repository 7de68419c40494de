"""`why` of single waiting jobs: over HTTP, and the explanation alone. Each compares every queue with the job.

Three task queues in ten have Requirements. The director decides about all task queues and queues as it does in
production; the pilots that it asks for wait in a batch system that starts none.
"""

from __future__ import annotations

import gc
import json
import os
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

SLURM = Path(__file__).parents[1] / "waiting_slurm.sh"
BATCH = "waiting"
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sacct")
PILOTS = 1_000


def measure(context: Context) -> list[Figure]:
    """One question after the other, about jobs drawn at random."""
    size = context.size()
    data = context.world(size, WISHES)
    token = context.tokens(data)["admin"]
    rng = random.Random(5)
    asked = [
        encode("GET", f"/v1/jobs/{rng.randrange(1, size.jobs + 1)}/why", token)
        for _ in range(context.less(500, 20))
    ]
    grid = context.home / "why.toml"
    grid.write_text(resources(WISHES, backend=BATCH))
    settings = {
        "director.pilotsPerIteration": context.less(PILOTS),
        "director.totalThreadsInPool": context.less(10 * PILOTS),
        f"backend.{BATCH}": _batch_system(context.home / "slurm"),
    }
    with context.server(data, settings=settings, resources_file=grid) as server:
        server.wait_for_calm()
        _ask(server.port, asked[:10])
        meter = server.meter()
        answered = [_ask(server.port, asked) for _ in range(context.samples)]
        meter.read()
        cpu_us = meter.cpu_us(len(asked) * context.samples)
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
               samples=p50s, cpu_us=cpu_us, details={"verdicts": verdicts}, **shared),
        Figure(row="why-p99", what="99 % of them within", value=min(p99s), samples=p99s, target=5.0, **shared),
        Figure(row="why-hot", what="the explanation alone, 99 % within", value=min(hot99s), samples=hot99s,
               target=2.0, details={"p50_ms": hot50s}, **shared),
    ]  # fmt: skip


def _batch_system(folder: Path) -> dict[str, Any]:
    """The section of a Slurm that takes all pilots and starts none."""
    folder.mkdir()
    (folder / "jobs").touch()
    for name in COMMANDS:
        (folder / name).symlink_to(SLURM)
    path = f"{folder}:{os.environ['PATH']}"
    return {"type": "slurm", "folder": str(folder / "outputs"), "environment": {"PATH": path}}


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
    """The verdicts, and the seconds of each answer."""
    verdicts: Counter[str] = Counter()
    latencies = []
    connection = Connection(port)
    for request in requests:
        begun = time.perf_counter()
        status, body = connection.ask(request)
        if status != 200:
            raise LoadFault(f"why: {status} {body[:300]!r}")
        latencies.append(time.perf_counter() - begun)
        verdicts[json.loads(body)["verdict"]] += 1
    connection.close()
    return dict(verdicts), latencies
