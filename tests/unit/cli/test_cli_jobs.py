"""`lode status`, `show`, `events`, `why`, `logs` and the actions: questions asked, answers shown."""

import io
import json
import re
import time

import click
import pytest
from tests.unit.cli.conftest import full, job_row, typed, waited

from lodesman.languages.jobs.spec import TERMINAL
from lodesman.user.access.selecting import ELSEWHERE
from lodesman.user.cli import tables
from lodesman.user.cli.arguments import Range, StateWords
from lodesman.user.cli.columns import ListShape
from lodesman.user.cli.commands import actions, status
from lodesman.user.cli.commands.wait import fresh
from lodesman.user.cli.job_columns import job_remark
from lodesman.user.cli.selection import Question
from lodesman.user.cli.session import Session
from lodesman.user.cli.words import FINAL, STATES
from lodesman.wire.jobs import Job
from lodesman.wire.vocabulary import JobState
from lodesman.wire.why_jobs import JobWaits

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    """Time stands still: an age is what the test says, however slow the machine is."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.fixture
def listing(server, row):
    """A server with jobs 1 to 250 of ann, which understands what a list can be asked for."""
    server.jobs = [row(number, since=time.time() - 90) for number in range(1, 251)]

    def answer(asked):
        query = asked.query
        first, last = int(query.get("first", 1)), int(query.get("last", 1 << 53))
        found = [j for j in server.jobs if first <= j["id"] <= last]
        if query.get("state"):
            found = [j for j in found if j["state"] in query["state"].split(",")]
        if query.get("reason"):
            found = [j for j in found if j["main_reason"] == query["reason"]]
        if query.get("group"):
            found = [j for j in found if j["group"] == query["group"]]
        if query.get("newest") == "true":
            found.reverse()
        return {"jobs": found[: int(query.get("limit", 1_000))]}

    server.on("GET", "/v1/jobs", answer)
    counts = [
        {"owner": "ann", "group": "physics", "state": "Waiting", "jobs": 1_000_000},
        {"owner": "ann", "group": "bio", "state": "Done", "jobs": 5},
        {"owner": "bob", "group": "physics", "state": "Waiting", "jobs": 7},
    ]
    server.on("GET", "/v1/jobs/counts", lambda asked: {
        "counts": [row for row in counts if asked.query.get("own") != "true" or row["owner"] == "ann"]
    })  # fmt: skip
    return server


# --- status


@pytest.mark.slow
def test_ones_own_jobs_the_newest_first_with_counts(at, listing):
    result = at("status", "--jobs")
    lines = result.out.splitlines()
    assert lines[0].split() == ["JOB", "NAME", "STATE", "SINCE", "AGE", "SITE", "TRIES", "REMARK"]
    assert lines[1].split()[:3] == ["250", "hello", "Waiting"]
    assert lines[1].split()[4:6] == ["90", "s"]
    assert len(lines) == 102
    assert lines[-1] == "In all: 1,000,000 Waiting, 5 Done."
    assert "--limit 1000" in result.err
    query = listing.of("GET", "/v1/jobs")[0].query
    assert query["newest"] == "true"
    assert "all" not in query
    assert "Deleted" not in query["state"]


@pytest.mark.slow
def test_a_limit_is_not_more_than_asked_for(at, listing):
    assert len(at("status", "--jobs", "--limit", "3").out.splitlines()) == 5
    assert listing.of("GET", "/v1/jobs")[0].query["limit"] == "4"
    result = at("status", "--jobs", "--limit", "250")
    assert result.err == ""


@pytest.mark.slow
def test_long_lists_come_in_pages(at, listing, row):
    listing.jobs = [row(number) for number in range(1, 2_501)]
    found = at("status", "--jobs", "--limit", "2500", "--json").json
    assert [job["id"] for job in found["jobs"]] == list(range(2_500, 0, -1))
    assert found["more"] is False
    assert len(listing.of("GET", "/v1/jobs")) == 3


def test_ranges_ascend_and_may_name_jobs_of_others(at, listing):
    result = at("status", "20-22,7", "9")
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == ["7", "9", "20", "21", "22"]
    assert {one.query["all"] for one in listing.of("GET", "/v1/jobs")} == {"true"}
    assert listing.of("GET", "/v1/jobs/counts") == []


def test_the_rest_of_a_range_is_announced(at, listing):
    result = at("status", "10-200", "--limit", "5")
    assert result.out.splitlines()[-1].split()[0] == "14"
    assert "lode status 15-200" in result.err


def test_a_job_that_is_not_there(at, listing):
    told = "Job 251 was not found, or you may not see it."
    listing.refuse("GET", "/v1/jobs/251", 404, code="not-found", message=told)
    result = at("status", "251")
    assert (result.code, result.out, result.err) == (
        3,
        "",
        "lode: Job 251 was not found, or you may not see it.\n",
    )
    result = at("status", "251-260")
    assert (result.code, result.out) == (0, "")
    assert "no such job" in result.err


@pytest.mark.slow
def test_filters_travel(at, listing):
    listing.jobs[4]["state"] = "Failed"
    listing.jobs[5]["group"] = "bio"
    assert at("status", "--jobs", "--state", "failed").out.splitlines()[1].split()[0] == "5"
    assert at("status", "--jobs", "--group", "bio").out.splitlines()[1].split()[0] == "6"
    assert "In all: 5 Done." in at("status", "--jobs", "--group", "bio").out
    none = "lode: None of your jobs matches all filters; --all shows those of others that you may see.\n"
    assert at("status", "--jobs", "--state", "Held").err == none
    at("status", "--jobs", "--state", "Held", "--state", "Done")
    assert listing.of("GET", "/v1/jobs")[-1].query["state"] == "Held,Done"


def test_jobs_that_wait_for_one_reason(at, listing):
    listing.jobs[6]["main_reason"] = "no-room-for-pilots"
    lines = at("status", "--jobs", "--reason", "no-room-for-pilots").out.splitlines()
    assert lines[1].split()[0] == "7"
    assert lines[1].endswith("no-room-for-pilots")
    assert len(lines) == 2
    assert at("status", "9", "--reason", "impossible").err == "lode: No job matches all filters.\n"


def test_when_waiting_jobs_start(at, server):
    rows = [
        job_row(1, state="Running"),
        job_row(2, state="Waiting", start={"low_seconds": 600.0, "high_seconds": 7_500.0}),
        job_row(3, state="Waiting", start=None),
    ]
    server.on("GET", "/v1/jobs", {"jobs": rows})
    lines = at("status", "1-3", "--start").out.splitlines()
    assert "STARTS IN" in lines[0]
    assert ["10 min to 2.1 h" in lines[2], "unknown" in lines[3]] == [True, True]
    assert "unknown" not in lines[1]
    assert server.asked[-1].query["start"] == "true"
    assert at("status", "1-3", "--start", "--json").json["jobs"][1]["start"]["high_seconds"] == 7_500.0
    assert "STARTS IN" not in at("status", "1-3").out


def test_everyones_jobs_have_owners(at, listing):
    listing.jobs[-1]["owner"] = "bob"
    result = at("status", "--jobs", "--all", "--limit", "2")
    assert "OWNER" in result.out
    assert "bob" in result.out
    assert "In all: 1,000,007 Waiting, 5 Done." in result.out


def test_nothing_submitted_yet(at, listing):
    listing.jobs = []
    result = at("status", "--jobs")
    assert (result.code, result.err) == (
        0,
        "lode: You have no jobs; --all shows those of others that you may see.\n",
    )


def test_json_is_the_servers_rows(at, listing):
    found = at("status", "3", "--json").json
    assert found == {"jobs": [listing.jobs[2]], "more": False}
    assert at("status", "--jobs", "--limit", "1", "--json").json["counts"] == {
        "Waiting": 1_000_000,
        "Done": 5,
    }


def test_hostile_rows_are_harmless(at, listing):
    listing.jobs[0].update(name=HOSTILE, reason=HOSTILE + "\nJOB", site=HOSTILE, group=HOSTILE)
    result = at("status", "1")
    assert result.out.count("\n") == 2
    assert "\x1b" not in result.out
    assert "\u202e" not in result.out


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"reason": "wait for data", "state": "Held"}, "wait for data"),
        ({"state": "Failed", "cause": "exit", "exit_code": 3}, "exit, exit code 3"),
        (
            {"state": "Failed", "cause": "signal", "signal": 11, "message": "core dumped"},
            "signal, signal 11, core dumped",
        ),
        ({"state": "Done", "cause": "ok"}, ""),
        (
            {"state": "Done", "cause": "ok", "message": "Missing in the output: a."},
            "Missing in the output: a.",
        ),
        ({"state": "Running", "message": "of before"}, ""),
    ],
)
def test_the_remark_explains_the_state_of_a_job(row, changes, shown):
    assert job_remark(typed(Job, row(**changes))) == shown


def test_watching_needs_a_terminal(at, listing):
    result = at("status", "--watch")
    assert (result.code, "terminal" in result.err) == (2, True)


def test_watching_ends_when_all_have_ended(row, monkeypatch, capsys):
    rounds = [[typed(Job, row(1, state=name))] for name in ("Running", "Done")]
    waits: list[float] = []
    monkeypatch.setattr(status, "fetch", lambda *_: rounds.pop(0))
    monkeypatch.setattr("lodesman.user.cli.tables.time.sleep", waits.append)
    tables.watch_list(lambda: status._job_frame(Session(), Question(ranges=(Range(1, 1),)), ListShape()))
    assert waits == [tables.SECONDS]
    out = capsys.readouterr().out
    assert "Done" in out
    assert "1 Done." in out


def test_the_states_are_those_of_the_state_machine():
    assert set(STATES) == {state.value for state in JobState}
    assert {state.value for state in TERMINAL} == FINAL


@pytest.mark.parametrize(("word", "here"), sorted(ELSEWHERE.items()))
def test_a_state_of_dirac_is_answered_with_its_equivalent(word, here):
    kind = StateWords(STATES, case_sensitive=False)
    assert kind.convert("sTALLED", None, None) == ("Stalled",)
    for spelled in (word, word.upper()):
        with pytest.raises(click.BadParameter, match=f"{word} is a state of DIRAC.*: {re.escape(here)}"):
            kind.convert(spelled, None, None)
    assert word not in {*STATES, *FINAL}


def test_a_word_that_is_no_state_anywhere_is_refused_with_those_that_are():
    with pytest.raises(click.BadParameter, match="'waiting'"):
        StateWords(STATES, case_sensitive=False).convert("Resting", None, None)


# --- show and events


@pytest.fixture
def one_job(server, row):
    attempts = [
        {"id": 1, "number": 1, "pilot": 4, "site": "North", "ce": "ce", "queue": "q", "host": "node7",
         "claimed_at": 1_000.0, "started_at": 1_001.0,
         "ended_at": 1_004.0, "outcome": "Failed", "cause": "exit", "exit_code": 3, "signal": None,
         "cpu_seconds": 1.5, "wall_seconds": 3.0, "max_rss_mb": 12.0, "message": HOSTILE},
        {"id": 2, "number": 2, "pilot": 5, "site": "South", "ce": None, "queue": None, "host": None,
         "claimed_at": 1_010.0, "started_at": None,
         "ended_at": None, "outcome": None, "cause": None, "exit_code": None, "signal": None,
         "cpu_seconds": None, "wall_seconds": None, "max_rss_mb": None, "message": None},
    ]  # fmt: skip
    happened = [
        {"at": 1_000.0, "event": "Waiting"},
        {"at": 1_001.0, "event": "Matched", "attempt": 1, "pilot": 4, "reason": HOSTILE},
    ]
    job = row(5, attempt=2, site="South", pilot=5, output_sha256="0" * 64, output_size=2_048, name=HOSTILE)
    server.on("GET", "/v1/jobs/5", {**job, "attempts": attempts, "events": happened})
    server.refuse(
        "GET", "/v1/jobs/6", 404, code="not-found", message="Job 6 was not found, or you may not see it."
    )
    return server


def test_show_prints_all_of_a_job(at, one_job):
    result = at("show", "5")
    assert "owner         ann, group physics, VO lab" in result.out
    assert "last attempt  2 at South, pilot 5" in result.out
    assert "2.0 KiB: lode output 5" in result.out
    first, second = result.out.splitlines()[-2:]
    assert first.split()[:4] == ["1", "North/ce/q", "node7", "4"]
    assert "exit, exit code 3" in first
    assert second.split()[:4] == ["2", "South", "-", "5"]
    assert "\x1b" not in result.out
    assert at("show", "5", "--json").json["attempts"][1]["number"] == 2
    assert at("show", "6").code == 3


@pytest.fixture
def a_description(server):
    told = {"id": 5, "form": "jdl", "text": '[\n  JobName = "\x1b";\n]\n', "jobs": 1, "rebuilt": False}
    server.on("GET", "/v1/jobs/5/description", told)
    server.on("GET", "/v1/jobs/6/description", {**told, "id": 6, "jobs": 3_000})
    return server


def test_show_prints_the_description_only(at, a_description):
    result = at("show", "5", "--description")
    assert (result.code, result.out) == (0, '[\n  JobName = "\\x1b";\n]\n')
    assert at("show", "5", "--form", "cfg").code == 0
    assert [one.query.get("form") for one in a_description.asked] == [None, "cfg"]
    assert at("show", "5", "--description", "--json").json["text"].startswith("[")
    assert at("show", "5", "--form", "xml").code == 2


def test_show_says_that_a_description_is_of_many_jobs(at, a_description):
    assert "It is the description of 3,000 jobs." in at("show", "6", "--description").err


def test_show_names_the_class_and_where_each_value_came_from(at, server, row):
    server.on("GET", "/v1/jobs/7", {**row(7), "job_class": "app.large"})
    assert "app.large: lode show 7 --origin" in at("show", "7").out
    made = {"job_class": "app.large", "revision": 2, "origins": {"JobName": "class", "GridEngine.m": HOSTILE}}
    description = {
        "id": 7, "form": "jdl", "text": "", "jobs": 1, "rebuilt": False, "resolution": made,
        "values": {"JobName": HOSTILE, "Site": "A"}, "defaults": {"Priority": "1"},
    }  # fmt: skip
    server.on("GET", "/v1/jobs/7/description", description)
    result = at("show", "7", "--origin")
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["job", "class", "app.large,", "revision", "2"]
    assert ["Priority", "1", "default"] in lines
    assert ["Site", "A", "command", "line"] in lines
    assert "\x1b" not in result.out
    found = at("show", "7", "--origin", "--json").json
    assert (found["resolution"]["origins"]["JobName"], found["defaults"]["Priority"]) == ("class", "1")


def test_events_oldest_first(at, one_job):
    result = at("events", "5")
    assert [line.split()[4] for line in result.out.splitlines()[1:]] == ["Waiting", "Matched"]
    assert "attempt=1, pilot=4" in result.out
    assert "\x1b" not in result.out
    assert at("events", "5", "--json").json["events"][0] == {"at": 1_000.0, "event": "Waiting"}


# --- why


WHY = {
    "id": 9,
    "state": "Waiting",
    "reason": "",
    "verdict": "never",
    "main_reason": "impossible",
    "summary": "No queue of VO lab can run it.",
    "who": "you, by changing the job",
    "chain": [
        {"step": "access", "holds": True, "text": "ann may use 4 of 5 configured queues"},
        {"step": "requirements", "holds": False, "text": "0 of 4 queues pass", "age_seconds": 90.0},
        {"step": "gates", "holds": None, "text": "the director has not decided anything yet"},
    ],
    "task_queue": {"id": 7, "waiting": 1_200, "ahead": 3, "more_ahead": False},
    "queues": {
        "total": 4,
        "eligible": 0,
        "ruled_out_by": [{"criterion": "Requirements.Memory", "queues": 4}, {"criterion": "Platform", "queues": 2}],
        "nearest": [
            {"change": ["Requirements.Memory"], "text": "Requirements.Memory 8000 -> 2000", "queues": 2,
             "steps": [{"criterion": "Requirements.Memory", "asked": 8000,
                        "options": [{"value": 4000, "queues": 1}, {"value": 2000, "queues": 2}]}],
             "example": {"site": "North", "ce": "ce", "queue": "q", "reasons": ["Memory 2000 is less than 8000"]}}
        ],
    },
}  # fmt: skip
DIRECTOR = {
    "decided_seconds_ago": 12.0,
    "iterated_seconds_ago": 12.0,
    "lines": ["pilots: 2 of 6 asked were placed", HOSTILE],
    "room": 2,
}


def test_why_ends_with_the_verdict_below_what_is_in_the_way(at, server):
    server.on("GET", "/v1/jobs/9/why", WHY)
    lines = at("why", "9").out.splitlines()
    assert lines[0].split() == ["STEP", "WHAT", "IS", "KNOWN", "AGE"]
    assert (lines[1].split()[:2], lines[1].endswith(" 90 s")) == (["requirements", "NO"], True)
    assert lines[2].split()[:2] == ["gates", "?"]
    assert lines[3:] == [
        "Suggestion: Requirements.Memory 8000 -> 2000: 2 of 4 queues, for instance North/ce/q",
        "(--verbose shows all 3 steps)",
        "",
        "Job 9: NEVER. No queue of VO lab can run it.",
        "Who can change that: you, by changing the job.",
    ]
    assert at("why", "9", "--json").json == full(JobWaits, WHY)


def test_why_in_full_goes_step_by_step(at, server):
    server.on("GET", "/v1/jobs/9/why", WHY)
    lines = at("why", "9", "--verbose").out.splitlines()
    assert lines[1].split()[:3] == ["access", "ok", "ann"]
    assert (lines[2].split()[:2], lines[2].endswith(" 90 s")) == (["requirements", "NO"], True)
    assert lines[3].split()[:2] == ["gates", "?"]
    text = "\n".join(lines)
    assert "  Requirements.Memory 8000 -> 2000: 2 of 4 queues, for instance North/ce/q" in text
    assert "    Requirements.Memory: 4000 (1), 2000 (2)" in text
    assert lines[-2:] == [
        "Job 9: NEVER. No queue of VO lab can run it.",
        "Who can change that: you, by changing the job.",
    ]


def test_why_shows_what_the_director_did(at, server):
    now = {**WHY, "verdict": "now", "queues": {**WHY["queues"], "nearest": []}, "director": DIRECTOR}
    server.on("GET", "/v1/jobs/9/why", now)
    out = at("why", "9", "-v").out
    assert out.splitlines()[-1].startswith("Job 9: NOW. ")
    assert "Who can change that" not in out
    assert "Director (decided 12 s ago):\n  pilots: 2 of 6 asked were placed\n" in out
    assert "\x1b" not in out


def test_why_of_a_job_that_does_not_wait(at, server):
    ended = {
        "id": 9,
        "state": "Done",
        "reason": "",
        "verdict": None,
        "summary": "It has ended and does not wait.",
    }
    server.on("GET", "/v1/jobs/9/why", ended)
    assert at("why", "9").out == "Job 9: Done. It has ended and does not wait.\n"


def test_why_before_the_director_ever_decided(at, server):
    never = {
        "decided_seconds_ago": None,
        "iterated_seconds_ago": None,
        "lines": ["The director has not decided anything yet."],
        "room": None,
    }
    server.on("GET", "/v1/jobs/9/why", {**WHY, "director": never})
    assert "Director (never decided):" in at("why", "9", "-v").out


# --- logs


def test_logs_are_what_the_job_wrote(at, server):
    server.on(
        "GET",
        "/v1/jobs/5/logs",
        {"id": 5, "state": "Running", "attempt": 1, "live": True, "tail": "a\x1b[1mb\n"},
    )
    assert at("logs", "5").out == "a\x1b[1mb\n"
    assert at("logs", "5", "--json").json["live"] is True


def test_a_terminal_is_not_steered_by_a_jobs_output(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", out)
    tables.write_text("one\ttwo\n\x1b]0;x\x07\n")
    assert out.getvalue() == "one\ttwo\n\\x1b]0;x\\x07\n"


def test_a_job_that_has_written_nothing(at, server):
    server.on("GET", "/v1/jobs/5/logs", {"id": 5, "state": "Running", "attempt": 1, "live": True, "tail": ""})
    result = at("logs", "5")
    assert (result.out, result.err) == ("", "lode: Job 5 is Running and has written nothing yet.\n")


def test_a_job_that_waits_is_not_taken_for_one_that_is_not_there(at, server):
    server.refuse("GET", "/v1/jobs/5/logs", 404, code="not-found", message="no output yet, or is not yours")
    server.on("GET", "/v1/jobs/5", {"id": 5, "state": "Waiting", "attempt": 0})
    result = at("logs", "5")
    assert (result.code, result.err) == (0, "lode: Job 5 is Waiting and has written nothing yet.\n")
    assert at("logs", "5", "--json").json["state"] == "Waiting"
    missing = "Job 5 was not found, or you may not see it."
    server.refuse("GET", "/v1/jobs/5", 404, code="not-found", message=missing)
    result = at("logs", "5")
    assert (result.code, result.err) == (3, f"lode: {missing}\n")


@pytest.mark.parametrize("state", ["Done", "Failed", "Killed"])
def test_a_job_that_has_ended_will_write_nothing_more(at, server, state):
    server.on("GET", "/v1/jobs/5/logs", {"id": 5, "state": state, "attempt": 1, "live": False, "tail": ""})
    assert at("logs", "5").err == f"lode: Job 5 is {state} and has written nothing.\n"


def test_following_shows_each_line_once_until_the_end(at, server, monkeypatch):
    answers = [
        (404, {"error": {"code": "not-found", "message": "no output yet"}}),
        {"state": "Running", "attempt": 1, "tail": "one\n"},
        {"state": "Running", "attempt": 1, "tail": "one\ntwo\n"},
        {"state": "Running", "attempt": 2, "tail": "again\n"},
        {"state": "Done", "attempt": 2, "tail": "again\nend\n"},
    ]
    waits: list[float] = []
    monkeypatch.setattr("lodesman.user.cli.commands.wait.time.sleep", waits.append)
    server.on("GET", "/v1/jobs/5/logs", lambda _: answers.pop(0))
    server.on(
        "GET", "/v1/jobs/5", {"id": 5, "state": "Waiting", "attempt": 0, "main_reason": "queued-behind"}
    )
    server.on("GET", "/v1/jobs/wait", waited(Done=1))
    result = at("logs", "-f", "5")
    assert (result.code, result.out) == (0, "one\ntwo\nagain\nend\n")
    assert "Job 5 is Waiting: queued-behind. More: lode why 5" in result.err
    assert "attempt 2 begins" in result.err
    assert len(waits) == 4


def test_following_a_job_that_is_not_there(at, server):
    server.refuse(
        "GET", "/v1/jobs/5/logs", 404, code="not-found", message="Job 5 was not found, or you may not see it."
    )
    server.refuse(
        "GET", "/v1/jobs/5", 404, code="not-found", message="Job 5 was not found, or you may not see it."
    )
    assert at("logs", "-f", "5").code == 3


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "abc", "abc"),
        ("abc", "abc", ""),
        ("abc", "abcdef", "def"),
        ("abcdef", "defghi", "ghi"),
        ("abc", "xyz", "xyz"),
        ("aaa", "aaa", ""),
        ("abab", "babx", "x"),
        ("abc", "", ""),
    ],
)
def test_what_is_new_at_the_end_of_a_text(before, now, new):
    assert fresh(before, now) == new


# --- actions


@pytest.fixture
def obeying(server):
    server.outcome = {"changed": 3, "refused": 0, "examples": []}
    server.on("POST", "/v1/jobs/control", lambda _: server.outcome)
    return server


@pytest.mark.parametrize(
    ("action", "done"),
    [
        ("kill", "killed"), ("hold", "held"), ("release", "released"),
        ("reschedule", "rescheduled"), ("delete", "deleted"),
    ],
)  # fmt: skip
def test_an_action_on_ranges(at, obeying, action, done):
    result = at(action, "12,15", "20-22", "--reason", "because")
    assert (result.code, result.out) == (0, f"3 jobs {done}.\n")
    assert obeying.asked[-1].json == {
        "action": action, "ranges": [[12, 12], [15, 15], [20, 22]], "reason": "because",
    }  # fmt: skip


def test_refused_jobs_are_named(at, obeying):
    obeying.outcome = {
        "changed": 1,
        "refused": 9,
        "examples": [{"id": n, "reason": "it is Done"} for n in range(9)],
    }
    result = at("kill", "1-10")
    assert result.code == 0
    assert result.err.splitlines()[0] == "lode: job 0 was not killed: it is Done."
    assert result.err.splitlines()[-1] == "lode: In all 9 jobs could not be killed."


def test_an_action_that_changed_nothing_is_a_conflict(at, obeying):
    obeying.outcome = {"changed": 0, "refused": 1, "examples": [{"id": 5, "reason": "it is Done"}]}
    result = at("hold", "5")
    assert (result.code, result.out, result.err) == (6, "", "lode: job 5 was not held: it is Done.\n")
    result = at("hold", "5", "--json")
    assert (result.code, result.json) == (6, obeying.outcome)


def test_programs_are_not_asked(at, obeying):
    assert at("kill", "1-1000000").code == 0
    assert obeying.asked[-1].json["ranges"] == [[1, 1_000_000]]


class Person(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_people_are_asked_before_many_jobs_are_touched(monkeypatch, answer, goes_on):
    monkeypatch.setattr("sys.stdin", Person(answer))
    monkeypatch.setattr("sys.stderr", Person())
    if goes_on:
        actions._confirm("kill", (Range(1, 101),))
    else:
        with pytest.raises(click.Abort):
            actions._confirm("kill", (Range(1, 101),))


def test_people_are_not_asked_about_a_few(monkeypatch):
    monkeypatch.setattr("sys.stdin", Person(""))
    monkeypatch.setattr("sys.stderr", Person())
    actions._confirm("kill", (Range(1, 100),))


def test_what_became_of_each_job_named_is_said(at, obeying):
    obeying.outcome = {"changed": 6, "refused": 3, "examples": [{"id": 6, "reason": "it is Done"}], "ranges": [
        {"first": 5, "last": 5, "changed": 1},
        {"first": 6, "last": 6, "refused": 1, "reason": "it is Done"},
        {"first": 10, "last": 16, "changed": 5, "refused": 2, "reason": "it is Matched"},
        {"first": 99, "last": 99, "reason": "Job 99 was not found, or you may not see it."},
    ]}  # fmt: skip
    result = at("hold", "5", "6", "10-16", "99")
    assert obeying.asked[-1].json["ranges"] == [[5, 5], [6, 6], [10, 16], [99, 99]]
    assert result.out.splitlines() == ["5: held", "10-16: 5 jobs held", "6 jobs held."]
    assert result.err.splitlines() == [
        "lode: job 6 was not held: it is Done.",
        "lode: of 10-16, 2 jobs could not be held: it is Matched.",
        "lode: Job 99 was not found, or you may not see it.",
        "lode: In all 3 jobs could not be held.",
    ]
    assert result.code == 1


def test_an_unknown_outcome_is_reported_as_unknown(at, server):
    server.on("POST", "/v1/jobs/control", (503, {"error": {"code": "unavailable", "message": "Not now."}}))
    result = at("kill", "5", "--json")
    assert result.code == 5
    assert json.loads(result.err)["error"]["code"] == "unavailable"


@pytest.mark.parametrize("option", ["--name", "--class", "--job-group", "--owner"])
@pytest.mark.parametrize("command", ["kill", "status"])
def test_a_filter_that_is_empty_chooses_nothing(at, command, option):
    """As of a variable of a script that is not set: it would choose all."""
    result = at(command, option, "")
    assert result.code == 2
    assert f"'{option}'" in result.err
    assert "would choose all" in result.err


@pytest.mark.parametrize(
    "command", ["kill", "hold", "release", "reschedule", "delete", "output", "wait", "status"]
)
def test_an_empty_job_is_no_job_and_does_not_leave_the_choice_alone(at, server, command):
    """`lode kill "$JOBS" --state Running` with a variable that is not set would kill all that run."""
    result = at(command, "", "--state", "Running")
    assert (result.code, server.asked) == (2, [])
    assert "'' names no job" in result.err


@pytest.mark.parametrize(
    "line",
    [
        "site test North --queue", "host close n1 --reason r --site", "host open n1 --site", "queue ls --site",
        "quota show --user", "quota show --class", "audit --by", "pool ls --vo", "tq ls --reason",
    ],
)  # fmt: skip
def test_a_restriction_that_is_empty_is_refused(at, server, line):
    result = at(*line.split(), "")
    assert (result.code, server.asked) == (2, [])
    assert "would choose all" in result.err
