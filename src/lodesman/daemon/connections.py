"""Connections that end when a request does not come in time, or when its head is too large.

The web server itself waits for ever and keeps whatever comes; how large a body may be is decided where it is read
(`api.wire`). An answer leaves in one piece: a system call costs as much as a tenth of a claim. Direct calls
(`api.claims`) are made from here, without the web server's task and messages for each request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lodesman.answers.call import SMALL_BODY
from lodesman.api.claims import DirectCall
from lodesman.api.wire import BODY_SECONDS, SLOWEST_BYTES, Scope, error_answer
from lodesman.daemon.direct_cycle import CLOSE, DirectCycle, answer_bytes
from lodesman.errors import InvalidRequest, TooLarge

# What strangers send must not fill the log; faults of ours are errors.
log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)

HEAD_SECONDS = 30.0
# Beyond the first piece of a head that came in pieces (a piece has at most 256 kB).
HEAD_BYTES = 65_536


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
        """Whether nothing written now would arrive; asked before a client is told to go on."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Write what is kept, and close."""
        if self._head:
            self.write(b"")
        self._transport.close()


class GuardedProtocol(HttpToolsProtocol):
    """HTTP on one connection. A head that comes in one piece, as heads do, costs nothing but a look."""

    # The request that came last.
    cycle: RequestResponseCycle | DirectCycle | None  # type: ignore[assignment]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = log
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._body_since = 0.0
        self._body_bytes = 0
        self._answering: RequestResponseCycle | DirectCycle | None = None
        self._direct: dict[bytes, DirectCall] = {
            path.encode(): call for path, call in getattr(self.app, "direct", {}).items()
        }
        self._out: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; it has some time for its first words."""
        super().connection_made(transport)
        self._out = _OneWrite(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: the request that is being answered hears of it, and not only the last."""
        self._stop_waiting()
        answering, self._answering = self._answering, None
        if answering is not None and not answering.response_complete:
            if isinstance(answering, DirectCycle):
                answering.gone()
            else:
                answering.disconnected = True
                answering.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server is about to end: requests that wait are asked to come to an end."""
        super().shutdown()
        self.end_waiting()

    def end_waiting(self) -> None:
        """Answer a direct call that waits for something."""
        if isinstance(self._answering, DirectCycle) and not self._answering.response_complete:
            self._answering.end_soon()

    def on_headers_complete(self) -> None:
        """The head has come. Only what is quite usual is called directly."""
        call = self._direct.get(self.url)
        before = self.cycle
        if (
            call is None
            or self.expect_100_continue
            or not (before is None or before.response_complete)
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
        ):
            super().on_headers_complete()
            return
        scope = cast("Scope", self.scope)
        scope["path"] = self.url.decode("ascii")
        direct = DirectCycle(self, call, scope, keep_alive=self.parser.should_keep_alive())
        self.cycle = self._answering = direct

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        cycle = self.cycle
        if not isinstance(cycle, DirectCycle):
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.body += body

    def on_message_complete(self) -> None:
        """The request has come."""
        cycle = self.cycle
        if not isinstance(cycle, DirectCycle):
            super().on_message_complete()
        elif not cycle.response_complete:
            cycle.begin()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        cycle.transport = self._out
        self._out.head_is_next = True
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that wants another protocol gets none; that is not worth a line."""

    def data_received(self, data: bytes) -> None:
        """Bytes came. The head is complete as soon as there is a cycle that answers it."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            if cycle.more_body and not cycle.response_complete:
                self._more_body(len(data))
            elif self._late is not None:
                self._stop_waiting()
        elif self._head_bytes + len(data) > HEAD_BYTES and self._head_bytes:
            self._refuse("The head of the request is too large.")
        elif not self._head_bytes:
            self._stop_waiting()
            self._head_bytes = 1
            self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)
        else:
            self._head_bytes += len(data)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = self._body_bytes = 0

    def _more_body(self, size: int) -> None:
        """The head is complete, the body is not: it has its own time from here on."""
        if not self._body_bytes:
            self._stop_waiting()
            self._body_since = self.loop.time()
            self._late = self.loop.call_later(BODY_SECONDS, self._body_too_late)
        self._body_bytes += size
        if self._body_bytes > SMALL_BODY and isinstance(self.cycle, DirectCycle):
            self.cycle.reply(
                *error_answer(TooLarge(f"The request is larger than {SMALL_BODY} bytes.", limit=SMALL_BODY))
            )

    def _body_too_late(self) -> None:
        taken = self.loop.time() - self._body_since
        allowed = BODY_SECONDS + self._body_bytes / SLOWEST_BYTES
        # While nobody reads what came, it is not the client who is slow.
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
        answering = self._answering
        if answering is None or answering.response_complete or self._is_only(answering):
            self._say(words)
        self.transport.close()

    def _is_only(self, cycle: RequestResponseCycle | DirectCycle) -> bool:
        """Whether this request is the one that came last, and has no answer yet."""
        return cycle is self.cycle and cycle.more_body and not cycle.response_started

    def _say(self, words: str) -> None:
        status, headers, body = error_answer(InvalidRequest(words))
        self.transport.write(answer_bytes(status, [*headers, CLOSE], body))
