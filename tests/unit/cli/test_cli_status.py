"""`lode status` of submissions, how lists are shaped, what is watched, and jobs that are chosen for an action."""

from __future__ import annotations

import io
import os
import signal
import time
from contextlib import closing
from datetime import UTC, datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.cli.conftest import job_row

from lodesman.languages.jobs.spec import may_move
from lodesman.server.writer.control import TARGET
from lodesman.user.cli import tables, words
from lodesman.user.cli.arguments import past_moment
from lodesman.user.cli.commands import actions
from lodesman.user.cli.job_columns import WIDTH, bar
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import WatchedList, fit_frame
from lodesman.wire.job_queries import Selection
from lodesman.wire.vocabulary import JobState

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e"


def submission(number=1, **changes):
    row = {
        "id": number, "first": 10 * number, "jobs": 5, "owner": "ann", "group": "physics", "vo": "lab", "name": "fit",
        "submitted_at": time.time() - 90, "states": {"Done": 3, "Waiting": 2}, "sites": {"North": 3}, "causes": {},
        "reasons": {"pilot-expected": 2},
    }  # fmt: skip
    return row | changes


@pytest.fixture
def listed(server):
    rows = [
        submission(3, states={"Failed": 4, "Done": 1}, causes={"exit": 3, "signal": 1}, reasons={}),
        submission(2, jobs=1, states={"Held": 1}, name=HOSTILE, reasons={"impossible": 1}),
        submission(1),
    ]
    server.on(
        "GET", "/v1/submissions", lambda asked: {"submissions": rows[: int(asked.query.get("limit", 100))]}
    )
    return server


def test_a_row_for_each_submission(at, listed):
    result = at("status")
    lines = result.out.splitlines()
    assert lines[0].split() == ["SUBMISSION", "JOBS", "NAME", "AGE", "PROGRESS", "STATES", "REMARK"]
    assert lines[1].split()[:2] == ["3", "30-34"]
    assert lines[1].split()[-8:] == ["1", "Done,", "4", "Failed", "3", "exit;", "1", "signal"]
    assert "hhhhhhhhhh  1 Held" in lines[2]
    assert "######....  2 Waiting, 3 Done" in lines[3]
    assert lines[-1] == "In all: 1 Held, 2 Waiting, 4 Done, 4 Failed."
    assert "\x1b" not in result.out
    assert result.err == "lode: Why jobs are Held: lode status --jobs --state Held\n"
    assert listed.asked[-1].query == {"limit": "101"}
    assert at("status", "--all").err == "lode: Why jobs are Held: lode status --jobs --state Held --all\n"
    assert at("status", "--format", "csv").err == ""


@pytest.mark.slow
def test_filters_of_submissions_travel(at, listed):
    at(
        "status",
        "--state",
        "held",
        "--state",
        "Failed",
        "--name",
        "f*",
        "--owner",
        "bob",
        "--site",
        "North",
        "--all",
    )
    once = listed.asked[-1].query
    at("status", "--state", "held, Failed", "--name", "f*", "--owner", "bob", "--site", "North", "--all")
    assert listed.asked[-1].query == once
    assert "'nosuch' is not one of" in at("status", "--state", "held,nosuch").err
    assert once == {
        "limit": "101", "state": "Held,Failed", "name": "f*", "owner": "bob", "site": "North", "all": "true",
    }  # fmt: skip
    result = at(
        "status",
        "--cause",
        "exit",
        "--since",
        "1970-01-02T00:00Z",
        "--until",
        "1970-01-03T00:00Z",
        "--submission",
        "7",
    )
    query = listed.asked[-1].query
    assert (query["cause"], query["since"], query["until"], query["submission"]) == (
        "exit",
        "86400",
        "172800",
        "7",
    )
    assert result.out.splitlines()[-1].startswith("In these: ")
    assert at("status", "--since", "tomorrow").code == 2


def test_pages_are_asked_for_until_there_are_enough(at, server):
    pages = {"": ([3], "30"), "30": ([], "20"), "20": ([2, 1], "")}

    def answer(asked):
        numbers, cursor = pages[asked.query.get("after", "")]
        return {"submissions": [submission(one) for one in numbers], "more": bool(cursor), "cursor": cursor}

    server.on("GET", "/v1/submissions", answer)
    assert [one["id"] for one in at("status", "--json").json["submissions"]] == [3, 2, 1]
    result = at("status", "--limit", "2")
    assert "--limit 20" in result.err
    assert len(result.out.splitlines()) == 4


