"""One request and its answer on one connection to one server, and the error of an answer, or of a missing one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import ipaddress
import json
import os
import re
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, TypeVar
from urllib.parse import urlsplit

from lodesman import __version__
from lodesman.base import errors
from lodesman.base.errors import InvalidConfig, LodesmanError, TooLarge, Unavailable

T = TypeVar("T")
CHUNK = 1 << 18
_MAX_ANSWER = 256 << 20
_CONNECT_TIMEOUT_S = 10.0
_MAX_RETRY_AFTER_S = 60.0

# The server cannot answer now, and did nothing.
NOT_NOW = frozenset({429, 502, 503, 504})

# This machine has no descriptors or no memory left for a connection.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# By the code of OpenSSL: the chain ends at an unknown root; the certificate names another host.
_CERTIFICATE_HINTS = {
    **dict.fromkeys((2, 18, 19, 20, 21), "Name the root: lode --ca-file FILE."),
    **dict.fromkeys((62, 63, 64), "Name the server as the certificate has it."),
}

_BY_STATUS: dict[int, type[LodesmanError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidRequest,
    **dict.fromkeys(NOT_NOW, errors.Unavailable),
}


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens."""

    secure: bool
    host: str  # Of a Unix socket the file.
    port: int
    base: str = ""  # The path before every path of the protocol.

    def __str__(self) -> str:
        if "/" in self.host:
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.base}"

    @property
    def is_private(self) -> bool:
        """Tokens cannot be read on their way: by TLS, or on this machine."""
        return self.secure or is_loopback(self.host)

    @property
    def is_reachable(self) -> bool:
        """It is not named as this machine itself."""
        return not is_loopback(self.host)


@dataclass(frozen=True)
class HttpRequest:
    """A request that may be sent several times."""

    method: str
    path: str
    body: bytes | Path | None = None  # A Path is streamed.
    headers: Mapping[str, str] = field(default_factory=dict)
    sink: Callable[[http.client.HTTPResponse], Any] | None = None  # Reads the body of a good answer.
    idempotent: bool = False
    timeout: float = 30.0  # Seconds without a byte.


@dataclass(frozen=True)
class HttpAnswer:
    """An answer."""

    status: int
    retry_after: str
    content: Any  # The result of the request's sink, else the body.

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """As the system reads a number, also 127.1 and 0x7f000001; None of a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return None if host.split() != [host] else ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """A name or number of this machine itself, without asking a name server."""
    address = address_of(host)
    return host.lower().rstrip(".") == "localhost" if address is None else address.is_loopback


def is_every_address(host: str) -> bool:
    """Who listens there listens on every address of this machine."""
    address = address_of(host)
    return not host if address is None else address.is_unspecified


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
    port = (443 if secure else 80) if port is None else port
    return ServerAddress(secure, parts.hostname, port, parts.path.rstrip("/"))


_PEM = "-----BEGIN CERTIFICATE-----"


def trusted_authorities(ca_file: str | None) -> ssl.SSLContext:
    """Certificates are checked by `ca_file`, else by the system's. Raises InvalidConfig.

    `ca_file` is a file or, for a pilot far away, its text in PEM; then the system's are good, too.
    """
    text = ca_file if ca_file and _PEM in ca_file else None
    try:
        trust = ssl.create_default_context(cafile=None if text else ca_file, cadata=text)
        if text:
            trust.load_default_certs()
    except (OSError, ssl.SSLError) as fault:
        source = "A certificate that came as text" if text else f"The CA file {ca_file}"
        raise InvalidConfig(f"{source} cannot be used: {fault}.", source=source) from None
    if ca_file:
        # The file may hold the server's own certificate instead of its CA's; Python 3.9 has no name for the flag.
        trust.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)
    return trust


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, file: str, **options: Any) -> None:
        super().__init__("localhost", **options)
        self._file = file

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._file)


def open_connection(server: ServerAddress, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """Not connected yet."""
    options: dict[str, Any] = {"timeout": _CONNECT_TIMEOUT_S, "blocksize": CHUNK}
    if server.secure:
        return http.client.HTTPSConnection(server.host, server.port, context=trust, **options)
    if "/" in server.host:
        return _UnixConnection(server.host, **options)
    return http.client.HTTPConnection(server.host, server.port, **options)


def is_stale(sock: socket.socket) -> bool:
    """An idle connection that has ended or carries unexpected bytes."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def send(
    connection: http.client.HTTPConnection, request: HttpRequest, path: str, headers: Mapping[str, str]
) -> HttpAnswer:
    """Raises OSError, HTTPException, TooLarge and LocalFault."""
    own = {"User-Agent": f"lodesman/{__version__}", "Accept": "application/json"}
    sent = {**own, **headers, **request.headers}
    if isinstance(request.body, Path):
        with contextlib.closing(OwnFile(request.body, "rb")) as source:
            sent["Content-Length"] = str(source.size())
            # A server may refuse a body before it has read all of it; its answer may be there already.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, path, body=source, headers=sent)
    else:
        connection.request(request.method, path, body=request.body, headers=sent)
    response = connection.getresponse()
    read = request.sink if request.sink is not None and 200 <= response.status < 300 else _read
    return HttpAnswer(response.status, response.getheader("Retry-After", ""), read(response))


