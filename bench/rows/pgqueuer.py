"""Against pgqueuer, whose workers fetch jobs from a table with FOR UPDATE SKIP LOCKED: the same PostgreSQL, in turn."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.context import Context
from bench.figures import Figure
from bench.generator import LoadFault
from bench.rows.claims import claims_of_one
from bench.stores import address

DRAIN = Path(__file__).resolve().parent.parent / "drain.py"
JOBS = 10_000
WORKERS = (1, 5, 20)
RUN_SECONDS = 600.0


def measure(context: Context) -> list[Figure]:
    """Claims over HTTP against jobs that its workers take and end, one a request, at its best number of workers."""
    if context.postgresql is None or context.pgqueuer is None:
        context.say("pgqueuer: it was not given (--store postgresql --pgqueuer PYTHON)")
        return []
    ours: list[float] = []
    theirs: dict[int, list[float]] = {}
    for number in range(context.samples):
        for workers in WORKERS:
            theirs.setdefault(workers, []).append(_drained(context, number, workers))
        ours.append(claims_of_one(context, number).rate)
    best = max(theirs, key=lambda workers: max(theirs[workers]))
    rate = max(theirs[best])
    return [
        Figure(
            row="pgqueuer", unit="x", value=max(ours) / rate, details={"rates": ours, "pgqueuer": theirs},
            samples=[our / their for our, their in zip(ours, theirs[best], strict=True)],
            what=f"claims over HTTP, one job each, against pgqueuer with {best} workers ({rate:,.0f} jobs/s)",
            size=f"{context.size()} against {JOBS:,} jobs in one queue",
        )
    ]  # fmt: skip


def _drained(context: Context, number: int, workers: int) -> float:
    """Jobs a second of pgqueuer, in a database of its own."""
    assert context.postgresql is not None
    data = context.home / f"pgqueuer-{number}-{workers}"
    data.mkdir()
    context.postgresql.make(data)
    jobs = context.less(JOBS)
    command = [str(context.pgqueuer), str(DRAIN), address(data), str(jobs), str(workers)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise LoadFault(f"pgqueuer failed: {done.stderr[-1_000:]}")
    context.drop(data)
    return float(done.stdout)
