"""The data folder of a running server is deleted: nothing more is acknowledged, and the server ends."""

from __future__ import annotations

import http.client
import shutil

from tests.e2e.conftest import PATIENCE


def test_a_server_without_its_data_refuses_and_ends_with_a_clear_line(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    server.submit()
    (server.data / "lode.db").unlink()
    job = {"jobs": [{"Executable": "/bin/true", "CPUTime": 60}]}
    statuses = []
    try:
        while not statuses or statuses[-1] == 200:
            statuses.append(server.ask("POST", "/v1/jobs", job, token="ann").status)
    except (OSError, http.client.HTTPException):
        statuses.append(0)
    assert statuses[-1] in (0, 503)
    assert server.process.wait(PATIENCE) == 1, "it must not start again with nothing"
    last = [line["message"] for line in server.log_lines() if line["level"] == "critical"]
    assert all("lode.db was deleted or moved while the server ran" in line for line in last)
    assert not (server.data / "lode.db").exists()
    shutil.rmtree(server.data)
