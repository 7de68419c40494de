"""Connections that end when a request does not come in time, or when its head is too large.

The web server itself waits for ever and keeps all that comes. An answer leaves in one piece: a system call costs as much
as a tenth of a claim. A direct call goes from the parser to the answer without the web server's task (ADR 0021).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from lodesman.base.errors import InvalidRequest, TooLarge
from lodesman.server.http.claims import AskedClaim, DirectCall, begin
from lodesman.server.http.wire import BODY_SECONDS, SLOWEST_BYTES, Headers, Scope, error_answer
from lodesman.wire.calls import CLAIM

# What strangers send must not fill the log; faults of the server are errors.
log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)

_HEAD_SECONDS = 30.0
# Beyond the first piece of a head that came in pieces (a piece has at most 256 kB).
_HEAD_BYTES = 65_536

# Process, user and group of the other end of a Unix socket.
_ROOT = 0
_CREDENTIALS = struct.Struct("3i")
# Of all requests without a token that is good, together.
_UNKNOWN_BYTES = 32 << 20
# Requests that wait on one connection for the answer to another one.
_PIPELINE = 32

_CLOSE = (b"connection", b"close")
# The web server wakes the reader of a body for each piece of it; direct calls have no such reader.
_NO_READER = asyncio.Event()


class _Unknown:
    """Bytes of requests of which it is not known who sends them; one event loop uses it."""

    bytes = 0


class _OneWrite:
    """A transport that keeps the head of an answer until its body follows; `head_is_next` announces a head."""

    __slots__ = ("_head", "_transport", "head_is_next")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.head_is_next = True

    def write(self, data: bytes) -> None:
        """Write, or keep a head for the next write."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif self.head_is_next and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            self.head_is_next = False
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing written now would arrive; checked before "100 Continue" is sent."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Write what is kept, and close."""
        if self._head:
            self.write(b"")
        self._transport.close()


@dataclass(slots=True, eq=False)
class _DirectCycle:
    """A direct call on its way, in the place where the web server keeps the request that it answers.

    `message_event` and `disconnected` are what the web server expects there.
    """

    protocol: GuardedProtocol
    call: DirectCall
    scope: Scope
    keep_alive: bool
    body: bytes = b""
    more_body: bool = True
    response_complete: bool = False
    disconnected: bool = False
    message_event: asyncio.Event = _NO_READER
    asked: AskedClaim | None = None

    @property
    def response_started(self) -> bool:
        """An answer is written in one piece."""
        return self.response_complete

    def begin(self) -> None:
        """The body is complete."""
        self.more_body = False
        asked = begin(self.call, self.scope, self.body, self.reply)
        if not self.response_complete:
            self.asked = asked

    def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Write the answer, unless the client is gone."""
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        # Both refer to each other: left so, each claim would be work for the garbage collector.
        self.asked = None
        protocol = self.protocol
        if not protocol.transport.is_closing():
            ends = _CLOSE in headers
            if not self.keep_alive and not ends:
                ends, headers = True, [*headers, _CLOSE]
            protocol.transport.write(_answer_bytes(status, headers, body))
            if ends:
                protocol.transport.close()
        protocol.has_answered()

    def gone(self) -> None:
        """The client hung up."""
        self.disconnected = True
        if self.asked is not None:
            self.asked.gone()

    def end_soon(self) -> None:
        """The server is about to end."""
        if self.asked is not None:
            self.asked.end_soon()


class OwnProtocol(HttpToolsProtocol):
    """HTTP on a Unix socket for processes of the server's own user: the kernel says who connects."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection of another user."""
        super().connection_made(transport)
        raw = transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (_ROOT, os.getuid()):
            log.error("another user connected to a socket of the server", extra={"uid": uid})
            transport.close()


