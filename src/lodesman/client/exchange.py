"""One request and its answer on one connection: the door to the network."""

from __future__ import annotations

import hashlib
import http.client
import os
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Callable

from lodesman import __version__
from lodesman.client.address import Server
from lodesman.errors import InvalidConfig, TooLarge

CHUNK = 1 << 18
MAX_ANSWER = 256 << 20
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Call:
    """One request, ready to be sent any number of times.

    A Path as body is streamed. `sink` reads the body of a good answer. `timeout` is seconds without a byte.
    """

    method: str
    path: str
    body: bytes | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sink: Callable[[http.client.HTTPResponse], Any] | None = None
    idempotent: bool = False
    timeout: float = 30.0


@dataclass(frozen=True)
class Answer:
    """An answer; `content` is what the call's sink made of it, else its body."""

    status: int
    retry_after: str
    content: Any

    @property
    def good(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Certificates are checked against `ca_file`, else against the system's. Raises InvalidConfig."""
    try:
        trust = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as fault:
        raise InvalidConfig(f"The CA file {ca_file} cannot be used: {fault}.", source=ca_file) from None
    if ca_file:
        # The file may hold the server's own certificate instead of its CA's; Python 3.9 has no name for the flag.
        trust.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
    return trust


def open_connection(server: Server, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to the server, not connected yet."""
    if trust is None or not server.secure:
        return http.client.HTTPConnection(
            server.host, server.port, timeout=CONNECT_TIMEOUT_S, blocksize=CHUNK
        )
    return http.client.HTTPSConnection(
        server.host, server.port, timeout=CONNECT_TIMEOUT_S, context=trust, blocksize=CHUNK
    )


def is_stale(sock: socket.socket) -> bool:
    """Whether an idle connection ended, or carries bytes that nobody asked for."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def exchange(connection: http.client.HTTPConnection, call: Call, headers: Mapping[str, str]) -> Answer:
    """Send the call and read its answer. Raises OSError, HTTPException and TooLarge."""
    sent = {"User-Agent": f"lodesman/{__version__}", "Accept": "application/json", **headers, **call.headers}
    if isinstance(call.body, Path):
        _send_file(connection, call, call.body, sent)
    else:
        connection.request(call.method, call.path, body=call.body, headers=sent)
    response = connection.getresponse()
    retry_after = response.getheader("Retry-After", "")
    if call.sink is not None and 200 <= response.status < 300:
        return Answer(response.status, retry_after, call.sink(response))
    return Answer(response.status, retry_after, _read(response))


def _read(response: http.client.HTTPResponse) -> bytes:
    """The body in one piece. Older libraries make room for as many bytes as are asked for, so ask for few."""
    if response.length is not None and response.length <= MAX_ANSWER:
        return response.read()
    content = bytearray()
    for chunk in iter(lambda: response.read(CHUNK), b""):
        content += chunk
        if len(content) > MAX_ANSWER:
            raise TooLarge("The server's answer is too large.", limit=MAX_ANSWER)
    return bytes(content)


def _send_file(
    connection: http.client.HTTPConnection, call: Call, file: Path, headers: dict[str, str]
) -> None:
    with file.open("rb") as source:
        headers["Content-Length"] = str(os.fstat(source.fileno()).st_size)
        try:
            connection.request(call.method, call.path, body=source, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            # A server may refuse a body before it has read all of it; its answer may be there already.
            return


def copy(response: http.client.HTTPResponse, target: BinaryIO, *, limit: int) -> str:
    """Copy the body and return its sha256; stops soon after `limit` bytes."""
    digest = hashlib.sha256()
    copied = 0
    while copied <= limit:
        chunk = response.read(CHUNK)
        if not chunk:
            break
        copied += len(chunk)
        digest.update(chunk)
        target.write(chunk)
    if copied > limit:
        response.close()
    elif response.length:
        # Read in parts, the library does not say that the rest is missing.
        raise http.client.IncompleteRead(b"", response.length)
    return digest.hexdigest()
