"""`quota show` counts behind a limit the jobs that it could count where they can run, and no others."""

from __future__ import annotations

import pytest
from tests.api.conftest import RESOURCES

from lodesman.decide.resources import load_resources
from lodesman.server.live.rules import use_policy

NORTH, SOUTH = {"CPUTime": 500, "Site": "North"}, {"CPUTime": 500, "Site": "South"}
PER_USER = "{\n name per_user\n enabled true\n%s}\n"
NONE_IN_SHORT = " limit users {*} queues short to slots=0\n"
EACH_QUEUE = " limit queues {*} to slots=1\n"
ONE_A_HOST = " limit users {*} hosts {*} to slots=1\n"


@pytest.fixture
def behind(house):
    """The jobs behind each rule of a set with these lines."""
    house.user("eva", "physics", admin=True)

    def find(*lines):
        body = {"text": PER_USER % "".join(lines), "how": "add"}
        pilot = house.pilot(node={"cores": 4, "host": "n2"})
        assert house.call("POST", "/v1/quotas", body, token="eva").status == 200
        house.claim(pilot)  # its place is known
        house.now += 10.0
        house.side.keeper.refresh(house.now, rest=0.0)
        return shown(house)

    return find


def shown(house):
    uses = house.get("/v1/quotas/use", "eva")["uses"]
    return {
        ("/".join([one["rule"].partition("/")[2], *one["of"]])): (one["jobs"], one["need"], one["full"])
        for one in uses
    }


def run_in_south(house, **more):
    house.submitted(SOUTH | more)
    assert house.claim(house.pilot("South", node={"cores": 4, "host": "n1"}))


def test_the_first_rule_that_matches_is_the_only_one(house, behind):
    run_in_south(house)
    house.submitted(NORTH)
    found = behind(NONE_IN_SHORT, ONE_A_HOST)
    assert found == {"1/ann": (1, "1", True), "2/ann/n1": (0, "", False)}


def test_a_rule_about_some_hosts_leaves_those_that_follow_to_others(house, behind):
    """It is not known on which host a pilot will be."""
    house.submitted(NORTH, NORTH)
    found = behind(" limit users {*} queues short hosts n9 to slots=0\n", ONE_A_HOST)
    assert found == {"2/ann/n2": (1, "1", True)}


def test_jobs_that_can_run_in_either_are_behind_both(house, behind):
    run_in_south(house)
    house.submitted({"CPUTime": 500})
    assert behind(NONE_IN_SHORT, ONE_A_HOST) == {"1/ann": (1, "1", True), "2/ann/n1": (1, "1", True)}


def test_a_bucket_of_another_queue_keeps_no_job(house, behind):
    run_in_south(house)
    house.submitted(NORTH, NORTH)
    assert behind(EACH_QUEUE) == {"1/long": (0, "", False), "1/short": (1, "1", True)}


def test_limits_of_a_site_keep_no_job_that_cannot_run_there(house):
    text = RESOURCES + '[site."South".running_limit]\nJobType = { Merge = 1 }\n'
    policy = house.policy(load_resources([("sites.toml", text)]))
    house.side.policy = house.core.policy = policy
    house.run(use_policy(house.core, policy))
    merge = {"JobType": "Merge"}
    run_in_south(house, **merge)
    counts = []
    for more in (NORTH, SOUTH):
        house.submitted(more | merge)
        house.now += 10.0
        house.side.keeper.refresh(house.now, rest=0.0)
        (row,) = house.get("/v1/quotas/use", "ann")["uses"]
        counts.append((row["used"], row["jobs"], row["full"]))
    assert counts == [("1", 0, False), ("1", 1, True)]
