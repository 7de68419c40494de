"""Those without a good token: they wait when they are too many, and others from the same address do not."""

from __future__ import annotations

import asyncio

import pytest

from lodesman.server.live import fairness

JOIN = {"join_token": "no-such-token", "node": {}}


@pytest.fixture
def hasty(house, monkeypatch):
    """The limit of the program; a refusal that has to wait does so until the test says."""
    house.core.strangers.most = 20
    monkeypatch.setattr(fairness, "_WAIT_SECONDS", 0.0)
    # All in one second.
    monkeypatch.setattr(house.loop, "time", lambda: 1_000.0)
    return house


@pytest.mark.parametrize(
    ("method", "path", "body", "first"),
    [("GET", "/v1/me", None, 401), ("GET", "/v1/jobs/1", None, 401), ("POST", "/v1/jobs/control", {}, 401),
     ("POST", "/v1/pilots/claim", {}, 401), ("POST", "/v1/pilots/join", JOIN, 401),
     ("POST", "/v1/pilots/join", b"x" * 20_000, 413), ("POST", "/v1/pilots/join", b"{", 400)],
)  # fmt: skip
def test_after_twenty_refusals_in_a_second_the_answer_is_429(hasty, method, path, body, first):
    statuses = [hasty.call(method, path, body, token="wrong").status for _ in range(22)]
    assert statuses == [first] * 20 + [429] * 2
    answer = hasty.call(method, path, body, token="wrong")
    assert (answer.code, answer.headers["retry-after"], answer.headers["connection"]) == (
        "too-often",
        "1",
        "close",
    )
    # A token that is good is as good as before, refused or not, and so is a pilot that joins.
    assert hasty.call("GET", "/v1/me", token="ann").status == 200
    assert hasty.call("GET", "/v1/users", token="ann").status == 403
    assert hasty.call("GET", "/health").status == 200
    assert hasty.claim(hasty.pilot()) == []


def test_what_needs_no_token_is_answered_a_hundred_times_a_second(hasty):
    hasty.core.strangers.most_open = 100
    statuses = [hasty.call("GET", "/health").status for _ in range(102)]
    assert statuses == [200] * 100 + [429] * 2
    assert hasty.call("GET", "/health", token="ann").status == 200
    assert hasty.call("GET", "/v1/me", token="wrong").status == 401


def test_the_next_second_and_another_address_begin_anew(hasty, monkeypatch):
    def told(address="10.0.0.1"):
        async def ask():
            return await hasty.core.strangers.wait_if_many(address)

        return hasty.run(ask())

    assert [told() for _ in range(21)] == [False] * 20 + [True]
    assert told("10.0.0.2") is False
    monkeypatch.setattr(hasty.loop, "time", lambda: 1_001.0)
    assert told() is False


def test_a_refusal_too_many_waits(house):
    house.core.strangers.most = 0

    async def ask():
        waiting = asyncio.ensure_future(house.core.strangers.wait_if_many("10.0.0.1"))
        await asyncio.sleep(0)
        is_waiting = not waiting.done()
        house.core.strangers._never.set()
        return is_waiting, await waiting

    assert house.run(ask()) == (True, True)


def test_the_body_of_a_request_without_a_token_is_not_read(house):
    for path in ("/v1/jobs", "/v1/jobs/control", "/v1/sandboxes", "/v1/pilots/claim", "/v1/plan/job"):
        task, connection = house.open("POST", path, b"x" * 100, token="wrong")
        house.run(task)
        assert connection.answer().status == 401
        assert connection._chunks, path
