"""What the hot process's faces share: the journal seen from the event loop, principals, sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lodesman.api.background_word import BackgroundWord
from lodesman.commands.accounts import Principal, find_principal, load_principals
from lodesman.commands.configuration import ConfigurationState
from lodesman.commands.live import Live
from lodesman.commands.policy import Policy
from lodesman.commands.sessions import PilotSession, load_sessions, silent_seconds
from lodesman.commands.templates import Templates
from lodesman.errors import Unauthorized, Unavailable
from lodesman.store import pilots
from lodesman.store.engine import Writer, open_reader
from lodesman.store.journal import Answer, Command, Journal

log = logging.getLogger(__name__)


class Core:
    """Belongs to the event loop's thread, except `live`, which belongs to the journal's."""

    def __init__(  # noqa: PLR0913
        self,
        *,
        writer: Writer,
        path: Path,
        live: Live,
        policy: Policy,
        lease_seconds: float,
        heartbeat_seconds: float,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        at_end: Callable[[Any], None] | None = None,
        died: Callable[[], None] | None = None,
        configuration: Callable[[], ConfigurationState] = ConfigurationState,
    ) -> None:
        self.clock = clock
        # Leases are measured by a clock that never jumps.
        self.ticks = ticks
        self.live = live
        self.policy = policy
        self.configuration = configuration
        self.lease_seconds = lease_seconds
        self.silent_seconds = silent_seconds(lease_seconds)
        self.heartbeat_seconds = heartbeat_seconds
        self.journal = Journal(writer, clock=clock, deliver=self._deliver, at_end=at_end, died=died)
        self.reader = open_reader(path)
        # For one thread at a time beside the loop.
        self.second_reader = open_reader(path)
        self.templates = Templates(self.reader)
        self.principals: dict[bytes, Principal] = load_principals(self.reader)
        self.sessions: dict[int, PilotSession] = load_sessions(self.reader, now=ticks())
        self._inhabited: frozenset[tuple[str, str, str]] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._together: list[tuple[Command, Answer]] = []
        self.background = BackgroundWord(since=ticks())
        self.claims = 0
        self.claimed_jobs = 0
        self.submitted_jobs = 0

    def start(self) -> None:
        """Called on the event loop."""
        self.loop = asyncio.get_running_loop()
        self.journal.start()

    def lookup(self, digest: bytes) -> Principal | None:
        """The principal of a token's hash; tokens made elsewhere are read once from the database."""
        known = self.principals.get(digest)
        if known is None:
            known = find_principal(self.reader, digest)
            if known is not None:
                self.principals[digest] = known
        return known

    def session(self, pilot_id: int) -> PilotSession:
        """The session of a pilot that joined. Raises Unauthorized after its end: a pilot gives up then."""
        session = self.sessions.get(pilot_id)
        if session is None:
            raise Unauthorized(
                "This pilot has ended.", hint="Its token is good for the results of its last attempts only."
            )
        session.last_seen = self.ticks()
        return session

    def joined(self, row: pilots.PilotRow, token: bytes, node: dict[str, Any]) -> PilotSession:
        """Remember a pilot that has just joined."""
        old = self.sessions.get(row.id)
        if old is not None:
            self.principals.pop(old.token, None)
        session = self.sessions[row.id] = PilotSession(row, node, now=self.ticks())
        session.token = token
        self.principals[token] = Principal(kind="pilot", pilot_id=row.id)
        self._inhabited = None
        return session

    def forget_pilot(self, pilot_id: int) -> None:
        """A pilot has ended. If its token is good for its last words, it is found in the database from now on."""
        session = self.sessions.pop(pilot_id, None)
        self._inhabited = None
        if session is not None:
            self.principals.pop(session.token, None)
        stale = [k for k, p in self.principals.items() if p.pilot_id == pilot_id and p.kind == "pilot"]
        for digest in stale:
            del self.principals[digest]

    def pilots_drained(self) -> None:
        """Some sessions take no more jobs."""
        self._inhabited = None

    def inhabited(self) -> frozenset[tuple[str, str, str]]:
        """The queues where pilots are that take jobs: the same object until one comes or goes. Any thread may ask."""
        found = self._inhabited
        if found is None:
            takers = [session for session in list(self.sessions.values()) if not session.drain]
            found = self._inhabited = frozenset(session.queue for session in takers)
        return found

    def newly_silent(self) -> dict[int, float]:
        """Pilots of whose long silence nothing was noted yet, and when each spoke last, in UNIX seconds."""
        latest, epoch = self.ticks() - self.silent_seconds, self.clock() - self.ticks()
        return {
            pilot_id: round(epoch + session.last_seen, 3)
            for pilot_id, session in self.sessions.items()
            if session.last_seen < latest and pilot_id not in self.live.silent
        }

    def expired_pilots(self) -> list[int]:
        """Pilots whose lease has ended."""
        return [pilot_id for pilot_id in self.sessions if self.has_expired(pilot_id)]

    def has_expired(self, pilot_id: int) -> bool:
        """Whether a pilot that is there has not been heard of for a whole lease."""
        session = self.sessions.get(pilot_id)
        return session is not None and session.last_seen < self.ticks() - self.lease_seconds

    async def command(self, command: Command) -> Any:
        """Post a command and wait for its answer. Raises the LodesmanError that refused it."""
        waiter = self.waiter()
        self.journal.post(command, settle(waiter))
        return await waiter

    def post_together(self, command: Command, answer: Answer) -> None:
        """Post with all that came in the same turn of the loop, so that they share a commit.

        `answer` gets Unavailable if the server is ending.
        """
        if not self._together:
            assert self.loop is not None  # noqa: S101
            self.loop.call_soon(self._post_all)
        self._together.append((command, answer))

    def _post_all(self) -> None:
        together, self._together = self._together, []
        try:
            for command, answer in together:
                self.journal.post(command, answer)
        except Unavailable as ending:
            for _, answer in together:
                answer(ending)

    def waiter(self) -> asyncio.Future[Any]:
        """A future of this loop, to be settled by the journal."""
        assert self.loop is not None  # noqa: S101
        return self.loop.create_future()

    def _deliver(self, answers: list[tuple[Answer, Any]]) -> None:
        """On the writer's thread: hand a whole batch to the loop with one wake-up."""
        assert self.loop is not None  # noqa: S101
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_settle_all, answers)


def settle(waiter: asyncio.Future[Any]) -> Answer:
    """An answer that settles a future, unless nobody waits for it any more."""

    def answer(result: Any) -> None:
        if waiter.done():
            return
        if isinstance(result, Exception):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)

    return answer


def _settle_all(answers: list[tuple[Answer, Any]]) -> None:
    for answer, result in answers:
        try:
            answer(result)
        except Exception:  # the other answers of the batch must still arrive
            log.exception("an answer could not be given")
