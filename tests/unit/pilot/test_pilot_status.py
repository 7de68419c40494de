"""The writer of $JOBSTATUS: what it publishes of a roster, by a clock of its own, into a real directory."""

from __future__ import annotations

import fcntl
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lodesman.pilot import jobstatus as writer_module
from lodesman.pilot import roster as roster_module
from lodesman.pilot.decisions import SERVER, Slot, Stop
from lodesman.pilot.jobstatus import StatusWriter, allocated_cores, batch_end, end_by_slurm
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.roster import Roster
from lodesman.pilot.slots import Promises
from lodesman.site.jobstatus import channel


class Ghost:
    """A payload without a process; `end` ends it."""

    def __init__(self, job, bench):
        self.job = job
        self.node_fault = self.pilot_fault = ""
        self.started_at = bench.pilot.clock()
        self.commit = None
        self.uncommitted = 0.0
        self.leaves_nothing, self.next = False, None
        self._go = threading.Event()
        self._gone = threading.Event()

    def expected_end(self, now):
        return now + self.job.expected_seconds if self.job.expected_seconds else None

    def committed(self):
        return self.commit

    def run(self, on_free, on_done):
        assert self._go.wait(60)
        on_free(self)
        on_done(self)
        self._gone.set()

    def end(self):
        self._go.set()
        assert self._gone.wait(60)


@pytest.fixture
def outbox():
    return SimpleNamespace(kept=[], reports=[])


@pytest.fixture
def world(make_context, tmp_path, monkeypatch, outbox, clock):
    """A writer with a roster of ghosts; `directory` is $JOBSTATUS."""
    directory = tmp_path / "status"
    directory.mkdir(mode=0o755)
    ghosts: list[Ghost] = []
    monkeypatch.setattr(
        roster_module, "PayloadRun", lambda job, bench: ghosts.append(Ghost(job, bench)) or ghosts[-1]
    )
    clock.now = 1_000_000.0

    def make(environment=None, **options):
        environment = {"JOBSTATUS": str(directory)} if environment is None else environment
        context = make_context(environment=environment, **options)
        outbox.keys, outbox.put = lambda: outbox.kept, outbox.reports.append
        outbox.count, outbox.held_up = lambda: len(outbox.kept), lambda: 0
        bench = SimpleNamespace(pilot=context, outbox=outbox)
        promises = Promises()
        slot = Slot(cores=4, memory_mb=0, jobs_at_once=4)
        roster = Roster(slot, bench, on_change=lambda _: None, promises=promises)
        writer = StatusWriter(context, roster, promises)
        return SimpleNamespace(writer=writer, roster=roster, ghosts=ghosts, directory=directory)

    yield make
    for ghost in ghosts:
        ghost.end()


def status(directory):
    found = channel.read(directory)
    return {key: content.decode().strip() for key, content in found.contents.items()}


def test_what_runs_is_published(world, make_job, clock):
    one = world()
    one.writer.step()
    assert status(one.directory) | {"used_CPU": "0", "can_postpone_last_job": "True"} == status(one.directory)
    clock.now += 10
    one.roster.admit(
        [
            make_job(1, cores=2, expected_seconds=600, limit_wall_seconds=1000, vacate_priority=3),
            make_job(2, expected_seconds=100, limit_wall_seconds=200, vacate_priority=-5),
        ]
    )
    one.writer.step()
    assert status(one.directory) == {
        "used_CPU": "3", "last_job_start": "1000010", "first_exp_job_end": "1000110", "last_exp_job_end": "1000610",
        # The limit of wall time, the time of grace, and a second until it is noticed.
        "last_max_job_end": "1001021", "add_uncom_time": "0", "add_final_exp_waste": str(4 * 500 - 2 * 500),
        "can_postpone_last_job": "True", "priority_factor": "3",
    }  # fmt: skip


