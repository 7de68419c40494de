"""A submission with one job that can never run: nothing is stored, the job is named, and the reason is that of `why`."""

from __future__ import annotations

import json

import pytest

GOOD, NEVER = (
    {"Executable": "/bin/true", "CPUTime": 500},
    {"Executable": "/bin/true", "CPUTime": 500, "Memory": 10**6},
)
ARRAY = {"Executable": "/bin/true", "CPUTime": 500, "Memory": "%(mb)s"}


def everything(house):
    """How much there is of everything that is stored."""
    db = house.side.db
    tables = (
        "submission template cohort hole job event task_queue task_queue_count submit_pool_bits sandbox_use"
    )
    return {name: db.only(f"SELECT count(*) FROM {name}") for name in tables.split()}


def array(*memory):
    return {"text": json.dumps({**ARRAY, "Parameters.mb": list(memory)})}


def texts(*jobs):
    return {"texts": [json.dumps(job) for job in jobs]}


CASES = {
    "alone": ({"text": json.dumps(NEVER)}, "The job can never run: ", {}),
    "record": ({"jobs": [NEVER]}, "The job can never run: ", {}),
    "first of jobs": ({"jobs": [NEVER, GOOD, GOOD]}, "Job 0 of the batch: The job can never run: ", {"job": 0}),
    "last of jobs": ({"jobs": [GOOD, GOOD, NEVER]}, "Job 2 of the batch: The job can never run: ", {"job": 2}),
    "one of texts": (texts(GOOD, NEVER, GOOD), "Job 1 of the batch: The job can never run: ", {"job": 1}),
    "whole array": (array(10**6, 10**6, 10**6), "The job can never run: ", {}),
    "one member": (array(100, 200, 10**6, 100), "Member 2 (1 of 4) can never run: ", {"members": [[2, 2]], "jobs": 1}),
    "members apart": (
        array(10**6, 100, 10**6, 10**6), "Members 0, 2-3 (3 of 4) can never run: ",
        {"members": [[0, 0], [2, 3]], "jobs": 3},
    ),
    "many members apart": (
        array(*[10**6, 100] * 8), "Members 0, 2, 4, 6, 8, ... (8 of 16) can never run: ",
        {"members": [[n, n] for n in (0, 2, 4, 6, 8)], "jobs": 8},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_stored_and_the_job_is_named(house, case):
    body, beginning, data = CASES[case]
    before = everything(house)
    answer = house.call("POST", "/v1/jobs", body, token="ann")
    assert (answer.status, answer.code) == (422, "impossible")
    assert everything(house) == before
    told = answer.json["error"]
    assert told["message"] == beginning + "no queue of VO lab can run it: Memory excludes 2 of 2; " + (
        "suggestion: Memory 1000000 -> 2000 (2 of 2 queues)."
    )
    assert "--hold-if-impossible" in told["hint"]
    queues = told["data"].pop("queues")
    assert told["data"].pop("attribute") == "Memory"
    where = [told["data"].pop(name, None) for name in ("line", "column")]
    text = body.get("text") or (body["texts"][1] if "texts" in body else None)
    assert where == ([None, None] if text is None else [1, text.index('"Memory"') + 1])
    assert told["data"] == data
    assert (queues["total"], queues["eligible"]) == (2, 0)
    assert queues["ruled_out_by"] == [{"criterion": "Memory", "queues": 2}]


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_the_words_of_why_and_kept_if_that_is_wanted(house, case):
    body, beginning, _ = CASES[case]
    refused = (
        house.call("POST", "/v1/jobs", body, token="ann").json["error"]["message"].removeprefix(beginning)
    )
    made = house.call("POST", "/v1/jobs", {**body, "hold_if_impossible": True}, token="ann")
    assert made.status == 200, made.body
    jobs = house.get("/v1/jobs")["jobs"]
    held = [job["id"] for job in jobs if job["state"] == "Held"]
    assert len(held) == made.json["held"] > 0
    assert {job["state"] for job in jobs} <= {"Held", "Waiting"}
    told = house.get(f"/v1/jobs/{held[0]}/why")
    assert told["summary"].lower() == refused.lower()
    assert told["queues"] == house.call("POST", "/v1/jobs", body, token="ann").json["error"]["data"]["queues"]


def test_the_first_of_several_bad_jobs_is_named(house):
    bad = {**GOOD, "CPUTime": -1}
    assert house.submit(GOOD, NEVER, bad).json["error"]["data"]["job"] == 1
    assert house.submit(GOOD, bad, NEVER).json["error"]["data"]["job"] == 1
    assert house.counted() == 0
