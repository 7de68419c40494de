"""`AtMost`: no more members of an array run at once, in real pilots, and across kills of the server."""

from __future__ import annotations

import os
import signal

import pytest
from tests.e2e.conftest import SITES, wait_until

JOBS = 12
# Each makes a directory of its own, counts those that are there, and stays for a moment: the first until as many are there
# as may be.
SCRIPT = """cd {place} && mkdir "$LODESMAN_JOB"
until [ -e ../full ] || [ "$(ls | wc -l)" -ge {at_most} ]; do sleep 0.05; done
touch ../full; ls | wc -l >> ../seen; sleep 0.3; rmdir "$LODESMAN_JOB"
"""


class Array:
    """An array whose members note how many of them run."""

    def __init__(self, server, at_most):
        self.server, self.seen = server, server.home / "seen"
        running = server.home / "running"
        running.mkdir()
        server.user("ann", "physics")
        self.first = server.submit({
            "Executable": "/bin/sh", "Arguments": ["-c", SCRIPT.format(place=running, at_most=at_most)],
            "Parameters": JOBS, "CPUTime": 60, "AtMost": at_most, "Site": "North",
        })  # fmt: skip

    def runs(self):
        """The numbers that were seen, in order."""
        return [int(line) for line in self.seen.read_text().split()] if self.seen.exists() else []

    def check(self, at_most):
        """All are done, and no member saw more than may run."""
        self.server.wait_for("Done", self.first, self.first + JOBS - 1)
        found = self.runs()
        assert len(found) == JOBS
        assert max(found) == at_most, found
        assert set(self.server.reconcile().values()) == {0}


@pytest.fixture
def server(make_server):
    """One with a queue of four slots; its pilots outlive it."""
    server = make_server(**{"pilots.stop_at_exit": False})
    (server.home / "sites.toml").write_text(SITES.replace("Slots = 2", "Slots = 4"))
    return server.start()


@pytest.mark.parametrize("at_most", [1, 2])
def test_members_that_run_at_once_are_never_more(server, at_most):
    array = Array(server, at_most)
    array.check(at_most)
    sent = server.get("/v1/pilots?all=true")["pilots"]
    assert len(sent) <= JOBS  # one for each member at most: no fleet for those that could not start
    server.stop()


@pytest.mark.stores
def test_it_holds_across_kills_of_the_server(server):
    array = Array(server, 2)
    for number in (2, 5):
        wait_until(lambda number=number: len(array.runs()) >= number, "members that run")
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.start()
    array.check(2)
    server.stop()
