"""Claims: a pilot's request becomes attempts in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from lodesman.base.errors import Unauthorized
from lodesman.decide.explain.pilot_facts import PilotNow, amounts
from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.lottery import SharedSlot
from lodesman.decide.matching.matcher import Remainder
from lodesman.server.store.journal import PARKED
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.attempts import ALONE, ClaimedAttempt, ClaimFacts, append_claim, claimed_with
from lodesman.server.writer.bookings import MOST_HANDED_IN, left_of
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.sessions import SILENT_SECONDS, UNLIMITED, FreeResources, LastClaim, PilotSession
from lodesman.wire.vocabulary import FreeBy, Waking

log = logging.getLogger(__name__)

# The most that a pilot may have ahead.
MOST_AHEAD = 1_000
# The last claim if it brought nothing: no token is empty.
_NOTHING: tuple[str, list[ClaimedAttempt]] = "", []


@dataclass(slots=True, eq=False)
class Claim:
    """A pilot asks for up to `count` jobs that fit what its session has free.

    Up to `ahead` more, each fitting the whole pilot, are added at the end of the batch, if no other pilot could
    start them now (ADR 0077). If nothing fits and `wait` is set, the claim parks, unless `count` is 0; a later
    batch or `unpark` answers.
    """

    brief = True
    live: WriterState
    session: PilotSession
    free: FreeResources
    count: int
    claim_token: str
    wait: bool
    answer: Callable[[Any], None]
    subtracts: bool = False  # at most what its live attempts leave is free, whatever it says
    ahead: int = 0
    since: float = 0.0
    pilot_id: int = field(init=False)
    pools_version: int = field(init=False)
    request: ResourceRequest = field(init=False)
    place: RunPlace = field(init=False)
    # Jobs beyond what is free, to begin when others end.
    prefetched: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self.pilot_id = self.session.id
        self.pools_version = self.live.pools.version
        self.request = self.session.request(self.free, self.live.pools)
        self.place = self.session.place

    def apply(self, tx: Transaction) -> Any:
        """Claim, or park. Raises Unauthorized if the pilot has ended."""
        if self.pilot_id not in self.live.pilots.running:
            raise Unauthorized("This pilot has ended.", pilot=self.pilot_id)
        # The pilot waits for its earlier claim no more: that must win no job.
        self.live.parked.end_of_pilot(tx, self.pilot_id)
        before = earlier_answer(tx, self.live, self.pilot_id, self.claim_token)
        if before is not None:
            return before
        claimed = self.claim(tx)
        if not claimed and self.wait and self.count:
            self.since = tx.now
            self.live.parked.park(tx, self)
            return PARKED
        return claimed

    def refresh_pools(self) -> None:
        """Present the SubmitPools that the queue serves now."""
        pools = self.live.pools
        if self.pools_version != pools.version:
            self.pools_version = pools.version
            self.request = self.session.request(self.free, pools)

    def _end_in_time(self, now: float) -> None:
        """Present only the life left until nothing may run there."""
        end = self.live.mask.end_of_jobs(self.session.queue, now)
        if end is not None:
            free = self.session.until(self.free, now, end)
            self.request, self.prefetched, self.ahead = self.session.request(free, self.live.pools), 0, 0

    def claim(self, tx: Transaction) -> list[ClaimedAttempt]:
        """Jobs ahead are added to this list later."""
        live = self.live
        self.refresh_pools()
        if live.mask.closings:
            self._end_in_time(tx.now)
        numbers, count, cores = self._allowed()
        shared = self._shared(tx, cores)
        left = Remainder(numbers, shared) if shared or numbers else None
        chosen, shares = self._choose(tx, self.request, count, left)
        if len(chosen) > 1:
            self._return_surplus(tx, chosen, cores)
        claimed = self._claim_all(tx, chosen, shares)
        goes_ahead = self.ahead > 0 and bool(claimed or not (self.wait and self.count))
        if claimed or goes_ahead:
            tx.put(live.pilots.last_claims, self.pilot_id, (self.claim_token, claimed))
        if goes_ahead:
            live.ahead.append(partial(self._go_ahead, claimed))
            tx.undo.append(live.ahead.clear)
        return claimed

    def _go_ahead(self, claimed: list[ClaimedAttempt], tx: Transaction) -> None:
        """No more than the pilot ended lately. It may have ended in this batch."""
        if self.pilot_id not in self.live.pilots.running:
            return
        offer, held = self.session.offer, self.live.pilots.held.get(self.pilot_id, {})
        pilots, most = self.live.pilots, offer.cores + MOST_HANDED_IN
        ahead = pilots.ahead_of(self.pilot_id)
        room = min(most + MOST_AHEAD - len(held), pilots.ended_lately(self.pilot_id, tx.now) - ahead)
        # Attempts being handed in take no cores: their number is limited, as without anything ahead.
        if room > 0 and len(held) - ahead <= most:
            whole = replace(self.free, cores=offer.cores, memory_mb=offer.memory_mb)
            request = self.session.request(whole, self.live.pools)
            chosen, shares = self._choose(tx, request, min(self.ahead, room))
            claimed += self._claim_all(tx, chosen, shares, ahead=True)
        if not claimed:  # the same token gets what there is when it asks again
            tx.put(self.live.pilots.last_claims, self.pilot_id, _NOTHING)

    def _choose(
        self, tx: Transaction, request: ResourceRequest, count: int, left: Remainder | None = None
    ) -> tuple[list[int], Iterable[str | None]]:
        live, is_private = self.live, self.session.serves_one_group
        competed: list[str] | None = None if is_private or not live.queues.records_shares(live.rng) else []
        chosen = live.queues.matcher.choose(
            request,
            count,
            now=tx.now,
            rng=live.rng,
            undo=tx.undo,
            competed=competed,
            place=self.place,
            left=left,
        )
        return chosen, competed or repeat(ALONE if is_private else None)

    def _claim_all(
        self, tx: Transaction, chosen: Iterable[int], shares: Iterable[str | None], *, ahead: bool = False
    ) -> list[ClaimedAttempt]:
        site = self.request.site
        return [
            claimed
            for tq_id, of_draw in zip(chosen, shares, strict=False)
            if (
                claimed := take_job(
                    tx, self.live, ClaimFacts(self.pilot_id, self.claim_token, site, of_draw), tq_id, self.place,
                    ahead=ahead,
                )
            )
            is not None
        ]  # fmt: skip

    def can_take(self, key: TaskQueueKey) -> bool:
        """Whether its attempts leave enough cores and memory."""
        numbers, count, _ = self._allowed()
        return count > 0 and (not numbers or (key.cores <= numbers[0] and key.memory_mb <= numbers[1]))

    def _allowed(self) -> tuple[Sequence[int], int, int]:
        """What is left of the resource (as `Matcher.choose` takes it), how many jobs, and the cores for all but the
        last.

        A full pilot gets one job to prefetch: the report of an ended one may be on its way. Jobs ahead take
        nothing.
        """
        if not self.subtracts:
            return (), self.count, UNLIMITED
        offer, request = self.session.offer, self.request
        every = self.live.pilots.held.get(self.pilot_id, {})
        held = [hold for hold in every.values() if hold[0] >= 0]
        if len(every) > offer.cores + MOST_HANDED_IN + MOST_AHEAD:
            return (), 0, 0
        if not held:
            return (), min(self.count, request.cores + self.prefetched), request.cores
        cores, memory_mb = left_of(offer.cores, offer.memory_mb, held)
        if cores < 0 or len(held) > offer.cores + MOST_HANDED_IN:
            return (), 0, 0
        if not cores:
            return (), min(self.count, self.prefetched), 0
        cores = min(cores, request.cores)
        numbers = cores, min(max(0, memory_mb), request.memory_mb), request.norm_cpu_seconds
        return numbers, min(self.count, cores + self.prefetched), cores

    def _shared(self, tx: Transaction, cores: int) -> SharedSlot | None:
        """None if jobs are drawn, as for an idle pilot: a short first job would leave no less waste."""
        last_end_s, queues, in_all = self.free.last_end_s, self.live.queues, self.session.offer.cores
        if (
            last_end_s is None
            or in_all < 2
            or not (cores and queues.packs)
            or not (last_end_s or self.count > 1)
        ):
            return None
        waited = tx.now - self.since if self.since else 0.0
        return SharedSlot(in_all, cores, max(0.0, last_end_s - waited), self.session.scaling)

    def _return_surplus(self, tx: Transaction, chosen: list[int], cores: int) -> None:
        """Give back what is beyond the cores, but for what is prefetched."""
        index, left, beyond = self.live.queues.index, cores, 0
        for place, tq_id in enumerate(chosen):
            beyond += index.key(tq_id).cores > left
            if beyond > self.prefetched:
                # Undone, what is given back must not be given back again.
                for surplus in chosen[place:]:
                    index.undo_start(index.key(surplus), self.place)
                    index.add_waiting(surplus, 1, now=tx.now)
                del chosen[place:]
                return
            left -= index.key(tq_id).cores


def take_job(
    tx: Transaction, live: WriterState, facts: ClaimFacts, tq_id: int, place: RunPlace, *, ahead: bool = False
) -> ClaimedAttempt | None:
    """The next job of a task queue, if any; index and limits count it already."""
    key, job = live.queues.index.key(tq_id), live.queues.fronts.take(tx, tq_id)
    if job is None:
        # The counter was wrong: no job waits, nothing may be claimed.
        surplus = live.queues.index.waiting(tq_id)
        log.error(
            "a task queue counted jobs that do not exist", extra={"task_queue": tq_id, "surplus": surplus}
        )
        live.queues.correct_count(tx, tq_id, 0)
        live.bookings.not_claimed(tx, key, place)
        return None
    live.queues.claims.claimed(tx, append_claim(tx, live.ids, facts, tq_id, job), tq_id)
    attempt = job.id, job.attempt + 1
    live.pilots.hold(tx, facts.pilot_id, attempt, key, place, ahead=ahead)
    live.bookings.claimed(tx, facts.pilot_id, attempt)
    return ClaimedAttempt(*attempt, job.template_id, job.submission_id)


def earlier_answer(
    tx: Transaction, live: WriterState, pilot_id: int, token: str
) -> list[ClaimedAttempt] | None:
    """The answer to the same claim token, if there was one."""
    last = live.pilots.last_claims.get(pilot_id)
    if last is not None:
        if last[0] != token:
            return None
        held = live.pilots.held.get(pilot_id, {})
        left = [job for job in last[1] if (job.job_id, job.attempt) in held]
        # The list itself if it is whole: the end of this batch may add jobs ahead to it.
        return left if len(left) < len(last[1]) else last[1]
    # The pilot's first claim since the server started: the answer may be older.
    return claimed_with(tx, pilot_id, token) or None


def unpark(tx: Transaction, claim: Claim) -> None:
    """Answer a parked claim with nothing."""
    if claim.live.parked.unpark(tx, claim):
        tx.answers.append((claim.answer, []))


def serve_parked(live: WriterState, tx: Transaction) -> None:
    """Let parked claims take what a batch brought, and announce the rest."""
    freed, live.pilots.freed = live.pilots.freed, set()
    waiting = [claim for pilot_id in sorted(freed) if (claim := live.parked.of_pilot(pilot_id)) is not None]
    live.parked.serve(tx, waiting)
    live.parked.serve_freed(tx, live.queues.matcher)
    live.queues.note_eased()
    while live.queues.filled:
        filled, live.queues.filled = live.queues.filled, {}
        live.parked.serve(tx, live.parked.woken(filled))
    # Now each has what it can run: no waiting pilot could start what is left.
    going, live.ahead = live.ahead, []
    for go_ahead in going:
        go_ahead(tx)
    if live.queues.begun and live.queues.take_begun():
        tx.answers.append((live.announce, Waking.JOBS))
    live.queues.write_claims(tx, only_if_due=True)


def examine_pilot(
    tx: Transaction, live: WriterState, session: PilotSession, promised: Sequence[tuple[int, int]], *,
    joined: bool, silent_seconds: float | None,
) -> PilotNow:  # fmt: skip
    """The pilot now, with the request of its next claim; reads memory only. `promised`: (cores, memory_mb; 0: its
    cores' part) of its jobs.
    """
    claim = live.parked.of_pilot(session.id)
    end = live.mask.end_of_jobs(session.queue, tx.now)
    whole, last_claim = session.whole(tx.now, end), session.last_claim
    if claim is not None:
        request, free_by = claim.request, FreeBy.WAITING
    else:
        free_by = FreeBy.ASKED if last_claim and not promised else FreeBy.RECKONED
        request = session.request(reckon_free(whole, last_claim, promised), live.pools)
    return PilotNow(
        at=tx.now,
        joined=joined,
        whole=amounts(whole.cores, whole.memory_mb, whole.norm_cpu_seconds),
        request=request,
        free_by=free_by,
        asked_at=None if last_claim is None else last_claim.at,
        asked_jobs=None if last_claim is None else last_claim.jobs,
        waits_since=None if claim is None else claim.since,
        silent_seconds=silent_seconds,
        is_silent=(silent_seconds or 0.0) > SILENT_SECONDS,
        chances=live.queues.matcher.chances(request, session.place.host),
    )


def reckon_free(
    whole: FreeResources, last_claim: LastClaim | None, promised: Sequence[tuple[int, int]]
) -> FreeResources:
    """What a pilot has free, as it reckons itself (`pilot.life.room`). Its last claim counts while nothing runs."""
    left = whole.norm_cpu_seconds
    if last_claim is not None:
        left = min(left, last_claim.free.norm_cpu_seconds)
        if not promised:
            return replace(last_claim.free, norm_cpu_seconds=left)
    cores, memory_mb = left_of(whole.cores, whole.memory_mb, promised)
    return FreeResources(max(0, cores), max(0, memory_mb), left)
