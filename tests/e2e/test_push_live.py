"""Queues that are pushed to, in a running server with real pilots; kill -9 at each step of a bound job."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import Counter

import pytest
from tests.e2e.conftest import PATIENCE, SITES, wait_until

PUSHED = SITES.replace("[site.North.ce.cn.queue.q]\n", '[site.North.ce.cn.queue.q]\nMode = "push"\n')
FORWARDED = SITES.replace("[site.North.ce.cn.queue.q]\n", "[site.North.ce.cn.queue.q]\nForwards = true\n")
SETTINGS = {"pilots.stop_at_exit": False, "pilots.lease_seconds": 4}
KILLS = int(os.environ.get("LODESMAN_PUSH_KILLS", "8"))
# By one server.
AT_ONCE = 8
STEPS = {
    "waits": "SELECT 1 FROM job WHERE id = ? AND state = 'Waiting' UNION ALL SELECT 1 FROM cohort WHERE base = ?",
    "bound": "SELECT 1 FROM pilot WHERE bound_job = ? AND state = 'Prepared' AND ? > 0",
    "submitted": "SELECT 1 FROM pilot WHERE bound_job = ? AND state = 'Submitted' AND ? > 0",
    "joined": """SELECT 1 FROM pilot p JOIN attempt a ON a.pilot_id = p.id
    WHERE p.bound_job = ? AND p.state = 'Running' AND a.ended_at IS NULL AND a.claim_token = '' AND ? > 0""",
    "taken": "SELECT 1 FROM attempt WHERE job_id = ? AND ended_at IS NULL AND claim_token != '' AND ? > 0",
    "runs": "SELECT 1 FROM job WHERE id = ? AND state = 'Running' AND ? > 0",
    "ended": "SELECT 1 FROM job WHERE id = ? AND state IN ('Completing', 'Done') AND ? > 0",
}
VICTIMS = ("server", "pilot.pyz", "background", "keeper")


def started(server, text):
    (server.home / "sites.toml").write_text(text)
    server.start()
    server.user("ann", "physics")
    return server


def pilots_of(server):
    return {row["id"]: row for row in server.get("/v1/pilots?all=true&limit=1000")["pilots"]}


def end(server):
    for pid in server.pids("pilot.pyz"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    server.stop()


def test_jobs_are_pushed_to_a_queue(make_server):
    server = started(make_server(), PUSHED)
    first = server.submit(*[{"Site": "North"}] * 5, {"Site": "South"})
    server.wait_for("Done", first, first + 5)
    pilots = pilots_of(server)
    ran = {}
    for job in range(first, first + 6):
        (attempt,) = server.get(f"/v1/jobs/{job}")["attempts"]
        ran[job] = pilots[attempt["pilot"]]
        assert ran[job]["bound_job"] == (job if job < first + 5 else None)
    bound = [row for row in pilots.values() if row["site"] == "North"]
    assert len(bound) == 5, "none was sent without a job"
    wait_until(
        lambda: {row["state"] for row in pilots_of(server).values() if row["site"] == "North"} == {"Done"},
        "them",
    )
    assert {row["jobs_done"] for row in pilots_of(server).values() if row["site"] == "North"} == {1}
    assert set(server.reconcile().values()) == {0}
    server.stop()


def test_a_killed_job_takes_its_waiting_pilot_with_it(make_server):
    """The queue has two slots: the third and the fourth pilot wait."""
    server = started(make_server(), PUSHED)
    go_on = server.home / "go on"
    script = f"until [ -e '{go_on}' ]; do sleep 0.05; done"
    first = server.submit(*[{"Site": "North", "Executable": "/bin/sh", "Arguments": ["-c", script]}] * 3)
    server.wait_for("Running", first, first + 1)
    wait_until(lambda: server.states(first + 2, first + 2)[first + 2] == "Matched", "the third to be bound")
    (pilot,) = [row for row in pilots_of(server).values() if row["bound_job"] == first + 2]
    assert (
        f"pilot {pilot['id']} in North/cn/q"
        in server.get(f"/v1/jobs/{first + 2}/why", token="ann")["summary"]
    )
    body = {"action": "kill", "ranges": [[first + 2, first + 2]]}
    assert server.ask("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 1
    assert server.states(first + 2, first + 2) == {first + 2: "Killed"}
    wait_until(lambda: pilots_of(server)[pilot["id"]]["ended_at"], "the pilot to be cancelled")
    assert pilots_of(server)[pilot["id"]]["joined_at"] is None
    go_on.touch()
    server.wait_for("Done", first, first + 1)
    server.stop()


def test_pilots_are_forwarded_to_where_they_find_themselves(make_server):
    server = make_server()
    gate = server.home / "gate"
    gate.write_text(
        f'#!/bin/sh\nexport LODESMAN_SITE=Bench LODESMAN_CE=cb LODESMAN_QUEUE=q\nexec {sys.executable} "$@"\n'
    )
    gate.chmod(0o755)
    server.settings["pilots.python"] = str(gate)
    started(server, FORWARDED)
    job = server.submit({"Executable": "/bin/true", "Site": ["North", "Bench"]})
    server.wait_for("Done", job)
    (attempt,) = server.get(f"/v1/jobs/{job}")["attempts"]
    pilot = pilots_of(server)[attempt["pilot"]]
    assert (attempt["site"], pilot["site"], pilot["ce"], pilot["queue"]) == ("Bench", "Bench", "cb", "q")
    other = server.submit({"Site": "South"})  # whose pilots are told where they are
    server.wait_for("Done", other)
    server.stop()


class Kills:
    """Jobs one after the other, each with a kill at one of its steps, and what really ran."""

    def __init__(self, server) -> None:
        self.server = server
        self.ran_file = server.home / "ran"
        self.ran_file.touch()
        self.jobs: list[int] = []
        self.done: Counter[tuple[str, str]] = Counter()

    def submit(self) -> int:
        script = f'echo "$LODESMAN_JOB" >> {self.ran_file}; sleep 0.3'
        job = {"Site": "North", "Executable": "/bin/sh", "Arguments": ["-c", script], "MaxAttempts": 50}
        self.jobs.append(self.server.submit(job))
        return self.jobs[-1]

    def reach(self, job: int, step: str) -> bool:
        """Wait until a job is at a step; false if that went by unseen."""
        deadline = time.monotonic() + PATIENCE
        with contextlib.closing(self.server.database.reader()) as db:
            while not db.execute(STEPS[step], (job, job)).fetchone():
                done = db.execute("SELECT 1 FROM job WHERE id = ? AND state = 'Done'", (job,)).fetchone()
                if done or time.monotonic() > deadline:
                    return False
                threading.Event().wait(0.001)
        return True

    def kill(self, victim: str) -> bool:
        server = self.server
        if victim == "server":
            server.process.kill()
            server.process.wait()
            server.start()
            return True
        for pid in server.pids(victim):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def round(self, step: str, victim: str) -> None:
        if self.reach(self.submit(), step) and self.kill(victim):
            self.done[step, victim] += 1
            sys.stdout.write(f"{step}: {victim}\n")
            sys.stdout.flush()

    def check(self) -> None:
        """Every job is Done, each attempt ran at most once, and the one that counts did run."""
        server, ran = self.server, Counter(self.ran_file.read_text().split())
        for job in self.jobs:
            server.wait_for("Done", job, patience=PATIENCE)
        ran = Counter(self.ran_file.read_text().split())
        assert {name: times for name, times in ran.items() if times > 1} == {}
        handed = set()
        for job in self.jobs:
            attempts = server.get(f"/v1/jobs/{job}")["attempts"]
            assert [one["number"] for one in attempts] == list(range(1, len(attempts) + 1))
            assert [one["outcome"] for one in attempts].count("Done") == 1
            assert ran[f"{job}.{attempts[-1]['number']}"] == 1
            taken = [one for one in attempts if one["cause"] != "not-taken"]
            handed |= {f"{job}.{one['number']}" for one in taken}
        assert set(ran) <= handed, "what was not taken never ran"
        assert server.get("/v1/usage")["attempts"]["same_number_twice"] == 0
        assert set(server.reconcile().values()) == {0}


@pytest.mark.stores
@pytest.mark.parametrize("first", range(0, KILLS, AT_ONCE))
def test_a_bound_job_runs_once_or_waits_again_whatever_is_killed(make_server, first):
    """Each step with each victim in turn; `LODESMAN_PUSH_KILLS` says how many in all."""
    server = started(make_server(**SETTINGS), PUSHED)
    work, kills, tried = Kills(server), min(AT_ONCE, KILLS - first), first
    while work.done.total() < kills and tried < first + 3 * kills:
        work.round([*STEPS][tried % len(STEPS)], VICTIMS[tried // 2 % len(VICTIMS)])
        tried += 1
    work.check()
    assert work.done.total() == kills, work.done
    end(server)
