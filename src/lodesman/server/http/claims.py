"""A pilot's claim: posted to the journal, answered after the commit.

`main.guarded` makes most claims straight from the parser, as a direct call (ADR 0021); unusual ones come by ASGI.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from lodesman.base.errors import InvalidRequest, LodesmanError, Unavailable
from lodesman.server.http.auth import authorise, identify
from lodesman.server.http.dispatch import Request, failed, serves
from lodesman.server.http.wire import (
    Answer,
    Disconnected,
    Headers,
    Response,
    Scope,
    decode,
    error_answer,
    json_answer,
)
from lodesman.server.live.core import Core
from lodesman.server.live.hosts import ShutHost
from lodesman.server.store.journal import Change
from lodesman.server.writer.bound import claim_bound
from lodesman.server.writer.claim import Claim, unpark
from lodesman.server.writer.sessions import UNLIMITED, FreeResources, LastClaim, PilotSession
from lodesman.wire import calls
from lodesman.wire.call import Nothing
from lodesman.wire.pilots import ClaimAnswer
from lodesman.wire.requests import ClaimBody

_CLAIM = msgspec.json.Decoder(ClaimBody)
# The most seconds that a request waits at the server: jitter keeps pilots from asking again all at once.
_LONGEST_WAIT = 60.0
_SHORTEST_WAIT = 45.0
_JITTER = random.Random()
_NOTHING_MORE = b'{"jobs":[],"drain":true}'
_SHUT = "the host of its pilot gets no jobs"

# Status, headers, body; called once, on the event loop, unless the client went away before.
Reply = Callable[[int, Headers, bytes], None]


@dataclass(slots=True, eq=False)
class AskedClaim:
    """A claim on its way: taken back when its time ends or the pilot hangs up."""

    core: Core
    session: PilotSession
    reply: Reply
    # What may still wait at the journal, and until when.
    _claim: Claim | None = None
    _timer: asyncio.TimerHandle | None = None
    _left: bool = False
    _rests_for: ShutHost | None = None
    _probe: ShutHost | None = None

    def post(self, asks: ClaimBody, seconds: float) -> None:
        """Let it wait for that time at most. Raises Unavailable at the end of the server."""
        core, has = self.core, asks.resource
        free = FreeResources(
            has.cores, has.memory_mb or UNLIMITED, has.norm_cpu_seconds or UNLIMITED, has.last_end_s
        )
        if asks.count:
            self.session.last_claim = LastClaim(core.clock(), free, asks.count)
        claim = Claim(
            core.live, session=self.session, free=free, count=asks.count, claim_token=asks.claim_token,
            wait=seconds > 0, answer=self._answered, subtracts=True, ahead=asks.ahead,
        )  # fmt: skip
        core.commands.post_together(claim, self._answered)
        if seconds > 0:
            self._claim = claim
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end_soon)

    def post_bound(self, asks: ClaimBody) -> None:
        """Ask for the only job of a bound pilot."""
        core, session, has = self.core, self.session, asks.resource
        free = FreeResources(has.cores, has.memory_mb or UNLIMITED, has.norm_cpu_seconds or UNLIMITED)
        session.last_claim = LastClaim(core.clock(), free, asks.count)
        refused = _SHUT if session.host in core.hosts.shut else "it was drained" if session.drain else ""
        claim = Change(claim_bound, core.live, session.id, asks.claim_token, refused)
        core.commands.post_together(claim, self._answered)

    def rest(self, host: ShutHost, seconds: float) -> None:
        """Get nothing until that time or the host's opening."""
        self._rests_for = host
        host.resting.add(self.end_soon)
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end_soon)

    def post_probe(self, host: ShutHost, asks: ClaimBody, seconds: float) -> None:
        """Ask for one job, by which its host is judged."""
        self._probe = host
        self.post(msgspec.structs.replace(asks, count=1, ahead=0), seconds)

    def gone(self) -> None:
        """The pilot hung up: it must win nothing any more."""
        self._left = True
        self.end_soon()

    def end_soon(self) -> None:
        """Answer it with nothing if it waits."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self._stop_waiting()
            try:
                self.core.journal.post(Change(unpark, claim), lambda _: None)
            except LodesmanError as ending:
                self.reply(*error_answer(ending))
        elif self._rests_for is not None:
            self._answered([])

    def _answered(self, result: Any) -> None:
        core, self._claim = self.core, None
        self._stop_waiting()
        if self._probe is not None:
            self._probe.answered(
                () if isinstance(result, Exception) else [(job.job_id, job.attempt) for job in result]
            )
        if isinstance(result, LodesmanError):
            self.reply(*error_answer(result))
        elif result or not self._left:
            try:
                self.session.hear(core.ticks())
                counts = core.counts
                counts.claims += 1
                counts.claimed_jobs += len(result)
                drain = self.session.drain or self.session.bound_job is not None
                answer = json_answer(core.templates.render(result, drain=drain))
            except LodesmanError as fault:
                answer = error_answer(fault)
            except Exception as bug:  # the claim is committed; the pilot asks again
                answer = failed(calls.CLAIM.path, bug)
            self.reply(*answer)

    def _stop_waiting(self) -> None:
        if self._rests_for is not None:
            self._rests_for.resting.discard(self.end_soon)
            self._rests_for = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# A direct call: the head, the body, where the answer goes. Raises LodesmanError.
DirectCall = Callable[[Scope, bytes, Reply], AskedClaim]


def begin(call: DirectCall, scope: Scope, body: bytes, reply: Reply) -> AskedClaim | None:
    """None if it was refused, which is replied."""
    try:
        return call(scope, body, reply)
    except LodesmanError as error:
        reply(*error_answer(error))
    except Exception as bug:  # a bug costs one request, never the server
        reply(*failed(scope["path"], bug))
    return None


def direct_claim(core: Core, scope: Scope, body: bytes, reply: Reply) -> AskedClaim:
    """The claim as a direct call."""
    who = scope.get("principal") or identify(core, scope)
    authorise(who, calls.CLAIM.who)
    return _begin(core, who.pilot_id, decode(_CLAIM, body), reply)


def _begin(core: Core, pilot_id: int, asks: ClaimBody, reply: Reply) -> AskedClaim:
    session = core.sessions.hear(pilot_id)
    if not (asks.count or asks.ahead):
        raise InvalidRequest(
            "A claim asks for one job at least: count or ahead is above 0.", parameter="count"
        )
    claim = AskedClaim(core, session, reply)
    if session.drain and session.bound_job is None:
        reply(*json_answer(_NOTHING_MORE))
        return claim
    if core.ending:
        raise Unavailable("The server is ending.", hint="Ask again when it is back.")
    if session.bound_job is not None:
        claim.post_bound(asks)
        return claim
    seconds = max(0.0, min(asks.wait_s, core.sessions.lease_seconds / 2)) if asks.count else 0.0
    if seconds > _SHORTEST_WAIT:
        seconds = min(seconds, _JITTER.uniform(_SHORTEST_WAIT, _LONGEST_WAIT))
    shut = core.hosts.shut.get(session.host) if core.hosts.shut else None
    if shut is None:
        claim.post(asks, seconds)
    elif asks.count and core.hosts.probe(shut, session.id, core.clock()):
        claim.post_probe(shut, asks, seconds)
    elif (last := core.live.pilots.last_claims.get(session.id)) and last[0] == asks.claim_token:
        claim.post(asks, 0.0)  # the answer was lost: it gets that again, and nothing new
    else:
        claim.rest(shut, seconds)
    return claim


@serves(calls.CLAIM)
async def _claim(core: Core, request: Request[Nothing, ClaimBody]) -> ClaimAnswer | Response:
    """Raises Disconnected when the pilot hangs up first."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def reply(status: int, headers: Headers, text: bytes) -> None:
        if not done.done():
            done.set_result((status, headers, text))

    claim = _begin(core, request.who.pilot_id, request.body, reply)
    gone = asyncio.ensure_future(request.receive())
    either: tuple[asyncio.Future[Any], ...] = (done, gone)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not done.done():
            done.cancel()
            claim.gone()
    if done.cancelled():
        raise Disconnected
    status, headers, text = done.result()
    return Response(text, status, {name.decode(): value.decode() for name, value in headers})
