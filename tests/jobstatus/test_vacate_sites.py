"""Doors to batch systems: recorded output, odd output, and what they would do."""

from __future__ import annotations

import json
import math
import os
import pwd
import random
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lodesman.site.jobstatus.sites import gridengine, htcondor, slurm
from lodesman.site.jobstatus.sites.directories import DirectoriesDoor, processes_of
from lodesman.site.jobstatus.sites.door import Act, JobPlaces, SiteFault, answer, perform
from lodesman.site.jobstatus.vacate.candidates import Candidate

SCRIPTS = Path(__file__).parents[2] / "examples" / "jobstatus"
DATA = Path(__file__).parents[1] / "data" / "jobstatus"
MARK = "~0123456789abcdef~"
NOW = 1_795_738_679.0
JOB = Candidate("17", "ada", ("n1",), 4, NOW - 100, uid=1000, batch_ends=NOW + 7200)


def recorded(name):
    return (DATA / name).read_text(encoding="utf-8")


# --- what is read ---------------------------------------------------------------------------------------------------------


def test_squeue_as_slurm_22_printed_it():
    three, one = slurm.read_squeue(recorded("squeue.txt"), MARK, NOW)
    assert (three.job, one.job) == ("3", "1")
    assert (one.owner, one.uid, one.nodes, one.cores) == ("root", 0, ("vm",), 4)
    assert (one.started, one.batch_ends) == (1_795_738_367, 1_795_741_968)
    # Its end was put off for the second that it was suspended.
    assert (three.suspended_seconds, one.suspended_seconds) == (0, 1)


def record(**given):
    fields = {
        "job": "9", "state": "RUNNING", "uid": "1000", "user": "ada", "cpus": "8", "nodes": "n[1-2]", "start": "1795738367",
        "end": "N/A", "used": "1-02:03:04", "tres": "cpu=8,mem=16G,node=2,billing=8,gres/gpu=2,gres/gpu:a100=2",
        "task": "9", **given,
    }  # fmt: skip
    title = recorded("squeue.txt").splitlines(keepends=True)[0]
    return title + "".join(value + MARK for value in fields.values()) + "\n"


def test_squeue_of_a_wide_job_with_gpus():
    (one,) = slurm.read_squeue(record(), MARK, NOW)
    assert (one.nodes, one.cores, one.memory_mb, one.gpus) == (("n1", "n2"), 8, 16_384, 2)
    assert one.batch_ends is None


def test_a_task_of_an_array_goes_alone():
    """The last task of an array has the array's number."""
    (one,) = slurm.read_squeue(record(task="9_3"), MARK, NOW)
    assert one.job == "9"
    assert lines(slurm.SlurmDoor(JobPlaces()).kill(one)) == ["scancel 9_3"]
    assert lines(slurm.SlurmDoor(JobPlaces(requeue=True)).kill(one)) == ["scontrol requeue 9_3"]
    assert "JobId=9_3" in lines(slurm.SlurmDoor(JobPlaces()).drain(one, NOW + 600, NOW))[0]


@pytest.mark.parametrize(
    "given",
    [
        {"state": "SUSPENDED"},
        {"start": "N/A"},
        {"job": "x"},
        {"cpus": "", "tres": ""},
    ],
)
def test_squeue_leaves_out_what_holds_no_cores_or_is_not_known(given):
    assert slurm.read_squeue(record(**given), MARK, NOW) == []


CONFIG = """Configuration data as of 2026-11-30T00:00:00
EpilogMsgTime           = 2000 usec
%s
KillWait                = 30 sec
UnkillableStepTimeout   = 60 sec
"""


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("Epilog                  = (null)\nPrologEpilogTimeout     = 65534", 30),
        ("Epilog                  = (null)\nPrologEpilogTimeout     = 120", 30),
        ("Epilog[0]               = /etc/slurm/epilog\nPrologEpilogTimeout     = 120", 150),
        ("Epilog                  = /e\nEpilogTimeout           = 90 sec\nPrologTimeout = 5", 120),
        ("Epilog                  = /e\nEpilogTimeout           = 65534", 30),
        ("EpilogSlurmctld         = /e\nPrologEpilogTimeout     = 120", 30),
    ],
)
def test_how_long_slurm_lets_a_killed_job_keep_its_cores(lines, seconds):
    assert slurm.read_kill_wait(CONFIG % lines) == seconds
    assert slurm.read_kill_wait("slurm_load_ctl_conf error") == 0


