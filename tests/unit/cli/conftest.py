"""A server with given answers, and a way to run one command line against it."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec import inspect
from rich.cells import cell_len
from rich.console import Console

from lodesman.server.http.dispatch import pattern_of
from lodesman.user.cli import main, tables
from lodesman.wire.call import Call
from lodesman.wire.calls import CALLS
from lodesman.wire.jobs import Job

TOKEN = "token-of-ann"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u200b\r\n\x00lode: all is well"
T = TypeVar("T")


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
                return found if isinstance(found, tuple) else (200, completed(asked, found))
        return 404, {
            "error": {"code": "not-found", "message": f"The test has no {asked.method} {asked.path}."}
        }

    def of(self, method: str, path: str) -> list[Asked]:
        return [one for one in self.asked if one.method == method and re.fullmatch(path, one.path)]


def call_of(asked: Asked) -> Call[Any, Any, Any] | None:
    """The call that is asked for; one without names in its path before one with."""
    found = [call for call in CALLS if call.method == asked.method and pattern_of(call).fullmatch(asked.path)]
    return min(found, key=lambda call: len(call.names), default=None)


def completed(asked: Asked, value: Any) -> Any:
    """An answer with all members that a server's has: a test gives those that it is about."""
    found = call_of(asked)
    if found is None or not isinstance(value, dict) or re.search("/director", asked.path):
        return value
    kinds = [described(kind) for kind in found.answers]
    return filled(next(kind for kind in kinds if fits(kind, value)), value)


def fits(kind: Any, value: Any) -> bool:
    """Whether a value may be of a type, judged by its outermost names."""
    if isinstance(kind, inspect.StructType):
        return isinstance(value, dict) and set(value) <= {one.encode_name for one in kind.fields}
    if isinstance(kind, inspect.DictType):
        return isinstance(value, dict)
    return isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list)


described: Callable[[Any], Any] = cache(inspect.type_info)


def filled(kind: Any, value: Any) -> Any:
    if isinstance(kind, inspect.Metadata):
        return filled(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        chosen = [one for one in kind.types if fits(one, value)]
        return filled(chosen[0], value) if chosen else value
    if isinstance(kind, inspect.ListType) and isinstance(value, list):
        return [filled(kind.item_type, one) for one in value]
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: filled(kind.value_type, one) for name, one in value.items()}
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        missing = {one.encode_name: empty(one.type) for one in kind.fields if one.required}
        types = {one.encode_name: one.type for one in kind.fields}
        known = {name: filled(types[name], one) for name, one in value.items() if name in types}
        return missing | value | known
    return value


def typed(kind: type[T], value: Any) -> T:
    """A value of a type, with all members that it has."""
    return msgspec.convert(full(kind, value), kind)


def full(kind: Any, value: Any) -> Any:
    """A value with all members that a type has, as JSON holds it."""
    return filled(described(kind), value)


def empty(kind: Any) -> Any:
    """The least value of a type."""
    plain: dict[Any, Any] = {
        inspect.StrType: "", inspect.IntType: 0, inspect.FloatType: 0.0, inspect.BoolType: False,
        inspect.ListType: [], inspect.DictType: {}, inspect.NoneType: None, inspect.BytesType: "",
    }  # fmt: skip
    if isinstance(kind, inspect.Metadata):
        return empty(kind.type)
    if isinstance(kind, inspect.UnionType):
        return None if any(isinstance(one, inspect.NoneType) for one in kind.types) else empty(kind.types[0])
    if isinstance(kind, inspect.StructType):
        return filled(kind, {})
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    return plain[type(kind)]


def poisoned(asked: Asked, value: Any) -> Any:
    """The same answer, every text in it hostile that may be any text; words of closed sets are no texts."""
    full, found = completed(asked, value), call_of(asked)
    assert found
    for kind in found.answers:
        with suppress(msgspec.ValidationError):
            return _poisoned(described(kind), full)
    raise AssertionError(full)


