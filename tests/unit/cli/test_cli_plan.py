"""`lode plan`: its requests, and what it prints of the answers."""

import json
import threading
from typing import Any

import pytest
from tests.unit.cli.conftest import full, poisoned

from lodesman.user.cli import progress
from lodesman.wire.plans import JobPlan, ResourcesPlan, SharesPlan

HELLO = '[ Executable = "/bin/echo"; ]'
FORBIDDEN = frozenset("\x1b\x07\x9b\u202e\r\x00")

COHORT: dict[str, Any] = {
    "members": [[0, 0]], "more_members": 0, "jobs": 1, "verdict": "now", "main_reason": "next",
    "summary": "4 of 4 queues can run it.", "who": "no action needed",
    "chain": [{"step": "access", "holds": True, "text": "ann may use 4 queues"},
              {"step": "pilots", "holds": None, "text": "unknown", "age_seconds": 3.0}],
    "queues": {"total": 4, "eligible": 4, "ruled_out_by": [], "nearest": []},
    "task_queue": {"id": 7, "new": False, "waiting": 3, "ahead": 2, "more_ahead": False, "waiting_before": 2, "key": {}},
    "share": {}, "pilots": {}, "ages": {},
    "director": {"decided_seconds_ago": 4.0, "iterated_seconds_ago": 4.0, "lines": ["pilots: none asked"], "room": 1},
}  # fmt: skip
NEVER = {
    **COHORT, "verdict": "never", "summary": "No queue can run it.", "who": "you",
    "task_queue": {**COHORT["task_queue"], "id": None, "new": True, "waiting_before": 0},
    "queues": {"total": 4, "eligible": 0, "ruled_out_by": [{"criterion": "Memory", "queues": 4}], "nearest": [
        {"change": ["Memory"], "text": "Memory 8000 -> 4000", "queues": 3, "steps": [],
         "example": {"site": "A", "ce": "c", "queue": "q", "reasons": []}}]},
}  # fmt: skip
JOB: dict[str, Any] = {
    "count": 1, "group": "physics", "vo": "lab", "verdicts": {"never": 0, "not now": 0, "now": 1}, "held": 0,
    "refusal": None, "cohorts": [COHORT], "more_cohorts": 0, "limits": [], "notices": [],
}  # fmt: skip
REFUSAL = {"code": "impossible", "message": "The job can never run: no queue.", "hint": "h", "data": {}}
NOTHING: dict[str, Any] = {"count": 0, "rows": [], "more": 0}
NONE = {"task_queues": 0, "jobs": 0}
RESOURCES: dict[str, Any] = {
    "files": ["new.toml"],
    "queues": {
        "before": 2, "after": 2,
        "added": {"count": 1, "more": 0, "rows": [{"site": "E", "ce": "c", "queue": "q"}]},
        "removed": {"count": 1, "more": 0, "rows": [{"site": "S", "ce": "c", "queue": "q"}]},
        "changed": {"count": 2, "more": 0, "rows": [
            {"site": "N", "ce": "c", "queue": "q", "vo": "", "parameters": {"Memory": {"before": 2000, "after": None}}},
            {"site": "N", "ce": "c", "queue": "q", "vo": "lab",
             "parameters": {"Tag": {"before": ["a"], "after": ["a", "b"]}}},
        ]},
    },
    "groups": [{"group": "bio", "change": "changed", "values": {"share": {"before": 5, "after": 6}}},
               {"group": "odd", "change": "removed", "values": {}}],
    "parts": [
        {"vo": "lab", "group": "bio", "jobs": 5001, "share": {"before": 5.0, "after": 6.0},
         "part": {"before": 0.25, "after": 1.0}},
        {"vo": "lab", "group": "physics", "jobs": 3, "share": {"before": 15.0, "after": 15.0},
         "part": {"before": 0.75, "after": 0.0}},
    ],
    "types": [{"parameter": "Disk", "change": "added", "before": None, "after": "number GB"}],
    "task_queues": {
        "checked": 9, "impossible": {"task_queues": 1, "jobs": 3}, "possible": {"task_queues": 1, "jobs": 1},
        "changed": {"count": 3, "more": 0, "rows": [
            {"id": 7, "owner": "ann", "group": "physics", "vo": "lab", "jobs": 3, "held": False, "before": 4, "after": 0,
             "gained": 0, "lost": 4, "becomes": "impossible", "why": "no queue can run it"},
            {"id": 8, "owner": "bob", "group": "bio", "vo": "lab", "jobs": 1, "held": True, "before": 0, "after": 2,
             "gained": 2, "lost": 0, "becomes": "possible", "why": "E/c/q can run it now"},
            {"id": 9, "owner": "ann", "group": "bio", "vo": "lab", "jobs": 5000, "held": False, "before": 3, "after": 2,
             "gained": 1, "lost": 2, "becomes": None, "why": ""},
        ]},
    },
    "submit_pools": {"checked": 4, "changed": {"count": 1, "more": 0, "rows": [
        {"id": "req1:abc", "vo": "lab", "before": 3, "after": 2, "gained": 0, "lost": 1}]}},
    "director": {
        "pilots": {"expected": {"before": 16.24, "after": 20.0}, "asked": {"before": 15, "after": 21},
                   "without_submission_pool": {"before": 0, "after": 0}, "placed": {"before": 3, "after": 1_013}},
        "groups": {"count": 1, "more": 0, "rows": [
            {"vo": "lab", "group": "bio", "expected": {"before": 16.24, "after": 20.0},
             "asked": {"before": 15, "after": 21}, "placed": {"before": 3, "after": 1_013}}]},
        "limits": [
            {"limit": "max-waiting", "of": "queues", "count": {"before": 2, "after": 1},
             "pilots": {"before": 27, "after": 9}, "example": {"name": "N/c/q", "text": "MaxWaitingJobs 10 - 9 waiting"}},
            {"limit": "usable-supply", "of": "task queues", "count": {"before": 1, "after": 2},
             "pilots": {"before": 1, "after": 4}, "example": {"name": "7", "text": "9 allowed"}},
            {"limit": "breaker", "of": "queues", "count": {"before": 1, "after": 0},
             "pilots": {"before": 5, "after": 0}, "example": {"name": "S/c/q", "text": "open"}}],
        "queues": {"count": 1, "more": 0, "rows": [
            {"site": "E", "ce": "c", "queue": "q", "pilots": {"before": 0, "after": 10},
             "room": {"before": None, "after": 10}}]},
        "only_after": {"pilots": 10, "count": 1, "more": 0, "rows": [
            {"id": 8, "owner": "bob", "group": "bio", "vo": "lab", "jobs": 1, "pilots": 10, "queues": ["E/c/q"]}]},
        "only_before": {"pilots": 3, "count": 2, "more": 1, "rows": [
            {"id": 7, "owner": "ann", "group": "physics", "vo": "lab", "jobs": 30, "pilots": 1, "queues": ["N/c/q"]}]},
        "load_seconds_ago": 9.0,
        "assumed": ["loads are those that the director last went by, 9 s ago"],
    },
    "notices": [{"message": "CE c has no queue", "source": "new.toml", "section": "site.A", "line": 3}],
}  # fmt: skip
SHARES: dict[str, Any] = {
    "changed": [{"group": "bio", "before": 1000.0, "after": 3000.0}],
    "groups": [
        {"vo": "lab", "group": "bio", "waiting": 29, "share": {"before": 1000.0, "after": 3000.0},
         "part": {"before": 0.25, "after": 0.5}, "director": {"before": 0.25, "after": 0.5},
         "starts_an_hour": {"before": 10.0, "after": 20.0}},
        {"vo": "lab", "group": "physics", "waiting": 2000, "share": {"before": 3000.0, "after": 3000.0},
         "part": {"before": 0.75, "after": 0.5}, "director": None, "starts_an_hour": None},
    ],
    "private_starts_an_hour": {"lab": 1234.5},
    "without_waiting_jobs": [],
    "places": [{"vo": "lab", "queues": 12, "sites": ["North", "South"], "more_sites": 2, "groups": {
        "bio": {"before": 0.25, "after": 0.5}, "physics": {"before": 0.75, "after": 0.5}}}],
    "notices": [],
}  # fmt: skip


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def hello(home):
    (home / "hello.jdl").write_text(HELLO)
    return "hello.jdl"