@pytest.mark.parametrize("given", [{}, {"cpus": "", "tres": "", "start": "N/A", "nodes": "n[1-"}])
def test_a_job_that_completes_holds_its_cores_whatever_else_is_known_of_it(given):
    (one,) = slurm.read_squeue(record(state="COMPLETING", **given), MARK, NOW)
    assert (one.job, one.leaving) == ("9", True)
    assert "--states=RUNNING,COMPLETING" in slurm.squeue_words(MARK)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]), ("n[1-3]", ["n1", "n2", "n3"]), ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]), ("(null)", []), ("", []),
    ],
)  # fmt: skip
def test_lists_of_nodes(text, nodes):
    assert list(slurm.nodes_of(text)) == nodes


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n[1-999999999]"])
def test_lists_of_nodes_that_are_none(text):
    with pytest.raises(SiteFault):
        list(slurm.nodes_of(text))


def test_qstat_as_grid_engine_printed_it():
    whole, first, second = gridengine.read_qstat(recorded("qstat.xml"))
    assert (whole.job, first.job, second.job) == ("1", "2.1", "2.2")
    assert (whole.cores, whole.nodes, first.cores) == (3, ("vm",), 1)
    assert whole.batch_ends == whole.started + 3600
    assert (first.batch_ends, first.memory_mb, whole.memory_mb) == (None, 500, 0)


def test_qstat_of_a_job_on_two_hosts_that_is_being_deleted_or_waits():
    text = recorded("qstat.xml")
    wide = text.replace("all.q@vm", "all.q@vm2", 1)
    assert gridengine.read_qstat(wide)[0].nodes == ("vm2", "vm")
    first, rest = text[: (at := text.index("<JB_job_number>2"))], text[at:]
    for state in ("dr", "dt", "dRr"):
        deleted = first.replace("<state>r</state>", f"<state>{state}</state>") + rest
        found = {one.job: one.leaving for one in gridengine.read_qstat(deleted)}
        assert found == {"1": True, "2.1": False, "2.2": False}, "its slots are taken until it has ended"
    unknown = deleted.replace("<JAT_start_time>", "<JAT_start_time>x", 1).replace("<slots>", "<slots>x", 1)
    assert gridengine.read_qstat(unknown)[0].leaving
    waits = first + rest.replace("<state>r</state>", "<state>qw</state>")
    assert [one.job for one in gridengine.read_qstat(waits)] == ["1"]


def test_condor_q_as_htcondor_printed_it():
    first, second = htcondor.read_condor_q(recorded("condor_q.json"))
    assert (first.job, second.job) == ("1.0", "1.1")
    assert (first.owner, first.nodes, first.cores, first.memory_mb, first.gpus) == (
        "lode",
        ("vm",),
        1,
        128,
        0,
    )
    assert (first.started, first.batch_ends) == (1_795_738_656, None)
    assert htcondor.read_condor_q("") == []


def test_condor_q_with_expressions_and_limits():
    ad = {
        "ClusterId": 5, "ProcId": 2, "JobStatus": 7, "RequestCpus": 4, "CpusProvisioned": "/Expr(a)/",
        "JobCurrentStartDate": 100, "AllowedJobDuration": 60, "CumulativeSuspensionTime": 7,
    }  # fmt: skip
    text = json.dumps([ad, {"ClusterId": 6}])
    (one,) = htcondor.read_condor_q(text)
    assert (one.job, one.cores, one.batch_ends, one.suspended_seconds, one.owner, one.nodes) == (
        "5.2",
        4,
        160,
        7,
        "",
        (),
    )


