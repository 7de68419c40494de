"""A pilot that says nothing for long: its job is Stalled, comes back with its next word, and goes back with its lease."""

from __future__ import annotations

import pytest
from tests.kits.leases_in_hand import LEASE_SECONDS, SILENT_SECONDS, SilenceInHand


@pytest.mark.stores
def test_stalled_and_back_over_a_restart_and_at_last_given_up(make_server, tmp_path, monkeypatch):
    silence = SilenceInHand(tmp_path, monkeypatch)
    server = make_server(**{"pilots.stop_at_exit": False, "pilots.lease_seconds": LEASE_SECONDS}).start()
    server.user("ann", "physics")
    pilot = server.fake_pilot()
    job = server.submit({"Executable": "/bin/true", "CPUTime": 60, "Site": "Bench"})
    (claimed,) = pilot.claim()
    pilot.report(claimed, "Running")
    silence.last(SILENT_SECONDS)
    server.wait_for("Stalled", job)
    assert "said nothing since" in server.get(f"/v1/jobs/{job}")["reason"]
    entry = {"id": job, "attempt": 1}
    pilot.ask("heartbeat", {"jobs": [entry]})
    assert server.states(job, job)[job] == "Running"
    pilot.ask("heartbeat", {"jobs": [{**entry, "state": "completing"}]})
    assert server.states(job, job)[job] == "Completing"
    silence.last(SILENT_SECONDS)
    server.wait_for("Stalled", job)
    server.process.kill()
    server.process.wait()
    server.start()
    assert server.states(job, job)[job] == "Stalled"
    pilot.ask("heartbeat", {"jobs": [entry]})
    assert server.states(job, job)[job] == "Running"
    silence.last(SILENT_SECONDS)
    server.wait_for("Stalled", job)
    silence.last(SILENT_SECONDS)
    server.wait_for("Waiting", job)
    events = [event["event"] for event in server.get(f"/v1/jobs/{job}")["events"]]
    assert events[1:] == [
        "Matched", "Running", "Stalled", "Running", "Completing", "Stalled", "Running", "Stalled", "Waiting",
    ]  # fmt: skip
    server.stop()
