"""The state of the hot process: the journal as the event loop uses it, principals, sessions, the background process."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import starmap
from math import inf
from threading import Lock
from typing import Any, Final, TypeVar

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.decide.explain.verdict import span
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.live.fairness import Strangers, Turns
from lodesman.server.live.principals import Principals, pilot_has_ended
from lodesman.server.live.pulse import BackgroundHealth
from lodesman.server.live.waits import Waits
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.store import Reader, Writer
from lodesman.server.store.audit import note_all
from lodesman.server.store.hosts import records
from lodesman.server.store.journal import Change, Command, Journal
from lodesman.server.store.read.pilots import PilotRow, pilots_in_queues
from lodesman.server.store.read.upkeep import stray_attempts
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.transaction import Answer
from lodesman.server.writer.hosts import HostGate
from lodesman.server.writer.job_classes import ClassRules
from lodesman.server.writer.live import Live
from lodesman.server.writer.quotas import QuotaRules, open_delays
from lodesman.server.writer.sessions import PilotSession, load_sessions, silent_seconds, takes_jobs
from lodesman.server.writer.site_mask import Tended, tend_closings
from lodesman.server.writer.templates import Templates
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire.accounts import AuditNote, LimitSection, Principal
from lodesman.wire.hosts import HostState
from lodesman.wire.jsv import JsvSection, Verified, VerifyBody
from lodesman.wire.server import ConfigurationState
from lodesman.wire.service import Suspects
from lodesman.wire.vocabulary import Waking

_R = TypeVar("_R")
log = logging.getLogger(__name__)

# A clock that is set by more than that is reported.
_JUMP_SECONDS: Final = 5.0
# Pilots fall silent, and their lives get shorter, without a word.
_INHABITED_SECONDS: Final = 5.0
_MOST_STRAYS: Final = 100_000
_STRAYS_AT_ONCE: Final = 500


@dataclass(slots=True)
class ClockWatch:
    """Whether the system's clock was set, seen beside the one that never jumps; `jumps` so far."""

    jumps: int = 0
    _ahead: float | None = None

    def look(self, clock: float, ticks: float) -> None:
        """Count it, and have it in the log, if the clock was set since it was last compared."""
        before, self._ahead = self._ahead, clock - ticks
        by = 0.0 if before is None else self._ahead - before
        if abs(by) > _JUMP_SECONDS:
            self.jumps += 1
            way = "forward" if by > 0 else "back"
            words = "the system's clock was set %s by %s: times before and after it do not fit; leases are not touched"
            log.warning(words, way, span(abs(by)), extra={"seconds": round(by, 1)})


