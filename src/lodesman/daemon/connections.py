"""Connections that end when a request's head is too large or does not come in time.

The web server itself waits for ever and keeps whatever comes; bodies have their limits elsewhere (`api.wire`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# What strangers send must not fill the log; faults of ours are errors.
log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)

HEAD_SECONDS = 30.0
# Beyond the first piece of a head that came in pieces (a piece has at most 256 kB).
HEAD_BYTES = 65_536


class GuardedProtocol(HttpToolsProtocol):
    """HTTP on one connection. A head that comes in one piece, as heads do, costs nothing but a look."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = log
        self._late: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; it has some time for its first words."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: the request that is being answered hears of it, and not only the last."""
        self._stop_waiting()
        answering, self._answering = self._answering, None
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that wants another protocol gets none; that is not worth a line."""

    def data_received(self, data: bytes) -> None:
        """Bytes came. The head is complete as soon as there is a cycle that answers it."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:  # type: ignore[redundant-expr]
            if self._late is not None:
                self._stop_waiting()
        elif self._head_bytes + len(data) > HEAD_BYTES and self._head_bytes:
            self._refuse("The head of the request is too large.")
        elif not self._head_bytes:
            self._stop_waiting()
            self._head_bytes = 1
            self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)
        else:
            self._head_bytes += len(data)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = 0

    def _too_late(self) -> None:
        self._late = None
        if self._head_bytes:
            self._refuse("The head of the request did not come in time.")
        else:
            self.transport.close()

    def _refuse(self, words: str) -> None:
        """End the connection; with a word, unless an answer to an earlier request is on its way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.send_400_response(words)
        else:
            self.transport.close()
