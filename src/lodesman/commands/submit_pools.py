"""SubmitPools under a changed configuration: other queues, other keys, task queues that nothing can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lodesman.answers.service import Cleaning, Difference, Judgement, Renewal, Renewals
from lodesman.commands.live import Live
from lodesman.errors import Conflict, InvalidJob
from lodesman.matching import GroupShare, key_to_json, read_again
from lodesman.resources import QueueId, TypeTable
from lodesman.store.journal import Transaction
from lodesman.store.read.submit_pools import PassRow, PoolRow
from lodesman.store.write import submit_pools, task_queues
from lodesman.store.write.submit_pools import NewPass

CONFIG: Final = "config"
"""In the data of a refusal: the configuration was another one."""


def _other_configuration(done: str, config: str) -> Conflict:
    """What is refused when the two processes have not read the same configuration; `config`: the digest of the writer's."""
    text = f"The SubmitPools were {done} by another configuration than this process has."
    return Conflict(text, **{CONFIG: config})


@dataclass(slots=True)
class NameQueues:
    """Give configured queues a bit in the masks of SubmitPools."""

    live: Live
    places: list[QueueId]

    def apply(self, tx: Transaction) -> int:
        """Returns how many had none."""
        new = [place for place in self.places if self.live.pools.bit(place) is None]
        for place in new:
            self.live.pools.name_queue_in(tx, place)
        return len(new)


@dataclass(slots=True)
class RefreshPools:
    """Swap the mapping of SubmitPools to queues: one pass, with one time stamp for all, even if nothing changed."""

    live: Live
    found: Difference
    config: str

    def apply(self, tx: Transaction) -> PassRow:
        """Writes only what changed. Raises Conflict if the difference is one to something else."""
        live, found = self.live, self.found
        if found.previous != live.pools.last_pass.id:
            raise Conflict(f"Pass {live.pools.last_pass.id} of the SubmitPools came between.")
        if found.config != self.config:
            raise _other_configuration("evaluated", self.config)
        # A pool that was removed meanwhile stays removed.
        masks = {pool: int(text, 16) for pool, text in found.masks.items() if pool in live.pools.known}
        if masks:
            live.queues.serve(tx, masks)
            submit_pools.set_queues(tx, masks)
        in_use = live.pools.any_pool() if found.gone else 0
        for place in found.gone:
            live.pools.forget_queue_in(tx, place, in_use)
        row = live.pools.passed(tx, found.config)
        new = NewPass(cause=found.cause, pools=found.pools, changed=len(masks), seconds=found.seconds)
        submit_pools.insert_pass(tx, row, new)
        submit_pools.answer_passes(tx, found.answers)
        return row


@dataclass(slots=True)
class JudgeQueues:
    """Hold and release whole task queues, by what the last pass found."""

    live: Live
    found: Judgement

    def apply(self, tx: Transaction) -> dict[str, int]:
        """Returns how many jobs each way. Raises Conflict if another pass came between."""
        live, found = self.live, self.found
        if found.number != live.pools.last_pass.id:
            raise Conflict(f"Pass {live.pools.last_pass.id} of the SubmitPools came between.")
        held = sum([live.queues.hold(tx, tq_id, reason) for tq_id, reason in found.hold])
        released = sum([live.queues.release(tx, tq_id, reason) for tq_id, reason in found.release])
        submit_pools.count_judged_jobs(tx, found.number, held=held, released=released)
        return {"held": held, "released": released}


@dataclass(slots=True)
class CleanPools:
    """Remove SubmitPools that no job has needed for the grace time (RFC #7: by an agent, at regular intervals).

    A job that takes a pool into use clears its mark in its own transaction: what is still marked is not needed.
    """

    live: Live
    found: Cleaning

    def apply(self, tx: Transaction) -> int:
        """Returns how many were removed."""
        found = self.found
        submit_pools.mark_unused(tx, found.mark)
        submit_pools.mark_used(tx, found.unmark)
        gone = submit_pools.remove_unused(tx, found.remove, unused_before=found.unused_before)
        if gone:
            self.live.pools.forget_pools(tx, gone)
        return len(gone)


