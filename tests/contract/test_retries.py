"""Another attempt after a payload has failed: which ends lead to one, up to which number, and with how much memory."""

import pytest
from msgspec import json
from tests.contract.test_forget import dangling

from lodesman.languages.jobs import JobSpec, retry_text
from lodesman.languages.jobs.spec import TERMINAL
from lodesman.server.store.read.jobs import attempts_of_job
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.wire.accounts import LimitSection

BODY = '{"spec":{},"limits":{"memory_mb":1000}}'


def submit(house, count=1, *, max_attempts=3, memory_mb=1000, expand=False, body=BODY, **retry):
    """Jobs that are tried again as said; the id of the first."""
    key = house.key(memory_mb=memory_mb)
    cohort = PreparedCohort(
        key=key, template=body, expand=expand, max_attempts=max_attempts, runs=((0, count),),
        retry=retry_text(JobSpec(executable="x", **retry)),
    )  # fmt: skip
    return house.do(Submit(house.live, PreparedSubmission(
        owner="ann", group="g", vo="vo", name="n", form="json", record="{}", members=None, count=count,
        cohorts=(cohort,),
    ))).first  # fmt: skip


def fail(house, pilot, cause="exit", **more):
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause=cause, **more)
    return claimed


def test_an_exit_code_that_is_named_leads_to_another_attempt_until_none_is_left(house):
    job, pilot = submit(house, retry_on=("70-80",)), house.pilot()
    for n in (2, 3):
        fail(house, pilot, exit_code=75)
        assert (house.state(job), house.job(job).reason) == (
            "Waiting",
            f"attempt {n} of 3, since exit code 75",
        )
    fail(house, pilot, exit_code=75)
    assert house.state(job) == "Failed"
    assert house.job(job).reason == "exit code 75; maximum of 3 attempts reached"
    ends = [(one.number, one.outcome, one.exit_code) for one in attempts_of_job(house.reader, house.job(job))]
    assert ends == [(1, "Failed", 75), (2, "Failed", 75), (3, "Failed", 75)]
    assert not any(house.reconcile().values())


@pytest.mark.parametrize(
    ("on", "cause", "code", "again"),
    [
        ((), "exit", 1, False),
        (("1",), "exit", 2, False),
        (("exit",), "exit", 2, True),
        (("1",), "signal", None, False),
        (("signal", "wall-limit"), "wall-limit", None, True),
        (("signal",), "memory-limit", None, False),
        (("not-started",), "not-started", None, True),
    ],
)
def test_only_what_is_named_is_tried_again(house, on, cause, code, again):
    job = submit(house, retry_on=on)
    fail(house, house.pilot(), cause, exit_code=code)
    assert house.state(job) == ("Waiting" if again else "Failed")


def test_a_pilot_that_is_lost_counts_among_the_attempts(house):
    job, pilot = submit(house, retry_on=("5",), max_attempts=2), house.pilot()
    house.report(pilot, house.claim(pilot)[0], "Running")
    house.end_pilot(pilot)
    assert house.state(job) == "Waiting"
    fail(house, house.pilot(), exit_code=5)
    assert house.state(job) == "Failed"


def test_an_administrator_bounds_the_attempts(house):
    house.live.limits = LimitSection(attempts=2)
    job, array, pilot = submit(house, retry_on=("5",)), submit(house, 2, retry_on=("5",)), house.pilot()
    for _ in range(6):
        fail(house, pilot, exit_code=5)
    assert [house.state(one) for one in (job, array, array + 1)] == ["Failed"] * 3
    assert house.job(array).attempt == 2


@pytest.mark.parametrize("expand", [False, True])
def test_memory_grows_up_to_what_an_administrator_allows(house, expand):
    house.live.limits = LimitSection(retry_memory_mb=3_000)
    job = submit(house, 2, retry_memory_factor=2.0, max_attempts=9, expand=expand)
    pilot, small = house.pilot(), house.pilot(memory_mb=1_500)
    fail(house, pilot, "memory-limit")
    assert house.job(job).reason == "attempt 2 of 9, since over its memory; now with 2000 MB"
    assert fail(house, small, exit_code=1).job_id == job + 1  # the other member is as it was
    assert not house.claim(small)
    (claimed,) = house.claim(pilot)
    body = house.reader.only("SELECT body FROM template WHERE id = ?", (claimed.template_id,))[0]
    assert json.decode(body)["spec" if expand else "limits"]["memory_mb"] == 2_000
    house.report(pilot, claimed, "Failed", cause="memory-limit")
    fail(house, pilot, "memory-limit")
    assert (house.state(job), house.job(job).attempt) == ("Failed", 3)
    assert house.job(job).reason == "over its memory; a retry may ask for at most 3000 MB of memory"
    assert not any(house.reconcile().values())
    assert dangling(house) == {}


def test_memory_that_was_not_declared_grows_from_what_was_used(house):
    job, pilot = submit(house, memory_mb=0, retry_memory_factor=1.5), house.pilot()
    fail(house, pilot, "memory-limit", max_rss_mb=1_001.0)
    (claimed,) = house.claim(pilot)
    assert house.live.queues.index.key(house.job(job).task_queue).memory_mb == 1_502
    assert claimed.attempt == 2


def test_the_retry_rule_outlives_a_change_and_a_restart(house):
    job = submit(house, retry_on=("5",), retry_memory_factor=2.0)
    house.restart()
    pilot = house.pilot()
    fail(house, pilot, "memory-limit")
    house.restart()
    fail(house, pilot, exit_code=5)
    assert house.state(job) not in TERMINAL
    assert house.job(job).attempt == 2


def test_a_job_that_is_killed_as_it_fails_is_not_tried_again(house):
    job, pilot = submit(house, retry_on=("exit",)), house.pilot()
    (claimed,) = house.claim(pilot)
    house.control("kill", job)
    house.report(pilot, claimed, "Failed", cause="exit", exit_code=3)
    assert house.state(job) == "Killed"
