"""The pilot's requests: joining, the lease, and what is learnt from answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from lodesman.base.errors import Conflict, LodesmanError, NotFound, Unauthorized, Unavailable
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import ClaimRequest
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.session import JoinRefused, ServerSession
from lodesman.wire.client import Client

NODE = WorkerNode("h", "os", "p", 2, 100, 200, "3.9", "0")
GRANTED = {"pilot": 7, "token": "tok", "lease_s": 60, "heartbeat_s": 5, "idle_s": 3}


@pytest.fixture
def script(monkeypatch):
    """What the server answers, one by one; what was asked is in `script.asked`."""

    class Script:
        def __init__(self) -> None:
            self.answers: list[Any] = []
            self.asked: list[Any] = []

    script = Script()

    def request(self, method, path, body=None, *, idempotent=False, timeout=0):
        script.asked.append((path, body, self._authorization, timeout))
        answer = script.answers.pop(0)
        if isinstance(answer, LodesmanError):
            raise answer
        return answer

    monkeypatch.setattr(Client, "request", request)
    return script


@pytest.fixture
def lost():
    return []


@pytest.fixture
def session(make_context, lost):
    context = make_context(kind=PilotContext, join_patience_s=10, idle_s=99, heartbeat_s=88)
    return ServerSession(context, on_lost=lambda: lost.append(1))


@pytest.fixture
def joined(session, script):
    script.answers.append(GRANTED)
    session.join(NODE, nonce="n", wait=lambda _: False)
    script.asked.clear()
    return session


def join(session, waits, clock=None):
    def wait(seconds):
        waits.append(seconds)
        if clock is not None:
            clock.now += 4
        return False

    return session.join(NODE, nonce="n", wait=wait)


def test_join(session, script, clock):
    script.answers = [Unavailable("Away."), LodesmanError("Broken."), GRANTED]
    waits: list[float] = []
    clock.now = 1500.0
    terms = join(session, waits)
    assert (terms.pilot, terms.token, terms.lease_s, terms.heartbeat_s, terms.idle_s) == (7, "tok", 60, 5, 3)
    assert len(waits) == 2
    assert session.last_contact == 1500.0
    path, body, authorization, _ = script.asked[0]
    assert (path, authorization) == ("/v1/pilots/join", {})
    assert body == {"join_token": "join", "protocol": 1, "nonce": "n", "node": asdict(NODE)}
    # The same words each time: an answer that was lost is asked for again.
    assert script.asked[0] == script.asked[1] == script.asked[2]
    assert "tok" not in repr(terms)


def test_what_the_answer_leaves_out_is_as_in_the_file(session, script):
    script.answers = [{"token": "t", "heartbeat_s": 0}]
    terms = join(session, [])
    assert (terms.idle_s, terms.lease_s, terms.heartbeat_s) == (99, 1800, 0.1)


@pytest.mark.parametrize("fault", [Unauthorized("No."), Conflict("Used."), NotFound("Who?")])
def test_a_refused_join_is_not_repeated(session, script, fault):
    script.answers = [fault]
    with pytest.raises(JoinRefused):
        join(session, [])


def test_patience_ends(session, script, clock):
    script.answers = [Unavailable("Away.")] * 10
    with pytest.raises(Unavailable, match=r"in 10 s: Away\."):
        join(session, [], clock)
    assert len(script.asked) == 4  # at 0, 4, 8 and 12 s


def test_an_answer_without_sense_is_no_answer(session, script, clock):
    script.answers = [None, {"token": 5}, [], {}, {**GRANTED, "lease_s": -1}, {**GRANTED, "idle_s": "soon"}]
    with pytest.raises(Unavailable):
        join(session, [], clock)


def test_a_pilot_that_is_ended_before_it_joined(session, script):
    script.answers = [Unavailable("Away.")]
    with pytest.raises(Unavailable, match="ended"):
        session.join(NODE, nonce="n", wait=lambda _: True)


def test_claim(joined, script):
    script.answers = [{"jobs": [{"id": 1, "attempt": 1, "spec": {"executable": "x"}}], "drain": True}]
    claim = joined.claim(joined.client(), ClaimRequest(2, 3, 400, 500, 40.0, 70.5), "claim-1")
    assert ([job.key.id for job in claim.jobs], claim.drain) == ([1], True)
    path, body, authorization, timeout = script.asked[0]
    assert path == "/v1/pilots/claim"
    assert body == {
        "claim_token": "claim-1",
        "count": 2,
        "ahead": 0,
        "wait_s": 40.0,
        "resource": {"cores": 3, "memory_mb": 400, "norm_cpu_seconds": 500, "last_end_s": 70.5},
    }
    assert authorization == {"Authorization": "Bearer tok"}
    assert timeout > 40


@pytest.mark.parametrize(("told", "most"), [({"sandbox_mb": 7}, 7), ({}, 200), ({"sandbox_mb": 0}, 200)])
def test_the_join_answers_with_the_maximum_output(session, script, told, most):
    script.answers = [{**GRANTED, **told}, {"jobs": [{"id": 1, "attempt": 1, "spec": {"executable": "x"}}]}]
    join(session, [])
    (job,) = session.claim(session.client(), ClaimRequest(1, 1, 1, 0, 0.0), "claim-1").jobs
    assert (job.limits.output_mb, job.limits.max_output_mb) == (0, most)


def test_a_heartbeat_renews_the_lease(joined, script):
    script.answers = [{"lease_s": 120, "kill": [{"id": 1, "attempt": 2, "reason": "r"}]}, {}]
    client = joined.client()
    assert joined.beat(client, [{"id": 1}], "running").kill == {(1, 2): "r"}
    assert joined.lease_s == 120
    joined.beat(client, [], "idle")
    assert joined.lease_s == 120
    assert script.asked[0][1] == {"jobs": [{"id": 1}], "state": "running"}


@pytest.mark.parametrize("answer", [{}, Conflict("Stale."), NotFound("Gone.")])
def test_every_answer_is_contact(joined, script, clock, answer):
    script.answers = [answer]
    clock.now += 50
    try:
        joined.report(joined.client(), [])
    except LodesmanError:
        assert isinstance(answer, LodesmanError)
    assert joined.last_contact == clock.now


@pytest.mark.parametrize("fault", [Unavailable("Away."), LodesmanError("Broken.")])
def test_no_answer_is_none(joined, script, clock, fault):
    before = joined.last_contact
    script.answers = [fault]
    clock.now += 50
    with pytest.raises(LodesmanError):
        joined.report(joined.client(), [])
    assert joined.last_contact == before


def test_a_disowned_pilot_is_lost_at_once(joined, script, lost):
    script.answers = [Unauthorized("Who?")]
    with pytest.raises(Unauthorized):
        joined.beat(joined.client(), [], "idle")
    assert joined.lost
    assert lost == [1]


def test_leave(joined, script):
    script.answers = [{}, Unavailable("Away.")]
    assert joined.leave("idle", "")
    assert not joined.leave("idle", "")
    assert script.asked[0][:2] == ("/v1/pilots/leave", {"reason": "idle", "message": ""})


def test_delays_grow_and_are_bounded(make_context):
    context = make_context(kind=PilotContext)
    assert all(0 <= context.delay(n) <= min(30, 0.25 * 2 ** (n - 1)) for n in range(1, 50))
