"""The hot process's application: changes, and what pilots ask often; all else is forwarded.

A forwarded request has a connection of its own, closed from here: a server that closes it while a body comes loses
its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from lodesman.base.errors import (
    InvalidRequest,
    LodesmanError,
    NotFound,
    TooOften,
    Unavailable,
    counted,
)
from lodesman.server.http import (
    claims,
    health,
    hosts,
    job_classes,
    jobs,
    pilots,
    quotas,
    service,
    sites,
    users,
    waiting,
    wire,
)
from lodesman.server.http.auth import admits, authenticate, authorise, identify
from lodesman.server.http.dispatch import Dispatcher
from lodesman.server.http.wire import ORIGIN, Answer, Disconnected, Headers, Receive, Scope, Send, origin_of
from lodesman.server.live.core import Core
from lodesman.server.live.pulse import Pulse
from lodesman.server.writer.accounts import SITE
from lodesman.wire import calls, inner_calls
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Call, encode
from lodesman.wire.client.exchange import HttpAnswer, fault_of
from lodesman.wire.jsv import VerifyAnswer, VerifyBody

_HEAD_LIMIT = 65_536
_CHUNK = 1 << 16
_ANSWER_SECONDS = 120.0
_HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"}
)

# They need no token.
_OPEN = frozenset({calls.HEALTH.path, calls.OPENAPI.path})


def _too_often(what: str) -> Answer:
    words = f"Too many requests of this address {what}."
    return wire.error_answer(TooOften(words, hint="Check the token, and try again later."))


class HotApp(Dispatcher[Core]):
    """`forward` answers what is no call of this process."""

    def __init__(
        self,
        core: Core,
        forward: Callable[[Scope, Receive, Send], Awaitable[None]],
    ) -> None:
        modules = (claims, health, hosts, job_classes, jobs, pilots, quotas, service, sites, users, waiting)
        super().__init__("hot", core, modules)
        self.forward = forward
        self.admits = partial(admits, core)
        # The web server's protocol makes these itself (`main.guarded`), unless something is unusual.
        self.direct: dict[str, claims.DirectCall] = {calls.CLAIM.path: partial(claims.direct_claim, core)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if await self._is_too_often(scope):
            await super()._refuse(scope, send, _too_often("have no token"))
        else:
            await super().__call__(scope, receive, send)

    def authenticate(self, scope: Scope, call: Call[Any, Any, Any]) -> Principal:
        """Pilots find out where they run before they join."""
        return identify(self.state, scope, joining=call is calls.SERVED_POOLS)

    def check(self, who: Principal) -> None:
        """Pilots that have ended have no session any more."""
        if who.kind in ("user", SITE):
            self.state.principals.check(who)

    async def _is_too_often(self, scope: Scope) -> bool:
        if scope["path"] not in _OPEN or self.admits(scope):
            return False
        return await self.state.strangers.wait_if_many(origin_of(scope), is_open=True)

    async def _refuse(self, scope: Scope, send: Send, answer: Answer) -> None:
        """A refusal of a stranger may take its time."""
        if "principal" not in scope and await self.state.strangers.wait_if_many(origin_of(scope)):
            answer = _too_often("were refused")
        await super()._refuse(scope, send, answer)

    async def otherwise(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward it. Without the reading process there are metrics of this one."""
        who = None if scope["path"] == calls.OPENAPI.path else identify(self.state, scope)
        try:
            await self._forward_as_long(who, scope, receive, send)
        except Unavailable:
            if who is None or (scope["method"], scope["path"]) != (calls.METRICS.method, calls.METRICS.path):
                raise
            self.state.principals.check(who)
            authorise(who, calls.METRICS.who)
            await wire.send_answer(
                send, *wire.metrics_answer(health.own_metrics(self.state, of_all=who.admin))
            )

    async def _forward_as_long(
        self, who: Principal | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Raises Disconnected to break off an answer that has begun."""
        has_begun = False

        async def note(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with nullcontext() if who is None else self.state.principals.held(who):
                await self.forward(scope, receive, note)
        except LodesmanError:
            if has_begun:
                raise Disconnected from None
            raise


class InnerApp(Dispatcher[Core]):
    """What the server's own processes ask, on a Unix socket."""

    def __init__(self, core: Core) -> None:
        super().__init__("inner", core, (health, hosts, service))

    def authenticate(self, scope: Scope, _call: Call[Any, Any, Any]) -> Principal:
        """By the token of the background process."""
        return authenticate(scope, self.state.principals.lookup, self.state.clock())

    async def otherwise(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """There is nothing else."""
        raise NotFound(f"No such endpoint: {scope['method']} {scope['path'][:200]}.")


async def forward(pulse: Pulse, scope: Scope, receive: Receive, send: Send) -> None:
    """Raises Unavailable while the reading process is away or silent, Disconnected if the client has gone."""
    reader, writer = await _connected(pulse, "reads")
    try:
        writer.write(_head(scope))
        sending = asyncio.ensure_future(_send_body(receive, writer))
        try:
            length = wire.content_length(scope) or 0
            head = _answer_head(reader, _ANSWER_SECONDS + length / wire.SLOWEST_BYTES)
            status, headers = await pulse.watch(head)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            size = b"0" if scope["method"] == "HEAD" else dict(headers).get(b"content-length", b"-1")
            await _answer_body(reader, send, int(size))
        except Unavailable:
            if sending.done() and sending.exception() is None and sending.result():
                raise Disconnected from None
            raise
        finally:
            sending.cancel()
            await asyncio.wait({sending})
    finally:
        writer.close()


async def _connected(pulse: Pulse, does: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises Unavailable while there is no such process."""
    with suppress(OSError):
        return await pulse.connect(limit=_HEAD_LIMIT)
    if pulse.health.standing(pulse.ticks()) != "restarting":
        raise Unavailable(f"The part of the server that {does} is starting.", hint="Try again.")
    raise Unavailable(
        f"The part of the server that {does} ends again and again ({counted(pulse.health.restarts, 'time')}), "
        "and is started again.",
        hint="Administrators: see the server's log. Else try again.",
    )


async def ask_verifier(pulse: Pulse, token: str, body: VerifyBody) -> VerifyAnswer:
    """Raises what the server's JSV refuses, and Unavailable."""
    call, raw = inner_calls.VERIFY, encode(body)
    head = f"{call.method} {call.path} HTTP/1.1\r\nauthorization: Bearer {token}\r\ncontent-length: {len(raw)}\r\n\r\n"
    reader, writer = await _connected(pulse, "checks jobs")
    try:
        writer.write(head.encode() + raw)
        status, headers = await pulse.watch(_answer_head(reader, call.timeout))
        content = await reader.readexactly(int(dict(headers)[b"content-length"]))
    except (ConnectionError, asyncio.IncompleteReadError):
        raise Unavailable("The part of the server that checks jobs has ended.", hint="Try again.") from None
    finally:
        writer.close()
    answer = HttpAnswer(status, "", content)
    if not answer.good:
        fault = fault_of(answer)
        del fault.data["status"]  # it is said again
        raise fault
    return call.read(content)


async def _answer_head(reader: asyncio.StreamReader, seconds: float) -> tuple[int, Headers]:
    try:
        async with asyncio.timeout(seconds):
            head = await reader.readuntil(b"\r\n\r\n")
        status, *lines = head.rstrip(b"\r\n").split(b"\r\n")
        parts = [line.partition(b":") for line in lines]
        headers = [(name.lower(), value.strip()) for name, _, value in parts if name.lower() not in _HOP]
        return int(status.split(b" ", 2)[1]), headers
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
        hint = "Try again."
        raise Unavailable("The part of the server that reads did not answer.", hint=hint) from None


async def _answer_body(reader: asyncio.StreamReader, send: Send, left: int) -> None:
    """Pass on `left` bytes (-1: all). Raises Disconnected if they break off, so that the client sees it."""
    try:
        while left and (chunk := await reader.read(_CHUNK)):
            left -= len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except ConnectionError:
        raise Disconnected from None
    if left > 0:
        raise Disconnected
    await send({"type": "http.response.body", "body": b""})


def _head(scope: Scope) -> bytes:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    lines = [scope["method"].encode() + b" " + scope["raw_path"].split(b"?")[0] + query + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in _HOP and name != ORIGIN]
    lines.append(ORIGIN + b": " + origin_of(scope).encode())
    chunked = wire.header(scope, b"transfer-encoding")
    if chunked or (scope["method"] in ("POST", "PUT", "PATCH") and not wire.header(scope, b"content-length")):
        raise InvalidRequest("The request needs a Content-Length.")
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _send_body(receive: Receive, writer: asyncio.StreamWriter) -> bool:
    """Ends the connection if the body stops or the client goes; returns whether it has gone."""
    more = True
    while more:
        try:
            async with asyncio.timeout(wire.BODY_SECONDS):
                message = await receive()
                writer.write(message.get("body", b""))
                await writer.drain()
        except (OSError, TimeoutError):
            writer.close()
            return False
        more = message.get("more_body", False)
    if message["type"] != "http.disconnect":
        await wire.gone(receive)
    writer.close()
    return True
