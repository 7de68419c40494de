"""A direct call on its connection: from the parser to the answer without a task of its own (ADR 0021)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from lodesman.api.claims import AskedClaim, DirectCall, begin
from lodesman.api.wire import Headers, Scope

CLOSE = (b"connection", b"close")

# The web server wakes who waits for the next piece of a body; with direct calls nobody does.
_NOBODY = asyncio.Event()


class Connection(Protocol):
    """What a direct call needs of the protocol that it came with."""

    transport: asyncio.Transport

    def on_response_complete(self) -> None:
        """The answer is written; the next request may come."""


class DirectCycle:
    """A direct call on its way, in the place where the web server keeps the request that it answers."""

    __slots__ = (
        "asked", "body", "call", "disconnected", "keep_alive", "message_event", "more_body", "protocol",
        "response_complete", "scope",
    )  # fmt: skip

    def __init__(self, protocol: Connection, call: DirectCall, scope: Scope, *, keep_alive: bool) -> None:
        self.protocol = protocol
        self.call = call
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.response_complete = False
        self.disconnected = False
        self.message_event = _NOBODY
        self.asked: AskedClaim | None = None

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
        """Write the answer, if there is still somebody to read it."""
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        # Both know each other: left so, each claim would be work for the collector of garbage.
        self.asked = None
        protocol = self.protocol
        if not protocol.transport.is_closing():
            ends = CLOSE in headers
            if not self.keep_alive and not ends:
                ends, headers = True, [*headers, CLOSE]
            protocol.transport.write(answer_bytes(status, headers, body))
            if ends:
                protocol.transport.close()
        protocol.on_response_complete()

    def gone(self) -> None:
        """The client hung up."""
        self.disconnected = True
        if self.asked is not None:
            self.asked.gone()

    def end_soon(self) -> None:
        """The server is about to end."""
        if self.asked is not None:
            self.asked.end_soon()


def answer_bytes(status: int, headers: Headers, body: bytes) -> bytes:
    """An answer as it goes over the wire."""
    lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers], b"\r\n", body]
    return b"".join(lines)
