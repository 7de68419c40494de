"""What a server does for each job, both processes: pilots that are played claim and report in batches, without outputs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from bench.context import Context
from bench.figures import Figure, best
from bench.generator import Connection, LoadFault, encode
from bench.machine import process_cpu
from bench.server import Server

BATCH = 25
RATE = 500.0  # jobs a second: what the background process does each second is part of it
SETTLE = 10  # claims before the measurement
TARGETS = {"server": 0.5, "background": 0.1}
WORDS = {"hot": "hot process", "background": "background process", "server": "both processes"}


def measure(context: Context) -> list[Figure]:
    """CPU milliseconds for each job, of jobs that are claimed and reported at a steady rate."""
    samples = [_sample(context) for _ in range(context.samples)]
    return [
        Figure(
            row=f"played-cpu-{name}", unit="ms", value=best(samples, name, less=True)[name], target=TARGETS.get(name),
            less=True, samples=[one[name] for one in samples], details=best(samples, name, less=True),
            what=f"CPU time for each job claimed and Done, {RATE:.0f}/s in batches of {BATCH}: {words}",
        )
        for name, words in WORDS.items()
    ]  # fmt: skip


def _sample(context: Context) -> dict[str, float]:
    size = context.size(queues=200, jobs=1_000_000, rows=200, pilots=200)
    data = context.world(size)
    tokens = context.tokens(data)["pilots"]
    jobs = context.less(10_000)
    try:
        with context.server(data) as server:
            server.wait_for_calm()
            with closing(Connection(server.port)) as connection:
                played = play(connection, tokens)
                for _ in range(SETTLE):
                    next(played)
                return _steady(server, played, jobs)
    finally:
        context.drop(data)


def _steady(server: Server, played: Iterator[int], jobs: int) -> dict[str, float]:
    before, begun, done = _cpu(server), time.perf_counter(), 0
    while done < jobs:
        done += next(played)
        time.sleep(max(0.0, begun + done / RATE - time.perf_counter()))
    seconds = time.perf_counter() - begun
    found = {name: 1e3 * (after - before[name]) / done for name, after in _cpu(server).items()}
    return {**found, "server": sum(found.values()), "rate": done / seconds}


def _cpu(server: Server) -> dict[str, float]:
    background = server.background()
    return {"hot": process_cpu(server.pid), "background": process_cpu(background) if background else 0.0}


def play(connection: Connection, tokens: list[str]) -> Iterator[int]:
    """Claim and end jobs as one pilot after the other; how many, each time. Raises LoadFault, also if no job fits."""
    fit, number = list(tokens), 0
    while fit:
        for token in list(fit):
            number += 1
            ask: dict[str, Any] = {
                "claim_token": f"played-{number:08}",
                "count": BATCH,
                "resource": {"cores": 64},
            }
            jobs = _post(connection, "claim", token, ask)["jobs"]
            if not jobs:
                fit.remove(token)
                continue
            now = time.time()
            ends = [
                {"id": one["id"], "attempt": one["attempt"], "state": "Done", "exit_code": 0, "started": now, "ended": now}
                for one in jobs
            ]  # fmt: skip
            answers = _post(connection, "report", token, {"reports": ends})["results"]
            if not all(one["accepted"] for one in answers):
                raise LoadFault(f"a report was refused: {answers}")
            yield len(jobs)
    raise LoadFault("no job fits any of the pilots")


def _post(connection: Connection, path: str, token: str, body: dict[str, Any]) -> Any:
    status, answer = connection.ask(encode("POST", f"/v1/pilots/{path}", token, json.dumps(body).encode()))
    if status != 200:
        raise LoadFault(f"{path}: {status} {answer[:300]!r}")
    return json.loads(answer)
