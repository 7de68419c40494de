"""Jobs that come one by one while pilots wait for them: each runs once, and no result is thrown away.

`LODE_TEST_SINGLE_JOBS=20000` submits that many (1,500 by default).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter

import pytest

from lodesman.server.store.dialect import GIVEN, keys

JOBS = int(os.environ.get("LODE_TEST_SINGLE_JOBS", "1500"))
LATE = 30 * 60.0
# The pilots are threads of this process: none may lose its lease because the machine is slow.
SERVER_SETTINGS = {"pilots.lease_seconds": 600}


class Load:
    """Clients that submit single jobs, and pilots that wait for them and report what they were given, once."""

    def __init__(self, server, clients, pilots):
        self.server = server
        self.claimed = Counter()
        self.refused = []
        self.ids = []
        self.faults = []
        self.left = JOBS
        self.lock = threading.Lock()
        self.all_done = threading.Event()
        fakes = [server.fake_pilot() for _ in range(pilots)]
        self.threads = [threading.Thread(target=self.run, args=(self.submit,)) for _ in range(clients)]
        self.threads += [threading.Thread(target=self.run, args=(self.serve, one)) for one in fakes]

    def run(self, work, *values):
        try:
            work(*values)
        except BaseException as fault:
            self.faults.append(fault)
            self.all_done.set()
            raise

    def submit(self):
        while not self.all_done.is_set():
            with self.lock:
                if not self.left:
                    return
                self.left -= 1
            self.ids.append(self.server.submit({"Site": "Bench"}))

    def serve(self, pilot):
        while not self.all_done.is_set():
            for job in pilot.claim(wait=5.0):
                with self.lock:
                    self.claimed[job["id"], job["attempt"]] += 1
                result = pilot.report(job, exit_code=0)
                if not result["accepted"]:
                    self.refused.append((job["id"], job["attempt"], result["reason"]))
                if sum(self.claimed.values()) >= JOBS:
                    self.all_done.set()

    def play(self):
        for thread in self.threads:
            thread.start()
        assert self.all_done.wait(LATE)
        for thread in self.threads:
            thread.join(LATE)
        assert not self.faults


@pytest.mark.parametrize(("clients", "pilots"), [pytest.param(2, 12, marks=pytest.mark.stores), (4, 8)])
def test_jobs_that_come_one_by_one_while_pilots_wait_run_once(server, clients, pilots):
    load = Load(server, clients, pilots)
    load.play()
    assert load.refused == []
    assert load.claimed == {(job, 1): 1 for job in load.ids}
    states = Counter(server.states(min(load.ids), max(load.ids)).values())
    assert states == {"Done": JOBS}
    assert not any(server.reconcile().values())
    assert server.get("/health")["faults"] == []


@pytest.mark.stores
def test_what_an_older_server_left_is_mended_at_the_start(make_server):
    """Jobs that wait while their attempts live: pilots that live go on, other jobs are Held, and nothing runs twice."""
    server = make_server(**SERVER_SETTINGS).start()
    server.user("ann", "physics")
    pilot, other = server.fake_pilot(), server.fake_pilot()
    first = server.submit(*[{"Site": "Bench"}] * 6)
    jobs = pilot.claim(count=4)
    assert len(jobs) == 4
    gone = other.claim(count=2)
    server.stop()
    with contextlib.closing(server.database.writer()) as db, db:
        forget = "UPDATE job SET state = 'Waiting', attempt = 0, last_attempt = NULL, pilot_id = NULL, last_event = NULL"
        db.change(f"{forget} WHERE id IN {GIVEN}", (keys(one["id"] for one in (*jobs[:2], *gone)),))
        db.change("UPDATE pilot SET state = 'Done', ended_at = 5 WHERE id = ?", (other.id,))
        db.change("DELETE FROM job WHERE id = ?", (jobs[3]["id"],))
    server.start()
    assert server.get("/health")["faults"] == [
        "Attempts that lived without a job: 1, mended.",
        "Attempts that lived though their jobs did not name them: 4, mended.",
    ]
    assert Counter(server.states(first, first + 5).values()) == {"Matched": 3, "Held": 2}
    assert [pilot.report(job, exit_code=0)["accepted"] for job in jobs] == [True, True, True, False]
    assert pilot.claim() == []
    body = {"action": "release", "ranges": [[first, first + 5]]}
    reply = server.ask("POST", "/v1/jobs/control", body, token="ann")
    assert reply.status == 200, reply.body
    assert sorted((job["id"], job["attempt"]) for job in pilot.claim(count=4)) == [
        (one["id"], 2) for one in gone
    ]
    assert not any(server.reconcile().values())
    server.stop()
    server.start()
    assert server.get("/health")["faults"] == []
    server.stop()