def test_a_commit_lessens_what_would_be_lost(world, make_job, clock):
    one = world()
    one.roster.admit([make_job(1, cores=2, expected_seconds=600), make_job(2, expected_seconds=600)])
    one.writer.step()
    clock.now += 100
    one.ghosts[0].commit = clock.now - 10
    assert 4 <= one.writer.step() <= 6
    found = status(one.directory)
    assert (found["last_job_start"], found["add_uncom_time"]) == ("1000090", "90")


def test_output_that_is_not_handed_in_is_pending(world, make_job, clock, outbox):
    one = world()
    one.roster.admit([make_job(1)])
    one.ghosts[0].uncommitted = 500.4
    outbox.kept = [AttemptKey(1, 1)]
    one.ghosts[0].end()
    one.writer.step()
    assert status(one.directory)["add_uncom_time"] == "501"
    outbox.kept = []
    clock.now += 10
    one.writer.step()
    assert status(one.directory)["add_uncom_time"] == "0"


def test_until_it_has_started_no_limit_of_its_own_counts(world, make_job, clock):
    one = world()
    one.roster.admit([make_job(1, expected_seconds=50, limit_wall_seconds=60)])
    one.ghosts[0].started_at = None
    one.writer.step()
    assert "last_max_job_end" not in status(one.directory)
    one.roster.resize(replace(one.roster.slot, ends=clock.now + 30))
    clock.now += 5
    one.writer.step()
    assert status(one.directory)["last_max_job_end"] == "1000030"


def test_while_it_drains_nothing_starts_that_ends_after_the_promise(world, make_job, outbox, clock):
    one = world()
    one.roster.admit([make_job(1, cores=2, expected_seconds=100, limit_wall_seconds=200)])
    one.writer.step()
    clock.now += 10
    one.roster.drain(SERVER)
    one.writer.step()
    assert status(one.directory)["can_postpone_last_job"] == "False"
    one.roster.admit([make_job(2, limit_wall_seconds=50), make_job(3, limit_wall_seconds=300), make_job(4)])
    assert [ghost.job.key.id for ghost in one.ghosts] == [1, 2]
    assert [(report.key.id, report.state) for report in outbox.reports] == [(3, "Released"), (4, "Released")]
    assert one.roster.load().backlog == 0


def test_after_the_return_to_true_it_waits_for_the_hold(world, make_job, clock):
    one = world()
    one.roster.admit([make_job(1, cores=2, expected_seconds=5000, limit_wall_seconds=9000)])
    one.writer.step()
    clock.now += 10
    one.roster.drain(SERVER)
    one.writer.step()
    before = status(one.directory)
    clock.now += 10
    one.roster.drain(SERVER, holds=False)
    load = one.roster.load()
    assert (load.held, load.draining, one.roster.next_claim(60.0)) == (True, False, None)
    one.roster.admit([make_job(2)])
    one.writer.step()
    assert status(one.directory) == {**before, "can_postpone_last_job": "True"}
    clock.now += 599
    one.roster.drain(SERVER, holds=False)
    assert one.roster.load().backlog == 1
    clock.now += 2
    one.writer.step()
    one.roster.drain(SERVER, holds=False)
    assert not one.roster.load().held
    assert [ghost.job.key.id for ghost in one.ghosts] == [1, 2]


def test_a_promise_binds_before_it_is_on_disk(world, make_job, clock, monkeypatch):
    """While the files are written a payload that would break the promise does not start."""
    one = world()
    one.roster.admit([make_job(1, cores=2, expected_seconds=100, limit_wall_seconds=200)])
    one.writer.step()
    clock.now += 10
    publish, started = channel.Publication.publish, []

    def late(self, what):
        one.roster.admit([make_job(2)])
        started.append(len(one.ghosts))
        return publish(self, what)

    monkeypatch.setattr(writer_module.Publication, "publish", late)
    one.roster.drain(SERVER)
    one.writer.step()
    assert started == [1]


def test_a_pilot_that_is_asked_to_end_says_that_nothing_follows(world, make_job, clock):
    one = world()
    one.roster.admit([make_job(1, expected_seconds=100)])
    one.writer.step()
    clock.now += 10
    one.ghosts[0].stop = lambda *_, **__: None
    one.roster.stop_all(Stop("pilot-shutdown", "asked"), grace_s=10.0)
    one.writer.step()
    assert status(one.directory)["can_postpone_last_job"] == "False"


