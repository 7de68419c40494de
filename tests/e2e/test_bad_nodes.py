"""Nodes of no use: pilots on a full disk and on one without exec take no job twice, and every view says why."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

NODES = """
[site.Hand]
VO = ["lab"]
[site.Hand.ce.nodes]
Backend = "manual"
[site.Hand.ce.nodes.queue.q]
CPUTime = 1000
MaxTotalJobs = 9
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


class Site:
    """A server, and nodes that are one folder each, mounted where the pilot alone sees it."""

    def __init__(self, server, folder) -> None:
        self.server, self.folder = server, folder

    def lode(self, *words):
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
            "LODE_TOKEN": self.server.tokens["admin"], "COLUMNS": "300",
        }  # fmt: skip
        address = ("--server", f"http://127.0.0.1:{self.server.port}")
        done = subprocess.run(
            [sys.executable, "-m", "lodesman.user.cli", *address, *words],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, text, **more):
        """A job that is a file of its own, or has one."""
        sha = hashlib.sha256(text).hexdigest()
        stored = self.server.ask("POST", "/v1/sandboxes", text, token="ann", X_Sha256=sha)
        assert stored.status == 200, stored.body
        files = {"tool": {"sha256": sha, "size": len(text)}}
        return self.server.submit(
            {"InputSandbox": ["tool"], "Site": "Hand", "MaxAttempts": 1, **more}, sandboxes=files
        )

    def pilot(self, options):
        """Start a pilot on a node whose scratch is mounted so; its exit code and what it logged."""
        number = len(list(self.folder.iterdir()))
        made, node = self.folder / f"files{number}", self.folder / f"node{number}"
        self.lode("pilot", "file", "--queue", "Hand/nodes/q", "--hours", "1", "--dir", str(made))
        node.mkdir()
        (file,) = made.iterdir()
        script = 'mount -t tmpfs -o "$1" none "$2" && TMPDIR="$2" exec "$3" -I "$4"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", options, str(node), sys.executable, str(file)],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        if "Operation not permitted" in done.stderr:
            pytest.skip("no mounts can be made here")
        return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]

    def views(self, job, words):
        """Each view has the words: the host, the newest pilot and why it ended, the job and why it waits."""
        newest = self.server.get("/v1/pilots?all=true")["pilots"][0]
        assert newest["state"] == "Aborted"
        for view in (
            self.lode("host", "ls"), self.lode("why", f"pilot:{newest['id']}"), self.lode("pilot", "ls", "--all"),
        ):  # fmt: skip
            assert words in view, view
        if job:
            for view in (self.lode("why", str(job)), self.lode("show", str(job))):
                assert words in view, view


@pytest.fixture
def site(make_server, tmp_path):
    server = make_server()
    (server.home / "sites.toml").write_text((server.home / "sites.toml").read_text() + NODES)
    server.start()
    server.user("ann", "physics")
    folder = tmp_path / "nodes"
    folder.mkdir()
    return Site(server, folder)


def attempts(site, job):
    return [
        (one["number"], one["outcome"], one["cause"])
        for one in site.server.get(f"/v1/jobs/{job}")["attempts"]
    ]


BLOB = os.urandom(3_000_000)


def test_a_full_disk_takes_no_job(site):
    job = site.submit(BLOB, Executable="/bin/cat", Arguments="tool")
    code, log = site.pilot("size=600k")
    assert (code, log[-1]["reason"], log[-1]["heard"]) == (7, "node-fault", True)
    site.views(0, "No space left on device in ")
    assert attempts(site, job) == []


def test_a_disk_that_is_too_small_for_a_job_gives_it_back_uncharged(site):
    """And takes no other; a good node runs both."""
    jobs = [site.submit(BLOB, Executable="/bin/cat", Arguments="tool") for _ in range(2)]
    code, log = site.pilot("size=2500k")
    assert (code, log[-1]["reason"]) == (7, "node-fault")
    assert sorted(len(attempts(site, job)) for job in jobs) == [0, 1]
    (met,) = (job for job in jobs if attempts(site, job))
    assert attempts(site, met) == [(1, "Released", "node-fault")]
    assert site.server.states(met, met) == {met: "Waiting"}
    site.views(met, "No space left on device in ")
    host = site.server.get("/v1/hosts")["hosts"][0]
    assert (host["shut"], host["trips"]) == (True, 1)
    site.lode("host", "open", host["host"], "--site", host["site"])
    site.pilot("size=50m")
    site.server.wait_for("Done", *jobs)
    assert attempts(site, met)[-1] == (2, "Done", "ok")


def test_a_disk_without_exec_takes_no_job(site):
    job = site.submit(b"#!/bin/sh\necho ran\n", Executable="tool")
    code, log = site.pilot("size=50m,noexec")
    assert (code, log[-1]["reason"], log[-1]["heard"]) == (7, "node-fault", True)
    site.views(0, "No program can be executed in ")
    assert attempts(site, job) == []
    host = site.server.get("/v1/hosts")["hosts"][0]
    site.lode("host", "open", host["host"], "--site", host["site"])
    site.pilot("size=50m")
    site.server.wait_for("Done", job)
    wait_until(lambda: attempts(site, job) == [(1, "Done", "ok")], "its only attempt")
