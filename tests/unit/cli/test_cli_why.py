"""`lode why` of pilots and queues: what is asked about, what is asked of the server, and what is shown."""

from __future__ import annotations

import os

import pytest
from tests.unit.cli.conftest import full

from lodesman.user.cli import explanations
from lodesman.wire.why_pilots import PilotWhy
from lodesman.wire.why_queues import QueueExplained

HOSTILE = "\x1b[2Jevil\nlode: all is well"
STAMP = "0123456789abcdef01234567"
NEAR = {
    "change": ["Memory"], "text": "Memory 2000 -> 8000", "task_queues": 2, "jobs": 1_075,
    "steps": [{"criterion": "Memory", "offered": 2_000,
               "options": [{"value": 3_000, "task_queues": 1}, {"value": 8_000, "task_queues": 2}]}],
    "example": {"task_queue": 10, "owner": "ann", "group": "physics", "reasons": ["too little"]},
}  # fmt: skip
SURVEY = {
    "task_queues": 3, "jobs": 2_000, "fitting": 0, "fitting_jobs": 0,
    "ruled_out_by": [{"criterion": "Memory", "task_queues": 3}], "nearest": [NEAR],
}  # fmt: skip
PILOT = {
    "id": 7, "stamp": STAMP, "state": "Running", "standing": "idle", "reason": "",
    "verdict": "nothing fits", "summary": "No task queue of 3 fits what it has free.",
    "who": "users, by asking for less",
    "chain": [
        {"step": "pilot", "holds": True, "text": "it runs in N/c/q", "age_seconds": 3.0},
        {"step": "asks", "holds": None, "text": "it last asked 5 s ago", "age_seconds": 5.0},
        {"step": "fits", "holds": False, "text": "0 of them fit what is free"},
    ],
    "task_queues": SURVEY,
}  # fmt: skip
QUEUE = {
    "site": "N", "ce": "c", "queue": "q", "vo": "lab", "verdict": "not now", "main_reason": "no-room-for-pilots",
    "summary": "1 task queue could be run there, and none may be sent now.", "who": "time",
    "chain": [{"step": "room", "holds": False, "text": "room for 0 pilots now", "age_seconds": 65.0}],
    "work": {**SURVEY, "fitting": 1, "nearest": []},
    "director": {
        "decided_seconds_ago": 12.0, "iterated_seconds_ago": 12.0, "lines": ["Task queue 7: pilots: 2 asked", HOSTILE],
    },
    "lately": [
        {"id": 5, "stamp": "s5", "state": "Aborted", "reason": "", "sent_seconds_ago": 65.0, "joined": False,
         "ended_seconds_ago": 5.0, "jobs_done": 0},
        {"id": 4, "stamp": "s4", "state": "Done", "reason": "idle", "sent_seconds_ago": 400.0, "joined": True,
         "ended_seconds_ago": 100.0, "jobs_done": 12},
        {"id": 3, "stamp": "s3", "state": "Running", "reason": "", "sent_seconds_ago": 500.0, "joined": True,
         "ended_seconds_ago": None, "jobs_done": 1},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["pilot:7"], "/v1/pilots/7/why"),
        (["--pilot", "7"], "/v1/pilots/7/why"),
        (["--pilot", STAMP], f"/v1/pilots/{STAMP}/why"),
        (["--pilot", "odd stamp"], "/v1/pilots/odd%20stamp/why"),
        ([f"pilot:{STAMP}"], f"/v1/pilots/{STAMP}/why"),
        ([STAMP], f"/v1/pilots/{STAMP}/why"),
        (["0" * 24], f"/v1/pilots/{'0' * 24}/why"),
    ],
)
def test_a_pilot_by_its_number_or_its_stamp(at, server, words, path):
    server.on("GET", path, PILOT)
    result = at("why", *words)
    assert result.code == 0
    assert "\n\nPilot 7: NOTHING FITS. No task queue of 3 fits what it has free.\n" in result.out
    assert [one.path for one in server.asked] == [path]


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["N/c/q"], {"path": "N/c/q"}),
        (["queue:N/c/q"], {"path": "N/c/q"}),
        (["--queue", "N/c/q"], {"path": "N/c/q"}),
        (["N/c/q&vo=x #%/?"], {"path": "N/c/q&vo=x #%/?"}),
        (["N/https://c/q", "--vo", "other"], {"path": "N/https://c/q", "vo": "other"}),
        (["--queue", "odd", "--vo", "other"], {"path": "odd", "vo": "other"}),
    ],
)
def test_a_queue_by_its_path(at, server, words, query):
    server.on("GET", "/v1/queues/why", QUEUE)
    result = at("why", *words)
    assert result.code == 0
    assert "\n\nQueue N/c/q for VO lab: NOT NOW. 1 task queue could be run there" in result.out
    assert [one.query for one in server.asked] == [query]