# --- jobs


def test_a_plan_of_a_job_is_shown_like_why(at, server, hello):
    server.on("POST", "/v1/plan/job", JOB)
    result = at("plan", "job", hello, "--verbose")
    assert (result.code, result.err) == (0, "")
    assert lines(result.out) == [
        "hello.jdl: 1 job would be submitted, for group physics.",
        "It would join task queue 7, which has 2 waiting jobs.",
        "STEP WHAT IS KNOWN AGE",
        "access ok ann may use 4 queues -",
        "pilots ? unknown 3.0 s",
        "",
        "Director (decided 4.0 s ago):",
        "pilots: none asked",
        "",
        "The job: NOW. 4 of 4 queues can run it.",
    ]
    (asked,) = server.asked
    assert asked.json == {"text": HELLO, "form": "jdl"}


def test_options_travel(at, server, hello):
    server.on("POST", "/v1/plan/job", JOB)
    at(
        "plan",
        "job",
        "-",
        "--group",
        "bio",
        "--hold-if-impossible",
        "--form",
        "json",
        stdin=b'{"Executable": "x"}',
    )
    assert server.asked[0].json == {
        "text": '{"Executable": "x"}', "form": "json", "group": "bio", "hold_if_impossible": True,
    }  # fmt: skip


def test_a_job_that_would_be_refused(at, server, hello):
    answer = {**JOB, "refusal": REFUSAL, "cohorts": [NEVER], "verdicts": {"never": 1, "not now": 0, "now": 0}}
    server.on("POST", "/v1/plan/job", answer)
    result = at("plan", "job", hello)
    assert result.code == 1
    assert lines(result.out)[:2] == [
        "hello.jdl: 1 job would be refused, since no queue could run it.",
        "It would join a new task queue.",
    ]
    assert lines(result.out)[-2:] == ["The job: NEVER. No queue can run it.", "Who can change that: you."]
    assert "Memory 8000 -> 4000: 3 of 4 queues, for instance A/c/q" in result.out


