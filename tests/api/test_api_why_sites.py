"""Why jobs wait, and why no pilots are sent to a queue, where sites advertise themselves."""

from __future__ import annotations

import re

import pytest
from tests.api.test_api_site_flow import Flow

from lodesman.server.http.health import UpkeepFigures
from lodesman.server.loops.reasons import MainReasons

QUEUE = "/v1/queues/why?path=North/c/q"


@pytest.fixture
def flow(house, backend):
    return Flow(house, backend)


def why(flow, path="/v1/jobs/40/why"):
    flow.house.side.keeper.refresh(flow.house.now, rest=0.0)
    return flow.house.get(path)


def step(answer, name="site_gates"):
    return next(one for one in answer["chain"] if one["step"] == name)


def shut(flow):
    """No pilots live, and the site takes none."""
    flow.advertise(1, MaxJobs=3, CurrentJobs=3, CurrentSubmittingJobs=0)
    flow.iterate()
    flow.director.iterated_at = flow.house.now
    return "the gate of the site: CurMatches < MaxJobs is false: CurMatches = 3, MaxJobs = 3"


def test_a_job_that_a_gate_keeps_waiting_names_it(flow):
    words = shut(flow)
    found = why(flow)
    assert (found["verdict"], found["main_reason"]) == ("not now", "site-gate")
    assert found["summary"].endswith(f"no pilot is there and the sites take none now: {words} (1 queue).")
    assert found["who"].startswith("the site, by advertising")
    at_sites = step(found)
    assert (at_sites["holds"], at_sites["queues"]) == (False, 1)
    assert words in at_sites["text"]


def test_lists_have_the_reason_too(flow):
    shut(flow)
    house = flow.house
    house.side.keeper.refresh(house.now, rest=0.0)
    reasons = MainReasons(house.side.db, house.side.keeper)
    reasons.tick(house.side.policy, house.now, house.post)
    text = house.call("GET", "/metrics", token="admin").body.decode()
    assert 'lodesman_waiting_jobs_by_reason{detail="",reason="site-gate",verdict="not now"} 40.0' in text


def test_the_metrics_count_the_gates_that_are_shut(flow):
    house = flow.house
    house.side.upkeep = lambda: UpkeepFigures(gates=flow.director.gates)

    def counted():
        text = house.call("GET", "/metrics", token="admin").body.decode()
        return {
            state: re.search(rf'site_gates{{state="{state}"}} (\S+)', text)[1] for state in ("open", "shut")
        }

    assert counted() == {"open": "0.0", "shut": "0.0"}
    shut(flow)
    assert counted() == {"open": "0.0", "shut": "1.0"}
    flow.advertise(2, MaxJobs=30, CurrentJobs=3, CurrentSubmittingJobs=0)
    flow.iterate()
    assert counted()["shut"] == ("0.0" if flow.director.gates["North"] else "1.0")


def test_a_site_that_takes_no_such_pilots_is_named_with_what_it_asks(flow):
    requirements = 'CurMatches < MaxJobs && TARGET.JobOwner == "bob"'
    flow.advertise(1, MaxJobs=30, CurrentJobs=0, CurrentSubmittingJobs=0, Requirements=requirements)
    for _ in range(6):
        assert flow.iterate() == 0
    found = why(flow)
    assert found["main_reason"] == "site-gate"
    words = (
        "1 queue: the site and the pilots do not match as it advertises itself; "
        'North: TARGET.JobOwner == "bob" is false: JobOwner = "ann"'
    )
    assert words in step(found)["text"]
    assert words in found["summary"]


def test_a_queue_of_a_site_that_takes_no_such_pilots_is_not_now(flow):
    requirements = 'CurMatches < MaxJobs && TARGET.JobOwner == "bob"'
    flow.advertise(1, MaxJobs=30, CurrentJobs=0, CurrentSubmittingJobs=0, Requirements=requirements)
    for _ in range(6):
        flow.iterate()
    flow.director.iterated_at = flow.house.now
    found = why(flow, QUEUE)
    assert (found["verdict"], found["main_reason"]) == ("not now", "site-gate")
    assert "keeps it from starting there now: 1 queue: the site and the pilots do" in found["summary"]
    assert 'North: TARGET.JobOwner == "bob" is false: JobOwner = "ann"' in found["summary"]


def test_a_gate_that_opens_is_in_the_way_no_more(flow):
    shut(flow)
    flow.advertise(2, MaxJobs=30, CurrentJobs=3, CurrentSubmittingJobs=0)
    assert flow.many() > 0
    found = why(flow)
    assert found["main_reason"] != "site-gate"


def test_sites_that_never_advertised_are_in_no_way(flow):
    flow.iterate()
    found = why(flow)
    assert step(found)["holds"] is True
    assert step(found)["text"] == "0 of 1 eligible queue shut by the gates of their sites"
    assert step(why(flow, QUEUE))["text"] == "the gate of its site keeps no pilots from it"


def test_before_the_first_iteration_it_is_not_known(flow):
    assert step(why(flow))["holds"] is None


def test_a_queue_asks_the_gate_of_its_site_now(flow):
    words = shut(flow)
    found = why(flow, QUEUE)
    assert (found["main_reason"], step(found)["holds"], step(found)["text"]) == (
        "no-room-for-pilots",
        False,
        words,
    )
    assert words in found["summary"]
    flow.advertise(2, MaxJobs=5, CurrentJobs=3, CurrentSubmittingJobs=0)
    assert step(why(flow, QUEUE))["text"] == "the gate of the site admits 2 more"
