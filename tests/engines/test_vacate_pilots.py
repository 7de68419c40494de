"""`lode vacate --apply` beside real batch systems: of two real pilots that one goes that loses less; its job runs again."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Server, make_server, wait_until  # noqa: F401 - a fixture of these tests
from tests.kits.gridengine_kit import ACCOUNT, started_gridengine
from tests.kits.htcondor_kit import started
from tests.kits.slurm_kit import environment, started_slurm

from lodesman.server.engines.run.here import Here
from lodesman.site.jobstatus import vacate_command
from lodesman.site.jobstatus.applier import OLD_S, Applier
from lodesman.site.jobstatus.survey import survey

pytestmark = [
    pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.vacate,
    pytest.mark.skipif(os.getuid() != 0, reason="prologs run as root"),
]  # fmt: skip
SCRIPTS = Path(__file__).parents[2] / "examples" / "jobstatus"
PATIENCE_S = 120.0
CORES = 4
# Notes where it runs, commits all the time once it is told to, and ends when it is told to, or so many seconds before the
# deadline of a drain.
PAYLOAD = """\
echo "$JOBID $LODESMAN_JOB $LODESMAN_STAMP ${JOBFEATURES##*/}" >>"$1/runs"
while [ ! -e "$1/end" ]; do
    if [ -e "$1/before.$JOBID" ] && read -r due 2>/dev/null <"$JOBFEATURES/shutdowntime_job"; then
        [ $(($(date +%s) + $(cat "$1/before.$JOBID"))) -lt "$due" ] || exit 0
    fi
    [ ! -e "$1/commits.$JOBID" ] || touch "$LODESMAN_COMMIT"
    sleep 0.2
