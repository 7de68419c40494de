"""What one user may have: waiting jobs, task queues, tokens, input files, and space for files and outputs."""

from __future__ import annotations

import hashlib

import pytest

from lodesman.wire.accounts import LimitSection

FILE = b"output"
SHA = hashlib.sha256(FILE).hexdigest()


def refusal(answer, code="too-large"):
    assert (answer.status, answer.code) == (413, code)
    return answer.json["error"]


def test_waiting_jobs_of_one_user_have_a_limit(house):
    house.core.limits = LimitSection(waiting_jobs=5)
    house.submitted({"Parameters": 3})
    error = refusal(house.submit({"Parameters": 3}))
    assert error["message"] == "User ann would have 6 waiting jobs and may have 5."
    assert "waiting_jobs in [limits]" in error["hint"]
    house.submitted({"Parameters": 2})
    house.submitted({"Parameters": 5}, token="bob")
    house.claim(house.pilot(groups=["physics"]))
    house.submitted()
    house.control("kill", 1, 100)
    house.submitted({"Parameters": 5})


def test_who_holds_and_releases_gets_no_more_waiting_jobs_than_others(house):
    house.core.limits = LimitSection(waiting_jobs=5)
    first, one = house.submitted({"Parameters": 4}), house.submitted()
    assert house.control("hold", first, one).json["changed"] == 5
    house.submitted({"Parameters": 4})
    refused = house.control("release", first, one).json
    assert (refused["changed"], refused["refused"]) == (1, 4)
    assert refused["examples"][0]["reason"] == (
        "user ann would have 8 waiting jobs and may have 5: do it when some have run"
    )
    assert house.control("kill", first).json["changed"] == 1
    assert house.control("reschedule", first).json["refused"] == 1
    assert house.control("kill", one).json["changed"] == 1
    assert house.control("reschedule", one).json["changed"] == 1
    assert house.control("release", first + 1, one, token="admin").json["changed"] == 3


def test_task_queues_of_one_user_have_a_limit(house):
    house.core.limits = LimitSection(task_queues=3)
    house.submitted(*({"CPUTime": number} for number in (1, 2, 3)))
    assert "would have 4 task queues" in refusal(house.submit({"CPUTime": 4}))["message"]
    house.submitted({"CPUTime": 1})
    house.submitted({"CPUTime": 4}, token="bob")
    house.control("kill", 1)
    house.control("kill", 4)
    house.submitted({"CPUTime": 4})


def test_limits_hold_after_a_repeated_request_and_0_is_none(house):
    house.core.limits = LimitSection(waiting_jobs=2)
    house.submitted({"Parameters": 2}, request_id="one")
    assert house.submit({"Parameters": 2}, request_id="one").json["repeated"]
    house.core.limits = LimitSection(waiting_jobs=0, task_queues=0)
    house.submitted({"Parameters": 20_000})


def test_tokens_of_one_user_have_a_limit_and_expired_ones_make_room(house):
    house.core.limits = LimitSection(tokens=3)
    for seconds in (10.0, 1_000.0):
        assert (
            house.call("POST", "/v1/tokens", {"account": "bob", "seconds": seconds}, token="bob").status
            == 200
        )
    for by in ("bob", "admin"):
        error = refusal(house.call("POST", "/v1/tokens", {"account": "bob"}, token=by))
        assert (error["message"], "lode token revoke" in error["hint"]) == (
            "User bob has 3 tokens, and may have no more.", True,
        )  # fmt: skip
    assert house.call("POST", "/v1/tokens", {"account": "ann"}, token="ann").status == 200
    house.now += 11.0
    assert house.call("POST", "/v1/tokens", {"account": "bob"}, token="bob").status == 200


def test_small_input_files_count_as_a_block_and_their_number_is_limited(house):
    house.side.quota_bytes, house.side.most_files = 20_000, 3
    for number in range(3):
        assert house.upload(b"%d" % number).status == 200
    inputs = house.get("/v1/me")["inputs"]
    assert (inputs["files"], inputs["bytes"]) == (3, 3 * 4_096)
    assert "User ann has 3 input files" in refusal(house.upload(b"3"))["message"]
    assert house.upload(b"2").status == 200, "it is there"
    house.side.most_files = 0
    assert house.upload(b"3").status == 200
    assert "user ann would take" in refusal(house.upload(b"4"), "storage-full")["message"]


def test_space_is_reserved_before_the_first_byte(house):
    house.side.quota_bytes = 15_000
    first, second = b"a" * 9_000, b"b" * 9_000
    digest = {"x-sha256": hashlib.sha256(first).hexdigest()}
    task, connection = house.open(
        "POST", "/v1/sandboxes", first, token="ann", headers=digest, chunks=[first[:10], first[10:]]
    )
    connection.stall_after(1)
    house.run(house._nothing())
    refusal(house.upload(second), "storage-full")
    connection.break_off_after(0)
    connection.gone.set()
    house.run(task)
    assert house.upload(second).status == 200
    assert not house.side.reserved


@pytest.fixture
def done(house):
    """A job that is about to hand in its output."""
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)

    def put():
        return house.call("PUT", "/v1/jobs/1/attempts/1/output", FILE, token=pilot, headers={"x-sha256": SHA})

    return pilot, job, put


def test_outputs_are_inside_the_quota_of_the_owner(house, done):
    pilot, job, put = done
    house.side.quota_bytes = 10_000
    assert put().status == 200
    house.report(pilot, job, output={"sha256": SHA, "size": len(FILE)})
    assert house.get("/v1/me")["inputs"]["outputs"] == 4_096
    assert house.upload(b"1").status == 200
    assert "input files and outputs of user ann" in refusal(house.upload(b"2"), "storage-full")["message"]
    house.now += 1.0
    house.call("POST", "/v1/service/purge", {"before": house.now, "jobs": [1]}, token="service")
    assert house.get("/v1/me")["inputs"]["outputs"] == 0
    assert house.upload(b"2").status == 200


def test_an_output_beyond_the_quota_is_refused(house, done):
    _, _, put = done
    house.side.quota_bytes = 5_000
    assert house.upload(b"1").status == 200
    refusal(put(), "storage-full")
