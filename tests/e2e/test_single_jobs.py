"""Jobs that come one by one while pilots wait for them: each runs once, and no result is thrown away.

`LODE_TEST_SINGLE_JOBS=20000` submits that many (1,500 by default).
"""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

JOBS = int(os.environ.get("LODE_TEST_SINGLE_JOBS", "1500"))
LATE = 30 * 60.0
SERVER_SETTINGS = {"pilots.lease_seconds": 120}


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


@pytest.mark.parametrize(("clients", "pilots"), [(2, 12), (4, 8)])
def test_jobs_that_come_one_by_one_while_pilots_wait_run_once(server, clients, pilots):
    load = Load(server, clients, pilots)
    load.play()
    assert load.refused == []
    assert load.claimed == {(job, 1): 1 for job in load.ids}
    states = Counter(server.states(min(load.ids), max(load.ids)).values())
    assert states == {"Done": JOBS}
    assert not any(server.reconcile().values())
