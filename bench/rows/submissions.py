"""Submissions over HTTP: single ones by wrk, bulk by raw sockets with bodies that are encoded beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench import bodies
from bench.context import Context
from bench.figures import Figure, best
from bench.generator import LoadFault, encode, replay, wrk
from bench.server import Server
from bench.stats import percentile

MILLION = 1_000_000


def single(context: Context) -> list[Figure]:
    """One job in each request, 64 connections."""
    samples: list[dict[str, Any]] = []
    for number in range(context.samples):
        data = context.world(context.size())
        token = context.tokens(data)["admin"]
        with context.server(data) as server:
            server.wait_for_calm()
            wrk(server.url, "submit.lua", seconds=context.warm_seconds, token=token, seed=f"warm{number}")
            before = server.counters()["submitted_jobs_total"]
            meter = server.meter()
            load = wrk(server.url, "submit.lua", seconds=context.seconds, token=token, seed=f"run{number}")
            cores = meter.read(wrk=load.cpu_seconds)
            stored = server.counters()["submitted_jobs_total"] - before
            if load.failed or stored < load.requests:
                raise LoadFault(f"{load.failed} refused, {stored} stored of {load.requests}")
            samples.append(
                {
                    "rate": round(load.rate),
                    "p50_ms": load.p50_ms,
                    "p99_ms": load.p99_ms,
                    **cores,
                    "cpu_us": meter.cpu_us(stored),
                }
            )
        context.drop(data)
    top = best(samples, "rate")
    return [
        Figure(
            row="submit-single", what="single submissions over HTTP, 64 connections", unit="/s", value=top["rate"],
            target=3_000, floor_name="bare HTTP", floor=context.floors.http, size=str(context.size()),
            samples=[one["rate"] for one in samples], cpu_us=top.pop("cpu_us"), details=top,
        )
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind of bulk: its bodies, how many jobs they hold, how many connections send them."""

    row: str
    what: str
    unit: str
    target: float | None
    batches: Callable[[], list[bytes]]
    jobs: int
    connections: int = 2


def _kinds(context: Context) -> list[_Kind]:
    many, json_jobs, texts = (context.less(jobs) for jobs in (MILLION, 200_000, 40_000))
    return [
        _Kind(row="bulk-values", what=f"bulk: one description, {many:,} listed values", unit="members/s", target=200_000,
              batches=lambda: [bodies.values_record(many)], jobs=many, connections=1),
        _Kind(row="bulk-values-jdl", what=f"the same in JDL, {many // 2:,} listed values", unit="members/s", target=None,
              batches=lambda: [bodies.values_jdl(many // 2)], jobs=many // 2, connections=1),
        _Kind(row="bulk-json", what="bulk: distinct JSON jobs, 10,000 in a batch", unit="jobs/s", target=40_000,
              batches=lambda: list(_batches(bodies.json_batch, json_jobs, 10_000)), jobs=json_jobs),
        _Kind(row="bulk-jdl", what="bulk: distinct JDL texts, 1,000 in a batch", unit="jobs/s", target=5_000,
              batches=lambda: list(_batches(bodies.jdl_batch, texts, 1_000)), jobs=texts),
    ]  # fmt: skip


def _batches(make: Callable[[int, int], bytes], jobs: int, most: int) -> Iterator[bytes]:
    for first in range(0, jobs, most):
        yield make(first, min(most, jobs - first))


def bulk(context: Context) -> list[Figure]:
    """Four kinds of bulk."""
    return [_bulk(context, kind) for kind in _kinds(context)]


def _bulk(context: Context, kind: _Kind) -> Figure:
    batches = kind.batches()
    samples = []
    for _ in range(context.samples):
        data = context.world(context.size())
        token = context.tokens(data)["admin"]
        with context.server(data) as server:
            server.wait_for_calm()
            requests = [encode("POST", "/v1/jobs", token, body) for body in batches]
            # The server caches the common parts of jobs: a small batch is sent first.
            warm_up(server, token)
            samples.append(_bulk_sample(server, kind, requests))
        context.drop(data)
    top = best(samples, "rate")
    return Figure(
        row=kind.row, what=kind.what, unit=kind.unit, value=top["rate"], target=kind.target,
        floor_name="SQLite commits", floor=context.floors.sqlite_commits,
        size=f"{kind.jobs:,} in {len(batches)} bodies of {len(batches[0]):,} bytes; {context.size()}",
        samples=[one["rate"] for one in samples], cpu_us=top.pop("cpu_us"), details=top,
    )  # fmt: skip


def warm_up(server: Server, token: str) -> None:
    """Some jobs of each kind, unmeasured."""
    for body in (
        bodies.json_batch(9_000_000, 100),
        bodies.jdl_batch(9_000_000, 100),
        bodies.values_record(100),
    ):
        server.ask("POST", "/v1/jobs", token, body)


def _bulk_sample(server: Server, kind: _Kind, requests: list[bytes]) -> dict[str, Any]:
    before = server.counters()["submitted_jobs_total"]
    meter = server.meter()
    out = replay(server.port, requests, connections=kind.connections)
    cores = meter.read(generator=out.cpu_seconds)
    stored = server.counters()["submitted_jobs_total"] - before
    if out.failures or stored != kind.jobs:
        raise LoadFault(f"{kind.row}: {stored} stored of {kind.jobs}; {out.failures[:1]}")
    return {
        "rate": round(kind.jobs / out.seconds), "seconds": out.seconds,
        "slowest_answer_s": max(out.latencies), "connections": kind.connections, **server.memory_mb(), **cores,
        "cpu_us": meter.cpu_us(stored),
    }  # fmt: skip


def arrays(context: Context) -> list[Figure]:
    """Arrays of one and of a million members: the time until the answer, on a quiet server."""
    data = context.world(context.size())
    token = context.tokens(data)["admin"]
    figures = []
    with context.server(data) as server:
        server.wait_for_calm()
        warm_up(server, token)
        for members in (1, MILLION):
            request = encode("POST", "/v1/jobs", token, bodies.array(members))
            replay(server.port, [request] * 10)
            meter, times = server.meter(), context.less(100, 2)
            out = replay(server.port, [request] * times, check=_counts(members))
            meter.read()
            if out.failures:
                raise LoadFault(f"array of {members}: {out.failures[0]}")
            p50, p99 = (1e3 * percentile(out.latencies, q) for q in (50, 99))
            figures.append(
                Figure(
                    row=f"array-{members}", what=f"one array of {members:,} member{'s' * (members > 1)} alike, p99",
                    unit="ms", value=p99, target=50, less=True, floor_name="SQLite commits",
                    floor=1e3 / context.floors.sqlite_commits, size=str(context.size()), cpu_us=meter.cpu_us(times),
                    details={"p50_ms": p50, "worst_ms": 1e3 * max(out.latencies)},
                )
            )  # fmt: skip
    context.drop(data)
    return figures


def _counts(members: int) -> Callable[[int, bytes], bool]:
    return lambda status, body: status == 200 and json.loads(body)["count"] == members
