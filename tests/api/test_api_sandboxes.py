"""Input files and output archives: checksums, limits, and who may read and write them."""

from __future__ import annotations

import errno
import gzip
import hashlib
from pathlib import Path

import pytest

CONTENT = b"some events\n" * 10


def digest(content):
    return hashlib.sha256(content).hexdigest()


def with_file(house, name="data.txt", content=CONTENT, *, token="ann"):
    """A submitted job that has an input file."""
    assert house.upload(content, token=token).status == 200
    sandboxes = {name: {"sha256": digest(content), "size": len(content)}}
    return house.submitted({"InputSandbox": [name]}, sandboxes=sandboxes, token=token)


def files(house):
    return sorted(path.name for path in house.shelf.root.rglob("*") if path.is_file())


# --- input ----------------------------------------------------------------------------------------------


def test_a_file_is_uploaded_and_known_to_its_owner(house):
    path = f"/v1/sandboxes/{digest(CONTENT)}"
    assert house.call("GET", path, token="ann").status == 404
    assert house.upload(CONTENT).json == {"sha256": digest(CONTENT), "size": len(CONTENT)}
    assert house.get(path) == {"sha256": digest(CONTENT), "size": len(CONTENT)}
    assert house.call("HEAD", path, token="ann").status == 200
    assert house.call("GET", path, token="bob").status == 404


def test_an_upload_to_a_full_disk_says_so(house, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    reply = house.upload(CONTENT)
    assert (reply.status, reply.json["error"]["message"]) == (503, "The disk of the server is full.")


def test_a_folder_that_is_not_the_servers_is_told_to_who_can_mend_it(house, monkeypatch, caplog):
    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "/srv/lode-data/sandboxes")

    monkeypatch.setattr(Path, "replace", refused)
    reply = house.upload(CONTENT)
    error = reply.json["error"]
    assert (reply.status, error["hint"]) == (503, "Ask its administrators.")
    assert "a file or folder of its own data" in error["message"]
    assert "/srv" not in reply.body.decode()
    assert "'/srv/lode-data/sandboxes'" in caplog.text


def test_an_upload_may_be_repeated(house):
    for _ in range(3):
        assert house.upload(CONTENT).status == 200
    assert files(house) == [digest(CONTENT)]


def test_an_empty_file_is_a_file(house):
    assert house.upload(b"").json["size"] == 0


def test_two_owners_each_have_their_own_copy(house):
    for name in ("ann", "bob"):
        assert house.upload(CONTENT, token=name).status == 200
    assert files(house) == [digest(CONTENT)] * 2


@pytest.mark.parametrize("sha", ["", "abc", "0" * 63, "0" * 65, "G" * 64, digest(b"").upper()])
def test_an_upload_needs_a_checksum(house, sha):
    answer = house.call("POST", "/v1/sandboxes", CONTENT, token="ann", headers={"x-sha256": sha})
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert files(house) == []


def test_a_file_that_is_not_what_was_announced_is_dropped(house):
    answer = house.upload(CONTENT, sha256=digest(b"other"))
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert files(house) == []
    assert house.call("GET", f"/v1/sandboxes/{digest(b'other')}", token="ann").status == 404


def test_a_file_beyond_the_limit_is_dropped_while_it_comes(house):
    chunks = [b"x" * 4_000] * 5
    whole = b"".join(chunks)
    answer = house.call(
        "POST", "/v1/sandboxes", token="ann", chunks=chunks,
        headers={"x-sha256": digest(whole), "content-length": str(len(whole))},
    )  # fmt: skip
    assert (answer.status, answer.code) == (413, "too-large")
    assert answer.json["error"]["data"]["limit"] == house.shelf.limit_bytes
    assert files(house) == []


def test_a_file_of_just_the_limit_is_taken(house):
    most = house.shelf.limit_bytes
    assert house.upload(b"x" * most).status == 200
    assert house.upload(b"x" * (most + 1)).status == 413


def test_an_upload_that_breaks_off_leaves_nothing(house):
    task, connection = house.open(
        "POST", "/v1/sandboxes", token="ann", chunks=[b"x" * 10, b"y", b""],
        headers={"x-sha256": digest(CONTENT)},
    )  # fmt: skip
    connection.break_off_after(1)
    house.run(task)
    assert connection.sent == [] or connection.answer().status >= 400
    assert files(house) == []


def test_a_pilot_reads_the_files_of_the_jobs_that_it_holds(house):
    with_file(house)
    pilot = house.pilot()
    path = f"/v1/sandboxes/{digest(CONTENT)}"
    assert house.call("GET", path, token=pilot).status == 404
    (job,) = house.claim(pilot)
    assert job["input"][0]["url"] == path
    answer = house.call("GET", path, token=pilot)
    assert (answer.status, answer.body) == (200, CONTENT)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert house.call("GET", path, token=house.pilot()).status == 404
    house.report(pilot, job)
    assert house.call("GET", path, token=pilot).status == 404


def test_a_job_that_only_speaks_of_another_s_file_does_not_open_it(house):
    secret = b"ann's secret"
    assert house.upload(secret, token="ann").status == 200
    house.submitted({"Arguments": [digest(secret)]}, token="bob")
    pilot = house.pilot()
    house.claim(pilot)
    answer = house.call("GET", f"/v1/sandboxes/{digest(secret)}", token=pilot)
    assert (answer.status, answer.code) == (404, "not-found")


