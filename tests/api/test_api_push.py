"""Bound pilots over HTTP: what they are answered, and what users see of them and of their jobs."""

from __future__ import annotations

import base64

import pytest

from lodesman.server.writer.pilots import hash_token


class Push:
    """Sends pilots of North that are bound to jobs."""

    def __init__(self, house) -> None:
        self.house, self.numbers = house, 0

    def send(self, job, count=1):
        """Pilots for the task queue of a job, stored and submitted; the stamps of those that got a job."""
        house, rows = self.house, []
        for _ in range(count):
            self.numbers += 1
            stamp = f"push-{self.numbers}"
            rows.append({
                "stamp": stamp, "vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "bound": True,
                "tq_id": house.get(f"/v1/jobs/{job}")["task_queue"],
                "request": {
                    "vo": "lab", "cores": 4, "memory_mb": 2000, "platforms": ["el9"], "norm_cpu_seconds": 1000,
                },
                "join_hash": base64.b64encode(hash_token(f"join-{stamp}")).decode(),
            })  # fmt: skip
        answer = house.call("POST", "/v1/service/pilots", rows, token="service")
        assert answer.status == 200, answer.body
        stamps = [one["stamp"] for one in rows[: answer.json["stored"]]]
        house.call(
            "POST", "/v1/service/submitted", {one: [f"n-{one}", ""] for one in stamps}, token="service"
        )
        return stamps

    def join(self, stamp, node=None):
        """The name of its token, and its number."""
        body = {"join_token": f"join-{stamp}", "nonce": "n", "node": node or {"cores": 4, "host": "n1"}}
        joined = self.house.call("POST", "/v1/pilots/join", body)
        assert joined.status == 200, joined.body
        self.house.tokens[stamp] = joined.json["token"]
        self.joined = joined.json
        return joined.json["pilot"]

    def claim(self, stamp, **more):
        answer = self.house.call("POST", "/v1/pilots/claim", self.house.claim_body(**more), token=stamp)
        assert answer.status == 200, answer.body
        return [job["id"] for job in answer.json["jobs"]], answer.json["drain"]


@pytest.fixture
def push(house):
    return Push(house)


SMALL = {"CPUTime": 60, "Executable": "/bin/true"}


def test_a_pilot_runs_the_job_that_it_was_sent_for_and_leaves(house, push):
    first = house.submitted(SMALL, SMALL)
    (stamp,) = push.send(first)
    push.join(stamp)
    body = house.claim_body(1, wait_s=30.0)
    for _ in range(2):  # the second time the answer was lost
        answer = house.call("POST", "/v1/pilots/claim", body, token=stamp).json
        assert ([job["id"] for job in answer["jobs"]], answer["drain"]) == ([first], True)
    # A heartbeat before it has its job does not send it away, and one with it does not ask it to go on.
    for jobs, drain in (([], False), ([{"id": first, "attempt": 1}], True)):
        beat = house.call("POST", "/v1/pilots/heartbeat", {"jobs": jobs}, token=stamp)
        assert beat.json["drain"] is drain
    report = {"id": first, "attempt": 1, "state": "Done"}
    assert house.call("POST", "/v1/pilots/report", {"reports": [report]}, token=stamp).status == 200
    # It does not wait for others, though one is there.
    assert push.claim(stamp, wait_s=30.0) == ([], True)
    assert house.get(f"/v1/jobs/{first}")["state"] == "Done"
    assert house.get(f"/v1/jobs/{first + 1}")["state"] == "Waiting"


def test_no_more_are_sent_than_there_are_jobs(house, push):
    first = house.submitted(SMALL, SMALL)
    assert push.send(first, 5) == ["push-1", "push-2"]
    assert push.send(first) == []


def test_users_see_which_pilot_a_job_waits_for(house, push):
    job = house.submitted(SMALL)
    (stamp,) = push.send(job)
    (row,) = house.get("/v1/pilots")["pilots"]
    assert row["bound_job"] == job
    house.now += 7_200
    found = house.get(f"/v1/jobs/{job}/why")
    assert (found["state"], found["verdict"]) == ("Matched", None)
    words = f"bound for 2.0 h to pilot {row['id']} in North/ce.north/short, which has not started yet"
    assert words in found["summary"]
    pilot = house.get(f"/v1/pilots/{row['id']}/why")
    assert (pilot["verdict"], f"It runs job {job} and no other" in pilot["summary"]) == (
        "bound to a job",
        True,
    )
    assert any(f"only job {job}" in step["text"] for step in pilot["chain"])
    push.join(stamp)
    assert push.joined["bound_job"] == job
    assert "has joined" in house.get(f"/v1/jobs/{job}/why")["summary"]
    push.claim(stamp)
    assert "It does not wait" in house.get(f"/v1/jobs/{job}/why")["summary"]


def test_what_waits_too_long_waits_again_by_an_order_of_the_background_process(house, push):
    job = house.submitted(SMALL)
    (stamp,) = push.send(job)
    number = house.get("/v1/pilots")["pilots"][0]["id"]
    body = {"pilots": [number, 999], "reason": "it waited too long"}
    for rescued in (1, 0):
        answer = house.call("POST", "/v1/service/unbind", body, token="service")
        assert (answer.status, answer.json) == (200, {"rescued": rescued})
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], "it waited too long" in found["reason"]) == ("Waiting", True)
    assert found["attempts"][0]["cause"] == "not-taken"
    push.join(stamp)
    assert push.claim(stamp) == ([], True)
    assert house.claim(house.pilot())[0]["id"] == job


