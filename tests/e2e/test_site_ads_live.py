"""A site beside a real server: it advertises with the file that it was given, across `kill -9`, and regulates the flow."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

from lodesman.server.engines.zipapp import build_zipapp


class Site:
    """A machine with the file, a token and a cron."""

    def __init__(self, server, folder) -> None:
        self.server = server
        self.program, self.token = folder / "lode-advertise", folder / "token"
        build_zipapp(self.program, "advertise")
        made = server.ask("POST", "/v1/sites/token", {"site": "North"}, token="admin")
        self.token.write_text(made.json["token"])
        self.token.chmod(0o600)

    def advertise(self, *words):
        done = subprocess.run(
            [sys.executable, "-I", str(self.program), "--site", "North", "--from", "command", *words,
             "--server", f"http://127.0.0.1:{self.server.port}", "--token-file", str(self.token),
             "--", "echo", "running=0 submitting=0 pending=0"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout or done.stderr

    def gate(self):
        return self.server.get("/v1/sites/gate?site=North")


@pytest.fixture
def server(make_server):
    """Its director decides when something happens, and else once an hour."""
    found = make_server(**{"director.PollingTime": 3_600}).start()
    found.user("ann", "physics")
    return found


def test_a_site_that_takes_nothing_gets_nothing_until_its_ad_says_otherwise(server, tmp_path):
    site = Site(server, tmp_path)
    code, said = site.advertise("--max-jobs", "0")
    assert (code, said.partition(";")[2]) == (
        0, " the gate is shut: CurMatches < MaxJobs is false: CurMatches = 0, MaxJobs = 0.\n",
    )  # fmt: skip
    job = server.submit({"Site": "North"})
    wait_until(lambda: (server.get("/v1/director")["plan"] or {}).get("asks"), "an iteration with the job")
    assert server.get("/v1/pilots?all=true")["pilots"] == []
    before = site.gate()["ad"]
    server.stop(signal.SIGKILL)
    assert site.advertise("--max-jobs", "5")[0] == 5
    server.start()
    assert site.gate()["ad"] == before
    assert site.gate()["shut"]
    assert server.states(job, job) == {job: "Waiting"}
    assert site.advertise("--max-jobs", "5")[0] == 0
    server.wait_for("Done", job)
    assert [one["sequence"] for one in site.gate()["day"]][-1] == before["sequence"]
    revoked = next(one for one in server.get("/v1/tokens")["tokens"] if one["kind"] == "site")
    assert server.ask("DELETE", f"/v1/tokens/{revoked['hash']}", token="admin").status == 200
    assert site.advertise("--max-jobs", "5")[0] == 4