@dataclass(slots=True)
class SetShares:
    """Use these shares from the next claim on."""

    live: Live
    shares: Mapping[str, GroupShare]

    def apply(self, _tx: Transaction) -> None:
        """Changes memory only: shares live in the configuration."""
        self.live.queues.matcher.set_shares(self.shares)


@dataclass(slots=True)
class PoolIds:
    """Finds the pools with another identifier. Those that have theirs are remembered as long as the types are these."""

    _types: TypeTable | None = None
    _ids: set[str] = field(default_factory=set)

    def changed(self, types: TypeTable, pools: Iterable[PoolRow]) -> list[Renewal]:
        """Sets that the types cannot read any more keep their identifier: no queue fulfils them."""
        if self._types is None or self._types.version != types.version:
            self._ids = set()
        self._types = types
        found = []
        for pool in pools:
            if pool.id in self._ids:
                continue
            new, text = _read(pool, types)
            if new in ("", pool.id):
                self._ids.add(pool.id)
            else:
                found.append((pool.id, new, text))
        return found


def _read(pool: PoolRow, types: TypeTable) -> tuple[str, str]:
    try:
        return read_again(pool.requirements, types, pool.vo)
    except (InvalidJob, ValueError, TypeError, AttributeError):
        return "", ""


@dataclass(slots=True)
class RekeyPools:
    """Give SubmitPools, and the task queues that need them, the keys that they have under the types of today.

    Two task queues that have one key now become one, which has all jobs then: that with waiting jobs, else the older.
    All or nothing.
    """

    live: Live
    found: Renewals
    config: str

    def apply(self, tx: Transaction) -> int:
        """Returns how many task queues got another key. Raises Conflict if another configuration has come."""
        if self.found.config != self.config:
            raise _other_configuration("read", self.config)
        live = self.live
        # A pool that was removed meanwhile stays removed; it is read again when a job needs it again.
        pools = {old: (new, text) for old, new, text in self.found.pools if old in live.pools.known}
        if not pools:
            return 0
        masks: dict[str, int] = {}
        for old, (new, text) in pools.items():
            submit_pools.rename_pool(tx, old, new, text)
            if new not in live.pools.known:
                masks.setdefault(new, live.pools.mask(old) or 0)
        live.queues.serve(tx, masks)
        count = self._queues(tx, pools)
        submit_pools.delete_pools(tx, pools)
        live.pools.forget_pools(tx, pools)
        task_queues.keys_changed(tx)
        submit_pools.pools_changed(tx)
        return count

    def _queues(self, tx: Transaction, pools: dict[str, tuple[str, str]]) -> int:
        queues = task_queues.queues_of_pools(tx, pools)
        keys = [replace(queue.key, submit_pool=pools[queue.pool][0]) for queue in queues]
        texts = list(map(key_to_json, keys))
        taken = task_queues.queues_with_keys(tx, texts)
        for queue, key, text in zip(queues, keys, texts, strict=True):
            other = taken.get(text)
            keep, waiting = queue.id, 0
            if other is not None:
                keep, gone = sorted((queue.id, other), key=self._rank)
                waiting = self._join(tx, gone, keep)
            if keep == queue.id:
                task_queues.set_key(tx, keep, text, pools[queue.pool][1])
                self.live.queues.rekey(tx, keep, key)
            if waiting:
                self.live.queues.known_again(tx, keep)
                self.live.queues.joined(tx, keep, waiting)
            taken[text] = keep
        return len(queues)

    def _rank(self, tq_id: int) -> tuple[bool, int]:
        return not self.live.queues.index.waiting(tq_id), tq_id

    def _join(self, tx: Transaction, gone: int, keep: int) -> int:
        """Take a task queue out, all that it has goes to another one; returns how many jobs wait in it."""
        queues = self.live.queues
        queues.write_claims(tx)
        queues.forget_front(tx, keep)
        waiting = queues.remove(tx, gone)
        task_queues.join_queues(tx, gone, keep)
        return waiting
