"""Cancelling waiting pilots that the director wants no more, on a thread of its own: batch systems take their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from lodesman.decide.director.iteration import Excess
from lodesman.server.engines.backend import CancelOutcome
from lodesman.server.loops.census import GONE, UNKNOWN_TIMES, BackendWatch, cancel
from lodesman.server.loops.failed_starts import NoteStart
from lodesman.server.store import Reader
from lodesman.server.store.read import pilots as read
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.pilots import NOT_NEEDED
from lodesman.wire.service import Ordered, PilotEnd, Unbound
from lodesman.wire.vocabulary import PilotState, StartFault

_MOST_LEAVING: Final = 200
_TOO_OLD: Final = "it waited longer than maxPilotWaitingHours"


@dataclass(slots=True)
class Cancelling:
    """Carries out what an iteration says of pilots: surplus ones, those that waited too long, those whose queue was closed.

    `watches` may be swapped. `note` learns of those that waited too long.
    """

    db: Reader
    post: Post
    note: NoteStart
    watches: Mapping[str, BackendWatch]
    _orders: deque[Excess] = field(init=False, default_factory=lambda: deque(maxlen=1))
    _unknown: dict[int, int] = field(init=False, default_factory=dict)

    def order(self, excess: Excess) -> None:
        """Take in an iteration. One before it that was not carried out is dropped: this one names its pilots again."""
        self._orders.append(excess)

    def tick(self) -> int:
        """Carry out the last iteration, once; returns how many pilots have ended. Raises LodesmanError.

        One that waited too long, or whose queue was closed, and that no batch system knows, asked several times, has ended.
        What waits too long counts against its queue, so that not all that replaces it waits there too. One that runs by now
        is drained: that it ends before it joins says nothing of its queue.
        """
        if not self._orders:
            return 0
        excess, before, self._unknown = self._orders.pop(), self._unknown, {}
        leaving = read.drained_waiting_pilots(self.db, _MOST_LEAVING)
        numbers, ended, ordered = [*excess.cancel, *leaving], 0, dict[str, list[int]]()
        backends = {name: watch.backend for name, watch in self.watches.items()}
        outcomes = cancel(backends, list(read.waiting_pilots(self.db, numbers)))
        # One that has joined while the batch systems were asked has not ended.
        for pilot in read.waiting_pilots(self.db, numbers):
            outcome = outcomes.get(pilot.stamp, CancelOutcome.FAILED)
            too_old = pilot.id in excess.too_old
            if (too_old or pilot.id in leaving) and outcome is CancelOutcome.UNKNOWN:
                self._unknown[pilot.id] = before.get(pilot.id, 0) + 1
            reason = _TOO_OLD if too_old else leaving.get(pilot.id, NOT_NEEDED)
            is_new = outcome is CancelOutcome.ORDERED and pilot.id not in leaving
            if is_new:
                ordered.setdefault(reason, []).append(pilot.id)
            is_gone = outcome in GONE or self._unknown.get(pilot.id, 0) >= UNKNOWN_TIMES
            if is_gone:
                self.post(inner_calls.PILOT_ENDED, PilotEnd(pilot.id, PilotState.ABORTED, reason))
                ended += 1
            if too_old and (is_gone or (is_new and pilot.id not in excess.bound)):
                self.note(pilot.queue_id, StartFault.WAITED, reason)
        self._unbind(excess.bound)
        for reason, pilots in ordered.items():
            self.post(inner_calls.PILOTS_ORDERED, Ordered(pilots, reason))
        return ended

    def _unbind(self, bound: Collection[int]) -> None:
        """The jobs of those that waited too long and may still be there wait again; they leave if they ever start."""
        left = [
            one for one in read.pilots_by_id(self.db, bound) if one.ended_at is None and one.joined_at is None
        ]
        if left:
            self.post(inner_calls.UNBIND, Unbound([one.id for one in left], _TOO_OLD))
        for pilot in left:
            self.note(pilot.submitted_to, StartFault.WAITED, _TOO_OLD)