done
"""
until = partial(wait_until, patience=PATIENCE_S)


@dataclass(frozen=True)
class Site:
    """A batch system with what examples/jobstatus installs. place: of the jobs' directories, open to their account.

    environ: of the commands of its administrator; clear: ends all jobs.
    """

    name: str
    section: Mapping[str, Any]
    queue: str
    place: Path
    environ: Mapping[str, str]
    clear: Callable[[], object]

    def words(self) -> list[str]:
        """Which jobs there are, and where their directories."""
        places = (f"--{name}={self.place}/{name}/{{job}}" for name in ("jobstatus", "jobfeatures"))
        return [f"--backend={self.name}", *places]

    def costs(self) -> dict[str, int | None]:
        """What a kill would lose now (core-seconds), by the id of the job."""
        parser = argparse.ArgumentParser()
        vacate_command.declare(parser)
        options = parser.parse_args(self.words())
        found = survey(vacate_command.door_of(options), vacate_command.look_of(options), time.time())
        return {one.job: one.estimate.kill_waste if one.estimate else None for one in found}


def installed(place: Path, engine: str, script: str, before: str = "") -> Path:
    """A script of the site, with this place instead of /run."""
    file = place / script
    file.write_text(f'#!/bin/sh\n{before}\nJOBSTATUS_PARENT={place} exec {SCRIPTS}/{engine}/{script} "$@"\n')
    file.chmod(0o755)
    return file


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lode-vacate-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run(words: list[str], environ: Mapping[str, str], account: str = "") -> str:
    done = Here(account=account, environment=environ).run(words)
    assert not done.code, done.err
    return done.out


@pytest.fixture(scope="module")
def slurm(place) -> Iterator[Site]:
    with started_slurm() as folder:
        environ = environment(folder)
        scratch = str(folder / "etc" / "task-prolog")
        scripts = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "task-prolog"}
        lines = [
            f"{name}={installed(place, 'slurm', script, scratch if name == 'TaskProlog' else '')}\n"
            for name, script in scripts.items()
        ]
        with (folder / "etc" / "slurm.conf").open("a") as file:
            file.writelines(lines)
        run(["scontrol", "reconfigure"], environ)
        section = {"type": "slurm", "environment": environ}
        yield Site(
            "slurm", section, "wide", place, environ, lambda: run(["scancel", "--partition=wide"], environ)
        )


@pytest.fixture(scope="module")
def gridengine(place) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LODE_SGE_SLOTS", "12")
        with started_gridengine() as found:
            account = found[ACCOUNT]
            environ = {name: value for name, value in found.items() if name != ACCOUNT}
            prolog, epilog, starter = (
                installed(place, "gridengine", script) for script in ("prolog", "epilog", "starter-method")
            )
            scripts = {
                "prolog": f"root@{prolog} $job_owner",
                "epilog": f"root@{epilog}",
                "starter_method": str(starter),
            }
            for name, value in scripts.items():
                run(["qconf", "-mattr", "queue", name, value, "all.q"], environ)
            section = {
                "type": "gridengine",
                "account": account,
                "environment": environ,
                "parallel_environment": "smp",
            }
            delete = partial(Here(account=account, environment=environ).run, ["qdel", "-u", account])
            yield Site("gridengine", section, "all.q", place, environ, delete)


CONDOR = """
NUM_CPUS = 12
MEMORY = 16384
USER_JOB_WRAPPER = {place}/wrapper
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) JOBSTATUS
STARTD_CRON_JOBSTATUS_EXECUTABLE = {place}/startd-cron
FEATURES = {place}/jobfeatures
STARTD_CRON_JOBSTATUS_ENV = "JOBSTATUS_MACHINE=$(FULL_HOSTNAME) JOBFEATURES_PARENT=$(FEATURES) JOBSTATUS_PROGRAM=/bin/false"
STARTD_CRON_JOBSTATUS_MODE = Periodic
STARTD_CRON_JOBSTATUS_PERIOD = 2s
"""
WRAPPER = """\
#!/bin/sh
export JOBSTATUS_PARENT={place}/jobstatus JOBFEATURES_PARENT={place}/jobfeatures
exec {place}/job-wrapper "$@"
"""


@pytest.fixture(scope="module")
def htcondor() -> Site:
    pool = started()
    place = pool / "place"
    (place / "jobstatus").mkdir()
    (place / "jobstatus").chmod(0o1777)
    scripts = {name: (SCRIPTS / "htcondor" / name).read_text() for name in ("job-wrapper", "startd-cron")}
    for name, text in {**scripts, "wrapper": WRAPPER.format(place=place)}.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    with (pool / "config").open("a") as file:
        file.write(CONDOR.format(place=place))
    environ = {"PATH": f"{pool}/bin:{os.environ['PATH']}", "ACCOUNT": "lode"}
    root = {**environ, "ACCOUNT": "root"}
    run(["inside", "install", "-d", "-o", "condor", f"{place}/jobfeatures"], root)
    run(["condor_restart", "-startd"], root)

    until(lambda: run(["condor_status", "-af", "TotalCpus"], environ).startswith("12"), "twelve cores")
    section = {"type": "htcondor", "environment": {"PATH": f"{pool}/bin:/usr/bin:/bin", "ACCOUNT": "lode"}}
    return Site(
        "htcondor",
        section,
        "default",
        place,
        environ,
        partial(Here(environment=environ).run, ["condor_rm", "-all"]),
    )


@pytest.fixture(scope="module", params=["slurm", "gridengine", "htcondor"])
def engine(request) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def site(engine, monkeypatch) -> Iterator[Site]:
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    yield engine

    def is_empty() -> bool:
        """A server that was killed may have had a submission on its way: its pilots come after the others were ended."""
        engine.clear()
        return not engine.costs()

    until(is_empty, "an empty batch system")


@dataclass(frozen=True)
class Run:
    """One attempt of a payload: its job, the pilot's stamp, and the job of the batch system."""

    job: int
    attempt: str
    pilot: str
    batch: str


