"""A director that time would wake in an hour: what happens wakes it."""

from __future__ import annotations

import pytest
from tests.e2e.conftest import wait_until


@pytest.fixture
def server(make_server):
    found = make_server(**{"director.PollingTime": 3_600}).start()
    found.user("ann", "physics")
    return found


def test_jobs_and_ended_pilots_bring_pilots_before_the_time(server):
    wait_until(lambda: server.ask("GET", "/v1/director", token="admin").status == 200, "the first iteration")
    first = server.submit()
    server.wait_for("Done", first)
    assert server.get(f"/v1/jobs/{first}")["attempts"][0]["pilot"]
