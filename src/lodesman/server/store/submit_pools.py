"""SubmitPools: masks of queues, bits of CE queues, passes, and jobs that need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from lodesman.base.errors import Conflict, NotFound
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, GIVEN_TEXTS, greatest, keys, member
from lodesman.server.store.statement import ANY, AT_MOST_ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.nodes import Place, QueueId
from lodesman.wire.service import PassResult, PoolCleaning
from lodesman.wire.task_queues import Pool, PoolInFull, PoolJobs, PoolPass, Pools, Required
from lodesman.wire.vocabulary import Kind

_POOLS = """SELECT id, vo, requirements, queues, created_at, refreshed_at, unused_since FROM submit_pool
WHERE (? = '' OR vo = ?) AND substr(id, 1, length(?)) = ?"""
_SERVED_BY = "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ? ORDER BY site, ce, queue"
_SITES = "SELECT DISTINCT site FROM submit_pool_queue WHERE pool_id = ? ORDER BY site"
# Jobs by pool: waiting or held with their task queue, held by a user, running.
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
    """A stored pool."""

    id: str
    vo: str
    requirements: str
    queues: int  # its mask
    created_at: float
    unused_since: float | None  # UNIX seconds, None while jobs need it
    is_evaluated: bool = True  # false until its queues are known


class PassRow(NamedTuple):
    """The last pass; all zero before the first."""

    id: int = 0
    at: float = 0.0
    config: str = ""


class PassRequests(NamedTuple):
    """How many passes were asked for and answered."""

    asked: int
    answered: int
    version: int  # changes whenever a pool, or a queue of one, does

    @property
    def is_due(self) -> bool:
        """Whether a pass was asked for and not made yet."""
        return self.asked > self.answered


def stored_pools(db: Reader) -> Iterator[PoolRow]:
    """All pools, by id."""
    for number, vo, requirements, queues, created_at, unused_since, evaluated in db.execute(_STORED):
        mask = int.from_bytes(queues, "little")
        yield PoolRow(number, vo, requirements, mask, created_at, unused_since, bool(evaluated))


def has_new_pools(db: Reader) -> bool:
    """Whether some pool was never evaluated."""
    return bool(db.only("SELECT EXISTS (SELECT 1 FROM submit_pool_bits WHERE evaluated_at IS NULL)")[0])


def masks_of_pools(db: Reader) -> dict[str, int]:
    """The masks by id."""
    rows = db.execute("SELECT id, queues FROM submit_pool_bits ORDER BY id")
    return {number: int.from_bytes(queues, "little") for number, queues in rows}


def bits_of_queues(db: Reader) -> dict[QueueId, int]:
    """The bit of every queue in all masks (ADR 0028)."""
    return {QueueId(site, ce, queue): bit for bit, site, ce, queue in db.execute("SELECT * FROM pool_queue")}


def last_pass(db: Reader) -> PassRow:
    """The last pass; zeros before the first."""
    return (
        db.find(PassRow, "SELECT id, at, config FROM submit_pool_pass ORDER BY id DESC LIMIT 1") or PassRow()
    )


def pass_requests(db: Reader) -> PassRequests:
    """Requests, and the version of all pools."""
    return PassRequests(*db.only("SELECT asked, answered, version FROM submit_pool_state"))


def pools_of_vo(db: Reader, vo: str) -> set[str]:
    """The ids of its pools."""
    return {pool for (pool,) in db.execute("SELECT id FROM submit_pool WHERE vo = ?", (vo,))}


def pools_needed(db: Reader) -> set[str]:
    """Pools of task queues with jobs: waiting, held or running."""
    return {row[0] for row in db.execute(_NEEDED)}


def _last_passes(db: Reader, limit: int) -> list[PoolPass]:
    return [PoolPass(*row) for row in db.execute(_PASSES, (limit,))]


def list_pools(db: Reader, vo: str) -> Pools:
    """Pools of a VO ('': of all), most needed first; and the last pass."""
    jobs = _jobs_by_pool(db)
    pools = [_pool(row, jobs) for row in db.execute(_POOLS, (vo, vo, "", ""))]
    pools.sort(key=lambda pool: (-sum(structs.astuple(pool.jobs)), -pool.created_at, pool.id))
    passes = _last_passes(db, 1)
    return Pools(pools, len(pools), passes[0] if passes else None)


def pool_by_prefix(db: Reader, vo: str, prefix: str) -> PoolInFull:
    """The pool by the beginning of its id. Raises NotFound, Conflict."""
    rows = list(islice(db.execute(_POOLS, (vo, vo, prefix, prefix)), 2))
    if not rows or not prefix:
        raise NotFound(f"There is no SubmitPool {prefix}.", hint="lode pool ls lists them.")
    if len(rows) > 1:
        raise Conflict(f"Several SubmitPools begin with {prefix}.", hint="Give more characters.")
    served_by = [Place(*place) for place in db.execute(_SERVED_BY, (rows[0][0],))]
    pool = _pool(rows[0], _jobs_by_pool(db))
    return PoolInFull(**structs.asdict(pool), served_by=served_by, passes=_last_passes(db, _FEW_PASSES))


def sites_of_pool(db: Reader, pool: str) -> list[str]:
    """Sites that served it in the last pass."""
    return [site for (site,) in db.execute(_SITES, (pool,))]


def _pool(row: tuple[Any, ...], counted: Mapping[str, Counter[str]]) -> Pool:
    """Made again, it has neither queues nor a time of refresh until a pass."""
    number, vo, requirements, queues, created_at, refreshed_at, unused_since = row
    required = {
        name: Required(Kind(kind), unit or "", value)
        for name, (kind, _, unit, value) in msgspec.json.decode(requirements).items()
    }
    served = None if refreshed_at is None else int.from_bytes(queues, "little").bit_count()
    counts = counted.get(number, Counter())
    jobs = PoolJobs(counts["waiting"], counts["held"], counts["running"])
    return Pool(number, vo, required, served, created_at, refreshed_at, unused_since, jobs)


def _jobs_by_pool(db: Reader) -> dict[str, Counter[str]]:
    by_pool: dict[str, Counter[str]] = {}
    for sql in _JOBS:
        for pool, kind, count in db.execute(sql):
            by_pool.setdefault(pool, Counter())[kind] += count
    return by_pool


# --- changes -----------------------------------------------------------------------------------------

# A known pool keeps its text. Its queues are those in the writer's memory.
_STORE = Statement(
    sql="""INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at, evaluated_at) VALUES (?,?,?,?,?,?)
    ON CONFLICT (id) DO UPDATE SET unused_since = NULL, queues = excluded.queues,
      evaluated_at = coalesce(submit_pool_bits.evaluated_at, excluded.evaluated_at)
    WHERE submit_pool_bits.unused_since IS NOT NULL OR submit_pool_bits.evaluated_at IS NULL
      OR submit_pool_bits.queues != excluded.queues""",
    key=(0,),
    rows=AT_MOST_ONE,
)
# A pool that is made again has no known queues before the next pass.
_STORE_AGAIN = Statement(
    sql=f"""INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at)
    SELECT pool_id, {member("key", "vo")}, requirements, ?, ? FROM task_queue WHERE id = ? AND pool_id != ''
    ON CONFLICT (id) DO UPDATE SET unused_since = NULL WHERE submit_pool_bits.unused_since IS NOT NULL""",
    rows=AT_MOST_ONE,
    reads=("task_queue",),
)
# A pool with the new identifier may exist: it keeps its queues, and counts as needed.
_RENAME = Statement(
    sql="""INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at, evaluated_at)
    SELECT ?, vo, ?, queues, created_at, evaluated_at FROM submit_pool_bits WHERE id = ?
    ON CONFLICT (id) DO UPDATE SET unused_since = NULL""",
    rows=AT_MOST_ONE,
)
# A pool may have been removed since it was evaluated.
_SET_QUEUES = Statement(
    sql="UPDATE submit_pool_bits SET queues = ?, evaluated_at = ? WHERE id = ?",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_MARK = Statement(
    sql="UPDATE submit_pool_bits SET unused_since = ? WHERE id = ? AND unused_since IS NULL",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_UNMARK = Statement(
    sql="UPDATE submit_pool_bits SET unused_since = NULL WHERE id = ?",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_REMOVE = f"""DELETE FROM submit_pool_bits WHERE id IN {GIVEN_TEXTS}