@pytest.mark.slow
def test_an_hour_costs_little(world, make_job, clock):
    """Eight payloads of ten minutes at a time: at most 0.1 % of a core."""
    one = world()
    one.roster.resize(replace(one.roster.slot, cores=8, jobs_at_once=8))
    due = {number: clock.now + 75 * number for number in range(8)}
    latest: dict[int, Ghost] = {}
    began, count, end = time.process_time(), 0, clock.now + 3600
    while clock.now < end:
        for place in [place for place, at in due.items() if clock.now >= at]:
            if place in latest:
                latest[place].end()
            count += 1
            one.roster.admit([make_job(count, expected_seconds=600, limit_wall_seconds=900)])
            latest[place], due[place] = one.ghosts[-1], due[place] + 600
        clock.now += one.writer.step()
    assert count >= 40
    assert time.process_time() - began < 3.6


def test_leaving_publishes_an_idle_pilot(world, make_job):
    one = world()
    one.roster.admit([make_job(1, expected_seconds=100)])
    one.writer.start()
    one.writer.leave()
    found = status(one.directory)
    assert (found["used_CPU"], found["can_postpone_last_job"]) == ("0", "False")
    assert not one.writer._thread.is_alive()


def test_a_pilot_of_its_own_directory(world, tmp_path):
    one = world(environment={}, jobstatus_directory="site")
    directory = tmp_path / "site" / "s1"
    one.writer.step()
    assert status(directory)["used_CPU"] == "0"
    assert directory.stat().st_mode & 0o777 == 0o700
    one.writer.leave()
    assert not directory.exists()


@pytest.mark.parametrize("named", ["", "status", "/does/not/exist", "/etc/passwd"])
def test_without_a_directory_nothing_is_written(world, tmp_path, named):
    one = world(environment={"JOBSTATUS": named})
    one.writer.start()
    assert one.writer._thread is None
    one.writer.leave()
    assert list((tmp_path / "status").iterdir()) == []


def test_a_directory_of_others_is_not_used(world, tmp_path, lines):
    (tmp_path / "status").chmod(0o777)
    one = world()
    one.writer.start()
    assert one.writer._thread is None
    assert [event for event, _ in lines] == ["jobstatus-unusable"]


def test_a_directory_that_is_gone_harms_no_payload(world, make_job, clock, lines):
    one = world()
    one.writer.step()
    for file in one.directory.iterdir():
        file.unlink()
    one.directory.rmdir()
    one.roster.drain(SERVER)
    clock.now += 10
    one.writer.step()
    one.roster.drain(SERVER, holds=False)
    for _ in range(80):
        clock.now += 10
        one.writer.step()
        one.roster.drain(SERVER, holds=False)
    # In the end, it goes on as if it had been able to write.
    assert not one.roster.load().held
    one.roster.admit([make_job(1)])
    assert len(one.ghosts) == 1
    assert len([event for event, _ in lines if event == "jobstatus-failed"]) <= 2
    one.directory.mkdir(mode=0o755)
    clock.now += 300
    one.writer.step()
    assert status(one.directory)["used_CPU"] == "1"


def test_a_lock_that_others_hold_is_waited_for_in_vain(world, make_job, clock, monkeypatch):
    one = world()
    monkeypatch.setattr(channel, "WRITER_WAIT_S", 0.01)
    one.writer.step()
    with (one.directory / "used_CPU").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        one.roster.admit([make_job(1)])
        clock.now += 10
        one.writer.step()
    one.writer.step()
    assert status(one.directory)["used_CPU"] == "1"


@pytest.mark.parametrize(
    ("environment", "cores"),
    [
        ({"SLURM_CPUS_ON_NODE": "8"}, 8),
        ({"NSLOTS": "6", "NCPUS": "5"}, 6),
        ({"NSLOTS": "two", "NCPUS": "0"}, None),
        ({}, None),
    ],
)
def test_the_allocated_cores(environment, cores):
    assert allocated_cores(environment) == cores


