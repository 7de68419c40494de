"""What the writer's thread keeps in memory: the index, the fronts, the parked requests.

Everything here is derived from the database and is undone with a batch that fails (DESIGN 3.1).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, cast

import apsw

from lodesman.matching import Matcher, Parked, ResourceRequest, TaskQueueKey, key_to_json
from lodesman.services.sessions import load_pools
from lodesman.store import task_queues
from lodesman.store.claim_log import ClaimLog, replay
from lodesman.store.engine import only_row
from lodesman.store.fronts import Candidate, Fronts
from lodesman.store.ids import Ids
from lodesman.store.journal import Transaction

log = logging.getLogger(__name__)

FEW_GROUPS = 4
SHARE_SAMPLE = 64


class Ticket(Hashable, Protocol):
    """A parked request: who asks, for what, how many, since when, and how to answer."""

    pilot_id: int
    request: ResourceRequest
    count: int
    since: float
    answer: Callable[[Any], None]

    def claim(self, tx: Transaction) -> list[Any]:
        """Claim what fits now."""

    def refresh(self) -> bool:
        """Take the request anew (a SubmitPool was added); says whether it changed."""


class Live:
    """Memory of the writer. Every method that changes it takes the transaction and registers its inverse."""

    def __init__(self, db: apsw.Connection, *, rng: random.Random, now: float) -> None:
        replay(db)
        self.ids = Ids(db)
        self.claims = ClaimLog(only_row(db, "SELECT claims_at FROM leadership")[0])
        self.matcher = Matcher()
        self.fronts = Fronts(self.claims)
        self.pools = load_pools(db)
        self.parked = Parked(self.matcher.index)
        self.rng = rng
        # (job, attempt) -> reason: live attempts whose payload the pilot must stop.
        self.kill_orders: dict[int, dict[tuple[int, int], str]] = {}
        # pilot -> (claim token, what it was answered), so that a lost answer can be asked for again.
        self.last_claims: dict[int, tuple[str, object]] = {}
        self._tickets: dict[int, Ticket] = {}
        self._observed = 0
        # task queues that got jobs in this batch, for requests that wait
        self.filled: dict[int, int] = {}
        for tq_id, key, waiting in task_queues.load_queues(db):
            self.matcher.index.put(tq_id, key, waiting, now=now)

    def observes_shares(self) -> bool:
        """Is this a claim whose eligible groups are recorded? Each one with few groups, else a sample.

        Asking every group what it has costs more than the choice itself when there are many.
        """
        self._observed += 1
        return self._observed % SHARE_SAMPLE == 0 or self.matcher.index.group_numbers() <= FEW_GROUPS

    def queue_for(self, tx: Transaction, key: TaskQueueKey) -> int:
        """The task queue with this key, made if it is new."""
        index = self.matcher.index
        known = index.find(key)
        if known is not None:
            return known
        stored = task_queues.find_queue(tx, key_to_json(key))
        tq_id = self.ids.task_queue() if stored is None else stored
        if stored is None:
            task_queues.insert_queue(tx, tq_id, key)
        index.put(tq_id, key, 0, now=tx.now)
        tx.undo.append(partial(index.remove, tq_id))
        return tq_id

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
        """Put a task queue back into the index if it was forgotten there while it was empty."""
        index = self.matcher.index
        if not index.has(tq_id):
            index.put(tq_id, task_queues.read_key(tx, tq_id), 0, now=tx.now)
            tx.undo.append(partial(index.remove, tq_id))

    def add_row(self, tx: Transaction, tq_id: int, candidate: Candidate) -> None:
        """A new row joined the end of a task queue."""
        self.fronts.joined(tq_id, candidate)
        tx.undo.append(partial(self.fronts.forget, tq_id))

    def order_kills(
        self, tx: Transaction, pilot_id: int, attempts: Iterable[tuple[int, int]], why: str
    ) -> None:
        """Tell a pilot, at its next word, to stop these attempts."""
        orders = self.kill_orders.setdefault(pilot_id, {})
        for attempt in attempts:
            orders[attempt] = why
            tx.undo.append(partial(orders.pop, attempt, None))

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

    def _enter(self, ticket: Ticket) -> None:
        self._tickets[ticket.pilot_id] = ticket
        self.parked.park(ticket, ticket.request, ticket.count, ticket.since)

    def _leave(self, ticket: Ticket) -> bool:
        if self._tickets.get(ticket.pilot_id) is not ticket:
            return False
        del self._tickets[ticket.pilot_id]
        self.parked.leave(ticket)
        return True

    def add_pool(self, pool: str, queues: list[tuple[str, str, str]]) -> None:
        """A SubmitPool is served from now on; requests that wait in its queues see it at once."""
        self.pools.add(pool, queues)
        self._refresh_tickets()

    def replace_pools(self, pools: Mapping[str, list[tuple[str, str, str]]]) -> None:
        """SubmitPools are served by other queues now. Pools that are not named keep theirs.

        Their jobs that wait count as new: requests that wait may be served by them now.
        """
        self.pools.replace(pools)
        self._refresh_tickets()
        for tq_id, key, waiting in self.matcher.index.queues():
            if waiting and key.submit_pool in pools:
                self.filled[tq_id] = waiting

    def _refresh_tickets(self) -> None:
        for ticket in list(self._tickets.values()):
            if ticket.refresh():
                self.parked.leave(ticket)
                self.parked.park(ticket, ticket.request, ticket.count, ticket.since)