@dataclass(kw_only=True, eq=False)
class Core:
    """Belongs to the event loop's thread, except `live`, which belongs to the journal's."""

    writer: Writer
    at_end: Callable[[Any], None] | None = None
    died: Callable[[], None] | None = None
    live: Live
    policy: Policy
    quotas: QuotaRules
    job_classes: ClassRules
    lease_seconds: float
    heartbeat_seconds: float
    idle_seconds: float
    sandbox_mb: int
    clock: Callable[[], float] = time.time
    # Leases are measured by a clock that never jumps.
    ticks: Callable[[], float] = time.monotonic
    configuration: Callable[[], ConfigurationState] = ConfigurationState
    limits: LimitSection = field(default_factory=LimitSection)
    shelf: Shelf | None = None
    # The server's verifier, and how the background process is asked to resolve a submission before it.
    jsv: JsvSection = field(default_factory=JsvSection)
    verify: Callable[[VerifyBody], Awaitable[Verified]] | None = None
    local_pilots: Callable[[int], str] = lambda _: ""  # how they are isolated, with this number of accounts
    openness: str = ""  # what lets strangers into the database, in a sentence
    # When the usage that shares are corrected by is too old, by `ticks`.
    usage_until: float = math.inf
    gates: GateOptions = field(default_factory=GateOptions)
    # To the background process, on the event loop. What is announced while it cannot hear is lost.
    announce: Callable[[Waking], None] = lambda _: None
    # Set when the server is about to end: what runs is given back then, and nothing new may begin.
    ending: bool = False
    claims: int = 0
    claimed_jobs: int = 0
    submitted_jobs: int = 0

    def __post_init__(self) -> None:
        self.live.limits = self.limits
        self.live.go_on = self._go_on
        self.silent_seconds = silent_seconds(self.lease_seconds)
        self.live.announce = lambda what: self.announce(what)  # noqa: PLW0108 - the server sets it later
        self.jitter = random.Random()
        # Checks of large submissions, one at a time.
        self.one_large = asyncio.Lock()
        # Ads of sites, and changes of job classes, whose texts may be long.
        self.one_ad, self.one_edit = asyncio.Lock(), asyncio.Lock()
        post = lambda command: self.command(command)  # noqa: E731, PLW0108 - tests replace `command`
        self.turns = Turns(post, lambda: self.journal.commands)
        self.journal = Journal(
            self.writer, clock=self.clock, deliver=self._deliver, at_end=self.at_end, died=self.died,
            moved=lambda commit: self.waits.moved(commit),  # noqa: PLW0108 - they are made after it
        )  # fmt: skip
        self.waits = Waits(self.journal, self.writer.database, post)
        self.reader = self.writer.database.reader()
        # For one thread at a time beside the loop.
        self.second_reader = self.writer.database.reader()
        # For one thread at a time, under `one_choice`: which jobs an action is about.
        self.one_choice = asyncio.Lock()
        self.choice_reader = self.writer.database.reader()
        # For one thread at a time, under `_asking`.
        self.pilot_reader = self.writer.database.reader()
        self.templates = Templates(self.reader)
        self.principals = Principals(self.reader, self.clock)
        self.sessions = load_sessions(self.reader, now=self.ticks())
        self.hosts = HostGate(self.live, self.sessions)
        self.hosts.take(starmap(HostState, records(self.reader).items()))
        self.background = BackgroundHealth(at=self.ticks())
        self.strangers = Strangers()
        self.clock_watch = ClockWatch()
        self._inhabited: dict[frozenset[QueueId], tuple[float, frozenset[ResourceRequest]]] = {}
        self._asking = Lock()
        self._together: list[tuple[Command[Any], Answer]] = []

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Its connections that read."""
        return self.reader, self.second_reader, self.choice_reader, self.pilot_reader, *self.waits.readers

    def start(self) -> None:
        """Called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.journal.start()
        if self.live.order:
            self._go_on()

    def _go_on(self, _: object = None) -> None:
        """Let another batch begin: the last one left something to do at its end."""
        with suppress(Unavailable):
            self.journal.post(Change(lambda _: None), lambda _: None)

    async def open_delays(self) -> None:
        """Let jobs start that waited for a matching delay, if the time of one has come."""
        if self.live.queues.index.delays.next_at <= self.ticks():
            with suppress(LodesmanError):  # it is asked again soon
                await self.command(Change(open_delays, self.live))

    def session(self, pilot_id: int) -> PilotSession:
        """The session of a pilot that joined. Raises Unauthorized after its end: a pilot gives up then."""
        session = self.sessions.get(pilot_id)
        if session is None:
            raise pilot_has_ended()
        session.hear(self.ticks())
        return session

    def joined(self, row: PilotRow, token: bytes) -> None:
        """Remember a pilot that has just joined; an earlier token of its own is good no more."""
        before, session = self.sessions.get(row.id), PilotSession(row, now=self.ticks())
        if before is not None:
            self.forget_pilot(row.id)
            session.follow(before)
        self.sessions[row.id] = session
        self.principals.add(Principal(kind="pilot", pilot_id=row.id, token=token))
        self.pilots_changed()

    def forget_pilot(self, pilot_id: int) -> None:
        """A pilot has ended."""
        self.sessions.pop(pilot_id, None)
        self.pilots_changed()
        self.principals.forget_pilot(pilot_id)

    def drain(self, sessions: Iterable[PilotSession], *, drain: bool = True) -> None:
        """From now on these pilots claim no more jobs; or they may again."""
        for session in sessions:
            session.drain = drain
        self.pilots_changed()

    def let_stay(self, pilots: Iterable[int]) -> None:
        """These pilots do not leave any more, if they are still there."""
        self.drain([self.sessions[one] for one in pilots if one in self.sessions], drain=False)

    async def tend_closings(self) -> None:
        """Let pilots leave where a closing begins that was announced, and stay where one is over. Raises LodesmanError."""
        done: Tended = await self.command(Change(tend_closings, self.live))
        self.let_stay(done.staying)
        self.drain([self.sessions[one] for one in done.leaving if one in self.sessions])

    def pilots_changed(self) -> None:
        """Pilots came, went, or will take no more jobs."""
        self._inhabited = {}

    def inhabited(self, queues: frozenset[QueueId]) -> frozenset[ResourceRequest]:
        """What live pilots in these queues that take jobs now or later present while nothing runs in them: those on their
        way count, silent ones do not. Any thread may ask.
        """
        with self._asking:
            known, now = self._inhabited, self.clock()
            at, found = known.get(queues, (-inf, frozenset()))
            if not 0.0 <= now - at < _INHABITED_SECONDS:
                rows = pilots_in_queues(self.pilot_reader, queues)
                found = frozenset(
                    PilotSession(one, now=now).empty(now) for one in rows if takes_jobs(one, now)
                )
                known[queues] = now, found
            return found

    async def look_at_clock(self) -> None:
        """See whether the system's clock was set."""
        self.clock_watch.look(self.clock(), self.ticks())

    def newly_silent(self) -> dict[int, float]:
        """Pilots of whose long silence nothing was noted yet, and when each spoke last, in UNIX seconds."""
        latest, epoch = self.ticks() - self.silent_seconds, self.clock() - self.ticks()
        return {
            pilot_id: round(epoch + session.last_seen, 3)
            for pilot_id, session in self.sessions.items()
            if session.last_seen < latest and pilot_id not in self.live.pilots.silent
        }

    def expired_pilots(self) -> list[int]:
        """Pilots whose lease has ended."""
        return [pilot_id for pilot_id in self.sessions if self.has_expired(pilot_id)]

    def has_expired(self, pilot_id: int) -> bool:
        """Whether a pilot that is there has not been heard of for a whole lease."""
        session = self.sessions.get(pilot_id)
        return session is not None and session.last_seen < self.ticks() - self.lease_seconds

    async def mend_strays(self) -> None:
        """At the start: mend live attempts that their jobs do not name, or whose pilots have ended. A fault costs one of
        them alone, and is in the log.
        """
        strays = stray_attempts(self.reader, _MOST_STRAYS)
        for begun in range(0, len(strays), _STRAYS_AT_ONCE):
            some = strays[begun : begun + _STRAYS_AT_ONCE]
            if not await self._mend(some):
                for one in some:
                    await self._mend([one])
        if strays:
            log.error("stray attempts were found at the start", extra={"found": len(strays)})

    async def _mend(self, strays: list[int]) -> bool:
        with suppress(LodesmanError):
            await self.command(Change(reconcile, self.live, Suspects(attempts=strays)))
            return True
        return False

    async def note(self, notes: list[AuditNote]) -> None:
        """Add to the audit trail. What cannot be stored now is lost: it must not stop what it is about."""
        if notes:
            with suppress(LodesmanError):
                await self.command(Change(note_all, notes))

    async def command(self, command: Command[_R], *, together: bool = False) -> _R:
        """Post a command and wait for its answer; `together`: as by `post_together`. Raises the LodesmanError that refused
        it.
        """
        waiter: asyncio.Future[_R] = self._loop.create_future()

        def answer(result: Any) -> None:
            if waiter.done():
                return
            if isinstance(result, Exception):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)

        (self.post_together if together else self.journal.post)(command, answer)
        return await waiter

    def post_together(self, command: Command[Any], answer: Answer) -> None:
        """Post with all of this turn of the loop: they share a commit. `answer` may get Unavailable."""
        if not self._together:
            self._loop.call_soon(self.post_all)
        self._together.append((command, answer))

    def post_all(self) -> None:
        """Post what waits for the end of this turn."""
        together, self._together = self._together, []
        try:
            for command, answer in together:
                self.journal.post(command, answer)
        except Unavailable as ending:
            for _, answer in together:
                answer(ending)

    def _deliver(self, answers: list[tuple[Answer, Any]]) -> None:
        """On the writer's thread: hand a whole batch to the loop with one wake-up."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_answer_all, answers)


def _answer_all(answers: list[tuple[Answer, Any]]) -> None:
    for answer, result in answers:
        try:
            answer(result)
        except Exception:  # the other answers of the batch must still arrive
            log.exception("an answer could not be given")
