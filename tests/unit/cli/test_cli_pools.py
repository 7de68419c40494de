"""SubmitPools on the command line: the list, one of them, and nothing to show."""

import time

import pytest

from lodesman.user.cli.commands.task_queues import requirement_words
from lodesman.wire.task_queues import Required
from lodesman.wire.vocabulary import Kind

NOW = 1_000_000.0
POOL = {
    "id": "req2:" + "ab" * 32, "vo": "lab", "queues": 1_234, "created_at": NOW - 7_200, "refreshed_at": NOW - 60,
    "unused_since": None, "jobs": {"waiting": 1_500, "held": 2, "running": 0},
    "requirements": {"memory": {"kind": "number", "unit": "MB", "wanted": [4000]},
                     "tag": {"kind": "list", "unit": "", "wanted": ["a", "b"]}},
}  # fmt: skip
PASS = {"id": 7, "at": NOW - 60, "cause": "interval", "pools": 12, "changed": 3, "held": 0, "released": 5,
        "seconds": 0.25}  # fmt: skip


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW)


def test_the_list(at, server):
    server.on("GET", "/v1/submit-pools", {"pools": [POOL], "total": 1, "last_pass": PASS})
    found = at("pool", "ls")
    assert found.out.splitlines()[1].split() == [
        "req2:abababababab", "lab", "1,234", "1,500", "2", "0", "2.0", "h", "60", "s", "memory", "4000", "MB;", "tag",
        "a,", "b",
    ]  # fmt: skip
    assert server.asked[-1].query == {"limit": "50"}
    assert at("pool", "ls", "--json").json == {"pools": [POOL], "more": False, "last_pass": PASS}


def test_more_pools_than_are_shown(at, server):
    server.on("GET", "/v1/submit-pools", {"pools": [POOL], "total": 11, "last_pass": None})
    assert "There are 11: --limit 10." in at("pool", "ls", "--limit", "1", "--vo", "lab").err
    assert server.asked[-1].query == {"limit": "1", "vo": "lab"}
    assert at("pool", "ls", "--json").json["more"] is True


def test_no_pool(at, server):
    server.on("GET", "/v1/submit-pools", {"pools": [], "total": 0, "last_pass": None})
    found = at("pool", "ls")
    assert (found.code, found.out) == (0, "")
    assert "no known job has Requirements" in found.err


def test_one_pool(at, server):
    served = [{"site": "North", "ce": "ce", "queue": "a/b"}, {"site": "South", "ce": "ce", "queue": "q"}]
    found = {**POOL, "served_by": served, "passes": [PASS]}
    server.on("GET", "/v1/submit-pools/req2%3Aab", found)
    out = at("pool", "show", "req2:ab").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:8] == [
        f"pool {POOL['id']}", "VO lab", "asks for memory (number): 4000 MB", "asks for tag (list): a, b",
        "created 2.0 h ago", "last refresh 60 s ago", "jobs 1,500 waiting, 2 held", "queues 1,234 queues",
    ]  # fmt: skip
    assert lines[8:10] == ["served by North/ce/a/b", "served by South/ce/q"]
    assert lines[-1] == "7 60 s interval 0.2 s 12 3 0 5"
    assert at("pool", "show", "req2:ab", "--json").json == found


@pytest.mark.parametrize(("since", "told"), [(None, "jobs none"), (NOW - 3_600, "jobs none, for 60 min")])
def test_a_pool_that_no_job_needs(at, server, since, told):
    idle = {"waiting": 0, "held": 0, "running": 0}
    row = {**POOL, "jobs": idle, "unused_since": since, "queues": 1, "served_by": [], "passes": []}
    server.on("GET", "/v1/submit-pools/.*", row)
    lines = [" ".join(line.split()) for line in at("pool", "show", "r").out.splitlines()]
    assert told in lines
    assert lines[-1] == "queues 1 queue"


def test_a_pool_that_is_not_there(at, server):
    server.refuse("GET", "/v1/submit-pools/.*", 404, code="not-found", message="There is no SubmitPool x.")
    assert at("pool", "show", "x").code == 3


def test_a_pool_must_be_named(at, server):
    for nothing in ("", "  "):
        result = at("pool", "show", nothing)
        assert (result.code, server.asked) == (2, [])
        assert "ID is the beginning of a pool's id, as lode pool ls shows it" in result.err


def test_what_is_asked_for():
    assert requirement_words({}) == ""
    assert requirement_words({"gpu": Required(Kind.BOOLEAN, "", [True])}) == "gpu yes"


def test_a_pool_whose_queues_are_not_known_yet(at, server):
    unknown = {**POOL, "queues": None, "refreshed_at": None}
    server.on("GET", "/v1/submit-pools", {"pools": [unknown], "total": 1, "last_pass": PASS})
    assert at("pool", "ls").out.splitlines()[1].split()[:4] == ["req2:abababababab", "lab", "-", "1,500"]
    server.on("GET", "/v1/submit-pools/req2%3Aab", {**unknown, "served_by": [], "passes": [PASS]})
    lines = [" ".join(line.split()) for line in at("pool", "show", "req2:ab").out.splitlines()]
    assert "last refresh not yet" in lines
    assert "queues not known yet" in lines
