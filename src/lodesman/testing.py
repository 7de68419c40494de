"""A real server for tests of programs that use Lodesman: `with lodesman.testing.server() as here: here.client()`.

It runs in a folder of its own, with pilots on this machine, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.user.python import AsyncClient, Client

_START_S: Final = 60.0
_END_S: Final = 30.0
# Jobs of tests are short, and wait for nothing.
_QUICK: Final[Mapping[str, Any]] = {
    "pilots.heartbeat_seconds": 1, "pilots.idle_seconds": 30, "pilots.stop_at_exit": True, "director.PollingTime": 1,
}  # fmt: skip


class LocalServer:
    """A server that runs. folder: its own; url, token: of its administrator."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.folder = folder
        self.url = url
        self.token = token

    def client(self) -> Client:
        """A client of the administrator."""
        return Client(self.url, token=self.token)

    def async_client(self) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(self.url, token=self.token)


@contextmanager
def server(**settings: Any) -> Iterator[LocalServer]:
    """A server until the end of the block; settings as `director__PollingTime=5`. Its pilots run with the Python of this
    program. Raises Unavailable with the end of its log if it does not start.
    """
    given = {name.replace("__", "."): value for name, value in settings.items()}
    with tempfile.TemporaryDirectory(prefix="lodesman-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        lode = [sys.executable, "-m", "lodesman.user.cli"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LODE_")}
        subprocess.run([*lode, "init", str(folder)], check=True, capture_output=True, env=environ)
        words = [f"--set={name}={json.dumps(value)}" for name, value in {**_QUICK, **given}.items()]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*lode, "server", "--config", str(folder / "lode.toml"), "--port", "0", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=environ,
            )  # fmt: skip
        try:
            yield _started(folder, process)
        finally:
            _end(process)


def _started(folder: Path, process: subprocess.Popen[bytes]) -> LocalServer:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError, LodesmanError):
            url = (folder / "lode-data" / "run" / "url").read_text().strip()
            token = (folder / "lode-data" / "admin.token").read_text().strip()
            found = LocalServer(folder, url, token)
            with found.client() as client:
                client.core.ready()
            return found
        threading.Event().wait(0.05)
    tail = (folder / "server.log").read_text(errors="replace")[-2_000:]
    raise Unavailable(f"The server did not start:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With its pilots, and their jobs."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
