"""Jobs that a pilot asks for ahead, over HTTP."""

from __future__ import annotations

import pytest
from tests.api.test_api_pilots import jobs as jobs_of
from tests.api.test_api_pilots import start

from lodesman.pilot.protocol import AttemptKey, report_end
from lodesman.server.live.leases import Leases
from lodesman.server.writer.report import TAKEN_BACK


def ask(house, pilot, count=1, **more):
    return house.call("POST", "/v1/pilots/claim", house.claim_body(count, **more), token=pilot)


def reports(house, pilot, jobs, state="Released", **more):
    body = [{"id": one["id"], "attempt": one["attempt"], "state": state, **more} for one in jobs]
    return house.call("POST", "/v1/pilots/report", {"reports": body}, token=pilot).json


def busy_pilot(house, ended=20):
    """A pilot that has just ended so many jobs."""
    pilot = house.pilot()
    for _ in range(ended // 4):
        house.submitted(*[{}] * 4)
        reports(house, pilot, ask(house, pilot, 4).json["jobs"], "Done")
    return pilot, ended


def test_a_pilot_asks_for_jobs_to_run_later(house):
    pilot, done = busy_pilot(house)
    house.submitted(*[{}] * 30)
    jobs = ask(house, pilot, 2, ahead=10).json["jobs"]
    assert [one["id"] - done for one in jobs] == list(range(1, 13))


def test_a_pilot_cannot_hoard(house):
    """It asks for all, names all in its heartbeats, and starts nothing."""
    house.submitted(*[{}] * 900)
    pilot = house.pilot()
    found = [one for _ in range(4) for one in ask(house, pilot, 1, ahead=500).json["jobs"]]
    assert len(found) == 4


def test_what_a_pilot_does_not_start_is_taken_back_while_another_waits(house):
    pilot, _ = busy_pilot(house)
    house.submitted(*[{}] * 21)
    found = ask(house, pilot, 1, ahead=500).json["jobs"]
    assert len(found) == 21
    waits = start(house, house.pilot(), count=4)
    house.now, house.ticks = house.now + 11.0, house.ticks + 11.0
    beat = {"jobs": [{"id": one["id"], "attempt": 1} for one in found]}
    house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot)
    house.run(Leases(house.core).watch())
    gone = [one["id"] for one in found[1 + 4 :]]
    assert jobs_of(house, waits) == gone[:4]
    kill = house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot).json["kill"]
    assert [one["id"] for one in kill] == gone
    assert not any(one["accepted"] for one in reports(house, pilot, found[5:], "Done")["results"])
    assert house.get(f"/v1/jobs/{gone[-1]}")["reason"] == TAKEN_BACK


def test_what_a_pilot_may_have_run_while_it_was_not_heard_is_left_to_it_for_a_minute(house):
    pilot, _ = busy_pilot(house)
    house.submitted(*[{}] * 21)
    found = ask(house, pilot, 1, ahead=500).json["jobs"]
    start(house, house.pilot(), count=4)
    beat = {"jobs": [{"id": one["id"], "attempt": 1} for one in found]}
    ordered = []
    for seconds in (40.0, 25.0, 25.0, 25.0):
        house.now, house.ticks = house.now + seconds, house.ticks + seconds
        house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot)
        house.run(Leases(house.core).watch())
        ordered.append(len(house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot).json["kill"]))
    assert ordered == [0, 0, 0, len(found) - 5]


@pytest.mark.parametrize("does", ["a word now and then", "runs all"])
def test_nothing_that_a_pilot_says_keeps_what_it_does_not_run(house, does):
    """A word every half minute, as after a gap, and payloads that run beyond its cores."""
    pilot, _ = busy_pilot(house)
    house.submitted(*[{}] * 21)
    found = ask(house, pilot, 1, ahead=500).json["jobs"]
    waits = start(house, house.pilot(), count=4)
    if does == "runs all":
        answer = reports(house, pilot, found, "Running", started=4e12)
        assert all(one["accepted"] for one in answer["results"])
    beat = {"jobs": [{"id": one["id"], "attempt": 1} for one in found]}
    for _ in range(3):
        house.now, house.ticks = house.now + 31.0, house.ticks + 31.0
        house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot)
        house.run(Leases(house.core).watch())
    kept = 4 if does == "runs all" else 1 + 4
    gone = [one["id"] for one in found[kept:]]
    assert jobs_of(house, waits) == gone[:4]
    kill = house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot).json["kill"]
    assert [one["id"] for one in kill] == gone


