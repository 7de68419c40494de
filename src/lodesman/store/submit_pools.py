"""SubmitPools in the database: their queues as bitmaps, the passes that evaluate them, the jobs that need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from lodesman.store.engine import Reader, only_row
from lodesman.store.journal import Transaction

# A pool that is known keeps its text. Its queues are those that the writer has in memory, perhaps from this very job.
STORE = """INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at, evaluated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?5)
ON CONFLICT (id) DO UPDATE SET unused_since = NULL, queues = excluded.queues,
  evaluated_at = coalesce(evaluated_at, excluded.evaluated_at)
WHERE unused_since IS NOT NULL OR evaluated_at IS NULL OR queues != excluded.queues"""
# Made again: nobody knows its queues before the next pass.
STORE_AGAIN = """INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at)
SELECT pool_id, json_extract(key, '$.vo'), requirements, x'', ? FROM task_queue WHERE id = ? AND pool_id != ''
ON CONFLICT (id) DO UPDATE SET unused_since = NULL WHERE unused_since IS NOT NULL"""
SET_QUEUES = "UPDATE submit_pool_bits SET queues = ?, evaluated_at = ? WHERE id = ?"
INSERT_QUEUE = "INSERT INTO pool_queue (bit, site, ce, queue) VALUES (?,?,?,?)"
DELETE_QUEUE = "DELETE FROM pool_queue WHERE bit = ?"
MARK = "UPDATE submit_pool_bits SET unused_since = ? WHERE id = ? AND unused_since IS NULL"
UNMARK = "UPDATE submit_pool_bits SET unused_since = NULL WHERE id = ?"
REMOVE = """DELETE FROM submit_pool_bits WHERE id IN (SELECT value FROM json_each(?))
AND unused_since IS NOT NULL AND unused_since <= ? RETURNING id"""
ASK = "UPDATE submit_pool_state SET asked = asked + 1 WHERE one = 1"
ANSWER = "UPDATE submit_pool_state SET answered = max(answered, ?) WHERE one = 1"
CHANGED = "UPDATE submit_pool_state SET version = version + 1 WHERE one = 1"
INSERT_PASS = """INSERT INTO submit_pool_pass (id, at, cause, config, pools, changed, held, released, seconds)
VALUES (?,?,?,?,?,?,?,?,?)"""
FORGET_PASSES = "DELETE FROM submit_pool_pass WHERE id <= ?"
COUNT_JOBS = "UPDATE submit_pool_pass SET held = held + ?, released = released + ? WHERE id = ?"
READ = """SELECT id, vo, requirements, queues, created_at, unused_since, evaluated_at IS NOT NULL
FROM submit_pool_bits ORDER BY id"""
PASS_KEYS = ("id", "at", "cause", "pools", "changed", "held", "released", "seconds")
PASSES_KEPT = 1_000

POOLS_NEEDED = """SELECT DISTINCT pool_id FROM task_queue WHERE pool_id != '' AND id IN (
  SELECT tq_id FROM queue_jobs WHERE jobs > 0 UNION ALL SELECT tq_id FROM queue_may_return)"""


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A stored pool. `queues`: its bitmap as a number; `unused_since`: UNIX seconds, None while jobs need it.

    `is_evaluated`: false until its queues are known.
    """

    id: str
    vo: str
    requirements: str
    queues: int
    created_at: float
    unused_since: float | None
    is_evaluated: bool = True


@dataclass(frozen=True, slots=True)
class PassRow:
    """The last pass; all zero before the first."""

    id: int = 0
    at: float = 0.0
    config: str = ""


@dataclass(frozen=True, slots=True)
class PoolState:
    """How many passes were asked for and answered; `version` changes whenever a pool or a queue of one does."""

    asked: int
    answered: int
    version: int

    @property
    def is_due(self) -> bool:
        """Somebody waits for a pass."""
        return self.asked > self.answered


def bitmap(mask: int) -> bytes:
    """A mask as it is stored."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def read_pools(db: Reader) -> Iterator[PoolRow]:
    """Every pool, by id."""
    for number, vo, requirements, queues, created_at, unused_since, evaluated in db.execute(READ):
        mask = int.from_bytes(queues, "little")
        yield PoolRow(number, vo, requirements, mask, created_at, unused_since, bool(evaluated))


def read_masks(db: Reader) -> dict[str, int]:
    """The bitmap of every pool, by id."""
    rows = db.execute("SELECT id, queues FROM submit_pool_bits ORDER BY id")
    return {number: int.from_bytes(queues, "little") for number, queues in rows}


def read_bits(db: Reader) -> dict[tuple[str, str, str], int]:
    """The bit of every queue that pools speak of."""
    return {(site, ce, queue): bit for bit, site, ce, queue in db.execute("SELECT * FROM pool_queue")}


def last_pass(db: Reader) -> PassRow:
    """The last pass."""
    found = db.execute("SELECT id, at, config FROM submit_pool_pass ORDER BY id DESC LIMIT 1").fetchone()
    return PassRow() if found is None else PassRow(*found)


def last_passes(db: Reader, count: int) -> list[dict[str, Any]]:
    """The last passes, the youngest first, with what each did."""
    rows = db.execute(
        f"SELECT {', '.join(PASS_KEYS)} FROM submit_pool_pass ORDER BY id DESC LIMIT ?", (count,)
    )
    return [dict(zip(PASS_KEYS, row, strict=True)) for row in rows]


def pool_state(db: Reader) -> PoolState:
    """What is asked for, and the version of all pools."""
    return PoolState(*only_row(db, "SELECT asked, answered, version FROM submit_pool_state"))


def pools_needed(db: Reader) -> set[str]:
    """The pools of task queues that have jobs: waiting, held or running."""
    return {row[0] for row in db.execute(POOLS_NEEDED)}


def ask_for_pass(tx: Transaction) -> None:
    """Let the background process evaluate all pools soon."""
    tx.last(ASK, 1, ())


def pools_changed(tx: Transaction) -> None:
    """Tell those who keep a copy of the pools that it is old."""
    tx.last(CHANGED, 1, ())


def remove_pools(tx: Transaction, pools: Iterable[str], *, unused_before: float) -> list[str]:
    """Remove those of the pools that are still marked as unused since then; returns their ids."""
    names = msgspec.json.encode(list(pools)).decode()
    return [row[0] for row in tx.read(REMOVE, (names, unused_before))]


def store_pass(tx: Transaction, row: PassRow, counts: tuple[str, int, int, int, int, float]) -> None:
    """Store a pass; `counts`: cause, pools, changed, held, released, seconds. Very old ones are forgotten."""
    cause, pools, changed, held, released, seconds = counts
    tx.later(INSERT_PASS, (row.id, tx.now, cause, row.config, pools, changed, held, released, seconds))
    tx.later(FORGET_PASSES, (row.id - PASSES_KEPT,))
