"""What lets a server run for years, in a running one: old jobs are purged, quotas hold, any free port is used."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until

SECOND = 1 / 86_400
# Smaller outputs are kept in the database.
NOISE = {"Executable": "/bin/sh", "Arguments": ["-c", "head -c 20000 /dev/urandom"]}


def upload(server, content, token="ann"):
    sha = hashlib.sha256(content).hexdigest()
    return server.ask("POST", "/v1/sandboxes", content, token=token, X_Sha256=sha)


def outputs(server):
    return sorted(path.name for path in (server.data / "sandboxes" / "out").rglob("*.tar.gz"))


class Outputs:
    """The files of outputs that were ever seen: the first may be purged before the last is there."""

    def __init__(self, server) -> None:
        self._server = server
        self._seen: set[str] = set()

    def seen(self) -> int:
        self._seen |= set(outputs(self._server))
        return len(self._seen)


@pytest.mark.stores
def test_old_jobs_are_purged_while_others_run(make_server):
    server = make_server(**{"server.keep_days": 3 * SECOND}).start()
    server.user("ann", "physics")
    first = server.submit(NOISE, NOISE, {"Executable": "/bin/false"})
    held = server.submit({**NOISE, "Parameters": 3})
    server.ask("POST", "/v1/jobs/control", {"action": "hold", "ranges": [[held, held]]}, token="ann")
    kept = Outputs(server)
    wait_until(lambda: kept.seen() >= 4, "outputs")
    seen = wait_until(
        lambda: (reply := server.ask("GET", f"/v1/jobs/{first}", token="ann")).status == 404 and reply,
        "the end",
    )
    assert seen.json["error"]["message"] == f"Job {first} is no longer known."
    server.ask("POST", "/v1/jobs/control", {"action": "release", "ranges": [[held, held]]}, token="ann")
    wait_until(lambda: not server.states(1, held + 2), "that all is forgotten")
    wait_until(lambda: not outputs(server), "that no file is left")
    killed = server.ask(
        "POST", "/v1/jobs/control", {"action": "kill", "ranges": [[first, first]]}, token="ann"
    )
    assert (killed.status, "no longer known" in killed.json["error"]["message"]) == (404, True)
    logs = server.ask("GET", f"/v1/jobs/{first}/logs", token="ann")
    assert (logs.status, "no longer known" in logs.json["error"]["message"]) == (404, True)
    assert server.stop() == 0
    server.start()
    assert server.submit({}) == held + 3
    assert set(server.reconcile().values()) == {0}


@pytest.mark.stores
def test_purging_survives_kill_nine(make_server):
    server = make_server(**{"server.keep_days": 3 * SECOND}).start()
    server.user("ann", "physics")
    kept = Outputs(server)
    for kill in range(1, 3):
        server.submit(*[NOISE] * 5)
        wait_until(lambda kill=kill: kept.seen() >= 4 * kill, "outputs")
        for pid in server.pids("background"):
            os.kill(pid, signal.SIGKILL)
    last = server.submit({})
    wait_until(lambda: not server.states(1, last), "that all is forgotten")
    wait_until(lambda: not outputs(server), "that no file is left")
    # What a process that was killed between commit and removal leaves, is found after the next start.
    lost = server.data / "sandboxes" / "out" / "0" / "1.1.tar.gz"
    lost.write_bytes(b"lost")
    assert server.stop() == 0
    server.start()
    wait_until(lambda: not lost.exists(), "the sweep")


def test_the_input_files_of_a_user_are_limited(make_server):
    server = make_server(**{"server.sandbox_quota_mb": 1}).start()
    server.user("ann", "physics")
    server.user("bob", "bio")
    assert upload(server, b"a" * (1 << 19)).status == 200
    assert upload(server, b"a" * (1 << 19)).status == 200  # the same again
    refused = upload(server, b"b" * ((1 << 19) + 1))
    assert (refused.status, refused.json["error"]["code"]) == (413, "storage-full")
    assert "1.0 MB allowed" in refused.json["error"]["message"]
    assert "lode delete" in refused.json["error"]["hint"]
    assert upload(server, b"b" * ((1 << 19) + 1), token="bob").status == 200
    assert server.get("/v1/me", "ann")["inputs"] == {
        "files": 1, "bytes": 1 << 19, "limit": 1 << 20, "outputs": 0,
    }  # fmt: skip
    kept = [path for path in (server.data / "sandboxes" / "in").rglob("*") if path.is_file()]
    assert len(kept) == 2


def test_any_free_port_will_do(make_server):
    server = make_server(**{"server.port": 0})
    server.process = server.spawn()
    told = server.data / "run" / "url"
    wait_until(lambda: told.exists() or server.process.poll() is not None, "the address")
    url = told.read_text().strip()
    server.port = int(url.rpartition(":")[2])
    assert url == f"http://127.0.0.1:{server.port}"
    wait_until(server.is_up, "the server")
    server.tokens["admin"] = (server.data / "admin.token").read_text().strip()
    server.user("ann", "physics")
    server.wait_for("Done", server.submit({}))  # its own second process and the pilots found it
    (server.home / "sites.toml").touch()
    wait_until(lambda: server.get("/v1/configuration")["reloads"], "the configuration")
    assert server.get("/v1/configuration")["at_next_start"] == []


def test_the_server_may_open_many_files_and_its_pilots_no_more_than_before(make_server):
    server = make_server()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = 512, before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    server.user("ann", "physics")
    for pid in (server.process.pid, *server.pids("background")):
        assert limits(pid)[0] == min(hard, 1 << 20)
    job = server.submit({"Executable": "/bin/sh", "Arguments": ["-c", "ulimit -Sn"]})
    server.wait_for("Done", job)
    assert server.get(f"/v1/jobs/{job}/logs", "ann")["tail"].strip() == str(soft)


def limits(pid):
    """The soft and the hard limit of open files of a process."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            return tuple(int(word) for word in line.split()[3:5])
    raise AssertionError
