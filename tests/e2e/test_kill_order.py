"""An order to stop a payload is not lost with the server that took it."""

from __future__ import annotations

import pytest


@pytest.mark.stores
@pytest.mark.parametrize(
    ("action", "reason", "state"),
    [("kill", "wrong input", "Killed"), ("reschedule", "rescheduled: wrong input", "Waiting")],
)
def test_the_next_server_sends_the_stop_order(make_server, action, reason, state):
    # The pilot of this test says nothing while the server starts, however long that takes.
    server = make_server(**{"pilots.stop_at_exit": False, "pilots.lease_seconds": 600}).start()
    server.user("ann", "physics")
    pilot = server.fake_pilot()
    job = server.submit({"Executable": "/bin/true", "CPUTime": 60, "Site": "Bench"})
    (claimed,) = pilot.claim()
    pilot.report(claimed, "Running")
    body = {"action": action, "ranges": [[job, job]], "reason": "wrong input"}
    assert server.ask("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 1
    server.process.kill()
    server.process.wait()
    server.start()
    running = {"id": job, "attempt": 1}
    for _ in range(2):
        assert pilot.ask("heartbeat", {"jobs": [running]}).json["kill"] == [{**running, "reason": reason}]
    assert pilot.report(claimed, "Failed", cause="killed")["accepted"]
    assert pilot.ask("heartbeat", {"jobs": []}).json["kill"] == []
    assert server.states(job, job)[job] == state
    server.stop()
