"""Outputs that come with the report of their attempt: checked, kept in the database, served as the others."""

from __future__ import annotations

import base64
import gzip

import pytest
from tests.api.test_api_sandboxes import ARCHIVE, digest, files

PATH = "/v1/jobs/1/output"


def small(archive=ARCHIVE, **more):
    return {
        "sha256": digest(archive), "size": len(archive), "content": base64.b64encode(archive).decode(), **more
    }  # fmt: skip


@pytest.fixture
def pilot(house):
    house.submitted(*[{}] * 3)
    return house.pilot()


def test_an_output_comes_with_its_report(house, pilot):
    (job,) = house.claim(pilot)
    assert house.report(pilot, job, output=small())["accepted"] is True
    answer = house.call("GET", PATH, token="ann")
    assert (answer.status, answer.body) == (200, ARCHIVE)
    assert answer.headers["x-sha256"] == digest(ARCHIVE)
    assert answer.headers["content-type"] == "application/gzip"
    assert house.call("GET", PATH, token="bob").status == 404
    found = house.get("/v1/jobs/1")
    assert (found["output_sha256"], found["output_size"]) == (digest(ARCHIVE), len(ARCHIVE))
    assert files(house) == []


@pytest.mark.parametrize("wrong", [{"size": 1}, {"sha256": digest(b"other")}, {"content": "AAAA"}])
def test_what_is_not_what_its_report_says_is_refused_alone(house, pilot, wrong):
    jobs = house.claim(pilot, 3)
    reports = [
        {"id": job["id"], "attempt": 1, "state": "Done", "output": output}
        for job, output in zip(jobs, [small(), small(**wrong), None], strict=True)
    ]
    answer = house.call("POST", "/v1/pilots/report", {"reports": reports}, token=pilot)
    assert answer.status == 200
    assert [one["accepted"] for one in answer.json["results"]] == [True, False, True]
    refused = answer.json["results"][1]
    assert (refused["id"], refused["reason"]) == (
        jobs[1]["id"], "the output has another size or SHA-256 than the report says",
    )  # fmt: skip
    assert [house.get(f"/v1/jobs/{n}")["state"] for n in (1, 2, 3)] == ["Done", "Matched", "Done"]
    assert house.report(pilot, jobs[1], output=small())["accepted"] is True


@pytest.mark.parametrize("content", ["no base64!", base64.b64encode(bytes(8_193)).decode(), 5])
def test_what_is_no_small_archive_is_a_wrong_request(house, pilot, content):
    house.claim(pilot)
    body = {"reports": [{"id": 1, "attempt": 1, "state": "Done", "output": small(content=content)}]}
    assert house.call("POST", "/v1/pilots/report", body, token=pilot).status == 400


def test_the_largest_small_one(house, pilot):
    (job,) = house.claim(pilot)
    content = bytes(8_192)
    assert house.report(pilot, job, output=small(content))["accepted"] is True
    assert house.call("GET", PATH, token="ann").body == content


def test_a_second_output_of_an_attempt_counts_no_more(house, pilot):
    (job,) = house.claim(pilot)
    house.report(pilot, job, output=small())
    assert house.report(pilot, job, output=small(gzip.compress(b"other")))["reason"] == "already ended"
    assert house.call("GET", PATH, token="ann").body == ARCHIVE


def test_users_see_what_small_outputs_take(house, pilot):
    (job,) = house.claim(pilot)
    house.report(pilot, job, output=small())
    db = house.core.reader
    assert db.only("SELECT outputs FROM sandbox_usage WHERE owner = 'ann'")[0] == 4_096


def test_a_job_that_wrote_nothing_has_no_output(house, pilot):
    (job,) = house.claim(pilot)
    house.report(pilot, job, exit_code=0)
    assert house.get("/v1/jobs/1")["output_sha256"] is None
    assert house.call("GET", PATH, token="ann").status == 404
