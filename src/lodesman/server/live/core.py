"""The state of the hot process: settings, and the owners of what its event loop keeps."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, Final

from msgspec import Struct

from lodesman.decide.explain.verdict import span
from lodesman.decide.matching.policy import Policy
from lodesman.server.live.commands import Commands
from lodesman.server.live.fairness import Strangers, Turns
from lodesman.server.live.hosts import HostGate
from lodesman.server.live.principals import Principals
from lodesman.server.live.pulse import BackgroundHealth
from lodesman.server.live.readers import ReaderBeside
from lodesman.server.live.sessions import InhabitedQueues, Sessions
from lodesman.server.live.waits import Waits
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.store import Reader, Writer
from lodesman.server.store.shelf import Shelf
from lodesman.server.writer.job_classes import ClassRules
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.quotas import QuotaRules
from lodesman.server.writer.templates import Templates
from lodesman.wire.accounts import LimitSection
from lodesman.wire.jsv import JsvSection, VerifyAnswer, VerifyBody
from lodesman.wire.server import ConfigurationState
from lodesman.wire.vocabulary import Waking

# A clock that is set by more than that is reported.
_JUMP_SECONDS: Final = 5.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClockWatch:
    """Sees that the system's clock was set."""

    jumps: int = 0  # so far
    _ahead: float | None = None

    def look(self, clock: float, ticks: float) -> None:
        """Count and log a jump since the last comparison."""
        before, self._ahead = self._ahead, clock - ticks
        by = 0.0 if before is None else self._ahead - before
        if abs(by) > _JUMP_SECONDS:
            self.jumps += 1
            way = "forward" if by > 0 else "back"
            words = "the system's clock was set %s by %s: times before and after it do not fit; leases are not touched"
            log.warning(words, way, span(abs(by)), extra={"seconds": round(by, 1)})


class PilotTerms(Struct, frozen=True, kw_only=True):
    """What a pilot learns when it joins."""

    lease_seconds: float
    heartbeat_seconds: float
    idle_seconds: float
    sandbox_mb: int


@dataclass(slots=True)
class HotCounts:
    """Since the process began."""

    claims: int = 0
    claimed_jobs: int = 0
    submitted_jobs: int = 0


@dataclass(kw_only=True, eq=False)
class Core:
    """Belongs to the event loop; `live` to the writer."""

    writer: InitVar[Writer]
    at_end: InitVar[Callable[[Any], None] | None] = None
    died: InitVar[Callable[[], None] | None] = None
    live: WriterState
    policy: Policy
    quotas: QuotaRules
    job_classes: ClassRules
    terms: PilotTerms
    clock: Callable[[], float] = time.time
    # Leases are measured by a clock that never jumps.
    ticks: Callable[[], float] = time.monotonic
    configuration: Callable[[], ConfigurationState] = ConfigurationState
    limits: LimitSection = field(default_factory=LimitSection)
    shelf: Shelf | None = None
    # The server's verifier, and how the background process is asked to resolve a submission before it.
    jsv: JsvSection = field(default_factory=JsvSection)
    verify: Callable[[VerifyBody], Awaitable[VerifyAnswer]] | None = None
    local_pilots: Callable[[int], str] = lambda _: ""  # how they are isolated, with this number of accounts
    openness: str = ""  # what lets strangers into the database, in a sentence
    # When the usage that shares are corrected by is too old, by `ticks`.
    usage_until: float = math.inf
    gates: GateOptions = field(default_factory=GateOptions)
    # To the background process, on the event loop. What is announced while it cannot hear is lost.
    announce: Callable[[Waking], None] = lambda _: None
    # Set when the server is about to end: what runs is given back then, and nothing new may begin.
    ending: bool = False
    counts: HotCounts = field(default_factory=HotCounts)

    def __post_init__(
        self, writer: Writer, at_end: Callable[[Any], None] | None, died: Callable[[], None] | None
    ) -> None:
        database = writer.database
        self.reader = database.reader()
        self.commands = Commands(
            writer, clock=self.clock, at_end=at_end, died=died,
            moved=lambda commit: self.waits.moved(commit),  # noqa: PLW0108 - they are made after it
        )  # fmt: skip
        self.journal = self.commands.journal
        run = lambda command: self.commands.run(command)  # noqa: E731, PLW0108 - tests replace `run`
        self.turns = Turns(run, lambda: self.journal.commands)
        self.waits = Waits(self.journal, database, run)
        self.principals = Principals(self.reader, self.clock)
        self.inhabited = InhabitedQueues(database.reader(), self.clock)
        self.sessions = Sessions(
            self.reader, self.live, self.principals, self.inhabited,
            lease_seconds=self.terms.lease_seconds, clock=self.clock, ticks=self.ticks,
        )  # fmt: skip
        self.hosts = HostGate(self.live, self.sessions, self.commands, self.reader, self.clock)
        self.background = BackgroundHealth(at=self.ticks())
        self.strangers, self.clock_watch = Strangers(), ClockWatch()
        self.templates = Templates(self.reader)
        # Which jobs an action is about; and checks of large submissions.
        self.choosing, self.checking = ReaderBeside(database.reader()), ReaderBeside(database.reader())
        # Ads of sites, and changes of job classes, whose texts may be long.
        self.one_ad, self.one_edit = asyncio.Lock(), asyncio.Lock()
        self.live.limits = self.limits
        self.live.go_on = self.commands.begin_batch
        self.live.announce = lambda what: self.announce(what)  # noqa: PLW0108 - the server sets it later

    @property
    def readers(self) -> tuple[Reader, ...]:
        """All its connections that read."""
        return self.reader, self.checking.db, self.choosing.db, self.inhabited.db, *self.waits.readers

    def start(self) -> None:
        """Called on the event loop."""
        self.commands.start()
        if self.live.order:
            self.commands.begin_batch()
