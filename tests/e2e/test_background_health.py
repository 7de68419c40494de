"""The background process seen from outside: its word, its end, its steps."""

from __future__ import annotations

import os
import re
import signal

from tests.e2e.conftest import wait_until

STEPS = set(
    "backend census director cancel usage snapshot reasons retention configuration hosts reconciler purge alive".split()
)


def background(server):
    return server.ask("GET", "/health").json["background"]


def succeeded(server):
    text = server.ask("GET", "/metrics", token="admin").body.decode()
    return set(re.findall(r'lodesman_upkeep_success_timestamp_seconds\{step="(\w+)"\}', text))


def test_the_server_knows_how_its_background_process_is(server):
    wait_until(lambda: background(server)["standing"] == "ok", "its first word")
    wait_until(lambda: succeeded(server) == STEPS, "a success of every step")
    assert background(server)["failing"] == []
    (old,) = server.pids("background")
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: background(server)["restarts"] == 1, "a restart")
    before = background(server)["age_seconds"]
    wait_until(lambda: background(server)["age_seconds"] < before, "a word of the new one")
    assert server.ask("GET", "/health").json["status"] == "ok"
    assert len(server.pids("background")) == 1


def test_the_reconciler_of_a_running_server_repairs_nothing(server):
    first = server.submit({"Executable": "/bin/true", "CPUTime": 60, "Parameters": 3})
    server.wait_for("Done", first, first + 2)
    assert set(server.reconcile().values()) == {0}
    text = server.ask("GET", "/metrics", token="admin").body.decode()
    assert not re.search(r"^lodesman_reconciled_total\{.*\} [1-9]", text, re.MULTILINE)
