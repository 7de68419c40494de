"""`vacate --apply` beside real batch systems: of two jobs that publish, the cheaper one goes, by a kill and by a drain."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.kits.gridengine_kit import ACCOUNT, the_gridengine
from tests.kits.htcondor_kit import service
from tests.kits.shared_engines import empty_all
from tests.kits.slurm_kit import environment, slurm_of_this_session
from tests.unit.pilot.test_python39 import oldest_python

from lodesman.pilot.jobstatus import batch_end, end_by_slurm
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.zipapp import build_zipapp

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.vacate]
PATIENCE_S = 120.0
# PLACE CORES COMMITS SECONDS [ID]: publishes, commits all the time or never, and ends when it reads that it shall.
# One that is stubborn commits all the time, and ends by SIGKILL alone.
JOB = """\
set -e
id=${5:-${SLURM_JOB_ID:-$JOB_ID}}
status=$1/status/$id features=$1/features/$id now=$(date +%s)
mkdir -p "$status" "$features"
write() { echo "$2" >"$status/.$1"; mv "$status/.$1" "$status/$1"; }
for key in first_exp_job_end last_exp_job_end last_max_job_end; do write $key $((now + $4)); done
write last_job_start "$now"
write add_uncom_time 0
write add_final_exp_waste 0
write can_postpone_last_job True
write priority_factor 0
write used_CPU "$2"
trap 'exit 143' TERM
[ "$3" != stubborn ] || trap '' TERM
until [ -e "$features/shutdowntime_job" ]; do
    [ "$3" = never ] || write last_job_start "$(date +%s)"
    sleep 0.2
