"""What the writer does with a changed configuration: shares, SubmitPools, and task queues that nothing can run.

SubmitPools are evaluated outside the writer (`pool_pass`). It is given the difference, with the pass that this was a
difference to: a pass that came between, or another configuration, refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lodesman.answers.service import Cleaning, Difference, Judgement
from lodesman.commands.live import Live
from lodesman.errors import Conflict
from lodesman.matching import GroupShare
from lodesman.resources import QueueId
from lodesman.store.journal import Transaction
from lodesman.store.read.submit_pools import PassRow
from lodesman.store.write import submit_pools
from lodesman.store.write.submit_pools import NewPass

CONFIG: Final = "config"
"""In the data of a refusal: the configuration was another one."""


def other_configuration(done: str, config: str) -> Conflict:
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
            raise other_configuration("evaluated", self.config)
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