@pytest.mark.parametrize(("status", "leaving"), [(2, False), (7, False), (3, True), (5, True), (6, True)])
def test_a_job_of_htcondor_that_has_a_slot_and_does_not_run_is_leaving(status, leaving):
    ad = {
        "ClusterId": 5,
        "ProcId": 2,
        "JobStatus": status,
        "RemoteHost": "slot1_1@n1",
        "JobCurrentStartDate": 9,
        "RequestCpus": 1,
    }
    (one,) = htcondor.read_condor_q(json.dumps([ad]))
    assert (one.job, one.leaving) == ("5.2", leaving)
    (one,) = htcondor.read_condor_q(json.dumps([{**ad, "JobCurrentStartDate": "/Expr(x)/", "JobStatus": 3}]))
    assert one.leaving
    del ad["RemoteHost"]
    assert [one.leaving for one in htcondor.read_condor_q(json.dumps([ad]))] == ([] if leaving else [False])
    assert "RemoteHost =!= UNDEFINED" in htcondor.CONDOR_Q[4]


READERS = {
    "squeue.txt": lambda text: slurm.read_squeue(text, MARK, NOW),
    "qstat.xml": gridengine.read_qstat,
    "condor_q.json": htcondor.read_condor_q,
}


@pytest.mark.parametrize("name", READERS)
def test_a_list_that_is_cut_off_is_not_believed(name):
    text = recorded(name).rstrip("\n")
    for end in range(1, len(text), 7):
        with pytest.raises(SiteFault):
            READERS[name](text[:end])


@pytest.mark.parametrize("name", READERS)
def test_odd_bytes_raise_nothing_else(name):
    rng = random.Random(name)
    letters = 'ab09,:-[]{}"~<>&/=\n \x1b\x00é'
    for _ in range(300):
        text = list(recorded(name))
        for _ in range(rng.randint(1, 6)):
            text[rng.randrange(len(text))] = rng.choice(letters)
        try:
            for one in READERS[name]("".join(text)):
                assert one.cores >= 0
        except SiteFault as fault:
            assert str(fault).isprintable()  # noqa: PT017 - it need not be raised


# --- what is done ---------------------------------------------------------------------------------------------------------


def lines(acts):
    return [str(act) for act in acts]


def test_native_commands():
    plain, again = JobPlaces(), JobPlaces(requeue=True)
    assert lines(slurm.SlurmDoor(plain).kill(JOB)) == ["scancel 17"]
    assert lines(slurm.SlurmDoor(again).kill(JOB)) == ["scontrol requeue 17"]
    assert lines(gridengine.GridEngineDoor(plain).kill(JOB)) == ["qdel 17"]
    assert lines(gridengine.GridEngineDoor(plain).kill(replace(JOB, job="17.3"))) == ["qdel 17 -t 3"]
    assert lines(gridengine.GridEngineDoor(again).kill(replace(JOB, job="17.3"))) == ["qmod -rj 17.3"]
    assert lines(htcondor.CondorDoor(plain).kill(replace(JOB, job="5.0"))) == ["condor_vacate_job 5.0"]


def test_drains_bring_the_end_nearer_and_tell_the_job(monkeypatch, tmp_path):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    here = JobPlaces(jobfeatures=f"{tmp_path}/{{job}}")
    assert not htcondor.CondorDoor(here).can_drain(JOB)
    (tmp_path / "17").mkdir()
    file = f"echo {NOW + 600:.0f} > {tmp_path}/17/shutdowntime_job"
    assert lines(slurm.SlurmDoor(here).drain(JOB, NOW + 600, NOW)) == [
        file, "scontrol update JobId=17 EndTime=2026-11-27T00:27:59",
    ]  # fmt: skip
    assert lines(slurm.SlurmDoor(JobPlaces()).drain(JOB, NOW + 9000, NOW)) == []
    for door in (gridengine.GridEngineDoor, htcondor.CondorDoor):
        assert lines(door(here).drain(JOB, NOW + 600, NOW)) == [file]
        assert not door(JobPlaces()).can_drain(JOB)
        assert door(here).can_drain(JOB)


def test_files_of_other_machines_are_written_there(tmp_path):
    there = JobPlaces(jobfeatures=f"{tmp_path}/{{node}}/{{job}}", write_with="sh -c")
    wide = replace(JOB, nodes=("n1", "n2"))
    acts = gridengine.GridEngineDoor(there).drain(wide, NOW + 600.5, NOW)
    for node in wide.nodes:
        (tmp_path / node / "17").mkdir(parents=True)
    for act in acts:
        perform(act)
    texts = [(tmp_path / node / "17" / "shutdowntime_job").read_text() for node in wide.nodes]
    assert texts == [f"{NOW + 601:.0f}\n"] * 2
    (act,) = htcondor.CondorDoor(replace(there, write_with="ssh -n {node}")).drain(JOB, NOW, NOW)
    assert act.words[:3] == ("ssh", "-n", "n1")


