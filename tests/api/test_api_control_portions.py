"""POST /v1/jobs/control with more rows than one command takes: one answer, others in between, the truth of a failure."""

from __future__ import annotations

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.writer import control
from lodesman.server.writer.control import Control

pytestmark = pytest.mark.stores


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(control, "MOST_ROWS", 2)


@pytest.fixture
def commands(house, monkeypatch):
    """The Control commands that were posted; `fail_at` lets that one be refused."""
    posted = []
    real = house.core.commands.run

    async def command(one, **how):
        if isinstance(one, Control):
            posted.append(one)
            if len(posted) == getattr(house, "fail_at", 0):
                raise Unavailable("The disk of the server is full.", hint="Try again later.", limit=7)
        return await real(one, **how)

    monkeypatch.setattr(house.core.commands, "run", command)
    return posted


def states(house):
    found = house.get("/v1/jobs?first=1&last=99&limit=1000&all=true", "admin")["jobs"]
    return [job["state"] for job in found]


def test_one_answer_adds_up_what_several_commands_did(house, commands):
    house.submitted(*[{}] * 5)
    house.claim(house.pilot())
    assert house.control("hold", 1, 5).json == {
        "changed": 4, "refused": 1, "examples": [{"id": 1, "reason": "it is Matched"}],
    }  # fmt: skip
    assert len(commands) == 3
    assert states(house) == ["Matched"] + ["Held"] * 4


def test_little_takes_one_command(house, commands):
    house.submitted({"Parameters": 100_000})
    assert house.control("kill", 1, 100_000).json["changed"] == 100_000
    assert len(commands) == 1


def test_others_are_served_between_two_commands(house, commands, monkeypatch):
    house.submitted(*[{}] * 6)
    pilot = house.pilot()
    first, _ = house.open(
        "POST", "/v1/jobs/control", {"action": "kill", "ranges": [[1, 6]]}, token="ann"
    )  # fmt: skip
    second, connection = house.open("POST", "/v1/pilots/claim", house.claim_body(), token=pilot)
    house.run(second)
    (job,) = connection.answer().json["jobs"]
    assert 2 < job["id"] < 6
    house.run(first)
    assert states(house) == ["Killed"] * 6


def test_only_what_the_caller_may_touch_in_every_command(house, commands):
    house.submitted({}, {}, {})
    house.submitted({}, {}, {}, token="bob")
    house.submitted({}, {}, {})
    assert house.control("kill", 1, 9).json == {"changed": 6, "refused": 0, "examples": []}
    assert states(house)[3:6] == ["Waiting"] * 3


@pytest.mark.parametrize("at", [2, 3])
def test_a_failure_in_the_middle_reports_what_was_done(house, commands, at):
    house.submitted(*[{}] * 7)
    house.fail_at = at
    answer = house.control("kill", 1, 7)
    done = 2 * (at - 1)
    assert (answer.status, answer.code) == (503, "unavailable")
    error = answer.json["error"]
    assert error["message"] == (
        f"The disk of the server is full. Until then kill had changed {done} jobs; from job {done + 1} on nothing was done."
    )
    assert error["hint"] == "Try again later."
    assert error["data"] == {"limit": 7, "changed": done, "refused": 0, "rest": [[done + 1, 7]]}
    assert states(house) == ["Killed"] * done + ["Waiting"] * (7 - done)
    house.fail_at = 0
    again = house.control("kill", 1, 7).json
    assert (again["changed"], again["refused"]) == (7 - done, done)


def test_a_failure_of_the_first_is_what_it_is(house, commands):
    house.submitted(*[{}] * 3)
    house.fail_at = 1
    error = house.control("kill", 1, 3).json["error"]
    assert (error["message"], error["data"]) == ("The disk of the server is full.", {"limit": 7})
    assert states(house) == ["Waiting"] * 3