class GuardedProtocol(HttpToolsProtocol):
    """HTTP on one connection. A head that comes in one piece, as heads do, costs nothing but a comparison."""

    # The request that came last.
    cycle: RequestResponseCycle | _DirectCycle | None  # type: ignore[assignment]
    scope: Scope  # type: ignore[assignment]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = log
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._body_since = 0.0
        self._body_bytes = 0
        self._answering: RequestResponseCycle | _DirectCycle | None = None
        # Bytes of its present request, as long as it is not known who sends it.
        self._unknown = 0
        self._admits: Callable[[Scope], bool] = getattr(self.app, "admits", lambda _: True)
        self._direct: dict[bytes, DirectCall] = {
            path.encode(): call for path, call in getattr(self.app, "direct", {}).items()
        }
        self._out: Any = None
        # Since when it is quiet, and what looks whether that is too long: a timer for each answer would cost more.
        self._quiet_since = 0.0
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; its first head must come in time."""
        super().connection_made(transport)
        self._out = _OneWrite(transport)
        self._late = self.loop.call_later(_HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the request that is being answered, and not only the last one."""
        self._stop_waiting()
        self._release()
        if self._watch is not None:
            self._watch.cancel()
        answering, self._answering = self._answering, None
        if answering is not None and not answering.response_complete:
            if isinstance(answering, _DirectCycle):
                answering.gone()
            else:
                answering.disconnected = True
                answering.message_event.set()
        super().connection_lost(exc)
        # A cycle and its protocol refer to each other: left so, hundreds of megabytes wait for the garbage collector.
        self.pipeline.clear()
        self.cycle = None
        self._unset_keepalive_if_required()

    def shutdown(self) -> None:
        """The server is about to end: a call that waits is answered."""
        super().shutdown()
        self.end_waiting()

    def end_waiting(self) -> None:
        """Answer a direct call that waits for something."""
        if isinstance(self._answering, _DirectCycle) and not self._answering.response_complete:
            self._answering.end_soon()

    def on_headers_complete(self) -> None:
        """The head has come, and with it the token. Only a usual request of a pilot that is known is called directly. Raises
        TooLarge: the connection ends.
        """
        if len(self.pipeline) >= _PIPELINE:
            raise TooLarge("Too many requests are on their way on this connection.", limit=_PIPELINE)
        call, is_known = self._direct.get(self.url), self._admits(self.scope)
        before = self.cycle
        if (
            call is None
            or self.expect_100_continue
            or not (before is None or before.response_complete)
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
            or not is_known
        ):
            super().on_headers_complete()
            return
        scope = self.scope
        scope["path"] = self.url.decode("ascii")
        direct = _DirectCycle(self, call, scope, self.parser.should_keep_alive())
        self.cycle = self._answering = direct

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        cycle = self.cycle
        if not isinstance(cycle, _DirectCycle):
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.body += body

    def on_message_complete(self) -> None:
        """The request has come."""
        cycle = self.cycle
        if not isinstance(cycle, _DirectCycle):
            super().on_message_complete()
        elif not cycle.response_complete:
            cycle.begin()

    def has_answered(self) -> None:
        """A direct call has its answer."""
        if self.pipeline or self.flow.read_paused:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._quiet_since = self.loop.time()
        if self._watch is None and not self.transport.is_closing():
            self._watch = self.loop.call_later(self.timeout_keep_alive, self._if_quiet)

    def _if_quiet(self) -> None:
        """Close the connection if nothing came since the answer to a direct call; the next answer counts anew."""
        self._watch = None
        if self._head_bytes or not isinstance(self.cycle, _DirectCycle) or not self.cycle.response_complete:
            return
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._watch = self.loop.call_later(left, self._if_quiet)
        else:
            self.timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        cycle.transport = self._out
        self._out.head_is_next = True
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that wants another protocol gets none; the log need not say so."""

    def data_received(self, data: bytes) -> None:
        """Bytes came. The head is complete as soon as there is a cycle that answers it."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            if cycle.more_body and not cycle.response_complete:
                # The head is complete, the body is not: it has its own time from here on.
                if "principal" not in self.scope:
                    self._count_unknown(len(data))
                if not self._body_bytes:
                    self._stop_waiting()
                    self._body_since = self.loop.time()
                    self._late = self.loop.call_later(BODY_SECONDS, self._body_too_late)
                self._body_bytes += len(data)
                if self._body_bytes > (most := CLAIM.most_bytes) and isinstance(cycle, _DirectCycle):
                    too_large = TooLarge(f"The request is larger than {most} bytes.", limit=most)
                    cycle.reply(*error_answer(too_large))
            elif self._late is not None:
                self._stop_waiting()
            if self._unknown and (cycle.response_complete or not cycle.more_body):
                self._release()
            return
        self._count_unknown(len(data))
        if self._head_bytes + len(data) > _HEAD_BYTES and self._head_bytes:
            self._refuse("The head of the request is too large.")
        elif not self._head_bytes:
            self._stop_waiting()
            self._head_bytes = 1
            self._late = self.loop.call_later(_HEAD_SECONDS, self._too_late)
        else:
            self._head_bytes += len(data)

    def _count_unknown(self, size: int) -> None:
        """All that strangers send has a limit: a connection that goes beyond it is closed."""
        self._unknown += size
        _Unknown.bytes += size
        if _Unknown.bytes > _UNKNOWN_BYTES:
            self._refuse("Too many requests without a token are on their way.")

    def _release(self) -> None:
        _Unknown.bytes -= self._unknown
        self._unknown = 0

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = self._body_bytes = 0

    def _body_too_late(self) -> None:
        taken = self.loop.time() - self._body_since
        allowed = BODY_SECONDS + self._body_bytes / SLOWEST_BYTES
        # While the application does not read, the client is not the slow one.
        if taken < allowed or self.flow.read_paused:
            self._late = self.loop.call_later(max(allowed - taken, 1.0), self._body_too_late)
            return
        self._late = None
        self._refuse("The request was not complete in time.")

    def _too_late(self) -> None:
        self._late = None
        if self._head_bytes:
            self._refuse("The head of the request did not come in time.")
        else:
            self.transport.close()

    def _refuse(self, words: str) -> None:
        """End the connection; with a word, unless an answer is on its way."""
        if self.transport.is_closing():
            return
        asked = self._answering
        if (
            asked is None
            or asked.response_complete
            or (asked is self.cycle and asked.more_body and not asked.response_started)
        ):
            status, headers, body = error_answer(InvalidRequest(words))
            self.transport.write(_answer_bytes(status, [*headers, _CLOSE], body))
        self.transport.close()


def _answer_bytes(status: int, headers: Headers, body: bytes) -> bytes:
    """An answer as it goes over the wire."""
    head = STATUS_LINE[status]
    for name, value in headers:
        head += name + b": " + value + b"\r\n"
    return head + b"\r\n" + body