done
"""


@dataclass
class Engine:
    """A batch system. submit: when it commits and seconds until its end -> id of the job; listed: ids that run."""

    name: str
    environ: Mapping[str, str]
    place: Path
    cores: int
    submit: Callable[[str, int], str]
    listed: Callable[[], set[str]]

    def published(self, job: str) -> bool:
        return (self.place / "status" / job / "used_CPU").exists() and job in self.listed()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / 0.2)):
        if condition():
            return
        threading.Event().wait(0.2)
    raise AssertionError("it never came to that")


def done(run, words, **more):
    found = run(words, **more)
    assert not found.code, found.err
    return found.out


def a_place(place: Path) -> Path:
    """Where jobs of any account make their directories; the script is there."""
    for folder in (place, place / "status", place / "features"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    (place / "job").write_text(JOB)
    return place


@pytest.fixture
def shared() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lode-vacate-") as place:
        yield a_place(Path(place))
        empty_all()  # no job writes there any more


@pytest.fixture
def slurm(shared: Path) -> Engine:
    environ = environment(slurm_of_this_session())
    run = partial(done, Here(environment=environ).run)

    def submit(commits, seconds):
        words = [
            "sbatch",
            "--parsable",
            "--partition=wide",
            "--cpus-per-task=4",
            "--output=/dev/null",
            "--time=60",
        ]
        return run([*words, f"--wrap=exec sh {shared}/job {shared} 4 {commits} {seconds}"]).strip()

    return Engine(
        "slurm",
        environ,
        shared,
        4,
        submit,
        lambda: set(run(["squeue", "-h", "-t", "RUNNING", "-o", "%A"]).split()),
    )


@pytest.fixture
def gridengine(shared: Path) -> Engine:
    found = dict(the_gridengine())
    account = found.pop(ACCOUNT)
    run = partial(done, Here(account=account, environment=found).run)

    def submit(commits, seconds):
        words = ["qsub", "-terse", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "-l", "h_rt=3600"]
        return run([*words, "/bin/sh", f"{shared}/job", str(shared), "1", commits, str(seconds)]).strip()

    def listed():
        return {line.split()[0] for line in run(["qstat", "-s", "r", "-u", account]).splitlines()[2:]}

    return Engine("gridengine", found, shared, 1, submit, listed)


@pytest.fixture
def htcondor() -> Engine:
    place = a_place(service() / "place" / secrets.token_hex(4))
    environ = {"PATH": f"{service()}/bin:/usr/bin:/bin", "ACCOUNT": "lode"}
    run = partial(done, Here(environment=environ).run)

    def submit(commits, seconds):
        text = (
            f"executable=/bin/sh\narguments={place}/job {place} 1 {commits} {seconds} $(ClusterId).$(ProcId)\n"
            "transfer_executable=false\nrequest_memory=100\nqueue\n"
        )
        return run(["condor_submit", "-terse", "-"], stdin=text.encode()).split()[0]

    def listed():
        words = ["condor_q", "-allusers", "-constraint", "JobStatus == 2", "-format", "%d.", "ClusterId"]
        return set(run([*words, "-format", "%d ", "ProcId"]).split())

    return Engine("htcondor", environ, place, 1, submit, listed)


@pytest.fixture(params=["slurm", "gridengine", "htcondor"])
def engine(request) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("site") / "jobstatus.pyz"
    build_zipapp(file, "jobstatus")
    return file


def vacate(program: Path, engine: Engine, *words: str) -> list[dict[str, object]]:
    """The events of the audit, of a machine without Lodesman and with an old Python."""
    audit = engine.place / "audit"
    found = subprocess.run(
        [oldest_python(), "-I", str(program), "vacate", f"--free={engine.cores}", f"--backend={engine.name}", "--apply",
         f"--jobstatus={engine.place}/status/{{job}}", f"--jobfeatures={engine.place}/features/{{job}}",
         f"--audit={audit}", *words],
        env={"PATH": os.environ["PATH"], **engine.environ}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    return [json.loads(line) for line in audit.read_text().splitlines()]


def wait_for_something_to_lose(engine: Engine, *jobs: str) -> None:
    """Until both jobs have run for ten seconds: a kill would cost nothing before."""
    until(lambda: all(map(engine.published, jobs)))
    files = [engine.place / "status" / job / "used_CPU" for job in jobs]
    until(lambda: time.time() - max(file.stat().st_mtime for file in files) > 10)


def names(events):
    return [one["event"] for one in events if one["event"] != "plan"]


def test_the_job_that_loses_less_is_killed(engine, program):
    dear, cheap = engine.submit("never", 3000), engine.submit("always", 3000)
    wait_for_something_to_lose(engine, dear, cheap)
    events = vacate(program, engine)
    act = next(one for one in events if one["event"] == "kill")
    assert names(events) == ["kill", "gone", "end"]
    assert (act["job"], act["cores"]) == (cheap, engine.cores)
    assert re.search(r"scancel|qdel|condor_vacate_job", act["commands"][0])
    assert events[-1]["time"] - act["time"] < PATIENCE_S
    until(lambda: engine.listed() == {dear})


def test_the_job_that_ends_in_time_is_drained(engine, program):
    long, soon = engine.submit("never", 3000), engine.submit("never", 100)
    wait_for_something_to_lose(engine, long, soon)
    events = vacate(program, engine, "--within=2m")
    assert names(events) == ["drain", "gone", "end"]
    assert next(one["job"] for one in events if one["event"] == "drain") == soon
    shutdown = int((engine.place / "features" / soon / "shutdowntime_job").read_text())
    assert shutdown == pytest.approx(events[0]["time"] + 120, abs=60)
    until(lambda: engine.listed() == {long})


def test_cores_are_free_when_slurm_says_so_and_not_when_the_kill_was_sent(slurm, program):
    """The job is COMPLETING until KillWait (5 s here) is over: nothing else starts on its cores before."""
    dear, stubborn = slurm.submit("never", 3000), slurm.submit("stubborn", 3000)
    wait_for_something_to_lose(slurm, dear, stubborn)
    events = vacate(program, slurm)
    run = Here(environment=slurm.environ).run
    assert stubborn not in done(run, ["squeue", "-h", "-t", "RUNNING,COMPLETING", "-o", "%A"]).split()
    assert names(events) == ["kill", "gone", "end"]
    at = {one["event"]: one["time"] for one in events}
    assert at["gone"] - at["kill"] > 3


def test_slurm_says_on_the_node_when_the_slot_of_a_pilot_ends(slurm):
    """Its own limit, which the server need not know."""
    job = slurm.submit("never", 3000)
    until(lambda: slurm.published(job))
    environ = {**os.environ, **slurm.environ, "SLURM_JOB_ID": job}
    assert batch_end(environ, 0.0, end_by_slurm) == pytest.approx(time.time() + 3600, abs=PATIENCE_S)
    assert batch_end({**environ, "SLURM_JOB_ID": "999999999"}, 0.0, end_by_slurm) is None
