"""Pilots, sites, queues, task queues, the director, usage: tables, JSON, nothing hostile."""

import time

import pytest
from tests.unit.cli.conftest import typed

from lodesman.user.cli.commands import task_queues
from lodesman.wire.task_queues import TaskQueueRow

HOSTILE = "\x1b]0;owned\x07\u202e"


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    """Time stands still: an age is what the test says, however slow the machine is."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


def pilot_row(number, **changes):
    row = {
        "id": number,
        "state": "Running",
        "owner": "",
        "group": "",
        "pilot_type": "generic",
        "jobs": [],
        "node_host": "",
    }
    row |= {
        "site": "North",
        "ce": "ce",
        "queue": "q",
        "created_at": time.time() - 300,
        "jobs_done": 4,
        "drain": 0,
    }
    return {**row, **changes}


# --- pilots


def test_live_pilots(at, server):
    server.on(
        "GET", "/v1/pilots", {"pilots": [pilot_row(2, last_seen=time.time() - 3), pilot_row(1, drain=1)]}
    )
    result = at("pilot", "ls")
    lines = result.out.splitlines()
    assert lines[0].split() == ["PILOT", "STATE", "QUEUE", "HOST", "JOBS", "SENT", "AGE", "SEEN", "REMARK"]
    assert lines[1].split()[:5] == ["2", "Running", "North/ce/q", "-", "idle"]
    assert lines[1].split()[6:] == ["5", "min", "3", "s", "-"]
    assert lines[2].endswith("draining")
    assert server.asked[-1].query == {"limit": "101"}


def test_what_pilots_run(at, server):
    rows = [
        pilot_row(3, jobs=[7, 9], node_host="wn7", host="other"),
        pilot_row(2, jobs=list(range(1, 9)), host="wn8"),
        pilot_row(1, state="Submitted"),
    ]
    server.on("GET", "/v1/pilots", {"pilots": rows})
    out = at("pilot", "ls", "--columns", "pilot,host,jobs,running", "--format", "csv").out
    assert out.splitlines() == [
        "pilot,host,jobs,running", '3,wn7,"7, 9",2', '2,wn8,"1, 2, 3, 4, ...",8', "1,,,0",
    ]  # fmt: skip
    assert (
        at("pilot", "ls", "--sort", "pilot", "--format", "{pilot} {state}").out
        == "1 Submitted\n2 Running\n3 Running\n"
    )


def test_one_pilot(at, server):
    found = {
        **pilot_row(4, jobs=[7], joined_at=0.0),
        "stamp": HOSTILE,
        "drain_reason": "",
        "node": {"cores": 4, "host": "wn"},
    }
    server.on("GET", "/v1/pilots/4", found)
    result = at("pilot", "show", "4", "--utc")
    fields = dict(line.split(None, 1) for line in result.out.splitlines())
    assert (fields["runs"], fields["node.cores"], fields["queue"]) == ("7", "4", "North/ce/q")
    assert "1970-01-01 00:00Z, " in fields["joined"]
    assert "\x1b" not in result.out
    assert at("pilot", "show", "4", "--json").json["node"]["host"] == "wn"


def test_the_job_of_a_bound_pilot(at, server):
    rows = [pilot_row(2, bound_job=42), pilot_row(1, bound_job=41, drain=1), pilot_row(3, bound_job=None)]
    server.on("GET", "/v1/pilots", {"pilots": rows})
    lines = at("pilot", "ls").out.splitlines()
    assert [line.partition("idle")[2].split()[-3:] for line in lines[1:3]] == [
        ["for", "job", "42"],
        ["for", "job", "41"],
    ]
    assert "draining, for job 41" in lines[2]
    assert "for" not in lines[3]


def test_all_pilots_and_more_of_them(at, server):
    server.on(
        "GET",
        "/v1/pilots",
        lambda asked: {"pilots": [pilot_row(n) for n in range(int(asked.query["limit"]))]},
    )
    result = at("pilot", "ls", "--all", "--limit", "5")
    assert server.asked[-1].query == {"all": "true", "limit": "6"}
    assert len(result.out.splitlines()) == 6
    assert "--limit 50" in result.err
    found = at("pilot", "ls", "--json").json
    assert (len(found["pilots"]), found["more"]) == (100, True)


def test_no_pilots(at, server):
    server.on("GET", "/v1/pilots", {"pilots": []})
    result = at("pilot", "ls")
    assert (result.code, result.out, "no live pilot" in result.err) == (0, "", True)


def test_a_private_pilot_shows_whose_it_is(at, server):
    server.on(
        "GET", "/v1/pilots", {"pilots": [pilot_row(1, pilot_type="private", owner="ann", group=HOSTILE)]}
    )
    out = at("pilot", "ls").out
    assert "ann (" in out
    assert "\x1b" not in out


def test_what_is_no_pilot_cannot_be_drained(at, server):
    for word, told in (
        ("x", "'x' is not a pilot."),
        ("0", "There is no pilot 0."),
        ("5-1", "5-1 runs backwards."),
    ):
        result = at("pilot", "drain", word)
        assert (result.code, told in result.err, "job" in result.err) == (2, True, False)
    assert server.asked == []


def test_draining(at, server):
    server.on("POST", "/v1/pilots/drain", {"changed": 3})
    result = at("pilot", "drain", "4", "7-8")
    assert result.out == "3 pilots will finish and leave.\n"
    assert server.asked[-1].json == {"pilots": [4, 7, 8]}
    assert at("pilot", "drain", "4", "--json").json == {"changed": 3}
    server.on("POST", "/v1/pilots/drain", {"changed": 0})
    assert at("pilot", "drain", "4").code == 3
    result = at("pilot", "drain", "1-20000")
    assert (result.code, "maximum number of pilots is 10,000" in result.err) == (1, True)


# --- sites and queues


def test_sites(at, server):
    sites = [
        {
            "site": "North",
            "ces": 1,
            "queues": 2,
            "pilots": {"Running": 3, "Submitted": 1},
            "running_jobs": 1_234,
        },
        {"site": HOSTILE, "ces": 0, "queues": 0, "pilots": {}, "running_jobs": 0},
    ]
    sites = [{**one, "closed": [], "failing": []} for one in sites]
    server.on("GET", "/v1/sites", {"sites": sites})
    out = at("site", "ls").out
    assert out.splitlines()[1].split() == ["North", "1", "2", "1,234", "3", "Running,", "1", "Submitted"]
    assert "\x1b" not in out
    assert at("site", "ls", "--json").json == {"sites": sites, "closed": [], "more": False, "cursor": ""}
    server.on("GET", "/v1/sites", {"sites": []})
    assert "lode init" in at("site", "ls").err


QUEUES = [
    {
        "site": "North", "ce": "ce", "queue": "q", "pilots": {"Running": 2},
        "parameters": {
            "CPUTime": {"value": 600, "level": "queue", "file": "sites.toml", "line": 7},
            "Tag": {"value": ["SSD", "GPU"], "level": "queue"},
            "Platform": {"value": "x86_64-el9", "level": "site"},
            "ScratchSpace": {"value": 20, "level": "queue(VO)"},
        },
    },
    {"site": "South", "ce": "ce", "queue": "q", "pilots": {}, "parameters": {"CPUTime": {"value": 5, "level": "CE"}}},
]  # fmt: skip


def test_queues_with_their_effective_parameters(at, server):
    server.on("GET", "/v1/queues", {"queues": QUEUES})
    lines = at("queue", "ls").out.splitlines()
    assert lines[0].split() == ["QUEUE", "PLATFORM", "CPUTIME", "TAG", "OTHERS", "PILOTS"]
    assert "x86_64-el9" in lines[1]
    assert "SSD, GPU" in lines[1]
    assert "ScratchSpace=20" in lines[1]
    assert server.asked[-1].query == {}


def test_queues_as_lists(at, server):
    """Each parameter is a column: numbers are sorted as numbers."""
    server.on("GET", "/v1/queues", {"queues": QUEUES})
    result = at(
        "queue", "ls", "--columns", "queue,cputime,ScratchSpace", "--sort", "cputime", "--format", "csv"
    )
    assert result.out.splitlines() == ["queue,cputime,scratchspace", "South/ce/q,5,", "North/ce/q,600,20"]
    assert at("queue", "ls", "--format", "{queue} {tag}").out.splitlines() == [
        "North/ce/q SSD, GPU",
        "South/ce/q ",
    ]
    wrong = at("queue", "ls", "--columns", "speed")
    assert (wrong.code, "There is no column 'speed'. There are cputime, platform" in wrong.err) == (2, True)
    assert at("queue", "ls", "--origin", "--sort", "queue").code == 2


def test_the_origin_of_each_value(at, server):
    server.on("GET", "/v1/queues", {"queues": QUEUES})
    lines = at("queue", "ls", "--origin", "--site", "North", "--vo", "lab").out.splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["North/ce/q", "CPUTime", "600", "queue", "sites.toml:7"]
    assert lines[3].split()[-2:] == ["queue(VO)", "-"]
    assert server.asked[-1].query == {"vo": "lab", "origin": "true"}
    assert at("queue", "ls", "--site", "South", "--json").json == {"queues": [{**QUEUES[1], "closed": []}]}
    assert "no such queue" in at("queue", "ls", "--site", "West").err


# --- task queues


def tq_row(number, **changes):
    row = {
        "id": number,
        "waiting": 1_200,
        "held": 0,
        "created_at": time.time() - 30,
        "owner": "ann",
        "group": "physics",
    }
    row |= {
        "vo": "lab",
        "norm_cpu_seconds": 86_400,
        "cores": 1,
        "memory_mb": 0,
        "user_priority": 1,
        "sites": [],
    }
    row |= {"main_reason": "no-room-for-pilots", "detail": "breaker", "since": 1.0}
    return {**row, "submit_pool": "", "pilot_type": "", "force_generic": False, **changes}


def test_why_jobs_wait_counted(at, server):
    now = time.time()
    row = {"reason": "impossible", "verdict": "never", "detail": "Memory", "task_queues": 2, "jobs": 1_500,
           "since": now - 90}  # fmt: skip
    told = {"at": now - 3, "facts_at": now - 30, "reasons": [row, {**row, "detail": HOSTILE}]}
    server.on("GET", "/v1/task-queues/reasons", told)
    out = at("tq", "reasons").out
    assert out.splitlines()[1].split() == ["never", "impossible", "(Memory)", "1,500", "2", "90", "s"]
    assert "\x1b" not in out
    assert at("tq", "reasons", "--json").json == told
    server.on("GET", "/v1/task-queues/reasons", {"at": None, "facts_at": None, "reasons": []})
    assert at("tq", "reasons").err == "lode: No job waits.\n"


def test_task_queues_not_judged_yet(at, server):
    server.on("GET", "/v1/task-queues", {"task_queues": [tq_row(7, main_reason=None, detail=None)]})
    assert "not judged yet" in at("tq", "ls").out


def test_task_queues(at, server):
    server.on(
        "GET", "/v1/task-queues", {"task_queues": [tq_row(7), tq_row(8, owner=HOSTILE, sites=[HOSTILE])]}
    )
    out = at("tq", "ls").out
    assert out.splitlines()[1].split() == [
        "7",
        "1,200",
        "-",
        "30",
        "s",
        "ann",
        "physics",
        "24.0",
        "h",
        "no-room-for-pilots",
        "(breaker)",
        "-",
    ]
    assert "\x1b" not in out
    assert at("tq", "ls", "--limit", "1", "--json").json["more"] is True
    server.on("GET", "/v1/task-queues", {"task_queues": []})
    assert at("tq", "ls").err == "lode: No job waits.\n"


def test_jobs_that_nothing_can_run_are_counted_as_held(at, server):
    row = tq_row(7, waiting=0, held=12, main_reason="impossible", detail="no queue of VO lab can run it")
    server.on("GET", "/v1/task-queues", {"task_queues": [row]})
    line = at("tq", "ls").out.splitlines()[1]
    assert line.split()[:3] == ["7", "0", "12"]
    assert "impossible (no queue of VO lab can run it)" in line


def test_what_a_task_queue_asks_for():
    key = typed(TaskQueueRow, tq_row(
        1, sites=["A", "B"], banned_sites=["C"], grid_ces=["ce"], platforms=["el9"], tags=["GPU"], cores=4,
        memory_mb=8_000, submit_pool="a" * 64, pilot_type="private", user_priority=3, submission_pools=["Fast"],
    ))  # fmt: skip
    assert task_queues.conditions(key) == (
        "at A, B; not at C; CE ce; platform el9; tags GPU; through Fast; 4 cores; 8,000 MB; "
        "SubmitPool aaaaaaaaaaaaaaaa; private pilots; UserPriority 3"
    )
    assert task_queues.conditions(typed(TaskQueueRow, tq_row(1, force_generic=True))) == "generic pilots"
    assert task_queues.conditions(typed(TaskQueueRow, tq_row(1))) == ""


def test_a_task_queue_shows_what_its_submit_pool_asks_for(at, server):
    of_pool = {
        "id": "a" * 64,
        "vo": "lab",
        "requirements": {"memory": {"kind": "number", "wanted": [4000], "unit": "MB"}},
    }
    jobs = {"waiting": 1, "held": 0, "running": 0}
    of_pool |= {"queues": 1, "created_at": 0.0, "refreshed_at": None, "unused_since": None, "jobs": jobs}
    rows = [tq_row(1, submit_pool="a" * 64), tq_row(2, submit_pool="b" * 64)]
    server.on("GET", "/v1/task-queues", {"task_queues": rows})
    server.on("GET", "/v1/submit-pools", {"pools": [of_pool], "total": 1, "last_pass": None})
    first, second = at("tq", "ls").out.splitlines()[1:]
    assert "memory 4000 MB (SubmitPool aaaaaaaaaaaaaaaa)" in first
    assert "SubmitPool bbbbbbbbbbbbbbbb" in second
    assert len(server.of("GET", "/v1/submit-pools")) == 1
    at("--json", "tq", "ls")
    server.on("GET", "/v1/task-queues", {"task_queues": [tq_row(1)]})
    at("tq", "ls")
    assert len(server.of("GET", "/v1/submit-pools")) == 1


# --- the director


@pytest.fixture
def decided(server):
    """A real decision of the director, stored as it stores it."""
    fields = (
        "tq_id weight waiting_jobs norm_cpu_seconds cpu_bucket from_priority from_jobs boost mean drawn allowance "
        "usable_waiting cap asked clamps".split()
    )
    first = [7, 1.0, 30, 300, 360, 20.0, 30.0, 150.0, 7_500.0, 7_480, 40, 2, 38, 38,
             [["usable-supply", 7_480, 38, 38, "40 allowed for 30 jobs - 2 usable pilots waiting or idle"]]]  # fmt: skip
    second = [
        8,
        1.0,
        10,
        300,
        360,
        20.0,
        10.0,
        150.0,
        4_500.0,
        4_490,
        16,
        0,
        16,
        0,
        [],
    ]
    plan = {
        "vo": "lab", "now": 1_000.0, "row_fields": fields, "rows": [first, second], "aside": {},
        "borrowed": {"7": 1, "8": 2},
        "plan": {"target": 40.0, "priority_sum": 2.0, "waiting_jobs": 40, "pilots_per_priority": 20.0,
                 "pilots_per_job": 1.0, "max_cpu": 1_080_000, "lowest_cpu_boost": 7_200, "extra_fraction": 0.2,
                 "extra_pilots": 4},
        "spare": 3, "cancel": [11, 12], "no_pool": [],
        "asks": [{"tq_id": 7, "asked": 38, "placed": 2, "pool": "Local", "private": False, "owner": "generic",
                  "group": "generic", "reason": "generic fits", "draw": 0.7,
                  "refused": [{"kind": "no room", "count": 3, "examples": {"North/ce/q": [HOSTILE]}}]}],
        "placements": [[7, "North/ce/q", 2]],
        "rooms": {"North/ce/q": {"wanted": 38, "room": 2,
                                 "clamps": [["max-waiting", 38, 2, 2, "MaxWaitingJobs 2 - 0 waiting"]]},
                  "South/ce/q": {"wanted": 0, "room": 0, "clamps": []}},
    }  # fmt: skip
    server.on("GET", "/v1/director", {"iteration": 12, "at": time.time() - 5, "plan": plan})
    return server


def test_the_last_iteration_in_words(at, decided, monkeypatch):
    made = []

    class Told:
        def __init__(self, plan):
            made.append(plan)

        def lines(self, tq):
            return (f"pilots: words about {tq}", "line")

    monkeypatch.setattr("lodesman.decide.director.record.Stories", Told)
    out = at("director", "show").out
    assert out.startswith("Iteration 12, decided 5 s ago for VO lab.\n")
    assert (
        "Target 40 pilots for 40 waiting jobs in 2 task queues: 38 asked, 2 placed, 2 cancelled, 3 to spare."
        in out
    )
    row = next(line for line in out.splitlines() if line.split()[:1] == ["7"])
    assert row.split()[:6] == ["7", "30", "7500.00", "7480", "38", "2"]
    assert row.endswith("pilots: words about 7")
    assert "North/ce/q      38              2  MaxWaitingJobs 2 - 0 waiting" in out
    result = at("director", "show", "--limit", "1")
    assert "1 more task queue: --limit" in result.err
    assert len(made) == 2  # the record is read once for all lines


def test_the_arithmetic_of_one_task_queue(at, decided):
    out = at("director", "show", "7").out
    assert "Task queue 7: pilots: 2 of 38 asked were placed\n  pilotsPerPriority = 40 / 2 = 20\n" in out
    assert "usable-supply: 7480 -> 38 (40 allowed" in out
    assert "\x1b" not in out
    for words in (("99",), ("7", "99"), ("99", "--json")):
        result = at("director", "show", *words)
        assert (result.code, "no task queue 99" in result.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "rows", "rooms"),
    [((), [7, 8], 2), (("--limit", "1"), [7], 1), (("8",), [8], 2), (("8", "7", "--limit", "1"), [8], 1)],
)
def test_programs_get_what_people_see(at, decided, words, rows, rooms):
    plan = at("director", "show", "--json", *words).json["plan"]
    assert plan["vo"] == "lab"
    assert [row[0] for row in plan["rows"]] == rows
    assert (
        [ask["tq_id"] for ask in plan["asks"]]
        == [placed[0] for placed in plan["placements"]]
        == ([7] if 7 in rows else [])
    )
    assert list(plan["borrowed"]) == [str(tq_id) for tq_id in rows]
    assert len(plan["rooms"]) == rooms


def test_a_director_that_has_not_decided_yet(at, server):
    server.on("GET", "/v1/director", {"iteration": None, "at": None, "plan": None})
    result = at("director", "show")
    assert (result.code, result.out, "not decided anything yet" in result.err) == (0, "", True)


# --- usage


NO_TIMES = {"count": 0, "p50": None, "p90": None, "p95": None, "p99": None, "most": None}
USAGE = {
    "states": {"Done": 190, "Held": 4, "Running": 6},
    "sites": [
        {"site": "North", "cpu_seconds": 90.5, "outcomes": {"Done": 100, "Failed": 2}},
        {"site": HOSTILE, "cpu_seconds": 0.0, "outcomes": {}},
    ],
    "groups": [
        {"group": "bio", "share": 1_000.0, "claims": 60, "private": 4, "compared": 50, "target": 48.0},
        {"group": "physics", "share": 3_000.0, "claims": 150, "private": 0, "compared": 150, "target": 152.0},
    ],
    "waiting_seconds": {"count": 100, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "most": 100.0},
    "running_seconds": NO_TIMES,
    "faulty": [
        {"id": 7, "count": 1, "state": "Failed", "reason": "exit"},
        {"id": 8, "count": 3, "state": "Held", "reason": HOSTILE},
        {"id": 9, "count": 1, "state": "Failed", "reason": "exit"},
    ],
    "attempts": {"all": 201, "jobs": 200, "same_number_twice": 0},
    "pilots": [
        {"site": "North", "state": "Running", "pilots": 2},
        {"site": "West", "state": "Submitted", "pilots": 1},
    ],
}


def test_how_things_stand(at, server):
    server.on("GET", "/v1/usage", USAGE)
    out = at("usage", "shares").out
    lines = out.splitlines()
    assert lines[0] == "Jobs: 4 Held, 6 Running, 190 Done."
    assert lines[1] == "Waited: median 50 s, 95th percentile 95 s."
    assert lines[2] == "Ran: median -, 95th percentile -."
    assert lines[3] == "Attempts: 201 of 200 jobs."
    table = [line.split() for line in lines]
    assert ["bio", "1,000", "60", "25.0", "%", "24.0", "%"] in table
    assert ["physics", "3,000", "150", "75.0", "%", "76.0", "%"] in table
    assert "Actual and target: 200 of 206 starts; with many groups, a random sample of one in 64." in lines
    assert "Not part of actual and target: 4 starts by private pilots, which serve one group." in lines
    assert ["West", "none", "-", "1", "Submitted"] in table
    assert ["2", "Failed", "7", "exit"] in table
    assert "\x1b" not in out
    assert at("usage", "shares", "--json").json == {**USAGE, "claims": []}


def correction(**changes):
    def owner(number, used, factor):
        return {"owner": f"u{number:02}", "used": used, "factor": factor, "weight": factor / 1.5}

    owners = [owner(number, [float(number), 0.0], 3.0) for number in reversed(range(12))]
    alone = [owner(0, [7_200.0, 0.0], 1.0)]
    group = {"share": 1_000.0, "factor": 1.25, "corrected": 1_111.1}
    return {
        "at": time.time() - 60, "currency": "starts", "most": 5.0,
        "slices": [{}, {"TimeSpan": 86_400.0}],
        "groups": [
            {**group, "group": "bio", "used": [1_234.0, 56.0], "owners": owners},
            {**group, "group": HOSTILE, "used": [7_200.0, 0.0], "owners": alone},
        ],
        **changes,
    }  # fmt: skip


@pytest.mark.slow
def test_shares_that_are_corrected(at, server):
    server.on("GET", "/v1/usage", {**USAGE, "correction": correction()})
    out = at("usage", "shares").out
    assert "Shares are corrected by usage, in job starts, as of 60 s ago." in out
    table = [line.split() for line in out.splitlines()]
    assert ["GROUP", "OWNER", "IN", "7", "D", "IN", "24.0", "H", "FACTOR", "SHARE", "CORRECTED"] in table
    assert ["bio", "-", "1,234", "56", "1.25", "1,000", "1,111.1"] in table
    # The owners who used most; one alone has nobody to be held against.
    assert ["bio", "u11", "11", "0", "3", "1", "2"] in table
    assert ["bio", "u02", "2", "0", "3", "1", "2"] in table
    assert not any(line[1:2] in (["u01"], ["u00"]) for line in table)
    assert "\x1b" not in out
    server.on("GET", "/v1/usage", {**USAGE, "correction": correction(currency="core-seconds")})
    out = at("usage", "shares").out
    assert "in core-hours" in out
    assert any(line.split()[-5:-3] == ["2", "0"] for line in out.splitlines())


def test_nothing_stands_anywhere_yet(at, server):
    nothing = {
        **USAGE,
        "states": {},
        "sites": [],
        "groups": [],
        "faulty": [],
        "pilots": [],
        "waiting_seconds": NO_TIMES,
    }
    server.on("GET", "/v1/usage", nothing)
    result = at("usage", "shares")
    assert (result.code, len(result.out.splitlines())) == (0, 4)


def failing(queue, **more):
    said = "cannot start '/usr/bin/python9': No such file or directory"
    return {
        "site": "North", "ce": "ce", "queue": queue, "breaker": "open", "failures": 3, "retry_at": time.time() + 301.0,
        "reason": said, "order": "", **more,
    }  # fmt: skip


def test_sites_where_pilots_do_not_start(at, server):
    """Queues that fail alike are named together, with what the pilots said."""
    queues = [failing("q"), failing("r"), failing("s", breaker="half-open", retry_at=0.0, reason="no route")]
    north = {
        "site": "North",
        "ces": 1,
        "queues": 4,
        "pilots": {},
        "running_jobs": 0,
        "closed": [],
        "failing": queues,
    }
    server.on("GET", "/v1/sites", {"sites": [north, {**north, "site": "South", "failing": []}], "closed": []})
    done = at("site", "ls")
    lines = done.out.splitlines()
    assert lines[0].split()[-1] == "FAILING"
    assert lines[1].endswith("ce/q, ce/r, ce/s")
    assert lines[2].split()[-1] == "-"
    said = "cannot start '/usr/bin/python9': No such file or directory"
    assert done.err.splitlines() == [
        f"lode: North/ce/q and 1 more: the last pilots did not start: {said}; the next one is sent in 5 min",
        "lode: North/ce/s: the last pilots did not start: no route; one tries it",
    ]


def test_queues_where_pilots_do_not_start_and_orders_for_breakers(at, server):
    order = "open by order of root since 2026-11-21 21:30 UTC: a new disk"
    rows = [
        {**QUEUES[0], "failing": failing("q")},
        {**QUEUES[1], "failing": {**failing("q", order=order, retry_at=None, failures=0), "site": "South"}},
        {**QUEUES[1], "queue": "r"},
    ]
    server.on("GET", "/v1/queues", {"queues": [{**row, "closed": []} for row in rows]})
    done = at("queue", "ls")
    lines = done.out.splitlines()
    assert [line.split()[-1] for line in lines] == ["BREAKER", "open", "open", "-"]
    assert done.err.splitlines()[1] == f"lode: South/ce/q: its breaker is {order}"
