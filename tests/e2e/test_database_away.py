"""A PostgreSQL that is away, or hangs, while jobs run: all is answered in time, payloads go on, and nothing is lost."""

from __future__ import annotations

import threading
import time

import pytest
from tests.e2e.conftest import wait_until

pytestmark = pytest.mark.postgresql

LEASE_SECONDS = 8
ANSWER_SECONDS = 20.0
LOOK = 0.1


def refused(server, method, path, body=None, token=""):
    """What is wrong, in words; 503 within seconds."""
    begun = time.monotonic()
    reply = server.ask(method, path, body, token=token)
    assert time.monotonic() - begun < ANSWER_SECONDS
    assert reply.status == 503, reply.body
    return reply.json["error"]["message"]


@pytest.mark.parametrize("fault", ["away", "hanging"])
def test_pilots_wait_and_payloads_go_on(maker, make_server, fault):
    server = make_server(**{"pilots.lease_seconds": LEASE_SECONDS}).start()
    server.user("ann", "physics")
    go_on = server.home / "go-on"
    script = f"while ! [ -e {go_on} ]; do sleep 0.1; done"
    job = server.submit({"Executable": "/bin/sh", "Arguments": ["-c", script], "Site": "North"})
    server.wait_for("Running", job)
    pilot = server.fake_pilot()
    begun = time.monotonic()
    with getattr(maker, fault)(server.database):
        submission = {
            "jobs": [{"Executable": "/bin/true", "CPUTime": 60, "Site": "Bench"}],
            "request_id": "r",
        }
        while time.monotonic() < begun + 2 * LEASE_SECONDS:
            assert "is lost" in refused(server, "POST", "/v1/jobs", submission, "ann")
            claim = {"claim_token": "a-token-of-mine", "resource": {"cores": 1}}
            assert "is lost" in refused(server, "POST", "/v1/pilots/claim", claim, pilot.token)
            if fault == "away":
                assert "is lost" in refused(server, "GET", "/v1/jobs", token="ann")
                assert "is lost" in refused(server, "GET", "/health")
            threading.Event().wait(LOOK)  # strangers may not ask more often
        go_on.touch()
    made = wait_until(
        lambda: server.ask("POST", "/v1/jobs", submission, token="ann").json.get("first"), "jobs"
    )
    claim["claim_token"] = "another-token-of-mine"
    answer = wait_until(lambda: pilot.ask("claim", claim).json.get("jobs"), "the job")
    assert [one["id"] for one in answer] == [made]
    server.wait_for("Done", job)
    assert len(server.get(f"/v1/jobs/{job}")["attempts"]) == 1
    assert server.ask("GET", "/health").json["trouble"] == ""
    assert server.reconcile() == dict.fromkeys(server.reconcile(), 0)
