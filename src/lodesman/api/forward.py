"""Passing requests on to the reading process over a Unix socket, streamed both ways.

One connection per request: these are lists, pages and files, not the hot path.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from lodesman.api.wire import BODY_SECONDS, Disconnected, Receive, Scope, Send
from lodesman.errors import InvalidRequest, Unavailable

HEAD_LIMIT = 65_536
CHUNK = 1 << 16
ANSWER_SECONDS = 120.0
HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"}
)


class Forwarder:
    """Forwards to one socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request. Raises Unavailable while the reading process is not there."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=HEAD_LIMIT)
        except OSError:
            raise Unavailable("The part of the server that reads is starting.", hint="Try again.") from None
        try:
            writer.write(_head(scope))
            sending = asyncio.ensure_future(_send_body(receive, writer))
            try:
                await self._answer(reader, send)
            finally:
                sending.cancel()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            raise Unavailable("The part of the server that reads did not answer.") from None
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, send: Send) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        status, headers = _parse_head(head)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while chunk := await reader.read(CHUNK):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _head(scope: Scope) -> bytes:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    lines = [scope["method"].encode() + b" " + scope["raw_path"].split(b"?")[0] + query + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in HOP]
    chunked = not any(name == b"content-length" for name, _ in scope["headers"])
    if chunked and scope["method"] in ("POST", "PUT", "PATCH"):
        raise InvalidRequest("The request needs a Content-Length.")
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _send_body(receive: Receive, writer: asyncio.StreamWriter) -> None:
    more = True
    while more:
        async with asyncio.timeout(BODY_SECONDS):
            message = await receive()
        if message["type"] == "http.disconnect":
            writer.close()
            raise Disconnected
        writer.write(message.get("body", b""))
        await writer.drain()
        more = message.get("more_body", False)


def _parse_head(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    status = int(first.split(b" ", 2)[1])
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() not in HOP:
            headers.append((name.lower(), value.strip()))
    return status, headers
