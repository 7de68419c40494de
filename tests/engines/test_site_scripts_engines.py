"""What sites install for $JOBSTATUS (examples/jobstatus), on real batch systems."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.kits.gridengine_kit import ACCOUNT, the_gridengine
from tests.kits.htcondor_kit import runner, started
from tests.kits.slurm_kit import environment, started_slurm

from lodesman.server.engines.run.here import Here
from lodesman.server.engines.zipapp import build_zipapp
from lodesman.site.jobstatus.vacate_command import main

pytestmark = [
    pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.vacate,
    pytest.mark.skipif(os.getuid() != 0, reason="prologs run as root"),
]  # fmt: skip
SCRIPTS = Path(__file__).parents[2] / "examples" / "jobstatus"
PATIENCE_S = 120.0
# Publishes one core and what it was given, and waits for a file.
JOB = """\
#!/bin/sh
cd "$JOBSTATUS" || exit 9
now=$(date +%s)
for key in first_exp_job_end last_exp_job_end last_max_job_end; do echo $((now + 3000)) >$key; done
for key in add_uncom_time add_final_exp_waste priority_factor; do echo 0 >$key; done
echo "$now" >last_job_start
echo True >can_postpone_last_job
echo 1 >used_CPU
echo "$JOBSTATUS $JOBFEATURES" >FOLDER/given
while [ ! -e FOLDER/end ]; do sleep 0.2; done
"""


def until(condition: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE_S / 0.2)):
        if condition():
            return
        threading.Event().wait(0.2)
    raise AssertionError("it never came to that")


def done(run, *words, **more):
    found = run(list(words), **more)
    assert not found.code, found.err
    return found.out


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the directories of jobs of any account, and their job."""
    with tempfile.TemporaryDirectory(prefix="lode-scripts-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "out").mkdir()
        (Path(name) / "out").chmod(0o1777)
        job = Path(name) / "job"
        job.write_text(JOB.replace("FOLDER", f"{name}/out"))
        job.chmod(0o755)
        yield Path(name)


def installed(folder: Path, engine: str, script: str) -> Path:
    """A script of the site, with the folder of this test in place of /run."""
    file = folder / script
    file.write_text(f'#!/bin/sh\nJOBSTATUS_PARENT={folder} exec {SCRIPTS}/{engine}/{script} "$@"\n')
    file.chmod(0o755)
    return file


def planned(folder: Path, backend: str, capsys) -> dict[str, object]:
    """The only victim there is, by the conventions of the scripts."""
    words = [f"--{name}={folder}/{name}/{{job}}" for name in ("jobstatus", "jobfeatures")]
    assert main(["--free=1", f"--backend={backend}", "--json", *words]) == 0
    (victim,) = json.loads(capsys.readouterr().out)["victims"]
    return victim


def check(folder: Path, job: str, cores: int, backend: str, capsys) -> None:
    """The job was given its directories, is read, and leaves nothing behind."""
    until((folder / "out" / "given").exists)
    given = (folder / "out" / "given").read_text().split()
    assert given == [f"{folder}/jobstatus/{job}", f"{folder}/jobfeatures/{job}"]
    for name in ("allocated_cpu", "allocated_CPU"):
        file = folder / "jobfeatures" / job / name
        assert (file.read_text(), file.stat().st_uid) == (f"{cores}\n", 0)
    victim = planned(folder, backend, capsys)
    assert (victim["job"], victim["cores"]) == (job, cores)
    assert victim["age"] is not None
    assert victim["reason"] == "loses what it has not committed"
    (folder / "out" / "end").touch()
    until(lambda: not (folder / "jobstatus" / job).exists() and not (folder / "jobfeatures" / job).exists())


def test_slurm(folder, capsys, monkeypatch):
    with started_slurm() as slurm:
        run = partial(done, Here(environment=environment(slurm)).run)
        lines = [
            f"{word}={installed(folder, 'slurm', name)}"
            for word, name in (("Prolog", "prolog"), ("TaskProlog", "task-prolog"), ("Epilog", "epilog"))
        ]
        with (slurm / "etc" / "slurm.conf").open("a") as file:
            file.write("\n".join(lines) + "\n")
        run("scontrol", "reconfigure")
        monkeypatch.setenv("SLURM_CONF", environment(slurm)["SLURM_CONF"])
        words = ["--partition=wide", "--cpus-per-task=3", "--output=/dev/null", "--time=60"]
        job = run("sbatch", "--parsable", *words, str(folder / "job")).strip()
        check(folder, job, 3, "slurm", capsys)


def test_grid_engine(folder, capsys, monkeypatch):
    found = dict(the_gridengine())
    account = found.pop(ACCOUNT)
    root, user = (partial(done, Here(account=one, environment=found).run) for one in ("", account))
    scripts = {
        "prolog": f"root@{installed(folder, 'gridengine', 'prolog')} $job_owner",
        "epilog": f"root@{installed(folder, 'gridengine', 'epilog')}",
        "starter_method": str(installed(folder, "gridengine", "starter-method")),
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    try:
        for name, value in scripts.items():
            root("qconf", "-mattr", "queue", name, value, "all.q")
        number = user("qsub", "-terse", "-o", "/dev/null", "-j", "y", "-t", "3", str(folder / "job")).split(
            "."
        )[0]
        check(folder, f"{number}.3", 1, "gridengine", capsys)
    finally:
        for name in scripts:
            root("qconf", "-mattr", "queue", name, "NONE", "all.q")


CONDOR = """
USER_JOB_WRAPPER = {place}/job-wrapper
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) JOBSTATUS
STARTD_CRON_JOBSTATUS_EXECUTABLE = {place}/startd-cron
STARTD_CRON_JOBSTATUS_ENV = "JOBSTATUS_MACHINE=$(FULL_HOSTNAME) JOBSTATUS_PROGRAM={place}/jobstatus.pyz"
STARTD_CRON_JOBSTATUS_MODE = Periodic
STARTD_CRON_JOBSTATUS_PERIOD = 5s
"""


def test_htcondor_puts_it_into_the_ads_of_slots():
    pool = started()
    place = pool / "place"
    for script in ("job-wrapper", "startd-cron"):
        (place / script).write_text((SCRIPTS / "htcondor" / script).read_text())
        (place / script).chmod(0o755)
    build_zipapp(place / "jobstatus.pyz", "jobstatus")
    (place / "jobstatus.pyz").chmod(0o755)
    (place / "job").write_text(JOB.replace("FOLDER", str(place / "out")))
    (place / "out").mkdir()
    (place / "out").chmod(0o1777)
    shipped = (SCRIPTS / "htcondor" / "50-jobstatus.conf").read_text()
    ranks = [line for line in shipped.splitlines() if line.startswith(("DEFRAG_RANK", "PREEMPTION_RANK"))]
    with (pool / "config").open("a") as file:
        file.write(CONDOR.format(place=place) + "\n".join(ranks) + "\n")
    root, user = (partial(done, runner(one, pool).run) for one in ("root", "lode"))
    root("inside", "mkdir", "-m", "1777", "/run/jobstatus")
    root("condor_reconfig")
    text = (
        f"executable=/bin/sh\narguments={place}/job\ntransfer_executable=false\nrequest_memory=100\nqueue\n"
    )
    job = user("condor_submit", "-terse", "-", stdin=text.encode()).split()[0]

    def slots():
        names = ("JobId", "JobStatusKillWaste", "JobStatusDrainWaste", "JobStatusAsOf")
        lines = root("condor_status", "-af", *names).splitlines()
        return {words[0]: words[1:] for words in map(str.split, lines)}

    until(lambda: slots().get(job, ["undefined"])[0].isdigit())
    until(lambda: slots()["undefined"][0].isdigit() and int(slots()["undefined"][0]) > 0)  # the node's sum
    kill, drain, as_of = slots()[job]
    assert int(kill) > 0
    assert int(drain) == 0
    assert int(as_of) > 1_700_000_000
    # What the shipped expressions make of it.
    for line in ranks:
        name, _, rank = line.replace("RemoteUserPrio", "1").partition(" = ")  # the negotiator alone has it
        value = root("condor_status", "-constraint", f'JobId is "{job}"', "-af", f"0 + ({rank})")
        assert value.strip() not in ("", "undefined", "error"), name
    (place / "out" / "end").touch()
    until(lambda: job not in slots())
    until(lambda: slots()["undefined"][0] == "0")


def test_what_is_shipped_is_what_a_shell_reads():
    for script in (
        *SCRIPTS.glob("slurm/*"),
        *SCRIPTS.glob("gridengine/*"),
        SCRIPTS / "htcondor" / "job-wrapper",
    ):
        if script.suffix != ".conf":
            assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
            assert script.stat().st_mode & 0o111