@pytest.mark.parametrize("action", ["kill", "hold"])
def test_a_user_ends_a_binding_by_killing_or_holding_the_job(house, push, action):
    job = house.submitted(SMALL)
    (stamp,) = push.send(job)
    assert house.control(action, job).json["changed"] == 1
    assert house.get(f"/v1/jobs/{job}")["state"] == {"kill": "Killed", "hold": "Held"}[action]
    assert house.get("/v1/pilots")["pilots"][0]["drain"] == 1
    push.join(stamp)
    assert push.claim(stamp) == ([], True)


def test_a_pilot_that_is_drained_gives_its_job_back(house, push):
    job = house.submitted(SMALL)
    (stamp,) = push.send(job)
    number = push.join(stamp)
    assert house.call("POST", "/v1/pilots/drain", {"pilots": [number]}, token="admin").status == 200
    assert push.claim(stamp) == ([], True)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"


def test_on_a_host_that_gets_no_jobs_the_bound_job_goes_back(house, push):
    job = house.submitted(SMALL)
    (stamp,) = push.send(job)
    body = {"site": "North", "host": "n1", "reason": "its disk is full"}
    assert house.call("POST", "/v1/hosts/close", body, token="admin").status == 200
    push.join(stamp)
    assert push.claim(stamp) == ([], True)
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], "host" in found["reason"]) == ("Waiting", True)


def test_a_job_that_is_changed_keeps_the_attempts_that_were_given_back(house, push):
    job = house.submitted({**SMALL, "MaxAttempts": 2})
    for _ in range(3):
        push.send(job)
        number = house.get("/v1/pilots")["pilots"][0]["id"]
        body = {"pilot": number, "state": "Aborted", "reason": "gone"}
        assert house.call("POST", "/v1/service/ended", body, token="service").json == {"rescued": 1}
    body = {"ranges": [[job, job]], "attributes": {"CPUTime": 70, "MaxAttempts": 1}}
    answer = house.call("POST", "/v1/jobs/change", body, token="ann")
    assert answer.status == 200, answer.body
    (stamp,) = push.send(job)
    push.join(stamp)
    assert push.claim(stamp) == ([job], True)
    house.report(stamp, {"id": job, "attempt": 4}, "Running")
    house.report(stamp, {"id": job, "attempt": 4}, "Released", cause="pilot-shutdown")
    assert house.get(f"/v1/jobs/{job}")["state"] == "Failed"  # its only one


# --- forwarding nodes -------------------------------------------------------------------------------------------------

SOUTH = ["South", "ce.south", "long"]


def forwarded(house, *, forwards=True):
    """The join token of a pilot that was sent to a queue of North."""
    row = {
        "stamp": "gate", "vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "forwards": forwards,
        "request": {"vo": "lab", "cores": 4, "memory_mb": 2000, "platforms": ["el9"], "norm_cpu_seconds": 1000},
        "join_hash": base64.b64encode(hash_token("join-gate")).decode(),
    }  # fmt: skip
    assert house.call("POST", "/v1/service/pilots", [row], token="service").json == {"stored": 1}
    return "join-gate"


@pytest.mark.parametrize("forwards", [True, False])
def test_a_pilot_asks_for_the_pools_of_the_queue_that_it_finds(house, forwards):
    token = forwarded(house, forwards=forwards)
    answer = house.call("POST", "/v1/submit-pools/for-queues", {"queues": [SOUTH]}, token=token)
    assert answer.status == (200 if forwards else 403)


@pytest.mark.parametrize(
    ("place", "site", "platform"),
    [
        (SOUTH, "South", "el8"),
        (["Nowhere", "c", "q"], "North", "el10"),
        (["Far", "ce.far", "q"], "North", "el10"),
    ],
)
def test_a_forwarded_pilot_gets_what_fits_where_it_is(house, place, site, platform):
    token = forwarded(house)
    body = {
        "join_token": token, "nonce": "n", "place": dict(zip(("site", "ce", "queue"), place, strict=True)),
        "node": {"cores": 8, "memory_mb": 9_000, "platform": "el10"},
    }  # fmt: skip
    joined = house.call("POST", "/v1/pilots/join", body)
    assert (joined.status, joined.json["place"]["site"]) == (200, site)
    house.tokens["gate"] = joined.json["token"]
    wrong, right = (
        house.submitted({"Platform": "el9"}),
        house.submitted({"Platform": platform}, hold_if_impossible=True),
    )
    if platform == "el10":  # which no queue declares
        assert house.get(f"/v1/jobs/{right}")["state"] == "Held"
        right = house.submitted({"Site": "North"})
    assert [job["id"] for job in house.claim("gate")] == [right]
    assert house.get(f"/v1/jobs/{wrong}")["state"] == "Waiting"
    assert house.get("/v1/pilots")["pilots"][0]["site"] == site
