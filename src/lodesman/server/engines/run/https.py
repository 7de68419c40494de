"""Requests to a service by HTTPS, with a certificate or a token that others renew."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from lodesman.base.errors import BackendFault

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_PORTION: Final = 1 << 16
# A connection that is used longer would go on with a certificate or token that was renewed since.
_AGE_SECONDS: Final = 300.0


class Answer(NamedTuple):
    """An answer of any code, with the phrase that came with it."""

    code: int
    reason: str
    body: bytes
    length: int | None  # of the body as the service says it, also where it sends none


class _Connection(NamedTuple):
    connection: HTTPSConnection
    headers: Mapping[str, str]
    until: float


@dataclass(eq=False, kw_only=True)
class Https:
    """A service at `url`; its host's certificate is always checked. Files are read for each connection, which lasts
    5 minutes. Safe from several threads.
    """

    url: str
    ca: str = ""  # certificates to trust, a file or folder; '': those of this machine
    certificate: str = ""  # a PEM file with our own, its chain and key (as in a proxy)
    key: str = ""  # where the key is not in `certificate`
    token_file: str = ""  # holds a bearer token
    seconds: float = 60.0  # for a whole request
    most_bytes: int = 64 << 20  # of an answer
    _idle: list[_Connection] = field(default_factory=list, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self._idle)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        seconds: float | None = None,
    ) -> Answer:
        """Raises BackendFault, transient, if no answer comes in time: the request may have had its effect. One that
        is not `repeatable` is sent at most once.
        """
        deadline = time.monotonic() + (seconds or self.seconds)
        kept = self._take() if repeatable else None
        if kept is not None:
            try:
                return self._exchange(kept, method, path, body, headers=headers, deadline=deadline)
            except (ConnectionError, ssl.SSLError):
                kept.connection.close()  # the service ended it while it was idle
            except (OSError, HTTPException, ValueError) as fault:
                raise self._fault(kept, fault) from None
        opened = None
        try:
            opened = self._connect()
            return self._exchange(opened, method, path, body, headers=headers, deadline=deadline)
        except (OSError, HTTPException, ValueError) as fault:
            raise self._fault(opened, fault) from None

    def _take(self) -> _Connection | None:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.until > time.monotonic():
                    return connection
                connection.connection.close()
        return None

    def _connect(self) -> _Connection:
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.hostname:
            raise BackendFault(
                f"{self.url!r} is no address of a service.", hint="Write https://HOST:PORT/PATH."
            )
        folder = Path(self.ca).is_dir() if self.ca else False
        context = ssl.create_default_context(
            cafile=None if folder else self.ca or None, capath=self.ca if folder else None
        )
        if self.certificate:
            # Without a password it would ask for one at the terminal.
            context.load_cert_chain(self.certificate, self.key or None, password=lambda: "")
        headers = {"Authorization": f"Bearer {self._token()}"} if self.token_file else {}
        connection = HTTPSConnection(parts.hostname, parts.port or 443, timeout=self.seconds, context=context)
        connection.connect()
        return _Connection(connection, headers, time.monotonic() + _AGE_SECONDS)

    def _token(self) -> str:
        token = Path(self.token_file).read_text(encoding="utf-8").strip()
        if not _TOKEN.fullmatch(token):  # a library that sent it would say it in its complaint
            raise BackendFault(
                f"{self.token_file} does not hold a token.",
                hint="It has one line without blanks.",
                transient=True,
            )
        return token

    def _exchange(
        self,
        opened: _Connection,
        method: str,
        path: str,
        body: bytes | None,
        *,
        headers: Mapping[str, str] | None,
        deadline: float,
    ) -> Answer:
        connection = opened.connection
        line = connection.sock
        line.settimeout(_left(deadline))
        connection.request(
            method, urlsplit(self.url).path.rstrip("/") + path, body, {**opened.headers, **(headers or {})}
        )
        with connection.getresponse() as response:
            length = response.getheader("Content-Length", "")
            content = self._read(response, line, deadline)
        # After a refusal the certificate or the token may have to be read again.
        if response.will_close or response.status in {401, 403}:
            connection.close()
        else:
            with self._lock:
                self._idle.append(opened)
        return Answer(response.status, response.reason, content, int(length) if length.isdigit() else None)

    def _read(self, response: HTTPResponse, line: socket.socket, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            line.settimeout(_left(deadline))
            part = response.read1(_PORTION)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > self.most_bytes:
                raise HTTPException(f"its answer is longer than {self.most_bytes >> 20} MB")
        if response.length:
            raise HTTPException("its answer is cut off")
        return b"".join(parts)

    def _fault(self, opened: _Connection | None, fault: Exception) -> BackendFault:
        if opened is not None:
            opened.connection.close()
        reason = str(fault.strerror or fault) if isinstance(fault, OSError) else str(fault)
        if isinstance(fault, TimeoutError):
            reason = "its answer did not come in time"
        named = f" ({fault.filename})" if isinstance(fault, OSError) and fault.filename else ""
        return BackendFault(
            f"{self.url} cannot be asked: {reason or type(fault).__name__}{named}.", transient=True
        )


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _close(idle: list[_Connection]) -> None:
    for opened in idle:
        opened.connection.close()
