"""Durable claims: in process, and over HTTP with 64 connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.engine import Engine
from bench.figures import Figure, best
from bench.generator import Load, wrk
from bench.machine import Meter
from bench.oracle import check_answer, eligible
from bench.server import Server
from bench.stats import percentile
from bench.stores import database
from bench.world import GRID, WISHES, Workload

from lodesman.server.store.task_queues import held_queues, queues_with_jobs
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import UNLIMITED, FreeResources, load_sessions

CONNECTIONS, MANY = 64, 50
BUSY_S = "20000"  # until the last payload of each pilot ends
CHECKED = 16
ROOM = FreeResources(64, UNLIMITED, UNLIMITED)
# Its pilots never report and would be full at once. What they hold is counted at its full cost and not applied; the last
# HELD to 2 * HELD attempts are kept, as many as a pilot may have at a time.
NEVER_FULL = """
from lodesman.server.writer.claim import Claim
from lodesman.server.writer.live import _LivePilots

HELD = 4
allowed, hold = Claim._allowed, _LivePilots.hold


def allow_all(claim):
    allowed(claim)
    return (), claim.count, 1 << 40


def hold_some(pilots, tx, pilot_id, attempt, key, place, **how):
    hold(pilots, tx, pilot_id, attempt, key, place, **how)
    held = pilots.held[pilot_id]
    if len(held) > 2 * HELD:
        for old in list(held)[:HELD]:
            del held[old]


