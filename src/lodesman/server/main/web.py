"""The web server of the hot process, and how it ends; those on the sockets that both processes have for each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import uvicorn

from lodesman.base.errors import Unavailable
from lodesman.server.config.sections import ServerSection
from lodesman.server.main.connections import GuardedProtocol, OwnProtocol

# Of TLS 1.2; those of 1.3 are all of this kind: forward secrecy, authenticated encryption.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
# How soon a second Ctrl-C is noticed.
_FORCED_SECONDS: Final = 0.1


class Web(uvicorn.Server):
    """The web server: it serves until `before_stop` is done, or until Ctrl-C is pressed again."""

    def __init__(
        self, app: Any, section: ServerSection, before_stop: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        config = uvicorn.Config(
            app,
            host=section.host,
            port=section.port,
            loop="uvloop",
            http=GuardedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            ssl_certfile=section.tls_certificate or None,
            ssl_keyfile=section.tls_key or None,
            ssl_ciphers=_CIPHERS,
        )
        super().__init__(config)
        self._before_stop = before_stop

    def end(self) -> None:
        """End as after SIGTERM. Any thread may call this."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Run `before_stop`, then stop listening."""
        ending = asyncio.create_task(self._before_stop(), name="ending")
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.end_waiting()
        while not ending.done() and not self.force_exit:
            await asyncio.wait({ending}, timeout=_FORCED_SECONDS)
        await super().shutdown(sockets)


class OwnServer(uvicorn.Server):
    """A web server on a Unix socket for the server's own processes; signals belong to its process.

    Raises Unavailable for a place that cannot be cleared of what is no socket.
    """

    def __init__(self, app: Any, path: str) -> None:
        _clear(Path(path))
        super().__init__(uvicorn.Config(
            app, uds=path, http=OwnProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False,
        ))  # fmt: skip

    def capture_signals(self) -> Any:
        """Nothing to capture."""
        return contextlib.nullcontext()


def _clear(path: Path) -> None:
    """Remove a file or an empty folder; a socket that was left over is replaced by itself."""
    try:
        if path.is_dir():
            path.rmdir()
        elif not path.is_socket():
            path.unlink(missing_ok=True)
    except OSError as fault:
        words = f"{path} is in the place of a socket of the server, and cannot be removed: {fault.strerror}."
        raise Unavailable(words, hint="Move it away.") from None