def test_an_array_is_a_table_with_its_obstacle_once(at, server, hello):
    cohorts = [
        {**NEVER, "members": [[1, 1], [4, 9]], "more_members": 3, "jobs": 90},
        {**NEVER, "members": [[2, 2]]},
        {**COHORT, "members": [[0, 0]]},
    ]
    answer = {
        **JOB, "count": 92, "refusal": REFUSAL, "cohorts": cohorts, "more_cohorts": 5,
        "verdicts": {"never": 91, "not now": 0, "now": 1},
    }  # fmt: skip
    server.on("POST", "/v1/plan/job", answer)
    result = at("plan", "job", hello)
    assert result.code == 1
    assert lines(result.out) == [
        "hello.jdl: 92 jobs would be refused, since no queue could run 91 of them.",
        "MEMBERS JOBS VERDICT QUEUES OF TASK QUEUE WAITING THERE",
        "1, 4-9, ... 90 never 0 4 new 0",
        "2 1 never 0 4 new 0",
        "0 1 now 4 4 7 2",
        "",
        "Members 1, 4-9, ...: NEVER. No queue can run it.",
        "Who can change that: you.",
        "",
        "Suggestions:",
        "Memory 8000 -> 4000: 3 of 4 queues, for instance A/c/q",
    ]
    assert result.err == "lode: and 5 more cohorts.\n"


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        (
            {"count": 30, "cohorts": [{**COHORT, "jobs": 30, "members": [[0, 29]]}]},
            "30 jobs would be submitted, for group",
        ),
        ({"held": 1, "cohorts": [NEVER]}, "1 job would be submitted, 1 of them Held, for group physics."),
    ],
)
def test_the_first_line_is_the_outcome(at, server, hello, changes, first):
    server.on("POST", "/v1/plan/job", {**JOB, **changes})
    result = at("plan", "job", hello)
    assert result.code == 0
    assert result.out.startswith(f"hello.jdl: {first}")
    if "count" in changes:
        assert "They would join task queue 7" in result.out
        assert "All 30 members: NOW." in result.out


