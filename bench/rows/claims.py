"""Durable claims: in process, and over HTTP with 64 connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
from bench.world import GRID, WISHES, Size, Workload

from lodesman.server.store.task_queues import held_queues, queues_with_jobs
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import UNLIMITED, FreeResources, load_sessions

CONNECTIONS, MANY = 64, 50
BUSY_S = "20000"  # until the last payload of each pilot ends
CHECKED = 16
ROOM = FreeResources(64, UNLIMITED, UNLIMITED)
# They never report what they claimed: each offers more than it claims in a measurement, so that none is full and each holds
# a few jobs. They ask for what fits their places, or for CORES_OF_MANY.
ALIKE = 160
JOBS = 1_000_000
CORES_OF_MANY = 1_000
ROOMY = replace(GRID, name="roomy", room=10_000)
ROOMY_WISHES = replace(WISHES, name="roomy-wishes", room=10_000)


def in_process(context: Context) -> list[Figure]:
    """Journal, index and database alone, with 64 waiting clients and with one."""
    size = context.size()
    figures = []
    for clients, full in ((64, 100_000), (1, 20_000)):
        claims = context.less(full)
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
class ClaimSample:
    """Claims over HTTP in one run."""

    load: Load
    jobs: int
    cores: dict[str, float]
    cpu_us: dict[str, float]
    checked: int
    warm_rate: float

    @property
    def rate(self) -> float:
        """Claims a second."""
        return round(self.load.rate)

    @property
    def jobs_rate(self) -> float:
        """Jobs a second."""
        return round(self.jobs / self.load.seconds)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        load = self.load
        return {
            "rate": self.rate, "jobs_per_s": self.jobs_rate, "p50_ms": load.p50_ms,
            "p99_ms": load.p99_ms, "failed": load.failed, "warm_up_rate": round(self.warm_rate),
            "wrk_cores": round(load.cpu_seconds / load.seconds, 2), "checked": self.checked, **self.cores,
        }  # fmt: skip


def over_http(context: Context) -> list[Figure]:
    """One job each, and 50 each; the rate, and the 99th percentile of the answers."""
    one = [claims_of_one(context, number) for number in range(context.samples)]
    top = max(one, key=lambda sample: sample.rate)
    many = [_sample(context, number, count=MANY) for number in range(context.samples)]
    most = max(many, key=lambda sample: sample.jobs_rate)
    wishes = _sample(context, 0, workload=ROOMY_WISHES)
    packed = _sample(context, 0, last_end_s=BUSY_S)
    size = str(_size(context))
    shared: dict[str, Any] = {"size": size, "floor_name": "bare HTTP", "floor": context.floors.http}
    return [
        Figure(row="claims-http", what="durable claims over HTTP, 64 connections, one job each", unit="/s",
               value=top.rate, target=8_000, samples=[s.rate for s in one], cpu_us=top.cpu_us, details=top.as_dict(),
               **shared),
        Figure(row="claims-http-p99", what="99 % of these claims are answered within", unit="ms",
               value=min(s.load.p99_ms for s in one), target=20, less=True, samples=[s.load.p99_ms for s in one],
               details={"p50_ms": top.load.p50_ms}, size=size),
        Figure(row="claims-50", what="jobs claimed when a request asks for 50", unit="jobs/s", value=most.jobs_rate,
               target=30_000, samples=[s.jobs_rate for s in many], cpu_us=most.cpu_us, details=most.as_dict(), **shared),
        Figure(row="claims-http-wishes", what="claims as above, three task queues in ten with Requirements", unit="/s",
               value=wishes.rate, cpu_us=wishes.cpu_us, details=wishes.as_dict(), **shared),
        Figure(row="claims-http-packed", what="claims as above, packed into pilots that run other jobs", unit="/s",
               value=packed.rate, cpu_us=packed.cpu_us, details=packed.as_dict(), **shared),
    ]  # fmt: skip


def claims_of_one(
    context: Context, number: int, begin: Callable[[Server], object] | None = None
) -> ClaimSample:
    """One run over HTTP, one job each. `begin` is done before it."""
    return _sample(context, number, begin=begin)


def _size(context: Context) -> Size:
    """With enough jobs for a load of any length: members of arrays cost nothing."""
    return replace(context.size(alike=context.less(ALIKE, 16)), jobs=JOBS)


def _sample(
    context: Context,
    number: int,
    *,
    count: int = 1,
    workload: Workload = ROOMY,
    begin: Callable[[Server], object] | None = None,
    last_end_s: str = "",
) -> ClaimSample:
    data = context.world(_size(context), workload)
    load = partial(
        wrk, script="claim.lua", connections=CONNECTIONS, tokens=str(data / "pilot.tokens"), count=str(count),
        cores=str(CORES_OF_MANY) if count > 1 else "", last_end=last_end_s,
    )  # fmt: skip
    try:
        with context.server(data, workload=workload) as server:
            server.wait_for_calm()
            if begin is not None:
                begin(server)
            warm = load(server.url, seconds=context.warm_seconds, seed=f"warm{number}")
            before = server.counters()
            meter = server.meter()
            measured = load(server.url, seconds=context.seconds, seed=f"run{number}")
            cores = meter.read(wrk=measured.cpu_seconds)
            after = server.counters()
            # With limits a pilot may get nothing although a job fits it.
            asked = after["claims_total"] - before["claims_total"]
            jobs = after["claimed_jobs_total"] - before["claimed_jobs_total"]
            checked = 0 if begin is not None else check_over_http(context, server, data, asked)
            return ClaimSample(measured, jobs, cores, meter.cpu_us(jobs), checked, warm.rate)
    finally:
        context.drop(data)


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
