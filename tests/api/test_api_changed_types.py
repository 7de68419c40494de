"""Declared types that change, and pools that were made again, as users see them."""

import pytest
from tests.api.test_api_refresh import configure, keep

from lodesman.decide.resources import load_resources

pytestmark = pytest.mark.stores

HEAD = '[job_description]\nDisk = "{}"\n[group.physics]\nvo = "lab"\n'
QUEUES = """[site.North]
VO = ["lab"]
Platform = "el9"
[site.North.ce."ce.north".queue.short]
CPUTime = 1000
Disk = "{}"
"""


def text(unit, offer):
    return HEAD.format(f"number {unit}") + QUEUES.format(offer)


def the_pool(house):
    (row,) = house.get("/v1/submit-pools")["pools"]
    return row


def test_what_a_job_asks_for_keeps_its_unit(house):
    configure(house, text("GB", "60 GB"))
    job = house.submitted({"Requirements": {"Disk": 50}})
    before = the_pool(house)
    assert before["requirements"] == {"Disk": {"kind": "number", "unit": "GB", "wanted": [50]}}
    planned = house.call(
        "POST",
        "/v1/plan/resources",
        {"files": [{"name": "s.toml", "text": text("MB", "100 MB")}]},
        token="admin",
    ).json
    assert planned["task_queues"]["impossible"] == {"task_queues": 1, "jobs": 1}
    (row,) = planned["submit_pools"]["changed"]["rows"]
    configure(house, text("MB", "100 MB"))
    after = the_pool(house)
    assert (row["id"], row["new_id"], row["after"]) == (before["id"], after["id"], after["queues"])
    assert after["requirements"] == {"Disk": {"kind": "number", "unit": "MB", "wanted": [51_200]}}
    assert (after["jobs"]["held"], after["created_at"]) == (1, before["created_at"])
    told = house.get(f"/v1/jobs/{job}/why")
    assert (told["verdict"], told["queues"]["ruled_out_by"]) == (
        "never", [{"criterion": "Requirements.Disk", "queues": 1}],
    )  # fmt: skip
    configure(house, text("MB", "60 GB"))
    same = house.submitted({"Requirements": {"Disk": "50 GB"}})
    assert the_pool(house)["jobs"]["waiting"] == 2
    queues = {house.get(f"/v1/jobs/{one}")["task_queue"] for one in (job, same)}
    assert len(queues) == 1
    assert [one["id"] for one in house.claim(house.pilot("North"), 2)] == [job, same]


def test_two_joined_task_queues_are_shown_as_one(house):
    configure(house, text("GB", "60 GB"))
    old = house.submitted({"Requirements": {"Disk": 50}, "Parameters": 3})
    # The hot process has the new types at once, the refresh comes a moment later.
    house.core.policy = house.policy(load_resources([("s.toml", text("MB", "60 GB"))]))
    new = house.submitted({"Requirements": {"Disk": "50 GB"}})
    assert house.get("/v1/submit-pools")["total"] == 2
    configure(house, text("MB", "60 GB"))
    assert the_pool(house)["jobs"] == {"waiting": 4, "held": 0, "running": 0}
    told = house.get(f"/v1/jobs/{new}/why")
    assert told["task_queue"]["waiting"] == 4
    assert house.get(f"/v1/jobs/{old + 1}")["task_queue"] == told["task_queue"]["id"]


def test_the_queues_of_a_recreated_pool_are_unknown_before_a_refresh(house):
    job = house.submitted({"Requirements": {"Software": "root"}})
    house.control("kill", job)
    keeper = keep(house)
    keeper.clean(house.now)
    house.now += 4_000
    keeper.clean(house.now)
    assert house.get("/v1/submit-pools")["pools"] == []
    house.control("reschedule", job)
    row = the_pool(house)
    assert (row["queues"], row["refreshed_at"], row["jobs"]["waiting"]) == (None, None, 1)
    told = house.get(f"/v1/jobs/{job}/why")
    (step,) = [one for one in told["chain"] if one["step"] == "submit_pool"]
    assert (step["holds"], step["queues"], step["age_seconds"]) == (None, None, None)
    assert "not known before the next refresh" in step["text"]
    assert told["ages"]["submit_pool"] is None
    keeper.tick(house.side.policy, house.now + 1)
    row = the_pool(house)
    assert (row["queues"], row["refreshed_at"]) == (1, house.now)
    told = house.get(f"/v1/jobs/{job}/why")
    (step,) = [one for one in told["chain"] if one["step"] == "submit_pool"]
    assert (step["holds"], step["queues"], step["age_seconds"]) == (True, 1, 0.0)
