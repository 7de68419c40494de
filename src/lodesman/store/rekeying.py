"""SubmitPools that get another identifier, and the task queues that need them: other keys, or joined to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lodesman.matching import TaskQueueKey, key_from_json
from lodesman.store.forget import delete_queues
from lodesman.store.journal import Transaction

GIVEN = "(SELECT value FROM json_each(?))"
# One with the new identifier may be there already: it keeps its queues, and is needed as the old one may have been.
RENAME_POOL = """INSERT INTO submit_pool_bits (id, vo, requirements, queues, created_at, evaluated_at)
SELECT ?, vo, ?, queues, created_at, evaluated_at FROM submit_pool_bits WHERE id = ?
ON CONFLICT (id) DO UPDATE SET unused_since = NULL"""
DELETE_POOLS = f"DELETE FROM submit_pool_bits WHERE id IN {GIVEN}"
QUEUES = f"SELECT id, key, pool_id FROM task_queue WHERE pool_id IN {GIVEN} AND pool_id != '' ORDER BY id"
WITH_KEYS = f"SELECT key, id FROM task_queue WHERE key IN {GIVEN}"
SET_KEY = "UPDATE task_queue SET key = ?, requirements = ? WHERE id = ?"
REKEYED = "UPDATE submit_pool_state SET rekeyed = rekeyed + 1 WHERE one = 1"

# What names a task queue, and is more than history: jobs of their own, taken members of arrays, runs, what lives.
MOVE_ROWS = "UPDATE job SET tq_id = ?1 WHERE tq_id = ?2 AND queued IS NOT NULL"
RUNS = "SELECT base + start, base + stop FROM cohort WHERE tq_id = ?"
MOVE_MEMBERS = "UPDATE job SET tq_id = ? WHERE id >= ? AND id < ? AND tq_id = ?"
MOVES = (
    "UPDATE cohort SET tq_id = ?1 WHERE tq_id = ?2",
    "UPDATE attempt INDEXED BY attempt_live SET tq_id = ?1 WHERE tq_id = ?2 AND ended_at IS NULL",
    "UPDATE pilot SET tq_id = ?1 WHERE tq_id = ?2 AND ended_at IS NULL",
    """UPDATE task_queue_count SET row_cursor = min(row_cursor,
    (SELECT row_cursor FROM task_queue_count WHERE tq_id = ?2)) WHERE tq_id = ?1""",
)


@dataclass(frozen=True, slots=True)
class KeyedQueue:
    """A task queue whose jobs need the SubmitPool `pool`."""

    id: int
    key: TaskQueueKey
    pool: str


def queues_of(tx: Transaction, pools: Iterable[str]) -> list[KeyedQueue]:
    """All task queues of these SubmitPools, empty ones too, oldest first."""
    rows = tx.read(QUEUES, (_texts(list(pools)),))
    return [KeyedQueue(number, key_from_json(key), pool) for number, key, pool in rows]


def queues_with(tx: Transaction, keys: Sequence[str]) -> dict[str, int]:
    """Key text -> task queue, for those of the keys that one has."""
    return dict(tx.read(WITH_KEYS, (_texts(keys),)))


def rename_pool(tx: Transaction, old: str, new: str, requirements: str) -> None:
    """Store a pool once more, under its new identifier."""
    tx.later(RENAME_POOL, (new, requirements, old))


def delete_pools(tx: Transaction, pools: Iterable[str]) -> None:
    """Remove the old ones, which no task queue names any more."""
    tx.write(DELETE_POOLS, (_texts(list(pools)),))


def set_key(tx: Transaction, tq_id: int, key: str, requirements: str) -> None:
    """Give a task queue another key, which no other has."""
    tx.write(SET_KEY, (key, requirements, tq_id))


def join_queue(tx: Transaction, gone: int, keep: int) -> None:
    """Move all that a task queue has to another one, but for the count of waiting jobs, and delete it.

    Counters and cursors must have been written: they follow from attempts of the old one else.
    """
    for start, stop in tx.read(RUNS, (gone,)):
        tx.write(MOVE_MEMBERS, (keep, start, stop, gone))
    tx.write(MOVE_ROWS, (keep, gone))
    for statement in MOVES:
        tx.write(statement, (keep, gone))
    delete_queues(tx, [gone])


def keys_changed(tx: Transaction) -> None:
    """Tell those who keep keys of task queues that they are old."""
    tx.last(REKEYED, 1, ())


def _texts(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()
