"""`port = 0`: the server has another port after each start, and its local pilots find it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
from tests.e2e.conftest import wait_until

ISOLATED = {"local.trust_jobs": False, "local.run_as": "nobody" if os.geteuid() == 0 else ""}


@pytest.mark.parametrize("isolation", [{}, ISOLATED], ids=["trusted", "isolated"])
def test_pilots_find_a_server_that_has_another_port(make_server, isolation):
    """Isolated pilots do not see where the server writes its address for its users."""
    server = make_server(**isolation, **{"pilots.stop_at_exit": False, "pilots.lease_seconds": 600})
    server.settings["server.port"] = 0

    def start():
        url = server.data / "run" / "url"
        url.unlink(missing_ok=True)
        server.process = server.spawn()
        wait_until(url.exists, "the address")
        server.port = int(url.read_text().rsplit(":", 1)[1])
        wait_until(server.is_up, "the server")
        return server.port

    first = start()
    local_pilots = server.ask("GET", "/health").json["local_pilots"]
    if isolation and "isolated by namespaces" not in local_pilots:
        pytest.skip(local_pilots)
    server.tokens["admin"] = (server.data / "admin.token").read_text().strip()
    server.user("ann", "physics")
    wait_to_go = ["-c", "touch here; until test -e go; do sleep 0.1; done"]
    job = server.submit({"Executable": "/bin/sh", "Arguments": wait_to_go})

    def mark():
        with suppress(FileNotFoundError):  # a folder of a pilot is renamed when all is in it
            return next(server.data.glob("pilots/*/*/**/here"), None)

    here = wait_until(mark, "the job")
    server.stop(signal.SIGKILL)
    assert start() != first
    here.with_name("go").touch()
    server.wait_for("Done", job)
    assert [one["number"] for one in server.get(f"/v1/jobs/{job}")["attempts"]] == [1]
    assert server.stop() == 0
