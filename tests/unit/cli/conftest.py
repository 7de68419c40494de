"""A server that answers what a test tells it, and a way to run one command line against it."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lodesman.cli import main

TOKEN = "token-of-ann"


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeServer:
    """Routes are (method, regular expression of the path); answers are values, (status, value), or functions."""

    url: str = ""
    routes: list[tuple[str, str, Any]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def on(self, method: str, path: str, answer: Any) -> None:
        """Later routes win."""
        self.routes.insert(0, (method, path, answer))

    def refuse(self, method: str, path: str, status: int, **error: Any) -> None:
        self.on(method, path, (status, {"error": error}))

    def answer(self, asked: Asked) -> tuple[int, Any]:
        for method, path, answer in self.routes:
            if method == asked.method and re.fullmatch(path, asked.path):
                found = answer(asked) if callable(answer) else answer
                return found if isinstance(found, tuple) else (200, found)
        return 404, {
            "error": {"code": "not-found", "message": f"The test has no {asked.method} {asked.path}."}
        }

    def of(self, method: str, path: str) -> list[Asked]:
        return [one for one in self.asked if one.method == method and re.fullmatch(path, one.path)]


def request_class(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, parts.path, query, dict(self.headers), body)
            server.asked.append(asked)
            status, value = server.answer(asked)
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_args):
            pass

    for method in ("GET", "POST", "PUT", "DELETE"):
        setattr(Requests, f"do_{method}", Requests.answer)
    return Requests


@pytest.fixture
def server():
    """A server on a free port of this machine."""
    fake = FakeServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), request_class(fake)) as http:
        http.daemon_threads = True
        fake.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        http.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home and working directory, and no LODE_ variable but a token."""
    for name in ("LODE_SERVER", "LODE_TOKEN_FILE", "LODE_CA_FILE", "LODE_DEBUG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LODE_TOKEN", TOKEN)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@dataclass
class Result:
    """The end of one call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def lode(home, capfd, monkeypatch):
    """Run one command line in this process."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main([str(word) for word in arguments])
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def at(lode, server):
    """Run one command line against the server."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        return lode("--server", server.url, *arguments, stdin=stdin)

    return run


def job_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A job as the server lists it."""
    row = dict.fromkeys(
        "id state attempt since reason owner group vo name submitted_at task_queue template submission last_event "
        "last_attempt site pilot claimed_at started_at ended_at outcome cause exit_code signal cpu_seconds "
        "wall_seconds max_rss_mb output_sha256 output_size message base main_reason".split()
    )
    row |= {"id": number, "state": "Waiting", "attempt": 0, "since": 1_000.0, "reason": "", "owner": "ann"}
    row |= {"group": "physics", "vo": "lab", "name": "hello", "submitted_at": 1_000.0, "task_queue": 7}
    return {**row, "template": 1, "submission": 3, "base": number, **changes}


@pytest.fixture
def row():
    return job_row
