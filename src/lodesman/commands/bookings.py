"""What live attempts take of the limits: booked by the claim, given back when the attempt ends.

No counter is stored: at the start, and when rules change, all of it follows from the live attempts. Other rules are prepared
in portions, so that the writer is not held for long, and replace those in use when nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lodesman.matching.delays import NO_DELAYS, DelayRules
from lodesman.matching.index import Index
from lodesman.matching.limit_rules import RuleBook, RunPlace
from lodesman.matching.limits import RunLimits
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.store.journal import Transaction

# Job and number of the attempt.
_Attempt = tuple[int, int]
# Places, task queues and attempts in one portion.
PORTION: Final = 50


@dataclass(slots=True, eq=False)
class _Next:
    """Rules that are prepared: the places and task queues that they do not know yet, the attempts whose booking may be
    another than `taken` has. Places come first: how they divide the task queues is then found one by one. `delays`: the
    limits in time among them.
    """

    limits: RunLimits
    places: list[RunPlace]
    queues: list[int]
    stale: set[_Attempt]
    delays: DelayRules
    taken: dict[_Attempt, tuple[TaskQueueKey, RunPlace]] = field(default_factory=dict)


class Bookings:
    """The task queue and the place of each live attempt."""

    def __init__(self, index: Index, live: Iterable[tuple[_Attempt, TaskQueueKey, RunPlace]]) -> None:
        self._index = index
        self._booked = {attempt: (key, place) for attempt, key, place in live}
        self._next: _Next | None = None

    # --- rules -----------------------------------------------------------------------------------------------

    def prepare(self, tx: Transaction | None, book: RuleBook | None, delays: DelayRules = NO_DELAYS) -> None:
        """Limit by these rules as soon as `go_on` is through. What runs goes on, also beyond a limit that is lower then."""
        if tx is not None:
            tx.undo.append(partial(self._set_next, self._next))
        queues = [tq_id for tq_id, _, _ in self._index.queues()]
        places = {place for _, place in self._booked.values()}
        self._set_next(_Next(RunLimits(book), [*places], queues, set(self._booked), delays))

    def go_on(self, tx: Transaction | None, portion: int = PORTION) -> bool:
        """Prepare a portion more; true if the rules that were given last are in use."""
        found = self._next
        if found is None:
            return True
        for _ in range(portion):
            if found.places:
                found.limits.spot(found.places.pop())
            elif found.queues:
                self._index.prepare(found.limits, found.queues.pop())
            elif found.stale:
                self._catch_up(found, found.stale.pop())
            else:
                break
        if found.places or found.queues or found.stale:
            return False
        if tx is not None:
            tx.undo.append(partial(self._go_back, found, self._index.limits, self._index.delays.rules))
        self._set_next(None)
        self._index.limits, self._index.delays.rules = found.limits, found.delays
        return True

    def _catch_up(self, found: _Next, attempt: _Attempt) -> None:
        taken, now = found.taken.pop(attempt, None), self._booked.get(attempt)
        if taken is not None:
            found.limits.give(*taken)
        if now is not None:
            found.limits.take(*now)
            found.taken[attempt] = now

    def _set_next(self, found: _Next | None) -> None:
        self._next = found
        self._index.next_limits = None if found is None else found.limits

    def _go_back(self, found: _Next, before: RunLimits, delays: DelayRules = NO_DELAYS) -> None:
        """Undo a replacement; nothing is lost of what is prepared."""
        self._index.limits, self._index.delays.rules = before, delays
        found.limits.are_new = True
        self._set_next(found)

    # --- attempts --------------------------------------------------------------------------------------------

    def claimed(self, tx: Transaction, attempt: _Attempt, key: TaskQueueKey, place: RunPlace) -> None:
        """An attempt lives from now on; the matcher has booked it."""
        self._changes(tx, attempt)
        tx.put(self._booked, attempt, (key, place))

    def not_claimed(self, tx: Transaction, key: TaskQueueKey, place: RunPlace) -> None:
        """A job that the matcher has booked is not there."""
        self._index.starts_not(key, place)
        tx.undo.append(partial(self._index.starts, key, place))

    def ended(self, tx: Transaction, attempt: _Attempt) -> None:
        """An attempt lives no more."""
        self._changes(tx, attempt)
        found = tx.drop(self._booked, attempt)
        if found is not None:
            self._index.limits.give(*found)
            tx.undo.append(partial(self._take, *found))

    def _take(self, key: TaskQueueKey, place: RunPlace) -> None:
        self._index.limits.take(key, place)

    def _changes(self, tx: Transaction, attempt: _Attempt) -> None:
        if self._next is not None:
            self._is_stale(attempt)
            tx.undo.append(partial(self._is_stale, attempt))

    def _is_stale(self, attempt: _Attempt) -> None:
        if self._next is not None:
            self._next.stale.add(attempt)
