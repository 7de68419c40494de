"""The queue that a pilot runs in, which SubmitPools its queue serves, and what it says of both when it joins."""

from __future__ import annotations

from typing import Any

import pytest

from lodesman.base.errors import Forbidden, LodesmanError, TooLarge, Unauthorized, Unavailable
from lodesman.pilot.context import PilotFile, PilotOptions, parse_pilot_file
from lodesman.pilot.session import (
    _MAX_PRESENTED,
    BatchQueue,
    ServerSession,
    find_queue,
    join_facts,
)
from lodesman.wire.client import Client

QUEUE = BatchQueue("S", "C", "Q")
ENVIRONMENT = {"LODESMAN_SITE": "S", "LODESMAN_CE": "C", "LODESMAN_QUEUE": "Q"}
GRANTED = {"pilot": 7, "token": "tok"}
FOUND = {
    "pass": 3,
    "at": 50.0,
    "queues": [{"site": "S", "ce": "C", "queue": "Q", "pools": ["req1:a", "req1:b"]}],
}


def pilot_file(**more):
    return PilotFile(("http://127.0.0.1:1",), "join", "s1", PilotOptions(join_patience_s=10), **more)


@pytest.mark.parametrize(
    ("told", "environment", "place"),
    [
        ({"site": "A", "ce": "B", "queue": "D"}, ENVIRONMENT, ("A", "B", "D")),
        ({}, ENVIRONMENT, QUEUE),
        ({"site": "A"}, ENVIRONMENT, ("A", "C", "Q")),
        ({}, {"LODESMAN_SITE": "S", "LODESMAN_CE": "C"}, None),
        ({}, {}, None),
        ({"site": "S", "ce": "C"}, {"SLURM_JOB_PARTITION": "long", "SLURM_JOB_ID": "5"}, ("S", "C", "long")),
        ({"site": "S", "ce": "C"}, {"PBS_QUEUE": "long", "PBS_JOBID": "5"}, ("S", "C", "long")),
        ({"site": "S", "ce": "C"}, {"LSB_QUEUE": "long", "LSB_JOBID": "5"}, ("S", "C", "long")),
        ({"site": "S", "ce": "C"}, {"QUEUE": "long", "SGE_ROOT": "/sge"}, ("S", "C", "long")),
        ({"site": "S", "ce": "C"}, {"QUEUE": "anything"}, None),
        ({"site": "S", "ce": "C"}, {"SLURM_JOB_PARTITION": "long"}, None),
        ({"site": "S", "ce": "C"}, {**ENVIRONMENT, "PBS_QUEUE": "p", "PBS_JOBID": "1"}, ("S", "C", "Q")),
        (
            {},
            {"LODESMAN_SITE": "a/b c", "LODESMAN_CE": "'\"", "LODESMAN_QUEUE": "\u00e9"},
            ("a/b c", "'\"", "\u00e9"),
        ),
    ],
)
def test_the_file_comes_first_then_what_the_site_says_then_the_batch_system(told, environment, place):
    assert find_queue(pilot_file(**told), environment) == place


def test_what_is_presented():
    place = {"site": "S", "ce": "C", "queue": "Q"}
    assert join_facts(None, pilot_file(submit_pools=("a",), pools_pass=1)) == {}
    assert join_facts(QUEUE, pilot_file()) == {"place": place}
    found = join_facts(QUEUE, pilot_file(submit_pools=("a", "b"), pools_pass=7))
    assert found == {"place": place, "pools_pass": 7, "submit_pools": ["a", "b"]}
    many = tuple(map(str, range(_MAX_PRESENTED + 1)))
    assert join_facts(QUEUE, pilot_file(submit_pools=many, pools_pass=7)) == {"place": place, "pools_pass": 7}


def test_the_file_names_the_pools_and_their_refresh():
    base = '{"servers": ["https://s"], "join_token": "t", "stamp": "s"'
    found = parse_pilot_file(base + ', "submit_pools": ["a"], "pools_pass": 9}')
    assert (found.submit_pools, found.pools_pass) == (("a",), 9)
    assert parse_pilot_file(base + "}").submit_pools is None


