"""`lode host`: the list with its evidence, closing and opening."""

from __future__ import annotations

import pytest

HOSTILE = "evil\x1b[31m"


def row(host="wn1", **changes):
    return {
        "site": "North", "host": host, "shut": False, "since": 0.0, "retry_at": None, "trips": 0, "by": "", "reason": "",
        "evidence": None, "pilots": 3, "failures": 0, "text": "", **changes,
    }  # fmt: skip


@pytest.fixture
def server(server):
    shut = row("wn2", shut=True, failures=7, text="it gets no jobs, since 7 attempts failed")
    server.on("GET", "/v1/hosts", {"hosts": [row(), shut, row(HOSTILE)], "more": False, "cursor": ""})
    for order, is_shut in (("close", True), ("open", False)):
        answer = {"site": "North", "host": "wn1", "shut": is_shut, "pilots": 1}
        server.on("POST", f"/v1/hosts/{order}", answer)
    return server


def test_the_list_has_the_evidence(at, server):
    lines = at("host", "ls").out.splitlines()
    assert lines[0].split() == ["PILOTS", "FAILED", "AT", "ONCE", "HOST", "SITE", "STATE"]
    assert lines[1].split() == ["3", "0", "wn1", "North", "gets", "jobs"]
    assert lines[2].endswith("it gets no jobs, since 7 attempts failed")
    assert "\x1b" not in lines[3]
    assert at("host", "ls", "--json").json["hosts"][1]["failures"] == 7


def test_an_empty_list_says_so(at, server):
    server.on("GET", "/v1/hosts", {"hosts": [], "more": False, "cursor": ""})
    assert "No pilot has reported its host." in at("host", "ls").err


def test_closing_and_opening_say_what_they_did(at, server):
    done = at("host", "close", "wn1", "--reason", "disk")
    assert (done.code, done.out) == (0, "wn1 at North is closed: 1 pilot there will get no jobs.\n")
    assert server.asked[-1].json == {"host": "wn1", "reason": "disk"}
    assert at("host", "close", "wn1").code == 2
    done = at("host", "open", "wn1", "--site", "North", "--reason", "mended")
    assert (done.code, done.out) == (0, "wn1 at North is open: 1 pilot there will get jobs.\n")
    assert server.asked[-1].json == {"host": "wn1", "site": "North", "reason": "mended"}
