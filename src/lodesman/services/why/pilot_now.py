"""What only the hot process knows of a live pilot: when it asked, what it waits for, what it would be given now.

Looked up by a command on the writer's thread that changes nothing, with the request that its next claim would make.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lodesman.answers.vocabulary import FreeBy
from lodesman.commands.live import Live
from lodesman.commands.sessions import Ask, Free, PilotSession
from lodesman.matching import ResourceRequest
from lodesman.matching.matcher import Chances
from lodesman.store.journal import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotNow:
    """As of `at` (UNIX seconds). `whole` is all that it offers, `request` what a claim would present now; `waits_since`
    is set while a long poll of it waits.
    """

    at: float
    joined: bool
    whole: Free
    request: ResourceRequest
    free_by: FreeBy
    asked: Ask | None
    waits_since: float | None
    silent_seconds: float | None
    chances: Chances


@dataclass(slots=True)
class LookAtPilot:
    """Answers PilotNow. `used` is what the jobs that the pilot has were promised: (cores, memory_mb; 0: its cores'
    part) of each.
    """

    live: Live
    session: PilotSession
    used: list[tuple[int, int]]
    joined: bool
    silent_seconds: float | None

    def apply(self, tx: Transaction) -> PilotNow:
        """Reads memory only."""
        ticket = self.live.ticket_of(self.session.id)
        whole, asked = self.session.whole(tx.now), self.session.asked
        if ticket is not None:
            request, free_by = ticket.request, FreeBy.WAITING
        else:
            free_by = FreeBy.ASKED if asked and not self.used else FreeBy.RECKONED
            request = self.session.request(reckon(whole, asked, self.used), self.live.pools)
        return PilotNow(
            at=tx.now,
            joined=self.joined,
            whole=whole,
            request=request,
            free_by=free_by,
            asked=asked,
            waits_since=None if ticket is None else ticket.since,
            silent_seconds=self.silent_seconds,
            chances=self.live.matcher.chances(request),
        )


def reckon(whole: Free, asked: Ask | None, used: list[tuple[int, int]]) -> Free:
    """What a pilot has free that does not wait for jobs, as it reckons itself (`pilot.life.room`).

    Its own last word counts while nothing runs; what is left of its life is less than it said then.
    """
    left = whole.norm_cpu_seconds
    if asked is not None:
        left = min(left, asked.free.norm_cpu_seconds)
        if not used:
            return replace(asked.free, norm_cpu_seconds=left)
    cores = whole.cores - sum(n for n, _ in used)
    memory_mb = whole.memory_mb - sum(mb or whole.memory_mb * n // max(1, whole.cores) for n, mb in used)
    return Free(max(0, cores), max(0, memory_mb), left)
