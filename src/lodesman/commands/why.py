"""What the writer does for explanations: it keeps the reasons of task queues, and answers what a pilot would be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lodesman.answers.vocabulary import FreeBy
from lodesman.commands.live import Live
from lodesman.commands.sessions import SILENT_SECONDS, Ask, Free, PilotSession
from lodesman.store.journal import Transaction
from lodesman.store.write.task_queues import store_reasons
from lodesman.why.pilot import PilotNow, amounts


@dataclass(slots=True)
class StoreReasons:
    """Store what changed: task queue -> (reason, detail); None for one whose jobs wait no more."""

    changed: Mapping[int, tuple[str, str] | None]
    facts_at: float | None

    def apply(self, tx: Transaction) -> int:
        """Returns how many changed."""
        store_reasons(tx, self.changed, self.facts_at)
        return len(self.changed)


@dataclass(slots=True)
class ExaminePilot:
    """Answers PilotNow, with the request that the pilot's next claim would make; changes nothing.

    `promised`: (cores, memory_mb; 0: its cores' part) of each job that the pilot has.
    """

    live: Live
    session: PilotSession
    promised: Sequence[tuple[int, int]]
    joined: bool
    silent_seconds: float | None

    def apply(self, tx: Transaction) -> PilotNow:
        """Reads memory only."""
        claim = self.live.parked.of_pilot(self.session.id)
        whole, asked = self.session.whole(tx.now), self.session.asked
        if claim is not None:
            request, free_by = claim.request, FreeBy.WAITING
        else:
            free_by = FreeBy.ASKED if asked and not self.promised else FreeBy.RECKONED
            request = self.session.request(reckon(whole, asked, self.promised), self.live.pools)
        return PilotNow(
            at=tx.now,
            joined=self.joined,
            whole=amounts(whole.cores, whole.memory_mb, whole.norm_cpu_seconds),
            request=request,
            free_by=free_by,
            asked_at=None if asked is None else asked.at,
            asked_jobs=None if asked is None else asked.jobs,
            waits_since=None if claim is None else claim.since,
            silent_seconds=self.silent_seconds,
            is_silent=(self.silent_seconds or 0.0) > SILENT_SECONDS,
            chances=self.live.queues.matcher.chances(request),
        )


def reckon(whole: Free, asked: Ask | None, promised: Sequence[tuple[int, int]]) -> Free:
    """What a pilot has free that does not wait for jobs, as it reckons itself (`pilot.life.room`).

    Its last claim counts while nothing runs; what is left of its life is less than it said then.
    """
    left = whole.norm_cpu_seconds
    if asked is not None:
        left = min(left, asked.free.norm_cpu_seconds)
        if not promised:
            return replace(asked.free, norm_cpu_seconds=left)
    cores = whole.cores - sum(n for n, _ in promised)
    memory_mb = whole.memory_mb - sum(mb or whole.memory_mb * n // max(1, whole.cores) for n, mb in promised)
    return Free(max(0, cores), max(0, memory_mb), left)
