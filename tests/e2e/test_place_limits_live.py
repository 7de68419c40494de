"""A running server limits what runs and starts at a site, also after it was killed, and follows its files and the time."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from tests.e2e.conftest import SITES
from tests.e2e.test_reoffer_live import NO_PILOTS

WAIT = 40.0
DELAY = "\n[site.Bench.matching_delay]\nJobType = { Merge = 1 }\n"
RUNNING = "\n[site.Bench.running_limit]\nMaxRunningJobs = 1\n"


@pytest.fixture
def start(make_server):
    def make(text):
        server = make_server(**NO_PILOTS)
        (server.home / "sites.toml").write_text(SITES + text)
        server.start()
        server.user("ann", "physics")
        return server

    return make


def test_a_delay_opens_by_itself_for_a_pilot_that_waits(start):
    server = start(DELAY)
    pilot = server.fake_pilot()
    jobs = [server.submit({"JobType": "Merge"}) for _ in range(3)]
    found = [one["id"] for _ in jobs for one in pilot.claim(3, wait=WAIT)]
    assert found == jobs  # one for each claim
    with contextlib.closing(server.database.reader()) as db:
        at = [when for (when,) in db.execute("SELECT claimed_at FROM attempt ORDER BY id")]
    assert all(later - earlier > 0.99 for earlier, later in pairwise(at))


@pytest.mark.stores
def test_a_limit_holds_after_a_kill_and_follows_its_file(start):
    server = start(RUNNING)
    pilot = server.fake_pilot()
    first, second, third = (server.submit({}) for _ in range(3))
    (running,) = pilot.claim(3)
    assert running["id"] == first
    server.process.kill()
    server.process.wait()
    server.start()
    assert pilot.claim(3) == []
    server.configure(SITES + RUNNING.replace("1", "2"))
    assert [one["id"] for one in pilot.claim(3, wait=WAIT)] == [second]
    pilot.report(running)
    assert [one["id"] for one in pilot.claim(3, wait=WAIT)] == [third]
    server.stop()
