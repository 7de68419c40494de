"""What the director would do if sites advertised other numbers. Nothing is stored."""

from __future__ import annotations

import pytest
from tests.api.test_api_site_flow import Flow


@pytest.fixture
def flow(house, backend):
    return Flow(house, backend)


def plan(flow, **gates):
    answer = flow.house.call("POST", "/v1/plan/gates", {"gates": gates}, token="admin")
    assert answer.status == 200, answer.body
    return answer.json


def site_gate(answer):
    return {row["limit"]: row["count"] for row in answer["limits"]}.get(
        "site-gate", {"before": 0, "after": 0}
    )


def full(flow):
    flow.advertise(1, MaxJobs=3, MaxSubmittingJobs=100, CurrentJobs=3, CurrentSubmittingJobs=0)


def test_a_larger_limit_lets_pilots_go_there(flow):
    full(flow)
    answer = plan(flow, North={"MaxJobs": "200"})
    placed = answer["pilots"]["placed"]
    assert placed["before"] == 0 < placed["after"]
    assert site_gate(answer) == {"before": 1, "after": 0}
    (row,) = answer["queues"]["rows"]
    assert row["room"]["before"] == 0
    assert flow.iterate() == 0, "nothing changed"


def test_a_limit_is_an_expression_and_may_shut_a_site_that_never_advertised(flow):
    counts = {"CurrentJobs": "0", "CurrentSubmittingJobs": "0"}
    answer = plan(flow, North={"MaxJobs": "1 + 1", "maxsubmittingjobs": "9", **counts})
    placed = answer["pilots"]["placed"]
    assert placed["before"] >= placed["after"] == min(2, placed["before"])
    assert plan(flow, North={"MaxJobs": "0", "MaxSubmittingJobs": "0"})["pilots"]["placed"]["after"] == 0


def test_what_is_placed_already_counts_in_both(flow):
    flow.advertise(1, MaxJobs=4, MaxSubmittingJobs=100, CurrentJobs=0, CurrentSubmittingJobs=0)
    assert flow.many() == 4
    answer = plan(flow, North={"MaxJobs": "5"})
    assert answer["pilots"]["placed"]["before"] == 0
    assert answer["pilots"]["placed"]["after"] <= 1


def test_requirements_may_be_planned_too(flow):
    full(flow)
    refuses = plan(flow, North={"MaxJobs": "50", "Requirements": 'TARGET.VO == "other"'})
    assert refuses["pilots"]["placed"]["after"] == 0


@pytest.mark.parametrize(
    ("gates", "status", "word"),
    [
        ({"Nowhere": {"MaxJobs": "1"}}, 404, "Nowhere"),
        ({"North": {"MaxJobs": "1 +"}}, 400, "1:"),
        ({"North": {}}, 400, "gates"),
        ({}, 400, "gates"),
    ],
)
def test_what_cannot_be_planned_is_refused(flow, gates, status, word):
    answer = flow.house.call("POST", "/v1/plan/gates", {"gates": gates}, token="admin")
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]


def test_it_is_for_administrators_and_needs_a_director(flow):
    body = {"gates": {"North": {"MaxJobs": "1"}}}
    assert flow.house.call("POST", "/v1/plan/gates", body, token="ann").status == 403
    flow.house.side.director = None
    assert flow.house.call("POST", "/v1/plan/gates", body, token="admin").status == 503


def test_plans_of_policies_see_the_gates_each_anew(flow):
    flow.advertise(1, MaxJobs=3, MaxSubmittingJobs=100, CurrentJobs=0, CurrentSubmittingJobs=0)
    body = {"policies": ["seed", "gap", "ratio"]}
    answer = flow.house.call("POST", "/v1/plan/director", body, token="admin").json
    assert max(one["placed"] for one in answer["plans"]) <= 3
    assert [one["placed"] for one in answer["plans"] if one["asked"] >= 3] == [
        3 for one in answer["plans"] if one["asked"] >= 3
    ]
