"""`vacate --apply` against a batch system that is played: what changes between plan and act, and what is watched."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lodesman.site.jobstatus.applier import OLD_S, Applier
from lodesman.site.jobstatus.plan_words import in_words, still_there_in_words
from lodesman.site.jobstatus.sites.door import Act, JobPlaces, SiteFault
from lodesman.site.jobstatus.survey import JobPart, Look, read_by_command, read_shown, survey, with_status
from lodesman.site.jobstatus.vacate.candidates import Candidate, Terms
from lodesman.site.jobstatus.vacate.plan import VacateRequest, make_plan
from lodesman.site.jobstatus.vacate.several import ResourceNeed
from lodesman.site.jobstatus.vacate_memory import VacateMemory
from lodesman.site.jobstatus.values import Status

START = 1_800_000_000.0


class Cluster:
    """Jobs, what they publish, and a clock that moves only when someone waits. `leaves`: of drained jobs, when they go;
    `lingers`: how long a job that is made to go holds its cores.
    """

    def __init__(self) -> None:
        self.now = START
        self.jobs: dict[str, Candidate] = {}
        self.statuses: dict[str, Status] = {}
        self.leaves: dict[str, float] = {}
        self.lingers = 0.0
        self.until: dict[str, tuple[float, Candidate]] = {}
        self.before_listing: list[Callable[[], object]] = []
        self.stubborn: set[str] = set()
        self.done: list[str] = []
        self.listings = 0
        self.memory = VacateMemory(Path("/nowhere/history"), "played", keeps=False)

    def add(self, job, kill, *, cores=4, node="n1", ends=None, age=36_000.0):
        self.jobs[job] = Candidate(job, "ada", (node,), cores, self.now - age)
        self.publish(job, kill, ends)

    def publish(self, job, kill, ends=None):
        """`kill`: core-seconds that are not committed, whatever the time."""
        end = int(self.now + 10**6 if ends is None else ends)
        self.statuses[job] = Status(self.jobs[job].cores, int(START + 10**8), end, end, end, kill, 0, True, 0)

    def running(self):
        self.listings += 1
        if self.before_listing:
            self.before_listing.pop(0)()
        self.jobs = {
            job: one for job, one in self.jobs.items() if self.leaves.get(job, self.now + 1) > self.now
        }
        return [*self.jobs.values(), *(one for ends, one in self.until.values() if ends > self.now)]

    def end(self, job):
        """It leaves; its cores are free later."""
        self.until[job] = self.now + self.lingers, replace(self.jobs.pop(job), leaving=True)

    def can_drain(self, job):
        return True

    def kill(self, job):
        return [Act(("kill", job.job))]

    def drain(self, job, ends, now):
        return [Act(("drain", job.job))]

    def look_at(self, parts, now):
        return [Look(self.statuses[one.job.job], 0.0) for one in parts]

    def do(self, act):
        what, job = act.words
        self.done.append(f"{what} {job}")
        if job in self.stubborn:
            raise SiteFault("It is not allowed.")
        if what == "kill":
            self.end(job)

    def wait(self, seconds):
        self.now += max(seconds, 0.01)


@pytest.fixture
def cluster():
    return Cluster()


def applied(cluster, cores, **asked):
    """What was lacking in the end, and the events of the audit."""
    candidates = survey(cluster, cluster.look_at, cluster.now)
    plan = make_plan(candidates, VacateRequest(ResourceNeed(cores), **asked), cluster.now)
    assert plan.is_feasible
    audit = io.StringIO()
    applier = Applier(
        cluster, cluster.look_at, audit, {one.job: one for one in candidates}, cluster.memory, clock=lambda: cluster.now,
        wait=cluster.wait, do=cluster.do,
    )  # fmt: skip
    lacking = applier.run(plan)
    return lacking, [json.loads(line) for line in audit.getvalue().splitlines()]


def test_what_is_planned_is_done_and_written_down(cluster):
    cluster.add("cheap", 10)
    cluster.add("dear", 10_000)
    lacking, events = applied(cluster, 4)
    assert (lacking, cluster.done) == (None, ["kill cheap"])
    assert [one["event"] for one in events] == ["plan", "kill", "gone", "end"]
    act = events[1]
    assert (act["job"], act["owner"], act["cost"], act["cores"], act["commands"]) == (
        "cheap",
        "ada",
        10,
        4,
        ["kill cheap"],
    )
    assert act["time"] == START


def test_the_line_is_written_before_the_act(cluster):
    cluster.add("a", 10)
    cluster.stubborn.add("a")
    lacking, events = applied(cluster, 4)
    assert lacking.missing == ResourceNeed(4)
    assert [one["event"] for one in events][:3] == ["plan", "kill", "failed"]
    assert events[2]["why"] == "It is not allowed."


def test_a_dearer_job_that_has_committed_since_goes_instead(cluster):
    cluster.add("cheap", 1000)
    cluster.add("dear", 10_000)

    def commit():
        cluster.publish("cheap", 50_000)

    cluster.before_listing = [lambda: None, commit]
    _, events = applied(cluster, 4)
    assert cluster.done == ["kill dear"]
    assert [one["event"] for one in events] == ["plan", "plan", "kill", "gone", "end"]


def test_a_job_that_has_committed_since_and_was_dearer_goes_instead(cluster):
    """Although the job of the plan costs what it did."""
    cluster.add("cheap", 1000)
    cluster.add("dear", 10_000)

    def commit():
        cluster.now += OLD_S + 1
        cluster.publish("dear", 10)

    cluster.before_listing = [lambda: None, commit]
    _, events = applied(cluster, 4)
    assert cluster.done == ["kill dear"]
    assert [one["event"] for one in events] == ["plan", "plan", "kill", "gone", "end"]


@pytest.mark.parametrize(("cost", "is_planned_again"), [(1100, False), (1101, True), (899, True)])
def test_a_tenth_is_the_same_cost(cluster, cost, is_planned_again):
    cluster.add("a", 1000)
    cluster.before_listing = [lambda: None, lambda: cluster.publish("a", cost)]
    _, events = applied(cluster, 4)
    assert cluster.done == ["kill a"]
    assert sum(one["event"] == "plan" for one in events) == 1 + is_planned_again


def test_a_job_that_left_by_itself_is_no_longer_needed(cluster):
    cluster.add("a", 10)
    cluster.add("b", 20)
    cluster.add("c", 30)
    cluster.before_listing = [lambda: None, lambda: cluster.jobs.pop("a")]
    lacking, events = applied(cluster, 8)
    assert (lacking, cluster.done) == (None, ["kill b"])
    assert "left" in [one["event"] for one in events]


def test_a_new_job_that_is_cheaper_goes_instead(cluster):
    cluster.add("a", 1000)
    cluster.before_listing = [lambda: None, lambda: cluster.add("new", 0)]
    applied(cluster, 4)
    assert cluster.done == ["kill new"]


def test_a_site_where_something_always_changes_is_served_all_the_same(cluster):
    cluster.add("a", 10)
    cluster.before_listing = [lambda: None, *(lambda n=n: cluster.add(f"new{n}", 10**6) for n in range(50))]
    lacking, _ = applied(cluster, 4)
    assert (lacking, cluster.done) == (None, ["kill a"])
    assert cluster.listings < 10


def test_another_job_goes_for_one_that_will_not(cluster):
    cluster.add("a", 10)
    cluster.add("b", 20)
    cluster.stubborn.add("a")
    lacking, _ = applied(cluster, 4)
    assert (lacking, cluster.done) == (None, ["kill a", "kill b"])


def test_what_was_lost_already_counts_for_the_most_that_may_be_lost(cluster):
    for job, cost in (("a", 100), ("b", 200), ("c", 290)):
        cluster.add(job, cost)
    cluster.before_listing = [lambda: None, lambda: None, lambda: cluster.publish("a", 10**5)]
    lacking, _ = applied(cluster, 8, max_waste=300)
    assert (lacking.too_dear, cluster.done) == (True, ["kill b"])


def test_a_drain_is_watched_until_it_has_gone(cluster):
    cluster.add("a", 10**6, ends=START + 600)
    cluster.leaves["a"] = START + 500
    lacking, events = applied(cluster, 4, terms=Terms(within=3600))
    assert (lacking, cluster.done) == (None, ["drain a"])
    assert 500 <= events[-2]["time"] - START <= 510
    assert [one["event"] for one in events] == ["plan", "drain", "gone", "end"]


def test_what_drains_and_kills_say_of_their_owner(cluster):
    """A drain that ended, and one that had to be ended; a kill in time says nothing."""
    cluster.add("a", 10**6, ends=START + 600)
    cluster.add("b", 5000, ends=START + 500)
    cluster.add("c", 10**5)
    cluster.leaves["a"] = START + 480
    candidates = survey(cluster, cluster.look_at, cluster.now)
    cluster.memory.update(candidates, cluster.now, candidates)
    lacking, _ = applied(cluster, 12, terms=Terms(within=1000))
    assert (lacking, sorted(cluster.done)) == (None, ["drain a", "drain b", "kill b", "kill c"])
    early, late = cluster.memory.history.ends["ada"]
    assert early.error == pytest.approx(math.log(480 / 600), abs=0.02)
    assert late.error == pytest.approx(math.log(1000 / 500), abs=0.02)


def test_what_is_claimed_too_much_is_written_down_for_each_owner(cluster):
    cluster.add("liar", 10**9)
    cluster.add("a", 10)
    _, events = applied(cluster, 4)
    assert events[0]["claims_too_much"] == {"ada": ["liar"]}


def test_after_the_deadline_the_rest_is_planned_again_as_kills(cluster):
    cluster.add("slow", 5000, ends=START + 600)
    cluster.add("dear", 10**5)
    lacking, events = applied(cluster, 4, terms=Terms(within=1000))
    assert (lacking, cluster.done) == (None, ["drain slow", "kill slow"])
    assert [one["event"] for one in events] == ["plan", "drain", "plan", "kill", "gone", "end"]
    assert events[2]["time"] - START == pytest.approx(1000, abs=1)


def test_what_does_not_go_in_the_end_is_missing(cluster):
    cluster.add("a", 10)
    cluster.do = lambda act: None
    audit, candidates = io.StringIO(), survey(cluster, cluster.look_at, cluster.now)
    plan = make_plan(candidates, VacateRequest(ResourceNeed(4)), cluster.now)
    known = {one.job: one for one in candidates}
    applier = Applier(
        cluster, cluster.look_at, audit, known, cluster.memory, clock=lambda: cluster.now, wait=cluster.wait,
        do=cluster.do,
    )  # fmt: skip
    assert applier.run(plan).missing == ResourceNeed(4)
    assert 120 <= cluster.now - START <= 125


def gone_at(events):
    return {one["job"]: one["time"] - START for one in events if one["event"] == "gone"}


def test_cores_are_free_when_the_batch_system_says_so_and_not_when_the_kill_is_sent(cluster):
    """Slurm's COMPLETING, Grid Engine's dr: nothing else starts on these cores before KillWait and the epilog are over."""
    cluster.lingers = 30.0
    for job in "ab":
        cluster.add(job, 10)
    lacking, events = applied(cluster, 8)
    assert (lacking, cluster.done) == (None, ["kill a", "kill b"])
    assert [one["event"] for one in events] == ["plan", "kill", "kill", "gone", "gone", "end"]
    assert all(30 <= at <= 31 for at in gone_at(events).values())


def test_a_job_that_is_leaving_by_itself_is_no_candidate_and_its_cores_are_waited_for(cluster):
    cluster.lingers = 40.0
    for job, cost in (("a", 10), ("b", 20), ("c", 30)):
        cluster.add(job, cost)
    cluster.before_listing = [lambda: None, lambda: cluster.end("a")]
    lacking, events = applied(cluster, 8)
    assert (lacking, cluster.done) == (None, ["kill b"])
    assert [one["event"] for one in events] == ["plan", "left", "kill", "gone", "gone", "end"]
    assert set(gone_at(events)) == {"a", "b"}
    assert min(gone_at(events).values()) >= 40
    cluster.add("d", 40)
    cluster.end("c")
    assert [one.job for one in survey(cluster, cluster.look_at, cluster.now)] == ["d"]


def test_what_still_holds_its_cores_in_the_end_is_missing(cluster):
    cluster.lingers = 10_000.0
    cluster.add("a", 10)
    lacking, events = applied(cluster, 4, terms=Terms(kill_s=60.0))
    assert (lacking.missing, [one.job for one in lacking.victims]) == (ResourceNeed(4), ["a"])
    assert 180 <= events[-1]["time"] - START <= 185
    assert list(still_there_in_words(lacking)) == [
        "1 job made to go still holds its cores, by the batch system's own word: a."
    ]


def test_a_drain_that_is_late_is_killed_so_early_that_its_cores_are_free_in_time(cluster):
    cluster.lingers = 30.0
    cluster.add("slow", 5000, ends=START + 600)
    cluster.add("dear", 10**5)
    lacking, events = applied(cluster, 4, terms=Terms(within=1000, kill_s=30.0))
    assert (lacking, cluster.done) == (None, ["drain slow", "kill slow"])
    (kill,) = [one["time"] - START for one in events if one["event"] == "kill"]
    assert kill == pytest.approx(970, abs=1)
    assert 1000 <= gone_at(events)["slow"] <= 1002


def test_what_a_kill_takes_counts_in_the_plan(cluster):
    cluster.add("a", 50_000, ends=START + 650)
    for kill_s, action, frees in (
        (0.0, "drain", (650, 650)),
        (30.0, "drain", (650, 680)),
        (400.0, "kill", (0, 400)),
    ):
        terms = Terms(within=1000, kill_s=kill_s)
        candidates = survey(cluster, cluster.look_at, cluster.now)
        (victim,) = make_plan(candidates, VacateRequest(ResourceNeed(4), terms=terms), cluster.now).victims
        assert (victim.action, victim.frees_expected, victim.frees_max) == (action, *frees)
    assert "0s to 7m" in "\n".join(
        in_words(make_plan(candidates, VacateRequest(ResourceNeed(4), terms=terms), cluster.now))
    )


@pytest.mark.parametrize(
    ("within", "is_late"), [(0.0, False), (100.0, True), (400.0, False), (1000.0, False)]
)
def test_a_kill_that_may_take_longer_than_there_is_time_is_said(cluster, within, is_late):
    cluster.add("a", 50_000)
    terms = Terms(within=within, kill_s=400.0)
    candidates = survey(cluster, cluster.look_at, cluster.now)
    plan = make_plan(candidates, VacateRequest(ResourceNeed(4), terms=terms), cluster.now)
    said = [line for line in in_words(plan) if "--within" in line]
    assert bool(said) == is_late
    assert all("1 job may hold cores for 7m, longer than --within 2m: " in line for line in said)


def test_a_job_that_starts_anew_under_its_id_has_gone(cluster):
    cluster.add("a", 10)
    kill = cluster.do

    def requeue(act):
        one = cluster.jobs["a"]
        kill(act)
        cluster.jobs["a"] = replace(one, started=cluster.now + 1)

    cluster.do = requeue
    lacking, events = applied(cluster, 4)
    assert (lacking, [one["event"] for one in events]) == (None, ["plan", "kill", "gone", "end"])


def test_nodes_stay_the_ones_of_the_plan(cluster):
    for node in ("n1", "n2", "n3"):
        cluster.add(f"{node}-a", int(node[1]) * 10, node=node)
        cluster.add(f"{node}-b", int(node[1]) * 1000, node=node)
    # The job of the chosen node gets dear: another one of this node goes, though n3 would be cheaper.
    cluster.before_listing = [lambda: None, lambda: cluster.publish("n1-a", 10**5)]
    applied(cluster, 4, nodes=2)
    assert cluster.done == ["kill n1-b", "kill n2-a"]


# --- what is read ---------------------------------------------------------------------------------------------------------

WIDE = Candidate("1", "ada", ("n1", "n2"), 8, START - 100, uid=7)


def test_parts_of_a_wide_job_add_up_and_what_one_does_not_say_is_unknown():
    status = Status(4, int(START) - 10, int(START) + 60, int(START) + 60, int(START) + 90, 5, 0, True, 3)
    (one,) = with_status(
        [WIDE], lambda parts, now: [Look(status, 3.0 if part.node == "n1" else 9.0) for part in parts], START
    )
    assert (one.estimate.kill_waste, one.estimate.remaining_expected, one.age, one.priority) == (
        90,
        60,
        9.0,
        3,
    )
    half = replace(status, add_uncom_time=None)
    (one,) = with_status(
        [WIDE], lambda parts, now: [Look(half if part.node == "n2" else status, 3.0) for part in parts], START
    )
    assert (one.estimate.kill_waste, one.estimate.draining_waste) == (None, 0)
    (one,) = with_status([WIDE], lambda parts, now: [Look(None, fault="locked")] * len(parts), START)
    assert one.is_silent
    assert "locked" in one.note


SHOWN = {
    "directory": "/run/jobstatus/1", "verdict": "good", "error": None, "as_of": 1.0, "age_s": 12.5, "flags": ["skew"],
    "keys": {"used_CPU": 4, "last_job_start": 5, "can_postpone_last_job": False, "priority_factor": None, "odd": 3},
}  # fmt: skip


def test_what_show_prints_on_another_machine_is_read():
    found = read_shown(json.dumps(SHOWN))
    assert found == Look(Status(4, 5, can_postpone_last_job=False), 12.5, ("skew",))
    assert read_shown(json.dumps({**SHOWN, "error": "locked:used_CPU"})).fault == "locked:used_CPU"
    assert read_shown(json.dumps({**SHOWN, "error": "\x1b[2J"})).fault == "no-status"
    for text in ("", "[]", "{}", "null", '{"keys": 3, "age_s": 1, "flags": [], "error": null}', "[" * 10_000):
        assert read_shown(text).status is None


def test_the_command_of_another_machine_gets_what_the_batch_system_says(tmp_path):
    program = tmp_path / "show"
    program.write_text('#!/bin/sh\necho "$@" > "$0.words"\nexit 5\n')
    program.chmod(0o755)
    look_at = read_by_command(f"{program} {{node}}", JobPlaces("/js/{job}"))
    (look,) = look_at([JobPart(WIDE, "n2", 4)], START)
    assert look.fault == "no-answer"
    words = (tmp_path / "show.words").read_text()
    assert words == "n2 show --json --now 1800000000 --allocated 4 --uid 7 /js/1\n"
    (look,) = read_by_command("/nowhere/ssh {node}", JobPlaces())([JobPart(WIDE, "n2", 4)], START)
    assert look.fault == "not-reached"
