"""The pilots that have joined: who is heard, who is silent, who leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from threading import Lock
from typing import Final

from lodesman.decide.matching import ResourceRequest
from lodesman.decide.resources import QueueId
from lodesman.server.live.principals import Principals, pilot_has_ended
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import PilotRow, pilots_in_queues
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.sessions import PilotSession, load_sessions, silent_seconds, takes_jobs
from lodesman.wire.accounts import Principal

# Pilots fall silent, and their lives get shorter, without a word.
_INHABITED_SECONDS: Final = 5.0


class InhabitedQueues:
    """What pilots present, read again every few seconds. For any thread."""

    def __init__(self, db: Reader, clock: Callable[[], float]) -> None:
        self.db = db
        self._clock = clock
        self._asking = Lock()
        self._kept: dict[frozenset[QueueId], tuple[float, frozenset[ResourceRequest]]] = {}

    def forget(self) -> None:
        """Pilots came, went, or take no more jobs."""
        self._kept = {}

    def requests(self, queues: frozenset[QueueId]) -> frozenset[ResourceRequest]:
        """Of live pilots in these queues while empty, those on their way too, silent and leaving ones not."""
        with self._asking:
            kept, now = self._kept, self._clock()
            at, requests = kept.get(queues, (-inf, frozenset()))
            if not 0.0 <= now - at < _INHABITED_SECONDS:
                pilots = (row for row in pilots_in_queues(self.db, queues) if takes_jobs(row, now))
                requests = frozenset(PilotSession(row, now=now).empty(now) for row in pilots)
                kept[queues] = now, requests
            return requests


class Sessions(dict[int, PilotSession]):
    """The sessions by pilot. Belongs to the event loop. Leases are measured by `ticks`, which never jump."""

    def __init__(
        self, db: Reader, live: WriterState, principals: Principals, inhabited: InhabitedQueues, *,
        lease_seconds: float, clock: Callable[[], float], ticks: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(load_sessions(db, now=ticks()))
        self.lease_seconds = lease_seconds
        self.silent_seconds = silent_seconds(lease_seconds)
        self._live, self._principals, self._inhabited = live, principals, inhabited
        self._clock, self._ticks = clock, ticks

    def hear(self, pilot: int) -> PilotSession:
        """Raises Unauthorized after the pilot's end."""
        session = self.get(pilot)
        if session is None:
            raise pilot_has_ended()
        session.hear(self._ticks())
        return session

    def join(self, row: PilotRow, token: bytes) -> None:
        """An earlier token of the pilot is good no more."""
        before, session = self.get(row.id), PilotSession(row, now=self._ticks())
        if before is not None:
            self.end(row.id)
            session.follow(before)
        self[row.id] = session
        self._principals.add(Principal(kind="pilot", pilot_id=row.id, token=token))
        self._inhabited.forget()

    def end(self, pilot: int) -> None:
        """A pilot has ended."""
        self.pop(pilot, None)
        self._inhabited.forget()
        self._principals.forget_pilot(pilot)

    def drain(self, pilots: Iterable[int], *, drain: bool = True) -> list[int]:
        """Let these claim no more jobs, or again. Returns those for which that is new."""
        changed = [pilot for pilot in pilots if pilot in self and self[pilot].drain is not drain]
        for pilot in changed:
            self[pilot].drain = drain
        self._inhabited.forget()
        return changed

    def newly_silent(self) -> dict[int, float]:
        """When each pilot spoke last (UNIX seconds) whose silence is not noted yet."""
        latest, epoch = self._ticks() - self.silent_seconds, self._clock() - self._ticks()
        return {
            pilot: round(epoch + session.last_seen, 3)
            for pilot, session in self.items()
            if session.last_seen < latest and pilot not in self._live.pilots.silent
        }

    def expired(self) -> list[int]:
        """The pilots whose lease has ended."""
        return [pilot for pilot in self if self.has_expired(pilot)]

    def has_expired(self, pilot: int) -> bool:
        """Whether its lease has ended."""
        session = self.get(pilot)
        return session is not None and session.last_seen < self._ticks() - self.lease_seconds