def test_nothing_to_show(at, server):
    server.on("GET", "/v1/submissions", {"submissions": []})
    assert at("status").err == "lode: You have no jobs; --all shows those of others that you may see.\n"
    assert at("status", "--all").err == "lode: There are no jobs.\n"
    none = "None of your jobs matches all filters; --all shows those of others that you may see."
    assert at("status", "--where", "JobName=x").err == f"lode: {none}\n"
    assert at("status", "--where", "JobName=x", "--all").err == "lode: No job matches all filters.\n"


def test_the_column_reason_says_why_a_job_is_in_its_state(at, server):
    rows = [
        job_row(1, state="Waiting", main_reason="no-room-for-pilots", reason="rescheduled: wrong input"),
        job_row(2, state="Held", reason="wrong input"),
        job_row(3, state="Failed", reason="exit code 3"),
        job_row(4, state="Running"),
    ]
    server.on("GET", "/v1/jobs", {"jobs": rows})
    out = at("status", "1-4", "--columns", "job,reason", "--format", "csv").out
    assert out.splitlines() == ["job,reason", "1,no-room-for-pilots", "2,wrong input", "3,exit code 3", "4,"]


def test_columns_order_and_forms(at, listed):
    result = at("status", "--columns", "submission,failed,name", "--sort", "-failed", "--format", "csv")
    assert result.out.splitlines()[:2] == ["submission,failed,name", "3,4,fit"]
    assert "\x1b" not in result.out
    assert (
        at("status", "--format", "{submission}\\t{jobs}", "--sort", "submission").out
        == "1\t10-14\n2\t20\n3\t30-34\n"
    )
    assert (
        at("status", "--columns", "sites", "--format", "tsv").out.splitlines() == ["sites"] + ["3 North"] * 3
    )
    for option, word in (
        ("columns", "odd"),
        ("sort", "-odd"),
        ("format", "{odd}"),
        ("format", "{name"),
        ("format", "xml"),
    ):
        result = at("status", f"--{option}", word)
        assert (result.code, "There are submission," in result.err or "none of table" in result.err) == (
            2,
            True,
        )
    assert at("status", "--watch", "--format", "csv").code == 2


def test_times_of_jobs_for_people_and_for_programs(at, server, monkeypatch):
    rows = [job_row(1, since=86_400.0, started_at=None, max_rss_mb=12.5, cpu_seconds=3.25)]
    server.on("GET", "/v1/jobs", {"jobs": rows})
    wanted = ["status", "1", "--utc", "--columns", "since,age,started,cpu,memory"]
    with monkeypatch.context() as clock:
        clock.setattr(time, "time", lambda: 86_460.4)
        assert at(*wanted, "--format", "csv").out.splitlines()[1] == "1970-01-02T00:00:00Z,60,,3.25,12.5"
    assert at(*wanted).out.splitlines()[1].startswith("1970-01-02 00:00Z")
    assert at("status", "1", "--sort", "started,job").code == 0


@given(st.dictionaries(st.sampled_from(JobState), st.integers(0, 10**6)))
def test_a_bar_has_its_width_and_leaves_nobody_out(counts):
    shown = bar(counts).text
    there = {state: jobs for state, jobs in counts.items() if jobs and state is not JobState.DELETED}
    assert len(shown) == (WIDTH if there else 0)
    for sign, states in (("#", {"Done"}), ("x", {"Failed", "Killed"}), (".", {"Waiting"}), ("h", {"Held"})):
        assert (sign in shown) == any(state in states for state in there)


@pytest.mark.parametrize("height", [10, 24])
def test_what_is_watched_is_never_higher_than_the_terminal(height):
    console = Console(file=io.StringIO(), width=80, height=height, force_terminal=True)
    rows = [[str(number), "a long text that is folded into several lines " * 2] for number in range(200)]
    frame = WatchedList([">job", "remark"], rows, "200 Waiting.", has_ended=False)
    lines = console.render_lines(fit_frame(frame, console), pad=False)
    assert len(lines) < height
    text = "\n".join("".join(part.text for part in line) for line in lines)
    assert "more" in text
    assert text.endswith("200 Waiting.")


