"""Hosts that get no jobs: which claims pass, probes, changes (ADR 0044)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lodesman.base.errors import LodesmanError
from lodesman.decide.director.hosts import (
    FAILS_WITHIN_S,
    after_probe,
    may_probe,
    open_host,
    shut_by_fault,
    still_holds,
)
from lodesman.server.live.commands import Commands
from lodesman.server.live.sessions import Sessions
from lodesman.server.store import Reader
from lodesman.server.store.audit import AuditedCommand
from lodesman.server.store.hosts import host_record, host_records
from lodesman.server.store.journal import Change, Command
from lodesman.server.writer.bookings import Attempt
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.pilots import set_hosts
from lodesman.server.writer.sessions import PilotSession
from lodesman.wire.accounts import AuditNote
from lodesman.wire.hosts import HostName, HostRecord, HostState
from lodesman.wire.requests import ReportBody, RunningBody


@dataclass(slots=True, eq=False)
class ShutHost:
    """A shut host and its probe."""

    record: HostRecord
    pilot: int = 0  # the pilot that asks for the probe, 0: none
    attempt: Attempt | None = None  # the probe, once the pilot has it
    # Each ends a poll that gets nothing meanwhile.
    resting: set[Callable[[], None]] = field(default_factory=set)

    def answered(self, jobs: Iterable[Attempt]) -> None:
        """The claim for the probe got one job or none."""
        self.attempt = next(iter(jobs), None)
        if self.attempt is None:
            self.pilot = 0


@dataclass(slots=True, eq=False)
class HostGate:
    """The shut hosts. A claim costs one lookup."""

    live: WriterState
    sessions: Sessions
    commands: Commands
    db: Reader
    clock: Callable[[], float]
    shut: dict[HostName, ShutHost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.take(HostState(host, record) for host, record in host_records(self.db).items())

    def take(self, changed: Iterable[HostState]) -> None:
        """Shut or open these hosts."""
        for host, record in changed:
            before = self.shut.pop(host, None)
            resting = set() if before is None else before.resting
            if record is not None and record.shut:
                self.shut[host] = ShutHost(record, resting=resting)
            else:
                for end in list(resting):  # each takes itself out
                    end()

    def probe(self, host: ShutHost, pilot_id: int, now: float) -> bool:
        """Whether a pilot may ask for one job: the only one until its fate is known."""
        if host.pilot and not self._is_there(host):
            host.pilot, host.attempt = 0, None
        if host.pilot or not may_probe(host.record, now):
            return False
        host.pilot = pilot_id
        return True

    def has_probe(self, session: PilotSession, attempt: Attempt) -> ShutHost | None:
        """The shut host whose probe this attempt is."""
        host = self.shut.get(session.host)
        return host if host is not None and (host.pilot, host.attempt) == (session.id, attempt) else None

    def _is_there(self, host: ShutHost) -> bool:
        lives = host.pilot in self.sessions
        return lives and (host.attempt is None or host.attempt in self.live.pilots.held.get(host.pilot, ()))

    # --- changes ----------------------------------------------------------------------------------------------------

    async def change(self, changed: Sequence[HostState], *notes: AuditNote, forget: int = 0) -> None:
        """Also for claims on their way. Raises LodesmanError: all is as before."""
        shut_hosts = [self.shut.get(host) for host, _ in changed]
        before = [
            HostState(host, shut_host.record if shut_host else None)
            for (host, _), shut_host in zip(changed, shut_hosts, strict=True)
        ]
        self.take(changed)
        shut = {host for host, record in changed if record is not None and record.shut}
        pilots = [pilot for pilot, session in self.sessions.items() if session.host in shut] if shut else []
        command: Command[None] = Change(set_hosts, self.live, changed, pilots, forget=forget)
        for note in notes:
            command = AuditedCommand(command, note)
        self.commands.post_all()
        try:
            await self.commands.run(command)
        except LodesmanError:
            self.take(before)
            raise

    async def judge(self, judged: Sequence[HostState], forget: int) -> None:
        """Follow the background process. Raises LodesmanError."""
        stored = host_records(self.db)
        changed = [state for state in judged if still_holds(state.record, stored.get(state.host))]
        noted = [state for state in changed if state.record is not None or state.host in self.shut]
        await self.change(changed, *map(_note, noted), forget=forget)

    async def fail_node(self, host: HostName, fault: str) -> None:
        """A pilot found the machine of no use."""
        words = fault or "its pilot does not say why"
        if not host.host:
            return
        record = shut_by_fault(host_record(self.db, host), words, self.clock())
        if record is not None:
            await self._settle(HostState(host, record))

    # --- probes -----------------------------------------------------------------------------------------------------

    def take_probe(
        self, session: PilotSession, reports: Sequence[ReportBody]
    ) -> tuple[ShutHost, ReportBody] | None:
        """The report that ends the probe of a pilot's host."""
        for report in reports if self.shut else ():
            host = self.has_probe(session, (report.id, report.attempt))
            if host is not None and report.state != "Running":
                host.attempt = None
                return host, report
        return None

    async def end_probe(self, host: ShutHost, name: HostName, end: ReportBody) -> None:
        """Open the host, leave it shut, or let another probe decide."""
        ran = 0.0 if end.started is None else (end.ended or self.clock()) - end.started
        record = after_probe(host.record, end.state, end.cause or "", ran, self.clock())
        if record is None:
            host.pilot = 0
        else:
            await self._settle(HostState(name, record))

    async def see_probes(self, session: PilotSession, running: Sequence[RunningBody]) -> None:
        """Open hosts whose probes have outlived a failure."""
        for job in running:
            host = self.has_probe(session, (job.id, job.attempt))
            if host is not None and job.wall_seconds > FAILS_WITHIN_S:
                await self._settle(HostState(session.host, open_host(host.record, self.clock())))

    async def _settle(self, state: HostState) -> None:
        try:
            await self.change([state], _note(state))
        except LodesmanError:
            host = self.shut.get(state.host)
            if host is not None:  # the next probe decides
                host.pilot = 0


def _note(state: HostState) -> AuditNote:
    host, record = state
    if record is None:
        words = "the jobs that failed there fail on other hosts, too"
        return AuditNote("host-opened", str(host), detail=words)
    if not record.shut:
        return AuditNote("host-opened", str(host), detail="its probe did not fail")
    return AuditNote("host-shut", str(host), detail=record.ground)
