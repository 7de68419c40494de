"""Long patterns in long texts: no writer waits for them, each request spends so much and no more, and says so."""

import threading
from urllib.parse import quote

import pytest

from lodesman.languages.jobs.selection import Pattern
from lodesman.server.store.journal import Change
from lodesman.server.store.read import job_lists
from lodesman.server.writer import choice

pytestmark = pytest.mark.stores
DEAR = "Arguments=*" + "a?" * 50 + "b*"


@pytest.fixture
def threads(monkeypatch):
    """The threads in which patterns were compared."""
    found, compare = set(), Pattern.is_met

    def noted(pattern, text, budget):
        found.add(threading.current_thread().name)
        return compare(pattern, text, budget)

    monkeypatch.setattr(Pattern, "is_met", noted)
    return found


def kill(house, *where, ranges=(), **selection):
    body = {"action": "kill", "ranges": list(ranges), "selection": {"where": where, **selection}}
    return house.call("POST", "/v1/jobs/control", body, token="ann")


def states(house):
    return "".join(house.get(f"/v1/jobs/{number}")["state"][0] for number in range(1, house.counted() + 1))


def test_the_writer_compares_nothing(house, threads):
    house.submitted({"JobName": "fit", "Arguments": "a b"}, {"JobName": "fat", "Arguments": "a c"})
    house.submitted({"JobName": "a" * 200})
    writers = set()
    house.do(Change(lambda _: writers.add(threading.current_thread().name)))
    assert kill(house, "Arguments=b*").json["changed"] == 1
    assert kill(house, name="f?t", job_group="*", job_class="*").json["changed"] == 0
    assert kill(house, name="f?t", states=["Waiting"]).json["changed"] == 1
    assert threads
    assert not threads & writers
    assert states(house) == "KKW"


def test_many_stars_in_a_name_hold_up_nobody(house):
    house.submitted({"JobName": "a" * 200})
    for pattern in ("*a" * 100 + "*b", "*a" * 100 + "*b*"):
        assert kill(house, name=pattern).json["changed"] == 0
        assert house.get(f"/v1/jobs?name={quote(pattern)}")["jobs"] == []
    assert kill(house, name="*a" * 100 + "*").json["changed"] == 1


def test_what_is_too_dear_for_one_job_is_refused_before_anything_is_done(house, monkeypatch):
    monkeypatch.setattr(job_lists, "MOST_STEPS", 200_000)
    monkeypatch.setattr(choice, "_MOST_STEPS", 200_000)
    monkeypatch.setattr("lodesman.server.reads.submission_counts.MOST_STEPS", 200_000)
    house.submitted({"Arguments": "a" * 10_000})
    for answer in (
        kill(house, DEAR),
        house.call("GET", f"/v1/jobs?where={quote(DEAR)}", token="ann"),
        house.call("GET", f"/v1/submissions?where={quote(DEAR)}", token="ann"),
    ):
        assert (answer.status, answer.code) == (400, "invalid-request")
        error = answer.json["error"]
        assert "too dear" in error["message"]
        assert "where: '*a?a?" in error["message"]
        assert "200,000 steps" in error["message"]
        assert "fewer jobs" in error["hint"]
    assert states(house) == "W"


def kill_all(house, *where):
    """How many jobs each request killed, until none was left."""
    done, ranges = [], [(1, 6)]
    while ranges:
        answer = kill(house, *where, ranges=ranges).json
        done.append(answer["changed"])
        ranges = answer.get("rest", [])
    return done


def test_what_is_too_dear_for_one_request_is_left_for_the_next(house, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_STEPS", 100_000)
    for _ in range(2):
        house.submitted(*[{"Arguments": f"{'a' * 10_000}b {number}"} for number in range(3)])
    assert kill_all(house, "Arguments=*ac*") == [0, 0]
    assert len(done := kill_all(house, "Arguments=*ab", "Arguments=?", "Arguments=*b*")) > 1
    assert (sum(done), states(house)) == (6, "KKKKKK")
