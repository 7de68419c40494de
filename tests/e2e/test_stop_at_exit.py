"""A server that ends in good order: nothing is asked of it in vain, and pilots that end with it cost no attempt."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

ATTEMPTS = "SELECT outcome, cause FROM attempt WHERE job_id = ? ORDER BY number"
SLEEPER = {"Executable": "/bin/sleep", "Arguments": ["1000"]}
# Every server lets a claim wait so long.
LONG = 45.0
DEAF = {"Executable": "/bin/sh", "Arguments": ["-c", "trap '' TERM; while :; do sleep 0.1; done"]}


def attempts(server, job):
    with contextlib.closing(server.database.reader()) as db:
        return [tuple(row) for row in db.execute(ATTEMPTS, (job,))]


def complaints(server):
    """What the log warns of, but for the databases of tests, where every role may connect."""
    found = [line for line in server.log_lines() if line["level"] not in ("debug", "info")]
    return [line for line in found if not line["message"].startswith("Every role of PostgreSQL")]


@pytest.mark.parametrize(("number", "payload"), [(signal.SIGINT, SLEEPER), (signal.SIGTERM, DEAF)])
def test_a_stop_gives_running_jobs_back(make_server, number, payload):
    """Their pilots end with the server, and it hears their last reports; others that wait for jobs get none of these."""
    server = make_server().start()
    server.user("ann", "physics")
    running = server.submit(payload)
    others = server.submit(*[SLEEPER] * 3)
    server.wait_for("Running", running)
    assert server.stop(number) in (0, -signal.SIGINT)
    assert not server.processes()
    assert attempts(server, running) == [("Released", "pilot-shutdown")]
    ends = [attempts(server, job) for job in range(others, others + 3)]
    assert all(end in ([], [("Released", "pilot-shutdown")]) for end in ends), ends
    assert complaints(server) == []


def test_a_stop_ends_pilots_also_when_the_background_process_is_killed_meanwhile(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    job = server.submit(SLEEPER)
    server.wait_for("Running", job)
    (background,) = server.pids("background")
    assert server.process is not None
    os.kill(background, signal.SIGSTOP)  # so that it cannot be quicker
    server.process.send_signal(signal.SIGTERM)
    os.kill(background, signal.SIGKILL)
    assert server.process.wait(PATIENCE) in (0, -signal.SIGTERM)
    wait_until(lambda: not server.processes(), "the end of pilots and keepers")


@pytest.mark.stores
def test_a_stop_leaves_running_jobs_alone_if_their_pilots_outlive_the_server(make_server):
    server = make_server(**{"pilots.stop_at_exit": False}).start()
    server.user("ann", "physics")
    job = server.submit(SLEEPER)
    server.wait_for("Running", job)
    got: list[list[dict[str, object]]] = []
    waiting = server.fake_pilot()
    before = server.get("/v1/service/metrics", "service")["commands_total"]
    asking = threading.Thread(target=lambda: got.append(waiting.claim(wait=LONG)))
    asked = time.monotonic()
    asking.start()
    wait_until(
        lambda: server.get("/v1/service/metrics", "service")["commands_total"] > before, "the claim's arrival"
    )
    assert server.stop() == 0
    assert time.monotonic() - asked < LONG, "it does not wait for the claim"
    asking.join(PATIENCE)
    assert got == [[]]
    assert attempts(server, job) == [(None, None)]
    assert complaints(server) == []
    server.start()
    waiting.ask("heartbeat", {})
    assert server.states(job, job) == {job: "Running"}
