"""The demo's own grid: a server in a process of its own, its users, and its end without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lodesman.client import Client, Retry
from lodesman.errors import LodesmanError, Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.1


class Grid:
    """A server on this machine with the example sites; `home` holds its data, log and tokens."""

    def __init__(self, home: Path, resources: Path, *, port: int) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "server.port": port,
            "server.data": str(home / "data"),
            "pilots.idle_seconds": 4,
            "pilots.heartbeat_seconds": 5,
            "pilots.python": sys.executable,
            "pilots.stop_at_exit": True,
            "resources.files": [str(resources)],
            "director.PollingTime": 1,
            "director.pilotsPerIteration": 8,
            # Private pilots serve one user: with few slots and short idle times they would stand in the way.
            "director.PrivatePilotFraction": 0.2,
        }
        self._arguments = [
            word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until all of it answers. Raises Unavailable with the end of its log."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lodesman.daemon", "server", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self._process is not None  # noqa: S101
            if self._process.poll() is not None:
                break
            with contextlib.suppress(LodesmanError, OSError):
                self.admin(patient=False).request("GET", "/v1/me")
                return
            time.sleep(POLL_SECONDS)
        tail = (self.home / "server.log").read_text(errors="replace")[-2_000:]
        raise Unavailable(f"The server did not start. The end of its log:\n{tail}")

    def admin(self, *, patient: bool = True) -> Client:
        """A client with the administrator's token."""
        token = (self.home / "data" / "admin.token").read_text().strip()
        return Client([self.url], token, retry=None if patient else Retry(rounds=1))

    def add_user(self, name: str, vo: str, group: str) -> Path:
        """Make a user of one group; returns the file with its token."""
        admin = self.admin()
        admin.request("POST", "/v1/users", {"name": name, "vo": vo, "groups": [group]})
        token = admin.request("POST", "/v1/tokens", {"account": name})["token"]
        path = self.home / f"{name}.token"
        path.touch(mode=0o600)
        path.write_text(token + "\n")
        return path

    def lode(self, token: Path, *words: str) -> Any:
        """Run one `lode` command as a user would, with --json; returns what it printed. Raises Unavailable."""
        done = subprocess.run(
            [sys.executable, "-m", "lodesman.cli", "--server", self.url, "--token-file", str(token), *words, "--json"],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        if done.returncode != 0:
            raise Unavailable(f"lode {words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = f"{done.stdout[:500]!r} {done.stderr[:500]!r}"
            raise Unavailable(f"lode {words[0]} did not answer in JSON: {said}") from None

    def stop(self) -> None:
        """End the server; it ends its pilots, and they their payloads."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process = None


@contextlib.contextmanager
def running(grid: Grid) -> Iterator[Grid]:
    """The grid while it runs; it is stopped whatever happens, a second Ctrl-C included."""
    try:
        grid.start()
        yield grid
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            grid.stop()
        finally:
            signal.signal(signal.SIGINT, before)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ranges(first: int, count: int) -> Sequence[int]:
    """The ids of a submission."""
    return range(first, first + count)
