"""Taking in a changed configuration: shares, and which queues serve which SubmitPool (RFC #7).

The mapping is evaluated outside the writer and swapped as a whole, with one time stamp for all pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import apsw
import msgspec

from lodesman.errors import InvalidJob
from lodesman.matching import GroupShare
from lodesman.services.live import Live
from lodesman.services.policy import Policy
from lodesman.store.journal import Transaction

Queues = list[tuple[str, str, str]]


def pool_queues(db: apsw.Connection, policy: Policy) -> dict[str, Queues]:
    """For every stored SubmitPool the queues that are eligible as things are configured now.

    A pool whose Requirements the declared types cannot read any more has no queue.
    """
    found: dict[str, Queues] = {}
    for pool, text, vo in db.execute("SELECT id, requirements, vo FROM submit_pool"):
        wanted = {name: values for name, (_, values) in msgspec.json.decode(text).items()}
        try:
            mask = policy.world(vo).table.eligible_mask(wanted)
        except InvalidJob:
            mask = 0
        found[pool] = [(q.site, q.ce, q.queue) for q in policy.queues_of_mask(vo, mask)]
    return found


@dataclass(slots=True)
class RefreshPools:
    """Swap the mapping of SubmitPools to queues; the time stamp moves even when nothing changed."""

    live: Live
    pools: Mapping[str, Queues]

    def apply(self, tx: Transaction) -> int:
        """Writes only what changed; returns how many pools gained or lost queues."""
        changed = 0
        for pool, queues in self.pools.items():
            before = {tuple(row) for row in tx.read(
                "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ?", (pool,)
            )}  # fmt: skip
            now = set(queues)
            if before == now:
                continue
            changed += 1
            tx.later_many(
                "DELETE FROM submit_pool_queue WHERE pool_id = ? AND site = ? AND ce = ? AND queue = ?",
                [(pool, *queue) for queue in before - now],
            )
            tx.later_many(
                "INSERT OR IGNORE INTO submit_pool_queue (pool_id, site, ce, queue) VALUES (?,?,?,?)",
                [(pool, *queue) for queue in now - before],
            )
        tx.later("UPDATE submit_pool SET refreshed_at = ?", (tx.now,))
        if changed:
            self.live.replace_pools(self.pools)
        return changed


@dataclass(slots=True)
class SetShares:
    """Use these shares from the next claim on."""

    live: Live
    shares: Mapping[str, GroupShare]

    def apply(self, _tx: Transaction) -> None:
        """Changes memory only: shares live in the configuration."""
        self.live.matcher.set_shares(self.shares)
