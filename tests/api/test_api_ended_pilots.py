"""Pilots that have ended since the director's last stored iteration fill no queue: `plan job` and `why` count them."""

from __future__ import annotations

import pytest

from lodesman.wire import inner_calls
from lodesman.wire.service import PilotEnd
from lodesman.wire.vocabulary import PilotState

JOB = {"Executable": "run.sh", "CPUTime": 500, "Site": "North"}


def planned(house):
    house.now += 1.0
    house.side.keeper.refresh(house.now, rest=0.0)
    (cohort,) = house.call("POST", "/v1/plan/job", {"jobs": [JOB]}, token="ann").json["cohorts"]
    (gates,) = [one["text"] for one in cohort["chain"] if one["step"] == "gates"]
    return cohort["verdict"], cohort["main_reason"], gates


def end(house, numbers):
    for number in numbers:
        house.post(inner_calls.PILOT_ENDED, PilotEnd(number, PilotState.DONE, ""))


@pytest.mark.parametrize("before", [0, 10])
def test_a_plan_counts_what_was_sent_and_has_left_since(house, backend, before):
    """`before`: pilots that were there already; 10 are as many as may be there."""
    director = house.director(backend)
    house.side.director = director
    house.side.keeper.ask_director = director.now
    for _ in range(before):
        house.pilot()
    house.submitted(*[{"CPUTime": 900, "Site": "North"}] * 50)
    backend.running = before
    planned(house)
    counts = []
    director.launch = lambda decision, _: counts.extend(one.count for one in decision.placement.placements)
    director.tick(house.now)
    assert sum(counts) == 10 - before
    for _ in range(10 - before):
        house.pilot()
    house.control("kill", 1, 50)
    assert planned(house)[2].startswith("free capacity for a pilot in 0 of 1 eligible queue")
    end(house, range(1, 11))
    verdict, reason, gates = planned(house)
    assert (verdict, reason) == ("now", "pilot-expected")
    assert gates.startswith("free capacity for a pilot in 1 of 1 eligible queue")
