"""A running server: its own port, data directory and users, local pilots, and no process left behind."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import all_suspects

from lodesman.server.store import Database
from lodesman.wire.client.exchange import ServerAddress, open_connection

# Against hanging: no machine is so slow.
PATIENCE = 200.0
LOOK, SELDOM = 0.02, 0.25
SITES = """
[site.North]
VO = ["lab"]
[site.North.ce.cn]
Backend = "local"
[site.North.ce.cn.queue.q]
Slots = 2
NumberOfProcessors = 1
MaxWaitingJobs = 4
MaxTotalJobs = 6
CPUTime = 1000
Memory = 4000

[site.South]
VO = ["lab"]
[site.South.ce.cs]
Backend = "local"
[site.South.ce.cs.queue.q]
Slots = 1
NumberOfProcessors = 2
MaxWaitingJobs = 4
MaxTotalJobs = 6
CPUTime = 100000
Memory = 8000

# No batch system sends pilots here: jobs for this site wait for a pilot that is a test.
[site.Bench]
VO = ["lab"]
[site.Bench.ce.cb]
Backend = "manual"
[site.Bench.ce.cb.queue.q]
NumberOfProcessors = 4
CPUTime = 1000
Memory = 4000

[group.physics]
vo = "lab"
share = 3000
[group.bio]
vo = "lab"
share = 1000
"""


def wait_until(happened: Callable[[], Any], what: str, *, patience: float = PATIENCE) -> Any:
    """Ask repeatedly; returns what was found, or fails after a deadline.

    The longer it takes, the less often: those who wait would else use more of the processors than those who work.
    """
    began = time.monotonic()
    while not (found := happened()):
        waited = time.monotonic() - began
        assert waited < patience, f"waited in vain for {what}"
        threading.Event().wait(min(max(LOOK, waited / 10), SELDOM))
    return found


@dataclass(frozen=True)
class Reply:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A server process and what is done to it. `tokens` are known by name."""

    def __init__(self, home: Path, port: int, database: Database, **settings: Any) -> None:
        self.home = home
        self.database = database
        self.data = home / "data"
        self.log = home / "server.log"
        self.port = port
        home.mkdir(parents=True, exist_ok=True)
        (home / "sites.toml").write_text(SITES)
        self.settings = {
            "server.port": self.port,
            "server.data": str(self.data),
            "pilots.idle_seconds": 3,
            "pilots.heartbeat_seconds": 1,
            "pilots.lease_seconds": 600,  # none is lost because the machine is slow
            "pilots.python": sys.executable,
            "pilots.stop_at_exit": True,
            "resources.files": [str(home / "sites.toml")],
            "director.PollingTime": 0.5,
            "director.pilotsPerIteration": 8,
            # Payloads of these tests leave their marks beside the server.
            "local.trust_jobs": True,
            "local.run_as": "root" if os.getuid() == 0 else "",
            "store.url": getattr(database, "url", ""),
            **settings,
        }
        self.tls: ssl.SSLContext | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.tokens: dict[str, str] = {}

    def configure(self, sites: str) -> None:
        """Change the file of the sites, whole."""
        part = self.home / "part.toml"
        part.write_text(sites)
        part.replace(self.home / "sites.toml")

    # --- its life -------------------------------------------------------------------------------------

    def spawn(self, program: str = "lodesman.server.main", *options: str) -> subprocess.Popen[bytes]:
        """Start the process; it may end at once."""
        words = [
            word for name, value in self.settings.items() for word in ("--set", f"{name}={json.dumps(value)}")
        ]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", program, "server", *words, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )  # fmt: skip

    def start(self) -> Server:
        """Start, and wait until both of its processes answer."""
        self.process = self.spawn()
        wait_until(self.is_up, "the server")
        self.tokens["admin"] = (self.data / "admin.token").read_text().strip()
        self.tokens["service"] = (self.data / "run" / "service.token").read_text().strip()
        return self

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.tail()
        if not (self.data / "admin.token").exists():
            return False
        token = (self.data / "admin.token").read_text().strip()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/v1/me", token=token).status == 200
        return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process and wait for its end; returns its exit code, 0 for the end by SIGTERM."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        return 0 if code == -signal.SIGTERM else code

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]

    def log_lines(self) -> list[dict[str, Any]]:
        """What the server logged; each line must be JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.strip()]

    # --- its processes --------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Every process that belongs to this server: pid -> command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and self._is_ours(entry):
                found[int(entry.name)] = _command(entry)
        return found

    def _is_ours(self, entry: Path) -> bool:
        needle = os.fsencode(self.home)
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if needle in (entry / name).read_bytes():
                    return True
        with contextlib.suppress(OSError):
            return os.fsencode((entry / "cwd").readlink()).startswith(needle)
        return False

    def pids(self, word: str) -> list[int]:
        """Processes whose command line has that word: `server`, `background`, `pilot.pyz`, `keeper`."""
        found = self.processes()
        return sorted(pid for pid, command in found.items() if f" {word}" in command or f"/{word}" in command)

    def clean_up(self) -> dict[int, str]:
        """Kill whatever is left of it; returns that."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        left = self.processes()

        def none_is_left() -> bool:
            """One of them may start another before it is killed."""
            found = self.processes()
            left.update(found)
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        wait_until(none_is_left, "the end of what was left")
        return left

    # --- asking ---------------------------------------------------------------------------------------

    def connect(self, timeout: float = PATIENCE, *, inside: bool = False) -> http.client.HTTPConnection:
        """A connection; `inside`: to the Unix socket that the server's own processes use."""
        if inside:
            return open_connection(ServerAddress(False, str(self.data / "run" / "hot.sock"), 0), None)
        if self.tls is not None:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        timeout: float = PATIENCE,
        **headers: str,
    ) -> Reply:
        """One request on a connection of its own."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        with contextlib.closing(self.connect(timeout, inside=path.startswith("/v1/service/"))) as connection:
            connection.request(method, path, body=raw, headers=given)
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def get(self, path: str, token: str = "admin") -> Any:
        """The JSON of a GET, asked again while the server says: not now."""

        def once() -> Reply | None:
            reply = self.ask("GET", path, token=token)
            return None if reply.status == 503 else reply

        reply = wait_until(once, path)
        assert reply.status == 200, reply.body
        return reply.json

    def user(self, name: str, group: str) -> str:
        made = self.ask("POST", "/v1/users", {"name": name, "vo": "lab", "groups": [group]}, token="admin")
        assert made.status == 200, made.body
        self.tokens[name] = self.ask("POST", "/v1/tokens", {"account": name}, token="admin").json["token"]
        return self.tokens[name]

    def submit(self, *jobs: dict[str, Any], token: str = "ann", **more: Any) -> int:
        """Submit jobs of at most 60 CPU seconds; returns the first id."""
        records = [{"Executable": "/bin/true", "CPUTime": 60, **job} for job in jobs or ({},)]
        reply = self.ask("POST", "/v1/jobs", {"jobs": records, **more}, token=token)
        assert reply.status == 200, reply.body
        return int(reply.json["first"])

    def states(self, first: int, last: int) -> dict[int, str]:
        found = {}
        for start in range(first, last + 1, 10_000):
            stop = min(last, start + 9_999)
            rows = self.get(f"/v1/jobs?all=true&first={start}&last={stop}&limit=10000")["jobs"]
            found.update({row["id"]: row["state"] for row in rows})
        return found

    def wait_for(
        self, state: str, first: int, last: int | None = None, *, patience: float = PATIENCE
    ) -> None:
        """Wait until these jobs are all in that state."""
        until = first if last is None else last
        try:
            wait_until(
                lambda: set(self.states(first, until).values()) == {state}, f"{state} of {first} to {until}",
                patience=patience,
            )  # fmt: skip
        except AssertionError:
            raise AssertionError(f"{self.states(first, until)}\n{self.tail()}") from None

    def reconcile(self) -> dict[str, int]:
        """A complete run of the reconciler: the number of repairs of each kind."""
        with contextlib.closing(self.database.reader()) as db:
            doubts = msgspec.to_builtins(all_suspects(db))
        reply = self.ask("POST", "/v1/service/reconcile", doubts, token="service")
        assert reply.status == 200, reply.body
        return dict(reply.json)

    def fake_pilot(self, host: str = "") -> FakePilot:
        """A pilot of the site Bench that is this test: it has joined and obeys no order."""
        return FakePilot(self, host)


class FakePilot:
    """Speaks the pilots' protocol as the test wishes."""

    def __init__(self, server: Server, host: str = "") -> None:
        self.server = server
        stamp, join = f"fake{secrets.token_hex(6)}", secrets.token_urlsafe(16)
        request = {
            "vo": "lab", "site": "Bench", "ce": "cb", "queue": "q", "cores": 4, "memory_mb": 4_000,
            "norm_cpu_seconds": 1_000,
        }  # fmt: skip
        row = {
            "stamp": stamp, "vo": "lab", "site": "Bench", "ce": "cb", "queue": "q", "request": request,
            "join_hash": base64.b64encode(hashlib.sha256(join.encode()).digest()).decode(),
        }  # fmt: skip
        made = server.ask("POST", "/v1/service/pilots", [row], token="service")
        assert made.status == 200, made.body
        joined = server.ask(
            "POST", "/v1/pilots/join", {"join_token": join, "nonce": "n", "node": {"cores": 4, "host": host}}
        )
        assert joined.status == 200, joined.body
        self.id, self.token = joined.json["pilot"], joined.json["token"]

    def ask(self, name: str, body: Any, **more: Any) -> Reply:
        return self.server.ask("POST", f"/v1/pilots/{name}", body, token=self.token, **more)

    def claim(self, count: int = 1, *, wait: float = 0.0, **more: Any) -> list[dict[str, Any]]:
        body = {
            "claim_token": secrets.token_urlsafe(9), "count": count, "wait_s": wait,
            "resource": {"cores": 4, "memory_mb": 4_000, "norm_cpu_seconds": 0}, **more,
        }  # fmt: skip
        reply = self.ask("claim", body)
        assert reply.status == 200, reply.body
        return list(reply.json["jobs"])

    def report(self, job: dict[str, Any], state: str = "Done", **more: Any) -> dict[str, Any]:
        one = {"id": job["id"], "attempt": job["attempt"], "state": state, **more}
        return dict(self.ask("report", {"reports": [one]}).json["results"][0])


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@pytest.fixture
def make_server(maker, tmp_path, free_port) -> Iterator[Callable[..., Server]]:
    """Servers with settings of their own: `make_server(**{"pilots.lease_seconds": 2})`; not started yet."""
    made: list[Server] = []

    def make(**settings: Any) -> Server:
        home = tmp_path / f"server{len(made)}"
        made.append(Server(home, free_port(), maker.empty(home / "data"), **settings))
        return made[-1]

    yield make
    for server in made:
        server.clean_up()
        maker.drop(server.database)


@pytest.fixture(scope="module")
def server(request, maker, tmp_path_factory, free_port) -> Iterator[Server]:
    """One server for all tests of a module, with the users ann (physics) and bob (bio).

    A module's own settings are in its SERVER_SETTINGS.
    """
    settings = getattr(request.module, "SERVER_SETTINGS", {})
    home = tmp_path_factory.mktemp("server")
    found = Server(home, free_port(), maker.empty(home / "data"), **settings)
    try:
        found.start()
        found.user("ann", "physics")
        found.user("bob", "bio")
        yield found
        assert found.stop() == 0, found.tail()
        wait_until(lambda: not found.processes(), "the end of all of its processes")
    finally:
        found.clean_up()
        maker.drop(found.database)
