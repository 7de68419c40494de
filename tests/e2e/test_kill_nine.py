"""kill -9 of server, pilots and keepers at random moments: no job lost, no attempt run twice.

Each payload appends `$LODESMAN_JOB` (`<job>.<attempt>`) to one file before it works, so what really ran is
known and is held against what the server says. The moments are random; the seed is in the test's name.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from http.client import HTTPException

import pytest
from tests.e2e.conftest import wait_until

JOBS = 24
BOUND = 400.0
SETTINGS = {"pilots.stop_at_exit": False, "pilots.lease_seconds": 4}


def more(*seeds: int):
    """Further seeds, that need not be tried with each change."""
    return [pytest.param(one, marks=pytest.mark.thorough) for one in seeds]


class Workload:
    """Quick jobs on two sites, and what really ran."""

    def __init__(self, server) -> None:
        self.server = server
        self.ran_file = server.home / "ran"
        self.ran_file.touch()
        self.begun = time.monotonic()
        server.user("ann", "physics")
        server.user("bob", "bio")
        self.first = self._submit("ann", JOBS // 2)
        self._submit("bob", JOBS // 2)
        # Each member waits for its own one, and the last job for all of them.
        ends = self.first + JOBS // 2 - 1
        self.second = self._submit("ann", JOBS // 2, AfterOk=f"{self.first}-{ends}:index")
        self.last = self._submit("ann", 1, AfterOk=f"{self.second}-{self.second + JOBS // 2 - 1}")

    def _submit(self, name, count, **more):
        script = f'echo "$LODESMAN_JOB" >> {self.ran_file}; sleep 0.$(( $JOBID % 7 )); echo done'
        job = {
            "Executable": "/bin/sh", "Arguments": ["-c", script], "Parameters": count, "MaxAttempts": 50,
            "CPUTime": 60, **more,
        }  # fmt: skip
        return self.server.submit(job, token=name)

    def ran(self) -> Counter[str]:
        return Counter(self.ran_file.read_text().split())

    def left(self) -> float:
        """Seconds until this takes too long."""
        return BOUND - (time.monotonic() - self.begun)

    def check(self) -> None:
        """Every job is Done, and each attempt ran at most once; the successful one did run."""
        server = self.server
        server.wait_for("Done", self.first, self.last, patience=self.left())
        ran = self.ran()
        assert {name: times for name, times in ran.items() if times > 1} == {}
        told = set()
        for job in range(self.first, self.last + 1):
            found = server.get(f"/v1/jobs/{job}")
            numbers = [one["number"] for one in found["attempts"]]
            assert numbers == list(range(1, len(numbers) + 1))
            assert [one["outcome"] for one in found["attempts"]].count("Done") == 1
            assert ran[f"{job}.{numbers[-1]}"] == 1, "what counts as done has run"
            told |= {f"{job}.{number}" for number in numbers}
        assert set(ran) <= told, "nothing ran that the server did not hand out"
        self._check_order()
        found = server.get("/v1/usage")["attempts"]
        assert found["same_number_twice"] == 0
        used = server.get("/v1/usage/days")["rows"]
        assert sum(row["attempts"] for row in used) == found["all"], "each attempt is added up once"
        order = server.reconcile()
        assert set(order.values()) == {0}, order

    def _check_order(self):
        """What waited for a job ran after the attempt of it that counts."""
        lines = self.ran_file.read_text().split()
        first = {
            job: min(n for n, line in enumerate(lines) if line.startswith(f"{job}."))
            for job in range(self.second, self.last + 1)
        }
        last = {
            job: lines.index(f"{job}.{self.server.get(f'/v1/jobs/{job}')['attempt']}")
            for job in range(self.first, self.last)
        }
        for n in range(JOBS // 2):
            assert first[self.second + n] > last[self.first + n]
            assert first[self.last] > last[self.second + n]


class SingleJobs(Workload):
    """Jobs that come one by one while pilots wait for them, and while what the test wishes is killed."""

    def __init__(self, server) -> None:
        self.server = server
        self.ran_file = server.home / "ran"
        self.ran_file.touch()
        self.begun = time.monotonic()
        server.user("ann", "physics")
        self.first = self._submit("ann", 1)
        self.known = [self.first]
        self._ends = threading.Event()
        self._client = threading.Thread(target=self._come)
        self._client.start()

    def _come(self):
        while not self._ends.wait(0.03):
            # Without an answer nothing is known of it: the next one is another job.
            with contextlib.suppress(OSError, HTTPException, AssertionError):
                self.known.append(self._submit("ann", 1))

    def check(self) -> None:
        wait_until(lambda: len(self.known) > JOBS, "enough jobs", patience=self.left())
        self._ends.set()
        self._client.join()
        self.last = max(job["id"] for job in self.server.get("/v1/jobs?all=true&limit=10000")["jobs"])
        super().check()

    def _check_order(self):
        """None waits for another one."""


def pause(rng, low, high):
    threading.Event().wait(rng.uniform(low, high))


def kill_one(rng, pids):
    """SIGKILL to one of these; says whether there was one."""
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(pids), signal.SIGKILL)
    return True


def end(server):
    """The server stops, and its pilots end by themselves: nothing stays."""
    for pid in server.pids("pilot.pyz"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    server.stop()


@pytest.mark.stores
@pytest.mark.parametrize("seed", [1, *more(2, 3)])
def test_the_server_is_killed_again_and_again(make_server, seed):
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    work = Workload(server)
    for _ in range(4):
        pause(rng, 0.05, 1.5)
        server.process.kill()
        server.process.wait()
        pause(rng, 0.0, 0.5)
        server.start()
    work.check()
    end(server)


@pytest.mark.stores
@pytest.mark.parametrize("seed", [10])
def test_the_server_is_killed_while_jobs_come_one_by_one(make_server, seed):
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    work = SingleJobs(server)
    for n in range(4):
        pause(rng, 0.5, 2.0)
        if n % 2:
            kill_one(rng, server.pids(rng.choice(["pilot.pyz", "keeper"])))
        server.process.kill()
        server.process.wait()
        server.start()
    pause(rng, 0.5, 1.5)
    work.check()
    end(server)


@pytest.mark.stores
@pytest.mark.parametrize("seed", [4, *more(5)])
def test_the_server_is_killed_while_it_starts(make_server, seed):
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    work = Workload(server)
    for _ in range(5):
        server.process.kill()
        server.process.wait()
        server.process = server.spawn()
        pause(rng, 0.05, 1.2)
    server.process.kill()
    server.process.wait()
    server.start()
    work.check()
    end(server)


@pytest.mark.stores
@pytest.mark.parametrize("seed", [6, *more(7)])
def test_pilots_and_keepers_are_killed(make_server, seed):
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    work = Workload(server)
    killed = 0
    while killed < 5 and work.left() > BOUND / 2:
        pause(rng, 0.05, 0.8)
        killed += kill_one(rng, server.pids(rng.choice(["pilot.pyz", "keeper"])))
    assert killed
    work.check()
    end(server)


@pytest.mark.stores
@pytest.mark.parametrize("seed", [8, *more(9)])
def test_everything_is_killed(make_server, seed):
    """Server, background process, pilots, keepers, all of them, in any order."""
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    work = Workload(server)
    for _ in range(6):
        pause(rng, 0.05, 1.0)
        what = rng.choice(["server", "background", "pilot.pyz", "keeper"])
        if what == "server":
            server.process.kill()
            server.process.wait()
            server.start()
        else:
            kill_one(rng, server.pids(what))
    work.check()
    end(server)


@pytest.mark.stores
def test_pilots_whose_submission_was_killed_do_not_keep_their_queue_full(make_server):
    """Stored, never submitted: what is left when the background process dies between the two."""
    server = make_server(**SETTINGS).start()
    server.user("ann", "physics")
    request = {"vo": "lab", "site": "North", "ce": "cn", "queue": "q", "cores": 1, "memory_mb": 4_000}
    rows = [
        {
            "stamp": f"never{n}", "vo": "lab", "site": "North", "ce": "cn", "queue": "q",
            "join_hash": base64.b64encode(b"hash%d" % n).decode(),
            "request": {**request, "norm_cpu_seconds": 1_000},
        }
        for n in range(4)  # as many as may wait there
    ]  # fmt: skip
    assert server.ask("POST", "/v1/service/pilots", rows, token="service").status == 200
    job = server.submit({"Site": "North"}, token="ann")
    (background,) = server.pids("background")
    os.kill(background, signal.SIGKILL)
    server.wait_for("Done", job)
    ended = {row["stamp"]: row["state"] for row in server.get("/v1/pilots?all=true")["pilots"]}
    assert {ended[f"never{n}"] for n in range(4)} == {"Aborted"}
    end(server)


@pytest.mark.stores
def test_the_whole_machine_goes_down_and_comes_back(make_server):
    """All processes die at once, payloads too; after the start everything is done again that was not done."""
    server = make_server(**SETTINGS).start()
    work = Workload(server)
    server.process.kill()
    server.process.wait()
    for pid in server.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.start()
    work.check()
    end(server)
