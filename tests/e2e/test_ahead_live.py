"""Jobs that a pilot has claimed ahead: others run them when its cores are taken, and nothing is lost when it is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.conftest import SITES, wait_until

KILLS = int(os.environ.get("LODE_TEST_KILLS", "2"))
JOBS, BLOCKED = 400, 150
MARKS = 'echo "$LODESMAN_JOB" >> {ran}'


def started(make_server, **settings):
    """A server with room for one pilot of one core at North; South is closed."""
    found = make_server(**settings)
    (found.home / "sites.toml").write_text(SITES.replace("Slots = 2", "Slots = 1"))
    found.start()
    found.user("ann", "physics")
    body = {"path": "South", "reason": "not yet"}
    assert found.ask("POST", "/v1/sites/close", body, token="admin").status == 200
    (found.home / "ran").touch()
    return found


@pytest.fixture
def server(make_server):
    return started(make_server)


def submit(server, script: str, count: int, **more) -> range:
    """An array whose members append `<job>.<attempt>` to a file before they do anything."""
    script = f"{MARKS.format(ran=server.home / 'ran')}; {script}"
    job = {"Executable": "/bin/sh", "Arguments": ["-c", script], "Parameters": count, **more}
    first = server.submit(job)
    return range(first, first + count)


def ran(server) -> Counter[str]:
    return Counter((server.home / "ran").read_text().split())


def counts(server, jobs: range) -> Counter[str]:
    return Counter(server.states(jobs[0], jobs[-1]).values())


def test_what_a_busy_pilot_has_claimed_runs_on_the_next_one_that_joins(server):
    gate = server.home / "gate"
    os.mkfifo(gate)
    jobs = submit(
        server, f"[ %s != {BLOCKED} ] || read line < {gate}", JOBS, ParameterStart=0, ParameterStep=1
    )
    stuck = jobs[BLOCKED]
    wait_until(
        lambda: any(name.startswith(f"{stuck}.") for name in ran(server)), "the job that takes the core"
    )
    assert server.ask("POST", "/v1/sites/open", {"site": "South"}, token="admin").status == 200
    wait_until(lambda: counts(server, jobs)["Done"] == JOBS - 1, "the end of all others", patience=400.0)
    assert server.states(stuck, stuck) == {stuck: "Running"}
    gate.write_text("go\n")
    server.wait_for("Done", stuck)
    assert Counter(name.split(".")[0] for name in ran(server)) == Counter(map(str, jobs))
    found = {job: server.get(f"/v1/jobs/{job}")["attempts"] for job in jobs}
    assert found[stuck][-1]["pilot"] != found[jobs[-1]][-1]["pilot"]
    returned = [job for job in jobs if [one["cause"] for one in found[job]] == ["returned", "ok"]]
    assert len(returned) >= 10, "it had claimed them ahead"
    assert min(returned) > stuck


# It takes itself for one that ends 1,000 payloads a second once it has ended three, and gives nothing back for being late.
QUICK = """
import runpy, sys
place = next(number for number, word in enumerate(sys.argv) if word.endswith(".pyz"))
sys.argv = sys.argv[place:]
sys.path.insert(0, sys.argv[0])
from lodesman.pilot import decisions
counted = decisions.jobs_ahead
decisions.jobs_ahead = lambda ends, now: decisions.MOST_AHEAD if counted(ends, now) else 0
decisions._OVERDUE_S = 600.0
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def quick_python(place: Path) -> str:
    """A Python whose pilots are `QUICK`."""
    (place / "quick.py").write_text(QUICK)
    python = place / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in *.pyz*) set -- '
        f'"{place}/quick.py" "$@" ;; esac\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


