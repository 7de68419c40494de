"""SubmitPools for people: what each asks for, which queues serve it, as of which pass, and the jobs that need it.

A pool that was made again has neither queues nor a time of refresh (None) until a pass has found them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from lodesman.errors import Conflict, NotFound
from lodesman.store.engine import Reader
from lodesman.store.submit_pools import last_passes

Row = dict[str, Any]

POOLS = """SELECT id, vo, requirements, queues, created_at, refreshed_at, unused_since FROM submit_pool
WHERE (?1 = '' OR vo = ?1) AND substr(id, 1, length(?2)) = ?2"""
POOL_KEYS = ("id", "vo", "requirements", "queues", "created_at", "refreshed_at", "unused_since")
SERVED_BY = "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ? ORDER BY site, ce, queue"
# Jobs by pool and by what they do: waiting or held with their task queue, held by a person, running.
IN_QUEUES = """SELECT q.pool_id, iif(h.tq_id IS NULL, 'waiting', 'held'), sum(n.jobs) FROM task_queue q
JOIN queue_jobs n ON n.tq_id = q.id LEFT JOIN task_queue_hold h ON h.tq_id = q.id
WHERE q.pool_id != '' AND n.jobs > 0 GROUP BY 1, 2"""
HELD_ROWS = """SELECT q.pool_id, 'held', count(*) FROM job j JOIN task_queue q ON q.id = j.tq_id
WHERE j.state = 'Held' AND q.pool_id != '' GROUP BY 1"""
HELD_RUNS = """SELECT q.pool_id, 'held', sum(h.stop - h.start) FROM hole h JOIN cohort c ON c.id = h.cohort_id
JOIN task_queue q ON q.id = c.tq_id WHERE h.state = 'Held' AND q.pool_id != '' GROUP BY 1"""
RUNNING = """SELECT q.pool_id, 'running', count(*) FROM attempt a JOIN task_queue q ON q.id = a.tq_id
WHERE a.ended_at IS NULL AND q.pool_id != '' GROUP BY 1"""
FEW = 5


def list_pools(db: Reader, vo: str, *, limit: int) -> Row:
    """The pools of a VO ('': of all), those that most jobs need first, and the last pass."""
    jobs = _jobs(db)
    rows = [_pool(row, jobs) for row in db.execute(POOLS, (vo, ""))]
    rows.sort(key=lambda row: (-sum(row["jobs"].values()), -row["created_at"], row["id"]))
    passes = last_passes(db, 1)
    return {"pools": rows[:limit], "total": len(rows), "last_pass": passes[0] if passes else None}


def show_pool(db: Reader, vo: str, prefix: str) -> Row:
    """One pool, known by the beginning of its id, with its queues and the last passes. Raises NotFound, Conflict."""
    found = list(islice(db.execute(POOLS, (vo, prefix)), 2))
    if not found or not prefix:
        raise NotFound(f"There is no SubmitPool {prefix}.", hint="lode pool ls lists them.")
    if len(found) > 1:
        raise Conflict(f"Several SubmitPools begin with {prefix}.", hint="Give more characters.")
    row = _pool(found[0], _jobs(db))
    served_by = [
        {"site": site, "ce": ce, "queue": queue} for site, ce, queue in db.execute(SERVED_BY, (row["id"],))
    ]
    return {**row, "served_by": served_by, "passes": last_passes(db, FEW)}


def _pool(values: Sequence[Any], jobs: dict[str, Row]) -> Row:
    row = dict(zip(POOL_KEYS, values, strict=True))
    row["requirements"] = {
        name: {"kind": kind, "unit": unit or "", "wanted": wanted}
        for name, (kind, _, unit, wanted) in msgspec.json.decode(row["requirements"]).items()
    }
    known = row["refreshed_at"] is not None
    row["queues"] = int.from_bytes(row["queues"], "little").bit_count() if known else None
    row["jobs"] = {"waiting": 0, "held": 0, "running": 0, **jobs.get(row["id"], {})}
    return row


def _jobs(db: Reader) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for query in (IN_QUEUES, HELD_ROWS, HELD_RUNS, RUNNING):
        for pool, what, count in db.execute(query):
            row = found.setdefault(str(pool), {})
            row[str(what)] = row.get(str(what), 0) + count
    return found
