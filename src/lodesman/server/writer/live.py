"""What the writer's thread keeps in memory: task queues, SubmitPools, pilots, parked claims.

All is derived from the database. Every method that changes it registers its inverse with the transaction.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec.structs import asdict

from lodesman.decide.masks.bits import numbered
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.resources import QueueId
from lodesman.server.store import Reader, Writer, submit_pools
from lodesman.server.store.claim_log import replay
from lodesman.server.store.director import closings
from lodesman.server.store.ids import Ids
from lodesman.server.store.read.pilots import (
    bound_attempts,
    joined_pilots,
    pilots_with_stalled_jobs,
    stop_orders,
)
from lodesman.server.store.submit_pools import PassRow, last_pass
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.writer.bookings import (
    AHEAD,
    BEYOND,
    MOST_HANDED_IN,
    Attempt,
    Bookings,
    Hold,
    fitting_attempts,
)
from lodesman.server.writer.dependents import Dependents
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import ConfiguredOffer, HostLoads, known_pilots
from lodesman.server.writer.waiting import TaskQueues
from lodesman.wire.accounts import LimitSection
from lodesman.wire.service import RepairCounts
from lodesman.wire.vocabulary import Waking

# A pilot has at most as many jobs ahead as it ended in this time: those of a second, and those on their way.
AHEAD_SECONDS: Final = 1.5


class _LivePools(PoolMap):
    last_pass: PassRow

    def number(self, tx: Transaction, queues: Iterable[QueueId]) -> None:
        before, after = self.bits, numbered(queues, self.bits)
        if len(after) > len(before):
            tx.undo.append(partial(setattr, self, "bits", before))
            self.bits = after
            submit_pools.insert_bits(tx, {queue: after[queue] for queue in after.keys() - before})

    def forget_pools(self, tx: Transaction, gone: Iterable[str]) -> None:
        tx.undo.append(partial(self.put, self.put(dict.fromkeys(gone))))
        submit_pools.pools_changed(tx)

    def passed(self, tx: Transaction, config: str) -> PassRow:
        tx.undo.append(partial(setattr, self, "last_pass", self.last_pass))
        self.last_pass = PassRow(self.last_pass.id + 1, tx.now, config)
        return self.last_pass


class _LivePilots:
    def __init__(self, db: Reader) -> None:
        # Only these are given jobs.
        self.running = {pilot.id for pilot in joined_pilots(db)}
        # Those of them whose silence was noted.
        self.silent = pilots_with_stalled_jobs(db)
        # Pilot -> live attempt whose payload it must stop -> reason.
        self.stop_orders: dict[int, dict[Attempt, str]] = {}
        # Pilot -> (claim token, answer): a lost answer can be asked for again.
        self.last_claims: dict[int, tuple[str, list[ClaimedAttempt]]] = {}
        # What a queue offers a VO on a host (None: on any) by the configuration; None at the start.
        self.offers: Callable[[str, QueueId, str | None], ConfiguredOffer | None] | None = None
        # Pilot -> live attempt -> what it holds.
        self.held: dict[int, dict[Attempt, Hold]] = {}
        # Pilots that hold less since this batch.
        self.freed: set[int] = set()
        # By pilot: when attempts ended, and how many.
        self._ended: dict[int, deque[tuple[float, int]]] = {}
        # Pilot -> the live attempt that waits for it alone (`writer.bound`).
        self.bound = bound_attempts(db)
        for pilot, job, number, reason in stop_orders(db):
            self.stop_orders.setdefault(pilot, {})[job, number] = reason

    def order_stop(
        self, tx: Transaction, pilot_id: int, attempt: Attempt, *, attempt_id: int, reason: str
    ) -> None:
        tx.put(self.stop_orders.setdefault(pilot_id, {}), attempt, reason)
        attempts.order_stop(tx, attempt_id, reason)

    def hold(
        self, tx: Transaction, pilot_id: int, attempt: Attempt, key: TaskQueueKey, place: RunPlace, *,
        ahead: bool = False,
    ) -> None:  # fmt: skip
        """`ahead`: to run later."""
        held = self.held.get(pilot_id)
        if held is None:
            held = self.held[pilot_id] = {}
        held[attempt] = (AHEAD if ahead else key.cores, key.memory_mb, key, place)
        tx.undo.append(partial(held.pop, attempt, None))

    def ahead_of(self, pilot_id: int) -> int:
        """How many attempts it has ahead, also those beyond its size. For any thread."""
        return sum(hold[0] < 0 for hold in list(self.held.get(pilot_id, {}).values()))

    def runs_beyond(self, pilot_id: int) -> bool:
        """Whether it reports more than fits. For any thread."""
        return any(hold[0] == BEYOND for hold in list(self.held.get(pilot_id, {}).values()))

    def note_ended(self, tx: Transaction, pilot_id: int, count: int) -> None:
        tx.afterwards.append(partial(self._count_ended, pilot_id, tx.now, count))

    def _count_ended(self, pilot_id: int, at: float, count: int) -> None:
        ends = self._ended.setdefault(pilot_id, deque())
        ends.append((at, count))
        self.ended_lately(pilot_id, at)

    def ended_lately(self, pilot_id: int, now: float) -> int:
        ends = self._ended.get(pilot_id, deque())
        while ends and not 0 <= now - ends[0][0] <= AHEAD_SECONDS:
            ends.popleft()
        return sum(count for _, count in ends)

    def started(self, tx: Transaction, pilot_id: int, attempt: Attempt) -> None:
        """The pilot reports a payload as running; `fit` says whether there is room."""
        held = self.held.get(pilot_id, {})
        if attempt in held and held[attempt][0] == AHEAD:
            tx.put(held, attempt, (BEYOND, *held[attempt][1:]))

    def fit(self, tx: Transaction, pilot_id: int, cores: int, memory_mb: float) -> None:
        """What a pilot of that size (0 MB: unknown) runs holds what it asked for, if it fits. Else it counts as
        ahead: the end of another may be on its way.
        """
        held = self.held.get(pilot_id, {})
        for attempt, hold in fitting_attempts(held, cores, memory_mb).items():
            tx.put(held, attempt, hold)

    def handed_in(self, tx: Transaction, pilot_id: int, attempt: Attempt) -> None:
        held = self.held.get(pilot_id, {})
        # One that nobody said was started is handed in only as one of few.
        is_late = attempt in held and held[attempt][0] == AHEAD
        if is_late and sum(hold[0] == 0 for hold in held.values()) >= MOST_HANDED_IN:
            return
        if attempt in held:
            tx.put(held, attempt, (0, 0, *held[attempt][2:]))
            self.freed.add(pilot_id)

    def stopped(self, tx: Transaction, pilot_id: int, attempt: Attempt) -> str | None:
        """Returns the reason of an order to stop the ended attempt."""
        held = self.held.get(pilot_id)
        if held:
            tx.drop(held, attempt)
            self.freed.add(pilot_id)
        if self.bound.get(pilot_id) == attempt:
            tx.drop(self.bound, pilot_id)
        orders = self.stop_orders.get(pilot_id)
        return tx.drop(orders, attempt) if orders else None

    def ended(self, tx: Transaction, pilot_id: int) -> None:
        tx.discard(self.running, pilot_id)
        tx.discard(self.silent, pilot_id)
        tx.afterwards.append(partial(self._forget, pilot_id))

    def _forget(self, pilot_id: int) -> None:
        self.stop_orders.pop(pilot_id, None)
        self.last_claims.pop(pilot_id, None)
        self.held.pop(pilot_id, None)
        self._ended.pop(pilot_id, None)


class WriterState:
    """The writer's memory."""

    def __init__(
        self, db: Writer, *, rng: random.Random, now: float, packs: bool = True,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`packs`: into pilots that run several jobs. `ticks`: seconds of a clock that is never set."""
        replay(db)
        self.rng = rng
        self.limits = LimitSection()
        # Tells the background process, after the commit, of what may bring work.
        self.announce: Callable[[Waking], None] = lambda _: None
        # Begins another batch, if this one leaves something to do.
        self.go_on: Callable[[object], None] = lambda _: None
        self.ids = Ids(db)
        self.pools = _LivePools.load(db)
        self.pools.last_pass = last_pass(db)
        self.pilots = _LivePilots(db)
        # Claims of this batch for jobs ahead, served once all others have what they can run now.
        self.ahead: list[Callable[[Transaction], None]] = []
        self.queues = TaskQueues(db, self.ids, self.pools, now=now)
        self.queues.packs = packs
        self.queues.index.delays.ticks = ticks
        self.parked = self.queues.parked
        self.hosts = HostLoads(row.node for row in known_pilots(db))
        self.mask = closings(db)
        self.order = Dependents(db)
        self.bookings = Bookings(self.queues.index, self.pilots.held)
        # Repairs since the start, by kind.
        self.repaired: Counter[str] = Counter()
        self.bookings.read(db)

    def note_repaired(self, tx: Transaction, repaired: RepairCounts) -> None:
        """Count repairs, once committed."""
        counts = asdict(repaired)
        if any(counts.values()):
            tx.afterwards.append(partial(self.repaired.update, counts))

    def attempts(self, requested: int) -> int:
        """How many attempts a job may have that asks for this number."""
        return min(requested, self.limits.attempts or requested)