class Pair:
    """Two jobs of four cores in two pilots, which published them. Both could be vacated for the other."""

    def __init__(self, site: Site, server: Server, marks: Path, *expected: int) -> None:
        self.site, self.server, self.marks = site, server, marks
        words = ["-c", PAYLOAD, "sh", str(marks)]
        common = {"Executable": "/bin/sh", "Arguments": words, "NumberOfProcessors": CORES, "WallTime": 3000}
        for number, seconds in enumerate(expected, 1):
            # One after the other, else a pilot would prefetch the second.
            server.submit({**common, "ExpectedTime": seconds})
            self.until_runs(number)
        until(lambda: self.losing(*self.runs()), "what both publish")

    def runs(self) -> list[Run]:
        """All attempts so far, in the order of their starts."""
        file = self.marks / "runs"
        lines = file.read_text().splitlines() if file.exists() else ()
        return [Run(int(job), *words) for job, *words in map(str.split, lines)]

    def until_runs(self, number: int) -> None:
        until(lambda: len(self.runs()) == number or self.failed(), f"attempt {number} of all")
        assert not self.failed()

    def losing(self, *runs: Run) -> list[int] | None:
        """What kills of their pilots would lose; None unless each loses something."""
        found = self.site.costs()
        costs = [found.get(run.batch) or 0 for run in runs]
        return costs if all(costs) else None

    def failed(self) -> list[str]:
        """Why attempts failed."""
        jobs = (self.server.get(f"/v1/jobs/{run.job}") for run in self.runs())
        return [job["attempts"][-1]["message"] for job in jobs if job["state"] == "Failed"]

    def commit(self, run: Run) -> None:
        """From now on, all the time."""
        (self.marks / f"commits.{run.job}").touch()

    def until_ten_times_dearer(self, dear: Run, cheap: Run) -> None:
        """And by so much that it stays so, however late a commit is published."""

        def is_so() -> bool:
            found = self.site.costs()
            most, least = found.get(dear.batch), found.get(cheap.batch)
            return most is not None and least is not None and most > 10 * max(least, 2 * CORES)

        until(is_so, "ten times as much to lose")

    def check_the_end(self, dear: Run, cheap: Run) -> None:
        """The cheaper job began anew in another pilot; each attempt began once, and both end well."""
        self.until_runs(3)
        again = self.runs()[2]
        assert again.job == cheap.job, self.runs()
        assert again.pilot not in {dear.pilot, cheap.pilot}
        assert again.batch not in {dear.batch, cheap.batch}
        (self.marks / "end").touch()
        self.server.wait_for("Done", 1, 2, patience=PATIENCE_S)
        jobs = {job: self.server.get(f"/v1/jobs/{job}")["attempt"] for job in (dear.job, cheap.job)}
        assert jobs == {dear.job: 1, cheap.job: 2}
        attempts = [run.attempt for run in self.runs()]
        assert len(attempts) == len(set(attempts)) == 3


@pytest.fixture
def marks(site) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="marks-", dir=site.place) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def pair(site, marks, make_server) -> Callable[..., Pair]:  # noqa: F811
    server = make_server(**{
        "backend.engine": {"poll_seconds": 1, **site.section},
        "pilots.python": "python3", "pilots.idle_seconds": 60, "pilots.lease_seconds": 60,
    })  # fmt: skip
    (server.home / "sites.toml").write_text(f"""
[site.Far]
VO = ["lab"]
[site.Far.ce.ce.queue."{site.queue}"]
Backend = "engine"
NumberOfProcessors = {CORES}
MaxTotalJobs = 2
CPUTime = 20000
WallTime = 3600
[group.physics]
vo = "lab"
""")
    server.start()
    server.user("ann", "physics")
    return partial(Pair, site, server, marks)