@pytest.mark.parametrize("where", ["", "sh -c"])
def test_a_link_in_the_job_features_of_a_job_changes_no_other_file(tmp_path, monkeypatch, where):
    """The folder may be the user's: root would change the mode, or the content, of any file of the machine."""
    features, precious = tmp_path / "17", tmp_path / "precious"
    features.mkdir()
    precious.write_text("precious")
    precious.chmod(0o600)
    make = tempfile.mkstemp

    def watched(**words):
        """The user replaces each new file by a link as soon as it is there."""
        number, name = make(**words)
        Path(name).unlink()
        Path(name).symlink_to(precious)
        return number, name

    monkeypatch.setattr(tempfile, "mkstemp", watched)
    for name in ("shutdowntime_job", "shutdowntime_job.new"):
        (features / name).symlink_to(precious)
    there = JobPlaces(jobfeatures=f"{tmp_path}/{{job}}", write_with=where)
    for act in gridengine.GridEngineDoor(there).drain(JOB, NOW + 600, NOW):
        perform(act)
    assert (precious.read_text(), precious.stat().st_mode & 0o777) == ("precious", 0o600)
    if where:
        assert (features / "shutdowntime_job").read_text() == f"{NOW + 600:.0f}\n"
        assert (features / "shutdowntime_job").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("7200\n", True),
        ("60\n", False),
        ("", False),
        ("08\n", False),
        ("a[$(touch odd)]", False),
        ("9" * 12, False),
    ],
)
def test_a_drain_on_another_machine_keeps_the_grace_of_its_job(tmp_path, monkeypatch, text, is_kept):
    monkeypatch.chdir(tmp_path)
    there = JobPlaces(jobfeatures=f"{tmp_path}/{{job}}", write_with="sh -c")
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "grace_secs_job").write_text(text)
    now = time.time()
    for act in gridengine.GridEngineDoor(there).drain(JOB, now + 600, now):
        perform(act)
    found = int((tmp_path / "17" / "shutdowntime_job").read_text())
    if is_kept:
        assert now + 7199 <= found <= time.time() + 7201
    else:
        assert found == math.ceil(now + 600)
    assert not (tmp_path / "odd").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_grace_that_the_job_wrote_is_none(tmp_path):
    there = JobPlaces(jobfeatures=f"{tmp_path}/{{job}}", write_with="sh -c")
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "grace_secs_job").write_text("7200")
    os.chown(tmp_path / "17" / "grace_secs_job", 12345, -1)
    for act in gridengine.GridEngineDoor(there).drain(JOB, NOW, NOW):
        perform(act)
    assert int((tmp_path / "17" / "shutdowntime_job").read_text()) == NOW