def _read(response: http.client.HTTPResponse) -> bytes:
    """Older libraries allocate as many bytes as are asked for, so ask for few."""
    if response.length is not None and response.length <= _MAX_ANSWER:
        return response.read()
    content = bytearray()
    for chunk in iter(lambda: response.read(CHUNK), b""):
        content += chunk
        if len(content) > _MAX_ANSWER:
            raise TooLarge("The server's answer is too large.", limit=_MAX_ANSWER)
    return bytes(content)


def copy(response: http.client.HTTPResponse, target: OwnFile, *, limit: int) -> str:
    """Returns the sha256; stops soon after `limit` bytes. Raises LocalFault."""
    digest = hashlib.sha256()
    copied = 0
    while copied <= limit and (chunk := response.read(CHUNK)):
        copied += len(chunk)
        digest.update(chunk)
        target.write(chunk)
    if copied > limit:
        response.close()
    elif response.length:
        # When a body is read in parts, the library does not report that the rest is missing.
        raise http.client.IncompleteRead(b"", response.length)
    return digest.hexdigest()


class BadChecksum(LodesmanError, code="checksum"):
    """The content transferred has another checksum; `data` has `expected` and `actual`."""


class LocalFault(LodesmanError, code="local"):
    """A file of this machine cannot be read or written, or no connection be opened. `data` has `errno`.

    No server is to blame, and to ask again changes nothing.
    """

    @property
    def errno(self) -> int:
        """The number of the system's error."""
        return int(self.data["errno"])


def local_fault(fault: OSError, file: Path | None = None) -> LocalFault:
    """The error for what the system refused here."""
    number, reason = fault.errno or errno.EIO, fault.strerror or str(fault)
    where = "this machine opens no connection" if file is None else str(file)
    hint = "Make room." if number in (errno.ENOSPC, errno.EDQUOT) else ""
    return LocalFault(f"{where}: {reason}.", hint=hint, errno=number)


class OwnFile:
    """A file of this machine whose content travels. Raises LocalFault."""

    def __init__(self, file: Path, mode: str) -> None:
        self._path = file
        self._file = self._tried(lambda: file.open(mode))

    def close(self) -> None:
        """Write what is left, and close it."""
        self._tried(self._file.close)

    def size(self) -> int:
        """In bytes."""
        return self._tried(lambda: os.fstat(self._file.fileno()).st_size)

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, all by default."""
        content: bytes = self._tried(lambda: self._file.read(size))
        return content

    def write(self, content: bytes) -> None:
        """Write all of it."""
        self._tried(lambda: self._file.write(content))

    def _tried(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as fault:
            raise local_fault(fault, self._path) from None


class Aborted(LodesmanError, code="aborted"):
    """Another thread ended the request by `Client.abort`; the server may have carried it out."""


def _by_code(root: type[LodesmanError]) -> dict[str, type[LodesmanError]]:
    """A class that inherits its code is not a class of answers."""
    kinds: dict[str, type[LodesmanError]] = {}
    for kind in root.__subclasses__():
        kinds.update(_by_code(kind))
    return {**kinds, root.code: root}


def fault_of(answer: HttpAnswer) -> LodesmanError:
    """By the code in its body, else by its HTTP status. `data` is what the server sent, with `status` and, if the answer has
    it, `retry_after` in seconds.
    """
    status, error = answer.status, {}
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        member = json.loads(answer.content)["error"]
        error = member if isinstance(member, dict) else {}
    kind = _by_code(LodesmanError).get(str(error.get("code")), _BY_STATUS.get(status, LodesmanError))
    message = error.get("message") or f"The server answered with HTTP status {status}."
    # Constructors of some classes put a message together; this one is complete already.
    fault = kind.__new__(kind)
    LodesmanError.__init__(fault, str(message), hint=str(error.get("hint") or ""))
    data = error.get("data")
    fault.data = {**(data if isinstance(data, dict) else {}), "status": status}
    # It may also be a date.
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", answer.retry_after):
        fault.data["retry_after"] = min(float(answer.retry_after), _MAX_RETRY_AFTER_S)
    return fault


def unanswered_by(server: ServerAddress, fault: Exception, *, sent: bool) -> LodesmanError:
    """`sent`: the request may have changed something."""
    if isinstance(fault, OSError) and fault.errno in _EXHAUSTED:
        return local_fault(fault)
    if isinstance(fault, ssl.SSLCertVerificationError):
        reason = fault.verify_message.rstrip(".")
        hint = _CERTIFICATE_HINTS.get(fault.verify_code, "Ask the administrators of the server.")
        return Unavailable(f"{server}: its certificate is not trusted ({reason}).", hint=hint, sent=sent)
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    hint = ""
    if getattr(fault, "reason", "") == "WRONG_VERSION_NUMBER":
        hint = "The server there may speak http, not https."
    elif not server.secure and isinstance(fault, (ConnectionResetError, http.client.BadStatusLine)):
        hint = "The server there may want https."
    return Unavailable(f"{server} does not answer ({reason}).", hint=hint, sent=sent)