AT = datetime(2026, 11, 28, 9, 30, tzinfo=UTC).timestamp()
DAY, HOUR = 86_400.0, 3_600.0
MIDNIGHT = AT - 9.5 * HOUR


@pytest.mark.parametrize(
    ("word", "at"),
    [
        ("2h", AT - 2 * HOUR),
        ("2h30m", AT - 2.5 * HOUR),
        ("1d 12 h", AT - 1.5 * DAY),
        ("90 min", AT - 1.5 * HOUR),
        ("2w", AT - 14 * DAY),
        ("now", AT),
        ("Today", MIDNIGHT),
        ("yesterday", MIDNIGHT - DAY),
        ("today 8:15", MIDNIGHT + 8.25 * HOUR),
        ("yesterday 22:00:30", MIDNIGHT - 2 * HOUR + 30),
        ("08:00", MIDNIGHT + 8 * HOUR),
        ("9:31", MIDNIGHT + 9 * HOUR + 31 * 60 - DAY),
        ("2026-11-27", MIDNIGHT - DAY),
        ("2026-11-27 08:00", MIDNIGHT - 16 * HOUR),
        ("2026-11-27t08:00", MIDNIGHT - 16 * HOUR),
        ("2026-11-27T08:00+02:00", MIDNIGHT - 18 * HOUR),
        ("1970-01-02T00:00Z", DAY),
    ],
)
def test_times_in_the_past(monkeypatch, word, at):
    monkeypatch.setattr(time, "time", lambda: AT)
    assert past_moment(word, utc=True) == at


def test_clocks_are_local_but_where_days_are_of_utc(at, server, monkeypatch):
    monkeypatch.setenv("TZ", "Etc/GMT-2")  # two hours before UTC
    time.tzset()
    try:
        assert past_moment("2026-11-27") == past_moment("2026-11-27", utc=True) - 2 * HOUR
        server.on("GET", "/v1/submissions", {"submissions": []})
        server.on("GET", "/v1/usage/days", {"by": "group", "since": 0, "until": 1, "rows": []})
        at("status", "--since", "2026-11-27")
        at("usage", "--since", "2026-11-27")
        assert [int(one.query["since"]) for one in server.asked] == [
            MIDNIGHT - DAY - 2 * HOUR,
            MIDNIGHT - DAY,
        ]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("command", ["status", "usage"])
@pytest.mark.parametrize(
    "word", ["", "x", "-3h", "2026-13-01", "7", "2h30", "25:00", "today x", "tomorrow", "1h2h3q"]
)
def test_what_is_no_time_has_one_sentence_with_examples(at, command, word):
    result = at(command, "--since", word)
    assert result.code == 2
    assert (
        f"{word!r} is no time; write 2h30m or 7d (ago), now, today, yesterday, 08:00, 2026-12-01 or"
        in result.err
    )