@pytest.mark.parametrize("does", ["joins anew", "says that all have ended"])
def test_a_pilot_keeps_nothing_by_joining_anew_or_by_ends_without_a_start(house, does):
    token = house.prepare_pilot("North")
    join = {"join_token": token, "nonce": "n", "node": {"cores": 4}}

    def joins():
        joined = house.call("POST", "/v1/pilots/join", join).json
        house.tokens["p"] = joined["token"]

    joins()
    for _ in range(30):
        house.submitted(*[{}] * 4)
        reports(house, "p", ask(house, "p", 4).json["jobs"], "Done")
    house.submitted(*[{}] * 100)
    found = ask(house, "p", 1, ahead=500).json["jobs"]
    assert len(found) == 100
    start(house, house.pilot(), count=4)
    names = [{"id": one["id"], "attempt": 1} for one in found]
    beat = {"jobs": [], "completing": names} if does == "says that all have ended" else {"jobs": names}
    for _ in range(4):
        house.now, house.ticks = house.now + 25.0, house.ticks + 25.0
        if does == "joins anew":
            joins()
        house.call("POST", "/v1/pilots/heartbeat", beat, token="p")
        house.run(Leases(house.core).watch())
    kept = house.core.live.pilots.held[1]
    assert len(kept) <= (5 if does == "joins anew" else 64 + 5)


@pytest.mark.parametrize(
    ("count", "ahead", "status"), [(0, 0, 400), (0, 1, 200), (1, 501, 400), (0, 500, 200)]
)
def test_a_claim_asks_for_something(house, count, ahead, status):
    assert ask(house, house.pilot(), count, ahead=ahead).status == status


def test_a_claim_for_jobs_ahead_alone_is_answered_at_once(house):
    assert ask(house, house.pilot(), 0, ahead=9, wait_s=3_600).json["jobs"] == []


def test_a_shut_host_gets_none_ahead(house):
    house.submitted(*[{}] * 30)
    pilot = house.pilot(node={"host": "n1", "cores": 4})
    closed = house.call("POST", "/v1/hosts/close", {"host": "n1", "reason": "power"}, token="admin")
    assert closed.status == 200, closed.body
    assert ask(house, pilot, 0, ahead=9).json["jobs"] == []


def test_what_others_wait_for_is_said_until_it_is_given_back(house):
    (pilot, done), other = busy_pilot(house), house.pilot()
    house.submitted(*[{}] * 20)
    jobs = ask(house, pilot, 2, ahead=18).json["jobs"]
    beat = {"jobs": [{"id": one["id"], "attempt": 1} for one in jobs]}
    before = house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot).json
    assert "others_wait" not in before
    waits = start(house, other, count=2)
    assert house.call("POST", "/v1/pilots/heartbeat", beat, token=pilot).json["others_wait"] is True
    assert reports(house, pilot, jobs[:1], "Done")["others_wait"] is True
    answer = reports(house, pilot, jobs[10:], cause="returned")
    assert "others_wait" not in answer
    assert all(one["accepted"] for one in answer["results"])
    assert jobs_of(house, waits) == [done + 11, done + 12]
    found = house.get(f"/v1/jobs/{done + 13}")
    assert (found["state"], found["reason"]) == ("Waiting", "its pilot gave it back before it started")
    assert found["attempts"][0]["cause"] == "returned"


@pytest.mark.parametrize("cause", ["returned", "never-started", "input"])
def test_what_a_pilot_reports_as_unstarted_has_no_start(house, cause):
    """In the pilot's own words, which have a number for each time."""
    house.submitted({})
    pilot = house.pilot()
    (job,) = ask(house, pilot).json["jobs"]
    report = report_end(AttemptKey(job["id"], job["attempt"]), cause, ended=house.now).as_json()
    answer = house.call("POST", "/v1/pilots/report", {"reports": [report]}, token=pilot).json
    assert answer["results"][0]["accepted"]
    (attempt,) = house.get("/v1/jobs/1")["attempts"]
    assert (attempt["cause"], attempt.get("started")) == (cause, None)
