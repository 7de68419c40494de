"""The background process seen from outside: its word, its end, its steps."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.e2e.conftest import wait_until

STEPS = {
    "accounting", "alive", "backend", "cancel", "census", "configuration", "director", "hosts", "purge", "reasons",
    "reconciler", "retention", "sizes", "snapshot", "starts", "unstarted", "usage",
}  # fmt: skip


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


def test_a_background_process_that_hangs_is_said_at_once(server):
    """Who asked it waited for two minutes, and was told that there is no server."""
    wait_until(lambda: background(server)["standing"] == "ok", "its first word")
    (pid,) = server.pids("background")
    os.kill(pid, signal.SIGSTOP)
    try:
        for path in ("/v1/sites", "/v1/jobs"):
            refused = server.ask("GET", path, token="admin")
            assert refused.status == 503
            assert f"its background process {pid} does not answer" in refused.json["error"]["message"]
            assert refused.json["error"]["data"]["silent_seconds"] < 60
        scraped = server.ask("GET", "/metrics", token="admin")  # what the server itself counts
        assert (scraped.status, b"lodesman_background_up 0" in scraped.body) == (200, True)
        assert background(server)["standing"] == "silent"
        assert server.submit(token="admin") > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: background(server)["standing"] == "ok", "it is heard again")
    assert server.ask("GET", "/v1/sites", token="admin").status == 200
    said = [one["level"] for one in server.log_lines() if one["logger"] == "lodesman.server.live.pulse"]
    assert said == ["error", "warning"]


@pytest.mark.stores
def test_the_reconciler_of_a_running_server_repairs_nothing(server):
    first = server.submit({"Executable": "/bin/true", "CPUTime": 60, "Parameters": 3})
    server.wait_for("Done", first, first + 2)
    assert set(server.reconcile().values()) == {0}
    text = server.ask("GET", "/metrics", token="admin").body.decode()
    assert not re.search(r"^lodesman_reconciled_total\{.*\} [1-9]", text, re.MULTILINE)
