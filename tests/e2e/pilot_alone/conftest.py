"""A small server that speaks the pilots' protocol from memory, and pilots started against it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lodesman.server.engines.zipapp import build_zipapp

LONGEST_S = 200.0


class Fake:
    """The server. All that it received is in lists; `until` waits for their contents."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queue: list[dict[str, Any]] = []
        self.granted: dict[str, list[dict[str, Any]]] = {}
        self.parked: dict[str, int] = {}
        self.sandboxes: dict[str, bytes] = {}
        self.joins: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.accepted: Counter[tuple[Any, ...]] = Counter()
        self.outputs: dict[tuple[int, int], bytes] = {}
        self.leaves: list[dict[str, Any]] = []
        self.kill: list[dict[str, Any]] = []
        self.drain = False
        self.terms = {"lease_s": 60, "heartbeat_s": 0.2, "idle_s": 30}
        self.token = "pilot-token"
        self.lose_answers = 0
        self.refuse_output = 0
        self.answered: dict[tuple[int, int], float] = {}
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._sockets: list[Any] = []

    def start(self) -> None:
        fake = self

        class Bound(Speaker):
            server_side = fake

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                """Pilots are killed and connections cut here."""

        self._server = Quiet(("127.0.0.1", self.port), Bound)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away: the port is closed, and so is each connection."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self.changed:
            sockets, self._sockets = self._sockets, []
            self.changed.notify_all()
        for connection in sockets:
            try:
                connection.shutdown(2)
            except OSError:
                continue

    @property
    def is_up(self) -> bool:
        return self._server is not None

    def submit(self, *jobs: dict[str, Any]) -> None:
        with self.changed:
            self.queue.extend(jobs)
            self.changed.notify_all()

    def until(self, condition, timeout: float = LONGEST_S):
        """Wait until `condition()` holds and return its value."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout), "the pilot did not do it in time"
            return condition()

    def ends(self) -> dict[tuple[int, int], dict[str, Any]]:
        return {(r["id"], r["attempt"]): r for r in self.reports if r["state"] != "Running"}

    def end_of(self, job: int, attempt: int = 1, timeout: float = LONGEST_S) -> dict[str, Any]:
        self.until(lambda: (job, attempt) in self.ends(), timeout)
        return self.ends()[job, attempt]

    def running(self, job: int) -> bool:
        return any(r["id"] == job and r["state"] == "Running" for r in self.reports)

    def entries(self) -> list[dict[str, Any]]:
        """What heartbeats reported about single attempts."""
        return [entry for beat in self.beats for entry in beat["jobs"]]

    def output(self, job: int, attempt: int = 1) -> dict[str, bytes]:
        with tarfile.open(fileobj=io.BytesIO(self.outputs[job, attempt]), mode="r:gz") as tar:
            return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}

    def sandbox(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.sandboxes[digest] = content
        return digest

    def claim(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Long poll; None when the answer is to be lost. A newer claim of the same token replaces it."""
        token = body["claim_token"]
        deadline = time.monotonic() + body["wait_s"]
        with self.changed:
            self.claims.append(body)
            mine = self.parked[token] = self.parked.get(token, 0) + 1
            self.changed.notify_all()
            while token not in self.granted:
                if not self.is_up or self.parked[token] != mine:
                    return None
                jobs = self._choose(body)
                if jobs:
                    self.granted[token] = jobs
                    break
                left = deadline - time.monotonic()
                if left <= 0 or self.drain:
                    return {"jobs": [], "drain": self.drain}
                self.changed.wait(left)
            if self.lose_answers:
                self.lose_answers -= 1
                return None
            for job in self.granted[token]:
                self.answered[job["id"], job["attempt"]] = time.time()
            return {"jobs": self.granted[token], "drain": self.drain}

    def _choose(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        chosen: list[dict[str, Any]] = []
        cores = body["resource"]["cores"]
        for job in list(self.queue):
            if len(chosen) < body["count"] and job["spec"]["cores"] <= cores:
                cores -= job["spec"]["cores"]
                chosen.append(job)
                self.queue.remove(job)
        ahead, self.queue[: body["ahead"]] = self.queue[: body["ahead"]], []
        return chosen + ahead

    def report(self, body: dict[str, Any]) -> dict[str, Any]:
        results = []
        with self.changed:
            for report in body["reports"]:
                self.reports.append(report)
                key = (report["id"], report["attempt"])
                if content := (report["output"] or {}).pop("content", None):
                    self.outputs[key] = base64.b64decode(content)
                self.accepted[(*key, report["state"])] += 1
                results.append({"id": key[0], "attempt": key[1], "accepted": True})
            self.changed.notify_all()
        return {"results": results}

    def note(self, where: list[Any], body: dict[str, Any]) -> None:
        with self.changed:
            where.append(body)
            self.changed.notify_all()


class Speaker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_side: Fake

    def setup(self):
        super().setup()
        self.server_side._sockets.append(self.connection)

    def log_message(self, *_):
        """Tests check what was received, not a log."""

    def do_POST(self):
        fake = self.server_side
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/pilots/join":
            return self._join(body)
        if self.headers["Authorization"] != f"Bearer {fake.token}":
            return self._say(401, {"error": {"code": "unauthorized", "message": "No such pilot."}})
        if self.path == "/v1/pilots/claim":
            answer = fake.claim(body)
            if answer is None:
                self.close_connection = True
                return None
            return self._say(200, answer)
        if self.path == "/v1/pilots/heartbeat":
            fake.note(fake.beats, body)
            return self._say(200, {"kill": fake.kill, "drain": fake.drain, "lease_s": fake.terms["lease_s"]})
        if self.path == "/v1/pilots/report":
            return self._say(200, fake.report(body))
        fake.note(fake.leaves, body)
        return self._say(200, {})

    def _join(self, body):
        fake = self.server_side
        fake.note(fake.joins, body)
        if body["join_token"] != "join-token":
            return self._say(401, {"error": {"code": "unauthorized", "message": "Join token unknown."}})
        granted = {"pilot": 7, "stamp": "stamp-1", "token": fake.token, "server_time": time.time()}
        return self._say(200, {**granted, **fake.terms})

    def do_PUT(self):
        fake = self.server_side
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if fake.refuse_output:
            return self._say(fake.refuse_output, {})
        assert hashlib.sha256(content).hexdigest() == self.headers["X-Sha256"]
        parts = self.path.split("/")
        fake.outputs[int(parts[3]), int(parts[5])] = content
        return self._say(200, {"sha256": self.headers["X-Sha256"], "size": len(content)})

    def do_GET(self):
        content = self.server_side.sandboxes.get(self.path.rpartition("/")[2])
        if content is None:
            return self._say(404, {"error": {"code": "not-found", "message": "No such sandbox."}})
        return self._say(200, content)

    def _say(self, status, value):
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        self.wfile.write(head + content)


class Started:
    """A pilot process."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
        self.process = process
        self.directory = directory
        self._log = log

    def log(self) -> str:
        return self._log.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def end(self, timeout: float = LONGEST_S) -> int:
        return self.process.wait(timeout)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


class Gate:
    """Where a payload waits until the test lets it go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.wait = f"read line < {path}"

    def open(self) -> None:
        """Wait until a payload has come to the gate, and let it pass."""
        deadline = time.monotonic() + LONGEST_S
        while True:
            try:
                return os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                assert time.monotonic() < deadline, "nobody came to the gate"
                threading.Event().wait(0.01)


@pytest.fixture(scope="session")
def pilot_archive(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("pilot") / "pilot.pyz"
    build_zipapp(target)
    return target


@pytest.fixture
def fake():
    server = Fake()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start(fake, pilot_archive, tmp_path):
    """Start a pilot: `start(cores=2, ...)` with options of the pilot's file; words: more arguments."""
    started: list[Started] = []

    def begin(*, join_token="join-token", environment=None, interpreter="", words=(), **options) -> Started:
        directory = tmp_path / f"pilot{len(started)}"
        directory.mkdir()
        content = {
            "servers": [f"http://127.0.0.1:{fake.port}"],
            "join_token": join_token,
            "stamp": "stamp-1",
            "options": {"cores": 1, "memory_mb": 2000, "watch_s": 0.2, "kill_grace_s": 1, **options},
        }
        file = directory / "pilot.json"
        file.write_text(json.dumps(content))
        log = directory / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [
                    interpreter or os.environ.get("LODESMAN_OLD_PYTHON") or sys.executable,
                    str(pilot_archive),
                    "--file",
                    str(file),
                    *words,
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(environment or {})},
            )
        started.append(Started(process, directory, log))
        return started[-1]

    yield begin
    for pilot in started:
        if pilot.process.poll() is None:
            pilot.process.kill()
            pilot.process.wait()
        if "Traceback" in pilot.log():
            pytest.fail(pilot.log())


@pytest.fixture
def gate(tmp_path):
    """A FIFO on which payloads wait: `gate.wait` is what they run, `gate.open()` lets one of them go on."""
    return Gate(tmp_path / "gate")


@pytest.fixture(scope="session")
def oldest_python() -> str:
    """The interpreter in LODESMAN_OLD_PYTHON, else a python3.9 on PATH that works, else this one."""
    for candidate in (os.environ.get("LODESMAN_OLD_PYTHON"), shutil.which("python3.9")):
        if (
            candidate
            and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return candidate
    return sys.executable


@pytest.fixture
def job():
    """Make a job: `job(1, "sh", "-c", "exit 3", cpu_seconds=2)`; what is no limit goes into its spec."""

    def make(
        number: int, executable: str, *arguments: str, attempt: int = 1, inputs=(), **more
    ) -> dict[str, Any]:
        limits = dict.fromkeys(
            ("norm_cpu_seconds", "cpu_seconds", "wall_seconds", "memory_mb", "output_mb"), 0
        )
        limits.update({name: more.pop(name) for name in limits if name in more})
        spec = {
            "executable": executable,
            "arguments": list(arguments),
            "environment": {},
            "std_input": "",
            "std_output": "std.out",
            "std_error": "std.err",
            "output_sandbox": [],
            "cores": 1,
            "memory_mb": 0,
            "name": "",
        }
        exclusive = more.pop("exclusive", False)
        return {
            "id": number,
            "attempt": attempt,
            "spec": {**spec, **more},
            "input": list(inputs),
            "limits": limits,
            "exclusive": exclusive,
        }

    return make
