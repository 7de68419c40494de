"""Run by a Python that has pgqueuer: jobs that do nothing, fetched one a request by its own workers.

`drain.py URL JOBS WORKERS` fills an empty database, and prints the jobs a second that the workers take and end. As its
documentation advises: the driver asyncpg with a connection for each worker, uvloop, and its settings of autovacuum.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

PART = 10_000


async def _fill(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for begin in range(0, jobs, PART):
        count = min(PART, jobs - begin)
        await queries.enqueue(["nothing"] * count, [b""] * count, [0] * count)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def _drain(url: str, workers: int) -> tuple[int, float]:
    ended = 0
    queues = [PgQueuer(AsyncpgDriver(await asyncpg.connect(url))) for _ in range(workers)]
    for one in queues:

        @one.entrypoint("nothing")
        async def nothing(_job: Job) -> None:
            nonlocal ended
            ended += 1

    begun = time.perf_counter()
    await asyncio.gather(*(one.run(batch_size=1, mode=QueueExecutionMode.drain) for one in queues))
    return ended, time.perf_counter() - begun


def main() -> None:
    url, jobs, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for action in ("install", "autovac"):
        subprocess.run(
            [sys.executable, "-m", "pgqueuer", "--pg-dsn", url, action], check=True, capture_output=True
        )
    uvloop.run(_fill(url, jobs))
    ended, seconds = uvloop.run(_drain(url, workers))
    if ended != jobs:
        sys.exit(f"{ended} of {jobs} jobs ended")
    print(ended / seconds)


if __name__ == "__main__":
    main()
