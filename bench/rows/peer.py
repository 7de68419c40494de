"""Against DIRAC's own TaskQueueDB, both in process and durable, one after the other in one run."""

from __future__ import annotations

import random
from typing import Any

from bench import dirac
from bench.context import Context
from bench.engine import Engine
from bench.figures import Figure, best
from bench.machine import Meter
from bench.peer_world import PEER
from bench.stats import percentile
from bench.world import Size

CONSUMED = 0.3  # of the waiting jobs, as in the peer's own measurement
PILOTS = 2_000
CHECKED = 24
MANY, ONE = 256, 1  # clients


def measure(context: Context) -> list[Figure]:
    """The highest rate of each side, and that of one client, which waits for the disk at each claim."""
    peer = None
    if context.dirac is None:
        context.say("peer: DIRAC was not given (--dirac FOLDER); only our side is measured")
    else:
        context.say("peer: DIRAC's side")
        peer = dirac.measure(context.dirac, context.home, part=context.part)
        context.say(f"peer: DIRAC claims/s by processes: {peer.rates}; our side")
    jobs, queues = (peer.jobs, peer.queues) if peer else map(context.less, (dirac.JOBS, dirac.QUEUES))
    size = Size(jobs=jobs, queues=queues, rows=jobs, pilots=context.less(PILOTS))
    return [_against(context, size, clients, peer) for clients in (MANY, ONE)]


def _against(context: Context, size: Size, clients: int, peer: dirac.Peer | None) -> Figure:
    samples = [_sample(context, size, clients, number) for number in range(context.samples)]
    top = best(samples, "rate")
    rates = [one["rate"] for one in samples]
    how = "claims in process, one client" if clients == 1 else f"claims in process, {clients} clients"
    if peer is None:
        return Figure(
            row=f"peer-{clients}", what=f"durable claims, peer workload, {how}", unit="/s", value=top["rate"],
            size=str(size), floor_name="SQLite commits", floor=context.floors.sqlite_commits, samples=rates, details=top,
        )  # fmt: skip
    processes, theirs = peer.best if clients > 1 else (1, peer.rates[1])
    when = "in the same run" if peer.same_run else "from a report"
    return Figure(
        row=f"peer-{clients}", unit="x", value=top["rate"] / theirs, target=100 if clients > 1 else None, size=str(size),
        what=f"{how}, against {processes} process{'es' * (processes > 1)} of DIRAC ({theirs:.0f}/s, {when})",
        samples=[one / theirs for one in rates],
        details=top | {"rates": rates, "dirac_claims_per_s": peer.rates, "same_run": peer.same_run},
    )  # fmt: skip


def _sample(context: Context, size: Size, clients: int, number: int) -> dict[str, Any]:
    data = context.world(size, PEER)
    engine = Engine(data, shares=PEER.shares, seed=number)
    try:
        engine.run(size.pilots, clients=clients)
        claims = int(size.jobs * CONSUMED)
        meter = Meter()
        seconds = engine.run(claims, clients=clients)
        return {
            "rate": round((claims - engine.empty) / seconds), "empty": engine.empty,
            "p50_ms": 1e3 * percentile(engine.latencies, 50), "p99_ms": 1e3 * percentile(engine.latencies, 99),
            "checked": engine.check(CHECKED, random.Random(number)), **meter.read(),
        }  # fmt: skip
    finally:
        engine.close()
        context.drop(data)
