"""The client: one kept connection to whichever of the servers answers.

A server that cannot be reached, or answers 503 (a standby does), is passed over. A request is repeated
only if its caller says that repeating it is harmless.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

from lodesman.client.address import Server, parse_server
from lodesman.client.exchange import (
    CHUNK,
    Answer,
    Call,
    copy,
    exchange,
    is_stale,
    open_connection,
    trusting,
)
from lodesman.client.faults import NOT_NOW, Aborted, BadChecksum, fault_of, unanswered
from lodesman.errors import InvalidConfig, InvalidRequest, LodesmanError, Unavailable

# What changes nothing, whether it arrived or not.
READS = ("GET", "HEAD")
_PATH = re.compile(r"/[!-~]*")
_TOKEN = re.compile(r"[!-~]*")


@dataclass(frozen=True)
class Retry:
    """Rounds over all servers, with exponential back-off and full jitter between them."""

    rounds: int = 5
    base_s: float = 0.25
    cap_s: float = 30.0

    def delay(self, failures: int, rng: random.Random, *, at_least: float = 0.0) -> float:
        """Seconds to wait after `failures` (1 or more) in a row."""
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 30))
        return at_least + rng.uniform(0.0, ceiling)


class _Broken(Exception):
    """The connection failed; `sent` tells whether the server may have seen the request."""

    def __init__(self, fault: Exception, *, sent: bool) -> None:
        super().__init__()
        self.fault = fault
        self.sent = sent


def sha256_of(file: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


class Client:
    """Speaks with one of `servers`, the one that answered last first. Belongs to one thread.

    `token` goes into every request. `timeout` is seconds without a byte; `sleep` and `rng` serve back-off.
    """

    def __init__(
        self,
        servers: Sequence[str],
        token: str = "",
        *,
        ca_file: str | None = None,
        timeout: float = 30.0,
        retry: Retry | None = None,
        sleep: Callable[[float], Any] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not servers:
            raise InvalidConfig("No server address is given.", hint="Write http://host:port.")
        if not _TOKEN.fullmatch(token):
            raise InvalidConfig("The token has characters that no token has.")
        self.servers = tuple(parse_server(text) for text in servers)
        self.timeout = timeout
        self.retry = retry or Retry()
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._trust = trusting(ca_file) if any(server.secure for server in self.servers) else None
        self._sleep = sleep or threading.Event().wait
        self._rng = rng or random.Random()
        self._last_good = 0
        self._connection: http.client.HTTPConnection | None = None
        self._ended = threading.Event()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        idempotent: bool | None = None,
        timeout: float | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send `body` (bytes as they are, all else as JSON) and return the JSON value answered, if any.

        GET is idempotent unless told otherwise, nothing else is. Raises the error that the server names
        (by its code); Unavailable when no server answers, with data `sent` if something may have been changed.
        """
        raw = self.fetch(
            method, path, body, idempotent=idempotent, timeout=timeout, content_type=content_type
        )
        return _decode(raw, f"{method} {path}")

    def fetch(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        idempotent: bool | None = None,
        timeout: float | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """As `request`, but the answer's body as it came."""
        raw = body if body is None or isinstance(body, bytes) else _encode(body)
        call = Call(
            method=method,
            path=path,
            body=raw,
            headers={} if raw is None else {"Content-Type": content_type},
            idempotent=method in READS if idempotent is None else idempotent,
            timeout=self.timeout if timeout is None else timeout,
        )
        return bytes(self._call(call).content)

    def upload(self, path: str, file: Path, sha256: str, *, method: str = "PUT") -> Any:
        """Send a file as it is, repeatedly if need be; returns the JSON value answered, if any.

        Raises BadChecksum if the server received something else, and what `request` raises.
        """
        headers = {"Content-Type": "application/octet-stream", "X-Sha256": sha256}
        call = Call(method, path, body=file, headers=headers, idempotent=True, timeout=self.timeout)
        told = _decode(self._call(call).content, f"{method} {path}")
        actual = told.get("sha256", sha256) if isinstance(told, dict) else sha256
        if actual != sha256:
            raise BadChecksum("The server received something else.", expected=sha256, actual=actual)
        return told

    def download(self, path: str, file: Path, sha256: str, size: int) -> None:
        """Fetch into `file`, which must turn out to have this digest and size (bytes).

        Raises BadChecksum, and what `request` raises; no file is left then.
        """

        def sink(response: http.client.HTTPResponse) -> str:
            with file.open("wb") as target:
                return copy(response, target, limit=size)

        try:
            actual = self._call(Call("GET", path, sink=sink, idempotent=True, timeout=self.timeout)).content
            if actual != sha256:
                raise BadChecksum(f"{path} is not what it should be.", expected=sha256, actual=actual)
        except LodesmanError:
            self.close()
            file.unlink(missing_ok=True)
            raise

    def abort(self) -> None:
        """End the request under way, and any later one until `rearm`. May be called by any thread."""
        self._ended.set()
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
        self._ended.clear()

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _call(self, call: Call) -> Answer:
        if not _PATH.fullmatch(call.path):
            raise InvalidRequest(f"{call.path!r} is no path that can be asked for.")
        failures = 0
        while True:
            try:
                answer = self._round(call)
            except Unavailable as fault:
                failures += 1
                if not call.idempotent or failures >= self.retry.rounds:
                    raise
                at_least = float(fault.data.get("retry_after", 0.0))
                self._sleep(self.retry.delay(failures, self._rng, at_least=at_least))
                continue
            if not answer.good:
                raise _fault(answer)
            return answer

    def _round(self, call: Call) -> Answer:
        """Ask each server once. Raises Unavailable with what the last one said."""
        fault: LodesmanError | None = None
        for step in range(len(self.servers)):
            index = (self._last_good + step) % len(self.servers)
            try:
                answer = self._ask(self.servers[index], call, reuse=step == 0)
            except _Broken as broken:
                fault = _unreached(self.servers[index], broken, call)
                if broken.sent and not call.idempotent:
                    break
                continue
            if answer.status not in NOT_NOW:
                self._last_good = index
                return answer
            fault = _fault(answer)
        if isinstance(fault, Unavailable):
            raise fault
        raise Unavailable(str(fault))

    def _ask(self, server: Server, call: Call, *, reuse: bool) -> Answer:
        connection = self._connect(server, reuse=reuse)
        connection.sock.settimeout(call.timeout)
        # Looked at after `_connection` was set, so `abort` either cuts this socket or is seen here.
        if self._ended.is_set():
            self.close()
            raise Aborted("The request was ended before it was sent.")
        try:
            return exchange(connection, _under(server.base, call), self._authorization)
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            if self._ended.is_set():
                raise Aborted("The request was ended before its answer came.") from None
            raise _Broken(fault, sent=True) from None
        except LodesmanError:
            self.close()
            raise

    def _connect(self, server: Server, *, reuse: bool) -> http.client.HTTPConnection:
        """A live connection: the kept one if it still is."""
        kept = self._connection
        if kept is not None and kept.sock is not None and reuse and not is_stale(kept.sock):
            return kept
        self.close()
        try:
            connection = open_connection(server, self._trust)
            self._connection = connection
            connection.connect()
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            raise _Broken(fault, sent=False) from None
        return connection


def _under(base: str, call: Call) -> Call:
    return replace(call, path=base + call.path) if base else call


def _unreached(server: Server, broken: _Broken, call: Call) -> Unavailable:
    reason, hint = unanswered(broken.fault, secure=server.secure)
    where = f"{server}:" if reason.startswith("its") else str(server)
    sent = broken.sent and call.method not in READS
    return Unavailable(f"{where} {reason}.", hint=hint, sent=sent)


def _fault(answer: Answer) -> LodesmanError:
    body = answer.content if isinstance(answer.content, bytes) else b""
    return fault_of(answer.status, body, retry_after=answer.retry_after)


def _encode(body: Any) -> bytes:
    # What came out of a file name may hold halves of characters that UTF-8 cannot carry.
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _decode(raw: bytes, what: str) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise LodesmanError(f"The answer to {what} is not JSON.") from None