def test_moments(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert words.moment(999_999.0, utc=True) == "13:46:39Z"
    assert words.moment(1.0, utc=True) == "1970-01-01 00:00Z"
    assert words.moment(None) == words.moment(1e30) == words.moment(float("nan")) == "-"
    assert words.iso(1.0, utc=True) == "1970-01-01T00:00:01Z"
    assert words.iso(1e30) == ""


# --- actions on jobs that are chosen


@pytest.fixture
def obeying(listed):
    listed.outcomes = [{"changed": 3, "refused": 0, "examples": []}]
    listed.on("POST", "/v1/jobs/control", lambda _: listed.outcomes.pop(0))
    return listed


def test_jobs_are_chosen_without_numbers(at, obeying):
    result = at(
        "kill", "--state", "Failed", "--name", "f*", "--submission", "3", "--owner", "bob", "--reason", "old"
    )
    assert (result.code, result.out) == (0, "3 jobs killed.\n")
    assert obeying.asked[-1].json == {
        "action": "kill", "reason": "old",
        "selection": {"states": ["Failed"], "name": "f*", "submissions": [3], "owner": "bob"},
    }  # fmt: skip
    obeying.outcomes = [{"changed": 0, "refused": 0, "examples": []}]
    none = "lode: You have no such job. Jobs of other users: --owner NAME.\n"
    assert at("kill", "5", "--state", "Failed").err == none
    result = at("kill")
    assert (result.code, "Name jobs, or choose them" in result.err) == (2, True)


def test_what_descriptions_say_chooses_jobs_and_filters_lists(at, obeying):
    assert at("hold", "--class", "app.large", "--job-group", "may").code == 0
    assert obeying.asked[-1].json["selection"] == {"job_class": "app.large", "job_group": "may"}
    assert at("kill", "--class", "app", "--dry-run").code == at("status", "--class", "app").code == 0
    assert [one.query["job_class"] for one in obeying.asked[-2:]] == ["app", "app"]
    obeying.outcomes = [{"changed": 3, "refused": 0, "examples": []}]
    assert at("kill", "--where", "Tag=GPU", "--where", "CPUTime=1h").code == 0
    assert obeying.asked[-1].json["selection"] == {"where": ["Tag=GPU", "CPUTime=1h"]}
    assert at("kill", "--where", "Tag=GPU", "--dry-run").code == at("status", "--where", "Tag=GPU").code == 0
    assert [one.query["where"] for one in obeying.asked[-2:]] == ["Tag=GPU", "Tag=GPU"]
    obeying.on("GET", "/v1/jobs", {"jobs": [job_row(5, job_class="app.large")]})
    assert at("status", "--jobs", "--class", "a*", "--format", "{job} {class}").out == "5 app.large\n"
    assert obeying.asked[-1].query["job_class"] == "a*"


COUNTED = {
    "hold --state Done": "0 jobs (of 0 submissions)",
    "kill --where Tag=GPU": "3 jobs (of 2 submissions)",
    "kill --where Tag=GPU --state Held,Done": "1 job (of 1 submission)",
    "release --name x": "1 job (of 1 submission)",
    "reschedule --name x": "4 jobs (of 1 submission)",
    "delete --name x": "11 jobs (of 3 submissions)",
}


def test_a_dry_run_counts_all_jobs_that_an_action_may_take():
    for action in ("kill", "hold", "reschedule", "delete"):
        target = TARGET[action]
        assert {state for state in JobState if may_move(state, target)} - {
            JobState.HELD
        } <= actions.CONCERNED[action]


def test_a_dry_run_only_counts(at, obeying):
    for asked, meant in COUNTED.items():
        result = at(*asked.split(), "--dry-run").out
        assert result == f"{asked.split()[0]} would mean up to {meant}. Nothing was changed.\n"
    assert {one.method for one in obeying.asked} == {"GET"}


def test_a_dry_run_of_ranges_counts_what_is_there(at, obeying):
    obeying.outcomes = [
        {"changed": 3, "refused": 2, "examples": [{"id": 6, "reason": "it is Done"}], "rest": [[8, 9]]}
    ]
    obeying.outcomes += [{"changed": 1, "refused": 0, "examples": []}] * 2
    result = at("kill", "5-9", "--dry-run")
    assert (result.code, result.out) == (0, "4 jobs would be killed.\nNothing was changed.\n")
    assert "job 6 was not killed: it is Done." in result.err
    assert {(one.method, one.query.get("dry_run")) for one in obeying.asked} == {("POST", "true")}
    assert at("hold", "5-9", "--dry-run", "--json").json == {"dry_run": True, "jobs": 1}
    obeying.outcomes = [{"changed": 0, "refused": 2, "examples": []}]
    assert at("hold", "5-9", "--dry-run").code == 6


def test_what_is_left_is_asked_for_again(at, obeying):
    one = {"first": 1, "last": 9, "changed": 2}
    obeying.outcomes = [
        {"changed": 2, "refused": 0, "examples": [], "ranges": [one], "rest": [[3, 9], [20, 30]]},
        {"changed": 3, "refused": 1, "examples": [{"id": 4, "reason": "it is Done"}], "ranges": [
            {"first": 3, "last": 9, "changed": 1, "refused": 1, "reason": "it is Done"},
            {"first": 20, "last": 30, "changed": 2},
        ]},
    ]  # fmt: skip
    result = at("kill", "1-9", "20-30")
    assert result.out.splitlines() == ["1-9: 3 jobs killed", "20-30: 2 jobs killed", "5 jobs killed."]
    assert [one.json["ranges"] for one in obeying.asked] == [[[1, 9], [20, 30]], [[3, 9], [20, 30]]]


class Person(io.StringIO):
    def isatty(self):
        return True


def test_people_are_asked_before_many_jobs_are_chosen(at, obeying, monkeypatch):
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    monkeypatch.setattr("sys.stderr", Person())
    monkeypatch.setattr(actions, "_ASK_ABOVE", 3)
    with closing(Session(server=obeying.url)) as session:
        with pytest.raises(click.Abort):
            actions._ask(session, "delete", (), Selection([JobState.DONE]))
        actions._ask(session, "kill", (), Selection([JobState.HELD]))


# --- long lists


@pytest.fixture
def endless(server):
    """A server with as many jobs as are asked for; page number `broken` is refused."""
    server.broken = 0

    def page(asked):
        if len(server.of("GET", "/v1/jobs")) == server.broken:
            return 500, {"error": {"code": "error", "message": "The disk is gone."}}
        first, limit = int(asked.query.get("first", 1)), int(asked.query.get("limit", 1_000))
        return {"jobs": [job_row(number) for number in range(first, first + limit)]}

    server.on("GET", "/v1/jobs", page)
    return server


@pytest.mark.slow
def test_a_long_list_is_written_page_by_page(at, endless, monkeypatch):
    """What is written before the second page is asked for has the first one, and columns get wider on the way."""
    written: list[tuple[int, int]] = []
    plain = tables.write_lines

    def write(lines):
        found = list(lines)
        written.append((len(endless.of("GET", "/v1/jobs")), len(found)))
        plain(found)

    monkeypatch.setattr(tables, "write_lines", write)
    lines = at("status", "8901-99999", "--limit", "2500", "--columns", "job,name").out.splitlines()
    assert written == [(1, 1_001), (2, 1_000), (3, 500)]
    assert [lines[0], lines[1], lines[1_001], lines[2_500]] == [
        " JOB  NAME", "8901  hello", " 9901  hello", "11400  hello",
    ]  # fmt: skip
    assert len(at("status", "1-9999", "--limit", "1500", "--format", "csv").out.splitlines()) == 1_501


@pytest.mark.slow
def test_json_stays_one_document_whatever_happens(at, endless):
    found = at("status", "1-5000", "--limit", "2500", "--json").json
    assert ([one["id"] for one in found["jobs"]], found["more"]) == (list(range(1, 2_501)), True)
    endless.broken = len(endless.of("GET", "/v1/jobs")) + 2
    result = at("status", "1-5000", "--limit", "2500", "--json")
    assert (result.code, len(result.json["jobs"]), result.json["more"]) == (1, 1_000, True)
    assert "The disk is gone" in result.err
    endless.broken = len(endless.of("GET", "/v1/jobs")) + 1
    assert at("status", "1-5000", "--json").out == ""


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_page_ends_the_document_after_it(at, endless, monkeypatch):
    plain, rows = tables.indent, []

    def interrupted(text, prefix):
        rows.append(text)
        if len(rows) == 1_500:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(text, prefix)

    monkeypatch.setattr(tables, "indent", interrupted)
    result = at("status", "1-5000", "--limit", "5000", "--json")
    assert (result.code, result.err) == (130, "lode: interrupted\n")
    assert (len(result.json["jobs"]), result.json["more"]) == (2_000, True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_the_reader_of_a_long_list_may_go(at, endless, monkeypatch):
    def gone(_):
        raise BrokenPipeError

    monkeypatch.setattr(tables, "write_lines", gone)
    result = at("status", "1-5000", "--limit", "5000")
    assert (result.code, result.out, result.err) == (141, "", "")
    assert len(endless.asked) == 1


@pytest.mark.slow
def test_what_is_sorted_is_bounded(at, endless):
    result = at("status", "--jobs", "--sort", "name", "--limit", "50001")
    assert (result.code, endless.asked) == (2, [])
    assert "--sort needs --limit 50000 or less" in result.err
    assert (
        at("status", "1-5000", "--sort", "-job", "--limit", "1200", "--columns", "job").out.split()[1]
        == "1200"
    )
