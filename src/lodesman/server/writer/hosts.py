"""Hosts that get no jobs, and which claims the event loop lets pass (ADR 0044)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lodesman.decide.director.hosts import may_probe
from lodesman.server.store.hosts import forget_failures, put_records
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.bookings import Attempt
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.sessions import PilotSession
from lodesman.wire.hosts import HostName, HostRecord, HostState


def set_hosts(
    tx: Transaction,
    live: WriterState,
    changed: Collection[HostState],
    pilots: Iterable[int],
    *,
    forget: int = 0,
) -> None:
    """`pilots`: on newly shut hosts; their claims are answered."""
    put_records(tx, changed)
    for pilot_id in pilots:
        live.parked.end_of_pilot(tx, pilot_id)
    if forget:
        forget_failures(tx, forget)


@dataclass(slots=True, eq=False)
class ShutHost:
    """A shut host and its probe."""

    record: HostRecord
    pilot: int = 0  # the pilot that asks for the probe, 0: none
    attempt: Attempt | None = None  # the probe, once the pilot has it
    resting: set[Callable[[], None]] = field(
        default_factory=set
    )  # each ends a poll that gets nothing meanwhile

    def answered(self, jobs: Iterable[Attempt]) -> None:
        """With one job or none."""
        self.attempt = next(iter(jobs), None)
        if self.attempt is None:
            self.pilot = 0


@dataclass(slots=True, eq=False)
class HostGate:
    """The shut hosts. For the event loop; a claim costs one lookup."""

    live: WriterState
    sessions: Mapping[int, PilotSession]
    shut: dict[HostName, ShutHost] = field(default_factory=dict)

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
        """The pilot's shut host, if this attempt is the probe."""
        host = self.shut.get(session.host)
        return host if host is not None and (host.pilot, host.attempt) == (session.id, attempt) else None

    def _is_there(self, host: ShutHost) -> bool:
        """Whether it may still come or go on."""
        lives = host.pilot in self.sessions
        return lives and (host.attempt is None or host.attempt in self.live.pilots.held.get(host.pilot, ()))
