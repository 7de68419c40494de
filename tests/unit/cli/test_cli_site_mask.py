"""`lode site close`, `lode site open`, and closings in the lists."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from lodesman.wire.nodes import utc

HOSTILE = "evil\x1b[31m"
SINCE = datetime(2026, 11, 21, 21, 30, tzinfo=UTC).timestamp()
UNTIL = datetime(2026, 11, 22, 9, 0, tzinfo=UTC).timestamp()

LOCAL = datetime.fromtimestamp(UNTIL, UTC).astimezone().replace(tzinfo=None)


def row(site="North", ce="", queue="", **changes):
    return {
        "site": site, "ce": ce, "queue": queue, "reason": "disk broken", "closed_by": "root", "since": SINCE,
        "until": None, "keep_pilots": False, **changes,
    }  # fmt: skip


def closed(**changes):
    return row(**{"queues": 3, "drained": 5, "renewed": False, "dry_run": False, **changes})


@pytest.fixture
def server(server):
    server.on("POST", "/v1/sites/close", closed())
    server.on("POST", "/v1/sites/open", {**row(), "queues": 3, "still_closed": []})
    return server


def test_closing_says_what_it_did(at, server):
    done = at("site", "close", "North", "--reason", "disk broken")
    assert (done.code, done.out) == (0, "North is closed: 3 queues, 5 pilots will finish and leave.\n")
    assert server.asked[-1].json == {"path": "North", "reason": "disk broken"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"until": UNTIL, "drained": 1},
            "North is closed until 2026-11-22 09:00 UTC: 3 queues, 1 pilot will finish and leave.",
        ),
        ({"keep_pilots": True, "drained": 0}, "North is closed: 3 queues, pilots that are there stay."),
        ({"dry_run": True}, "North would be closed: 3 queues, 5 pilots would finish and leave."),
        ({"renewed": True, "drained": 0}, "It was closed before, since 2026-11-21 21:30 UTC."),
        (
            {"dry_run": True, "keep_pilots": True},
            "would be closed: 3 queues, pilots that are there would stay.",
        ),
        (
            {"dry_run": True, "begins": 9e9, "renewed": True},
            "would be announced as closed from 2255-03-14 16:00 UTC: 3 queues. It was announced before, and would",
        ),
        (
            {"replaced": row(begins=UNTIL, reason="power cut")},
            "will finish and leave. This replaces what was announced: closed from 2026-11-22 09:00 UTC: power cut",
        ),
        ({"ce": "ce", "queue": HOSTILE}, "North/ce/evil\\x1b[31m is closed"),
    ],
)
def test_each_way_of_closing_is_shown(at, server, answer, said):
    server.on("POST", "/v1/sites/close", closed(**answer))
    assert said in at("site", "close", "North", "--reason", "x").out


def test_parts_with_slashes_are_several_words(at, server):
    at("site", "close", "North", "ce/a", "q", "--reason", "x", "--keep-pilots", "--dry-run")
    asked = server.asked[-1].json
    assert (asked["site"], asked["ce"], asked["queue"]) == ("North", "ce/a", "q")
    assert (asked["keep_pilots"], asked["dry_run"]) == (True, True)
    assert "path" not in asked
    at("site", "open", "North", "ce/a")
    assert server.asked[-1].json == {"site": "North", "ce": "ce/a"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30min", 1_800), ("2h", 7_200), ("3 d", 259_200), ("60", 60)]
)
def test_for_a_while(at, server, text, seconds):
    before = time.time()
    assert at("site", "close", "North", "--reason", "x", "--for", text).code == 0
    assert before + seconds <= server.asked[-1].json["until"] <= time.time() + seconds


@pytest.mark.parametrize("text", ["2026-11-22T09:00Z", "2026-11-22 10:00+01:00", LOCAL.isoformat(" ")])
def test_until_a_moment_of_any_zone(at, server, text):
    assert at("site", "close", "North", "--reason", "x", "--until", text).code == 0
    assert server.asked[-1].json["until"] == UNTIL


@pytest.mark.parametrize(
    ("words", "begins", "until"),
    [
        (["--from", "+2h"], 7_200, None),
        (["--from", "+2h", "--for", "1h"], 7_200, 10_800),
        (["--from", "+90m", "--until", "+3 h"], 5_400, 10_800),
    ],
)
def test_a_closing_is_announced_from_then_on(at, server, words, begins, until):
    before = time.time()
    assert at("site", "close", "North", "--reason", "x", *words).code == 0
    asked = server.asked[-1].json
    assert 0.0 <= asked["begins"] - before - begins <= 60.0
    assert ("until" in asked) == (until is not None)
    assert until is None or 0.0 <= asked["until"] - before - until <= 60.0


def test_what_is_announced_is_said_with_queues_that_get_no_pilots(at, server):
    begins = time.time() + 3_600.0
    server.on("POST", "/v1/sites/close", closed(begins=begins, until=begins + 60.0, drained=0, endless=2))
    done = at("site", "close", "North", "--reason", "x", "--from", "+1h")
    assert done.out.startswith(
        f"North is to be closed from {utc(begins)} until {utc(begins + 60.0)}: 3 queues."
    )
    assert "From now on no pilots are sent to 2 queues: it is not known how long they would live." in done.err
    server.on("POST", "/v1/sites/open", {**row(begins=begins), "queues": 3, "still_closed": [], "staying": 0})
    assert at("site", "open", "North").out == "North is open after all: 3 queues.\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["North"], "--reason"),
        ([], "SITE"),
        (["North", "--reason", "x", "--for", "soon"], "'soon' is not a time; write 90s, 30min, 2h30m or 3d"),
        (["North", "--reason", "x", "--for", "-2h"], "is not a time"),
        (["North", "--reason", "x", "--for", "2GB"], "is not a time"),
        (["North", "--reason", "x", "--until", "monday"], "'monday' is not a moment"),
        (["North", "--reason", "x", "--for", "2h", "--until", "2026-11-22"], "not both"),
        (["a", "b", "c", "d", "--reason", "x"], "4 names are given"),
    ],
)
def test_wrong_usage_is_reported_without_a_request(at, server, words, says):
    done = at("site", "close", *words)
    assert done.code == 2
    assert says in done.err
    assert server.asked == []


def test_opening_says_what_stays_closed(at, server):
    assert at("site", "open", "North").out == "North is open: 3 queues.\n"
    assert server.asked[-1].json == {"path": "North"}
    server.on(
        "POST",
        "/v1/sites/open",
        {**row(), "queues": 3, "still_closed": [row(ce="ce", reason=HOSTILE, until=UNTIL)]},
    )
    done = at("site", "open", "North")
    assert done.err == (
        "lode: North/ce stays closed by root since 2026-11-21 21:30 UTC until 2026-11-22 09:00 UTC: evil\\x1b[31m\n"
    )


def test_what_is_not_closed_is_a_conflict(at, server):
    server.refuse(
        "POST",
        "/v1/sites/open",
        409,
        code="conflict",
        message="North is not closed.",
        hint="Closed there: North/ce.",
    )
    done = at("site", "open", "North")
    assert (done.code, done.err) == (6, "lode: North is not closed. Closed there: North/ce.\n")


def test_json_is_what_the_server_says(at):
    assert at("site", "close", "North", "--reason", "x", "--json").json == closed()
    assert at("site", "open", "North", "--json").json["still_closed"] == []


def test_an_empty_name_is_refused(at, server):
    assert at("site", "open", "North", "").code == 1
    assert server.asked == []


def site(name, *closings):
    return {"site": name, "ces": 1, "queues": 2, "pilots": {}, "running_jobs": 0, "closed": list(closings)}


def test_sites_that_are_closed_stand_in_the_list(at, server):
    rows = [row("North"), row("South", "ce", "q", reason=HOSTILE, keep_pilots=True), row("Gone")]
    sites = [site("North", rows[0]), site("South", rows[1]), site("West")]
    server.on("GET", "/v1/sites", {"sites": sites, "closed": rows})
    done = at("site", "ls")
    lines = done.out.splitlines()
    assert lines[0].split()[-1] == "CLOSED"
    assert [line.split()[-1] for line in lines[1:]] == ["all", "ce/q", "-"]
    assert done.err.splitlines() == [
        "lode: North is closed by root since 2026-11-21 21:30 UTC: disk broken",
        "lode: South/ce/q is closed by root since 2026-11-21 21:30 UTC (pilots stay): evil\\x1b[31m",
        "lode: Gone is closed by root since 2026-11-21 21:30 UTC: disk broken",
    ]


def test_without_closings_the_lists_are_unchanged(at, server):
    server.on("GET", "/v1/sites", {"sites": [site("West")], "closed": []})
    done = at("site", "ls")
    assert "CLOSED" not in done.out
    assert done.err == ""


def test_running_jobs_stand_beside_the_limit_on_them(at, server):
    sites = [{**site("North"), "running_jobs": 7, "max_running_jobs": 1_000}, site("West")]
    server.on("GET", "/v1/sites", {"sites": sites, "closed": []})
    lines = at("site", "ls").out.splitlines()
    assert "7 of 1,000" in lines[1]
    assert " of " not in lines[2]


def test_queues_that_are_closed_stand_in_the_list(at, server):
    def queue(name, *closings):
        return {
            "site": "North", "ce": "ce", "queue": name, "pilots": {}, "closed": list(closings),
            "parameters": {"CPUTime": {"value": 5, "level": "CE"}},
        }  # fmt: skip

    whole, ce, one = row(), row(ce="ce"), row(ce="ce", queue="d")
    queues = [queue("a", whole, ce), queue("b", ce), queue("c"), queue("d", one)]
    server.on("GET", "/v1/queues", {"queues": queues})
    done = at("queue", "ls")
    assert [line.split()[-1] for line in done.out.splitlines()] == ["CLOSED", "site", "CE", "-", "queue"]
    assert len(done.err.splitlines()) == 3


@pytest.mark.parametrize("command", ["close", "open"])
def test_the_help_has_examples(at, command):
    assert f"lode site {command} LCG.North" in at("site", command, "--help").out
