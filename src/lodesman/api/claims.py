"""A pilot's claim over HTTP: posted to the journal, answered when it is committed (DESIGN 3.1, 3.3)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from lodesman.api import bodies
from lodesman.api.auth import authenticate, need_pilot
from lodesman.api.core import Core
from lodesman.api.direct import Asked, Reply, failed
from lodesman.api.wire import Scope, decode, error_answer, json_answer
from lodesman.commands.claim import Claim, Claimed, Unpark
from lodesman.commands.sessions import UNLIMITED, Ask, Free, PilotSession
from lodesman.errors import LodesmanError, Unavailable

CLAIM = msgspec.json.Decoder(bodies.ClaimBody)

# Seconds that a request may wait at the server: jitter keeps pilots from asking again all at once.
LONGEST_WAIT = 60.0
SHORTEST_WAIT = 45.0
NOTHING_MORE = b'{"jobs":[],"drain":true}'


class ClaimCall:
    """POST /v1/pilots/claim, as a direct call."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._jitter = random.Random()
        # Set when the server is about to end: what runs is given back then, and nothing new may begin.
        self.ending = False

    def __call__(self, scope: Scope, body: bytes, reply: Reply) -> Asked:
        """Post the claim. Raises LodesmanError when the pilot or its words are refused."""
        core = self.core
        pilot_id = need_pilot(authenticate(scope, core.lookup, core.clock()))
        asks = decode(CLAIM, body)
        session = core.session(pilot_id)
        asked = _AskedClaim(core, session, reply)
        if session.drain:
            reply(*json_answer(NOTHING_MORE))
        elif self.ending:
            raise Unavailable("The server is ending.", hint="Ask again when it is back.")
        else:
            asked.post(asks, self._patience(asks.wait_s))
        return asked

    def _patience(self, wait: float) -> float:
        """Seconds that the claim may wait, 0 for not at all."""
        if wait <= 0:
            return 0.0
        return min(wait, self._jitter.uniform(SHORTEST_WAIT, LONGEST_WAIT), self.core.lease_seconds / 2)


class _AskedClaim:
    """A claim on its way: answered by the journal; taken back when patience ends or the pilot hangs up."""

    __slots__ = ("_claim", "_core", "_left", "_reply", "_session", "_timer")

    def __init__(self, core: Core, session: PilotSession, reply: Reply) -> None:
        self._core = core
        self._session = session
        self._reply = reply
        # What may still wait at the journal, and until when.
        self._claim: Claim | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left = False

    def post(self, asks: bodies.ClaimBody, patience: float) -> None:
        """Hand it to the journal. Raises Unavailable when the server is ending."""
        core, has = self._core, asks.resource
        free = Free(has.cores, has.memory_mb or UNLIMITED, has.norm_cpu_seconds or UNLIMITED)
        self._session.asked = Ask(core.clock(), free, asks.count)
        claim = Claim(
            core.live,
            session=self._session,
            free=free,
            count=asks.count,
            claim_token=asks.claim_token,
            wait=patience > 0,
            answer=self._answered,
        )
        core.post_together(claim, self._answered)
        if patience > 0:
            self._claim = claim
            self._timer = asyncio.get_running_loop().call_later(patience, self.end_soon)

    def gone(self) -> None:
        """The pilot hung up: it must win nothing any more."""
        self._left = True
        self.end_soon()

    def end_soon(self) -> None:
        """Let the claim wait no longer; if it waits, it is answered with nothing."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._stop_waiting()
            try:
                self._core.journal.post(Unpark(claim), _nobody)
            except LodesmanError as ending:
                self._reply(*error_answer(ending))

    def _answered(self, result: Any) -> None:
        self._claim = None
        self._stop_waiting()
        if isinstance(result, LodesmanError):
            self._reply(*error_answer(result))
        elif result or not self._left:
            try:
                answer = json_answer(self._render(result))
            except LodesmanError as fault:
                answer = error_answer(fault)
            except Exception as bug:  # the claim is committed; the pilot asks again
                answer = failed("/v1/pilots/claim", bug)
            self._reply(*answer)

    def _render(self, claimed: list[Claimed]) -> bytes:
        core, session = self._core, self._session
        session.last_seen = core.ticks()
        core.claims += 1
        core.claimed_jobs += len(claimed)
        return core.templates.render(claimed, drain=session.drain)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nobody(_result: Any) -> None:
    """The answer to a command whose outcome nobody waits for."""
