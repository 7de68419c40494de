"""SubmitPools: their queues as masks, the passes that evaluate them, and the jobs that need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from lodesman.base.errors import Conflict, NotFound
from lodesman.server.store import Reader
from lodesman.wire.nodes import Place, QueueId
from lodesman.wire.task_queues import Pool, PoolInFull, PoolJobs, PoolPass, Pools, Required
from lodesman.wire.vocabulary import Kind

_POOLS = """SELECT id, vo, requirements, queues, created_at, refreshed_at, unused_since FROM submit_pool
WHERE (? = '' OR vo = ?) AND substr(id, 1, length(?)) = ?"""
_SERVED_BY = "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ? ORDER BY site, ce, queue"
_SITES = "SELECT DISTINCT site FROM submit_pool_queue WHERE pool_id = ? ORDER BY site"
# Jobs by pool and by what they do: waiting or held with their task queue, held by a user, running.
_JOBS = (
    """SELECT q.pool_id, CASE WHEN h.tq_id IS NULL THEN 'waiting' ELSE 'held' END, sum(n.jobs) FROM task_queue q
    JOIN queue_jobs n ON n.tq_id = q.id LEFT JOIN task_queue_hold h ON h.tq_id = q.id
    WHERE q.pool_id != '' AND n.jobs > 0 GROUP BY 1, 2""",
    """SELECT q.pool_id, 'held', count(*) FROM job j JOIN task_queue q ON q.id = j.tq_id
    WHERE j.state = 'Held' AND q.pool_id != '' GROUP BY 1""",
    """SELECT q.pool_id, 'held', sum(h.stop - h.start) FROM hole h JOIN cohort c ON c.id = h.cohort_id
    JOIN task_queue q ON q.id = c.tq_id WHERE h.state = 'Held' AND q.pool_id != '' GROUP BY 1""",
    """SELECT q.pool_id, 'running', count(*) FROM attempt a JOIN task_queue q ON q.id = a.tq_id
    WHERE a.ended_at IS NULL AND q.pool_id != '' GROUP BY 1""",
)
_STORED = """SELECT id, vo, requirements, queues, created_at, unused_since, evaluated_at IS NOT NULL
FROM submit_pool_bits ORDER BY id"""
# In the order of the members of `PoolPass`.
_PASSES = """SELECT id, at, cause, pools, changed, held, released, seconds FROM submit_pool_pass
ORDER BY id DESC LIMIT ?"""
_NEEDED = """SELECT DISTINCT pool_id FROM task_queue WHERE pool_id != '' AND id IN (
  SELECT tq_id FROM queue_jobs WHERE jobs > 0 UNION ALL SELECT tq_id FROM queue_may_return)"""
_FEW_PASSES = 5


class PoolRow(NamedTuple):
    """A stored pool. `queues`: its mask; `unused_since`: UNIX seconds, None while jobs need it.

    `is_evaluated`: false until its queues are known.
    """

    id: str
    vo: str
    requirements: str
    queues: int
    created_at: float
    unused_since: float | None
    is_evaluated: bool = True


class PassRow(NamedTuple):
    """The last pass; all zero before the first."""

    id: int = 0
    at: float = 0.0
    config: str = ""


class PassRequests(NamedTuple):
    """How many passes were asked for and answered; `version` changes whenever a pool or a queue of one does."""

    asked: int
    answered: int
    version: int

    @property
    def is_due(self) -> bool:
        """A pass was asked for and not made yet."""
        return self.asked > self.answered


def stored_pools(db: Reader) -> Iterator[PoolRow]:
    """Every pool, by id."""
    for number, vo, requirements, queues, created_at, unused_since, evaluated in db.execute(_STORED):
        mask = int.from_bytes(queues, "little")
        yield PoolRow(number, vo, requirements, mask, created_at, unused_since, bool(evaluated))


def has_new_pools(db: Reader) -> bool:
    """Whether the queues of some pool were never evaluated."""
    return bool(db.only("SELECT EXISTS (SELECT 1 FROM submit_pool_bits WHERE evaluated_at IS NULL)")[0])


def masks_of_pools(db: Reader) -> dict[str, int]:
    """The mask of every pool, by id."""
    rows = db.execute("SELECT id, queues FROM submit_pool_bits ORDER BY id")
    return {number: int.from_bytes(queues, "little") for number, queues in rows}


def bits_of_queues(db: Reader) -> dict[QueueId, int]:
    """The bit of every queue in all masks (ADR 0028)."""
    return {QueueId(site, ce, queue): bit for bit, site, ce, queue in db.execute("SELECT * FROM pool_queue")}


def last_pass(db: Reader) -> PassRow:
    """The last pass."""
    return (
        db.find(PassRow, "SELECT id, at, config FROM submit_pool_pass ORDER BY id DESC LIMIT 1") or PassRow()
    )


def pass_requests(db: Reader) -> PassRequests:
    """What is asked for, and the version of all pools."""
    return PassRequests(*db.only("SELECT asked, answered, version FROM submit_pool_state"))


def pools_of_vo(db: Reader, vo: str) -> set[str]:
    """The pools of a VO."""
    return {pool for (pool,) in db.execute("SELECT id FROM submit_pool WHERE vo = ?", (vo,))}


def pools_needed(db: Reader) -> set[str]:
    """The pools of task queues that have jobs: waiting, held or running."""
    return {row[0] for row in db.execute(_NEEDED)}


def _last_passes(db: Reader, limit: int) -> list[PoolPass]:
    """The last passes, the youngest first, with what each did."""
    return [PoolPass(*row) for row in db.execute(_PASSES, (limit,))]


def list_pools(db: Reader, vo: str) -> Pools:
    """The pools of a VO ('': of all), those that most jobs need first, and the last pass."""
    jobs = _jobs_by_pool(db)
    pools = [_pool(row, jobs) for row in db.execute(_POOLS, (vo, vo, "", ""))]
    pools.sort(key=lambda one: (-sum(structs.astuple(one.jobs)), -one.created_at, one.id))
    passes = _last_passes(db, 1)
    return Pools(pools, len(pools), passes[0] if passes else None)


def pool_by_prefix(db: Reader, vo: str, prefix: str) -> PoolInFull:
    """One pool, known by the beginning of its id, with its queues and the last passes. Raises NotFound, Conflict."""
    found = list(islice(db.execute(_POOLS, (vo, vo, prefix, prefix)), 2))
    if not found or not prefix:
        raise NotFound(f"There is no SubmitPool {prefix}.", hint="lode pool ls lists them.")
    if len(found) > 1:
        raise Conflict(f"Several SubmitPools begin with {prefix}.", hint="Give more characters.")
    served_by = [Place(*place) for place in db.execute(_SERVED_BY, (found[0][0],))]
    pool = _pool(found[0], _jobs_by_pool(db))
    return PoolInFull(**structs.asdict(pool), served_by=served_by, passes=_last_passes(db, _FEW_PASSES))


def sites_of_pool(db: Reader, pool: str) -> list[str]:
    """The sites that served a pool in the last pass."""
    return [site for (site,) in db.execute(_SITES, (pool,))]


def _pool(row: tuple[Any, ...], counted: Mapping[str, Counter[str]]) -> Pool:
    """One that was made again has neither queues nor a time of refresh until a pass found them."""
    number, vo, requirements, queues, created_at, refreshed_at, unused_since = row
    required = {
        name: Required(Kind(kind), unit or "", wanted)
        for name, (kind, _, unit, wanted) in msgspec.json.decode(requirements).items()
    }
    served = None if refreshed_at is None else int.from_bytes(queues, "little").bit_count()
    found = counted.get(number, Counter())
    jobs = PoolJobs(found["waiting"], found["held"], found["running"])
    return Pool(number, vo, required, served, created_at, refreshed_at, unused_since, jobs)


def _jobs_by_pool(db: Reader) -> dict[str, Counter[str]]:
    """How many of each pool are what `PoolJobs` counts."""
    found: dict[str, Counter[str]] = {}
    for sql in _JOBS:
        for pool, what, count in db.execute(sql):
            found.setdefault(pool, Counter())[what] += count
    return found
