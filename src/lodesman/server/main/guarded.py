"""Connections of clients: they end when a request does not come in time, or its head is too large.

A direct call goes from the parser to the answer without a task (ADR 0021).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lodesman.base.errors import InvalidRequest, TooLarge
from lodesman.server.http.claims import AskedClaim, DirectCall, begin
from lodesman.server.http.wire import BODY_SECONDS, SLOWEST_BYTES, Headers, Scope, error_answer
from lodesman.server.main.connections import ConnectionGroup, HttpConnection
from lodesman.server.main.exchange import CLOSE, answer_bytes
from lodesman.wire.calls import CLAIM

_HEAD_SECONDS = 30.0
# Beyond the first piece of a head that came in pieces (a piece has at most 256 kB).
_HEAD_BYTES = 65_536
# Of all requests without a token that is good, together.
_UNKNOWN_BYTES = 32 << 20
# Requests that wait on one connection for the answer to another one.
_PIPELINE: Final = 32


class _StrangerBytes:
    bytes = 0


@dataclass(slots=True, eq=False)
class DirectExchange:
    """A direct call, in the place of an exchange with an application."""

    connection: GuardedConnection
    call: DirectCall
    scope: Scope
    keep_alive: bool
    body: bytes = b""
    more_body: bool = True
    response_complete: bool = False
    disconnected: bool = False
    asked: AskedClaim | None = None

    @property
    def response_started(self) -> bool:
        """An answer is written in one piece."""
        return self.response_complete

    def take(self, body: bytes) -> None:
        """A piece of the body came."""
        if not self.response_complete:
            self.body += body

    def complete(self) -> None:
        """The body is complete."""
        if self.response_complete:
            return
        self.more_body = False
        claim = begin(self.call, self.scope, self.body, self.reply)
        if not self.response_complete:
            self.asked = claim

    def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Write the answer, unless the client is gone."""
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        # Both refer to each other: left so, each claim would be work for the garbage collector.
        self.asked = None
        connection, ends = self.connection, CLOSE in headers
        if not ends and not self.keep_alive:
            ends, headers = True, [*headers, CLOSE]
        connection.write(answer_bytes(status, headers, body))
        if ends:
            connection.close()
        connection.has_answered()

    def gone(self) -> None:
        """The client hung up."""
        self.disconnected = True
        if self.asked is not None:
            self.asked.gone()

    def end_soon(self) -> None:
        """Answer a call that waits."""
        self.keep_alive = False
        if self.asked is not None:
            self.asked.end_soon()


class GuardedConnection(HttpConnection):
    """A head that comes in one piece costs nothing but a comparison.

    The application may have `admits`, whether a request brings a good token, and `direct`: calls by path.
    """

    def __init__(self, serving: ConnectionGroup) -> None:
        super().__init__(serving)
        app = serving.app
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._body_since = 0.0
        self._body_bytes = 0
        # Bytes of its present request, as long as it is not known who sends it.
        self._unknown = 0
        self._admits: Callable[[Scope], bool] = getattr(app, "admits", lambda _: True)
        self._direct: dict[bytes, DirectCall] = {
            path.encode(): call for path, call in getattr(app, "direct", {}).items()
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; its first head must come in time."""
        super().connection_made(transport)
        self._late = self.loop.call_later(_HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        self._release()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer a call that waits."""
        super().shutdown()
        self.end_waiting()

    def end_waiting(self) -> None:
        """Answer a direct call that waits for something."""
        if isinstance(self.answering, DirectExchange) and not self.answering.response_complete:
            self.answering.end_soon()

    def is_between_requests(self) -> bool:
        """Whether all that was asked is answered, and no head has begun."""
        return not self._head_bytes and super().is_between_requests()

    def on_headers_complete(self) -> None:
        """Call a usual request of a known pilot directly. Raises TooLarge: the connection ends."""
        if len(self.pipeline) >= _PIPELINE:
            raise TooLarge("Too many requests are on their way on this connection.", limit=_PIPELINE)
        scope, parser, before = self.scope(), self.parser, self.latest
        call, is_known = self._direct.get(self.url), self._admits(scope)
        if (
            call is None
            or self.expects_continue
            or not (before is None or before.response_complete)
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or not is_known
        ):
            self.ask(scope)
            return
        scope["path"] = self.url.decode("ascii")
        self.latest = self.answering = DirectExchange(self, call, scope, parser.should_keep_alive())

    def data_received(self, data: bytes) -> None:
        """The head is complete as soon as there is an exchange for it."""
        super().data_received(data)
        latest = self.latest
        if latest is not None and latest.scope["headers"] is self.headers:
            if latest.more_body or self._late is not None or self._unknown:
                self._watch_body(len(data))
            return
        self._count_unknown(len(data))
        if self._head_bytes + len(data) > _HEAD_BYTES and self._head_bytes:
            self.refuse(InvalidRequest("The head of the request is too large."))
        elif not self._head_bytes:
            self._stop_waiting()
            self._head_bytes = 1
            self._late = self.loop.call_later(_HEAD_SECONDS, self._too_late)
        else:
            self._head_bytes += len(data)

    def _watch_body(self, size: int) -> None:
        """The body has its own time, and a limit while its sender is unknown."""
        latest = self.latest
        if latest.more_body and not latest.response_complete:
            if "principal" not in latest.scope:
                self._count_unknown(size)
            if not self._body_bytes:
                self._stop_waiting()
                self._body_since = self.loop.time()
                self._late = self.loop.call_later(BODY_SECONDS, self._body_too_late)
            self._body_bytes += size
            if self._body_bytes > (most := CLAIM.most_bytes) and isinstance(latest, DirectExchange):
                latest.reply(*error_answer(TooLarge(f"The request is larger than {most} bytes.", limit=most)))
        elif self._late is not None:
            self._stop_waiting()
        if self._unknown and (latest.response_complete or not latest.more_body):
            self._release()

    def _count_unknown(self, size: int) -> None:
        """A connection beyond the limit of all strangers is closed."""
        self._unknown += size
        _StrangerBytes.bytes += size
        if _StrangerBytes.bytes > _UNKNOWN_BYTES:
            self.refuse(InvalidRequest("Too many requests without a token are on their way."))

    def _release(self) -> None:
        _StrangerBytes.bytes -= self._unknown
        self._unknown = 0

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = self._body_bytes = 0

    def _body_too_late(self) -> None:
        seconds = self.loop.time() - self._body_since
        allowed = BODY_SECONDS + self._body_bytes / SLOWEST_BYTES
        # While the application does not read, the client is not the slow one.
        if seconds < allowed or self.is_read_paused:
            self._late = self.loop.call_later(max(allowed - seconds, 1.0), self._body_too_late)
            return
        self._late = None
        self.refuse(InvalidRequest("The request was not complete in time."))

    def _too_late(self) -> None:
        self._late = None
        if self._head_bytes:
            self.refuse(InvalidRequest("The head of the request did not come in time."))
        else:
            self.transport.close()
