"""`lode site test`: begun, followed to its end, shown, and stopped by Ctrl-C."""

from __future__ import annotations

import pytest

from lodesman.user.cli.commands import site_tests

GOOD = [
    ("submit", "ok", "accepted as 7_1"),
    ("status", "ok", "it ended"),
    ("forget", "ok", "nothing is left there"),
]
BAD = [*GOOD[:1], ("server", "failed", "it does not answer"), ("clock", "unknown", "no server answered")]


def answer(*checks, state="finished", **more):
    rows = [
        {"site": "North", "ce": "ce", "queue": "q", "check": check, "result": result, "seconds": 1.25, "detail": detail}
        for check, result, detail in checks
    ]  # fmt: skip
    return {"test": "abc", "path": "North", "state": state, "queues": 1, "checks": rows, **more}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(site_tests.time, "sleep", lambda _: None)


@pytest.fixture
def answers(server):
    """What the server answers, one after the other."""
    found = [answer(*GOOD)]
    server.on("POST", "/v1/site-tests", answer(state="running"))
    server.on("GET", "/v1/site-tests/abc", lambda _: found.pop(0) if len(found) > 1 else found[0])
    server.on("DELETE", "/v1/site-tests/abc", answer(state="stopping"))
    return found


def test_a_good_site(at, server, answers):
    answers[:] = [answer(*GOOD[:1], state="running"), answer(*GOOD)]
    done = at("site", "test", "North")
    assert done.code == 0
    assert done.out.splitlines() == [
        "QUEUE       CHECK   RESULT  SECONDS  DETAIL",
        "North/ce/q  submit  ok          1.2  accepted as 7_1",
        "North/ce/q  status  ok          1.2  it ended",
        "North/ce/q  forget  ok          1.2  nothing is left there",
    ]
    assert done.err == "lode: North: 3 checks, 0 failed.\n"
    assert server.of("POST", "/v1/site-tests")[0].json == {"path": "North", "seconds": 300.0}
    assert len(server.of("GET", ".*")) == 2


def test_a_failed_check(at, answers):
    answers[:] = [answer(*BAD)]
    done = at("site", "test", "North")
    assert (done.code, done.err) == (1, "lode: North: 3 checks, 1 failed, 1 unknown.\n")
    assert "failed       1.2  it does not answer" in done.out
    done = at("site", "test", "North", "--json")
    assert (done.code, done.err) == (1, "")
    assert [one["result"] for one in done.json["checks"]] == ["ok", "failed", "unknown"]


def test_what_is_unknown_is_no_failure(at, answers):
    answers[:] = [answer(BAD[2])]
    assert at("site", "test", "North").code == 0
    assert at("site", "test", "North", "--json").code == 0


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (("North/ce/q", "--timeout", "5"), {"path": "North/ce/q", "seconds": 5.0}),
        (("North", "--queue", "ce/q"), {"path": "North/ce/q", "seconds": 300.0}),
        (("North", "c/e", "q"), {"site": "North", "ce": "c/e", "queue": "q", "seconds": 300.0}),
    ],
)
def test_how_a_queue_is_named(at, server, answers, words, body):
    assert at("site", "test", *words).code == 0
    sent = server.of("POST", "/v1/site-tests")[0].json
    assert {"seconds": 300.0, **sent} == body


@pytest.mark.parametrize(
    "words", [("North", "ce", "--queue", "ce/q"), (), ("North", "--timeout", "0"), ("a", "b", "c", "d")]
)
def test_wrong_usage(at, server, words):
    assert at("site", "test", *words).code == 2
    assert server.asked == []


def test_notes(at, answers):
    answers[:] = [answer(left_out=5, state="stopped")]
    done = at("site", "test", "North")
    assert "lode: North has no queues.\n" in done.err
    assert "lode: 5 queues more: test a CE of it, or a queue.\n" in done.err
    assert "lode: The test was stopped before its end.\n" in done.err


def interrupted(_):
    raise KeyboardInterrupt


def test_ctrl_c_stops_the_test(at, server, answers, monkeypatch):
    monkeypatch.setattr(site_tests.time, "sleep", interrupted)
    done = at("site", "test", "North")
    assert (done.code, done.out) == (130, "")
    assert done.err == "lode: The server cancels the test jobs.\nlode: interrupted\n"
    assert len(server.of("DELETE", "/v1/site-tests/abc")) == 1


def test_ctrl_c_while_the_server_does_not_answer(at, server, answers, monkeypatch):
    monkeypatch.setattr(site_tests.time, "sleep", interrupted)
    server.refuse("DELETE", "/v1/site-tests/abc", 404, code="not-found", message="There is no test abc.")
    done = at("site", "test", "North")
    assert done.code == 130
    assert "lode: The server cancels the test jobs in a minute: There is no test abc.\n" in done.err


def test_a_restart_of_the_server(at, server, answers):
    server.refuse("GET", "/v1/site-tests/abc", 404, code="not-found", message="There is no test abc.")
    done = at("site", "test", "North")
    assert (done.code, done.err) == (3, "lode: There is no test abc.\n")


def test_who_may_not(at, server):
    server.refuse("POST", "/v1/site-tests", 403, code="forbidden", message="This token does not allow this.")
    assert at("site", "test", "North").code == 4


def test_progress_is_for_terminals(at, answers, monkeypatch):
    same, new = {"North/ce/q": "a test job waits"}, {"North/ce/q": "a test job is running\x1b[2J"}
    steps = [answer(state="running", doing=doing) for doing in (same, same, new)]
    answers[:] = [*steps, answer(*GOOD)]
    assert "waits" not in at("site", "test", "North").err
    answers[:] = [*steps, answer(*GOOD)]
    monkeypatch.setattr(site_tests, "is_terminal", lambda _: True)
    err = at("site", "test", "North").err
    assert err.count("lode: North/ce/q: a test job waits\n") == 1
    assert err.count("lode: North/ce/q: a test job is running\\x1b[2J\n") == 1


def test_a_hostile_detail_is_escaped(at, answers):
    answers[:] = [answer(("python", "ok", "\x1b[2Jowned\n"))]
    out = at("site", "test", "North").out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2
