"""New SubmitPool maps and new configurations, as they reach jobs and pilots."""

from __future__ import annotations

import asyncio

from lodesman.resources import load_resources
from lodesman.services.policy import Policy

SOUTH = ["South", "ce.south", "long"]


def pool_of(house, job):
    queues = house.get("/v1/task-queues")["task_queues"]
    wanted = house.get(f"/v1/jobs/{job}")["task_queue"]
    return next(row["submit_pool"] for row in queues if row["id"] == wanted)


def test_a_pool_that_another_queue_serves_now_reaches_its_pilots_at_once(house):
    job = house.submitted({"Requirements": {"Software": "root"}})
    north, south = house.pilot("North"), house.pilot("South")
    assert house.claim(south) == []
    told = house.call("POST", "/v1/service/pools", {pool_of(house, job): [SOUTH]}, token="service")
    assert told.json == {"changed": 1}
    assert house.claim(north) == []
    assert [one["id"] for one in house.claim(south)] == [job]


def test_a_pilot_that_waits_is_answered_when_its_queue_begins_to_serve_a_pool(house):
    job = house.submitted({"Requirements": {"Software": "root"}})
    task, connection = house.open(
        "POST", "/v1/pilots/claim", house.claim_body(wait_s=30), token=house.pilot("South")
    )
    house.run(asyncio.sleep(0))
    house.call("POST", "/v1/service/pools", {pool_of(house, job): [SOUTH]}, token="service")
    house.run(task)
    assert [one["id"] for one in connection.answer().json["jobs"]] == [job]


def test_a_changed_configuration_judges_new_submissions_and_forgets_old_verdicts(house):
    assert house.submit({"CPUTime": 10**7}).status == 422
    text = '[site.North]\nVO = ["lab"]\n[site.North.ce.c.queue.q]\nCPUTime = 100000000\n[group.physics]\nvo = "lab"\n'
    house.core.policy = Policy(load_resources([("s.toml", text)]))
    assert house.submit({"CPUTime": 10**7}).status == 200
    assert house.submit({"Site": "South"}).status == 400