def test_why_a_waiting_job_went_back_stands_below_an_empty_line(at, server):
    job = {"id": 9, "state": "Waiting", "verdict": "now", "summary": "It can.", "reason": "it \x1b[2J ended"}
    server.on("GET", "/v1/jobs/9/why", job)
    assert at("why", "9").out.endswith("\n\nBefore: it \\x1b[2J ended.\n")


@pytest.mark.parametrize("words", [["9"], ["job:9"]])
def test_a_job_is_still_a_number(at, server, words):
    server.on("GET", "/v1/jobs/9/why", {"id": 9, "state": "Waiting", "verdict": "now", "summary": "It can."})
    assert at("why", *words).out == "Job 9: NOW. It can.\n"


def _job(verdict, reason, **holds):
    chain = [{"step": name, "holds": held, "text": f"as to {name}"} for name, held in holds.items()]
    queues = {"total": 1, "eligible": 1, "ruled_out_by": [], "nearest": []}
    director = {"decided_seconds_ago": None, "iterated_seconds_ago": None, "lines": []}
    return {
        "id": 9, "state": "Waiting", "verdict": verdict, "main_reason": reason, "summary": "So it is.",
        "who": "no action needed", "chain": chain, "queues": queues, "director": director,
    }  # fmt: skip


def test_nothing_is_in_the_way_of_a_job_that_is_now(at, server):
    server.on("GET", "/v1/jobs/9/why", _job("now", "pilot-expected", limits=True, pilots=False, gates=None))
    assert at("why", "9").out == "(--verbose shows all 3 steps)\n\nJob 9: NOW. So it is.\n"
    out = at("why", "9", "-v").out
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [
        ["limits", "ok"],
        ["pilots", "-"],
        ["gates", "?"],
    ]
    assert "NO " not in out


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("held", ["limits"]),
        ("limited", ["limits"]),
        ("waits-for-jobs", []),
        ("queued-behind", ["limits", "share", "gates"]),
    ],
)
def test_what_alone_is_in_the_way_is_shown_alone(at, server, reason, shown):
    answer = _job("not now", reason, limits=False, pilots=True, share=False, gates=False)
    server.on("GET", "/v1/jobs/9/why", answer)
    lines = at("why", "9").out.splitlines()
    assert [line.split()[0] for line in lines if " NO " in line] == shown
    assert lines[-1] == "Job 9: NOT NOW. So it is."