def test_a_pilot_that_asks_for_a_thousand_has_no_more_ahead_than_it_ends(make_server, tmp_path):
    """It ends ten jobs a second at most; what it cannot run soon is there for the next pilot."""
    server = started(make_server, **{"pilots.python": quick_python(tmp_path)})
    jobs, seen = submit(server, "sleep 0.1", 200), [0]

    def ahead() -> list[int]:
        found = [len(one["jobs"]) for one in server.get("/v1/pilots")["pilots"] if one["joined_at"]]
        seen.extend(found)
        return found

    wait_until(lambda: ahead() and counts(server, jobs)["Done"] >= 40, "a pilot that has warmed up")
    assert 5 < max(seen) < 30
    assert server.ask("POST", "/v1/sites/open", {"site": "South"}, token="admin").status == 200
    wait_until(lambda: len(found := ahead()) == 2 and min(found) > 0, "jobs for the second")
    wait_until(lambda: counts(server, jobs)["Done"] == len(jobs), "the end of all", patience=400.0)
    assert set(Counter(name.split(".")[0] for name in ran(server)).values()) == {1}


def pilot_of(server) -> int | None:
    """The pilot itself, without what it has forked."""
    pids = server.pids("pilot.pyz")
    for pid in pids:
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if parent not in pids:
                return pid
    return None


def newest_pilot(server) -> tuple[int, int]:
    """The number of the newest pilot that has joined and not ended, and how many jobs it has; 0, 0 if there is none."""
    found = [one for one in server.get("/v1/pilots")["pilots"] if one["joined_at"] and not one["ended_at"]]
    return max(((one["id"], len(one["jobs"])) for one in found), default=(0, 0))


def kill_with_jobs_ahead(server, jobs: range, killed: set[int]) -> bool:
    """Kill a pilot that is none of those `killed` once it has claimed jobs that have not started; false if all jobs are
    done first.
    """

    def is_done_or_killed() -> str:
        states, (number, held), pid = counts(server, jobs), newest_pilot(server), pilot_of(server)
        if not states["Waiting"] and not states["Matched"]:
            return "done"
        if number in killed or held < 10 or pid is None:
            return ""
        os.kill(pid, signal.SIGSTOP)  # what was counted is still so when it is killed
        is_ahead = newest_pilot(server)[1] >= 5
        os.kill(pid, signal.SIGKILL if is_ahead else signal.SIGCONT)
        if is_ahead:
            killed.add(number)
        return "killed" if is_ahead else ""

    return wait_until(is_done_or_killed, "jobs ahead", patience=400.0) == "killed"


@pytest.mark.stores
@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_pilots_are_killed_with_jobs_ahead(server, most, record_property):
    """Only an attempt of which its pilot said that it runs counts against MaxAttempts."""
    jobs = submit(server, "true", 250 * KILLS, MaxAttempts=most)
    killed: set[int] = set()
    kills = sum(kill_with_jobs_ahead(server, jobs, killed) for _ in range(KILLS))
    assert kills == len(killed) > 0
    record_property("kills", kills)
    ended = {"Done", "Failed"}
    wait_until(lambda: set(counts(server, jobs)) <= ended, "the end of all", patience=400.0)
    marks, again = ran(server), 0
    assert set(marks.values()) == {1}, "no attempt ran twice"
    for job in jobs:
        found = server.get(f"/v1/jobs/{job}")
        begun = sum(event["event"] == "Running" for event in found["events"])
        outcomes = [one["outcome"] for one in found["attempts"]]
        if found["state"] == "Failed":
            assert begun >= most, "an attempt that never started has counted"
            continue
        assert outcomes.count("Done") == 1
        assert outcomes[-1] == "Done"
        assert marks[f"{job}.{len(outcomes)}"] == 1, "what counts as done has run"
        again += any(not marks[f"{job}.{number}"] for number in range(1, len(outcomes)))
    assert again > 0, "jobs that were lost with their pilot ran later, as if it had never had them"
    assert counts(server, jobs)["Failed"] <= 2 * kills, (
        "a pilot of one core runs one job, and hands in another"
    )
