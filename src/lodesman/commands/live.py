"""What the writer's thread keeps in memory: the index, the fronts, the parked requests.

Everything here is derived from the database and is undone with a batch that fails (DESIGN 3.1).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, cast

from lodesman.commands.pool_map import PoolMap
from lodesman.commands.sessions import Known
from lodesman.matching import Matcher, Parked, ResourceRequest, TaskQueueKey
from lodesman.resources import QueueId
from lodesman.store import Writer
from lodesman.store.claim_log import ClaimLog, claims_at, replay
from lodesman.store.fronts import Fronts
from lodesman.store.ids import Ids
from lodesman.store.journal import Transaction
from lodesman.store.read.pilots import joined_pilots, pilots_with_stalled_jobs, stop_orders
from lodesman.store.read.submit_pools import PassRow, last_pass
from lodesman.store.read.task_queues import held_queues, queues_with_jobs
from lodesman.store.write import attempts, submit_pools, task_queues
from lodesman.store.write.jobs import WaitingJob

log = logging.getLogger(__name__)

FEW_GROUPS = 4
SHARE_SAMPLE = 64
# The limit of the index that keeps task queues apart which no configured queue can run.
IMPOSSIBLE = "impossible"
Attempt = tuple[int, int]


class Ticket(Hashable, Protocol):
    """A parked request: who asks, for what, how many, since when, and how to answer."""

    pilot_id: int
    request: ResourceRequest
    count: int
    since: float
    answer: Callable[[Any], None]

    def claim(self, tx: Transaction) -> list[Any]:
        """Claim what fits now."""

    def look_up_pools(self) -> None:
        """Present the SubmitPools that the queue serves now."""


class Live:
    """Memory of the writer. Every method that changes it takes the transaction and registers its inverse."""

    def __init__(self, db: Writer, *, rng: random.Random, now: float) -> None:
        replay(db)
        self.ids = Ids(db)
        self.claims = ClaimLog(claims_at(db))
        self.matcher = Matcher()
        self.fronts = Fronts(self.claims)
        self.pools = PoolMap.load(db)
        self.last_pass = last_pass(db)
        # Task queues that no configured queue can run, with the reason: their waiting jobs are Held.
        self.held = held_queues(db)
        self.parked = Parked(self.matcher.index, self.pools.serves)
        self.rng = rng
        # Pilots that have joined and not ended: nobody else is given a job.
        self.running: set[int] = {pilot.id for pilot in joined_pilots(db)}
        # Of them, those whose silence was noted: their next word is looked at (`silence`).
        self.silent: set[int] = pilots_with_stalled_jobs(db)
        # pilot -> (job, attempt) -> reason: live attempts whose payload the pilot must stop.
        self.kill_orders: dict[int, dict[Attempt, str]] = {}
        for order in stop_orders(db):
            self.kill_orders.setdefault(order.pilot_id, {})[order.job_id, order.attempt] = order.reason
        # pilot -> (claim token, what it was answered), so that a lost answer can be asked for again.
        self.last_claims: dict[int, tuple[str, object]] = {}
        # What a queue offers a VO, by the configuration; None until somebody says.
        self.offers: Callable[[str, QueueId], Known | None] | None = None
        self._tickets: dict[int, Ticket] = {}
        self._observed = 0
        # task queues that got jobs in this batch, for requests that wait
        self.filled: dict[int, int] = {}
        index = self.matcher.index
        for tq_id, key, waiting in queues_with_jobs(db):
            index.put(tq_id, key, waiting, now=now)
            if tq_id in self.held:
                index.block(tq_id, IMPOSSIBLE)

    def observes_shares(self) -> bool:
        """Is this a claim whose eligible groups are recorded? Each one with few groups, else a sample.

        Asking every group what it has costs more than the choice itself when there are many.
        """
        self._observed += 1
        return self._observed % SHARE_SAMPLE == 0 or self.matcher.index.group_numbers() <= FEW_GROUPS

    def queue_for(self, tx: Transaction, key: TaskQueueKey, requirements: str = "") -> int:
        """The task queue with this key, made if it is new. `requirements`: what its SubmitPool stands for."""
        known = self.matcher.index.find(key)
        if known is not None:
            return known
        stored = task_queues.queue_with_key(tx, key)
        tq_id = self.ids.task_queue() if stored is None else stored
        if stored is None:
            task_queues.insert_queue(tx, tq_id, key, requirements)
        self._put(tx, tq_id, key)
        return tq_id

    def _put(self, tx: Transaction, tq_id: int, key: TaskQueueKey) -> None:
        index = self.matcher.index
        index.put(tq_id, key, 0, now=tx.now)
        if tq_id in self.held:
            index.block(tq_id, IMPOSSIBLE)
        tx.undo.append(partial(index.remove, tq_id))

    def joined(self, tx: Transaction, tq_id: int, count: int) -> None:
        """`count` jobs became Waiting in a task queue."""
        index = self.matcher.index
        index.add_waiting(tq_id, count, now=tx.now)
        tx.undo.append(partial(index.take, tq_id, count, now=tx.now))
        self.set_waiting(tx, tq_id)
        self.filled[tq_id] = self.filled.get(tq_id, 0) + count

    def left(self, tx: Transaction, tq_id: int, count: int) -> None:
        """`count` waiting jobs left a task queue other than by a claim (killed, held)."""
        index = self.matcher.index
        index.take(tq_id, count, now=tx.now)
        tx.undo.append(partial(index.add_waiting, tq_id, count, now=tx.now))
        self.set_waiting(tx, tq_id)
        self.fronts.forget(tq_id)

    def set_waiting(self, tx: Transaction, tq_id: int) -> None:
        """Store the counter of a task queue as the index has it now."""
        waiting = self.matcher.index.waiting(tq_id)
        task_queues.set_waiting(tx, tq_id, waiting, as_of=self.claims.last_attempt)

    def write_claims(self, tx: Transaction, *, only_if_due: bool = False) -> None:
        """Write the counters and cursors that follow from claims (see `store.claim_log`)."""
        if only_if_due and not self.claims.is_due():
            return
        index = self.matcher.index
        queues = self.claims.queues()
        self.claims.write(tx, {tq_id: index.waiting(tq_id) for tq_id in queues if index.has(tq_id)})

    def count_was_wrong(self, tx: Transaction, tq_id: int) -> None:
        """A task queue counted jobs that do not exist: empty it in the index and say so."""
        index = self.matcher.index
        surplus = index.waiting(tq_id)
        log.error(
            "a task queue counted jobs that do not exist", extra={"task_queue": tq_id, "surplus": surplus}
        )
        if surplus:
            index.take(tq_id, surplus, now=tx.now)
            tx.undo.append(partial(index.add_waiting, tq_id, surplus, now=tx.now))
        self.set_waiting(tx, tq_id)

    def came_back(self, tx: Transaction, tq_id: int, job_id: int) -> None:
        """A row that had left is Waiting again."""
        self.known_again(tx, tq_id)
        task_queues.row_came_back(tx, tq_id, job_id)
        self.fronts.forget(tq_id)
        self.joined(tx, tq_id, 1)

    def known_again(self, tx: Transaction, tq_id: int) -> None:
        """Jobs come back to a task queue: put it into the index if it was forgotten there while it was empty.

        Its SubmitPool is made again if it was removed meanwhile; the next pass, which is asked for, finds its queues.
        """
        index = self.matcher.index
        if not index.has(tq_id):
            self._put(tx, tq_id, task_queues.key_of_queue(tx, tq_id))
        pool = index.key(tq_id).submit_pool
        if pool:
            submit_pools.store_pool_of_queue(tx, tq_id)
            if pool not in self.pools.known:
                self.serve(tx, {pool: 0})
                submit_pools.ask_for_pass(tx)

    def add_row(self, tx: Transaction, tq_id: int, job: WaitingJob) -> None:
        """A new row joined the end of a task queue."""
        self.fronts.joined(tq_id, job)
        tx.undo.append(partial(self.fronts.forget, tq_id))

    def order_stop(
        self, tx: Transaction, pilot_id: int, attempt: Attempt, *, attempt_id: int, reason: str
    ) -> None:
        """Tell a pilot, at its next words, to stop a live attempt. The order is stored: a restart does not lose it."""
        self._order(tx, pilot_id, attempt, reason)
        attempts.order_stop(tx, attempt_id, reason)

    def stopped(self, tx: Transaction, pilot_id: int, attempt: Attempt) -> str | None:
        """A live attempt has ended: the reason of the order to stop it, None if there was none."""
        orders = self.kill_orders.get(pilot_id)
        if not orders or attempt not in orders:
            return None
        reason = orders[attempt]
        self._order(tx, pilot_id, attempt, None)
        return reason

    def joined_pilot(self, tx: Transaction, pilot_id: int) -> None:
        """A pilot is there: from now on it may claim."""
        if pilot_id not in self.running:
            self.running.add(pilot_id)
            tx.undo.append(partial(self.running.discard, pilot_id))

    def fell_silent(self, tx: Transaction, pilot_id: int) -> None:
        """It was noted that a pilot has said nothing for long."""
        if pilot_id not in self.silent:
            self.silent.add(pilot_id)
            tx.undo.append(partial(self.silent.discard, pilot_id))

    def spoke(self, tx: Transaction, pilot_id: int) -> None:
        """A pilot is silent no more, or gone."""
        if pilot_id in self.silent:
            self.silent.discard(pilot_id)
            tx.undo.append(partial(self.silent.add, pilot_id))

    def forget_pilot(self, tx: Transaction, pilot_id: int) -> None:
        """A pilot has ended with all its attempts: it may claim no more, there is nothing to order or to repeat."""
        if pilot_id in self.running:
            self.running.discard(pilot_id)
            tx.undo.append(partial(self.running.add, pilot_id))
        self.spoke(tx, pilot_id)
        tx.afterwards.append(partial(self._forget_pilot, pilot_id))

    def _forget_pilot(self, pilot_id: int) -> None:
        self.kill_orders.pop(pilot_id, None)
        self.last_claims.pop(pilot_id, None)

    def _order(self, tx: Transaction, pilot_id: int, attempt: Attempt, reason: str | None) -> None:
        """Put an order, or take it away (None)."""
        orders = self.kill_orders.setdefault(pilot_id, {})
        tx.undo.append(partial(_put, orders, attempt, orders.get(attempt)))
        _put(orders, attempt, reason)

    def park(self, tx: Transaction, ticket: Ticket) -> None:
        """Let a request wait; a pilot has one at a time."""
        self._tickets[ticket.pilot_id] = ticket
        self.parked.park(ticket, ticket.request, ticket.count, ticket.since)
        tx.undo.append(partial(self._leave, ticket))

    def unpark(self, tx: Transaction, ticket: Ticket) -> bool:
        """Take a request off the waiting list; false if it waits no more."""
        if not self._leave(ticket):
            return False
        tx.undo.append(partial(self._enter, ticket))
        return True

    def woken(self, filled: Mapping[int, int]) -> Iterator[Ticket]:
        """The requests to serve for task queues that filled, longest waiting first (see `Parked.wake`)."""
        return cast("Iterator[Ticket]", self.parked.wake(filled))

    def unpark_pilot(self, tx: Transaction, pilot_id: int) -> None:
        """The pilot is gone, or asks anew: answer what it still waits for with nothing."""
        ticket = self._tickets.get(pilot_id)
        if ticket is not None and self.unpark(tx, ticket):
            tx.answers.append((ticket.answer, []))

    def ticket_of(self, pilot_id: int) -> Ticket | None:
        """What a pilot waits for, if it does."""
        ticket = self._tickets.get(pilot_id)
        if ticket is not None:
            ticket.look_up_pools()
        return ticket

    def present_anew(self, pilot_ids: Iterable[int]) -> list[Ticket]:
        """These pilots offer something else than before: those that wait do so by that; longest waiting first."""
        self.pools.version += 1  # claims on their way, too, look again at what they present
        found = [ticket for number in pilot_ids if (ticket := self._tickets.get(number)) is not None]
        for ticket in found:
            self._leave(ticket)
            ticket.look_up_pools()
            self._enter(ticket)
        return sorted(found, key=lambda ticket: ticket.since)

    def _enter(self, ticket: Ticket) -> None:
        self._tickets[ticket.pilot_id] = ticket
        self.parked.park(ticket, ticket.request, ticket.count, ticket.since)

    def _leave(self, ticket: Ticket) -> bool:
        if self._tickets.get(ticket.pilot_id) is not ticket:
            return False
        del self._tickets[ticket.pilot_id]
        self.parked.leave(ticket)
        return True

    # --- SubmitPools ---------------------------------------------------------------------------------------

    def name_queue(self, tx: Transaction, place: QueueId) -> int:
        """The bit of a queue in the masks of SubmitPools; a queue that has none is given one."""
        bit = self.pools.bit(place)
        if bit is None:
            bit = self.pools.name_queue(place)
            tx.undo.append(partial(self.pools.forget_queue, place))
            submit_pools.insert_bit(tx, bit, *place)
        return bit

    def forget_queue(self, tx: Transaction, place: QueueId, in_use: int) -> None:
        """A queue is configured no more. It keeps its bit as long as that is among those `in_use`."""
        bit = self.pools.bit(place)
        if bit is not None and not in_use >> bit & 1:
            self.pools.forget_queue(place)
            tx.undo.append(partial(self.pools.name_queue_again, place, bit))
            submit_pools.delete_bit(tx, bit)

    def passed(self, tx: Transaction, config: str) -> PassRow:
        """All SubmitPools were evaluated by this configuration."""
        tx.undo.append(partial(setattr, self, "last_pass", self.last_pass))
        self.last_pass = PassRow(self.last_pass.id + 1, tx.now, config)
        return self.last_pass

    def serve(self, tx: Transaction, masks: Mapping[str, int]) -> None:
        """These SubmitPools are served by these queues from now on; what waits on either side sees it at once."""
        pools = self.pools
        winners = {pool for pool, mask in masks.items() if mask & ~(pools.mask(pool) or 0)}
        tx.undo.append(partial(pools.put_back, pools.put(masks)))
        submit_pools.pools_changed(tx)
        if winners and self._tickets:
            # Jobs that wait count as new: requests that wait may be served by them now.
            for tq_id, key, waiting in self.matcher.index.queues():
                if waiting and key.submit_pool in winners:
                    self.filled[tq_id] = waiting

    def forget_pools(self, tx: Transaction, gone: Iterable[str]) -> None:
        """No job needs these SubmitPools any more."""
        tx.undo.append(partial(self.pools.put_back, self.pools.remove(gone)))
        submit_pools.pools_changed(tx)

    # --- task queues that nothing can run --------------------------------------------------------------------

    def hold(self, tx: Transaction, tq_id: int, reason: str) -> int:
        """No configured queue can run a task queue: its waiting jobs are Held. Returns how many were not before."""
        before = self.held.get(tq_id)
        if before is not None:
            self.held[tq_id] = reason
            tx.undo.append(partial(self.held.__setitem__, tq_id, before))
            task_queues.set_hold_reason(tx, tq_id, reason)
            return 0
        self.known_again(tx, tq_id)
        index = self.matcher.index
        index.block(tq_id, IMPOSSIBLE)
        self.held[tq_id] = reason
        tx.undo.append(partial(self._unhold, tq_id))
        task_queues.hold_queue(tx, self.ids.event(), tq_id, reason)
        return index.waiting(tq_id)

    def release(self, tx: Transaction, tq_id: int, reason: str) -> int:
        """A queue can run the task queue again; returns how many jobs wait in it now.

        Without a `reason` only because it was empty: if jobs have joined it since, the next pass judges it anew.
        """
        index = self.matcher.index
        jobs = index.waiting(tq_id)
        if tq_id not in self.held or (jobs and not reason):
            return 0
        tx.undo.append(partial(self._hold_again, tq_id, self.held.pop(tq_id)))
        task_queues.release_queue(tx, self.ids.event() if jobs else None, tq_id, reason)
        if index.has(tq_id):
            index.unblock(tq_id, IMPOSSIBLE)
        if jobs:
            self.filled[tq_id] = self.filled.get(tq_id, 0) + jobs
        return jobs

    def _unhold(self, tq_id: int) -> None:
        self.held.pop(tq_id, None)
        if self.matcher.index.has(tq_id):
            self.matcher.index.unblock(tq_id, IMPOSSIBLE)

    def _hold_again(self, tq_id: int, reason: str) -> None:
        self.held[tq_id] = reason
        if self.matcher.index.has(tq_id):
            self.matcher.index.block(tq_id, IMPOSSIBLE)


def _put(orders: dict[Attempt, str], attempt: Attempt, reason: str | None) -> None:
    if reason is None:
        orders.pop(attempt, None)
    else:
        orders[attempt] = reason
