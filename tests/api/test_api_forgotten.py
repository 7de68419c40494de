"""Over HTTP: purged jobs, input files that no job names, and the quota of a user."""

from __future__ import annotations

import hashlib

import pytest

pytestmark = pytest.mark.stores

CONTENT = b"some events\n"


def digest(content):
    return hashlib.sha256(content).hexdigest()


def finished(house, *jobs):
    """Jobs that ran; the first id."""
    first = house.submitted(*jobs)
    pilot = house.pilot()
    for _ in jobs or ({},):
        (job,) = house.claim(pilot)
        house.report(pilot, job)
    return first


def forget(house, *jobs):
    body = {"before": house.now + 1, "jobs": list(jobs)}
    answer = house.call("POST", "/v1/service/purge", body, token="service")
    assert answer.status == 200
    return answer.json


@pytest.mark.parametrize("who", ["ann", "bob", "admin"])
@pytest.mark.parametrize("path", ["", "/why", "/output", "/logs"])
def test_a_purged_job_is_no_longer_known(house, who, path):
    job = finished(house)
    assert forget(house, job) == {"jobs": [[job, 1]], "queues": 0, "more": False}
    answer = house.call("GET", f"/v1/jobs/{job}{path}", token=who)
    assert (answer.status, answer.code) == (404, "not-found")
    assert answer.json["error"]["message"] == f"Job {job} is no longer known."
    assert "keep_days" in answer.json["error"]["hint"]


def test_a_job_that_never_existed_is_not_called_purged(house):
    finished(house)
    answer = house.call("GET", "/v1/jobs/2", token="ann")
    assert answer.json["error"]["message"] == "Job 2 was not found, or you may not see it."
    assert "no longer" not in house.call("GET", "/v1/jobs/2/logs", token="ann").json["error"]["message"]
    assert "no longer" not in house.call("GET", "/v1/jobs/0", token="ann").json["error"]["message"]


def test_an_existing_job_of_another_user_is_not_called_purged(house):
    house.submitted({"Parameters": 3}, token="bob")
    for path in ("/v1/jobs/2", "/v1/jobs/2/logs"):
        assert "no longer" not in house.call("GET", path, token="ann").json["error"]["message"]


def test_only_the_server_itself_may_purge(house):
    for name in ("purge", "tidy"):
        for token in ("ann", "admin", house.pilot()):
            assert house.call("POST", f"/v1/service/{name}", {"before": 0}, token=token).status == 403


@pytest.mark.parametrize(
    "body", [{}, {"before": "x"}, {"before": 1, "jobs": ["a"]}, [], {"before": 1, "holes": [[1]]}]
)
def test_an_unreadable_request_purges_nothing(house, body):
    job = finished(house)
    assert house.call("POST", "/v1/service/purge", body, token="service").status == 400
    assert house.get(f"/v1/jobs/{job}")["state"] == "Done"


def tidy(house, **what):
    answer = house.call("POST", "/v1/service/tidy", what, token="service")
    assert answer.status == 200
    return answer.json["gone"]


def test_a_marked_file_is_absent_for_clients_and_is_uploaded_again(house):
    path, key = f"/v1/sandboxes/{digest(CONTENT)}", ["ann", digest(CONTENT)]
    house.upload(CONTENT)
    house.now += 10
    assert tidy(house, before=house.now, mark=[key]) == []
    assert house.call("GET", path, token="ann").status == 404
    assert house.upload(CONTENT).status == 200
    assert house.get(path)["size"] == len(CONTENT)
    house.now += 10
    assert tidy(house, before=house.now, remove=[key]) == []  # the mark is off
    tidy(house, before=house.now, mark=[key])
    house.now += 10
    assert tidy(house, before=house.now, remove=[key]) == [key]
    assert house.upload(CONTENT).status == 200
    assert house.get("/v1/me", "ann")["inputs"]["files"] == 1


def test_a_file_that_the_disk_has_lost_is_uploaded_again(house):
    house.upload(CONTENT)
    path = house.shelf.input_path("ann", digest(CONTENT))
    path.unlink()
    assert house.call("GET", f"/v1/sandboxes/{digest(CONTENT)}", token="ann").status == 404
    assert house.upload(CONTENT).status == 200
    assert path.read_bytes() == CONTENT
    assert house.get("/v1/me", "ann")["inputs"] == {
        "files": 1, "bytes": 4_096, "limit": None, "outputs": 0,
    }  # fmt: skip


def test_a_file_beyond_the_quota_is_refused_before_it_comes(house):
    house.side.quota_bytes = 9_500
    assert house.upload(b"x" * 5_000).status == 200
    answer = house.upload(b"y" * 4_501)
    assert (answer.status, answer.code) == (413, "storage-full")
    assert answer.json["error"]["data"] == {"limit": 9_500, "used": 5_000, "size": 4_501}
    assert "sandbox_quota_mb" in answer.json["error"]["hint"]
    assert house.upload(b"x" * 5_000).status == 200  # it is there already
    assert house.upload(b"y" * 4_500).status == 200
    assert house.upload(b"", token="bob").status == 200
    assert house.get("/v1/me", "ann")["inputs"] == {
        "files": 2, "bytes": 9_500, "limit": 9_500, "outputs": 0,
    }  # fmt: skip


def test_uploads_that_come_together_do_not_exceed_the_quota(house):
    """Room is reserved for the first; the other is refused, and leaves nothing."""
    house.side.quota_bytes = 5_000
    contents = [b"x" * 2_000, b"y" * 2_000]
    tasks = []
    for content in contents:
        task, connection = house.open(
            "POST", "/v1/sandboxes", token="ann", chunks=[content[:1_000], content[1_000:]],
            headers={"x-sha256": digest(content), "content-length": "2000"},
        )  # fmt: skip
        tasks.append((task, connection))
    for task, _ in tasks:
        house.run(task)
    assert sorted(connection.answer().status for _, connection in tasks) == [200, 413]
    assert len([path for path in house.shelf.root.rglob("*") if path.is_file()]) == 1
    assert house.get("/v1/me", "ann")["inputs"]["bytes"] == 4_096


def test_jobs_of_a_batch_are_listed_by_name(house):
    first = house.submitted({"JobName": "one"}, {"JobName": "two"}, {})
    assert [row["name"] for row in house.get("/v1/jobs", "ann")["jobs"]] == ["one", "two", ""]
    assert house.get(f"/v1/jobs/{first + 1}", "ann")["name"] == "two"


def test_requirements_are_shown_as_they_were_written(house):
    """Two spellings are one pool; the first one is shown."""
    wanted = {"Requirements": {"softWare": "root"}}
    house.submitted({**wanted, "OwnerGroup": "physics"})
    house.submitted({"Requirements": {"SOFTWARE": "root"}})
    impossible = house.submit({"Requirements": {"GPUmodel": "A100"}}, hold_if_impossible=True).json["first"]
    pools = house.side.db.execute("SELECT requirements FROM submit_pool ORDER BY created_at, id").fetchall()
    assert sorted(text for (text,) in pools) == [
        '{"GPUmodel":["deduced","any","",["A100"]]}',
        '{"Software":["list","any","",["root"]]}',
    ]
    assert "GPUmodel" in house.get(f"/v1/jobs/{impossible}")["reason"]