def test_notices_and_errors_have_their_place(at, server, home, hello):
    server.on(
        "POST",
        "/v1/plan/job",
        {**JOB, "notices": [{"attribute": "C", "message": "odd", "line": 3, "column": 1}]},
    )
    assert at("plan", "job", hello).err == "lode: hello.jdl:3:1: warning: odd\n"
    (home / "bad.jdl").write_text("[ A = ")
    result = at("plan", "job", hello, "bad.jdl")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("lode: bad.jdl:1:")
    assert len(server.asked) == 1


def test_several_files_are_several_plans(at, server, home, hello):
    (home / "b.jdl").write_text(HELLO)
    answers = iter([JOB, (404, {"error": {"code": "not-found", "message": "Gone."}}), JOB])
    server.on("POST", "/v1/plan/job", lambda asked: next(answers))
    result = at("plan", "job", hello, "b.jdl", hello)
    assert result.code == 1
    assert result.out.count("would be submitted") == 2
    assert result.err == "lode: b.jdl: Gone.\n"


def test_no_server_is_asked_twice(at, server, home, hello):
    server.refuse("POST", "/v1/plan/job", 401, code="unauthorized", message="No.")
    assert at("plan", "job", hello, hello).code == 4
    assert len(server.asked) == 1


def test_json_of_jobs(at, server, home, hello):
    server.on("POST", "/v1/plan/job", JOB)
    assert at("plan", "job", hello, "--json").json == {
        "plans": [{"file": "hello.jdl", **full(JobPlan, JOB)}], "errors": []}  # fmt: skip

    found = at("plan", "job", "none.jdl", "--json").json
    assert (found["plans"], found["errors"][0]["file"]) == ([], "none.jdl")


def test_input_files_must_exist_and_stay_here(at, server, home):
    (home / "a.jdl").write_text('[ Executable = "run.sh"; InputSandbox = "run.sh"; ]')
    result = at("plan", "job", "a.jdl")
    assert (result.code, server.asked) == (1, [])
    assert "run.sh does not exist" in result.err
    (home / "run.sh").write_text("x")
    server.on("POST", "/v1/plan/job", JOB)
    assert at("plan", "job", "a.jdl").code == 0
    assert [one.path for one in server.asked] == ["/v1/plan/job"]


# --- resources


def test_resources_are_shown_from_queues_to_jobs(at, server, home):
    (home / "new.toml").write_text("[site.A]\n")
    server.on("POST", "/v1/plan/resources", RESOURCES)
    result = at("plan", "resources", "new.toml")
    assert result.code == 0
    assert lines(result.out) == [
        "Queues: 2 before, 2 after; 1 added, 1 removed, 2 changed.",
        "CHANGE WHAT VALUE BEFORE AFTER",
        "added E/c/q - - -",
        "removed S/c/q - - -",
        "changed N/c/q Memory 2000 -",
        "changed N/c/q (VO lab) Tag a a, b",
        "changed group bio share 5 6",
        "removed group odd - - -",
        "added parameter Disk type - number GB",
        "GROUP VO JOBS SHARE THEN STARTS THEN",
        "bio lab 5,001 5 6 25.0 % 100.0 %",
        "physics lab 3 15 15 75.0 % 0.0 %",
        "Task queues: 9 with jobs; the eligible queues of 3 change.",
        "TQ OWNER GROUP JOBS BEFORE AFTER GAINED LOST BECOMES",
        "7 ann physics 3 4 0 0 4 impossible",
        "8 bob bio 1 0 2 2 0 possible",
        "9 ann bio 5,000 3 2 1 2 -",
        "3 jobs of 1 task queue would be Held:",
        "tq 7, 3 jobs: no queue can run it",
        "1 job of 1 task queue would be released:",
        "tq 8, 1 job: E/c/q can run it now",
        "SubmitPools: 4; the queues of 1 change.",
        "SUBMITPOOL VO BEFORE AFTER GAINED LOST",
        "req1:abc lab 3 2 0 1",
        (
            "Next iteration of the director, pilots before and after: 16.2 -> 20 expected, 15 -> 21 asked, "
            "3 -> 1,013 placed."
        ),
        "GROUP VO EXPECTED THEN ASKED THEN PLACED THEN",
        "bio lab 16.2 20 15 21 3 1,013",
        "LIMIT OF NUMBER THEN PILOTS THEN FOR INSTANCE",
        "max-waiting queues 2 1 27 9 N/c/q: MaxWaitingJobs 10 - 9 waiting",
        "usable-supply task queues 1 2 1 4 tq 7: 9 allowed",
        "QUEUE PILOTS THEN FREE CAPACITY THEN",
        "E/c/q 0 10 - 10",
        "1 task queue gets pilots only after the change, 10 together:",
        "tq 8 of bob, 1 job: 10 pilots to E/c/q",
        "2 task queues get pilots only before it, 3 together:",
        "tq 7 of ann, 30 jobs: 1 pilot to N/c/q",
    ]
    assert result.err == (
        "lode: new.toml, line 3, site.A: CE c has no queue\n"
        "lode: Assumed: loads are those that the director last went by, 9 s ago.\n"
    )
    (asked,) = server.asked
    assert asked.json == {"files": [{"name": "new.toml", "text": "[site.A]\n"}]}


