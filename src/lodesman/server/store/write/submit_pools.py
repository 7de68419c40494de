"""SubmitPools as the writer stores them: queues and their bits, passes, and what no job needs any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lodesman.server.store.dialect import GIVEN, GIVEN_TEXTS, greatest, keys, member
from lodesman.server.store.statement import ANY, AT_MOST_ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import Cleaning, Difference

# A pool that is known keeps its text. Its queues are those that the writer has in memory, perhaps from this very job.
_STORE = Statement(
    sql="""INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at, evaluated_at) VALUES (?,?,?,?,?,?)
    ON CONFLICT (id) DO UPDATE SET unused_since = NULL, queues = excluded.queues,
      evaluated_at = coalesce(submit_pool_bits.evaluated_at, excluded.evaluated_at)
    WHERE submit_pool_bits.unused_since IS NOT NULL OR submit_pool_bits.evaluated_at IS NULL
      OR submit_pool_bits.queues != excluded.queues""",
    key=(0,),
    rows=AT_MOST_ONE,
)
# Made again: its queues are not known before the next pass.
_STORE_AGAIN = Statement(
    sql=f"""INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at)
    SELECT pool_id, {member("key", "vo")}, requirements, ?, ? FROM task_queue WHERE id = ? AND pool_id != ''
    ON CONFLICT (id) DO UPDATE SET unused_since = NULL WHERE submit_pool_bits.unused_since IS NOT NULL""",
    rows=AT_MOST_ONE,
    reads=("task_queue",),
)
# One with the new identifier may be there already: it keeps its queues, and is needed as the old one may have been.
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
    """Store a pool that a job needs, with its queues. `is_evaluated`: if it is new, these are known to serve it."""
    evaluated_at = tx.now if is_evaluated else None
    tx.later(_STORE, (pool, vo, requirements, _bitmap(mask), tx.now, evaluated_at))


def store_pool_of_queue(tx: Transaction, tq_id: int) -> None:
    """Jobs of a task queue need its pool again."""
    tx.later(_STORE_AGAIN, (_bitmap(0), tx.now, tq_id))


def rename_pools(tx: Transaction, pools: Mapping[str, tuple[str, str]]) -> None:
    """Store pools under other identifiers: old one -> new one and text of the Requirements."""
    tx.later_many(_RENAME, [(new, requirements, old) for old, (new, requirements) in pools.items()])
    tx.write(f"DELETE FROM submit_pool_bits WHERE id IN {GIVEN_TEXTS}", (keys(pools),), rows=ANY)


def insert_bits(tx: Transaction, bits: Mapping[QueueId, int]) -> None:
    """Give CE queues their bits."""
    rows = [(bit, *queue) for queue, bit in bits.items()]
    tx.later_many(_INSERT_BIT, rows)


def delete_bits(tx: Transaction, bits: Iterable[int]) -> None:
    """Free bits of CE queues."""
    tx.write(f"DELETE FROM pool_queue WHERE bit IN {GIVEN}", (keys(bits),), rows=ANY)


def clean_pools(tx: Transaction, found: Cleaning) -> list[str]:
    """Mark pools that no job needs, or needs again; returns those that were removed, since they were still marked."""
    tx.later_many(_MARK, [(tx.now, pool) for pool in found.mark])
    tx.later_many(_UNMARK, [(pool,) for pool in found.unmark])
    return [row[0] for row in tx.read(_REMOVE, (keys(found.remove), found.unused_before), changes=True)]


def ask_for_pass(tx: Transaction) -> None:
    """Let the background process evaluate all pools soon."""
    tx.later(_ASK, ())


def pools_changed(tx: Transaction) -> None:
    """Let those who keep a copy of the pools read them again."""
    tx.later(_NEXT_VERSION, ())


def insert_pass(tx: Transaction, number: int, found: Difference, masks: Mapping[str, int]) -> None:
    """Store a pass and the masks that it changed; the requests that it answers are done, very old passes are deleted."""
    tx.later_many(_SET_QUEUES, [(_bitmap(mask), tx.now, pool) for pool, mask in masks.items()])
    tx.later(
        _INSERT_PASS, (number, tx.now, found.cause, found.config, found.pools, len(masks), found.seconds)
    )
    tx.later(_FORGET_PASSES, (number - _PASSES_KEPT,))
    tx.later(_ANSWER, (found.answers,))


def count_judged_jobs(tx: Transaction, pass_id: int, *, held: int, released: int) -> None:
    """Add jobs that were held and released after a pass."""
    tx.later(_COUNT_JOBS, (held, released, pass_id))


def _bitmap(mask: int) -> bytes:
    """A mask as it is stored."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")
