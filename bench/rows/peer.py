"""Against DIRAC's own TaskQueueDB, in process: its figure is read from a file, ours is measured with the same numbers."""

from __future__ import annotations

import json
import random
from typing import Any

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


def peer_rate(report: dict[str, Any]) -> float:
    """Claims per second of one process in the report of the peer. Raises ValueError if it has none."""
    try:
        return float(report["match_1p"]["match"]["matches_per_s"])
    except KeyError as lacking:
        raise ValueError(f"the report has no match_1p.match.matches_per_s: {lacking} is missing") from None


def measure(context: Context) -> list[Figure]:
    """Claims of one job each: a commit for each claim, and 64 clients that share commits."""
    if context.dirac is None:
        context.say("peer: no result of DIRAC was given (--dirac FILE); only our side is measured")
    report = json.loads(context.dirac.read_text()) if context.dirac else None
    jobs, queues = (
        (report["params"]["jobs"], report["params"]["requirement_sets"]) if report else (100_000, 10_000)
    )
    size = Size(jobs=jobs, queues=queues, rows=jobs, pilots=PILOTS)
    theirs = peer_rate(report) if report else None
    return [_against(context, size, clients, theirs) for clients in (1, 64)]


def _against(context: Context, size: Size, clients: int, theirs: float | None) -> Figure:
    samples = [_sample(context, size, clients, number) for number in range(context.samples)]
    top = best(samples, "rate")
    how = "a commit for each claim" if clients == 1 else f"{clients} clients share commits"
    details = top | {"rates": [one["rate"] for one in samples], "dirac_claims_per_s": theirs}
    if theirs is None:
        return Figure(row=f"peer-{clients}", what=f"durable claims, peer workload, {how}", unit="/s", value=top["rate"],
                      size=str(size), details=details)  # fmt: skip
    return Figure(
        row=f"peer-{clients}", what=f"against DIRAC's matchAndGetJob, in process, {how}", unit="x",
        value=top["rate"] / theirs, target=100, size=str(size), details=details,
        samples=[one["rate"] / theirs for one in samples],
    )  # fmt: skip


def _sample(context: Context, size: Size, clients: int, number: int) -> dict[str, Any]:
    data = context.world(size, PEER)
    engine = Engine(data, shares=PEER.shares, seed=number)
    claims = int(size.jobs * CONSUMED)
    claims = claims // 10 if context.quick else claims
    try:
        engine.run(PILOTS, clients=clients)
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
