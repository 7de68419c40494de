"""Retries as users ask for them: in a description, after a change, and what is said of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.stores

JOB = '[ Executable = "/bin/true"; Site = "North"; CPUTime = 60; RetryOn = {75, "signal"}; RetryMemoryFactor = 2; %s ]'


def submit(house, more="", **body):
    answer = house.call("POST", "/v1/jobs", {"text": JOB % more, **body}, token="ann")
    assert answer.status == 200, answer.json
    return answer.json


def fail(house, pilot, job, attempt, cause, **more):
    (claimed,) = house.claim(pilot)
    assert (claimed["id"], claimed["attempt"]) == (job, attempt)
    assert house.report(pilot, claimed, "Failed", cause=cause, **more)["accepted"]
    return claimed


def test_a_job_is_tried_again_and_why_says_so(house):
    job, pilot = submit(house)["first"], house.pilot()
    fail(house, pilot, job, 1, "exit", exit_code=75)
    assert house.get(f"/v1/jobs/{job}/why")["reason"] == "attempt 2 of 3, since exit code 75"
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], found["attempts"][0]["exit_code"]) == ("Waiting", 75)
    fail(house, pilot, job, 2, "exit", exit_code=1)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Failed"
    assert not any(house.reconcile().values())


def test_a_job_that_was_changed_is_tried_again_as_before(house):
    job, pilot = submit(house, "Memory = 100;")["first"], house.pilot()
    body = {"ranges": [[job, job]], "attributes": {"MaxAttempts": 2}}
    assert house.call("POST", "/v1/jobs/change", body, token="ann").status == 200
    claimed = fail(house, pilot, job, 1, "memory-limit")
    assert claimed["limits"]["memory_mb"] == 100
    claimed = fail(house, pilot, job, 2, "signal", signal=9)
    assert claimed["limits"]["memory_mb"] == 200
    assert house.get(f"/v1/jobs/{job}")["reason"] == "ended by signal 9; maximum of 2 attempts reached"
    record = house.get(f"/v1/jobs/{job}/description?form=json")["text"]
    assert '"RetryMemoryFactor": 2' in record
    assert not any(house.reconcile().values())


def test_more_attempts_than_an_administrator_allows_are_named(house):
    house.core.limits = house.core.live.limits = replace(house.core.limits, attempts=4)
    assert submit(house, "MaxAttempts = 4;")["notices"] == []
    (notice,) = submit(house, "MaxAttempts = 9;")["notices"]
    assert notice["message"] == "It is 9; an administrator allows 4 attempts of a job."
