"""One request and its answer on one connection to one server."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import os
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Callable
from urllib.parse import urlsplit

from lodesman import __version__
from lodesman.errors import InvalidConfig, TooLarge

CHUNK = 1 << 18
_MAX_ANSWER = 256 << 20
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens; `base` is the path before every path of the protocol."""

    secure: bool
    host: str
    port: int
    base: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.base}"

    @property
    def is_private(self) -> bool:
        """Whether nobody else can read tokens on their way: by TLS, or on this machine."""
        return self.secure or is_loopback(self.host)


@dataclass(frozen=True)
class HttpRequest:
    """A request that may be sent several times.

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
class HttpAnswer:
    """An answer; `content` is the result of the request's sink, else the body."""

    status: int
    retry_after: str
    content: Any

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


def is_loopback(host: str) -> bool:
    """Whether a name or a number means this machine itself, without asking a name server."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_server(text: str) -> ServerAddress:
    """Read `http[s]://host[:port][/prefix]`. Raises InvalidConfig."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as fault:
        raise InvalidConfig(f"The server address {text!r} cannot be read: {fault}.") from None
    odd = parts.query or parts.fragment or parts.username or not text.isascii() or not text.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or odd or " " in text:
        raise InvalidConfig(f"The server address {text!r} is unusable.", hint="Write http://host:port.")
    secure = parts.scheme == "https"
    default = 443 if secure else 80
    return ServerAddress(secure, parts.hostname, default if port is None else port, parts.path.rstrip("/"))


def trusted_authorities(ca_file: str | None) -> ssl.SSLContext:
    """Certificates are checked against `ca_file`, else against the system's. Raises InvalidConfig."""
    try:
        trust = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as fault:
        raise InvalidConfig(f"The CA file {ca_file} cannot be used: {fault}.", source=ca_file) from None
    if ca_file:
        # The file may hold the server's own certificate instead of its CA's; Python 3.9 has no name for the flag.
        trust.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
    return trust


def open_connection(server: ServerAddress, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection object for the server, not connected yet."""
    if trust is None or not server.secure:
        return http.client.HTTPConnection(
            server.host, server.port, timeout=_CONNECT_TIMEOUT_S, blocksize=CHUNK
        )
    return http.client.HTTPSConnection(
        server.host, server.port, timeout=_CONNECT_TIMEOUT_S, context=trust, blocksize=CHUNK
    )


def is_stale(sock: socket.socket) -> bool:
    """Whether an idle connection has ended or carries unexpected bytes."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def exchange(
    connection: http.client.HTTPConnection, request: HttpRequest, path: str, headers: Mapping[str, str]
) -> HttpAnswer:
    """Send the request to `path` and read the answer. Raises OSError, HTTPException and TooLarge."""
    sent = {
        "User-Agent": f"lodesman/{__version__}",
        "Accept": "application/json",
        **headers,
        **request.headers,
    }
    if isinstance(request.body, Path):
        with request.body.open("rb") as source:
            sent["Content-Length"] = str(os.fstat(source.fileno()).st_size)
            # A server may refuse a body before it has read all of it; its answer may be there already.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, path, body=source, headers=sent)
    else:
        connection.request(request.method, path, body=request.body, headers=sent)
    response = connection.getresponse()
    read = request.sink if request.sink is not None and 200 <= response.status < 300 else _read
    return HttpAnswer(response.status, response.getheader("Retry-After", ""), read(response))


def _read(response: http.client.HTTPResponse) -> bytes:
    """The body in one piece. Older libraries allocate as many bytes as are asked for, so ask for few."""
    if response.length is not None and response.length <= _MAX_ANSWER:
        return response.read()
    content = bytearray()
    for chunk in iter(lambda: response.read(CHUNK), b""):
        content += chunk
        if len(content) > _MAX_ANSWER:
            raise TooLarge("The server's answer is too large.", limit=_MAX_ANSWER)
    return bytes(content)


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
        # When a body is read in parts, the library does not report that the rest is missing.
        raise http.client.IncompleteRead(b"", response.length)
    return digest.hexdigest()
