"""A pilot claims no more than its live attempts leave free, whatever it says of itself."""

from __future__ import annotations

import asyncio

import pytest

BOASTS = {"cores": 64, "memory_mb": 64_000, "norm_cpu_seconds": 0}


def greedy(house, pilot, count=1_000):
    return house.claim(pilot, count, resource=BOASTS)


def beat(house, pilot, *jobs, **more):
    body = {"jobs": [{"id": job["id"], "attempt": job["attempt"], **more} for job in jobs]}
    answer = house.call("POST", "/v1/pilots/heartbeat", body, token=pilot)
    assert answer.status == 200
    return answer.json["kill"]


def test_a_pilot_of_one_core_holds_one_job_and_one_to_prefetch(house):
    house.submitted({"Parameters": 5_000})
    pilot = house.pilot(cores=1)
    got = greedy(house, pilot)
    assert len(got) == 2
    assert greedy(house, pilot) == []
    house.report(pilot, got[0])
    assert len(greedy(house, pilot)) == 1
    assert greedy(house, pilot) == []


def test_what_it_holds_counts_in_cores_and_memory(house):
    house.submitted({"NumberOfProcessors": 2, "Memory": 1_500, "Parameters": 9})
    house.submitted({"Memory": 400, "Parameters": 9, "Platform": "el9"})
    pilot = house.pilot(cores=4)
    first = house.claim(pilot, resource={**BOASTS, "cores": 4, "memory_mb": 2_000})
    rest = greedy(house, pilot)
    held = [job["spec"].get("memory_mb", 0) for job in (*first, *rest)]
    assert sum(held) <= 2_000 + 1_500
    assert len(rest) < 4


@pytest.mark.parametrize("count", [1, 50])
def test_claims_at_once_are_counted_together(house, count):
    house.submitted({"Parameters": 5_000})
    pilot = house.pilot(cores=1)
    asked = [
        house.open("POST", "/v1/pilots/claim", house.claim_body(count, resource=BOASTS), token=pilot)
        for _ in range(20)
    ]
    house.run(asyncio.gather(*(task for task, _ in asked)))
    assert sum(len(connection.answer().json["jobs"]) for _, connection in asked) == 2


def test_surplus_goes_back_and_others_get_it(house):
    house.submitted({"Parameters": 4})
    assert len(greedy(house, house.pilot(cores=1))) == 2
    assert len(greedy(house, house.pilot(cores=1))) == 2
    assert house.reconcile()["wrong_counters"] == 0


@pytest.mark.slow
def test_results_that_are_handed_in_hold_nothing_but_not_without_end(house):
    house.submitted({"Parameters": 1_000})
    pilot = house.pilot(cores=1)
    held = greedy(house, pilot)
    taken = 0
    for _ in range(200):
        beat(house, pilot, *held, state="completing")
        new = greedy(house, pilot, 1)
        held += new
        taken += len(new)
    assert 60 <= taken <= 70


def test_a_claim_that_waits_is_served_when_an_attempt_ends(house):
    house.submitted({"Parameters": 3})
    pilot = house.pilot(cores=1)
    got = greedy(house, pilot)
    task, connection = house.open(
        "POST", "/v1/pilots/claim", house.claim_body(1, resource=BOASTS, wait_s=60.0), token=pilot
    )
    house.run(asyncio.sleep(0))
    house.report(pilot, got[0])
    house.run(task)
    assert len(connection.answer().json["jobs"]) == 1


def test_what_three_heartbeats_do_not_name_goes_back(house):
    house.submitted({"Parameters": 2})
    pilot = house.pilot()
    first, second = house.claim(pilot, 2)
    for _ in range(2):
        beat(house, pilot, first)
    beat(house, pilot, first, second)
    for _ in range(2):
        beat(house, pilot, first)
        assert house.get("/v1/jobs/2")["state"] == "Matched"
    beat(house, pilot, first)
    found = house.get("/v1/jobs/2")
    assert (found["state"], found["attempts"][0]["cause"]) == ("Waiting", "not-named")
    assert "did not name it in three heartbeats" in found["reason"]
    assert house.get("/v1/jobs/1")["state"] == "Matched"
    assert [job["id"] for job in house.claim(house.pilot())] == [2]
    # Should it have the payload all the same, it ends it.
    assert [one["id"] for one in beat(house, pilot, first, second)] == [2]


def test_an_answer_that_is_asked_for_again_has_no_attempt_that_went_back(house):
    house.submitted()
    pilot = house.pilot()
    body = house.claim_body()
    (job,) = house.call("POST", "/v1/pilots/claim", body, token=pilot).json["jobs"]
    assert house.call("POST", "/v1/pilots/claim", body, token=pilot).json["jobs"] == [job]
    for _ in range(3):
        beat(house, pilot)
    assert house.call("POST", "/v1/pilots/claim", body, token=pilot).json["jobs"] == []


def test_a_late_result_of_what_went_back_still_counts(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    for _ in range(3):
        beat(house, pilot)
    assert house.report(pilot, job)["reason"] == "late"
    assert house.get("/v1/jobs/1")["state"] == "Done"
