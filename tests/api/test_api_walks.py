"""How many modules the walks of docs/architecture.md pass: measured, and held against the document.

`LODE_WRITE_WALKS=1 .venv/bin/pytest tests/api/test_api_walks.py` writes what it measures into the document.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.kits.walk_trace import WalkTrace

from lodesman.server.http import hot
from lodesman.server.live.pulse import Pulse
from lodesman.server.main.connections import ConnectionGroup, OwnConnection
from lodesman.server.main.guarded import GuardedConnection
from lodesman.server.store.journal import Change

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "architecture.md"
pytestmark = [pytest.mark.slow, pytest.mark.sqlite]


def hold(walk, modules):
    """The row of this walk in the document has that number of modules."""
    text = DOCUMENT.read_text(encoding="utf-8")
    row = re.compile(rf"^(\| {re.escape(walk)} \| )(\d+)(?= \|$)", re.MULTILINE)
    if "LODE_WRITE_WALKS" in os.environ:
        DOCUMENT.write_text(row.sub(rf"\g<1>{len(modules)}", text), encoding="utf-8")
    else:
        number = row.search(text)
        assert number, f"no row for {walk}"
        assert (len(modules), modules) == (int(number[2]), modules)


class Transport:
    """The client's end of a connection."""

    def __init__(self) -> None:
        self.answer = b""
        self.answered = asyncio.Event()

    def get_extra_info(self, _name):
        return ("127.0.0.1", 5)

    def is_closing(self):
        return False

    def write(self, data):
        self.answer += data
        self.answered.set()


@pytest.fixture
def trace():
    """Begun before the threads of the server."""
    trace = WalkTrace()
    yield trace
    trace.end()


@pytest.fixture
def walk(trace, monkeypatch, request):
    """Walk from the bytes of a request to those of its answer; returns the modules."""
    # Nothing happens beside the request.
    monkeypatch.setattr("lodesman.server.store.journal._IDLE_SECONDS", 3_600.0)
    house = request.getfixturevalue("house")

    async def ask(raw):
        transport, connection = Transport(), GuardedConnection(ConnectionGroup(house.app))
        connection.connection_made(transport)
        commits = house.core.journal.commits
        with trace.walking():
            connection.data_received(raw)
            await transport.answered.wait()
            await asyncio.gather(*connection.serving.tasks)
            if house.core.journal.commits > commits:  # what the writer does after it has answered
                await house.core.commands.run(Change(lambda _: None))
        assert transport.answer.startswith(b"HTTP/1.1 200 "), transport.answer

    def walk(method, path, token, body=None):
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nauthorization: Bearer {house.tokens[token]}\r\n"
        house.run(ask(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw))
        return trace.modules

    return walk


def test_a_claim(walk, house):
    pilot = house.pilot()
    for _ in range(2):  # the second one finds all as it is in a server that has been running
        house.submitted()
        modules = walk("POST", "/v1/pilots/claim", pilot, house.claim_body())
    hold("a claim, in the server", modules)


def test_why_of_a_job(walk, house, tmp_path):
    socket = tmp_path / "reads.sock"

    async def listen():
        serving = ConnectionGroup(house.reads)
        return await house.loop.create_unix_server(lambda: OwnConnection(serving), str(socket))

    server = house.run(listen())
    house.app.forward = partial(hot.forward, Pulse(socket, house.core.background, house.core.ticks))
    house.side.patience = 60.0  # in a server, a loop keeps the snapshot fresh
    job = house.submitted()
    house.pilot()
    for _ in range(2):
        modules = walk("GET", f"/v1/jobs/{job}/why", "ann")
    server.close()
    hold("`lode why JOB`, in the two processes of the server", modules)


def test_a_submission(house, tmp_path):
    (tmp_path / "hello.jdl").write_text('Executable = "/bin/true";\n')
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LODE_TOKEN": house.tokens["ann"]}
    environ["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"

    async def submit():
        serving = ConnectionGroup(house.app)
        server = await house.loop.create_server(lambda: GuardedConnection(serving), "127.0.0.1", 0)
        words = ["--server", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "submit", "hello.jdl"]
        command = [sys.executable, "-m", "tests.kits.walk_trace", *words]
        run = partial(subprocess.run, command, env=environ, cwd=tmp_path, capture_output=True, text=True)
        try:
            return await house.loop.run_in_executor(None, run)
        finally:
            server.close()

    done = house.run(submit())
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    hold("`lode submit FILE`, in the client", done.stderr.split())