def test_resources_that_change_nothing(at, server, home):
    (home / "a.toml").write_text("")
    (home / "b.cfg").write_text("")
    nothing = {
        **RESOURCES, "queues": {"before": 2, "after": 2, **dict.fromkeys(("added", "removed", "changed"), NOTHING)},
        "groups": [], "types": [], "notices": [],
        "parts": [{**row, "share": {"before": 5.0, "after": 5.0}, "part": {"before": 0.5, "after": 0.5}}
                  for row in RESOURCES["parts"]],
        "task_queues": {"checked": 0, "changed": NOTHING, "impossible": NONE, "possible": NONE},
        "submit_pools": {"checked": 0, "changed": NOTHING}, "director": alike(RESOURCES["director"]),
    }  # fmt: skip
    server.on("POST", "/v1/plan/resources", nothing)
    result = at("plan", "resources", "--add", "a.toml", "b.cfg", "--limit", "5")
    assert lines(result.out)[3:] == [
        "Next iteration of the director: nothing changes, 21 pilots asked and 1,013 placed.",
        "LIMIT OF NUMBER THEN PILOTS THEN FOR INSTANCE",
        "max-waiting queues 1 1 9 9 N/c/q: MaxWaitingJobs 10 - 9 waiting",
        "usable-supply task queues 2 2 4 4 tq 7: 9 allowed",
    ]
    asked = server.asked[0].json
    assert ([one["name"] for one in asked["files"]], asked["add"], asked["limit"]) == (
        ["a.toml", "b.cfg"],
        True,
        5,
    )


