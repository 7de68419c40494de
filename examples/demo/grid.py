"""The demo's own grid: a server process, its users, and its complete removal.

A server that dies is started again on the same data; requests wait meanwhile.
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from examples.demo.engines import Engine, forget_pilots, read_pilots, sites_on
from examples.demo.interrupts import Interrupts

from lodesman.base import kernel
from lodesman.base.errors import Conflict, LodesmanError, Unavailable
from lodesman.server.config.backends import BackendSection
from lodesman.server.engines.backend import Backend
from lodesman.server.engines.isolation import Wishes, find_isolation
from lodesman.server.engines.local import LocalBackend
from lodesman.server.loops.cancelling import end_all
from lodesman.server.main.backends import END_SECONDS, make_backend
from lodesman.server.store import Reader, database_at
from lodesman.wire import calls
from lodesman.wire.accounts import AccountBody, TokenBody
from lodesman.wire.call import Call, Nothing, encode
from lodesman.wire.client import Client, Retry

START_SECONDS = 60.0
STOP_SECONDS = 30.0
# The processes of a dead server see its end and end themselves.
ORPHAN_SECONDS = 5.0
KILLED_SECONDS = 5.0
# No server accepts the last results of pilots: waiting for them is useless.
GRACE_SECONDS = 1.0
# A request is repeated for this time while the server is away.
AWAY_SECONDS = 120.0
POLL_SECONDS = 0.1
# A server that ends by itself this number of times in a row will not run.
BAD_STARTS = 3
NO_SERVER = 5  # the exit code of `lode` for it

T = TypeVar("T")
B = TypeVar("B")


def _run_as(home: Path) -> dict[str, object]:
    """Jobs of a demo that root runs have an account without rights, or root's where that is impossible: they are its own."""
    if os.geteuid():
        return {"local.trust_jobs": True}
    wishes = Wishes(data=home, run_as="nobody", python=sys.executable)
    able = find_isolation(wishes, make_account=False).usable
    return {"local.trust_jobs": True, "local.run_as": "nobody" if able else "root"}


def _end_with_the_demo() -> None:
    """In the server, before it runs: it is ended in order when the demo is killed."""
    kernel.set_attribute(kernel.PDEATHSIG, signal.SIGTERM)


class NoStart(Unavailable):
    """The server ended by itself while it started."""


