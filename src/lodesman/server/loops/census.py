"""One watch asks one batch system about our pilots and the loads of its queues.

Unknown is not gone: a pilot that is not listed stays until its lease or its age ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Event

from msgspec.structs import replace

from lodesman.base.errors import LodesmanError
from lodesman.decide.director.hosts import ON_SHUT_HOST
from lodesman.decide.resources import LOCAL, QueueId
from lodesman.server.engines.backend import Backend, BatchLoad, NativeState, NativeStatus
from lodesman.server.engines.credentials import Credential
from lodesman.server.loops.cancelling import GIVEN_UP_SECONDS, UNKNOWN_TIMES, LostPilots
from lodesman.server.loops.failed_starts import NoteStart, last_words
from lodesman.server.store import Reader
from lodesman.server.store.hosts import pilots_on_shut_hosts
from lodesman.server.store.read.pilots import (
    PilotRow,
    ended_natives,
    ended_without_native,
    left_bad_nodes,
    live_pilots,
    newest_pilot,
    pilot_by_id,
)
from lodesman.server.writer.sessions import host_of
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.service import Outcomes, PilotEnd, PilotSeen
from lodesman.wire.vocabulary import PilotState, StartFault

log = logging.getLogger(__name__)

_LOST_AFTER_SECONDS = 60.0
_NEVER_CONFIRMED_SECONDS = 3_600.0
_SETTLE_SECONDS = 10.0
_SEEN_AGAIN_SECONDS = 600.0  # to the next note that a pilot was seen, if nothing changes
_KEEP_SECONDS = 86_400.0  # of an output, after the end
_WORDS_AT_ONCE = 5  # outputs read in a poll: most pilots that never join say the same


class BackendWatch:
    """The watch of the batch system `name`. Any thread may ask for `load` and `doubt`."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        *,
        db: Reader,
        post: Post,
        note: NoteStart,
        queues: Collection[QueueId] = (),
        started: float = 0.0,
    ) -> None:
        """`note` learns of pilots that joined or never did. `started`: earlier submissions ended with the process before."""
        self.name = name
        self.backend = backend  # may be swapped
        self.queues = queues  # whose loads are asked for; may be swapped
        self.options: tuple[str, ...] = ()  # words for each submission; may be swapped
        self.credential: Credential | None = None  # None: it does not end; may be swapped
        self.polled = Event()  # set after the first poll, whatever came of it
        self._db = db
        self._post = post
        self._note = note
        self._started = started
        self._lost_pilots = LostPilots(db, name, backend)
        self._joined: set[int] = set()
        self._live: set[int] = set()
        self._newest: int | None = None  # the last pilot at the last poll
        # Stamp -> how many censuses in a row did not find it.
        self._missed: dict[str, int] = {}
        self._loads: Mapping[QueueId, BatchLoad] = {}
        self._fault = ""
        self._forgotten: set[str] = set()
        # Of how many more pilots the output is read in this poll.
        self._words_left = 0
        # Pilot -> (host, since when it is held, when that was stored).
        self._stored: dict[int, tuple[str, float | None, float]] = {}

    def load(self, queue: QueueId) -> BatchLoad:
        """What the last successful poll saw of a queue."""
        seen = self._loads.get(queue) or BatchLoad(observed_at=self._started)
        doubt = self.doubt
        return replace(seen, fault=self._fault, credential=doubt) if self._fault or doubt else seen

    @property
    def doubt(self) -> str:
        """Why nothing may be submitted with its credential, or ''."""
        return "" if self.credential is None else self.credential.doubt

    def tick(self, now: float) -> int:
        """Poll; returns how many pilots have ended. Raises LodesmanError."""
        try:
            if self.credential is not None:
                self.credential.refresh(now)
            newest, pilots = newest_pilot(self._db), live_pilots(self._db, self.name)
            self._note_joined(pilots)
            self._note_bad_nodes(pilots, newest)
            lost = self._lost(pilots, now)
            unnamed = ended_without_native(self._db, self.name, now - _NEVER_CONFIRMED_SECONDS)
            if lost or unnamed:
                self._find(lost, unnamed, self.backend.census(), now)
            natives = {pilot.stamp: pilot.native_id for pilot in pilots if pilot.native_id is not None}
            seen = self.backend.status(natives) if natives else {}
            if self.queues:
                self._loads = self.backend.loads(list(self.queues))
        except LodesmanError as fault:
            self._fault = fault.message
            raise
        finally:
            self.polled.set()
        self._fault = ""
        self._words_left = _WORDS_AT_ONCE
        ended = self._end(pilots, seen)
        self._store(pilots, seen, now)
        self._lost_pilots.tick(now)
        return ended

    def forget(self, now: float) -> None:
        """Remove what is kept of pilots that ended a day ago. Raises LodesmanError."""
        ended = ended_natives(self._db, self.name, since=now - GIVEN_UP_SECONDS, before=now - _KEEP_SECONDS)
        new = {
            pilot.stamp: pilot.native_id
            for pilot in ended
            if pilot.native_id and pilot.stamp not in self._forgotten
        }
        if new:
            self.backend.forget(new)
        self._forgotten = {pilot.stamp for pilot in ended}

    def _note_joined(self, pilots: Iterable[PilotRow]) -> None:
        """One on a shut host speaks against its queue, where others would start, too; not if it is the only host."""
        joined = [pilot for pilot in pilots if pilot.joined_at is not None]
        before, self._joined = self._joined, {pilot.id for pilot in joined}
        new = [pilot for pilot in joined if pilot.id not in before]
        shut = pilots_on_shut_hosts(self._db) if new else set()
        for pilot in new:
            if pilot.id not in shut or self.name == LOCAL:
                self._note(pilot.submitted_to, None, "")
            elif (pilot.joined_at or 0.0) >= self._started:
                self._note(pilot.submitted_to, StartFault.BAD_HOST, ON_SHUT_HOST)

    def _note_bad_nodes(self, pilots: Iterable[PilotRow], newest: int) -> None:
        """One that left a useless node speaks against its queue: the next one would start there."""
        live, before, after = {pilot.id for pilot in pilots}, self._live, self._newest
        self._live, self._newest = live, newest
        if after is not None:
            for pilot in left_bad_nodes(self._db, self.name, after=after, among=before - live):
                host = host_of(pilot.node) or pilot.host
                words = f"{pilot.reason} (on {host})" if host else pilot.reason
                self._note(pilot.submitted_to, StartFault.NODE_FAULT, words)

    def _lost(self, pilots: Sequence[PilotRow], now: float) -> dict[str, PilotRow]:
        return {
            pilot.stamp: pilot
            for pilot in pilots
            if pilot.native_id is None and self._is_older(pilot, now, _LOST_AFTER_SECONDS)
        }

    def _find(
        self, lost: Mapping[str, PilotRow], unnamed: Iterable[str], census: Mapping[str, str], now: float
    ) -> None:
        """Store the references that were found; give up long lost pilots that several lists lack."""
        outcome: Outcomes = {s: (census[s], "") for s in (*lost, *unnamed) if s in census}
        # A list may leave out jobs that are there, as those of a batch system do that has just started.
        self._missed = {s: self._missed.get(s, 0) + 1 for s in lost if s not in census}
        for stamp, times in self._missed.items():
            pilot = lost[stamp]
            is_old = self._is_older(pilot, now, _NEVER_CONFIRMED_SECONDS)
            if times >= UNKNOWN_TIMES and pilot.joined_at is None and is_old:
                outcome[stamp] = (None, "its submission was never confirmed")
        if outcome:
            self._post(inner_calls.PILOTS_SUBMITTED, outcome)

    def _is_older(self, pilot: PilotRow, now: float, seconds: float) -> bool:
        orphaned = pilot.created_at < self._started and now - self._started > _SETTLE_SECONDS
        return orphaned or now - pilot.created_at > seconds

    def _end(self, pilots: Iterable[PilotRow], seen: Mapping[str, NativeStatus]) -> int:
        ended = 0
        for row in pilots:
            status = seen.get(row.stamp)
            if status is None or status.state is not NativeState.ENDED:
                continue
            pilot = pilot_by_id(self._db, row.id)  # it may have joined, or left, while it was asked about
            if pilot is None or pilot.ended_at is not None:
                continue
            reason = _reason(status)
            if pilot.joined_at is None:
                words = pilot.drain_reason or self._last_words(pilot)
                reason = f"{words} ({reason})" if words else reason
                if not pilot.drain:  # what was ordered to end says nothing of its queue
                    self._note(pilot.submitted_to, StartFault.ENDED, reason)
            state = PilotState.LOST if pilot.state is PilotState.RUNNING else PilotState.ABORTED
            self._post(inner_calls.PILOT_ENDED, PilotEnd(pilot.id, state, reason))
            ended += 1
        return ended

    def _last_words(self, pilot: PilotRow) -> str:
        """What a pilot that never joined said; one poll reads few outputs."""
        if self._words_left <= 0 or pilot.native_id is None:
            return ""
        self._words_left -= 1
        try:
            return last_words(self.backend.output(pilot.stamp, pilot.native_id) or b"")
        except LodesmanError as fault:
            log.info("the output of a pilot cannot be read: %s", fault, extra={"stamp": pilot.stamp})
            return ""

    def _store(self, pilots: Sequence[PilotRow], seen: Mapping[str, NativeStatus], now: float) -> None:
        new: dict[int, PilotSeen] = {}
        stored: dict[int, tuple[str, float | None, float]] = {}
        for pilot in pilots:
            before = self._stored.get(pilot.id) or (pilot.host, pilot.held_since, pilot.native_seen or 0.0)
            stored[pilot.id] = before
            status = seen.get(pilot.stamp)
            if status is None or status.state is NativeState.UNKNOWN:
                continue
            held = (before[1] or status.observed_at) if status.state is NativeState.HELD else None
            is_there = status.state is NativeState.RUNNING or pilot.joined_at is not None
            host = (status.host or before[0]) if is_there else ""
            # Of one that runs and has not joined it is kept since when.
            is_old = not 0.0 <= now - before[2] < _SEEN_AGAIN_SECONDS and not (
                host and pilot.joined_at is None
            )
            if (host, held) != before[:2] or is_old:
                new[pilot.id] = PilotSeen(host=host, held_since=held, at=status.observed_at)
                stored[pilot.id] = host, held, now
        if new:
            self._post(inner_calls.PILOTS_SEEN, new)
        self._stored = stored


def _reason(status: NativeStatus) -> str:
    if status.detail:
        return status.detail
    if status.exit_code is not None:
        return f"ended with exit code {status.exit_code}"
    return f"its batch system ended it: {status.word}" if status.word else "its batch system ended it"
