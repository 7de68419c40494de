"""Web servers: for clients on TCP, for the server's own processes on Unix sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvloop

from lodesman.base.errors import Unavailable
from lodesman.server.config.sections import ServerSection
from lodesman.server.main.connections import ConnectionGroup, HttpConnection, OwnConnection
from lodesman.server.main.guarded import GuardedConnection

log = logging.getLogger(__name__)

# Of TLS 1.2; those of 1.3 are all of this kind: forward secrecy, authenticated encryption.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_BACKLOG: Final = 2_048
# What is being answered when the server ends may take that long.
_GRACE_SECONDS: Final = 3.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_Step = Callable[[], Awaitable[None]]


class Listener:
    """Serves connections until `end` is called, then lets answers come to their end."""

    grace_seconds: float | None = None  # no limit

    def __init__(self, app: Callable[..., Awaitable[None]], connection: type[HttpConnection]) -> None:
        self.serving = ConnectionGroup(app)
        self.connection = connection
        self.servers: list[asyncio.AbstractServer] = []
        self.ending, self.forced = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """End in order. Any thread and any signal handler may call this."""
        self._set(self.ending)

    def end_at_once(self) -> None:
        """Wait for nothing any more."""
        self._set(self.ending)
        self._set(self.forced)

    def _set(self, event: asyncio.Event) -> None:
        if self._loop is None:
            event.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(event.set)

    def connect(self) -> HttpConnection:
        """What serves a connection that was made."""
        return self.connection(self.serving)

    async def stop(self) -> None:
        """Take no more connections, and end those that have their answers."""
        serving = self.serving
        for server in self.servers:
            server.close()
        for connection in list(serving.connections):
            connection.shutdown()
        await _first(serving.wait_idle(), self.forced.wait(), seconds=self.grace_seconds)
        left = list(serving.tasks)
        if left:
            log.warning("requests are broken off: the server ends", extra={"requests": len(left)})
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class Web(Listener):
    """The web server for clients: it serves until `before_stop` is done, or Ctrl-C comes again."""

    grace_seconds = _GRACE_SECONDS

    def __init__(
        self, app: Any, section: ServerSection, *, on_start: _Step, before_stop: _Step, on_stop: _Step
    ) -> None:
        """`on_start` and `on_stop` run on its loop, before the first request and after the last."""
        super().__init__(app, GuardedConnection)
        self._section = section
        self._on_start, self._before_stop, self._on_stop = on_start, before_stop, on_stop

    def run(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on listening sockets, until SIGINT, SIGTERM or `end`."""
        with self._heeding_signals(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(sockets))

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        loop, tls = asyncio.get_running_loop(), _tls_context(self._section)
        self._loop = loop
        await self._on_start()
        self.servers = [
            await loop.create_server(self.connect, sock=listening, ssl=tls, backlog=_BACKLOG)
            for listening in sockets
        ]
        await self.ending.wait()
        await self.stop()
        if not self.forced.is_set():
            await self._on_stop()

    async def stop(self) -> None:
        """Run `before_stop`, then stop listening."""
        before = asyncio.ensure_future(self._before_stop())
        for connection in list(self.serving.connections):
            if isinstance(connection, GuardedConnection):
                connection.end_waiting()
        await _first(asyncio.shield(before), self.forced.wait())
        await super().stop()

    @contextlib.contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """SIGINT again ends the server at once; afterwards signals do as before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught: list[int] = []

        def heed(number: int, _frame: FrameType | None) -> None:
            again = self.ending.is_set() and number == signal.SIGINT
            caught.append(number)
            (self.end_at_once if again else self.end)()

        before = {number: signal.signal(number, heed) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for signaled in reversed(caught):
            signal.raise_signal(signaled)


class OwnServer(Listener):
    """A web server on a Unix socket for the server's own processes; signals belong to its process."""

    def __init__(self, app: Any, path: str) -> None:
        _clear(Path(path))
        super().__init__(app, OwnConnection)
        self._path = path

    async def serve(self) -> None:
        """Serve until `end` is called."""
        self._loop = asyncio.get_running_loop()
        self.servers = [await self._loop.create_unix_server(self.connect, self._path, backlog=_BACKLOG)]
        await self.ending.wait()
        await self.stop()


async def _first(*waits: Awaitable[Any], seconds: float | None = None) -> None:
    tasks = {asyncio.ensure_future(awaitable) for awaitable in waits}
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _tls_context(section: ServerSection) -> ssl.SSLContext | None:
    if not section.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(section.tls_certificate, section.tls_key or None)
    context.set_ciphers(_CIPHERS)
    return context


def _clear(path: Path) -> None:
    """Raises Unavailable. A left-over socket is replaced by itself."""
    try:
        if path.is_dir():
            path.rmdir()
        elif not path.is_socket():
            path.unlink(missing_ok=True)
    except OSError as fault:
        words = f"{path} is in the place of a socket of the server, and cannot be removed: {fault.strerror}."
        raise Unavailable(words, hint="Move it away.") from None
