"""SubmitPools in a running server: changed sites reach jobs and pilots, pilots find out where they run, kill -9."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading

import pytest
from tests.e2e.conftest import PATIENCE, SITES, wait_until

NORTH, BENCH = ["North", "cn", "q"], ["Bench", "cb", "q"]
GEANT = {"Requirements": {"Software": "geant"}}


def with_software(site, *software, text=SITES):
    """The sites, with software at one of them."""
    head = f"[site.{site}]\n"
    assert head in text
    return text.replace(head, f"{head}Software = {json.dumps(list(software))}\n")


@pytest.fixture
def server(make_server):
    found = make_server().start()
    found.user("ann", "physics")
    return found


def pools_of(server, queue, token="admin"):
    reply = server.ask("POST", "/v1/submit-pools/for-queues", {"queues": [queue]}, token=token)
    assert reply.status == 200, reply.body
    return reply.json["queues"][0]["pools"]


def last_pass(server):
    return server.get("/v1/submit-pools")["last_pass"]


def nodes(server):
    """What pilots said of themselves when they joined."""
    with contextlib.closing(server.database.reader()) as db:
        return [
            json.loads(text) for (text,) in db.execute("SELECT node FROM pilot WHERE joined_at IS NOT NULL")
        ]


def test_a_job_that_nothing_can_run_runs_when_a_queue_appears(server):
    refused = server.ask(
        "POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true", "CPUTime": 60, **GEANT}]}, token="ann"
    )
    assert refused.status == 422
    job = server.submit(GEANT, GEANT, hold_if_impossible=True)
    server.wait_for("Held", job, job + 1)
    server.configure(with_software("North", "geant"))
    server.wait_for("Done", job, job + 1)
    events = server.get(f"/v1/jobs/{job}")["events"]
    assert [event["event"] for event in events[:4]] == ["Submitted", "Held", "Waiting", "Matched"]
    assert "North/cn/q can run it now" in events[2]["reason"]
    number = last_pass(server)["id"]
    assert last_pass(server)["cause"] in ("configuration", "interval", "request")
    # The director asked once, and wrote the pools of its queue and their refresh into the pilot's file.
    told = [node["submit_pools"] for node in nodes(server)]
    assert {"pass": number, "presented": 1, "serves": 1, "stale": 0} in told


def test_jobs_that_become_impossible_are_held_and_come_back(server):
    server.configure(with_software("Bench", "geant"))
    wait_until(lambda: server.get("/v1/configuration")["reloads"], "the new sites")
    asked = {"jobs": [{"Executable": "x", "CPUTime": 60, **GEANT}], "dry_run": True}
    wait_until(
        lambda: server.ask("POST", "/v1/jobs", asked, token="ann").status == 200,
        "the new sites in the hot process",
    )
    array = server.submit({**GEANT, "Parameters": 500})
    row = server.submit(GEANT)
    server.wait_for("Waiting", array, row)
    server.configure(SITES)
    server.wait_for("Held", array, row)
    (pool,) = server.get("/v1/submit-pools")["pools"]
    assert (pool["queues"], pool["jobs"]) == (0, {"waiting": 0, "held": 501, "running": 0})
    pilot = server.fake_pilot()
    assert pilot.claim(5) == []
    server.configure(with_software("Bench", "geant"))
    server.wait_for("Waiting", array, row)
    assert len(pilot.claim(5)) == 5


def test_a_pilot_that_finds_out_where_it_runs_takes_the_jobs_of_that_queue(make_server, tmp_path):
    server = make_server()
    (server.home / "sites.toml").write_text(with_software("Bench", "geant"))
    server.start()
    server.user("ann", "physics")
    job = server.submit({**GEANT, "Executable": "/bin/sh", "Arguments": "-c 'echo here'"})
    assert len(pools_of(server, BENCH)) == 1
    stamp, join = "wanderer", secrets.token_urlsafe(16)
    row = {
        "stamp": stamp, "vo": "lab", "site": "", "ce": "", "queue": "", "request": {"vo": "lab"},
        "join_hash": base64.b64encode(hashlib.sha256(join.encode()).digest()).decode(),
    }  # fmt: skip
    assert server.ask("POST", "/v1/service/pilots", [row], token="service").status == 200
    papers = tmp_path / "pilot.json"
    options = {"idle_s": 3, "heartbeat_s": 1, "join_patience_s": PATIENCE}
    papers.write_text(json.dumps(
        {"servers": [f"http://127.0.0.1:{server.port}"], "join_token": join, "stamp": stamp, "options": options}
    ))  # fmt: skip
    environment = {**os.environ, "LODESMAN_SITE": "Bench", "LODESMAN_CE": "cb", "LODESMAN_QUEUE": "q"}
    done = subprocess.run(
        [sys.executable, server.data / "share" / "pilot.pyz", "--file", papers, "--dir", tmp_path / "work"],
        env=environment, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    joined = next(line for line in map(json.loads, done.stderr.splitlines()) if line["event"] == "joined")
    assert (joined["queue"], joined["submit_pools"]) == ("Bench/cb/q", 1)
    assert server.states(job, job) == {job: "Done"}
    pilot = server.get("/v1/pilots?all=true")["pilots"][0]
    assert (pilot["site"], pilot["ce"], pilot["queue"]) == ("Bench", "cb", "q")


@pytest.mark.stores
@pytest.mark.parametrize(("seed", "changes"), [(11, 4), pytest.param(12, 8, marks=pytest.mark.thorough)])
def test_kill_nine_between_changes_leaves_everything_true(make_server, seed, changes):
    rng = random.Random(seed)
    server = make_server()
    here, gone = with_software("Bench", "geant"), SITES
    (server.home / "sites.toml").write_text(here)
    server.start()
    server.user("ann", "physics")
    array = server.submit({**GEANT, "Parameters": 20})
    row = server.submit(GEANT)
    kept = server.submit(GEANT)
    server.ask("POST", "/v1/jobs/control", {"action": "hold", "ranges": [[kept, kept]]}, token="ann")
    for number in range(changes):
        eligible = number % 2 == 1
        server.configure(here if eligible else gone)
        victims = server.pids("background") if rng.random() < 0.4 else [server.process.pid]
        threading.Event().wait(rng.choice([0.0, 1.0, 2.0, 2.3]))
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        if server.process.pid in victims:
            server.process.wait()
            server.start()
        server.wait_for("Waiting" if eligible else "Held", array, row)
        assert server.states(kept, kept) == {kept: "Held"}
        assert len(pools_of(server, BENCH)) == eligible
        assert set(server.reconcile().values()) == {0}
    assert server.get(f"/v1/jobs/{kept}")["held_by"] == "user"
    pilot = server.fake_pilot()
    assert {job["id"] for job in pilot.claim(50)} <= set(range(array, row + 1))


@pytest.mark.stores
def test_kill_nine_before_a_pool_is_made_again(make_server):
    server = make_server(**{"submit_pools.grace_seconds": 0, "submit_pools.refresh_seconds": 1})
    (server.home / "sites.toml").write_text(with_software("Bench", "geant"))
    server.start()
    server.user("ann", "physics")
    job = server.submit(GEANT)
    server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job, job]]}, token="ann")
    wait_until(lambda: server.get("/v1/submit-pools")["total"] == 0, "the removal of the pool")
    told = server.ask(
        "POST", "/v1/jobs/control", {"action": "reschedule", "ranges": [[job, job]]}, token="ann"
    )
    assert told.json["changed"] == 1
    server.stop(signal.SIGKILL)
    server.start()
    wait_until(lambda: pools_of(server, BENCH), "the pool")
    assert [claimed["id"] for claimed in server.fake_pilot().claim()] == [job]


def test_the_command_line_shows_pools(server, tmp_path):
    server.configure(with_software("North", "geant"))
    job = server.submit(GEANT, hold_if_impossible=True)
    server.wait_for("Done", job)
    token = tmp_path / "token"
    token.write_text(server.tokens["ann"])
    token.chmod(0o600)

    def lode(*words):
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from lodesman.user.cli import main; sys.exit(main())",
             "--server", f"http://127.0.0.1:{server.port}", "--token-file", str(token), *words],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    pool = json.loads(lode("pool", "ls", "--json"))["pools"][0]["id"]
    assert "Software geant" in lode("pool", "ls")
    assert "North/cn/q" in lode("pool", "show", pool[:15])
