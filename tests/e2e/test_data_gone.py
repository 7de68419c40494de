"""The data folder of a running server is deleted: nothing more is acknowledged, and the server ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sys

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

# A server that gave its pilots any time would not end in that of this test.
PLANTED = """
import sys
if "server" in sys.orig_argv:
    from lodesman.server.engines.local import LocalBackend
    from lodesman.server.main import bootstrap
    bootstrap.PILOT_GRACE_SECONDS = LocalBackend.stop_all.__kwdefaults__["deadline_seconds"] = 3600.0
"""
DEAF = f"""#!/bin/sh
case "$*" in *.pyz*) trap "" TERM; while :; do sleep 1; done ;; esac
exec {sys.executable} "$@"
"""


def knows_its_jobs(data):
    """Whether a job stands in what is noted of the database, once a second."""
    with contextlib.suppress(FileNotFoundError):  # a newer one takes its place
        return any(json.loads(note.read_bytes())["next_job"] > 1 for note in data.glob("lode.seen-*"))
    return False


@pytest.mark.sqlite
def test_a_server_without_its_data_refuses_and_ends_with_a_clear_line(make_server, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    deaf = tmp_path / "deaf"
    deaf.write_text(DEAF)
    deaf.chmod(0o755)
    server = make_server(**{"pilots.python": str(deaf)}).start()
    server.user("ann", "physics")
    server.submit({"Executable": "/bin/sleep", "Arguments": ["100"]})
    wait_until(lambda: server.pids("pilot.pyz"), "a pilot")
    wait_until(lambda: knows_its_jobs(server.data), "a note of its job")
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
    # Its pilots end with it at once: their reports would be refused.
    assert server.pids("pilot.pyz") == []
    last = [line["message"] for line in server.log_lines() if line["level"] == "critical"]
    assert all("lode.db was deleted or moved while the server ran" in line for line in last)
    # As systemd, and as an administrator would try.
    assert server.spawn().wait(PATIENCE) == server.spawn("lodesman.user.cli").wait(PATIENCE) == 8
    assert "put a backup in its place" in server.tail().lower()
    assert not (server.data / "lode.db").exists()
    server.process = server.spawn("lodesman.user.cli", "--accept-new-database")
    wait_until(server.is_up, "the server with nothing")
    server.tokens["admin"] = (server.data / "admin.token").read_text().strip()
    server.user("ann", "physics")
    assert server.submit() > 1
    assert server.stop() == 0
    server.start().stop()
    shutil.rmtree(server.data)
