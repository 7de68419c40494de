"""The data folder of a running server is deleted: nothing more is acknowledged, and the server ends."""

from __future__ import annotations

import http.client
import shutil
import time

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

from lodesman.daemon.bootstrap import PILOT_GRACE_SECONDS as GRACE_SECONDS


@pytest.mark.sqlite
def test_a_server_without_its_data_refuses_and_ends_with_a_clear_line(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    server.submit({"Executable": "/bin/sleep", "Arguments": ["100"]})
    wait_until(lambda: server.pids("pilot.pyz"), "a pilot")
    (server.data / "lode.db").unlink()
    begun = time.monotonic()
    job = {"jobs": [{"Executable": "/bin/true", "CPUTime": 60}]}
    statuses = []
    try:
        while not statuses or statuses[-1] == 200:
            statuses.append(server.ask("POST", "/v1/jobs", job, token="ann").status)
    except (OSError, http.client.HTTPException):
        statuses.append(0)
    assert statuses[-1] in (0, 503)
    assert server.process.wait(PATIENCE) == 1, "it must not start again with nothing"
    # Its pilots end with it, and their reports would be refused.
    assert time.monotonic() - begun < GRACE_SECONDS / 2
    last = [line["message"] for line in server.log_lines() if line["level"] == "critical"]
    assert all("lode.db was deleted or moved while the server ran" in line for line in last)
    assert not (server.data / "lode.db").exists()
    shutil.rmtree(server.data)
