"""`lode vacate` as a whole: jobs that are directories and processes of this machine, its words and its exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.jobstatus.kits.holders import hold

from lodesman.site.jobstatus import reader, survey
from lodesman.site.jobstatus.__main__ import main as jobstatus
from lodesman.site.jobstatus.channel import Publication
from lodesman.site.jobstatus.sites.door import JobPlaces
from lodesman.site.jobstatus.survey import JobPart, read_here
from lodesman.site.jobstatus.vacate.candidates import Candidate
from lodesman.site.jobstatus.vacate_command import main
from lodesman.site.jobstatus.values import KEYS, Status
from lodesman.user.cli.root import main as lode

# A job that ends when it has read of a shutdown time, as a pilot does.
DRAINABLE = """
import os, pathlib, time
print("up", flush=True)
while not os.path.exists(os.environ["FEATURES"] + "/shutdowntime_job"):
    time.sleep(0.02)
"""


class Site:
    """Jobs that are directories of this machine."""

    def __init__(self, home: Path) -> None:
        self.home, self.now = home, int(time.time())
        self.started: list[subprocess.Popen[bytes]] = []
        (home / "status").mkdir()

    def add(self, job, kill, *, cores=4, age=0, ends=10_000, priority=0, hours=10):
        """A job that publishes `kill` core-seconds; None: it does not publish."""
        status, features = self.home / "status" / job, self.home / "features" / job
        status.mkdir()
        features.mkdir(parents=True)
        for key, value in (("allocated_cpu", cores), ("jobstart_secs", self.now - hours * 3600)):
            (features / key).write_text(f"{value}\n")
            (features / key).chmod(0o644)
        if kill is not None:
            publication = Publication(status)
            end = self.now + ends
            publication.publish(
                Status(0 if kill == 0 else cores, self.now, end, end, end, kill, 0, True, priority)
            )
            publication.close()
            for key in KEYS:
                os.utime(status / key, (self.now - age, self.now - age))

    def run(self, job, program="import time; print('up', flush=True); time.sleep(600)"):
        env = {
            **os.environ,
            "JOBSTATUS": f"{self.home}/status/{job}",
            "FEATURES": f"{self.home}/features/{job}",
        }
        process = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE)
        self.started.append(process)
        assert process.stdout.readline() == b"up\n"
        return process

    @property
    def words(self):
        parents = {"--jobstatus": "status", "--jobfeatures": "features"}
        return [
            "--backend=directories", *(f"{word}={self.home}/{name}/{{job}}" for word, name in parents.items()),
            f"--audit={self.home}/audit",
        ]  # fmt: skip

    def events(self):
        return [json.loads(line) for line in (self.home / "audit").read_text().splitlines()]


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.wait()
        process.stdout.close()


def asked(capsys, site, *words):
    code = main([*map(str, words), *site.words])
    return code, capsys.readouterr()


@pytest.mark.slow
def test_a_plan_for_people(site, capsys):
    site.add("young", 36_000, hours=1)
    site.add("cheap", 3600)
    site.add("keep", 7200, priority=5)
    site.add("big", 40_000)
    site.add("silent", None)
    code, said = asked(capsys, site, "--free", 8)
    lines = said.out.splitlines()
    assert code == 0
    assert lines[0] == "Vacate 2 jobs of 5: 8 cores, 3.00 core-hours lost."
    assert [line.split()[:2] for line in lines if line.startswith("  kill")] == [
        ["kill", "keep"],
        ["kill", "cheap"],
    ]
    assert "The youngest jobs first would lose" in said.out
    assert "of higher priority than one that stays" in said.out
    assert "Of the 5 jobs, 1 publishes nothing." in said.out
    assert said.err == "Nothing was done: with --apply it is.\n"
    assert not (site.home / "audit").exists()


@contextmanager
def locked(site, jobs):
    """Their users hold the locks on their used_CPU."""
    with ExitStack() as stack:
        for job in jobs:
            file = stack.enter_context((site.home / "status" / job / "used_CPU").open())
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [64, 4])
def test_jobs_that_keep_their_locks_cost_one_wait_together_and_are_named(site, capsys, monkeypatch, at_once):
    """Each cost 5 s, one after the other: who held a thousand kept an administrator from acting for 80 minutes."""
    monkeypatch.setattr(survey, "READER_WAIT_S", 2.0)
    monkeypatch.setattr(reader, "_AT_ONCE", at_once)
    for number in range(12):
        site.add(f"locked{number:02}", 50)
        site.add(f"open{number:02}", 3_600)
    with locked(site, [f"locked{number:02}" for number in range(12)]):
        begun = time.monotonic()
        code, said = asked(capsys, site, "--free", 4)
        took = time.monotonic() - begun
    assert code == 0
    assert 1.0 < took < 20.0, "the whole wait once: one after the other they would be 24 s"
    assert "Of the 24 jobs, 12 publish nothing." in said.out
    names = ", ".join(f"locked{number:02}" for number in range(12))
    why = "Charged as if they published nothing, each since its numbers cannot be read (locked:used_CPU)"
    assert said.err.splitlines()[0] == f"vacate: {why}: {names}."


@pytest.mark.slow
def test_a_lock_that_is_let_go_in_time_is_waited_for_though_others_are_not(site, capsys, monkeypatch):
    monkeypatch.setattr(reader, "_AT_ONCE", 4)
    for number in range(6):
        site.add(f"locked{number}", 50)
    with locked(site, [f"locked{number}" for number in range(5)]), ExitStack() as stack:
        stack.enter_context(
            hold(
                site.home / "status/locked5/used_CPU", kind="flock", mode="exclusive", then="unlock-after-1-s"
            )
        )
        _, said = asked(capsys, site, "--free", 4)
    assert "(locked:used_CPU): locked0, locked1, locked2, locked3, locked4.\n" in said.err


def test_a_job_that_kept_its_lock_for_the_whole_time_is_not_waited_for_again(site, monkeypatch):
    """--apply reads each job again before it goes."""
    monkeypatch.setattr(survey, "READER_WAIT_S", 0.5)
    site.add("a", 50)
    site.add("b", 50)
    waits, take = [], survey.take_snapshots
    monkeypatch.setattr(
        survey,
        "take_snapshots",
        lambda asked, **more: waits.append(more["limit_s"]) or take(asked, **more),
    )
    look_at = read_here(JobPlaces(f"{site.home}/status/{{job}}"))
    a, b = (JobPart(Candidate(job, "ada", (), 4, 0.0), "", 4) for job in "ab")
    with locked(site, ["a"]):
        faults = [[look.fault for look in look_at(parts, time.time())] for parts in ([a, b], [a], [a, b])]
    assert faults == [["locked:used_CPU", None], ["locked:used_CPU"], ["locked:used_CPU", None]]
    assert [look.fault for look in look_at([a], time.time())] == [None]
    look_at([a], time.time())
    assert waits == [0.5, 0.0, 0.5, 0.0, 0.5]


def test_the_same_plan_for_programs(site, capsys):
    site.add("a", 50, ends=600)
    site.add("b", 40_000, ends=600)
    code, said = asked(capsys, site, "--free", 8, "--within", "1h", "--json")
    plan = json.loads(said.out)
    assert code == 0
    assert (plan["feasible"], plan["cost"], plan["missing"], plan["candidates"]) == (True, 0, None, 2)
    one, other = plan["victims"]
    assert {one["job"], other["job"]} == {"a", "b"}
    assert (one["action"], one["cores"], one["cost"]) == ("drain", 4, 0)
    assert one["frees_expected"] <= one["frees_max"] <= 600
    assert one["commands"][0].startswith("echo ")
    assert one["age"] < 60


@pytest.mark.slow
def test_exit_codes(site, capsys):
    site.add("a", 3600, age=10)
    assert asked(capsys, site, "--free", 4)[0] == 0
    code, said = asked(capsys, site, "--free", 5)
    assert code == 3
    assert said.out == "Not enough: of 1 job that could go, 1 core would still be missing.\n"
    code, said = asked(capsys, site, "--free", 4, "--max-waste", 0.5)
    assert code == 3
    assert "more than --max-waste allows" in said.out
    assert asked(capsys, site, "--free", 4, "--exclude", "a")[0] == 3
    for key in KEYS:
        os.utime(site.home / "status" / "a" / key, (site.now - 4000, site.now - 4000))
    code, said = asked(capsys, site, "--free", 4)
    assert code == 4
    assert "older than an hour" in said.out


def test_a_batch_system_that_does_not_answer(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for backend, program in (("slurm", "squeue"), ("gridengine", "qstat"), ("htcondor", "condor_q")):
        assert main(["--free", "1", "--backend", backend]) == 1
        assert capsys.readouterr().err == f"vacate: {program} could not be run: No such file or directory.\n"


@pytest.mark.parametrize(
    "words",
    [
        "--backend slurm", "--free 4", "--free 0 --backend slurm", "--free 4 --backend pbs",
        "--free 4 --backend slurm --within soon", "--free 4 --backend slurm --scope hosts=",
        "--free 4 --backend slurm --confidence max=3", "--free 4 --backend slurm --confidence margin=x",
        "--free 4 --backend slurm --memory 4X", "--free 4 --backend slurm --silent-factor -1",
        "--free 4 --backend slurm --priority strict --gpus 1",
    ],
)  # fmt: skip
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("--help\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--backend slurm", "say --free N and --backend NAME."),
        ("--free 0 --backend slurm", "--free: '0' is not a whole number of 1 or more."),
        ("--free", "--free: its value is missing."),
        ("--free 4 --backend pbs", "--backend: 'pbs' is none of slurm, htcondor, gridengine, directories."),
        ("--within soon", "--within: 'soon' is not a time: write 90s, 30m, 4h or 1d."),
        ("--fre=4", "--fre=4: there is no such option or argument."),
        ("--fre 4 --backend slurm", "--fre: there is no such option or argument."),
        ("--free 4 -x 4", "-x: there is no such option or argument."),
        ("--json=3", "--json takes no value."),
        ("--free 4 simulation", "'simulation' is not known here; only simulate is."),
        ("simulate", "--swf is missing."),
    ],
)
def test_what_is_wrong_is_one_plain_sentence(words, says, capsys):
    with pytest.raises(SystemExit):
        main(words.split(), "vacate")
    prog, said = capsys.readouterr().err.rstrip().split(": ", 1)
    assert said == f"{says} See: {prog} --help"


def test_lode_and_the_program_that_travels_have_it_too(site, capsys):
    site.add("a", 3600)
    words = ["--free", "4", *site.words]
    assert lode(["vacate", *words]) == 0
    said = capsys.readouterr().out
    assert jobstatus(["vacate", *words]) == 0
    assert capsys.readouterr().out.split("kill")[0] == said.split("kill")[0]


@pytest.mark.slow
def test_apply_kills_the_cheaper_of_two_jobs(site, capsys):
    site.add("cheap", 100)
    site.add("dear", 100_000)
    cheap, dear = site.run("cheap"), site.run("dear")
    # The directories stay in this world, so that the job is not gone from the list: take it away when the process ends.
    code = subprocess.Popen(
        [sys.executable, "-m", "lodesman.site.jobstatus", "vacate", "--free=4", *site.words, "--apply"],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert cheap.wait(60) == -15
    (site.home / "status" / "cheap").rename(site.home / "gone")
    assert code.wait(60) == 0
    code.stdout.close()
    assert dear.poll() is None
    assert [one["event"] for one in site.events()] == ["plan", "kill", "gone", "end"]


@pytest.mark.slow
def test_apply_drains_a_job_by_its_features(site):
    site.add("a", 100_000, ends=20)
    drained = site.run("a", DRAINABLE)
    code = subprocess.Popen(
        [sys.executable, "-m", "lodesman.site.jobstatus", "vacate", "--free=4", "--within=60s", *site.words, "--apply"],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert drained.wait(60) == 0
    (site.home / "status" / "a").rename(site.home / "gone")
    assert code.wait(60) == 0
    code.stdout.close()
    text = (site.home / "features" / "a" / "shutdowntime_job").read_text()
    assert site.now + 60 <= int(text) <= time.time() + 61
    assert [one["event"] for one in site.events()] == ["plan", "drain", "gone", "end"]


def test_nothing_is_done_without_an_audit(site, capsys):
    site.add("a", 100)
    running = site.run("a")
    code = main(["--free=4", *site.words[:-1], f"--audit={site.home}/none/audit", "--apply"])
    assert code == 1
    assert "No such file" in capsys.readouterr().err
    assert running.poll() is None
