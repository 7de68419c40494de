"""Submission, `plan job` and `why` judge by the same facts: which pilots count, and whom each of them may serve."""

from __future__ import annotations

import base64

import pytest

from lodesman.decide.resources import load_resources
from lodesman.server.writer.pilots import hash_token

SHUT = """
[site.S]
VO = ["lab", "other"]
MaxTotalJobs = 0
[site.S.ce.c.queue.q]
CPUTime = 1000
"""


@pytest.fixture
def shut(house):
    """A house whose only queue takes no new pilots; `shut(...)` puts one there, which joins if it has a `node`."""
    config = load_resources([("s.toml", SHUT)])
    house.core.policy = house.policy(config, inhabited=house.core.inhabited.requests)
    house.side.policy = house.policy(
        config, inhabited=lambda queues: house.side.fresh().pilots.inhabited(queues)
    )

    def put(*, node=None, vo="lab", owner="", **offer):
        house.pilots += 1
        stamp = f"a-pilot-{house.pilots}"
        request = {
            "vo": vo,
            "owner": owner,
            "cores": 1,
            "memory_mb": 4_000,
            "norm_cpu_seconds": 1_000,
        } | offer
        row = {
            "stamp": stamp, "vo": vo, "site": "S", "ce": "c", "queue": "q", "request": request, "owner": owner,
            "join_hash": base64.b64encode(hash_token(stamp)).decode(),
        }  # fmt: skip
        assert house.call("POST", "/v1/service/pilots", [row], token="service").status == 200
        if node is not None:
            body = {"join_token": stamp, "nonce": "n", "node": node}
            assert house.call("POST", "/v1/pilots/join", body).status == 200

    return put


def outcome(house):
    """Whether a job is accepted, and whether `plan job` says so at the same moment."""
    plan = house.call(
        "POST", "/v1/plan/job", {"jobs": [{"Executable": "x", "CPUTime": 500}]}, token="ann"
    ).json
    possible = house.submit(dry_run=True).status == 200
    assert (plan["refusal"] is None) == possible == (plan["cohorts"][0]["verdict"] != "never")
    return possible


@pytest.mark.parametrize(("pilot", "possible"), [
    ({}, True),
    ({"node": {"cores": 1}}, True),
    ({"owner": "ann"}, True),
    ({"vo": "other"}, False),
    ({"vo": "other", "node": {"cores": 1}}, False),
    ({"owner": "bob"}, False),
    ({"norm_cpu_seconds": 499}, False),
    ({"node": {"cores": 1, "life_s": 400}}, False),
])  # fmt: skip
def test_only_a_pilot_that_could_take_the_job_makes_it_possible(house, shut, pilot, possible):
    """Be it on its way or there."""
    assert not outcome(house)
    shut(**pilot)
    assert outcome(house) == possible
    answer = house.submit()
    assert (answer.status == 200) == possible
    if not possible:
        house.submitted(hold_if_impossible=True)
    assert (house.get("/v1/jobs/1/why")["verdict"] == "never") != possible


@pytest.mark.stores
def test_pilots_of_one_queue_count_together(house, shut):
    shut(vo="other"), shut(), shut(cores=2)
    assert outcome(house)


def test_a_pilot_that_was_not_heard_for_long_counts_no_more(house, shut):
    shut(node={"cores": 1})
    assert outcome(house)
    house.now += 301.0
    assert not outcome(house)
