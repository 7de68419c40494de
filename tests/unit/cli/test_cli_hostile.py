"""Everything that a server can say, said with hostile texts: no table, sentence or error steers a terminal."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.unit.cli.conftest import HOSTILE, poisoned

FORBIDDEN = frozenset("\x1b\x07\x9b\u202e\u200b\r\x00")
NOW = time.time()


JOB = {
    "id": 5, "state": "Failed", "attempt": 1, "since": NOW, "reason": "r", "owner": "ann", "group": "g", "vo": "v",
    "name": "n", "submitted_at": NOW, "task_queue": 1, "template": 1, "submission": 1, "last_event": 1,
    "last_attempt": 1, "site": "s", "pilot": 1, "claimed_at": NOW, "started_at": NOW, "ended_at": NOW,
    "outcome": "Failed", "cause": "exit", "exit_code": 3, "signal": None, "cpu_seconds": 1.0, "wall_seconds": 1.0,
    "max_rss_mb": 1.0, "output_sha256": "f", "output_size": 1, "message": "m", "base": 5, "main_reason": "next",
}  # fmt: skip
ATTEMPT = {**JOB, "number": 1, "previous": None}
EVENT = {"at": NOW, "event": "Done", "reason": "r", "by": "user"}
PILOT = {
    "id": 1, "stamp": "s", "state": "Running", "vo": "v", "owner": "o", "group": "g", "pilot_type": "private",
    "submission_pool": "p", "task_queue": 1, "site": "s", "ce": "c", "queue": "q", "native_id": "n",
    "created_at": NOW, "submitted_at": NOW, "joined_at": NOW, "last_seen": NOW, "ended_at": None, "drain": 0,
    "reason": "r", "jobs_done": 1,
}  # fmt: skip
WHY = {
    "id": 5, "state": "Waiting", "reason": "", "verdict": "never", "summary": "s",
    "who": "w", "main_reason": "next",
    "chain": [{"step": "access", "holds": False, "text": "t", "age_seconds": 1.0}],
    "task_queue": {"id": 1, "waiting": 2, "ahead": 1, "more_ahead": False},
    "queues": {
        "total": 2, "eligible": 0, "ruled_out_by": [{"criterion": "c", "queues": 1}],
        "nearest": [{"change": ["c"], "text": "t", "queues": 1,
                     "steps": [{"criterion": "c", "asked": 1, "options": [{"value": "v", "queues": 1},
                                                                          {"value": "w", "queues": 2}]}],
                     "example": {"site": "s", "ce": "c", "queue": "q", "reasons": ["r"]}}],
    },
    "director": {"decided_seconds_ago": 1.0, "iterated_seconds_ago": 1.0, "lines": ["l", "m"], "room": 1},
}  # fmt: skip
KEY = {
    "owner": "o", "group": "g", "vo": "v", "sites": ["s"], "banned_sites": ["s"], "grid_ces": ["c"],
    "platforms": ["p"], "tags": ["t"], "submission_pools": ["p"], "submit_pool": "x", "pilot_type": "private",
    "cores": 2, "memory_mb": 100, "norm_cpu_seconds": 60, "user_priority": 2,
}  # fmt: skip
USAGE = {
    "states": {"Done": 1}, "sites": [{"site": "s", "cpu_seconds": 1.0, "outcomes": {"Done": 1}}],
    "groups": [{"group": "g", "share": 1.0, "claims": 1, "private": 0, "compared": 1, "target": 1.0}],
    "waiting_seconds": {"count": 1, "p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0, "most": 1.0},
    "running_seconds": {"count": 1, "p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0, "most": 1.0},
    "faulty": [{"id": 1, "count": 1, "state": "Held", "reason": "r"}],
    "attempts": {"all": 1, "jobs": 1, "same_number_twice": 0},
    "pilots": [{"site": "s", "state": "Running", "pilots": 1}],
}  # fmt: skip
QUEUE = {
    "site": "s", "ce": "c", "queue": "q", "pilots": {"Running": 1},
    "parameters": {"Platform": {"value": "p", "level": "site"}, "Odd": {"value": ["o"], "level": "queue"}},
}  # fmt: skip
NEAR = {
    "change": ["Memory"], "text": "t", "task_queues": 1, "jobs": 1,
    "steps": [{"criterion": "c", "offered": 1,
               "options": [{"value": "v", "task_queues": 1}, {"value": 2, "task_queues": 2}]}],
    "example": {"task_queue": 1, "owner": "o", "group": "g", "reasons": ["r"]},
}  # fmt: skip
WHY_PILOT = {
    "id": 5, "state": "Running", "verdict": "nothing fits", "summary": "s", "who": "w",
    "chain": [{"step": "asks", "holds": False, "text": "t", "age_seconds": 1.0}],
    "task_queues": {"nearest": [NEAR]},
}  # fmt: skip
WHY_QUEUE = {
    "site": "s", "ce": "c", "queue": "q", "vo": "v", "verdict": "not now", "summary": "s", "who": "w",
    "chain": [{"step": "room", "holds": False, "text": "t", "age_seconds": 1.0}],
    "work": {"nearest": [NEAR]}, "director": {"decided_seconds_ago": 1.0, "iterated_seconds_ago": 1.0, "lines": ["l"]},
    "lately": [{"id": 5, "stamp": "s", "state": "Done", "reason": "r", "sent_seconds_ago": 1.0, "joined": True,
                "ended_seconds_ago": 1.0, "jobs_done": 1}],
}  # fmt: skip
SITE = {"site": "s", "ces": 1, "queues": 1, "pilots": {"Running": 1}, "running_jobs": 1}
TOKEN_ROW = {"hash": "h" * 64, "kind": "user", "account": "a", "scopes": ["s"], "note": "n", "created_at": NOW,
             "expires_at": None, "made_with": "m" * 64, "made_by": "a"}  # fmt: skip
ME = {
    "name": "n", "kind": "user", "vo": "v", "groups": ["g"], "admin": True, "scopes": ["s"],
    "inputs": {"files": 1, "bytes": 2, "limit": 3},
}  # fmt: skip

PASS = {"id": 1, "at": NOW, "cause": "c", "pools": 1, "changed": 0, "held": 0, "released": 0, "seconds": 0.1}
POOL = {
    "id": "req1:a", "vo": "v", "requirements": {"memory": {"kind": "number", "wanted": [1, "w"]}}, "queues": 1,
    "created_at": NOW, "refreshed_at": NOW, "unused_since": None, "jobs": {"waiting": 1, "held": 0, "running": 0},
}  # fmt: skip
ANSWERS = [
    (["status", "5"], "GET", "/v1/jobs", {"jobs": [JOB]}),
    (["status", "5", "--all"], "GET", "/v1/jobs", {"jobs": [JOB]}),
    (["show", "5"], "GET", "/v1/jobs/5", {**JOB, "attempts": [ATTEMPT], "events": [EVENT]}),
    (["events", "5"], "GET", "/v1/jobs/5", {**JOB, "attempts": [ATTEMPT], "events": [EVENT]}),
    (["why", "5"], "GET", "/v1/jobs/5/why", WHY),
    (["why", "pilot:5"], "GET", "/v1/pilots/5/why", WHY_PILOT),
    (["why", "s/c/q"], "GET", "/v1/queues/why", WHY_QUEUE),
    (["pilot", "ls"], "GET", "/v1/pilots", {"pilots": [PILOT]}),
    (["site", "ls"], "GET", "/v1/sites", {"sites": [SITE]}),
    (["queue", "ls"], "GET", "/v1/queues", {"queues": [QUEUE]}),
    (["queue", "ls", "--origin"], "GET", "/v1/queues", {"queues": [QUEUE]}),
    (["tq", "ls"], "GET", "/v1/task-queues", {"task_queues": [
        {"id": 1, "waiting": 1, "held": 0, "created_at": NOW, "main_reason": "next", "detail": "d", "since": NOW, **KEY}]}),
    (["tq", "reasons"], "GET", "/v1/task-queues/reasons", {"at": NOW, "facts_at": NOW, "reasons": [
        {"reason": "next", "verdict": "never", "detail": "d", "task_queues": 1, "jobs": 2, "since": NOW}]}),
    (["pool", "ls"], "GET", "/v1/submit-pools", {"pools": [POOL], "total": 1, "last_pass": PASS}),
    (["pool", "show", "req1:a"], "GET", "/v1/submit-pools/.*", {
        **POOL, "served_by": [{"site": "s", "ce": "c", "queue": "q"}], "passes": [PASS]}),
    (["usage", "shares"], "GET", "/v1/usage", USAGE),
    (["token", "ls"], "GET", "/v1/tokens", {"tokens": [TOKEN_ROW]}),
    (["whoami"], "GET", "/v1/me", ME),
    (["user", "add", "n", "--vo", "v", "--group", "g"], "POST", "/v1/users", {"name": "n"}),
    (["kill", "5"], "POST", "/v1/jobs/control", {"changed": 1, "refused": 1, "examples": [{"id": 5, "reason": "r"}]}),
]  # fmt: skip
NAMES = [" ".join(words[:3]) for words, *_ in ANSWERS]


@pytest.mark.parametrize(("words", "method", "path", "answer"), ANSWERS, ids=NAMES)
def test_no_answer_steers_a_terminal(at, server, words, method, path, answer):
    server.on(method, path, lambda asked: poisoned(asked, answer))
    result = at(*words)
    assert result.code == 0
    assert not FORBIDDEN & set(result.out + result.err)
    assert "\nlode: all is well" not in result.out + result.err
    assert "\\x1b[2J" in result.out + result.err


@pytest.mark.parametrize(("words", "method", "path", "answer"), ANSWERS, ids=NAMES)
def test_no_error_steers_a_terminal(at, server, words, method, path, answer):
    server.refuse(method, path, 400, code="invalid-request", message=HOSTILE, hint=HOSTILE)
    result = at(*words)
    assert (result.code, result.out) == (1, "")
    assert not FORBIDDEN & set(result.err)
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(("words", "method", "path", "answer"), ANSWERS, ids=NAMES)
def test_what_another_program_says_is_no_answer(at, server, words, method, path, answer):
    answers: list[object] = [[], None, 7, "hello", b"", b"\xff\xfe", b"[" * 5_000]
    for odd in answers:
        server.on(method, path, odd)
        result = at(*words)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("lode: ")
        assert result.err.count("\n") == 1


SETTINGS = at_most(60)
WORDS = st.sampled_from(
    ["status", "show", "why", "kill", "output", "logs", "pilot", "ls", "token", "issue", "--json", "--state", "Done",
     "--limit", "5", "1-9", "0", "-", "--", "--help", "convert", "--to", "jdl", "config", "check", "\x1b[2J", ""]
)  # fmt: skip


@SETTINGS
@given(st.lists(WORDS | st.text(st.characters(exclude_characters="\0"), max_size=8), max_size=5))
def test_any_command_line_ends_with_a_documented_exit_code(at, words):
    result = at(*words)
    assert result.code in (0, 1, 2, 3, 4, 5, 6)
    assert not FORBIDDEN & set(result.err)
    assert result.code == 0 or result.err
