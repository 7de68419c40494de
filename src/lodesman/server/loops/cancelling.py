"""Cancelling pilots."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Protocol

from lodesman.base.errors import LodesmanError
from lodesman.decide.director.iteration import Excess
from lodesman.server.engines.backend import Backend, CancelOutcome
from lodesman.server.loops.failed_starts import NoteStart
from lodesman.server.store import Reader
from lodesman.server.store.read import pilots as read
from lodesman.server.store.read.pilots import NativePilot, live_natives, lost_pilots
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.pilots import NOT_NEEDED
from lodesman.wire.service import LeaveOrder, PilotEnd, UnbindOrder
from lodesman.wire.vocabulary import PilotState, StartFault

log = logging.getLogger(__name__)

_MOST_LEAVING: Final = 200
_TOO_OLD: Final = "it waited longer than maxPilotWaitingHours"
_READ_SECONDS = 5.0
GIVEN_UP_SECONDS = 7 * 86_400.0  # then an administrator has to end the pilot
_AGAIN_SECONDS = 60.0  # longer than the grace of the local backend, where a second order kills at once
_LONGEST_SECONDS = 3_600.0
_MOST_AT_ONCE = 200
_END_POLL_SECONDS = 1.0
UNKNOWN_TIMES = 3  # in a row; then a batch system has forgotten a pilot: unknown once is not gone
GONE = frozenset({CancelOutcome.REMOVED, CancelOutcome.ENDED})


class HasBackend(Protocol):
    """What has a batch system."""

    backend: Backend  # may be swapped


def cancel(backends: Mapping[str, Backend], pilots: Iterable[NativePilot]) -> dict[str, CancelOutcome]:
    """Stamp -> outcome. FAILED: no answer, or no such batch system."""
    outcomes: dict[str, CancelOutcome] = {}
    by_backend: dict[str, list[NativePilot]] = {}
    for pilot in pilots:
        outcomes[pilot.stamp] = CancelOutcome.FAILED
        by_backend.setdefault(pilot.backend, []).append(pilot)
    for name, natives in by_backend.items():
        if name not in backends:
            continue
        try:
            outcomes |= _cancel(backends[name], natives)
        except LodesmanError as fault:
            log.warning("pilots could not be cancelled: %s", fault, extra={"backend": name})
    return outcomes


def _cancel(backend: Backend, pilots: Sequence[NativePilot]) -> dict[str, CancelOutcome]:
    """The census finds pilots without a stored reference."""
    census = {} if all(pilot.native_id for pilot in pilots) else backend.census()
    native_ids = {pilot.stamp: pilot.native_id or census.get(pilot.stamp, "") for pilot in pilots}
    answers = backend.cancel({stamp: native_id for stamp, native_id in native_ids.items() if native_id})
    unknown = {stamp: CancelOutcome.UNKNOWN for stamp, native_id in native_ids.items() if not native_id}
    return {stamp: answers.get(stamp, CancelOutcome.FAILED) for stamp in native_ids} | unknown


def end_all(db: Reader, backends: Mapping[str, Backend], *, seconds: float) -> list[str]:
    """End all pilots of these batch systems, in `seconds` at most; returns stamps of those that are left or
    unknown.
    """
    left = {native.stamp: native for native in live_natives(db) if native.backend in backends}
    deadline, pause, unknown = time.monotonic() + seconds, Event(), Counter[str]()
    while left:
        ordered = cancel(backends, left.values())
        left = {stamp: native for stamp, native in left.items() if ordered[stamp] not in GONE}
        unknown = Counter(
            {stamp: unknown[stamp] + 1 for stamp in left if ordered[stamp] is CancelOutcome.UNKNOWN}
        )
        waits = any(native.native_id or unknown[stamp] < UNKNOWN_TIMES for stamp, native in left.items())
        if not waits or time.monotonic() >= deadline:
            break
        pause.wait(_END_POLL_SECONDS)
    return sorted(left)


@dataclass(slots=True)
class Canceller:
    """Carries out what an iteration says of pilots to end."""

    db: Reader
    post: Post
    note: NoteStart  # learns of pilots that waited too long
    watches: Mapping[str, HasBackend]  # may be swapped
    _orders: deque[Excess] = field(init=False, default_factory=lambda: deque(maxlen=1))
    _unknown: dict[int, int] = field(init=False, default_factory=dict)

    def order(self, excess: Excess) -> None:
        """Take in an iteration; it names again the pilots of one that was not carried out."""
        self._orders.append(excess)

    def tick(self) -> int:
        """Carry out the last iteration, once; returns how many pilots have ended. Raises LodesmanError.

        A pilot has ended if it is unknown several times in a row. Age counts against the queue, so that not every
        successor waits there. What runs by now is drained; its end says nothing of its queue.
        """
        if not self._orders:
            return 0
        excess, before, self._unknown = self._orders.pop(), self._unknown, {}
        leaving = read.drained_waiting_pilots(self.db, _MOST_LEAVING)
        numbers, ended = [*excess.cancel, *leaving], 0
        waiting = list(read.waiting_pilots(self.db, numbers))
        # Stored before the batch systems are asked: who sees one of them end knows why.
        self._store_orders([pilot for pilot in waiting if pilot.id not in leaving], excess)
        backends = {name: watch.backend for name, watch in self.watches.items()}
        outcomes = cancel(backends, waiting)
        # One that has joined while the batch systems were asked has not ended.
        for pilot in read.waiting_pilots(self.db, numbers):
            outcome = outcomes.get(pilot.stamp, CancelOutcome.FAILED)
            too_old = pilot.id in excess.too_old
            if (too_old or pilot.id in leaving) and outcome is CancelOutcome.UNKNOWN:
                self._unknown[pilot.id] = before.get(pilot.id, 0) + 1
            reason = _TOO_OLD if too_old else leaving.get(pilot.id, NOT_NEEDED)
            is_gone = outcome in GONE or self._unknown.get(pilot.id, 0) >= UNKNOWN_TIMES
            if is_gone:
                self.post(inner_calls.PILOT_ENDED, PilotEnd(pilot.id, PilotState.ABORTED, reason))
                ended += 1
            if is_gone and too_old and pilot.id in excess.bound:
                self.note(pilot.queue_id, StartFault.WAITED, reason)
        self._unbind(excess.bound)
        return ended

    def _store_orders(self, pilots: Iterable[NativePilot], excess: Excess) -> None:
        ordered: dict[str, list[int]] = {}
        for pilot in pilots:
            ordered.setdefault(_TOO_OLD if pilot.id in excess.too_old else NOT_NEEDED, []).append(pilot.id)
            if pilot.id in excess.too_old - excess.bound:
                self.note(pilot.queue_id, StartFault.WAITED, _TOO_OLD)
        for reason, numbers in ordered.items():
            self.post(inner_calls.PILOTS_ORDERED, LeaveOrder(numbers, reason))

    def _unbind(self, bound: Collection[int]) -> None:
        """A bound pilot leaves if it ever starts."""
        left = [
            pilot
            for pilot in read.pilots_by_id(self.db, bound)
            if pilot.ended_at is None and pilot.joined_at is None
        ]
        if left:
            self.post(inner_calls.UNBIND, UnbindOrder([pilot.id for pilot in left], _TOO_OLD))
        for pilot in left:
            self.note(pilot.submitted_to, StartFault.WAITED, _TOO_OLD)


@dataclass(slots=True)
class _LostPilot:
    due: float  # UNIX seconds
    orders: int = 0
    unknown: int = 0  # times in a row
    gone: bool = False

    def note(self, outcome: CancelOutcome, now: float) -> None:
        self.unknown = self.unknown + 1 if outcome is CancelOutcome.UNKNOWN else 0
        self.gone = outcome in GONE or self.unknown >= UNKNOWN_TIMES
        self.orders += outcome is CancelOutcome.ORDERED
        doublings = min(10, max(0, self.orders - 1))
        self.due = now + min(_LONGEST_SECONDS, _AGAIN_SECONDS * 2.0**doublings)


class LostPilots:
    """Ends pilots that lost their lease, and might keep their payload running."""

    def __init__(self, db: Reader, name: str, backend: Backend) -> None:
        self._db = db
        self._name = name
        self._backend = backend
        self._known: dict[int, _LostPilot] = {}
        self._read_at: float | None = None

    def tick(self, now: float) -> int:
        """Order the end of those that are due; returns how many may still be there."""
        if self._read_at is not None and 0.0 <= now - self._read_at < _READ_SECONDS:
            return 0
        self._read_at = now
        pilots = lost_pilots(self._db, self._name, now - GIVEN_UP_SECONDS)
        self._known = {number: self._known.get(number) or _LostPilot(due=now) for number in pilots}
        left = {number: pilot for number, pilot in self._known.items() if not pilot.gone}
        due = [pilots[number] for number, pilot in left.items() if pilot.due <= now][:_MOST_AT_ONCE]
        outcomes = cancel({self._name: self._backend}, due) if due else {}
        for native in due:
            pilot = left[native.id]
            pilot.note(outcomes[native.stamp], now)
            if pilot.gone and pilot.orders:
                log.info("a lost pilot has ended", extra={"stamp": native.stamp})
        return sum(not pilot.gone for pilot in left.values())