def _poisoned(kind: Any, value: Any) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _poisoned(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        texts = [one for one in kind.types if isinstance(one, inspect.StrType)]
        fitting = [one for one in kind.types if fits(one, value)]
        return (
            HOSTILE
            if texts and isinstance(value, str)
            else _poisoned(fitting[0], value)
            if fitting
            else value
        )
    if isinstance(kind, inspect.StrType):
        return HOSTILE
    if isinstance(kind, inspect.ListType):
        return [_poisoned(kind.item_type, one) for one in value]
    if isinstance(kind, inspect.DictType):
        return {name: _poisoned(kind.value_type, one) for name, one in value.items()}
    if isinstance(kind, inspect.StructType):
        return {one.encode_name: _poisoned(one.type, value[one.encode_name]) for one in kind.fields
                if one.encode_name in value}  # fmt: skip
    return value


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
    for name in (
        "LODE_SERVER",
        "LODE_TOKEN_FILE",
        "LODE_CA_FILE",
        "LODE_DEBUG",
        "LODE_REQUEST",
        "XDG_CONFIG_HOME",
    ):
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
    """Run one command line in this process, whose signals stay as they are."""
    monkeypatch.setattr("lodesman.server.main.process.heed_hang_up", lambda _end: None)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
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


def waited(
    *, failed: Any = None, jobs: Any = (), unknown: int = 0, over: bool | None = None, **states: int
) -> dict[str, Any]:
    """An answer to a wait, with these states."""
    final = {"Done", "Failed", "Killed", "Deleted"}
    left = sum(count for name, count in states.items() if name not in final)
    return {"over": not left if over is None else over, "left": left, "states": states, "unknown": unknown,
            "failed": failed, "jobs": list(jobs), "more": False}  # fmt: skip


def job_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A job as the server lists it."""
    row = dict.fromkeys(
        "id state attempt since reason owner group vo name submitted_at task_queue template submission last_event "
        "last_attempt site pilot claimed_at started_at ended_at outcome cause exit_code signal cpu_seconds "
        "wall_seconds max_rss_mb output_sha256 output_size message ce queue host base main_reason".split()
    )
    row |= {"id": number, "state": "Waiting", "attempt": 0, "since": 1_000.0, "reason": "", "owner": "ann"}
    row |= {"group": "physics", "vo": "lab", "name": "hello", "submitted_at": 1_000.0, "task_queue": 7}
    row |= {"template": 1, "submission": 3, "base": number, "job_group": "", "job_class": "", **changes}
    found: dict[str, Any] = filled(described(Job), row)
    return found


@pytest.fixture
def row():
    return job_row


# --- tables -------------------------------------------------------------------------------------------------------------


def render(titles, rows, width):
    """A table as a terminal of that width shows it, without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, highlight=False)
    console.print(tables.rich_table(titles, rows, width))
    return out.getvalue()


def nothing_lost(titles, rows, width):
    """Raises AssertionError if a letter of a title or a cell is not shown, or a line is longer than the terminal."""
    drawn = render(titles, rows, width)
    assert all(cell_len(line) <= width for line in drawn.splitlines())
    whole = [title.removeprefix(">").upper() for title in titles]
    whole += [tables._cut_cell(cell).text for row in rows for cell in row]
    wanted, shown = (Counter(re.sub(r"\s", "", text)) for text in ("".join(whole), drawn))
    # A list of fields has the titles once a row.
    assert not wanted - shown, f"lost at {width} columns: {wanted - shown}"


@pytest.fixture(autouse=True)
def every_table_fits(monkeypatch):
    """Each table that a test of a command shows is drawn at all usual widths, too, of a long one the beginning.

    A terminal that is wider than the whole table shows what the one before showed.
    """
    plain = tables.text_table

    def text_table(titles, rows, *widths):
        some = rows[:100]
        whole = max(map(cell_len, plain(titles, some)))
        for width in (60, 80, 100, 132, 200):
            nothing_lost(titles, some, width)
            if whole <= width:
                break
        return plain(titles, rows, *widths)

    monkeypatch.setattr(tables, "text_table", text_table)
