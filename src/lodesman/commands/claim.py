"""Claiming: a pilot's request becomes attempts, in one transaction (DESIGN 3.1, 3.3).

The only decision taken on the writer's thread. A request that finds nothing parks; the batch that brings
fitting jobs answers it in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lodesman.commands.live import Live
from lodesman.commands.sessions import Free, PilotSession
from lodesman.errors import Unauthorized
from lodesman.store.journal import PARKED, Transaction
from lodesman.store.write.attempts import Claimed, ClaimFacts, append_claim, claimed_with


class Claim:
    """A pilot asks for up to `count` jobs that fit what its session has free.

    Answered with a list of Claimed. If nothing fits and `wait` is set, the command parks and is answered by
    a later batch, or by `Unpark` when the pilot's patience ends.
    """

    brief = True
    __slots__ = (
        "answer",
        "claim_token",
        "count",
        "free",
        "live",
        "pilot_id",
        "pools_version",
        "request",
        "session",
        "since",
        "wait",
    )

    def __init__(
        self,
        live: Live,
        *,
        session: PilotSession,
        free: Free,
        count: int,
        claim_token: str,
        wait: bool,
        answer: Callable[[Any], None],
    ) -> None:
        self.live = live
        self.session = session
        self.free = free
        self.pilot_id = session.id
        self.pools_version = live.pools.version
        self.request = session.request(free, live.pools)
        self.count = count
        self.claim_token = claim_token
        self.wait = wait
        self.answer = answer
        self.since = 0.0

    def apply(self, tx: Transaction) -> Any:
        """Claim, or park. Raises Unauthorized if the pilot has ended, which its session may not know yet."""
        if self.pilot_id not in self.live.running:
            raise Unauthorized("This pilot has ended.", pilot=self.pilot_id)
        # Nobody listens any more to what this pilot asked before: it must win no job.
        self.live.unpark_pilot(tx, self.pilot_id)
        before = self._asked_before(tx)
        if before is not None:
            return before
        claimed = self.claim(tx)
        if not claimed and self.wait:
            self.since = tx.now
            self.live.park(tx, self)
            return PARKED
        return claimed

    def look_up_pools(self) -> None:
        """Present what the queue serves now: the SubmitPools may have changed since the request was made."""
        pools = self.live.pools
        if self.pools_version != pools.version:
            self.pools_version = pools.version
            self.request = self.session.request(self.free, pools)

    def claim(self, tx: Transaction) -> list[Claimed]:
        """Choose and claim now; writes attempt, event and job rows."""
        live = self.live
        self.look_up_pools()
        chosen = live.matcher.choose(self.request, self.count, now=tx.now, rng=live.rng, undo=tx.undo)
        if not chosen:
            return []
        eligible = live.matcher.eligible_groups(chosen) if live.observes_shares() else None
        facts = ClaimFacts(self.pilot_id, self.claim_token, self.request.site, eligible)
        claimed = [c for tq_id in chosen if (c := self._claim_one(tx, tq_id, facts)) is not None]
        self._remember(tx, claimed)
        return claimed

    def _claim_one(self, tx: Transaction, tq_id: int, facts: ClaimFacts) -> Claimed | None:
        live = self.live
        job = live.fronts.take(tx, tq_id)
        if job is None:
            # The counter says that a job waits and there is none: nothing may be claimed.
            live.count_was_wrong(tx, tq_id)
            return None
        live.claims.claimed(tx, append_claim(tx, live.ids, facts, tq_id, job), tq_id)
        return Claimed(job.id, job.attempt + 1, job.template_id, job.submission_id)

    def _asked_before(self, tx: Transaction) -> list[Claimed] | None:
        """What was answered to the same claim token, if this pilot used it before."""
        last = self.live.last_claims.get(self.pilot_id)
        if last is not None:
            return last[1] if last[0] == self.claim_token else None  # type: ignore[return-value]
        # The first claim of this pilot since the server started: the answer may predate the start.
        return claimed_with(tx, self.pilot_id, self.claim_token) or None

    def _remember(self, tx: Transaction, claimed: list[Claimed]) -> None:
        last = self.live.last_claims
        before = last.get(self.pilot_id)
        last[self.pilot_id] = (self.claim_token, claimed)

        tx.undo.append(
            partial(last.pop, self.pilot_id, None)
            if before is None
            else partial(last.__setitem__, self.pilot_id, before)
        )


class Unpark:
    """The pilot's patience ended (or it went away): answer what is parked with nothing."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: Claim) -> None:
        self.ticket = ticket

    def apply(self, tx: Transaction) -> None:
        """Answer the ticket if it is still parked."""
        if self.ticket.live.unpark(tx, self.ticket):
            tx.answers.append((self.ticket.answer, []))


def serve_parked(live: Live, tx: Transaction) -> None:
    """Let parked requests claim what this batch brought; called at the end of each batch."""
    while live.filled:
        filled, live.filled = live.filled, {}
        for ticket in live.woken(filled):
            claimed = ticket.claim(tx)
            if claimed and live.unpark(tx, ticket):
                tx.answers.append((ticket.answer, claimed))
    live.write_claims(tx, only_if_due=True)
