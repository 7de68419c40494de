"""One kept connection to whichever of the servers answers. A server that cannot be reached, or answers 503 (as a standby
does), is skipped. A request is repeated only if its caller declares it idempotent.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import random
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from lodesman.base.errors import InvalidConfig, InvalidRequest, LodesmanError, Unavailable
from lodesman.wire.client import exchange
from lodesman.wire.client.exchange import Aborted, BadChecksum, HttpAnswer, HttpRequest, ServerAddress

# Methods that change nothing.
_READS = ("GET", "HEAD")
# Seconds without a byte.
_IDLE_S = 30.0
_PATH = re.compile(r"/[!-~]*")
_TOKEN = re.compile(r"[!-~]*")


@dataclass(frozen=True)
class Retry:
    """Rounds over all servers, with exponential back-off and full jitter between them."""

    rounds: int = 5
    # Also where a server says that a part of it is silent, which takes a person to mend.
    patient: bool = True
    base_s: float = 0.25
    cap_s: float = 30.0

    def delay(self, failures: int, rng: random.Random, *, at_least: float = 0.0) -> float:
        """In seconds, after `failures` (1 or more) in a row."""
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 30))
        return at_least + rng.uniform(0.0, ceiling)


def sha256_of(file: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for chunk in iter(lambda: source.read(exchange.CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


class Client:
    """Sends requests to one of `servers`, first to the one that answered last. Belongs to one thread.

    `token` goes into every request. `url_file`: where a server of this machine writes its address, which its next start
    may change; `servers` is then where it was.
    """

    def __init__(
        self,
        servers: Sequence[str | ServerAddress],
        token: str = "",
        *,
        ca_file: str | None = None,
        url_file: str | None = None,
        retry: Retry | None = None,
        sleep: Callable[[float], Any] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not servers:
            raise InvalidConfig("No server address is given.", hint="Write http://host:port.")
        if not _TOKEN.fullmatch(token):
            raise InvalidConfig("The token contains invalid characters.")
        self.servers = tuple(
            address if isinstance(address, ServerAddress) else exchange.parse_server(address)
            for address in servers
        )
        self._url_file = None if url_file is None else Path(url_file)
        self._find_again()
        self._retry = retry or Retry()
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._trust = (
            exchange.trusted_authorities(ca_file) if any(server.secure for server in self.servers) else None
        )
        self._sleep = sleep or threading.Event().wait
        self._rng = rng or random.Random()
        self._last_good = 0
        self._connection: http.client.HTTPConnection | None = None
        self._aborted = threading.Event()

    def request(
        self, method: str, path: str, body: Any = None, *, idempotent: bool = False, timeout: float = _IDLE_S
    ) -> Any:
        """Send `body` (bytes as they are, else JSON) and return the JSON value answered, if any.

        GET is always idempotent; `timeout` is seconds without a byte. Raises the error that the server names by its code;
        Unavailable when no server answers, with data `sent` if something may have been changed.
        """
        raw = self.fetch(method, path, body, idempotent=idempotent, timeout=timeout)
        return _decode(raw, f"{method} {path}")

    def fetch(
        self, method: str, path: str, body: Any = None, *, idempotent: bool = False, timeout: float = _IDLE_S
    ) -> bytes:
        """As `request`, but returns the answer's body as it came."""
        if body is not None and not isinstance(body, bytes):
            # A file name may contain surrogates, which UTF-8 cannot carry.
            text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
            body = text.encode("utf-8", "replace")
        headers = {} if body is None else {"Content-Type": "application/json"}
        idempotent = idempotent or method in _READS
        request = HttpRequest(method, path, body, headers, idempotent=idempotent, timeout=timeout)
        return bytes(self._send(request).content)

    def upload(self, path: str, file: Path, sha256: str, *, method: str = "PUT") -> Any:
        """Returns the JSON value answered, if any. Raises BadChecksum if the server received something else, LocalFault if
        the file cannot be read, and what `request` raises.
        """
        headers = {"Content-Type": "application/octet-stream", "X-Sha256": sha256}
        request = HttpRequest(method, path, body=file, headers=headers, idempotent=True)
        answer = _decode(self._send(request).content, f"{method} {path}")
        actual = answer.get("sha256", sha256) if isinstance(answer, dict) else sha256
        if actual != sha256:
            raise BadChecksum("The server received something else.", expected=sha256, actual=actual)
        return answer

    def download(self, path: str, file: Path, sha256: str, size: int) -> None:
        """Fetch what must have this digest and size in bytes.

        Raises BadChecksum, LocalFault if it cannot be written, and what `request` raises; no file is left then.
        """

        def sink(response: http.client.HTTPResponse) -> str:
            with contextlib.closing(exchange.OwnFile(file, "wb")) as target:
                return exchange.copy(response, target, limit=size)

        try:
            actual = self._send(HttpRequest("GET", path, sink=sink, idempotent=True)).content
            if actual != sha256:
                words = f"{path} has another checksum than expected."
                raise BadChecksum(words, expected=sha256, actual=actual)
        except LodesmanError:
            self.close()
            with contextlib.suppress(OSError):
                file.unlink()
            raise

    def abort(self) -> None:
        """End the request under way, and any later one until `rearm`. Any thread may call it."""
        self._aborted.set()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                # The method of the plain socket: a TLS connection is cut, too, without a farewell.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return  # the other thread closed it: what was wanted

    def rearm(self) -> None:
        """Allow requests again after `abort`."""
        self._aborted.clear()

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, request: HttpRequest) -> HttpAnswer:
        """In rounds over the servers until one does what is asked. Raises what the last answer means."""
        if not _PATH.fullmatch(request.path):
            raise InvalidRequest(f"{request.path!r} is not a valid path.")
        failures = 0
        while True:
            try:
                answer = self._round(request)
            except Unavailable as fault:
                failures += 1
                self._find_again()
                in_vain = not self._retry.patient and "silent_seconds" in fault.data
                if not request.idempotent or in_vain or failures >= self._retry.rounds:
                    raise
                at_least = float(fault.data.get("retry_after", 0.0))
                self._sleep(self._retry.delay(failures, self._rng, at_least=at_least))
                continue
            if not answer.good:
                raise exchange.fault_of(answer)
            return answer

    def _find_again(self) -> None:
        """An address file that is unreadable, or of another kind, changes nothing."""
        if self._url_file is None:
            return
        try:
            server = exchange.parse_server(self._url_file.read_text(encoding="ascii").strip())
        except (OSError, ValueError, InvalidConfig):
            return
        if server.is_private and server.secure == self.servers[0].secure:
            self.servers, self._last_good = (server,), 0

    def _round(self, request: HttpRequest) -> HttpAnswer:
        fault: LodesmanError | None = None
        for step in range(len(self.servers)):
            index = (self._last_good + step) % len(self.servers)
            try:
                answer = self._ask(self.servers[index], request, reuse=step == 0)
            except Unavailable as unanswered:
                fault = unanswered
                if fault.data["sent"] and not request.idempotent:
                    break
                continue
            if answer.status not in exchange.NOT_NOW:
                self._last_good = index
                return answer
            fault = exchange.fault_of(answer)
        raise fault if isinstance(fault, Unavailable) else Unavailable(str(fault))

    def _ask(self, server: ServerAddress, request: HttpRequest, *, reuse: bool) -> HttpAnswer:
        """Raises Unavailable if no answer came, LocalFault if this machine could not ask."""
        connection = self._connect(server, reuse=reuse)
        connection.sock.settimeout(request.timeout)
        # Checked after `_connection` was set, so `abort` either cuts this socket or is seen here.
        if self._aborted.is_set():
            self.close()
            raise Aborted("The request was ended before it was sent.")
        try:
            return exchange.send(connection, request, server.base + request.path, self._authorization)
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            if self._aborted.is_set():
                raise Aborted("The request was ended before its answer came.") from None
            raise exchange.unanswered_by(server, fault, sent=request.method not in _READS) from None
        except LodesmanError:
            self.close()
            raise

    def _connect(self, server: ServerAddress, *, reuse: bool) -> http.client.HTTPConnection:
        kept = self._connection
        if kept is not None and kept.sock is not None and reuse and not exchange.is_stale(kept.sock):
            return kept
        self.close()
        try:
            self._connection = connection = exchange.open_connection(server, self._trust)
            connection.connect()
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            raise exchange.unanswered_by(server, fault, sent=False) from None
        return connection


def _decode(raw: bytes, call: str) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise LodesmanError(f"The answer to {call} is not JSON.") from None
