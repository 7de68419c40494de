"""HTTP/1.1 on connections: httptools parses requests, and an ASGI application answers them in order."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import httptools

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.server.http.wire import Headers, Scope, error_answer
from lodesman.server.main.exchange import CLOSE, Exchange, answer_bytes

# What strangers send must not fill the log; faults of the server are errors.
log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)

# Process, user and group of the other end of a Unix socket.
_ROOT = 0
_CREDENTIALS = struct.Struct("3i")
_NO_REQUEST: Final = "This is no request of HTTP/1.1."
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


@dataclass(eq=False)
class ConnectionGroup:
    """What the connections of one server share."""

    app: Callable[..., Awaitable[None]]
    quiet_seconds: float = 75.0
    connections: set[HttpConnection] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, exchange: Exchange) -> None:
        """Have the application answer it, beside other requests."""
        task = asyncio.get_running_loop().create_task(exchange.run(self.app))
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def left(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        self._news.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._news.set()

    async def wait_idle(self) -> None:
        """Until there is no connection and nothing is being answered."""
        while self.connections or self.tasks:
            self._news.clear()
            await self._news.wait()


class HttpConnection(asyncio.Protocol):
    """One connection. Requests that come before others are answered wait in `pipeline`."""

    transport: asyncio.Transport

    def __init__(self, serving: ConnectionGroup) -> None:
        self.serving = serving
        self.loop = asyncio.get_running_loop()
        self.pipeline: deque[Exchange] = deque()
        self.latest: Any = None  # the request that came last, an Exchange or what stands in its place
        self.answering: Any = None  # the one that is being answered, or was last
        self.is_read_paused = self.is_full = False
        self.url = b""
        self.headers: Headers = []
        self.expects_continue = False
        self._client: tuple[str, int] | None = None
        self.parser = httptools.HttpRequestParser(self)
        # Requests after one that asks to close are read, so that its answer is not lost by them.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_deaf = False
        self._room: asyncio.Event | None = None
        # Since when it is quiet, and what looks whether that is too long: a timer for each answer would cost more.
        self._quiet_since = 0.0
        self._watch: asyncio.TimerHandle | None = None

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = transport  # type: ignore[assignment]  # of a stream
        self.serving.connections.add(self)
        peer = transport.get_extra_info("peername")
        self._client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify what is being answered; what waits never begins."""
        self.serving.left(self)
        if self._watch is not None:
            self._watch.cancel()
        answering, self.answering = self.answering, None
        if answering is not None and not answering.response_complete:
            answering.gone()
        self.resume_writing()
        # These refer to each other: left so, hundreds of megabytes wait for the garbage collector.
        self.pipeline.clear()
        self._is_deaf, self.latest = True, None
        del self.parser

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._is_deaf:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No other protocol is spoken here: the request is answered as if it had not asked, and is the last one.
            self._is_deaf = True
            if self.latest is not None:
                self.latest.end_soon()
        except httptools.HttpParserError as fault:
            self._is_deaf = True
            cause = fault.__context__
            self.refuse(cause if isinstance(cause, LodesmanError) else InvalidRequest(_NO_REQUEST))

    def pause_writing(self) -> None:
        """The client does not read."""
        self.is_full = True
        self._room = asyncio.Event()

    def resume_writing(self) -> None:
        """It reads again, or is gone."""
        self.is_full = False
        if self._room is not None:
            self._room.set()
        self._room = None

    async def drained(self) -> None:
        """Wait until the client reads, or is gone."""
        if self._room is not None:
            await self._room.wait()

    # --- for the exchange that is being answered

    @property
    def is_closing(self) -> bool:
        """Whether nothing that is written now would arrive."""
        return self.transport.is_closing()

    def write(self, data: bytes) -> None:
        """Write, unless the client is gone."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """End the connection when what is written has left."""
        self.transport.close()

    def pause_reading(self) -> None:
        """Take nothing more for now."""
        if not self.is_read_paused and not self.transport.is_closing():
            self.is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take more."""
        if self.is_read_paused:
            self.is_read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def has_answered(self) -> None:
        """The next request has its turn, or the connection is quiet."""
        if self.is_read_paused:
            self.resume_reading()
        if self.pipeline:
            if not self.transport.is_closing():
                self.begin(self.pipeline.popleft())
            return
        self._quiet_since = self.loop.time()
        if self._watch is None and not self.transport.is_closing():
            self._watch = self.loop.call_later(self.serving.quiet_seconds, self._if_quiet)

    def begin(self, exchange: Exchange) -> None:
        """Answer it now."""
        self.answering = exchange
        self.serving.start(exchange)

    # --- the server

    def shutdown(self) -> None:
        """End as soon as nothing is being answered."""
        if self.latest is None or self.latest.response_complete:
            self.transport.close()
        else:
            self.latest.end_soon()

    def refuse(self, fault: LodesmanError) -> None:
        """End the connection; with a word, unless another answer is on its way."""
        if self.transport.is_closing():
            return
        current = self.answering
        if (
            current is None
            or current.response_complete
            or (current is self.latest and current.more_body and not current.response_started)
        ):
            status, headers, body = error_answer(fault)
            self.transport.write(answer_bytes(status, [*headers, CLOSE], body))
        self.transport.close()

    def is_between_requests(self) -> bool:
        """Whether all that was asked is answered."""
        return self.latest is not None and self.latest.response_complete

    def _if_quiet(self) -> None:
        self._watch = None
        if not self.is_between_requests():
            return
        left = self._quiet_since + self.serving.quiet_seconds - self.loop.time()
        if left > 0:
            self._watch = self.loop.call_later(left, self._if_quiet)
        else:
            self.transport.close()

    # --- the parser

    def on_message_begin(self) -> None:
        """A head begins."""
        self.url, self.headers, self.expects_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expects_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """What is raised here ends the connection with a refusal."""
        self.ask(self.scope())

    def scope(self) -> Scope:
        """What ASGI says of a request, but for its target."""
        return {
            "type": "http", "asgi": _ASGI, "http_version": "1.1", "client": self._client, "headers": self.headers,
        }  # fmt: skip

    def ask(self, scope: Scope) -> None:
        """Have the application answer the request, in its turn."""
        parser, target = self.parser, httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        version = parser.get_http_version()
        scope.update({
            "method": parser.get_method().decode("ascii"), "http_version": version, "raw_path": target.path,
            "path": unquote(path) if "%" in path else path, "query_string": target.query or b"",
        })  # fmt: skip
        keep_alive = version != "1.0" and parser.should_keep_alive()
        exchange = Exchange(self, scope, keep_alive=keep_alive, expects_continue=self.expects_continue)
        before, self.latest = self.latest, exchange
        if before is None or before.response_complete:
            self.begin(exchange)
        else:
            self.pipeline.append(exchange)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        self.latest.take(body)

    def on_message_complete(self) -> None:
        """The request has come."""
        self.latest.complete()


class OwnConnection(HttpConnection):
    """Of a Unix socket, for processes of the server's own user: the kernel says who connects."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection of another user."""
        super().connection_made(transport)
        raw = transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (_ROOT, os.getuid()):
            log.error("another user connected to a socket of the server", extra={"uid": uid})
            transport.close()
