"""GET /v1/jobs/{job}/why: never, not now or now, held against what a submission and a claim do."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def why(house, job, token="ann"):
    return house.get(f"/v1/jobs/{job}/why", token)


def queue_pilots(house):
    """A pilot in each queue of the VO, as the director would send it."""
    requests = [asdict(offer.request) for offer in house.side.policy.world("lab").offers]
    return [house.pilot(request.pop("site"), **request) for request in requests]


EVERYTHING = {"cores": 64, "memory_mb": 10**6, "norm_cpu_seconds": 10**8}

jobs = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_000, 1_001, 100_000, 100_001])},
    optional={
        "Memory": st.sampled_from([0, 2_000, 2_001, 8_000, 8_001]),
        "NumberOfProcessors": st.sampled_from([1, 2, 4, 5]),
        "Platform": st.lists(st.sampled_from(["el8", "el9", "vax"]), min_size=1, max_size=2),
        "Site": st.sampled_from(["North", "South", "ANY"]),
        "BannedSite": st.sampled_from(["North", "South"]),
        "GridCE": st.sampled_from(["ce.north", "ce.south", "ce.moon"]),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "Requirements": st.fixed_dictionaries(
            {},
            optional={
                "Software": st.sampled_from(["root", "fluka"]),
                "Slots": st.sampled_from([1, 2, 3]),
                "Nonsense": st.just("x"),
            },
        ),
    },
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=jobs)
def test_one_predicate_serves_submission_why_and_claim(house, job):
    """never <=> no eligible queue <=> refused at submission <=> no pilot of any queue is given the job."""
    if not house.pilots:
        house.everywhere = queue_pilots(house)
    dry = house.submit(job, dry_run=True)
    if dry.status == 400:  # a site that is wanted and banned
        return
    possible = dry.status == 200
    assert possible or dry.code == "impossible"
    answer = house.submit(job, hold_if_impossible=True).json
    told = why(house, answer["first"])
    assert (told["verdict"] == "never") == (told["queues"]["eligible"] == 0) == (not possible)
    assert answer["held"] == (0 if possible else 1)
    taken = [one for pilot in house.everywhere for one in take(house, pilot)]
    assert [one["id"] for one in taken] == ([answer["first"]] if possible else [])
    if not possible:
        assert told["queues"]["ruled_out_by"]
        assert told["queues"]["nearest"]
        house.control("kill", answer["first"])


def take(house, pilot):
    found = house.claim(pilot, 10, resource=EVERYTHING)
    for one in found:
        house.report(pilot, one)
    return found


def test_never_tells_what_rules_out_the_queues_and_the_smallest_change(house):
    house.submit({"Memory": 9_000, "Platform": "el8"}, hold_if_impossible=True)
    told = why(house, 1)
    assert told["verdict"] == "never"
    counts = {row["criterion"]: row["queues"] for row in told["queues"]["ruled_out_by"]}
    assert told["queues"]["total"] == 2
    assert sorted(counts.values()) == [1, 2]
    nearest = told["queues"]["nearest"][0]
    assert nearest["queues"] == 1
    assert nearest["example"]["site"] == "South"
    assert "9000" in " ".join(nearest["example"]["reasons"])
    assert nearest["text"] == "Memory 9000 -> 8000"
    assert nearest["steps"][0] == {
        "criterion": "Memory",
        "asked": 9_000,
        "options": [{"value": 8_000, "queues": 1}],
    }
    assert told["summary"].endswith("; smallest change: Memory 9000 -> 8000 (1 of 2 queues).")
    assert told["main_reason"] == "impossible"
    assert [step["step"] for step in told["chain"] if step["holds"] is False] == ["size", "pilots"]


def test_requirements_are_told_one_by_one(house):
    house.submit({"Requirements": {"Software": "fluka", "Slots": 99}}, hold_if_impossible=True)
    names = {row["criterion"] for row in why(house, 1)["queues"]["ruled_out_by"]}
    assert {"Requirements.Software", "Requirements.Slots"} <= names


def test_a_vo_without_queues(house):
    house.user("lone", "alone", vo="nowhere")
    house.submit({}, token="lone", hold_if_impossible=True)
    told = why(house, 1, "lone")
    assert (told["verdict"], told["queues"]["total"]) == ("never", 0)
    assert told["summary"] == "No queue is configured for VO nowhere."


def test_now_by_a_pilot_that_is_there_idle_busy_or_on_its_way(house):
    house.submitted()
    house.prepare_pilot()
    told = why(house, 1)
    assert told["verdict"] == "now"
    assert (told["pilots"]["usable_waiting"], told["pilots"]["live"]) == (1, 1)
    pilot = house.pilot()
    assert why(house, 1)["pilots"]["usable_idle"] == 1
    house.claim(pilot)
    house.submitted({"NumberOfProcessors": 2})
    told = why(house, 2)
    assert (told["pilots"]["usable_busy"], told["pilots"]["usable_idle"]) == (1, 0)


def test_a_pilot_that_drains_or_does_not_fit_is_no_help(house):
    house.submitted({"CPUTime": 50_000})
    house.pilot()  # its queue is too short
    house.call("POST", "/v1/pilots/drain", {"pilots": [1]}, token="admin")
    house.pilot()
    told = why(house, 1)["pilots"]
    assert (told["live"], told["draining"]) == (2, 1)
    assert told["usable_idle"] == told["usable_busy"] == told["usable_waiting"] == 0


def test_not_now_when_no_pilot_may_be_sent(house, backend):
    house.submitted({"Parameters": 100})
    director = house.director(backend)
    assert director.tick(house.now) > 0
    told = why(house, 50)
    assert told["verdict"] == "now"
    assert told["director"]["room"] > 0
    backend.waiting = backend.running = 10_000  # the batch system is full of others' work
    assert director.tick(house.now) == 0
    told = why(house, 50)
    assert (told["verdict"], told["director"]["room"]) == ("not now", 0)
    assert told["director"]["lines"]
    assert "none may be sent now: MaxWaitingJobs 10 - 10000 waiting (2 queues)" in told["summary"]
    gates = told["chain"][-1]
    assert (gates["step"], gates["holds"]) == ("gates", False)
    assert gates["closed"][0]["gate"] == "max-waiting"


def test_what_is_not_known_of_a_queue_opens_no_gate(house, backend):
    house.submitted()
    backend.waiting = backend.running = None
    assert house.director(backend).tick(house.now) == 0
    assert why(house, 1)["verdict"] == "not now"


def test_not_now_when_it_is_held_by_its_owner(house):
    house.submitted()
    house.control("hold", 1, reason="wait for the data")
    told = why(house, 1)
    assert (told["verdict"], told["state"]) == ("not now", "Held")
    assert "wait for the data" in told["summary"]


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_a_job_that_does_not_wait(house, array):
    house.submitted({"Parameters": 2} if array else {})
    house.control("kill", 1, reason="enough")
    told = why(house, 1)
    assert told["verdict"] is None
    assert "Killed: enough" in told["summary"]


def test_how_many_wait_before_it(house):
    house.submitted(*[{}] * 5)
    told = why(house, 4)["task_queue"]
    assert (told["waiting"], told["ahead"], told["more_ahead"]) == (5, 3, False)