@pytest.fixture
def script(monkeypatch):
    """What the server answers, one by one; what was asked is in `script.asked`."""

    class Script:
        def __init__(self) -> None:
            self.answers: list[Any] = []
            self.asked: list[Any] = []

    script = Script()

    def request(self, method, path, body=None, *, idempotent=False, timeout=0):
        script.asked.append((path, body, self._authorization.get("Authorization", "")))
        answer = script.answers.pop(0)
        if isinstance(answer, LodesmanError):
            raise answer
        return answer

    monkeypatch.setattr(Client, "request", request)
    return script


@pytest.fixture
def join(script, make_context, node):
    def go(file, queue):
        session = ServerSession(make_context(pilot_file=file), on_lost=lambda: None)
        session.join(node, nonce="n", wait=lambda _: False, queue=queue)
        return session

    return go


def test_a_pilot_without_a_queue_asks_before_it_joins(script, join):
    script.answers = [FOUND, GRANTED]
    session = join(pilot_file(), QUEUE)
    (path, body, token), (other, joined, nobody) = script.asked
    assert (path, body, token) == (
        "/v1/submit-pools/for-queues",
        {"queues": [["S", "C", "Q"]]},
        "Bearer join",
    )
    assert (other, nobody) == ("/v1/pilots/join", "")
    assert joined["place"] == {"site": "S", "ce": "C", "queue": "Q"}
    assert (joined["submit_pools"], joined["pools_pass"]) == (["req1:a", "req1:b"], 3)
    assert (session.file.submit_pools, session.file.pools_pass) == (("req1:a", "req1:b"), 3)


def test_a_pilot_with_a_queue_does_not_ask(script, join):
    script.answers = [GRANTED]
    join(pilot_file(submit_pools=("req1:x",), pools_pass=2), QUEUE)
    ((_, body, _),) = script.asked
    assert (body["submit_pools"], body["pools_pass"]) == (["req1:x"], 2)


def test_a_pilot_that_does_not_know_where_it_runs_says_nothing_of_it(script, join):
    script.answers = [GRANTED]
    join(pilot_file(), None)
    ((path, body, _),) = script.asked
    assert path == "/v1/pilots/join"
    assert not {"place", "submit_pools", "pools_pass"} & set(body)


@pytest.mark.parametrize("fault", [Forbidden("No."), Unauthorized("Who?"), TooLarge("Many.")])
def test_a_question_that_is_refused_does_not_keep_a_pilot_from_joining(script, join, fault):
    script.answers = [fault, GRANTED]
    assert join(pilot_file(), QUEUE).file.submit_pools is None
    assert script.asked[1][1]["place"] == {"site": "S", "ce": "C", "queue": "Q"}
    assert "submit_pools" not in script.asked[1][1]


def test_a_server_that_is_away_is_asked_again(script, join):
    script.answers = [Unavailable("Away."), FOUND, Unavailable("Away."), GRANTED]
    assert join(pilot_file(), QUEUE).file.pools_pass == 3
    assert [path.rsplit("/", 1)[1] for path, _, _ in script.asked] == [
        "for-queues",
        "for-queues",
        "join",
        "join",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        None, [], "x", {}, {"pass": 1, "at": 2}, {"pass": "1", "at": 2, "queues": [{"pools": []}]},
        {"pass": 1, "at": 2, "queues": []},
        {"pass": 1, "at": 2, "queues": [{"pools": [1]}]}, {"pass": 1, "at": 2, "queues": [{"pools": None}]},
        {"pass": 1, "at": 2, "queues": [7]},
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense(script, make_context, answer):
    script.answers = [answer]
    session = ServerSession(make_context(pilot_file=pilot_file()), on_lost=lambda: None)
    with pytest.raises(Unavailable, match="cannot be read"):
        session._ask_pools(QUEUE)
