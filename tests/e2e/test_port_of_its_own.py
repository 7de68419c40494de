"""`port = 0`: the server has another port after each start, and its local pilots find it."""

from __future__ import annotations

import signal

from tests.e2e.conftest import wait_until


def test_pilots_find_a_server_that_has_another_port(make_server):
    server = make_server(**{"pilots.stop_at_exit": False, "pilots.lease_seconds": 30})
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
    server.tokens["admin"] = (server.data / "admin.token").read_text().strip()
    server.user("ann", "physics")
    job = server.submit(
        {"Executable": "/bin/sh", "Arguments": ["-c", f"until test -e {server.home}/go; do sleep 0.1; done"]}
    )
    server.wait_for("Running", job)
    server.stop(signal.SIGKILL)
    assert start() != first
    (server.home / "go").touch()
    server.wait_for("Done", job)
    assert [one["number"] for one in server.get(f"/v1/jobs/{job}")["attempts"]] == [1]
    assert server.stop() == 0
