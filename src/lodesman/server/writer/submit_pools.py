"""SubmitPools under a changed configuration: other queues, other keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from lodesman.base.errors import Conflict, InvalidJob
from lodesman.decide.masks.bits import numbered
from lodesman.decide.matching import GroupShare, key_to_json
from lodesman.decide.matching.submit_pool import read_again
from lodesman.decide.resources import QueueId, TypeTable
from lodesman.server.store import submit_pools, task_queues
from lodesman.server.store.submit_pools import PassRow, PoolRow
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.waiting import TaskQueues
from lodesman.wire.service import PassResult, PoolCleaning, QueueVerdicts, Renewal, Renewals

CONFIG: Final = "config"
"""The key in a refusal's data: the configuration differed."""


def _other_configuration(done: str, config: str) -> Conflict:
    text = f"The SubmitPools were {done} by another configuration than this process has."
    return Conflict(text, **{CONFIG: config})


def number_queues(tx: Transaction, live: WriterState, queues: Iterable[QueueId]) -> Mapping[QueueId, int]:
    """New queues get bits; returns all bits (ADR 0028)."""
    live.pools.number(tx, queues)
    return live.pools.bits


def number_at_start(tx: Transaction, queues: Collection[QueueId]) -> None:
    """Free bits that no configured queue and no SubmitPool has."""
    stored_bits, configured = submit_pools.bits_of_queues(tx.reader()), set(queues)
    in_use = reduce(or_, submit_pools.masks_of_pools(tx.reader()).values(), 0)
    kept = {queue: bit for queue, bit in stored_bits.items() if queue in configured or in_use >> bit & 1}
    submit_pools.delete_bits(tx, set(stored_bits.values()) - set(kept.values()))
    bits = numbered(queues, kept)
    submit_pools.insert_bits(tx, {queue: bits[queue] for queue in bits.keys() - kept})


def refresh_pools(tx: Transaction, live: WriterState, difference: PassResult, config: str) -> PassRow:
    """One pass with one time stamp. Raises Conflict if another pass or configuration came first."""
    if difference.previous != live.pools.last_pass.id:
        raise Conflict(f"Refresh {live.pools.last_pass.id} of the SubmitPools came between.")
    if difference.config != config:
        raise _other_configuration("evaluated", config)
    # A pool that was removed meanwhile stays removed.
    masks = {pool: int(text, 16) for pool, text in difference.masks.items() if pool in live.pools.known}
    if masks:
        live.queues.serve(tx, masks)
    row = live.pools.passed(tx, difference.config)
    submit_pools.insert_pass(tx, row.id, difference, masks)
    return row


def judge_queues(tx: Transaction, live: WriterState, judgement: QueueVerdicts) -> dict[str, int]:
    """Hold and release as the last pass found; returns how many jobs each way. Raises Conflict if another came between."""
    if judgement.number != live.pools.last_pass.id:
        raise Conflict(f"Refresh {live.pools.last_pass.id} of the SubmitPools came between.")
    held = sum([live.queues.hold(tx, tq_id, reason) for tq_id, reason in judgement.hold])
    released = sum([live.queues.release(tx, tq_id, reason) for tq_id, reason in judgement.release])
    submit_pools.count_judged_jobs(tx, judgement.number, held=held, released=released)
    return {"held": held, "released": released}


def clean_pools(tx: Transaction, live: WriterState, cleaning: PoolCleaning) -> int:
    """Remove pools unused for the grace time (RFC #7: by an agent, at regular intervals); returns how many.

    A job that uses a pool clears its mark in its own transaction.
    """
    gone = submit_pools.clean_pools(tx, cleaning)
    if gone:
        live.pools.forget_pools(tx, gone)
    return len(gone)


def set_shares(_tx: Transaction, live: WriterState, shares: Mapping[str, GroupShare]) -> None:
    """Use these shares from the next claim on; in memory only."""
    live.queues.matcher.lottery.set_shares(shares)


class PoolIds:
    """Remembers unchanged identifiers as long as the types are the same."""

    def __init__(self) -> None:
        self._version = ""
        self._ids: set[str] = set()

    def changed(self, types: TypeTable, pools: Iterable[PoolRow]) -> list[Renewal]:
        """What the types cannot read any more keeps its identifier: no queue fulfils it."""
        if self._version != types.version:
            self._version, self._ids = types.version, set()
        renewals = []
        for pool in pools:
            if pool.id in self._ids:
                continue
            try:
                new, text = read_again(pool.requirements, types, pool.vo)
            except (InvalidJob, ValueError, TypeError, AttributeError):
                new = text = ""
            if new in ("", pool.id):
                self._ids.add(pool.id)
            else:
                renewals.append((pool.id, new, text))
        return renewals


def rekey_pools(tx: Transaction, live: WriterState, renewals: Renewals, config: str) -> int:
    """Give pools and their task queues the keys of today's types, all or nothing; returns how many task queues.
    Raises Conflict if another configuration has come.
    """
    if renewals.config != config:
        raise _other_configuration("read", config)
    # A pool that was removed meanwhile stays removed; it is read again when a job needs it again.
    pools = {old: (new, text) for old, new, text in renewals.pools if old in live.pools.known}
    if not pools:
        return 0
    masks: dict[str, int] = {}
    for old, (new, _) in pools.items():
        if new not in live.pools.known:
            masks.setdefault(new, live.pools.mask(old) or 0)
    submit_pools.rename_pools(tx, pools)
    live.queues.serve(tx, masks)
    count = _rekey_queues(tx, live.queues, pools)
    live.pools.forget_pools(tx, pools)
    return count


def _rekey_queues(tx: Transaction, queues: TaskQueues, pools: Mapping[str, tuple[str, str]]) -> int:
    """Two with one key become that with waiting jobs, else the older."""
    rows = task_queues.queues_of_pools(tx, pools)
    keys = [replace(key, submit_pool=pools[pool][0]) for _, key, pool in rows]
    texts = list(map(key_to_json, keys))
    by_key = task_queues.queues_with_keys(tx, texts)
    for (tq_id, _, pool), key, text in zip(rows, keys, texts, strict=True):
        other = by_key.get(text)
        keep, waiting = tq_id, 0
        if other is not None:
            keep, gone = sorted(
                (tq_id, other), key=lambda queue_id: (not queues.index.waiting(queue_id), queue_id)
            )
            queues.write_claims(tx)
            queues.forget_front(tx, keep)
            waiting = queues.remove(tx, gone)
            task_queues.join_queues(tx, gone, keep)
        if keep == tq_id:
            task_queues.set_key(tx, keep, text, pools[pool][1])
            queues.rekey(tx, keep, key)
        if waiting:
            queues.known_again(tx, keep)
            queues.joined(tx, keep, waiting)
        by_key[text] = keep
    task_queues.keys_changed(tx)
    return len(rows)
