"""The command line against a real server, with pilots and payloads: the whole life of some jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

import lodesman

SOURCE = str(Path(lodesman.__file__).parents[1])
PROGRAM = [sys.executable, "-c", "import sys; from lodesman.user.cli import main; sys.exit(main())"]
SETTINGS = {
    "pilots.idle_seconds": 3,
    "pilots.heartbeat_seconds": 1,
    "pilots.stop_at_exit": True,
    "pilots.python": sys.executable,
    "director.PollingTime": 1,
}
SCRIPT = """#!/bin/sh
echo "member $1"
cat data.txt > result.txt
echo "seen by $1" >> result.txt
exit "$2"
"""


@dataclass
class Shell:
    """A user at a directory with a server."""

    folder: Path
    environ: dict[str, str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Standard output of one command, which must end with this exit code."""
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=self.folder, env=self.environ, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == code, (
            f"lode {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        self.err = done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def states(self, jobs: str) -> dict[int, str]:
        return {job["id"]: job["state"] for job in self.json("status", jobs)["jobs"]}

    def wait(self, jobs: str, *states: str) -> None:
        wait_until(lambda: set(self.states(jobs).values()) <= set(states), f"{jobs} to be {states}")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[Shell]:
    """A server started by `lode init` and `lode server`, ended as by Ctrl-C; none of its processes stays."""
    folder = tmp_path_factory.mktemp("grid")
    port = free_port()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LODE_")},
        "PYTHONPATH": SOURCE, "HOME": str(folder / "home"), "LODE_SERVER": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    shell = Shell(folder, environ)
    shell("init")
    words = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*PROGRAM, "server", "--port", str(port), *words], cwd=folder, env=environ, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: answers(shell) or server.poll() is not None, "the server")
        assert server.poll() is None, (folder / "server.log").read_text()
        yield shell
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(PATIENCE)
    assert code == 0, (folder / "server.log").read_text()
    wait_until(lambda: not ours(folder), f"the end of {ours(folder)}")


@pytest.fixture(autouse=True)
def nothing_left(shell: Shell) -> Iterator[None]:
    """A test that fails leaves no jobs in the way of those that follow."""
    yield
    shell("kill", "--state", "Waiting,Held,Matched,Running", "--yes")