Claim._allowed, _LivePilots.hold = allow_all, hold_some
"""


def in_process(context: Context) -> list[Figure]:
    """Journal, index and database alone, with 64 waiting clients and with one."""
    size = context.size()
    figures = []
    for clients, full in ((64, 100_000), (1, 20_000)):
        claims = full // 10 if context.quick else full
        samples = [_engine_sample(context, claims, clients, number) for number in range(context.samples)]
        top = best(samples, "rate")
        figures.append(
            Figure(
                row=f"claims-process-{clients}", unit="/s", value=top["rate"],
                what=f"durable claims in process, {clients} waiting client{'s' * (clients > 1)}",
                floor_name="SQLite commits", floor=context.floors.sqlite_commits, size=str(size),
                samples=[one["rate"] for one in samples], details=top,
            )
        )  # fmt: skip
    return figures


def _engine_sample(context: Context, claims: int, clients: int, number: int) -> dict[str, Any]:
    data = context.world(context.size())
    engine = Engine(data, shares=GRID.shares, seed=number)
    try:
        engine.run(max(claims // 5, 2_000), clients=clients)
        meter = Meter()
        commits = engine.journal.commits
        seconds = engine.run(claims, clients=clients)
        found = {
            "rate": round(claims / seconds), "p50_ms": 1e3 * percentile(engine.latencies, 50),
            "p99_ms": 1e3 * percentile(engine.latencies, 99), "empty": engine.empty,
            "claims_per_commit": claims / (engine.journal.commits - commits), **meter.read(),
        }  # fmt: skip
        return found | {"checked": engine.check(CHECKED, random.Random(number))}
    finally:
        engine.close()
        context.drop(data)


@dataclass(frozen=True, slots=True)
class _Sample:
    load: Load
    jobs: int
    cores: dict[str, float]
    checked: int
    warm_rate: float

    def as_dict(self) -> dict[str, Any]:
        """For choosing and for JSON."""
        load = self.load
        return {
            "rate": round(load.rate), "jobs_per_s": round(self.jobs / load.seconds), "p50_ms": load.p50_ms,
            "p99_ms": load.p99_ms, "failed": load.failed, "warm_up_rate": round(self.warm_rate),
            "wrk_cores": round(load.cpu_seconds / load.seconds, 2), "checked": self.checked, **self.cores,
        }  # fmt: skip


def over_http(context: Context) -> list[Figure]:
    """One job each, and 50 each; the rate, and the 99th percentile of the answers."""
    size = context.size()
    one = [claims_of_one(context, number) for number in range(context.samples)]
    top = best(one, "rate")
    many = [_http_sample(context, MANY, number).as_dict() for number in range(context.samples)]
    most = best(many, "jobs_per_s")
    wishes = _http_sample(context, 1, 0, WISHES).as_dict()
    packed = _http_sample(context, 1, 0, last_end_s=BUSY_S).as_dict()
    shared: dict[str, Any] = {"size": str(size), "floor_name": "bare HTTP"}
    return [
        Figure(row="claims-http", what="durable claims over HTTP, 64 connections, one job each", unit="/s",
               value=top["rate"], target=8_000, floor=context.floors.http, samples=[s["rate"] for s in one],
               details=top, **shared),
        Figure(row="claims-http-p99", what="99 % of these claims are answered within", unit="ms",
               value=min(s["p99_ms"] for s in one), target=20, less=True, samples=[s["p99_ms"] for s in one],
               details={"p50_ms": top["p50_ms"]}, size=str(size)),
        Figure(row="claims-50", what="jobs claimed when a request asks for 50", unit="jobs/s",
               value=most["jobs_per_s"], target=30_000, floor=context.floors.http,
               samples=[s["jobs_per_s"] for s in many], details=most, **shared),
        Figure(row="claims-http-wishes", what="claims as above, three task queues in ten with Requirements", unit="/s",
               value=wishes["rate"], floor=context.floors.http, details=wishes, **shared),
        Figure(row="claims-http-packed", what="claims as above, packed into pilots that run other jobs", unit="/s",
               value=packed["rate"], floor=context.floors.http, details=packed, **shared),
    ]  # fmt: skip


def claims_of_one(
    context: Context, number: int, begin: Callable[[Server], object] | None = None
) -> dict[str, Any]:
    """One sample over HTTP, one job each; `rate` is its claims a second. `begin` is done before them."""
    return _http_sample(context, 1, number, begin=begin).as_dict()


def _http_sample(
    context: Context,
    count: int,
    number: int,
    workload: Workload = GRID,
    begin: Callable[[Server], object] | None = None,
    *,
    last_end_s: str = "",
) -> _Sample:
    data = context.world(context.size(), workload)
    try:
        with context.server(data, workload=workload, prelude=NEVER_FULL) as server:
            server.wait_for_calm()
            if begin is not None:
                begin(server)
            warm = _load(
                server, data, context.warm_seconds, count=count, seed=f"warm{number}", last_end_s=last_end_s
            )
            before = server.counters()
            meter = server.meter()
            load = _load(
                server, data, context.seconds, count=count, seed=f"run{number}", last_end_s=last_end_s
            )
            cores = meter.read(wrk=load.cpu_seconds)
            after = server.counters()
            # With limits a pilot may get nothing although a job fits it.
            asked = after["claims_total"] - before["claims_total"]
            checked = 0 if begin is not None else check_over_http(context, server, data, asked)
            return _Sample(
                load, after["claimed_jobs_total"] - before["claimed_jobs_total"], cores, checked, warm.rate
            )
    finally:
        context.drop(data)


def _load(server: Server, data: Path, seconds: float, *, count: int, seed: str, last_end_s: str) -> Load:
    return wrk(
        server.url, "claim.lua", seconds=seconds, connections=CONNECTIONS,
        tokens=str(data / "pilot.tokens"), count=str(count), seed=seed, last_end=last_end_s,
    )  # fmt: skip


def check_over_http(context: Context, server: Server, data: Path, asked: int) -> int:
    """The oracle: claims of some pilots against every task queue in the database. Raises WrongAnswer.

    No job was submitted meanwhile, so a pilot that a job fits now had one all the time. Task queues that no configured
    queue can run give none.
    """
    db = database(data).reader()
    try:
        held, pools = held_queues(db), PoolMap.load(db)
        queues = [one for one in queues_with_jobs(db) if one[0] not in held]
        sessions, tokens = load_sessions(db, now=0.0), context.tokens(data)["pilots"]
        # In the order of their tokens.
        for number, (_, session) in enumerate(sorted(sessions.items())[:CHECKED]):
            request = session.request(ROOM, pools)
            body = b'{"claim_token":"oracle-%d-%d","count":1,"resource":{"cores":64}}' % (number, asked)
            found = server.ask("POST", "/v1/pilots/claim", tokens[number], body)["jobs"]
            given = [db.only("SELECT tq_id FROM job WHERE id = ?", (job["id"],))[0] for job in found]
            check_answer(eligible(queues, request), given, request)
        return min(len(sessions), CHECKED)
    finally:
        db.close()
