"""The breakers of CE queues: their rows, and the answers that move them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lodesman.decide.director import limits
from lodesman.decide.director.hosts import ON_SHUT_HOST
from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.options import BreakerRules
from lodesman.server.loops.left_out import Item, StepPass
from lodesman.server.store import Reader
from lodesman.server.store.director import breaker_orders, breakers
from lodesman.server.store.hosts import host_records
from lodesman.wire import inner_calls
from lodesman.wire.call import Post, encode
from lodesman.wire.nodes import BreakerOrder, QueueId
from lodesman.wire.service import StoredBreaker
from lodesman.wire.vocabulary import BreakerState

Breakers = Mapping[QueueId, Breaker]

_FRESH: Final = Breaker()
# In the place of what is stored and cannot be read: it equals no other.
_DAMAGED: Final = Breaker(failures=-1)


@dataclass(slots=True)
class BreakerRecord:
    """What is stored of breakers, and the answers that move them next."""

    db: Reader
    orders: Mapping[QueueId, BreakerOrder] = field(init=False, default_factory=dict)  # of administrators
    _stored: Breakers | None = field(init=False, default=None)
    _states: dict[QueueId, BreakerState] = field(init=False, default_factory=dict)  # as read last
    _answers: deque[tuple[QueueId, bool, str, float]] = field(init=False, default_factory=deque)

    def read_rows(self, current: Breakers, left: StepPass) -> dict[QueueId, Breaker]:
        """The breakers with what administrators did since. One whose row is damaged begins anew."""
        damaged: dict[QueueId, Exception] = {}
        stored = breakers(self.db, damaged)
        for queue, fault in damaged.items():
            left.leave_out(Item("breaker", queue), fault)
        stored |= dict.fromkeys(damaged, _DAMAGED)
        if self._stored is None:
            current = {**stored, **current}
        # What is not stored any more was taken out by an administrator: it begins anew.
        gone = {queue for queue, breaker in (self._stored or {}).items() if breaker != _FRESH} - stored.keys()
        self._stored, self.orders = stored, breaker_orders(self.db)
        gone |= {queue for queue, order in self.orders.items() if order.state == "closed"}
        gone |= find_freed_queues(self.db, current)
        current = {
            queue: breaker
            for queue, breaker in current.items()
            if queue not in gone and breaker is not _DAMAGED
        }
        self._states = {queue: breaker.state for queue, breaker in current.items()}
        return current

    def note_outcome(self, queue_id: QueueId, *, accepted: bool, reason: str, now: float) -> None:
        """Keep an answer to a submission. Any thread may call this."""
        self._answers.append((queue_id, accepted, reason, now))

    def apply_answers(self, current: dict[QueueId, Breaker], rules: BreakerRules) -> None:
        """Let answers move the breakers of their queues."""
        while self._answers:
            queue_id, accepted, reason, now = self._answers.popleft()
            breaker = current.get(queue_id, _FRESH)
            if accepted:
                current[queue_id] = limits.note_success(breaker)
            else:
                current[queue_id] = limits.note_failure(breaker, now=now, rules=rules, reason=reason)

    def store_changes(self, current: Breakers, post: Post) -> None:
        """Store what changed; the audit trail gets which opened or closed."""
        new, before = dict(current), self._stored or {}
        changed = [
            StoredBreaker(
                *queue, "" if (breaker := new.get(queue, _FRESH)) == _FRESH else encode(breaker).decode()
            )
            for queue in sorted(new.keys() | before.keys())
            if new.get(queue, _FRESH) != before.get(queue, _FRESH)
        ]
        if changed:
            post(inner_calls.BREAKERS, changed)
            self._stored = new
        if notes := limits.breaker_notes(self._states, new):
            post(inner_calls.NOTE, notes)


def find_freed_queues(db: Reader, current: Breakers) -> set[QueueId]:
    """Queues that only shut hosts spoke against, at sites without any now."""
    against = {queue for queue, breaker in current.items() if breaker.reason == ON_SHUT_HOST}
    shut = {host.site for host, record in host_records(db).items() if record.shut} if against else set()
    return {queue for queue in against if queue.site not in shut}