class Grid:
    """A server on this machine with the example sites; `home` holds its data, log and tokens.

    `note` gets a line when the server has to be started again.
    """

    def __init__(
        self,
        home: Path,
        resources: Path,
        *,
        port: int,
        store: str = "",
        note: Callable[[str], object] = str,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        self._settings = {
            "server.port": port,
            "server.data": str(home / "data"),
            "pilots.idle_seconds": 4,
            "pilots.heartbeat_seconds": 5,
            "pilots.lease_seconds": 60,
            "pilots.python": sys.executable,
            **_run_as(home),
            "resources.files": [str(resources)],
            "store.url": store,
            "director.PollingTime": 1,
            "director.pilotsPerIteration": 8,
        }
        self._backends: Mapping[str, Backend] = {}
        self._lasting: Collection[str] = ()
        self._wrote: dict[str, bytes] = {}
        self._note = note
        self._interrupts = interrupts or Interrupts()
        self._process: subprocess.Popen[bytes] | None = None

    def send_to(self, engines: Sequence[Engine]) -> None:
        """Have pilots on these batch systems, before the start. They end with the server, while it takes reports."""
        sites = self.home / "sites.toml"
        sites.write_text(sites_on(engines))
        self._settings |= {f"backend.{engine.kind}": engine.section for engine in engines}
        self._settings |= {
            "resources.files": [str(sites)],
            "pilots.python": "python3",
            "pilots.stop_at_exit": True,
        }
        made = {engine.kind: msgspec.convert(engine.section, BackendSection) for engine in engines}
        self._backends = {kind: make_backend(one, self.home / "ssh") for kind, one in made.items()}
        self._lasting = [engine.kind for engine in engines if not engine.is_ours]

    # --- its life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server and wait until both processes answer.

        Raises NoStart with the end of its log if it gives up, Unavailable if it is killed or takes too long.
        """
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.home / "server.log").open("ab") as log, self._interrupts.held():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lodesman.server.main", "server", *_arguments(self._settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment(),
                preexec_fn=_end_with_the_demo,  # noqa: PLW1509 - one call of the kernel, which needs no lock
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._runs():
            with contextlib.suppress(LodesmanError, OSError):
                self._once(calls.ME)
                return
            time.sleep(POLL_SECONDS)
        tail = (self.home / "server.log").read_text(errors="replace")[-2_000:]
        fault = NoStart if (self._process.returncode or 0) > 0 else Unavailable
        raise fault(f"The server did not start. The end of its log:\n{tail}")

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def steadily(self, ask: Callable[[], T]) -> T:
        """What `ask` returns. A server that is gone is started again, and `ask` repeated.

        Raises Unavailable when that takes too long.
        """
        end = time.monotonic() + AWAY_SECONDS
        bad_starts = 0
        while True:
            try:
                self._revive()
                return ask()
            except Unavailable as fault:
                bad_starts += isinstance(fault, NoStart)
                if bad_starts >= BAD_STARTS or time.monotonic() > end:
                    raise
            time.sleep(POLL_SECONDS)

    def _revive(self) -> None:
        """Start the server, or a server that died again, on the same data. Raises as `start`."""
        if self._runs():
            return
        if self._process is not None:
            self._note(f"The server {_end_of(self._process)}; starting it again on the same data.")
            self._end_group(ORPHAN_SECONDS)
        self.start()

    def stop(self) -> None:
        """End the server, then all pilots and payloads, also if some of them were killed before."""
        process = self._process
        if process is None:
            return
        if self._backends:
            self._note("Ending the pilots.")
        if self._runs():
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS + (END_SECONDS if self._backends else 0.0))
        self._end_group(ORPHAN_SECONDS)
        pilots = self.home / "data" / "pilots"
        if pilots.is_dir():
            LocalBackend(pilots, {}).stop_all(grace_seconds=GRACE_SECONDS)
        if self._backends:
            self._leave(in_order=process.returncode in (0, -signal.SIGTERM))
        self._process = None

    def _leave(self, *, in_order: bool) -> None:
        """Leave nothing in batch systems that outlive the demo. `in_order`: the server ended the pilots."""
        lasting = {kind: self._backends[kind] for kind in self._lasting}
        try:
            with self._database() as db:
                if not in_order:
                    end_all(db, lasting, seconds=END_SECONDS)
                self._wrote |= {
                    stamp: text for stamp, text in read_pilots(db, self._backends).items() if text
                }
                left = forget_pilots(db, lasting)
        except LodesmanError as fault:
            self._note(f"Pilots may be left: {fault}")
        else:
            if left:
                self._note(f"These pilots may not have ended: {', '.join(left)}.")

    def read_pilots(self) -> None:
        """Take what pilots on batch systems wrote until now: not all keep it of pilots that were removed."""
        if self._backends:
            try:
                with self._database() as db:
                    self._wrote = read_pilots(db, self._backends)
            except LodesmanError as fault:  # it is tried again at the end
                self._note(f"What pilots wrote cannot be read now: {fault}")

    @contextlib.contextmanager
    def _database(self) -> Iterator[Reader]:
        """The server's database, whether it runs or not. Raises Unavailable."""
        database = database_at(str(self._settings["store.url"]), self.home / "data")
        with database.usable(), contextlib.closing(database.reader()) as db:
            yield db

    def _end_group(self, timeout: float) -> None:
        """Wait for the end of the server's own processes; kill what is left of them then.

        Zombies that are never reaped (where process 1 is not an init) do not delay this.
        """
        assert self._process is not None  # noqa: S101
        end = time.monotonic() + timeout
        number: int = 0
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end + KILLED_SECONDS:
                self._process.poll()
                os.killpg(self._process.pid, number)
                number = signal.SIGKILL if time.monotonic() > end else 0
                time.sleep(POLL_SECONDS)

    # --- requests -------------------------------------------------------------------------------------

    def call(self, call: Call[Nothing, B, T], body: B | None = None) -> T:
        """The answer to a call of the administrator that may be repeated. Raises LodesmanError."""
        return self.steadily(lambda: self._once(call, body))

    def _once(self, call: Call[Nothing, B, T], body: B | None = None) -> T:
        try:
            token = (self.home / "data" / "admin.token").read_text().strip()
        except FileNotFoundError:
            raise Unavailable("The server has not made its first token yet.") from None
        raw = None if body is None else encode(body)
        with contextlib.closing(Client([self.url], token, retry=Retry(rounds=1))) as client:
            return call.read(client.fetch(call.method, call.path, raw))

    def add_user(self, name: str, vo: str, group: str) -> Path:
        """Make a user of one group; returns the file with its token."""
        self.call(calls.ADD_USER, AccountBody(name=name, vo=vo, groups=[group]))
        token = self.call(calls.ISSUE_TOKEN, TokenBody(account=name)).token
        path = self.home / f"{name}.token"
        path.touch(mode=0o600)
        path.write_text(token + "\n")
        return path

    def lode(self, token: Path, *words: str, partly: bool = False) -> Any:
        """Run one `lode` command as a user would, with --json; returns what it printed.

        It must be one that may be repeated. `partly`: its answer counts although some of it failed. Raises
        Unavailable without a server, Conflict for a command that fails.
        """
        return self.steadily(lambda: self._lode(token, words, partly=partly))

    def _lode(self, token: Path, words: Sequence[str], *, partly: bool) -> Any:
        code, said, complained = self._run(
            sys.executable,
            "-m",
            "lodesman.user.cli",
            "--server",
            self.url,
            "--token-file",
            str(token),
            *words,
            "--json",
        )
        output = f"{complained.strip() or said.strip()}"[:1_000]
        if code == NO_SERVER:
            raise Unavailable(f"lode {words[0]} found no server: {output}")
        if code != 0 and not partly:
            raise Conflict(f"lode {words[0]} failed: {output}")
        try:
            return json.loads(said)
        except ValueError:
            raise Conflict(f"lode {words[0]} did not answer in JSON: {output}") from None

    def _run(self, *command: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command, which an interrupt kills at whatever moment it comes."""
        with contextlib.ExitStack() as stack:
            with self._interrupts.held():  # a process that is being made is known to nobody
                process = stack.enter_context(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                        env=_environment(),
                    )
                )  # fmt: skip
                stack.callback(process.kill)
            said, complained = process.communicate()
        return process.returncode, said, complained

    def payloads_started(self) -> Counter[str]:
        """How often each attempt (JOB.ATTEMPT) was started, by the logs of the pilots."""
        found: Counter[str] = Counter()
        logs = [path.read_bytes() for path in (self.home / "data" / "pilots").glob("*/std.err*")]
        for log in [*logs, *self._wrote.values()]:
            for line in log.decode(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict) and event.get("event") == "payload-started":
                        found.update(event["jobs"])
        return found


@contextlib.contextmanager
def running(grid: Grid, interrupts: Interrupts) -> Iterator[Grid]:
    """The grid while it runs. It is always stopped, and signals do not interrupt the stop."""
    try:
        try:
            grid.call(calls.ME)
            yield grid
        finally:
            interrupts.ignore()
            grid.stop()
    finally:
        # Again, for an interrupt that came between the end and `ignore`.
        interrupts.ignore()
        grid.stop()


def _arguments(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield from ("--set", f"{name}={json.dumps(value)}")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