@pytest.mark.parametrize("name", ["..", ".", "in", "%3A%3A", "0" * 63, "x", "a" * 64, "\N{SNOWMAN}", "{}"])
def test_no_other_name_opens_a_file_to_a_pilot(house, name):
    with_file(house)
    pilot = house.pilot()
    house.claim(pilot)
    answer = house.call("GET", f"/v1/sandboxes/{name}", token=pilot)
    assert (answer.status, answer.code) == (404, "not-found")


def test_an_input_file_that_was_lost_is_an_error_and_no_crash(house):
    with_file(house)
    pilot = house.pilot()
    house.claim(pilot)
    house.shelf.input_path("ann", digest(CONTENT)).unlink()
    assert house.call("GET", f"/v1/sandboxes/{digest(CONTENT)}", token=pilot).status == 404


# --- output ---------------------------------------------------------------------------------------------

ARCHIVE = gzip.compress(b"results")


def put(house, pilot, job, content=ARCHIVE, **more):
    path = f"/v1/jobs/{job['id']}/attempts/{job['attempt']}/output"
    return house.call("PUT", path, content, token=pilot, headers={"x-sha256": digest(ARCHIVE)} | more)


def done(house, pilot, job):
    output = {"sha256": digest(ARCHIVE), "size": len(ARCHIVE)}
    return house.report(pilot, job, output=output)


def test_output_comes_back_to_its_owner(house):
    job_id = house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    assert put(house, pilot, job).json == {"sha256": digest(ARCHIVE), "size": len(ARCHIVE)}
    path = f"/v1/jobs/{job_id}/output"
    early = house.call("GET", path, token="ann")
    assert (early.status, "Matched" in early.json["error"]["message"]) == (404, True)
    done(house, pilot, job)
    answer = house.call("GET", path, token="ann")
    assert (answer.status, answer.body) == (200, ARCHIVE)
    assert answer.headers["x-sha256"] == digest(ARCHIVE)
    assert answer.headers["content-type"] == "application/gzip"
    assert house.call("GET", path, token="bob").status == 404
    assert house.call("GET", path, token="admin").status == 200


def test_output_may_be_sent_again_until_the_attempt_ends(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    for _ in range(2):
        assert put(house, pilot, job).status == 200
    done(house, pilot, job)
    assert put(house, pilot, job).status == 403
    assert files(house) == ["1.1.tar.gz"]


def test_output_that_is_not_what_was_announced_is_refused(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    assert put(house, pilot, job, b"damaged").status == 400
    assert put(house, pilot, job, b"x" * (house.shelf.limit_bytes + 1)).status == 413
    assert files(house) == []


@pytest.mark.parametrize(("job", "attempt"), [(1, 2), (2, 1), (99, 1), (1, 0), (10**30, 1), (1, 10**30)])
def test_output_of_an_attempt_that_is_not_the_pilot_s(house, job, attempt):
    house.submitted({}, {})
    pilot = house.pilot()
    house.claim(pilot)
    answer = put(house, pilot, {"id": job, "attempt": attempt})
    assert answer.status in (403, 404)
    assert files(house) == []


def test_output_that_was_reported_but_never_sent(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    done(house, pilot, job)
    assert house.call("GET", "/v1/jobs/1/output", token="ann").status == 404


def test_each_attempt_has_its_own_output(house):
    house.submitted()
    pilot = house.pilot()
    (first,) = house.claim(pilot)
    put(house, pilot, first)
    house.report(pilot, first, "Released", cause="pilot-shutdown")
    (second,) = house.claim(pilot)
    assert put(house, pilot, first).status == 403
    assert house.call("GET", "/v1/jobs/1/output", token="ann").status == 404
    put(house, pilot, second)
    done(house, pilot, second)
    assert house.call("GET", "/v1/jobs/1/output", token="ann").body == ARCHIVE
    assert files(house) == ["1.1.tar.gz", "1.2.tar.gz"]


def test_each_member_gets_its_own_files_whatever_decides_where_it_runs(house):
    contents = {"red_0": b"one", "green_1": b"two", "blue_2": b"one"}
    boxes = {
        name: {"sha256": house.upload(content).json["sha256"], "size": len(content)} for name, content in contents.items()
    }  # fmt: skip
    text = """[ Executable = "/bin/cat"; InputSandbox = "%(Colour)s_%n"; CPUTime = "%s"; Parameters = {100, 200, 100};
                Parameters.Colour = {"red", "green", "blue"}; ]"""
    first = house.submitted(text=text, sandboxes=boxes)
    claimed = {one["id"] - first: one["input"] for one in house.claim(house.pilot(), 5)}
    for index, name in enumerate(contents):
        assert [(one["name"], one["sha256"]) for one in claimed[index]] == [(name, boxes[name]["sha256"])]
    del boxes["green_1"]
    refused = house.submit(text=text, sandboxes=boxes).json["error"]
    assert (refused["data"]["attribute"], refused["data"]["line"]) == ("InputSandbox", 1)
    assert "'green_1' was not uploaded" in refused["message"]
