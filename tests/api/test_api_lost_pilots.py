"""What a lost pilot may still report, and how it is answered."""

from __future__ import annotations

import hashlib

import pytest

pytestmark = pytest.mark.stores

CONTENT = b"the archive of a late success"
SHA = hashlib.sha256(CONTENT).hexdigest()


def lose(house, pilot):
    ended = {"pilot": int(pilot.removeprefix("pilot")), "state": "Lost", "reason": "silent"}
    assert house.call("POST", "/v1/service/ended", ended, token="service").status == 200


@pytest.fixture
def lost(house):
    """A pilot that was lost, with the one job that it had."""
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    lose(house, pilot)
    return pilot, job


def upload(house, pilot, job):
    path = f"/v1/jobs/{job['id']}/attempts/{job['attempt']}/output"
    return house.call("PUT", path, CONTENT, token=pilot, headers={"x-sha256": SHA})


def test_a_late_success_is_handed_in_with_its_output(house, lost):
    pilot, job = lost
    assert house.get("/v1/jobs/1")["state"] == "Waiting"
    assert upload(house, pilot, job).status == 200
    told = house.report(pilot, job, output={"sha256": SHA, "size": len(CONTENT)})
    assert (told["accepted"], told["reason"]) == (True, "late")
    assert house.get("/v1/jobs/1")["state"] == "Done"
    assert house.call("GET", "/v1/jobs/1/output", token="ann").body == CONTENT
    assert upload(house, pilot, job).status == 403
    assert house.claim(house.pilot()) == []


def test_when_the_next_attempt_has_begun_it_is_too_late(house, lost):
    pilot, job = lost
    (again,) = house.claim(house.pilot())
    assert again["attempt"] == 2
    assert upload(house, pilot, job).status == 403
    told = house.report(pilot, job)
    assert (told["accepted"], told["reason"]) == (False, "stale attempt")
    found = house.get("/v1/jobs/1")
    assert (found["state"], found["attempts"][0]["message"]) == (
        "Matched", "Done was reported when it no longer counted",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("heartbeat", {"jobs": [{"id": 1, "attempt": 1}]}),
        ("claim", {"claim_token": "a-new-token", "resource": {"cores": 1}, "count": 1}),
        ("leave", {"reason": "idle"}),
    ],
)
def test_everything_else_is_answered_with_the_word_that_it_has_ended(house, lost, call, body):
    """401: a pilot that hears that gives up what still runs."""
    pilot, _ = lost
    answer = house.call("POST", f"/v1/pilots/{call}", body, token=pilot)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.json["error"]["message"] == "This pilot has ended."
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


def test_input_files_are_for_live_attempts_only(house):
    house.upload(b"input")
    digest = hashlib.sha256(b"input").hexdigest()
    house.submitted({"InputSandbox": ["a"]}, sandboxes={"a": {"sha256": digest, "size": 5}})
    pilot = house.pilot()
    house.claim(pilot)
    assert house.call("GET", f"/v1/sandboxes/{digest}", token=pilot).status == 200
    lose(house, pilot)
    assert house.call("GET", f"/v1/sandboxes/{digest}", token=pilot).status == 401


def test_no_other_call_is_open_to_a_lost_pilot(house, lost):
    pilot, _ = lost
    queues = {"queues": [["North", "ce.north", "short"]]}
    for method, path, body in (
        ("GET", "/v1/me", None), ("POST", "/v1/submit-pools/for-queues", queues), ("GET", "/v1/jobs", None),
        ("GET", f"/v1/sandboxes/{SHA}", None),
    ):  # fmt: skip
        answer = house.call(method, path, body, token=pilot)
        assert (answer.status, answer.json["error"]["message"]) == (401, "This pilot has ended."), path


def test_a_report_does_not_bring_a_lost_pilot_back(house, lost):
    pilot, job = lost
    house.report(pilot, job)
    assert house.core.sessions == {}
    assert house.get("/v1/pilots")["pilots"] == []
    assert house.call("POST", "/v1/pilots/heartbeat", {"jobs": []}, token=pilot).status == 401


def test_after_some_days_its_token_is_worth_nothing(house, lost):
    pilot, job = lost
    house.now += 8 * 86_400
    one = {"id": job["id"], "attempt": job["attempt"], "state": "Done"}
    answer = house.call("POST", "/v1/pilots/report", {"reports": [one]}, token=pilot)
    assert (answer.status, "expired" in answer.json["error"]["message"]) == (401, True)
    assert upload(house, pilot, job).status == 401
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


@pytest.mark.parametrize("had_a_job", [False, True])
def test_a_pilot_that_left_by_itself_may_say_nothing_more(house, had_a_job):
    house.submitted()
    pilot = house.pilot()
    if had_a_job:
        house.claim(pilot)
    house.call("POST", "/v1/pilots/leave", {"reason": "sigterm"}, token=pilot)
    one = {"id": 1, "attempt": 1, "state": "Done"}
    assert house.call("POST", "/v1/pilots/report", {"reports": [one]}, token=pilot).status == 401
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


def test_the_usage_of_a_lost_payload_is_unknown(house, lost):
    (one,) = house.get("/v1/jobs/1")["attempts"]
    assert (one["cpu_seconds"], one["wall_seconds"], one["max_rss_mb"]) == (None, None, None)
    (site,) = house.get("/v1/usage", "admin")["sites"]
    assert site["outcomes"] == {"Released": 1}


def test_a_running_job_that_is_rescheduled_is_stopped_and_waits_again(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running")
    assert house.control("reschedule", 1, reason="new data").json["changed"] == 1
    body = {"jobs": [{"id": 1, "attempt": 1}]}
    beat = house.call("POST", "/v1/pilots/heartbeat", body, token=pilot).json
    assert beat["kill"] == [{"id": 1, "attempt": 1, "reason": "rescheduled: new data"}]
    told = house.get("/v1/jobs/1")
    assert (told["state"], told["events"][-1]["event"]) == ("Running", "Rescheduled")
    assert (told["events"][-1]["by"], told["events"][-1]["reason"]) == ("user", "new data")
    # It was faster than the order: what was promised is done all the same.
    assert house.report(pilot, job)["accepted"]
    told = house.get("/v1/jobs/1")
    assert (told["state"], told["reason"]) == ("Waiting", "rescheduled: new data")
