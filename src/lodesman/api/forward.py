"""Passing requests on to the reading process over a Unix socket, streamed both ways.

One connection per request: these are lists, pages and files, not the hot path. It is closed from here: a
server that closes it while a body still comes would lose its answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from lodesman.api.wire import BODY_SECONDS, SLOWEST_BYTES, Disconnected, Receive, Scope, Send, header
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
                status, headers = await _answer_head(reader, header(scope, b"content-length"))
                await send({"type": "http.response.start", "status": status, "headers": headers})
                length = b"0" if scope["method"] == "HEAD" else dict(headers).get(b"content-length", b"-1")
                await _answer_body(reader, send, int(length))
            finally:
                sending.cancel()
                await asyncio.wait({sending})
        finally:
            writer.close()


async def _answer_head(reader: asyncio.StreamReader, length: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Status and headers. They come when the body was sent, which may take its time. Raises Unavailable."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS + int(length or b"0") / SLOWEST_BYTES):
            return _parse_head(await reader.readuntil(b"\r\n\r\n"))
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
        raise Unavailable("The part of the server that reads did not answer.") from None


async def _answer_body(reader: asyncio.StreamReader, send: Send, left: int) -> None:
    """Pass on `left` bytes (-1: all that comes), as fast as the client takes them.

    Raises Disconnected if they break off: the client must see that, and does by a connection that ends.
    """
    try:
        while left and (chunk := await reader.read(CHUNK)):
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
    lines += [name + b": " + value for name, value in scope["headers"] if name not in HOP]
    chunked = header(scope, b"transfer-encoding")
    if chunked or (scope["method"] in ("POST", "PUT", "PATCH") and not header(scope, b"content-length")):
        raise InvalidRequest("The request needs a Content-Length.")
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _send_body(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Pass the body on; when it does not come, or nobody takes it, the connection ends."""
    more = True
    while more:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
                writer.write(message.get("body", b""))
                await writer.drain()
        except (OSError, TimeoutError):
            message = {"type": "http.disconnect"}
        more = message.get("more_body", False)
        if message["type"] == "http.disconnect":
            writer.close()


def _parse_head(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    status = int(first.split(b" ", 2)[1])
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() not in HOP:
            headers.append((name.lower(), value.strip()))
    return status, headers
