"""Clients that wait for jobs of a real server: many at once, while it is killed and started again, while it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

PROGRAM = [sys.executable, "-c", "import sys; from lodesman.user.cli import main; sys.exit(main())"]
COMMANDS, CLIENTS = 4, 28


def lode(server, *words, **more):
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "LODE_TOKEN": server.tokens["ann"],
    }
    return subprocess.Popen(
        [*PROGRAM, "--server", f"http://127.0.0.1:{server.port}", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, **more,
    )  # fmt: skip


@contextlib.contextmanager
def waiting(server, *words, times=1):
    """Commands that wait, of which each has had an answer: it said that a job is Held."""
    commands = [lode(server, "wait", *words) for _ in range(times)]
    try:
        for one in commands:
            assert one.stderr is not None
            assert "1 job is Held" in one.stderr.readline()
        yield commands
    finally:
        for one in commands:
            one.kill()
            one.communicate()


def ask_until_over(server, jobs, found):
    """As programs do: ask again whatever came."""
    over = None
    while over is None:
        with contextlib.suppress(OSError, ValueError):
            reply = server.ask("GET", f"/v1/jobs/wait?jobs={jobs}", token="ann", timeout=PATIENCE)
            if reply.status == 200 and reply.json["over"]:
                over = reply.json
        if over is None:
            threading.Event().wait(0.1)  # between two questions, as a client rests
    found.append(over)


def end_jobs(server, first):
    """The held one is released; a pilot runs all three, and the second of them fails."""
    wait_until(server.is_up, "the server")
    released = {"action": "release", "ranges": [[first + 2, first + 2]]}
    assert server.ask("POST", "/v1/jobs/control", released, token="ann").json["changed"] == 1
    pilot = server.fake_pilot()
    jobs = sorted(pilot.claim(3), key=lambda one: one["id"])
    assert [one["id"] - first for one in jobs] == [0, 1, 2]
    for one, ends in zip(jobs, ({}, {"state": "Failed", "cause": "exit", "exit_code": 3}, {}), strict=True):
        pilot.report(one, "Running")
        pilot.report(one, **ends)


@pytest.fixture
def started(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    first = server.submit({"Parameters": 3, "Site": "Bench"})
    held = {"action": "hold", "ranges": [[first + 2, first + 2]]}
    assert server.ask("POST", "/v1/jobs/control", held, token="ann").json["changed"] == 1
    return server, first


@pytest.mark.parametrize("by", [pytest.param(signal.SIGKILL, marks=pytest.mark.stores), signal.SIGTERM])
def test_thirty_two_wait_while_the_server_is_started_anew(started, by):
    server, first = started
    jobs, found = f"{first}-{first + 2}", []
    clients = [
        threading.Thread(target=ask_until_over, args=(server, jobs, found), daemon=True)
        for _ in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    with waiting(server, jobs, times=COMMANDS) as commands:
        code = server.stop(by)
        assert code == (0 if by == signal.SIGTERM else -signal.SIGKILL)
        server.start()
        end_jobs(server, first)
        for one in commands:
            _, err = one.communicate(timeout=PATIENCE)
            assert one.returncode == 3, err
            which = f"First Failed: job {first + 1} (exit code 3)."
            assert err.splitlines()[-2:] == [
                f"lode: All 3 jobs have ended: 2 Done, 1 Failed. {which}",
                f"lode: What job {first + 1} wrote last: lode logs {first + 1}",
            ]
    for one in clients:
        one.join(PATIENCE)
    assert [one["states"] for one in found] == [{"Done": 2, "Failed": 1}] * CLIENTS
    assert {one["failed"]["id"] for one in found} == {first + 1}


def test_ctrl_c_and_time_leave_the_jobs_alone(started):
    server, first = started
    with waiting(server, f"{first}-{first + 2}") as (command,):
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)
    assert command.returncode == 130
    assert err.endswith(f"lode: Interrupted. The jobs go on; this ends them: lode kill {first}-{first + 2}\n")
    late = lode(server, "wait", "--timeout", "1", str(first))
    _, err = late.communicate(timeout=PATIENCE)
    assert late.returncode == 124, err
    assert set(server.states(first, first + 2).values()) == {"Waiting", "Held"}


def test_a_stream_of_changes_ends_with_the_server(started):
    server, first = started
    with contextlib.closing(server.connect(PATIENCE)) as connection:
        token = {"Authorization": f"Bearer {server.tokens['ann']}"}
        connection.request("GET", f"/v1/jobs/events?jobs={first}-{first + 2}", headers=token)
        stream = connection.getresponse()
        assert (stream.status, stream.getheader("content-type")) == (200, "text/event-stream")

        def event():
            lines = []
            while line := stream.readline().strip():
                lines.append(line.decode())
            return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

        assert event() == ("states", {"states": {"Held": 1, "Waiting": 2}, "left": 3, "unknown": 0})
        end_jobs(server, first)
        found = [event() for _ in range(10)]
        assert {name for name, _ in found} == {"change"}
        assert found[0][1] == {"first": first + 2, "last": first + 2, "old": "Held", "new": "Waiting"}
        assert [one["new"] for _, one in found].count("Running") == 3
        assert found[-1][1]["new"] == "Done"
        assert server.stop() == 0
        assert stream.read() == b""
