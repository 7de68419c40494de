"""What waits, in the writer's memory: task queues with jobs, and claims."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, cast

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.parked import ParkedRequests
from lodesman.server.store import Reader, submit_pools, task_queues
from lodesman.server.store.claim_log import ClaimLog, claims_at
from lodesman.server.store.fronts import Fronts
from lodesman.server.store.ids import Ids
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.store.write.jobs import WaitingJob
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import MainReason

_FEW_GROUPS = 4
_SHARE_SAMPLE = 64
# The index's limit for task queues that no configured queue can run.
_IMPOSSIBLE = "impossible"


class _ParkedClaim(Hashable, Protocol):
    pilot_id: int
    request: ResourceRequest
    count: int
    since: float
    place: RunPlace

    @property
    def answer(self) -> Callable[[Any], None]: ...

    def can_take(self, key: TaskQueueKey) -> bool: ...

    def claim(self, tx: Transaction) -> list[ClaimedAttempt]: ...

    def refresh_pools(self) -> None: ...


class _ParkedClaims:
    """Parked claims: at most one for each pilot."""

    def __init__(self, index: Index, pools: PoolMap) -> None:
        self._index = index
        self._pools = pools
        self._parked = ParkedRequests(index, pools.serves)
        self._claims: dict[int, _ParkedClaim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def park(self, tx: Transaction, claim: _ParkedClaim) -> None:
        self._enter(claim)
        tx.undo.append(partial(self._leave, claim))

    def unpark(self, tx: Transaction, claim: _ParkedClaim) -> bool:
        """False if it did not wait."""
        if not self._leave(claim):
            return False
        tx.undo.append(partial(self._enter, claim))
        return True

    def end_of_pilot(self, tx: Transaction, pilot_id: int) -> None:
        """The pilot is gone, drained, or claims anew: its claim gets nothing."""
        claim = self._claims.get(pilot_id)
        if claim is not None and self.unpark(tx, claim):
            tx.answers.append((claim.answer, []))

    def could_take(self, keys: Iterable[TaskQueueKey]) -> bool:
        return bool(self._claims) and any(map(self._parked.fits, keys))

    def of_pilot(self, pilot_id: int) -> _ParkedClaim | None:
        """With the SubmitPools that its queue serves now."""
        claim = self._claims.get(pilot_id)
        if claim is not None:
            claim.refresh_pools()
        return claim

    def woken(self, filled: Mapping[int, int]) -> Iterator[_ParkedClaim]:
        """Longest waiting first (`ParkedRequests.wake`)."""
        return cast("Iterator[_ParkedClaim]", self._parked.wake(filled, self._is_shut))

    def _is_shut(self, tq_id: int, claim: _ParkedClaim) -> bool:
        return self._index.is_shut(tq_id, claim.place) or not claim.can_take(self._index.key(tq_id))

    def present_anew(self, pilot_ids: Iterable[int]) -> list[_ParkedClaim]:
        """Offers of pilots changed; returns their claims, longest waiting first."""
        self._pools.version += 1  # claims on their way, too, present anew
        waiting = [claim for number in pilot_ids if (claim := self._claims.get(number)) is not None]
        for claim in waiting:
            self._leave(claim)
            claim.refresh_pools()
            self._enter(claim)
        return sorted(waiting, key=lambda claim: claim.since)

    def serve(self, tx: Transaction, claims: Iterable[_ParkedClaim]) -> None:
        for claim in claims:
            claimed = claim.claim(tx)
            if claimed and self.unpark(tx, claim):
                tx.answers.append((claim.answer, claimed))

    def serve_freed(self, tx: Transaction, matcher: Matcher) -> None:
        """Serve claims where limits have room again, or changed; longest waiting first. Of equal requests at equal
        places the first that finds nothing speaks for all.
        """
        limits = matcher.index.limits
        was_freed = limits.take_freed()
        if was_freed is None or not self:
            return
        in_vain: set[tuple[ResourceRequest, Hashable]] = set()
        for claim, kind in self._parked.in_turn():
            spot = limits.spot(claim.place)
            if (kind, spot) in in_vain or not was_freed(spot):
                continue
            before = len(self)
            self.serve(tx, [claim])
            if len(self) == before:
                in_vain.add((kind, spot))

    def _enter(self, claim: _ParkedClaim) -> None:
        self._claims[claim.pilot_id] = claim
        self._parked.park(claim, claim.request, claim.count, claim.since)

    def _leave(self, claim: _ParkedClaim) -> bool:
        if self._claims.get(claim.pilot_id) is not claim:
            return False
        del self._claims[claim.pilot_id]
        self._parked.leave(claim)
        return True


class TaskQueues:
    """Index, fronts and counters of task queues, and which are held."""

    def __init__(self, db: Reader, ids: Ids, pools: PoolMap, *, now: float) -> None:
        self._ids = ids
        self._pools = pools
        self.matcher = Matcher()
        # Whether jobs are packed into pilots that run several at once.
        self.packs = True
        self.index = self.matcher.index
        self.parked = _ParkedClaims(self.index, pools)
        self.claims = ClaimLog(claims_at(db))
        self.fronts = Fronts(self.claims)
        # Those that no configured queue can run, with the reason.
        self.held = task_queues.held_queues(db)
        # Those that got jobs in this batch, for claims that wait; and those of them that had none.
        self.filled: dict[int, int] = {}
        self.begun: set[int] = set()
        for tq_id, key, waiting in task_queues.queues_with_jobs(db):
            self._enter(tq_id, key, waiting, now)

    def records_shares(self, rng: random.Random) -> bool:
        """Whether to record which groups compete: else for a random sample, since asking many groups costs more
        than the choice.
        """
        return self.index.group_numbers() <= _FEW_GROUPS or rng.random() * _SHARE_SAMPLE < 1

    # --- jobs come and go ------------------------------------------------------------------------------------

    def queue_for(self, tx: Transaction, key: TaskQueueKey, requirements: str = "") -> int:
        """A new one is made. `requirements`: what its SubmitPool stands for."""
        indexed = self.index.find(key)
        if indexed is not None:
            return indexed
        tq_id = task_queues.queue_with_key(tx.reader(), key)
        if tq_id is None:
            tq_id = self._ids.task_queue()
            task_queues.insert_queue(tx, tq_id, key, requirements)
        self._put(tx, tq_id, key)
        return tq_id

    def joined(self, tx: Transaction, tq_id: int, count: int) -> None:
        """Jobs became Waiting."""
        if not self.index.waiting(tq_id) and not self.index.key(tq_id).waits_for_jobs:
            self.begun.add(tq_id)
        self.index.add_waiting(tq_id, count, now=tx.now)
        tx.undo.append(partial(self.index.take, tq_id, count, now=tx.now))
        self.set_waiting(tx, tq_id)
        if not self.index.key(tq_id).waits_for_jobs:
            self.filled[tq_id] = self.filled.get(tq_id, 0) + count

    def note_eased(self) -> None:
        """Submissions with `AtMost` have room again."""
        for queue, room in self.index.caps.take_eased():
            self.filled[queue.tq_id] = room
            self.begun.add(queue.tq_id)

    def take_begun(self) -> bool:
        """Whether jobs still wait where none did before this batch."""
        begun, self.begun = self.begun, set()
        return any(self.index.waiting(tq_id) for tq_id in begun)

    def left(self, tx: Transaction, tq_id: int, count: int) -> None:
        """Jobs left other than by a claim (killed, held)."""
        self.index.take(tq_id, count, now=tx.now)
        tx.undo.append(partial(self.index.add_waiting, tq_id, count, now=tx.now))
        self.set_waiting(tx, tq_id)
        self.forget_front(tx, tq_id)

    def row_joined(self, tx: Transaction, tq_id: int, job: WaitingJob) -> None:
        """A new row is at the end."""
        self.fronts.joined(tq_id, job)
        tx.undo.append(partial(self.fronts.forget, tq_id))

    def came_back(self, tx: Transaction, tq_id: int, job_id: int) -> None:
        """A row that had left is Waiting again."""
        task_queues.row_came_back(tx, tq_id, job_id)
        self.run_came_back(tx, tq_id, 1)

    def run_came_back(self, tx: Transaction, tq_id: int, count: int) -> None:
        """Members that had left are Waiting again."""
        self.known_again(tx, tq_id)
        self.forget_front(tx, tq_id)
        self.joined(tx, tq_id, count)

    def forget_front(self, tx: Transaction, tq_id: int) -> None:
        """The front has read jobs that have changed."""
        self.fronts.forget(tq_id)
        tx.undo.append(partial(self.fronts.forget, tq_id))

    def known_again(self, tx: Transaction, tq_id: int) -> None:
        """Put it back into the index. A removed SubmitPool is made again; the next pass finds its queues."""
        if not self.index.has(tq_id):
            self._put(tx, tq_id, task_queues.key_and_requirements(tx.reader(), tq_id)[0])
        pool = self.index.key(tq_id).submit_pool
        if pool:
            submit_pools.store_pool_of_queue(tx, tq_id)
            if pool not in self._pools.known:
                self.serve(tx, {pool: 0})
                submit_pools.ask_for_pass(tx)

    def serve(self, tx: Transaction, masks: Mapping[str, int]) -> None:
        """Set masks of SubmitPools; waiting jobs and claims see it at once."""
        pools = self._pools
        winners = {pool for pool, mask in masks.items() if mask & ~(pools.mask(pool) or 0)}
        tx.undo.append(partial(pools.put, pools.put(masks)))
        submit_pools.pools_changed(tx)
        if winners and self.parked:
            # Jobs that wait count as new: parked claims may be served by them now.
            for tq_id, key, waiting in self.index.queues():
                if waiting and key.submit_pool in winners:
                    self.filled[tq_id] = waiting

    # --- counters --------------------------------------------------------------------------------------------

    def set_waiting(self, tx: Transaction, tq_id: int) -> None:
        """Store the counter as the index has it."""
        task_queues.set_waiting(tx, tq_id, self.index.waiting(tq_id), as_of=self.claims.last_attempt)

    def write_claims(self, tx: Transaction, *, only_if_due: bool = False) -> None:
        """Write what follows from claims (`store.claim_log`)."""
        if not only_if_due or self.claims.is_due():
            index = self.index
            counts = {tq_id: index.waiting(tq_id) for tq_id in self.claims.queues() if index.has(tq_id)}
            self.claims.write(tx, counts)

    def correct_count(self, tx: Transaction, tq_id: int, counted: int) -> None:
        """Set the counter, and read the front anew."""
        difference = counted - self.index.waiting(tq_id)
        if difference > 0:
            self.joined(tx, tq_id, difference)
        elif difference < 0:
            self.left(tx, tq_id, -difference)
        self.set_waiting(tx, tq_id)
        self.fronts.forget(tq_id)

    # --- task queues that no configured queue can run ----------------------------------------------------------

    def hold(self, tx: Transaction, tq_id: int, reason: str) -> int:
        """Returns how many jobs were not held before."""
        is_new = tq_id not in self.held
        if is_new:
            tx.holds_changed()
            self.known_again(tx, tq_id)
            tx.undo.append(partial(self._unblock, tq_id))
            self.index.block(tq_id, _IMPOSSIBLE)
        tx.put(self.held, tq_id, reason)
        task_queues.hold_queue(tx, self._ids.event() if is_new else None, tq_id, reason)
        return self.index.waiting(tq_id) if is_new else 0

    def release(self, tx: Transaction, tq_id: int, reason: str) -> int:
        """Returns how many jobs wait. Without a `reason` the task queue was empty: if jobs have joined, the next
        pass judges it.
        """
        jobs = self.index.waiting(tq_id)
        if tq_id not in self.held or (jobs and not reason):
            return 0
        tx.undo.append(partial(self._block, tq_id))
        tx.drop(self.held, tq_id)
        tx.holds_changed()
        task_queues.release_queue(tx, self._ids.event() if jobs else None, tq_id, reason)
        self._unblock(tq_id)
        if jobs:
            self.filled[tq_id] = self.filled.get(tq_id, 0) + jobs
        return jobs

    # --- keys ------------------------------------------------------------------------------------------------

    def rekey(self, tx: Transaction, tq_id: int, key: TaskQueueKey) -> None:
        """Its jobs count as new for parked claims."""
        if not self.index.has(tq_id):
            return
        waiting, before = self.index.waiting(tq_id), self.index.key(tq_id)
        self._enter(tq_id, key, waiting, tx.now)
        tx.undo.append(partial(self._enter, tq_id, before, waiting, tx.now))
        if waiting and tq_id not in self.held:
            self.filled[tq_id] = waiting

    def remove(self, tx: Transaction, tq_id: int) -> int:
        """Take it out of memory; returns how many jobs wait."""
        self.forget_front(tx, tq_id)
        waiting = self.index.waiting(tq_id)
        if self.index.has(tq_id):
            key = self.index.key(tq_id)
            self.index.remove(tq_id)
            tx.undo.append(partial(self._enter, tq_id, key, waiting, tx.now))
        tx.drop(self.held, tq_id)
        self.filled.pop(tq_id, None)
        return waiting

    def _put(self, tx: Transaction, tq_id: int, key: TaskQueueKey) -> None:
        self._enter(tq_id, key, 0, tx.now)
        tx.undo.append(partial(self.index.remove, tq_id))

    def _enter(self, tq_id: int, key: TaskQueueKey, waiting: int, now: float) -> None:
        if self.index.has(tq_id):
            self.index.remove(tq_id)
        self.index.put(tq_id, key, waiting, now=now)
        self._block(tq_id)
        if key.waits_for_jobs:
            self.index.block(tq_id, MainReason.WAITS_FOR_JOBS)

    def _block(self, tq_id: int) -> None:
        if tq_id in self.held and self.index.has(tq_id):
            self.index.block(tq_id, _IMPOSSIBLE)

    def _unblock(self, tq_id: int) -> None:
        if self.index.has(tq_id):
            self.index.unblock(tq_id, _IMPOSSIBLE)
