"""Outputs of jobs: what counts is what the server stored, whatever a pilot says of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging

import pytest

ARCHIVE = b"r" * 5_000
SHA = hashlib.sha256(ARCHIVE).hexdigest()
HUGE = {"sha256": "0" * 64, "size": 1 << 53}


def outputs(house):
    return house.get("/v1/me")["inputs"]["outputs"]


@pytest.fixture
def job(house):
    """A job of ann, and the pilot that has it."""
    house.submitted()
    pilot = house.pilot()
    return pilot, house.claim(pilot)[0]


def test_an_output_that_was_never_sent_takes_nothing_and_is_no_output(house, job, caplog):
    house.side.quota_bytes = 50_000
    with caplog.at_level(logging.WARNING):
        assert house.report(*job, output=HUGE)["accepted"]
    assert "named an output that is not stored" in caplog.text
    found = house.get("/v1/jobs/1")
    assert (found["state"], found["cause"], found["output_sha256"], found["output_size"]) == (
        "Done",
        "ok",
        "",
        None,
    )
    assert found["message"] == "Its output is not stored."
    assert outputs(house) == 0
    assert house.upload(b"another file of ann").status == 200
    refused = house.call("GET", "/v1/jobs/1/output", token="ann")
    assert (refused.status, "was not kept" in refused.json["error"]["message"]) == (404, True)


@pytest.mark.parametrize("said", [HUGE, {"sha256": SHA, "size": 1 << 53}, {"sha256": SHA, "size": 0}, None])
def test_size_and_digest_come_from_what_was_stored(house, job, said):
    assert house.hand_in(*job, ARCHIVE).status == 200
    assert house.report(*job, output=said)["accepted"]
    found = house.get("/v1/jobs/1")
    assert (found["output_sha256"], found["output_size"], found["message"]) == (SHA, len(ARCHIVE), "")
    assert outputs(house) == len(ARCHIVE)
    assert house.call("GET", "/v1/jobs/1/output", token="ann").body == ARCHIVE


def test_what_is_on_the_shelf_counts_before_any_report_and_once(house, job):
    """Also of a pilot that never reports, and that sends it again, larger or smaller."""
    for content in (ARCHIVE, ARCHIVE * 2, b"small"):
        house.hand_in(*job, content)
        assert outputs(house) == max(4_096, len(content))
    assert house.get("/v1/jobs/1")["output_size"] is None, "it runs"


def test_what_was_uploaded_counts_not_what_comes_with_the_report(house, job):
    """Else the file would lie there, and its space would be free of charge."""
    house.hand_in(*job, ARCHIVE)
    small = base64.b64encode(b"s").decode()
    output = {"sha256": hashlib.sha256(b"s").hexdigest(), "size": 1, "content": small}
    assert house.report(*job, output=output)["accepted"]
    assert outputs(house) == len(ARCHIVE)
    assert house.call("GET", "/v1/jobs/1/output", token="ann").body == ARCHIVE


class HeldShelf:
    """The shelf of a house, where what is stored waits for `go_on`."""

    def __init__(self, house):
        self._house, self._store = house, house.shelf.store
        self.begun, self._stored, self._goes_on = 0, asyncio.Event(), asyncio.Event()
        house.shelf.store = self._hold

    async def _hold(self, *file):
        self.begun += 1
        size = await self._store(*file)
        self._stored.set()
        await self._goes_on.wait()
        return size

    def begin(self, job, content):
        """Begin to hand in an output."""
        pilot, one = job
        sha = hashlib.sha256(content).hexdigest()
        path = f"/v1/jobs/{one['id']}/attempts/1/output"
        return self._house.open("PUT", path, content, token=pilot, headers={"x-sha256": sha})

    def wait(self):
        self._house.run(self._stored.wait())

    def go_on(self):
        self._goes_on.set()


def test_an_output_whose_attempt_ended_while_it_came_is_gone(house, job):
    held = HeldShelf(house)
    task, connection = held.begin(job, ARCHIVE)
    held.wait()
    house.report(*job)
    held.go_on()
    house.run(task)
    assert connection.answer().status == 403
    assert (outputs(house), [*house.shelf.root.rglob("*.gz")]) == (0, [])


def test_two_uploads_of_one_output_end_one_after_the_other(house, job):
    """What is noted is the file that lies there in the end."""
    held, other = HeldShelf(house), b"another" * 1_000
    first, _ = held.begin(job, ARCHIVE)
    held.wait()
    second, answered = held.begin(job, other)
    house.run(house._nothing())
    assert held.begun == 1
    held.go_on()
    house.run(first)
    house.run(second)
    assert answered.answer().status == 200, answered.answer().body
    house.report(*job)
    assert outputs(house) == len(other)
    assert house.call("GET", "/v1/jobs/1/output", token="ann").body == other
