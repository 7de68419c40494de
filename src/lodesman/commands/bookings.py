"""What live attempts take of the limits: booked by the claim, given back when the attempt ends.

No counter is stored: at the start, and when rules change, all of it follows from the live attempts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lodesman.matching.index import Index
from lodesman.matching.limit_rules import RuleBook, RunPlace
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.store.journal import Transaction

# Job and number of the attempt.
_Attempt = tuple[int, int]


class Bookings:
    """The task queue and the place of each live attempt."""

    def __init__(self, index: Index, live: Iterable[tuple[_Attempt, TaskQueueKey, RunPlace]]) -> None:
        self._index = index
        self._limits = index.limits
        self._booked = {attempt: (key, place) for attempt, key, place in live}

    def use_rules(self, book: RuleBook | None) -> None:
        """Limit by these rules from now on. What runs goes on, also beyond a limit that is lower than before."""
        self._index.set_rules(book)
        for key, place in self._booked.values():
            self._limits.take(key, place)

    def claimed(self, tx: Transaction, attempt: _Attempt, key: TaskQueueKey, place: RunPlace) -> None:
        """An attempt lives from now on; the matcher has booked it."""
        tx.put(self._booked, attempt, (key, place))

    def not_claimed(self, tx: Transaction, key: TaskQueueKey, place: RunPlace) -> None:
        """A job that the matcher has booked is not there."""
        self._limits.give(key, place)
        tx.undo.append(partial(self._limits.take, key, place))

    def ended(self, tx: Transaction, attempt: _Attempt) -> None:
        """An attempt lives no more."""
        found = tx.drop(self._booked, attempt)
        if found is not None:
            self.not_claimed(tx, *found)