def test_the_allocated_cores_of_a_slot_of_htcondor(tmp_path):
    scratch, ad = {"_CONDOR_SCRATCH_DIR": str(tmp_path)}, tmp_path / ".machine.ad"
    assert allocated_cores({**scratch, "NCPUS": "3"}) == 3
    ad.write_text('DetectedCpus = 64\nCpus = 8\nTotalSlotCpus = 16\nMyType = "Machine"\n')
    assert allocated_cores({**scratch, "NCPUS": "3"}) == 8
    named = {"_CONDOR_MACHINE_AD": str(ad), "_CONDOR_SCRATCH_DIR": "/nowhere"}
    assert allocated_cores(named) == 8
    assert allocated_cores({**named, "SLURM_CPUS_ON_NODE": "2"}) == 2
    ad.write_text("Cpus = undefined\n")
    assert allocated_cores(named) is None


# --- the end by the batch system ------------------------------------------------------------------------------------------


def nobody(job, environment):
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize(
    ("environment", "said", "end"),
    [
        (
            {"SLURM_JOB_ID": "7"},
            "1795741968",
            1_795_741_968,
        ),  # DefaultTime of the partition, if nothing was asked for
        ({"SLURM_JOB_ID": "7"}, "N/A", None),
        ({"SLURM_JOB_ID": "7"}, "NONE", None),
        ({"SLURM_JOB_ID": "7"}, "", None),
        ({"SLURM_JOB_ID": "7"}, "0", None),
        ({"SLURM_JOB_ID": "7"}, "9" * 30, None),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1795741000"}, None, 1_795_741_000),
        ({"NSLOTS": "4"}, None, None),
        ({}, None, None),
    ],
)
def test_the_end_by_the_batch_system(environment, said, end):
    ask = nobody if said is None else lambda job, _: said if job == "7" else ""
    assert batch_end(environment, 1000.0, ask) == end


def test_the_end_by_the_job_s_ad_of_htcondor(tmp_path):
    (tmp_path / ".job.ad").write_text('Owner = "ada"\nAllowedJobDuration = 3600\n')
    assert batch_end({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, 1000.0, nobody) == 4600
    (tmp_path / ".job.ad").write_text("AllowedJobDuration = undefined\n")
    assert batch_end({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, 1000.0, nobody) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [('echo "$SLURM_TIME_FORMAT $2"', "%s --jobs=7"), ("exit 1", ""), ("exec sleep 600", ""), (None, "")],
)
def test_slurm_is_asked_once_and_not_for_long(tmp_path, monkeypatch, script, said):
    monkeypatch.setattr(writer_module, "_ANSWER_S", 0.2 if script == "exec sleep 600" else 60.0)
    if script is not None:
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "squeue").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin" if script else str(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert end_by_slurm("7", {"PATH": path}) == said


def test_the_enforced_end_is_that_of_the_batch_system_if_it_is_the_earlier_one(
    world, make_job, clock, monkeypatch
):
    """A pilot of a partition with a DefaultTime published eight keys: that it will be ended nobody had told it."""
    one = world()
    monkeypatch.setattr(writer_module, "batch_end", lambda *_: 1_003_600.0)
    one.writer.find_end()
    one.roster.admit([make_job(1, expected_seconds=5_000)])
    one.writer.step()
    found = status(one.directory)
    assert (found["last_max_job_end"], found["last_exp_job_end"]) == ("1003600", "1003600")
    one.roster.resize(replace(one.roster.slot, ends=clock.now + 30))
    clock.now += 10
    one.writer.step()
    assert status(one.directory)["last_max_job_end"] == "1000030"
    one.roster.resize(replace(one.roster.slot, ends=None))
    clock.now = 1_003_700.0
    one.writer.step()
    assert "last_max_job_end" not in status(one.directory), "Slurm has put the end off"
