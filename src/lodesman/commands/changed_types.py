"""When the declared types change: stored Requirements are read again, and what they are the key of gets another key.

What a job asks for was stored with its unit, so it stays what it was: 50 GB are 50 GB when the type says MB now. Its
identifier does not stay, and a new job that asks for the same must find the same SubmitPool and the same task queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lodesman.answers.service import Renewal, Renewals
from lodesman.commands.live import Live
from lodesman.commands.refresh import other_configuration
from lodesman.errors import InvalidJob
from lodesman.matching import key_to_json, read_again
from lodesman.resources import TypeTable
from lodesman.store.journal import Transaction
from lodesman.store.read.submit_pools import PoolRow
from lodesman.store.write import submit_pools, task_queues


@dataclass(slots=True)
class Settled:
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
            raise other_configuration("read", self.config)
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
