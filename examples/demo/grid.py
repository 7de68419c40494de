"""The demo's own grid: a server in a process of its own, its users, and its end without a trace.

A server that dies is started again on the same data; whoever asks it meanwhile waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from examples.demo.interrupts import Interrupts

from lodesman.batch import LocalBackend
from lodesman.client import Client, Retry
from lodesman.errors import Conflict, LodesmanError, Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 30.0
# What a dead server left running sees its end by itself.
ORPHAN_SECONDS = 5.0
KILLED_SECONDS = 5.0
# Nobody hears what pilots say any more: there is no use in waiting for their last words.
GRACE_SECONDS = 1.0
# So long a question is asked again while the server is away.
AWAY_SECONDS = 120.0
POLL_SECONDS = 0.1
# A server that ends by itself so often in a row will not run.
BAD_STARTS = 3
NO_SERVER = 5  # the exit code of `lode` for it

T = TypeVar("T")


class NoStart(Unavailable):
    """The server ended by itself while it started."""


class Grid:
    """A server on this machine with the example sites; `home` holds its data, log and tokens.

    `tell` is given a line when the server has to be started again.
    """

    def __init__(
        self,
        home: Path,
        resources: Path,
        *,
        port: int,
        tell: Callable[[str], object] = str,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "server.port": port,
            "server.data": str(home / "data"),
            "pilots.idle_seconds": 4,
            "pilots.heartbeat_seconds": 5,
            "pilots.lease_seconds": 60,
            "pilots.python": sys.executable,
            "resources.files": [str(resources)],
            "director.PollingTime": 1,
            "director.pilotsPerIteration": 8,
            # Private pilots serve one user: with few slots and short idle times they would stand in the way.
            "director.PrivatePilotFraction": 0.2,
        }
        self._arguments = [
            word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")
        ]
        self._tell = tell
        self._interrupts = interrupts or Interrupts()
        self._process: subprocess.Popen[bytes] | None = None

    # --- its life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server and wait until all of it answers.

        Raises NoStart with the end of its log if it gives up, Unavailable if it is killed or takes too long.
        """
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.home / "server.log").open("ab") as log, self._interrupts.held():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lodesman.daemon", "server", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._runs():
            with contextlib.suppress(LodesmanError, OSError):
                self.admin(patient=False).request("GET", "/v1/me")
                return
            time.sleep(POLL_SECONDS)
        tail = (self.home / "server.log").read_text(errors="replace")[-2_000:]
        fault = NoStart if self._process is not None and (self._process.returncode or 0) > 0 else Unavailable
        raise fault(f"The server did not start. The end of its log:\n{tail}")

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def revive(self) -> None:
        """Start the server, or a server that died again, on the same data. Raises as `start`."""
        if self._runs():
            return
        if self._process is not None:
            self._tell(f"The server {_how(self._process.returncode)}; starting it again on the same data.")
            self._end_group(ORPHAN_SECONDS)
        self.start()

    def steadily(self, ask: Callable[[], T]) -> T:
        """What `ask` gives. While the server is away it is revived and asked again.

        Raises Unavailable when that takes too long.
        """
        end = time.monotonic() + AWAY_SECONDS
        bad_starts = 0
        while True:
            try:
                self.revive()
                return ask()
            except Unavailable as fault:
                bad_starts += isinstance(fault, NoStart)
                if bad_starts >= BAD_STARTS or time.monotonic() > end:
                    raise
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the server, then all pilots and payloads, whoever of them was killed before."""
        process = self._process
        if process is None:
            return
        if self._runs():
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        self._end_group(ORPHAN_SECONDS)
        pilots = self.home / "data" / "pilots"
        if pilots.is_dir():
            LocalBackend(pilots, {}).stop_all(grace_seconds=GRACE_SECONDS)
        self._process = None

    def _end_group(self, patience: float) -> None:
        """Wait for the end of the server's own processes; kill what is left of them then.

        What nobody reaps (where process 1 is no init) is there for ever, and runs no more.
        """
        assert self._process is not None  # noqa: S101
        end = time.monotonic() + patience
        number: int = 0
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end + KILLED_SECONDS:
                self._process.poll()
                os.killpg(self._process.pid, number)
                number = signal.SIGKILL if time.monotonic() > end else 0
                time.sleep(POLL_SECONDS)

    # --- asking it ------------------------------------------------------------------------------------

    def admin(self, *, patient: bool = True) -> Client:
        """A client with the administrator's token."""
        try:
            token = (self.home / "data" / "admin.token").read_text().strip()
        except FileNotFoundError:
            raise Unavailable("The server has not made its first token yet.") from None
        return Client([self.url], token, retry=None if patient else Retry(rounds=1))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request of the administrator that may be repeated. Raises LodesmanError."""

        def once() -> Any:
            with contextlib.closing(self.admin(patient=False)) as client:
                return client.request(method, path, body)

        return self.steadily(once)

    def add_user(self, name: str, vo: str, group: str) -> Path:
        """Make a user of one group; returns the file with its token."""
        self.ask("POST", "/v1/users", {"name": name, "vo": vo, "groups": [group]})
        token = self.ask("POST", "/v1/tokens", {"account": name})["token"]
        path = self.home / f"{name}.token"
        path.touch(mode=0o600)
        path.write_text(token + "\n")
        return path

    def lode(self, token: Path, *words: str, partly: bool = False) -> Any:
        """Run one `lode` command as a user would, with --json; returns what it printed.

        It must be one that may be repeated. `partly`: what it says counts although some of it failed. Raises
        Unavailable without a server, Conflict for a command that fails.
        """
        return self.steadily(lambda: self._lode(token, words, partly=partly))

    def _lode(self, token: Path, words: Sequence[str], *, partly: bool) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "lodesman.cli", "--server", self.url, "--token-file", str(token), *words, "--json"],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        said = f"{done.stderr.strip() or done.stdout.strip()}"[:1_000]
        if done.returncode == NO_SERVER:
            raise Unavailable(f"lode {words[0]} found no server: {said}")
        if done.returncode != 0 and not partly:
            raise Conflict(f"lode {words[0]} failed: {said}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Conflict(f"lode {words[0]} did not answer in JSON: {said}") from None

    def payloads_started(self) -> Counter[str]:
        """How often each attempt (JOB.ATTEMPT) was started, as the pilots themselves wrote down."""
        found: Counter[str] = Counter()
        for path in (self.home / "data" / "pilots").glob("*/std.err*"):
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict) and event.get("event") == "payload-started":
                        found[str(event.get("job"))] += 1
        return found


@contextlib.contextmanager
def running(grid: Grid, interrupts: Interrupts) -> Iterator[Grid]:
    """The grid while it runs; it is stopped whatever happens, and nothing interrupts that."""
    try:
        try:
            grid.steadily(grid.admin)
            yield grid
        finally:
            interrupts.ignore()
            grid.stop()
    finally:
        # Again, for an interrupt that came between the end and `ignore`.
        interrupts.ignore()
        grid.stop()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ranges(first: int, count: int) -> Sequence[int]:
    """The ids of a submission."""
    return range(first, first + count)
