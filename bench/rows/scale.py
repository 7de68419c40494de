"""Ten million waiting jobs: the time of a claim against a hundred thousand, the start of the server, its memory. A hundred
thousand task queues, and ten thousand idle pilots: what they cost while nothing happens.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any

from bench.context import FULL, Context
from bench.engine import Engine
from bench.figures import Figure
from bench.generator import Connection, encode
from bench.machine import process_cpu
from bench.server import Server
from bench.stats import median, percentile
from bench.world import GRID, Size

ROUNDS = 5


def measure(context: Context) -> list[Figure]:
    """Ratio of claim times, seconds of a start, memory after it."""
    large = context.size(jobs=10_000_000, rows=1_000_000)
    small = context.size(jobs=100_000, rows=10_000)
    return [*_claims(context, large, small), *_start(context, large)]


def _claims(context: Context, large: Size, small: Size) -> list[Figure]:
    """Both worlds are open at once and measured in turn, so that changes of the machine affect both."""
    folders = [context.world(large), context.world(small)]
    engines = [Engine(data, shares=GRID.shares, seed=3) for data in folders]
    warm, claims = (context.less(4_000), context.less(4_000, 100))
    found: dict[str, list[float]] = {}
    try:
        for engine in engines:
            engine.run(warm, clients=64)
        for clients in (64, 1):
            for _ in range(ROUNDS):
                for name, engine in zip(("large", "small"), engines, strict=True):
                    part = claims // ROUNDS
                    seconds = engine.run(part, clients=clients)
                    found.setdefault(f"{name}-{clients}-mean", []).append(1e3 * seconds / part)
                    found.setdefault(f"{name}-{clients}", []).extend(1e3 * one for one in engine.latencies)
    finally:
        for engine, data in zip(engines, folders, strict=True):
            engine.close()
            context.drop(data)
    return [_ratio(found, clients, large, small) for clients in (64, 1)]


def _ratio(found: dict[str, list[float]], clients: int, large: Size, small: Size) -> Figure:
    of, per = found[f"large-{clients}"], found[f"small-{clients}"]
    rounds = [
        a / b for a, b in zip(found[f"large-{clients}-mean"], found[f"small-{clients}-mean"], strict=True)
    ]
    return Figure(
        row=f"scale-claim-{clients}", unit="x", value=median(rounds), target=1.2, less=True, samples=rounds,
        what=f"claim time at {large.jobs:,} waiting against {small.jobs:,}, {clients} client{'s' * (clients > 1)}",
        size=f"{large} against {small}",
        details={
            "large_p50_ms": percentile(of, 50), "small_p50_ms": percentile(per, 50),
            "large_p99_ms": percentile(of, 99), "small_p99_ms": percentile(per, 99),
            "ratio_p50": percentile(of, 50) / percentile(per, 50),
            "ratio_p99": percentile(of, 99) / percentile(per, 99),
        },
    )  # fmt: skip


def _start(context: Context, size: Size) -> list[Figure]:
    starts, memory = [], {}
    for _ in range(context.samples):
        data = context.world(size)
        with context.server(data) as server:
            starts.append(server.start_seconds)
            server.wait_for_calm()
            memory = server.memory_mb()
        context.drop(data)
    return [
        Figure(row="start", what=f"server start at {size.jobs:,} waiting jobs", unit="s", value=min(starts), target=3,
               less=True, floor_name="spawn", floor=1 / context.floors.spawns, size=str(size), samples=starts),
        Figure(row="memory", what="its memory (RSS of both processes)", unit="MB", value=sum(memory.values()),
               target=400, less=True, size=str(size), details=memory),
    ]  # fmt: skip


def many_queues(context: Context) -> list[Figure]:
    """Memory of both processes with very many task queues, and their CPU while nothing happens."""
    size = context.size(queues=100_000, rows=0)
    data = context.world(size)
    with context.server(data) as server:
        server.wait_for_calm()
        idle = _idle(server, context)
    context.drop(data)
    return [
        Figure(row="scale-queues-memory", what=f"memory (RSS) of both processes at {size.queues:,} task queues", unit="MB",
               value=idle["hot_mb"] + idle["background_mb"], target=500, less=True, size=str(size), details=idle),
        Figure(row="scale-queues-idle", what="their CPU while nothing happens", unit="% of a core",
               value=idle["hot_percent"] + idle["background_percent"], target=1, less=True, size=str(size), details=idle),
    ]  # fmt: skip


def idle_pilots(context: Context) -> list[Figure]:
    """What pilots cost that wait for jobs, each on its own connection: CPU of both processes, memory of each pilot."""
    pilots = context.less(10_000)
    size = context.size(queues=1, jobs=0, rows=0, pilots=pilots)
    data = context.world(size)
    tokens = context.tokens(data)["pilots"]
    with context.server(data) as server, ExitStack() as stack:
        server.wait_for_calm()
        before = server.memory_mb()
        for number, token in enumerate(tokens):
            connection = Connection(server.port)
            stack.callback(connection.close)
            body = {"claim_token": f"idle-{number:08}", "resource": {"cores": 1}, "wait_s": 3_600}
            connection.send(encode("POST", "/v1/pilots/claim", token, json.dumps(body).encode()))
        idle = _idle(server, context)
    context.drop(data)
    grown = idle["hot_mb"] + idle["background_mb"] - sum(before.values())
    return [
        Figure(row="idle-pilots-cpu", what=f"CPU of both processes while {pilots:,} pilots wait", unit="% of a core",
               value=idle["hot_percent"] + idle["background_percent"], target=2, less=True, details=idle),
        Figure(row="idle-pilots-memory", what="memory (RSS) of both processes for each connection", unit="kB",
               value=1024 * grown / pilots, target=10, less=True, details=before),
    ]  # fmt: skip


def _idle(server: Server, context: Context) -> dict[str, Any]:
    """Memory after a settled minute, and the CPU of the next one in percent of a core."""
    seconds = 60.0 if context.part == FULL else context.seconds
    time.sleep(seconds)
    background = server.background()
    processes = {"hot": server.pid} | ({"background": background} if background else {})
    before = {name: process_cpu(pid) for name, pid in processes.items()}
    begun = time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - begun
    used = {
        f"{name}_percent": 100 * (process_cpu(pid) - before[name]) / took for name, pid in processes.items()
    }
    return {"hot_percent": 0.0, "background_percent": 0.0, **server.memory_mb(), **used}