AND unused_since IS NOT NULL AND unused_since <= ? RETURNING id"""
_ANSWER = Statement(
    sql=f"UPDATE submit_pool_state SET answered = {greatest('answered', '?')} WHERE one = 1",
)
_ASK = Statement(sql="UPDATE submit_pool_state SET asked = asked + 1 WHERE one = 1", newest=True)
_NEXT_VERSION = Statement(
    sql="UPDATE submit_pool_state SET version = version + 1 WHERE one = 1",
    newest=True,
)
_INSERT_BIT = Statement(sql="INSERT INTO pool_queue (bit, site, ce, queue) VALUES (?,?,?,?)", key=(0,))
_INSERT_PASS = Statement(
    sql="""INSERT INTO submit_pool_pass (id, at, cause, config, pools, changed, held, released, seconds)
    VALUES (?,?,?,?,?,?,0,0,?)""",
    key=(0,),
)
_FORGET_PASSES = Statement(sql="DELETE FROM submit_pool_pass WHERE id <= ?", rows=ANY)
_COUNT_JOBS = Statement(
    sql="UPDATE submit_pool_pass SET held = held + ?, released = released + ? WHERE id = ?",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_PASSES_KEPT = 1_000


def store_pool(
    tx: Transaction, pool: str, vo: str, requirements: str, *, mask: int, is_evaluated: bool
) -> None:
    """`is_evaluated`: its queues are known to serve it, if it is new."""
    evaluated_at = tx.now if is_evaluated else None
    tx.later(_STORE, (pool, vo, requirements, _bitmap(mask), tx.now, evaluated_at))


def store_pool_of_queue(tx: Transaction, tq_id: int) -> None:
    """Make the pool of a task queue again, for jobs that need it."""
    tx.later(_STORE_AGAIN, (_bitmap(0), tx.now, tq_id))


def rename_pools(tx: Transaction, pools: Mapping[str, tuple[str, str]]) -> None:
    """Rename pools: from old identifier to new one and text of the Requirements."""
    tx.later_many(_RENAME, [(new, requirements, old) for old, (new, requirements) in pools.items()])
    tx.write(f"DELETE FROM submit_pool_bits WHERE id IN {GIVEN_TEXTS}", (keys(pools),), rows=ANY)


def insert_bits(tx: Transaction, bits: Mapping[QueueId, int]) -> None:
    """Give CE queues their bits."""
    rows = [(bit, *queue) for queue, bit in bits.items()]
    tx.later_many(_INSERT_BIT, rows)


def delete_bits(tx: Transaction, bits: Iterable[int]) -> None:
    """Free bits of CE queues."""
    tx.write(f"DELETE FROM pool_queue WHERE bit IN {GIVEN}", (keys(bits),), rows=ANY)


def clean_pools(tx: Transaction, cleaning: PoolCleaning) -> list[str]:
    """Mark, unmark and remove; returns the removed ones, which were still marked."""
    tx.later_many(_MARK, [(tx.now, pool) for pool in cleaning.mark])
    tx.later_many(_UNMARK, [(pool,) for pool in cleaning.unmark])
    return [row[0] for row in tx.read(_REMOVE, (keys(cleaning.remove), cleaning.unused_before), changes=True)]


def ask_for_pass(tx: Transaction) -> None:
    """Let the background process evaluate all pools soon."""
    tx.later(_ASK, ())


def pools_changed(tx: Transaction) -> None:
    """Let copies of the pools be read again."""
    tx.later(_NEXT_VERSION, ())


def insert_pass(tx: Transaction, number: int, difference: PassResult, masks: Mapping[str, int]) -> None:
    """Store a pass; answers its requests, and deletes very old passes."""
    tx.later_many(_SET_QUEUES, [(_bitmap(mask), tx.now, pool) for pool, mask in masks.items()])
    tx.later(
        _INSERT_PASS,
        (
            number,
            tx.now,
            difference.cause,
            difference.config,
            difference.pools,
            len(masks),
            difference.seconds,
        ),
    )
    tx.later(_FORGET_PASSES, (number - _PASSES_KEPT,))
    tx.later(_ANSWER, (difference.answers,))


def count_judged_jobs(tx: Transaction, pass_id: int, *, held: int, released: int) -> None:
    """Add jobs held and released after a pass."""
    tx.later(_COUNT_JOBS, (held, released, pass_id))


def _bitmap(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")