def alike(director):
    """An iteration that the change leaves as it is."""

    def same(value: Any) -> Any:
        if isinstance(value, list):
            return [same(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "after" in value:
            return dict.fromkeys(("before", "after"), value["after"])
        return {name: same(item) for name, item in value.items()}

    nothing = {"pilots": 0, **NOTHING}
    return {**same(director), "queues": NOTHING, "only_after": nothing, "only_before": nothing}


@pytest.mark.parametrize("server_is_old", [False, True])
def test_without_a_director_the_plan_omits_it(at, server, home, server_is_old):
    (home / "a.toml").write_text("")
    answer = {**RESOURCES, "director": None}
    if server_is_old:
        del answer["director"]
    server.on("POST", "/v1/plan/resources", answer)
    result = at("plan", "resources", "a.toml")
    assert (result.code, "director" in result.out) == (0, False)


def test_of_many_queues_some_are_shown(at, server, home):
    (home / "a.toml").write_text("")
    (row,) = RESOURCES["director"]["queues"]["rows"]
    many = {"count": 300, "more": 200, "rows": [row] * 100}
    server.on(
        "POST", "/v1/plan/resources", {**RESOURCES, "director": {**RESOURCES["director"], "queues": many}}
    )
    result = at("plan", "resources", "a.toml")
    assert result.out.count("E/c/q ") == 12
    assert "290 more: --json." in result.err
    assert "There is more: --limit 300." in result.err


def test_cut_lists_are_marked(at, server, home):
    (home / "a.toml").write_text("")
    cut = {
        **RESOURCES,
        "submit_pools": {"checked": 900, "changed": {"count": 700, "rows": [], "more": 600}},
    }
    server.on("POST", "/v1/plan/resources", cut)
    assert "There is more: --limit 700." in at("plan", "resources", "a.toml").err


def test_every_fault_of_the_files_is_reported(at, server, home):
    (home / "a.toml").write_text("x")
    faults = [{"message": f"wrong {n}", "source": "a.toml", "section": "site.A", "line": n} for n in (1, 2)]
    server.refuse(
        "POST", "/v1/plan/resources", 400, code="invalid-config", message="2 faults", data={"faults": faults}
    )
    result = at("plan", "resources", "a.toml")
    assert (result.code, result.out) == (1, "")
    assert "a.toml, line 1, site.A: wrong 1" in result.err
    assert "a.toml, line 2, site.A: wrong 2" in result.err


@pytest.mark.parametrize(
    ("data", "said"), [(None, "No such file"), (b"\xff", "not UTF-8"), (b"x" * 100, "more than 99")]
)
def test_files_that_cannot_be_sent(at, server, home, monkeypatch, data, said):
    monkeypatch.setattr("lodesman.user.cli.commands.plan._MOST_BYTES", 99)
    if data is not None:
        (home / "a.toml").write_bytes(data)
    result = at("plan", "resources", "a.toml")
    assert (result.code, server.asked) == (1, [])
    assert said in result.err


# --- shares


def test_shares_now_and_then(at, server):
    server.on("POST", "/v1/plan/shares", SHARES)
    result = at("plan", "share", "bio=3000", "a=b=0.5")
    assert (result.code, result.err) == (0, "")
    assert lines(result.out) == [
        "GROUP VO WAITING SHARE THEN STARTS THEN AN HOUR THEN",
        "bio lab 29 1,000 3,000 25.0 % 50.0 % 10.0 20.0",
        "physics lab 2,000 3,000 3,000 75.0 % 50.0 % - -",
        "Beside these, private pilots start 1,234.5 jobs of VO lab an hour; shares do not change that.",
        "",
        "Where they compete:",
        "QUEUES AT GROUP STARTS THEN",
        "12 North, South and 2 sites more bio 25.0 % 50.0 %",
        "- - physics 75.0 % 50.0 %",
    ]
    assert server.asked[0].json == {"shares": {"bio": 3000.0, "a=b": 0.5}}


def test_shares_without_waiting_jobs(at, server):
    answer = {**SHARES, "groups": [], "places": [], "without_waiting_jobs": ["bio"],
              "notices": [{"message": "m", "source": "", "section": "group bio", "line": 0}]}  # fmt: skip
    server.on("POST", "/v1/plan/shares", answer)
    result = at("plan", "share", "bio=0")
    assert result.out.startswith("No job waits")
    assert lines(result.err) == [
        "lode: group bio: m", "lode: No job of bio waits: without waiting jobs a share changes nothing.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [["bio"], ["bio="], ["=5"], ["bio=much"], ["bio=-1"], ["bio=nan"], ["bio=inf"], ["bio=1", "bio=2"], []],
)
def test_what_is_no_share_is_wrong_usage(at, server, words):
    result = at("plan", "share", *words)
    assert (result.code, server.asked) == (2, [])


def test_an_unknown_group(at, server):
    server.refuse(
        "POST",
        "/v1/plan/shares",
        404,
        code="not-found",
        message="There is no group 'boi'.",
        hint="Did you mean bio?",
    )
    result = at("plan", "share", "boi=1")
    assert (result.code, result.err) == (3, "lode: There is no group 'boi'. Did you mean bio?\n")


# --- all


PLANS = [
    (["plan", "job", "hello.jdl"], "/v1/plan/job",
     {**JOB, "cohorts": [NEVER], "notices": [{"attribute": "a", "message": "m", "line": 1, "column": 1}]}),
    (["plan", "job", "hello.jdl"], "/v1/plan/job", {**JOB, "count": 2, "cohorts": [NEVER, COHORT]}),
    (["plan", "resources", "hello.jdl"], "/v1/plan/resources", RESOURCES),
    (["plan", "share", "bio=1"], "/v1/plan/shares", {**SHARES, "without_waiting_jobs": ["g"]}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "path", "answer"), PLANS, ids=["job", "array", "resources", "share"])
def test_no_answer_steers_a_terminal(at, server, hello, words, path, answer):
    server.on("POST", path, lambda asked: poisoned(asked, answer))
    result = at(*words)
    assert result.code == 0
    assert not FORBIDDEN & set(result.out + result.err)
    assert "\nlode: all is well" not in result.out + result.err
    assert "\\x1b[2J" in result.out


@pytest.mark.parametrize(("words", "path", "answer"), PLANS[1:], ids=["array", "resources", "share"])
def test_json_is_the_answer_of_the_server(at, server, hello, words, path, answer):
    server.on("POST", path, answer)
    found = at(*words, "--json").json
    if words[1] == "job":
        assert found["plans"] == [{"file": "hello.jdl", **full(JobPlan, answer)}]
    else:
        assert found == full(ResourcesPlan if words[1] == "resources" else SharesPlan, answer)


def test_a_person_who_waits_is_notified(monkeypatch, capfd):
    told = threading.Event()
    monkeypatch.setattr(progress, "note", lambda text: told.set())
    monkeypatch.setattr(progress, "is_terminal", lambda stream: True)
    with progress.patience("It takes a while.", seconds=0.0):
        assert told.wait(30)
    told.clear()
    with progress.patience("It takes a while.", seconds=600.0):
        pass
    assert not told.is_set()


def test_a_program_that_waits_is_not_notified(monkeypatch, capfd):
    monkeypatch.setattr(progress, "Timer", None)
    with progress.patience("It takes a while.", seconds=0.0):
        pass
    assert capfd.readouterr().err == ""


# --- ads of sites


def test_other_ads_of_sites_are_sent_by_site_and_what_the_director_would_do_is_shown(at, server):
    server.on("POST", "/v1/plan/gates", RESOURCES["director"])
    gates = ("North:MaxJobs=200", 'North:Requirements=TARGET.VO == "lab"', "S:Name:x=1")
    result = at("plan", *[word for gate in gates for word in ("--gate", gate)], "--limit", "5")
    assert result.code == 0
    assert server.asked[0].json == {
        "gates": {"North": {"MaxJobs": "200", "Requirements": 'TARGET.VO == "lab"'}, "S:Name": {"x": "1"}}, "limit": 5,
    }  # fmt: skip
    assert lines(result.out)[0].startswith("Next iteration of the director")


@pytest.mark.parametrize("word", ["North", "North:MaxJobs", "North=5", ":MaxJobs=5", "North:Max Jobs=5"])
def test_what_is_no_gate_is_refused_with_an_example(at, server, word):
    result = at("plan", "--gate", word)
    assert (result.code, server.asked) == (2, [])
    assert "North:MaxJobs=200" in result.err


def test_the_answer_about_other_ads_is_there_for_programs(at, server):
    server.on("POST", "/v1/plan/gates", RESOURCES["director"])
    result = at("plan", "--gate", "North:MaxJobs=200", "--json")
    assert json.loads(result.out) == RESOURCES["director"]


@pytest.mark.parametrize(
    "words",
    [["--gate", "North:MaxJobs=200", "share", "a=1"], ["--limit", "5", "share", "a=1"], ["--limit", "5"]],
)
def test_other_ads_stand_alone(at, server, words):
    result = at("plan", *words)
    assert (result.code, server.asked) == (2, [])
    assert "--gate" in result.err


def test_plan_alone_lists_what_it_can_do(at):
    result = at("plan")
    assert "--gate SITE:ATTRIBUTE=EXPRESSION" in result.out + result.err
    assert "resources" in result.out + result.err