@pytest.mark.parametrize(
    ("summary", "cut"), [("It waits. " * 55, True), ("It waits. " * 65, False), ("It waits. " * 20, False)]
)
def test_beside_a_long_verdict_a_step_has_one_line(at, server, monkeypatch, summary, cut):
    """A terminal of 80 columns shows 12 lines at most."""
    monkeypatch.setattr(explanations, "is_terminal", lambda _: True)
    monkeypatch.setattr(explanations.shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    answer = _job("not now", "no-room-for-pilots", gates=False)
    answer["chain"][0]["text"], answer["summary"] = "0 of 20 queues have room; " * 8, summary.strip()
    server.on("GET", "/v1/jobs/9/why", answer)
    lines = at("why", "9").out.splitlines()
    assert sum(-(-max(1, len(line)) // 80) for line in lines) <= 12
    rows = [line for line in lines if line.startswith("gates")]
    assert len(rows) == (len(summary) < 600)
    assert any("of..." in row for row in rows) is cut


@pytest.mark.parametrize("words", [["9", "--queue", "N/c/q"], ["--queue", "N/c/q", "job:9"]])
def test_what_one_queue_has_against_a_job(at, server, words):
    queue = {"site": "N", "ce": "c", "queue": "q", "eligible": False, "ruled_out_by": ["Memory"], "room": 0,
             "reasons": ["too little memory", HOSTILE], "gate": "MaxTotalJobs 10 - 10 waiting and running"}  # fmt: skip
    server.on("GET", "/v1/jobs/9/why", {
        "id": 9, "state": "Waiting", "verdict": "not now", "summary": "Full.", "who": "time", "queue": queue,
    })  # fmt: skip
    out = at("why", *words).out
    assert server.asked[0].query == {"queue": "N/c/q"}
    assert "Queue N/c/q: cannot run it.\n  too little memory\n" in out
    assert "  free capacity for 0 pilots (MaxTotalJobs 10 - 10 waiting and running)\n" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "words",
    [[], ["x"], ["a/b"], ["1-5"], ["0"], ["pilot:"], ["pilot:a/b"], ["queue:a/b"], ["queue:"], ["//"], ["a//c"], ["/b/c"],
     ["a/b/"], ["job:x"], ["7", "--pilot", "7"], ["--pilot", "7", "--queue", "a/b/c"], ["7", "--vo", "lab"],
     ["7", "8"], [STAMP.upper()], [STAMP[:-1]], ["planet:7"]],
)  # fmt: skip
def test_what_is_no_job_no_pilot_and_no_queue(lode, words):
    result = lode("why", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("lode: ")
    assert result.err.endswith("See: lode why --help\n")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("word", ["A.one", "A.one/a", "North"])
def test_a_site_is_no_job_and_the_answer_says_what_to_write(lode, word):
    result = lode("why", word)
    assert result.code == 2
    words = " ".join(result.err.split())
    assert (
        f"'{word}' is none of what is explained; write the number of a job, pilot:NUMBER or SITE/CE/QUEUE. Of a site see"
        in words
    )
    assert "lode site show" in words


def test_a_pilot_step_by_step(at, server):
    server.on("GET", "/v1/pilots/7/why", PILOT)
    result = at("why", "pilot:7", "--verbose")
    lines = result.out.splitlines()
    assert lines[0].split() == ["STEP", "WHAT", "IS", "KNOWN", "AGE"]
    assert lines[1].split()[:2] == ["pilot", "ok"]
    assert lines[2].split()[:2] == ["asks", "?"]
    assert lines[3].split()[:2] == ["fits", "NO"]
    assert lines[5:] == [
        "Suggestions:",
        "  Memory 2000 -> 8000: 2 task queues, 1,075 jobs, for instance task queue 10 of ann (physics)",
        "    Memory: 3000 (1), 8000 (2)",
        "",
        "Pilot 7: NOTHING FITS. No task queue of 3 fits what it has free.",
        "Who can change that: users, by asking for less.",
    ]
    assert at("why", "pilot:7", "--json").json == full(PilotWhy, PILOT)


@pytest.mark.parametrize(
    ("verdict", "who"),
    [("ended", "no one: it has ended"), ("would get a job now", "no action needed")],
)
def test_without_a_need_to_act_no_one_is_named(at, server, verdict, who):
    answer = {**PILOT, "verdict": verdict, "who": who, "summary": "So it is.", "chain": []}
    del answer["task_queues"]
    server.on("GET", "/v1/pilots/7/why", answer)
    assert at("why", "pilot:7").out == f"Pilot 7: {verdict.upper()}. So it is.\n"


def test_a_queue_with_the_pilots_sent_there_lately(at, server):
    server.on("GET", "/v1/queues/why", QUEUE)
    result = at("why", "N/c/q", "-v")
    assert "Who can change that: time.\n" in result.out
    assert "Director (decided 12 s ago):\n  Task queue 7: pilots: 2 asked\n  \\x1b[2Jevil" in result.out
    rows = [line.split() for line in result.out.splitlines()[-7:-3]]
    assert rows[0] == ["PILOT", "STATE", "SENT", "JOBS", "REMARK"]
    assert rows[1] == ["5", "Aborted", "65", "s", "ago", "0", "never", "joined"]
    assert rows[2] == ["4", "Done", "7", "min", "ago", "12", "idle"]
    assert rows[3] == ["3", "Running", "8", "min", "ago", "1", "-"]
    assert "\x1b" not in result.out
    assert at("why", "N/c/q", "--json").json == full(QueueExplained, QUEUE)


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(404, "not-found", 3), (403, "forbidden", 4), (400, "invalid-request", 1)],
)
@pytest.mark.parametrize("words", [["pilot:7"], ["N/c/q"]])
def test_the_exit_codes_are_those_of_all_commands(at, server, words, status, code, exit_code):
    server.refuse("GET", "/v1/.*", status, code=code, message="There is none such.")
    result = at("why", *words)
    assert (result.code, result.out) == (exit_code, "")
    assert result.err.startswith("lode: There is none such.")


def test_the_help_has_an_example_of_each(lode):
    text = lode("why", "--help").out
    for example in ("lode why 42 ", "lode why pilot:7", "lode why LCG.North/ce.north/short"):
        assert example in text
    assert "\\b" not in text