@pytest.mark.parametrize(
    ("system", "mode"), [("slurm", ""), ("gridengine", ""), ("slurm", "0755"), ("gridengine", "0750")]
)
def test_the_prologs_let_no_other_account_lock_what_a_job_writes(tmp_path, system, mode):
    """Nobody can read, and so lock, used_CPU but the job's account and root; unless the site says so."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    env = {
        **os.environ, "JOBSTATUS_PARENT": str(tmp_path), "SLURM_JOB_ID": "17", "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_CPUS_PER_NODE": "4", "JOB_ID": "17", "NSLOTS": "4", **({"JOBSTATUS_MODE": mode} if mode else {}),
    }  # fmt: skip
    subprocess.run([SCRIPTS / system / "prolog", me], env=env, check=True)
    assert (tmp_path / "jobstatus" / "17").stat().st_mode & 0o777 == int(mode or "0700", 8)
    features = tmp_path / "jobfeatures" / "17"
    assert features.stat().st_mode & 0o777 == 0o755
    assert [(features / name).read_text() for name in ("allocated_cpu", "allocated_CPU")] == ["4\n"] * 2


def test_names_cannot_leave_the_folder_or_the_line():
    odd = replace(JOB, job="../7", owner="a b;$(c)")
    assert JobPlaces("/js/{job}/{user}/{node}").status_of(odd, "n1") == "/js/_._7/a_b___c_/n1"


def test_paths_cannot_leave_a_line_for_the_shell():
    assert str(Act(path="/x y/$(a)", text="5")) == "echo 5 > '/x y/$(a)'"


def test_commands_that_fail_hang_or_are_not_there():
    with pytest.raises(SiteFault, match="ended with 3 and said: no"):
        answer(("sh", "-c", "echo no >&2; exit 3"))
    with pytest.raises(SiteFault, match="did not answer"):
        answer(("sleep", "60"), seconds=0.05)
    with pytest.raises(SiteFault, match="could not be run"):
        answer(("/nowhere/squeue",))
    assert answer(("sh", "-c", "echo yes; exit 3"), most=3) == "yes\n"


# --- directories alone ----------------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path):
    """A door for jobs of this user, and a function that makes one."""
    places = JobPlaces(f"{tmp_path}/status/{{job}}", f"{tmp_path}/features/{{job}}")

    def make(name, **values):
        for folder in ("status", "features"):
            (tmp_path / folder / name).mkdir(parents=True)
        for key, value in {
            "allocated_cpu": 4,
            "jobstart_secs": 1000,
            "wall_limit_secs": 500,
            **values,
        }.items():
            if value is not None:
                file = tmp_path / "features" / name / key
                file.write_text(f"{value}\n")
                file.chmod(0o644)
        return tmp_path / "status" / name

    return DirectoriesDoor(places, "here"), make


def test_directories_are_jobs_if_the_site_says_their_cores_and_start(local):
    door, make = local
    make("a")
    make("b", allocated_cpu=None, allocated_CPU=2, wall_limit_secs=None)
    make("no-start", jobstart_secs=None)
    make("no-cores", allocated_cpu="many")
    (make("x").parent / "file").write_text("")
    make(".hidden")
    found = {one.job: one for one in door.running()}
    assert set(found) == {"a", "b", "x"}
    assert (found["a"].cores, found["a"].uid, found["a"].started, found["a"].batch_ends) == (
        4,
        os.getuid(),
        1000,
        1500,
    )
    assert (found["b"].cores, found["b"].batch_ends, found["b"].nodes) == (2, None, ("here",))


def test_what_others_could_have_written_counts_for_nothing(local, tmp_path):
    door, make = local
    make("a")
    file = tmp_path / "features" / "a" / "allocated_cpu"
    file.chmod(0o666)
    assert door.running() == []
    file.unlink()
    file.symlink_to(tmp_path / "features" / "a" / "jobstart_secs")
    assert door.running() == []
    file.unlink()
    os.mkfifo(file)
    assert door.running() == []


def test_a_job_of_directories_is_asked_by_a_file_that_is_replaced_whole(local, tmp_path):
    door, make = local
    make("a", grace_secs_job=300)
    (one,) = door.running()
    (act,) = door.drain(one, 2060.0, 2000.0)
    assert act.text == "2300"
    perform(act)
    file = tmp_path / "features" / "a" / "shutdowntime_job"
    assert file.read_text() == "2300\n"
    assert file.stat().st_mode & 0o777 == 0o644
    (act,) = door.drain(one, 2600.2, 2000.0)
    perform(act)
    assert file.read_text() == "2601\n"
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(SiteFault, match="could not be written"):
        perform(Act(path=str(tmp_path / "none" / "file"), text="1"))


def test_a_job_of_directories_ends_with_its_outermost_process(local):
    door, make = local
    directory = make("a")
    (one,) = door.running()
    assert door.kill(one) == []
    words = ["sh", "-c", "sleep 600 & echo up; wait"]
    with subprocess.Popen(
        words, env={**os.environ, "JOBSTATUS": str(directory)}, stdout=subprocess.PIPE
    ) as job:
        try:
            job.stdout.readline()
            assert processes_of(os.getuid(), str(directory)) == [job.pid]
            assert processes_of(os.getuid() + 1, str(directory)) == []
            (act,) = door.kill(one)
            assert str(act) == f"kill -TERM {job.pid}"
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            perform(act)
            assert job.wait(20) == -15
        finally:
            job.kill()
            subprocess.run(["kill", *children], check=False)
    with pytest.raises(SiteFault, match="PARENT"):
        DirectoriesDoor(JobPlaces("/run/{job}/x"), "here").running()
