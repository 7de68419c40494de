"""What became of submitted pilots, as their batch systems say; lost references are found again by stamp.

Unknown is not gone: a pilot that its batch system does not list stays as it is until its lease or its age ends it. Each
batch system is asked about its own pilots only: native ids of two batch systems may be equal.

Pilots that lost their lease are cancelled, by stamp, until their batch systems say that they are gone: one that hangs
keeps its slot, and may keep its payload running.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.service import Outcomes, PilotEnd
from lodesman.answers.vocabulary import PilotState
from lodesman.batch.backend import Backend, CancelOutcome, NativeState
from lodesman.errors import LodesmanError
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId
from lodesman.store import Reader
from lodesman.store.read.pilots import PilotRow, live_pilots, lost_pilots, pilot_by_id

log = logging.getLogger(__name__)

_LOST_AFTER_SECONDS = 60.0
_NEVER_CONFIRMED_SECONDS = 3_600.0
_SETTLE_SECONDS = 10.0

_READ_SECONDS = 5.0
# A batch system that ends none of them in this time will not: an administrator has to.
_GIVEN_UP_SECONDS = 7 * 86_400.0
# Longer than the grace of the local backend: a second order kills at once.
_AGAIN_SECONDS = 60.0
_LONGEST_SECONDS = 3_600.0
_MOST_AT_ONCE = 200
# Unknown is not gone; a batch system that does not know a pilot this many times in a row has forgotten it.
UNKNOWN_TIMES = 3
GONE = frozenset({CancelOutcome.REMOVED, CancelOutcome.ENDED})


class Census:
    """One `tick` asks all backends about all live pilots. `note` (queue, accepted, reason) learns of pilots that joined:
    they count for their queue; and of those that never did.

    `policy` names the backend of each queue, and may be swapped. `started` is when this process began: submissions that
    were under way before ended with the one before it.
    """

    def __init__(
        self,
        db: Reader,
        backends: Mapping[str, Backend],
        *,
        policy: Policy,
        post: Post,
        note: Callable[[QueueId, bool, str], None],
        started: float = 0.0,
    ) -> None:
        self.policy = policy
        self._db = db
        self._backends = backends
        self._post = post
        self._note = note
        self._started = started
        self._lost_pilots = LostPilots(db, backends)
        self._joined: set[int] = set()

    def tick(self, now: float) -> int:
        """Returns how many pilots were found to have ended."""
        pilots = live_pilots(self._db)
        before, self._joined = self._joined, {pilot.id for pilot in pilots if pilot.joined_at is not None}
        by_backend: dict[str, list[PilotRow]] = defaultdict(list)
        for pilot in pilots:
            if pilot.id in self._joined and pilot.id not in before:
                self._note(pilot.queue_id, True, "")
            offer = self.policy.vo_config(pilot.vo).offer(pilot.queue_id)
            by_backend[offer.backend if offer and offer.backend in self._backends else ""].append(pilot)
        strays = by_backend.pop("", [])
        ended = sum(self._ask_one(name, found, now) for name, found in by_backend.items())
        ended += self._ask_all(strays, now) if strays else 0
        self._lost_pilots.tick(now)
        return ended

    def _ask_one(self, name: str, pilots: Sequence[PilotRow], now: float) -> int:
        """One backend about its pilots; others are asked even if this one cannot be."""
        backend = self._backends[name]
        try:
            lost = self._lost(pilots, now)
            if lost:
                self._find(lost, backend.census(list(lost)), now)
            return self._ask(backend, pilots)
        except LodesmanError as fault:
            log.warning("a batch system could not be asked: %s", fault, extra={"backend": name})
            return 0

    def _ask_all(self, pilots: Sequence[PilotRow], now: float) -> int:
        """Pilots of queues that are not configured or whose backend is not here: every backend, by stamp."""
        ended = 0
        stamps = [pilot.stamp for pilot in pilots]
        found: dict[str, str] = {}
        heard = True
        for name, backend in self._backends.items():
            try:
                known = backend.census(stamps)
                found |= known
                its_own = [one for one in pilots if one.native_id and known.get(one.stamp) == one.native_id]
                ended += self._ask(backend, its_own)
            except LodesmanError as fault:
                log.warning("a batch system could not be asked: %s", fault, extra={"backend": name})
                heard = False
        lost = self._lost(pilots, now)
        if heard or found:
            self._find({s: pilot for s, pilot in lost.items() if heard or s in found}, found, now)
        return ended

    def _lost(self, pilots: Sequence[PilotRow], now: float) -> dict[str, PilotRow]:
        """Pilots stored before a submission whose answer never came, by stamp."""
        return {
            pilot.stamp: pilot
            for pilot in pilots
            if pilot.native_id is None and self._is_older(pilot, now, _LOST_AFTER_SECONDS)
        }

    def _find(self, lost: Mapping[str, PilotRow], known: Mapping[str, str], now: float) -> None:
        """Store the references of lost pilots that are known; of the others, give up those that are long lost."""
        outcome: Outcomes = {s: (known[s], "") for s in lost if s in known}
        for stamp, pilot in lost.items():
            is_old = self._is_older(pilot, now, _NEVER_CONFIRMED_SECONDS)
            if stamp not in known and pilot.joined_at is None and is_old:
                outcome[stamp] = (None, "its submission was never confirmed")
        if outcome:
            self._post(calls.PILOTS_SUBMITTED, outcome)

    def _is_older(self, pilot: PilotRow, now: float, seconds: float) -> bool:
        """Whether it was stored long ago, or by a process that is gone."""
        orphaned = pilot.created_at < self._started and now - self._started > _SETTLE_SECONDS
        return orphaned or now - pilot.created_at > seconds

    def _ask(self, backend: Backend, pilots: Sequence[PilotRow]) -> int:
        """Ask about pilots whose references are known; returns how many have ended."""
        asked = {pilot.native_id: pilot.id for pilot in pilots if pilot.native_id is not None}
        ended = 0
        for native_id, status in (backend.status(list(asked)) if asked else {}).items():
            # It may have joined, or left, while its batch system was asked.
            pilot = pilot_by_id(self._db, asked[native_id]) if status.state is NativeState.ENDED else None
            if pilot is None or pilot.ended_at is not None:
                continue
            reason = status.detail or f"ended with exit code {status.exit_code}"
            if pilot.joined_at is None:
                self._note(pilot.queue_id, False, reason)
            state = PilotState.LOST if pilot.state is PilotState.RUNNING else PilotState.ABORTED
            self._post(calls.PILOT_ENDED, PilotEnd(pilot.id, state, reason))
            ended += 1
        return ended


@dataclass(slots=True)
class _LostPilot:
    """When to ask next (UNIX seconds), how often it was ordered to end, and was unknown in a row."""

    due: float
    orders: int = 0
    unknown: int = 0
    gone: bool = False

    def note(self, outcome: CancelOutcome, now: float) -> None:
        """Remember an answer."""
        self.unknown = self.unknown + 1 if outcome is CancelOutcome.UNKNOWN else 0
        self.gone = outcome in GONE or self.unknown >= UNKNOWN_TIMES
        self.orders += outcome is CancelOutcome.ORDERED
        doublings = min(10, max(0, self.orders - 1))
        self.due = now + min(_LONGEST_SECONDS, _AGAIN_SECONDS * 2.0**doublings)


class LostPilots:
    """Ends pilots that lost their lease. What it keeps in memory may be lost: all are asked about again after a start."""

    def __init__(self, db: Reader, backends: Mapping[str, Backend]) -> None:
        self._db = db
        self._backends = backends
        self._known: dict[int, _LostPilot] = {}
        self._read_at: float | None = None

    def tick(self, now: float) -> int:
        """Order the end of those that are due; returns how many are not known to be gone."""
        if self._read_at is not None and 0.0 <= now - self._read_at < _READ_SECONDS:
            return 0
        self._read_at = now
        stamps = lost_pilots(self._db, now - _GIVEN_UP_SECONDS)
        self._known = {number: self._known.get(number) or _LostPilot(due=now) for number in stamps}
        there = {stamps[number]: pilot for number, pilot in self._known.items() if not pilot.gone}
        due = [stamp for stamp, pilot in there.items() if pilot.due <= now][:_MOST_AT_ONCE]
        for stamp, outcome in (cancel_by_stamp(self._backends, due) if due else {}).items():
            pilot = there[stamp]
            pilot.note(outcome, now)
            if pilot.gone and pilot.orders:
                log.info("a lost pilot has ended", extra={"stamp": stamp})
        return sum(not pilot.gone for pilot in there.values())


def cancel_by_stamp(backends: Mapping[str, Backend], stamps: Sequence[str]) -> dict[str, CancelOutcome]:
    """Cancel pilots wherever they are, in one call for each batch system.

    UNKNOWN: none of the batch systems knows it; as long as one does not answer that is not certain, so it is FAILED.
    """
    outcomes: dict[str, CancelOutcome] = {}
    silence = CancelOutcome.UNKNOWN
    for name, backend in backends.items():
        try:
            native = backend.census(stamps)
            answers = backend.cancel(list(native.values())) if native else {}
            for stamp, native_id in native.items():
                outcomes[stamp] = answers.get(native_id, CancelOutcome.FAILED)
        except LodesmanError as fault:
            log.warning("pilots could not be cancelled: %s", fault, extra={"backend": name})
            silence = CancelOutcome.FAILED
    return {stamp: outcomes.get(stamp, silence) for stamp in stamps}