def answers(shell: Shell) -> bool:
    done = subprocess.run(
        [*PROGRAM, "whoami"],
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode == 0


def ours(folder: Path) -> list[str]:
    """Processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(f"{entry.name} {words!r}")
    return found


def test_a_first_job_from_submission_to_result(shell: Shell) -> None:
    (number,) = shell("submit", "hello.jdl").split()
    shell.wait(number, "Done")
    assert "hello from a pilot" in shell("logs", number)
    shell("output", number, "--dir", "first")
    assert (shell.folder / "first" / number / "std.out").read_text() == "hello from a pilot\n"
    assert "job" in shell("show", number)
    events = [event["event"] for event in shell.json("events", number)["events"]]
    assert events[0] == "Waiting"
    assert events[-1] == "Done"
    assert shell.json("usage", "shares")["states"]["Done"] >= 1
    assert shell.json("usage", "--by", "user")["rows"][0]["jobs"] >= 1


def test_an_array_with_files_there_and_back(shell: Shell) -> None:
    folder = shell.folder / "array"
    folder.mkdir()
    (folder / "run.sh").write_text(SCRIPT)
    (folder / "data.txt").write_text("data\n")
    (folder / "array.jdl").write_text(
        '[ JobName = "part_%n"; Executable = "run.sh"; Arguments = "%n 0"; CPUTime = 60; Parameters = 4;\n'
        '  InputSandbox = {"run.sh", "data.txt"}; OutputSandbox = {"result.txt"}; ]'
    )
    assert "4 jobs would be submitted" in shell("submit", "--dry-run", "array/array.jdl")
    jobs = shell("submit", "array/array.jdl").strip()
    shell.wait(jobs, "Done")
    rows = shell.json("status", jobs)["jobs"]
    assert [row["name"] for row in rows] == [f"part_{n}" for n in range(4)]
    shell("output", jobs, "--dir", "array/out")
    for index, row in enumerate(rows):
        result = shell.folder / "array" / "out" / str(row["id"]) / "result.txt"
        assert result.read_text() == f"data\nseen by {index}\n"


def test_a_failure_is_reported_and_can_be_retried(shell: Shell) -> None:
    (shell.folder / "fail.json").write_text(
        json.dumps({"Executable": "/bin/sh", "Arguments": ["-c", "echo oops >&2; exit 3"], "CPUTime": 60})
    )
    (number,) = shell("submit", "fail.json").split()
    shell.wait(number, "Failed")
    assert "exit code 3" in shell("show", number)
    assert "oops" in shell("logs", number)
    shell("kill", number, code=6)
    assert shell("reschedule", number) == "1 job rescheduled.\n"
    wait_until(lambda: shell.json("status", number)["jobs"][0]["attempt"] == 2, "a second attempt")
    shell.wait(number, "Failed")


def test_an_impossible_job_is_refused_or_held_with_the_reason(shell: Shell) -> None:
    (shell.folder / "never.jdl").write_text(
        '[ Executable = "/bin/true"; CPUTime = 60; Requirements = [ SoftwareTag = {"Nowhere"}; ]; ]'
    )
    shell("submit", "never.jdl", code=1)
    assert "can never run" in shell.err
    assert "SoftwareTag" in shell.err
    (number,) = shell("submit", "never.jdl", "--hold-if-impossible").split()
    assert f"lode why {number}" in shell.err
    assert shell.states(number) == {int(number): "Held"}
    why = shell("why", number)
    assert f"\n\nJob {number}: NEVER. " in why
    assert "softwaretag" in why.lower()
    assert shell("delete", number) == "1 job deleted.\n"
    assert int(number) not in {job["id"] for job in shell.json("status", "--jobs")["jobs"]}


def test_holding_releasing_and_killing(shell: Shell) -> None:
    (shell.folder / "sleep.jdl").write_text(
        '[ Executable = "/bin/sh"; Arguments = {"-c", "echo begun; sleep 600"}; CPUTime = 60; Parameters = 20; ]'
    )
    jobs = shell("submit", "sleep.jdl").strip()
    first, last = jobs.split("-")
    assert shell("hold", last, "--reason", "wait for data") == "1 job held.\n"
    assert "wait for data" in shell("status", last)
    assert f"\n\nJob {last}: NOT NOW. " in shell("why", last)
    assert shell("release", last) == "1 job released.\n"
    wait_until(lambda: shell.states(first)[int(first)] == "Running", "the first to run")
    wait_until(lambda: "begun" in shell("logs", first), "its output while it runs")
    told = shell("why", last)
    assert f"\n\nJob {last}: NOT NOW. " in told
    assert "jobs are before it" in told
    start = shell.json("status", last, "--start")["jobs"][0]["start"]
    # It is unknown once nothing has started for longer than jobs were seen to start.
    assert start is None or start["high_seconds"] > 0
    assert shell("kill", jobs, "--reason", "enough") == "20 jobs killed.\n"
    assert set(shell.states(jobs).values()) == {"Killed"}
    killed = shell.json("status", "--jobs", "--state", "Killed", "--limit", "5")
    assert [job["id"] for job in killed["jobs"]] == list(range(int(last), int(last) - 5, -1))
    assert killed["more"] is True
    assert shell.json("status", jobs, "--state", "Waiting")["jobs"] == []
    newest = shell.json("status")["submissions"][0]
    assert (newest["first"], newest["jobs"], newest["states"]) == (int(first), 20, {"Killed": 20})
    assert shell("reschedule", "--state", "Killed", "--name", "nothing*") == "0 jobs rescheduled.\n"
    assert shell("delete", "--state", "Killed", "--submission", str(newest["id"])) == "20 jobs deleted.\n"
    assert shell.json("pilot", "show", "1")["queue"] == "default"
    counts = shell.json("status", "--all")["counts"]
    assert "Waiting" not in counts
    assert "Killed" not in counts


def test_lists_of_everything(shell: Shell) -> None:
    assert "this.machine" in shell("site", "ls")
    assert "this.machine/here/default" in shell("queue", "ls")
    assert "CPUTime" in shell("queue", "ls", "--origin")
    assert shell.json("pilot", "ls", "--all")["pilots"]
    shell("tq", "ls")
    assert "decided" in shell("director", "show")
    wait_until(lambda: "users" in shell("usage"), "what was used to be added up")


def test_users_see_their_own_jobs_only(shell: Shell) -> None:
    shell("user", "add", "ann", "--vo", "local", "--group", "users")
    shell("token", "issue", "ann", "--output", "ann.token", "--days", "1")
    ann = Shell(shell.folder, {**shell.environ, "LODE_TOKEN_FILE": str(shell.folder / "ann.token")})
    assert ann.json("whoami")["name"] == "ann"
    assert ann.json("status")["submissions"] == ann.json("status", "--jobs")["jobs"] == []
    ann("status", "1", code=3)
    ann("kill", "1", code=3)
    ann("logs", "1", code=3)
    ann("output", "1", code=3)
    assert {token["account"] for token in ann.json("token", "ls")["tokens"]} == {"ann"}
    (number,) = ann("submit", "hello.jdl").split()
    assert [job["id"] for job in ann.json("status", "--jobs")["jobs"]] == [int(number)]
    mine = next(token for token in shell.json("token", "ls")["tokens"] if token["account"] == "ann")
    shell("token", "revoke", mine["hash"][:12])
    ann("whoami", code=4)
    shell.wait(number, "Done")


def test_pilots_can_be_drained(shell: Shell) -> None:
    (number,) = shell("submit", "hello.jdl").split()
    pilots = wait_until(lambda: shell.json("pilot", "ls")["pilots"], "a pilot")
    shell("pilot", "drain", ",".join(str(pilot["id"]) for pilot in pilots))
    shell.wait(number, "Done")


FIT = """import os, sys
print(sys.argv[1], open("data/in.txt").read(), *(os.environ.get("LODE_" + name) for name in sys.argv[2:]))
"""
SELF = """#!/bin/sh
#LODE --name own --cores 1 --cpu-time 10m --keep out.txt --array 1-3
echo "$1 $LODE_ARRAY_INDEX $LODE_CORES $OMP_NUM_THREADS $LODE_ATTEMPT" > out.txt
env | grep -E "^LODE_(TOKEN|SERVER|JOB_ID|MEMORY_MB)" | sort
"""


SLURM = """#!/bin/bash
#SBATCH --job-name=part --array=4-8:4%1 --time=10
#SBATCH --output=logs/%x_%A_%a.log
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $SLURM_CPUS_ON_NODE core, $SLURM_ARRAY_JOB_ID $SLURM_JOB_ID $1" >&2
"""


def test_a_script_of_slurm_runs_unchanged(shell: Shell) -> None:
    (shell.folder / "part.sh").write_text(SLURM)
    jobs = shell("submit", "--cpu-time", "5m", "part.sh", "%s").strip()
    first, last = map(int, jobs.split("-"))
    shell.wait(jobs, "Done")
    shell("output", jobs, "--dir", "part")
    for number, index in ((first, 4), (last, 8)):
        log = shell.folder / "part" / str(number) / "logs" / f"part_{first}_{index}.log"
        assert log.read_text() == f"{index} of 2, 1 core, {first} {number} %s\n"


def test_commands_and_scripts_are_jobs_that_know_what_they_are(shell: Shell) -> None:
    (shell.folder / "data").mkdir()
    (shell.folder / "data" / "in.txt").write_text("taken")
    (shell.folder / "fit.py").write_text(FIT)
    (shell.folder / "self.sh").write_text(SELF)
    job = shell(
        "submit", "--memory", "300M", "--files", "data", "--array", "10-20:10", "--", sys.executable, "fit.py", "%s",
        "ARRAY_INDEX", "MEMORY_MB", "CORES", "SITE",
    )  # fmt: skip
    assert "takes along fit.py" in shell.err
    first, last = map(int, job.strip().split("-"))
    own = shell("submit", "--set", "CPUTime=5m", "self.sh", "given").strip()
    shell.wait(job.strip(), "Done")
    shell.wait(own, "Done")
    site = shell.json("status", str(first))["jobs"][0]["site"]
    for number, index in ((first, 10), (last, 20)):
        assert shell("logs", str(number)).split() == [str(index), "taken", str(index), "300", "1", site]
    shell("output", own, "--dir", "own")
    began = int(own.partition("-")[0])
    for index in (1, 2, 3):
        output = shell.folder / "own" / str(began + index - 1)
        assert (output / "out.txt").read_text() == f"given {index} 1 1 1\n"
        assert (output / "std.out").read_text() == f"LODE_JOB_ID={began + index - 1}\n"


def test_a_server_is_found_from_any_folder_of_its_account_while_it_runs(make_server, tmp_path, monkeypatch):
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    server = make_server().start()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    names = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": SOURCE}
    shell = Shell(folder, names | {"XDG_STATE_HOME": str(state)})
    assert shell.json("whoami")["name"] == "admin"
    Shell(folder, names)("whoami", code=4)
    server.stop()
    shell("whoami", code=4)
    assert "No server of yours runs here" in shell.err
    assert list((state / "lodesman" / "servers").iterdir()) == []
