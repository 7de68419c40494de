"""One request on a connection and its answer, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from lodesman.server.http.dispatch import failed
from lodesman.server.http.wire import Headers, Scope

log = logging.getLogger(__name__)

CLOSE: Final = (b"connection", b"close")
STATUS_LINES: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Answers that have no body, whatever their head says.
_BODILESS: Final = frozenset({204, 304})
# What must not stand in a header: it could begin another one.
_NO_HEADER: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Of a body that the application does not read yet: then the client has to wait.
_MOST_UNREAD: Final = 65_536


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    is_full: bool  # the client does not read

    @property
    def is_closing(self) -> bool:
        """Whether nothing that is written now would arrive."""

    def write(self, data: bytes) -> None:
        """Write, unless the client is gone."""

    async def drained(self) -> None:
        """Wait until the client reads, or is gone."""

    def pause_reading(self) -> None:
        """Take nothing more for now."""

    def resume_reading(self) -> None:
        """Take more."""

    def has_answered(self) -> None:
        """The answer is complete."""

    def close(self) -> None:
        """End the connection when what is written has left."""


class Exchange:
    """A request of one connection, answered by a task of its own.

    The head leaves with the first piece of the body: a system call costs as much as a tenth of a claim.
    """

    __slots__ = (
        "_chunked", "_expects_continue", "_has_body", "_head", "_left", "_news", "_unread", "connection", "disconnected",
        "keep_alive", "more_body", "response_complete", "response_started", "scope",
    )  # fmt: skip

    def __init__(
        self, connection: Carrier, scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False
        self._expects_continue = expects_continue
        self._unread = bytearray()
        self._news = asyncio.Event()
        self._head = b""
        self._has_body = self._chunked = False
        self._left: int | None = None  # of the answer's body, the bytes to come; None: its head does not say

    def take(self, body: bytes) -> None:
        """A piece of the body came."""
        if self.response_complete:
            return
        self._unread += body
        if len(self._unread) > _MOST_UNREAD:
            self.connection.pause_reading()
        self._news.set()

    def complete(self) -> None:
        """The body is complete."""
        if not self.response_complete:
            self.more_body = False
            self._news.set()

    def gone(self) -> None:
        """The client hung up."""
        self.disconnected = True
        self._news.set()

    def end_soon(self) -> None:
        """Answer nothing more on this connection."""
        self.keep_alive = False

    async def run(self, app: Callable[..., Awaitable[None]]) -> None:
        """Have the application answer. Without an answer the connection ends."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as bug:
            status, headers, body = failed(self.scope["path"], bug)
            if not (self.response_started or self.disconnected):
                self.connection.write(answer_bytes(status, [*headers, CLOSE], body))
        finally:
            if not (self.response_complete or self.disconnected):
                self.connection.close()

    async def receive(self) -> dict[str, Any]:
        """What came of the body since the last call; waits for more, and for the end."""
        if self._expects_continue and not self.connection.is_closing:
            self.connection.write(_CONTINUE)
        self._expects_continue = False
        if not (self.disconnected or self.response_complete):
            self.connection.resume_reading()
            await self._news.wait()
            self._news.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self._unread = bytes(self._unread), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Write a part of the answer, when the client reads. Raises RuntimeError for what is no answer."""
        if self.connection.is_full and not self.disconnected:
            await self.connection.drained()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", []))
        else:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, status: int, headers: Headers) -> None:
        if self.response_started:
            raise RuntimeError("An answer was begun twice.")
        lines, length, closes = _head_of(headers)
        self._has_body = self.scope["method"] != "HEAD" and status not in _BODILESS
        self._left = length
        if self._has_body and length is None:
            self._chunked = self.scope["http_version"] != "1.0"
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # its end is the end of the connection
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self.response_started, self._expects_continue = True, False
        self._head = b"".join((STATUS_LINES[status], *lines, b"\r\n"))

    def _write(self, body: bytes, *, more: bool) -> None:
        if not self.response_started or self.response_complete:
            raise RuntimeError("A piece of an answer comes before its head, or after its end.")
        if not self._has_body:
            body = b""
        elif self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = piece if more else piece + b"0\r\n\r\n"
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("The body of an answer has another length than its head says.")
        head, self._head = self._head, b""
        if head or body:
            self.connection.write(head + body)
        if not more:
            self.response_complete = True
            self._news.set()
            if not self.keep_alive:
                self.connection.close()
            self.connection.has_answered()


def _head_of(headers: Headers) -> tuple[list[bytes], int | None, bool]:
    """Also the content length, and whether the connection is to be closed. Raises RuntimeError."""
    lines: list[bytes] = []
    length, closes = None, False
    for name, value in headers:
        if _NO_HEADER.search(name) or _NO_HEADER.search(value):
            raise RuntimeError("A header of the answer has control characters.")
        key = name.lower()
        if key == b"transfer-encoding":
            continue  # that is between two ends of one connection
        if key == b"content-length":
            length = int(value)
        closes = closes or (key == b"connection" and b"close" in value.lower())
        lines += (key, b": ", value, b"\r\n")
    return lines, length, closes


def answer_bytes(status: int, headers: Headers, body: bytes) -> bytes:
    """An answer as it goes over the wire."""
    head = STATUS_LINES[status]
    for name, value in headers:
        head += name + b": " + value + b"\r\n"
    return head + b"\r\n" + body