def vacate(site: Site, marks: Path, *words: str) -> list[dict[str, Any]]:
    """The events of the audit."""
    audit = marks / "audit"
    done = subprocess.run(
        [sys.executable, "-m", "lodesman.user.cli", "vacate", f"--free={CORES}", "--apply", f"--audit={audit}",
         *site.words(), *words],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return events_of(audit)


def events_of(audit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit.read_text().splitlines()]


def names(events):
    return [one["event"] for one in events if one["event"] != "plan"]


def acted(events, what):
    (found,) = (one for one in events if one["event"] == what)
    return found


def test_the_pilot_that_loses_less_is_killed(site, pair, marks):
    found = pair(3000, 3000)
    dear, cheap = found.runs()
    found.commit(cheap)
    found.until_ten_times_dearer(dear, cheap)
    events = vacate(site, marks)
    assert names(events) == ["kill", "gone", "end"]
    assert (acted(events, "kill")["job"], acted(events, "kill")["cores"]) == (cheap.batch, CORES)
    assert acted(events, "gone")["time"] - acted(events, "kill")["time"] < PATIENCE_S
    found.check_the_end(dear, cheap)


def test_the_pilot_that_committed_since_the_plan_goes_instead(site, pair, marks, monkeypatch, capsys):
    found = pair(3000, 3000)
    since, planned = found.runs()
    found.commit(planned)
    found.until_ten_times_dearer(since, planned)
    (marks / f"commits.{planned.job}").unlink()

    def later(*words):
        """Between plan and act."""
        found.commit(since)
        began = time.monotonic()
        found.until_ten_times_dearer(planned, since)
        until(lambda: time.monotonic() > began + OLD_S, "numbers that are old")
        return Applier(*words)

    monkeypatch.setattr(vacate_command, "Applier", later)
    audit = marks / "audit"
    assert (
        vacate_command.main([f"--free={CORES}", "--apply", "--json", f"--audit={audit}", *site.words()]) == 0
    )
    assert [one["job"] for one in json.loads(capsys.readouterr().out)["victims"]] == [planned.batch]
    events = events_of(audit)
    plans = [one["victims"] for one in events if one["event"] == "plan"]
    assert (plans[0], plans[-1]) == ([planned.batch], [since.batch])
    assert names(events) == ["kill", "gone", "end"]
    assert acted(events, "kill")["job"] == since.batch
    found.check_the_end(planned, since)


def test_the_pilot_whose_payload_ends_in_time_loses_nothing(site, pair, marks):
    """After Slurm has given its notice, which it does within half a minute of the drain, and well before the deadline."""
    found = pair(3000, 60)
    long, soon = found.runs()
    (marks / f"before.{soon.job}").write_text("40")
    until(lambda: found.losing(long)[0] > 40, "something to lose")
    events = vacate(site, marks, "--within=90s")
    assert names(events) == ["drain", "gone", "end"]
    assert (acted(events, "drain")["job"], acted(events, "drain")["cost"]) == (soon.batch, 0)
    planned = next(one for one in events if one["event"] == "plan")
    assert acted(events, "gone")["time"] - planned["time"] < 90
    found.server.wait_for("Done", soon.job, patience=PATIENCE_S)
    (marks / "end").touch()
    found.server.wait_for("Done", long.job, patience=PATIENCE_S)
    assert [found.server.get(f"/v1/jobs/{one.job}")["attempt"] for one in (long, soon)] == [1, 1]
    assert found.runs() == [long, soon]


def test_the_pilot_that_ends_in_time_is_drained(site, pair, marks):
    """It retires; its payload does not end in time, as was expected of it, and runs again."""
    found = pair(3000, 75)
    long, soon = found.runs()
    until(lambda: found.losing(long)[0] > 40, "something to lose")
    events = vacate(site, marks, "--within=2m")
    assert names(events) == ["drain", "gone", "end"]
    act = acted(events, "drain")
    assert (act["job"], act["cost"]) == (soon.batch, 0)
    assert acted(events, "gone")["time"] - act["time"] < 180
    found.check_the_end(long, soon)
