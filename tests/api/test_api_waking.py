"""When the background process is told that there may be work."""

from __future__ import annotations

import pytest
from tests.api.test_api_pilots import jobs, start

from lodesman.wire.vocabulary import Waking


@pytest.fixture
def told(house):
    """All that was told since."""
    found: list[Waking] = []
    house.core.announce = found.append
    return found


def taken(told):
    found = list(told)
    told.clear()
    return found


def test_jobs_that_join_an_empty_task_queue_are_told_of_once(house, told):
    house.submitted()
    assert taken(told) == [Waking.JOBS]
    house.submitted()
    house.submitted({"Executable": "/bin/true", "CPUTime": 500}, {"Executable": "/bin/true", "CPUTime": 500})
    assert taken(told) == []
    house.submitted({"CPUTime": 400})
    assert taken(told) == [Waking.JOBS]


def test_jobs_that_fill_an_emptied_task_queue_are_told_of(house, told):
    first = house.submitted()
    house.claim(house.pilot())
    taken(told)
    assert house.submitted() > first
    assert taken(told) == [Waking.JOBS]


def test_jobs_that_a_waiting_pilot_takes_are_not_told_of(house, told):
    asked = start(house, house.pilot())
    first = house.submitted()
    assert jobs(house, asked) == [first]
    assert taken(told) == []


@pytest.mark.parametrize("how", ["ended", "leave"])
def test_the_end_of_a_pilot_is_told_of_with_the_jobs_that_it_leaves(house, told, how):
    house.submitted()
    pilot = house.pilot()
    if how == "ended":
        house.claim(pilot)
        taken(told)
        ended = {"pilot": int(pilot.removeprefix("pilot")), "state": "Lost", "reason": "silent"}
        assert house.call("POST", "/v1/service/ended", ended, token="service").status == 200
        assert sorted(taken(told)) == [Waking.JOBS, Waking.PILOT_ENDED]
    else:
        taken(told)
        assert house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=pilot).status == 200
        assert taken(told) == [Waking.PILOT_ENDED]


def test_what_is_refused_or_was_done_before_is_not_told_of(house, told):
    assert house.submit({"CPUTime": -1}).status == 400
    assert house.submit({}, dry_run=True).status == 200
    assert house.claim(house.pilot()) == []
    assert taken(told) == []


def test_claims_and_reports_tell_nothing(house, told):
    house.submitted(*[{}] * 3)
    pilot = house.pilot()
    taken(told)
    for job in house.claim(pilot, 2):
        house.report(pilot, job)
    assert taken(told) == []
