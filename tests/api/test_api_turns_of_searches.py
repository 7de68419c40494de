"""Searches in long texts by one user: others have their turn meanwhile, and what nobody waits for ends."""

import asyncio
import threading
from urllib.parse import quote

import pytest

from lodesman.server.http import job_lists as http_lists
from lodesman.server.store.read.job_selector import JobSelector
from lodesman.server.writer import choice

# Only ends what hangs.
SECONDS = 20.0
WHERE = f"where={quote('Arguments=z nothere')}"


@pytest.fixture
def slow(house, monkeypatch):
    """Lists of ann that search go on until `slow.go_on` is set, or until they have spent all; `slow.begun` are counted."""

    class Slow:
        go_on, begun, ended = threading.Event(), [], []

    def read(query, budget):
        Slow.begun.append(query.owner)
        house.loop.call_soon_threadsafe(house.noticed.set)
        while query.owner == "ann" and not Slow.go_on.wait(0.001):
            budget.pay_for_text(2, "where")
        return []

    def listed(_db, query, budget=None):
        try:
            return [] if budget is None else read(query, budget)
        finally:
            Slow.ended.append(query.owner)

    house.noticed = asyncio.Event()
    monkeypatch.setattr(http_lists, "list_jobs", listed)
    yield Slow
    Slow.go_on.set()


async def until(house, is_so):
    async with asyncio.timeout(SECONDS):
        while not is_so():
            house.noticed.clear()
            await house.noticed.wait()


def test_many_searches_of_one_user_leave_room_for_others(house, slow):
    of_ann = [house.open("GET", f"/v1/jobs?{WHERE}", token="ann")[0] for _ in range(5)]
    house.run(until(house, lambda: slow.begun))
    for path in ("/v1/jobs?limit=5", f"/v1/jobs?{WHERE}"):
        task, connection = house.open("GET", path, token="bob")
        house.run(asyncio.wait_for(task, SECONDS))
        assert connection.answer().json["jobs"] == []
    assert slow.begun == ["ann", "bob"]
    slow.go_on.set()
    house.run(asyncio.gather(*of_ann))
    assert slow.begun.count("ann") == 5


def test_searches_of_several_users_leave_a_thread_to_plain_lists(house, slow):
    tasks = [
        house.open("GET", f"/v1/jobs?{WHERE}&owner=ann", token=who)[0] for who in ("ann", "bob", "admin")
    ]
    house.run(until(house, lambda: len(slow.begun) == 2))
    task, connection = house.open("GET", "/v1/jobs", token="bob")
    house.run(asyncio.wait_for(task, SECONDS))
    assert (connection.answer().json["jobs"], len(slow.begun)) == ([], 2)
    slow.go_on.set()
    house.run(asyncio.gather(*tasks))


def test_a_search_ends_when_its_client_has_gone(house, slow):
    task, connection = house.open("GET", f"/v1/jobs?{WHERE}", token="ann")
    waits, other = house.open("GET", f"/v1/jobs?{WHERE}", token="ann")
    house.run(until(house, lambda: slow.begun))
    other.gone.set()
    house.run(asyncio.wait_for(waits, SECONDS))
    connection.gone.set()
    house.run(asyncio.wait_for(task, SECONDS))
    # Its turn is the next one's when its thread has ended.
    third, _ = house.open("GET", f"/v1/jobs?{WHERE}", token="ann")
    house.run(until(house, lambda: len(slow.begun) == 2))
    assert (slow.ended, connection.sent, other.sent) == (["ann"], [], [])
    slow.go_on.set()
    house.run(asyncio.wait_for(third, SECONDS))


@pytest.fixture
def learned(monkeypatch):
    """Whose choice was found out, portion by portion, a job at a time; ann's calls `learned.at`."""
    found, learn = [], JobSelector.learn
    at = []

    def noted(selector, db, jobs):
        given = list(jobs)
        found.append(id(selector))
        for call in at:
            call()
        learn(selector, db, given)

    monkeypatch.setattr(JobSelector, "learn", noted)
    monkeypatch.setattr(choice, "_AT_ONCE", 1, raising=False)
    return found, at


def hold(house, who):
    body = {"action": "hold", "ranges": [], "selection": {"where": ["Arguments=z*"]}}
    return house.open("POST", "/v1/jobs/control", body, token=who)


def submit(house, who, number):
    house.submitted(*[{"Arguments": f"z {one}"} for one in range(number)], token=who)


def test_choices_are_found_out_in_turns(house, learned):
    for who in ("ann", "bob"):
        submit(house, who, 6)
    tasks = [hold(house, who) for who in ("ann", "bob")]
    house.run(asyncio.gather(*(task for task, _ in tasks)))
    assert [connection.answer().json["changed"] for _, connection in tasks] == [6, 6]
    order = learned[0]
    assert len(order) == 12
    assert max(abs(order[:end].count(order[0]) - order[:end].count(order[-1])) for end in range(2, 12)) <= 2


def test_a_choice_is_left_when_the_client_has_gone(house, learned):
    submit(house, "ann", 30)
    task, connection = hold(house, "ann")
    learned[1].append(lambda: house.loop.call_soon_threadsafe(connection.gone.set))
    house.run(asyncio.wait_for(task, SECONDS))
    assert len(learned[0]) < 30
    assert connection.sent == []
    assert {house.get(f"/v1/jobs/{number}")["state"] for number in (1, 30)} == {"Waiting"}
