"""Lists: jobs in lists and ranges, counts, sites, queues, task queues, pilots, usage."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.wire.call import Page
from lodesman.wire.calls import CALLS, WAIT

LISTS = (
    "jobs", "submissions", "pilots", "task-queues", "submit-pools", "hosts", "job-classes", "sites", "queues", "tokens",
    "users", "audit", "quotas/use", "sites/ads",
)  # fmt: skip


def ids(house, query="", token="ann"):
    return [job["id"] for job in house.get(f"/v1/jobs?{query}", token)["jobs"]]


@pytest.fixture
def mixed(house):
    """Jobs 1 and 2 single, 3 to 12 an array of which 5 to 7 are held, 13 bob's, 14 single."""
    house.submitted()
    house.submitted()
    house.submitted({"Parameters": 10, "JobName": "part_%n"})
    house.control("hold", 5, 7)
    house.submitted(token="bob")
    house.submitted()
    return house


@pytest.mark.stores
def test_jobs_come_by_id_the_smallest_first(mixed):
    assert ids(mixed) == [*range(1, 13), 14]
    assert ids(mixed, "newest=true") == [14, *range(12, 0, -1)]


@pytest.mark.stores
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("first=4&last=6", [4, 5, 6]),
        ("first=12", [12, 14]),
        ("last=2", [1, 2]),
        ("limit=3", [1, 2, 3]),
        ("limit=0", []),
        ("limit=4&newest=true", [14, 12, 11, 10]),
        ("first=6&last=5", []),
        ("first=13&last=13", []),
        ("first=1000", []),
        ("state=Held", [5, 6, 7]),
        ("state=Held&limit=2", [5, 6]),
        ("state=Waiting&first=4", [4, 8, 9, 10, 11, 12, 14]),
        ("state=Held,Waiting&first=7", [7, 8, 9, 10, 11, 12, 14]),
        ("group=physics&last=3", [1, 2, 3]),
        ("group=bio", []),
        ("group=%25", []),
    ],
)
def test_ranges_limits_and_filters(mixed, query, wanted):
    assert ids(mixed, query) == wanted


@pytest.mark.stores
def test_paging_shows_each_job_once(mixed):
    seen, first = [], 1
    while page := ids(mixed, f"first={first}&limit=4&all=true", "admin"):
        assert len(page) <= 4
        seen += page
        first = page[-1] + 1
    assert seen == list(range(1, 15))


@pytest.mark.stores
def test_paging_backwards_shows_each_job_once(mixed):
    seen, last = [], 1 << 53
    while page := ids(mixed, f"last={last}&limit=4&newest=true&all=true", "admin"):
        seen += page
        last = page[-1] - 1
    assert seen == list(range(14, 0, -1))


@pytest.mark.stores
@at_most(40)
@given(
    first=st.integers(0, 20), last=st.integers(0, 20), limit=st.integers(0, 20), newest=st.booleans(),
    held=st.booleans(),
)  # fmt: skip
def test_a_list_agrees_with_each_job(mixed, first, last, limit, newest, held):
    state = "&state=Held" if held else ""
    query = f"first={first}&last={last}&limit={limit}&newest={str(newest).lower()}&all=true{state}"
    wanted = [job for job in range(first, last + 1) if job in ({5, 6, 7} if held else set(range(1, 15)))]
    assert ids(mixed, query, "admin") == (wanted[::-1] if newest else wanted)[:limit]


@pytest.mark.stores
def test_a_job_in_a_list_is_as_it_is_alone(mixed):
    mixed.claim(mixed.pilot(), 4)
    rows = mixed.get("/v1/jobs?all=true", "admin")["jobs"]
    for row in rows:
        alone = mixed.get(f"/v1/jobs/{row['id']}", "admin")
        assert {name: alone[name] for name in row} == row
    assert [row["name"] for row in rows][:4] == ["", "", "part_00", "part_01"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1", "limit=many", "limit=1e3", "limit=%C2%B2", "limit=%D9%A3", "limit=10001", "limit=1.0",
        "first=-1", "first=99999999999999999999", "last=0x10", "last=9007199254740993", "first=%00",
    ],
)  # fmt: skip
def test_a_number_that_is_none(mixed, query):
    name = query.partition("=")[0]
    answer = mixed.call("GET", f"/v1/jobs?{query}", token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert answer.json["error"]["data"]["parameter"] == name


def test_no_state_is_any_state(mixed):
    assert ids(mixed, "state=,,,") == ids(mixed, "state=Held,Waiting,Held,")


@pytest.mark.stores
def test_counts_are_what_the_list_shows(mixed):
    counts = {
        (row["owner"], row["state"]): row["jobs"] for row in mixed.get("/v1/jobs/counts", "admin")["counts"]
    }
    assert counts == {("ann", "Waiting"): 10, ("ann", "Held"): 3, ("bob", "Waiting"): 1}
    mixed.claim(mixed.pilot(), 4)
    counts = {
        (row["owner"], row["state"]): row["jobs"] for row in mixed.get("/v1/jobs/counts", "admin")["counts"]
    }
    assert sum(counts.values()) == 14
    assert sum(n for (_, state), n in counts.items() if state == "Matched") == 4


@pytest.mark.parametrize("path", ["", "/why", "/logs", "/output"])
@pytest.mark.parametrize("job", ["99", "0", "9" * 19, "9" * 40])
def test_a_job_that_does_not_exist(mixed, job, path):
    answer = mixed.call("GET", f"/v1/jobs/{job}{path}", token="ann")
    assert (answer.status, answer.code) == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "/v1/jobs/one", 404),
        ("GET", "/v1/jobs/-1", 404),
        ("GET", "/v1/jobs/1.5", 404),
        ("GET", "/v1/jobs/1/nothing", 404),
        ("GET", "/v1/service/pilots", 404),
        ("GET", "/../../etc/passwd", 404),
        ("PUT", "/v1/jobs", 405),
        ("DELETE", "/v1/jobs/1", 405),
        ("POST", "/v1/sites", 405),
        ("POST", "/metrics", 405),
        ("BREW", "/v1/me", 405),
    ],
)
def test_a_path_or_method_that_is_not_there_has_an_error_of_our_shape(house, method, path, status):
    answer = house.call(method, path, token="admin")
    assert (answer.status, answer.code) == (status, "not-found")
    assert answer.headers["content-type"] == "application/json"


def test_a_bug_costs_one_request_and_discloses_nothing(house, monkeypatch):
    def broken(*_):
        raise KeyError("an inner detail")

    monkeypatch.setattr("lodesman.server.http.reads.list_sites", broken)
    answer = house.call("GET", "/v1/sites", token="ann")
    assert (answer.status, answer.code) == (503, "unavailable")
    assert b"inner detail" not in answer.body
    assert house.get("/v1/queues")["queues"]


def test_a_bug_in_the_hot_process_costs_one_request(house, monkeypatch):
    def broken(*_):
        raise KeyError("an inner detail")

    monkeypatch.setattr("lodesman.server.http.jobs.prepare", broken)
    answer = house.submit()
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "1")
    assert b"inner detail" not in answer.body
    assert house.get("/health", "")["status"] == "ok"


# --- resources, pilots, standing ------------------------------------------------------------------------


@pytest.mark.stores
def test_sites_with_their_pilots_and_jobs(house):
    house.submitted()
    house.claim(house.pilot())
    house.prepare_pilot("South")
    sites = {row["site"]: row for row in house.get("/v1/sites", "admin")["sites"]}
    assert set(sites) == {"North", "South", "Far"}
    assert sites["North"] == {
        "site": "North", "ces": 1, "queues": 1, "pilots": {"Running": 1}, "running_jobs": 1,
        "closed": [], "failing": [],
    }  # fmt: skip
    assert sites["South"]["pilots"] == {"Submitted": 1}


def test_queues_with_the_level_that_gave_each_value(house):
    queues = {row["queue"]: row for row in house.get("/v1/queues")["queues"]}
    assert set(queues) == {"short", "long"}
    parameters = queues["short"]["parameters"]
    assert parameters["CPUTime"]["value"] == 1000
    assert parameters["CPUTime"]["level"] != parameters["Platform"]["level"]


def test_an_unknown_vo_has_no_queues_and_is_not_cached(house):
    assert [row["queue"] for row in house.get("/v1/queues?vo=other", "admin")["queues"]] == ["q"]
    for k in range(50):
        answer = house.call("GET", f"/v1/queues?vo=nothing{k}", token="admin" if k % 2 else "ann")
        assert (answer.status, answer.code) == (404, "not-found")
    assert len(house.side.policy._of_vo) <= 2


@pytest.mark.stores
def test_task_queues_fullest_first(house):
    house.submitted({"Parameters": 5})
    house.submitted({"CPUTime": 7, "Parameters": 9})
    found = house.get("/v1/task-queues")["task_queues"]
    assert [(row["waiting"], row["norm_cpu_seconds"]) for row in found] == [(9, 7), (5, 500)]
    assert len(house.get("/v1/task-queues?limit=1")["task_queues"]) == 1
    house.control("kill", 1, 14)
    assert house.get("/v1/task-queues")["task_queues"] == []


@pytest.mark.stores
def test_task_queues_that_nothing_can_run_are_listed_as_held(house):
    house.submitted({"Memory": 10**9}, {"Memory": 10**9}, hold_if_impossible=True)
    house.submitted({})
    rows = house.get("/v1/task-queues")["task_queues"]
    assert [(row["waiting"], row["held"], row["main_reason"]) for row in rows] == [
        (0, 2, "impossible"),
        (1, 0, None),
    ]
    assert house.get("/v1/task-queues?reason=impossible")["task_queues"] == rows[:1]
    (told,) = house.get("/v1/task-queues/reasons")["reasons"]
    assert (told["reason"], told["verdict"], told["jobs"], told["task_queues"]) == (
        "impossible",
        "never",
        2,
        1,
    )
    assert [job["id"] for job in house.get("/v1/jobs?reason=impossible")["jobs"]] == [1, 2]
    assert house.get("/v1/jobs?reason=next")["jobs"] == []


@pytest.mark.stores
def test_one_s_own_jobs_are_counted_alone(house):
    house.user("carl", "open")
    house.submitted({}, {})
    house.submitted({}, token="carl")
    house.submitted({}, token="bob")
    for name, jobs in (("ann", 2), ("bob", 1), ("carl", 1), ("admin", 0)):
        counts = house.get("/v1/jobs/counts?own=true", name)["counts"]
        assert sum(row["jobs"] for row in counts) == jobs
        assert {row["owner"] for row in counts} <= {name}
    everything = house.get("/v1/jobs/counts", "admin")["counts"]
    assert sum(row["jobs"] for row in everything) == 4


@pytest.mark.stores
def test_pilots_alive_or_all_newest_first(house):
    for _ in range(3):
        house.pilot()
    house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token="pilot2")
    assert [row["id"] for row in house.get("/v1/pilots")["pilots"]] == [3, 1]
    assert [row["id"] for row in house.get("/v1/pilots?all=true&limit=2")["pilots"]] == [3, 2]


def test_no_pilot_s_token_is_shown_anywhere(house):
    join = house.prepare_pilot()
    pilot = house.pilot()
    for path in ("/v1/pilots?all=true", "/v1/usage", "/v1/tokens", "/metrics", "/v1/director"):
        body = house.call("GET", path, token="admin").body.decode()
        assert join not in body
        assert house.tokens[pilot] not in body


@pytest.mark.stores
def test_how_things_stand(house):
    house.submitted(*[{}] * 4)
    house.submitted({}, token="bob")
    pilot = house.pilot()
    got, begun = house.claim(pilot, 5), house.now
    house.now += 4
    for job in got[:3]:
        house.report(pilot, job, cpu_seconds=2.0, wall_seconds=4.0, started=begun, ended=house.now)
    house.report(pilot, got[3], "Failed", cause="exit", exit_code=9, started=begun, ended=begun + 1)
    told = house.get("/v1/usage", "admin")
    assert told["states"] == {"Done": 3, "Failed": 1, "Matched": 1}
    assert told["attempts"] == {"all": 5, "jobs": 5, "same_number_twice": 0}
    (site,) = told["sites"]
    assert (site["site"], site["outcomes"], site["cpu_seconds"]) == ("North", {"Done": 3, "Failed": 1}, 6.0)
    groups = {row["group"]: row for row in told["groups"]}
    assert (groups["physics"]["claims"], groups["bio"]["claims"]) == (4, 1)
    assert sum(row["target"] for row in groups.values()) == pytest.approx(5)
    assert told["running_seconds"] == {
        "count": 4,
        "p50": 4.0,
        "p90": 4.0,
        "p95": 4.0,
        "p99": 4.0,
        "most": 4.0,
    }
    assert told["waiting_seconds"]["count"] == 4
    assert [row["reason"] for row in told["faulty"]] == ["exit code 9"]


@pytest.mark.stores
def test_the_director_s_last_iteration(house):
    assert house.get("/v1/director") == {"iteration": None, "at": None, "plan": None}
    house.made_up = True
    for k in range(3):
        house.now += 1
        house.call("POST", "/v1/service/iteration", {"plan": {"number": k}}, token="service")
    assert house.get("/v1/director") == {"iteration": 3, "at": house.now, "plan": {"number": 2}}


def test_whoami(house):
    assert house.get("/v1/me", "ann") == {
        "name": "ann", "kind": "user", "vo": "lab", "groups": ["physics"], "admin": False, "vo_admin": False,
        "scopes": ["jobs:read", "jobs:write", "pilots:read"],
        "inputs": {"files": 0, "bytes": 0, "limit": None, "outputs": 0}, "expires_at": house.now + 30 * 86_400,
    }  # fmt: skip
    assert house.get("/v1/me", "admin")["admin"] is True
    assert house.get("/v1/me", house.pilot())["kind"] == "pilot"


# --- logs -----------------------------------------------------------------------------------------------


def test_a_job_that_has_not_begun_has_no_output(house):
    house.submitted({"Parameters": 2})
    answer = house.call("GET", "/v1/jobs/1/logs", token="ann")
    assert (answer.status, "no output" in answer.json["error"]["message"]) == (404, True)
    house.submitted()
    logs = house.get("/v1/jobs/3/logs")
    assert (logs["state"], logs["tail"]) == ("Waiting", "")


@pytest.mark.stores
def test_the_output_of_an_attempt_whose_pilot_was_lost(house):
    house.submitted()
    pilot = house.pilot()
    house.claim(pilot)
    entry = {"id": 1, "attempt": 1, "tail": "half way"}
    house.call("POST", "/v1/pilots/heartbeat", {"jobs": [entry]}, token=pilot)
    house.call("POST", "/v1/pilots/leave", {"reason": "error"}, token=pilot)
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["state"], logs["live"]) == ("Waiting", False)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("nonsense=1", "no parameter nonsense"),
        ("limit=5&limit=6", "given twice"),
        ("limit", "not of the form"),
        ("all=1", "all must be true or false"),
        ("all=", "all must be true or false"),
        ("limit=", "limit must be a number"),
        ("limit=-1", "limit must be a number"),
        ("group=%ff", "not of the form"),
        ("state=Done,Dnoe", "state: Dnoe is unknown"),
        ("reason=because", "reason: because is unknown"),
        ("a%1b[2J=1", "no parameter a\\x1b[2J"),
    ],
)
def test_what_is_wrong_with_parameters_is_said(house, query, words):
    answer = house.call("GET", f"/v1/jobs?{query}", token="ann")
    assert answer.status == 400
    assert words in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/jobs/1?job=2", "/v1/me?x=1", "/health?x=1", "/v1/pilots?first=1"])
def test_parameters_of_other_calls_are_unknown(house, path):
    house.submitted()
    assert house.call("GET", path, token="ann").status == 400


def pages(house, path, rows, limit, token="admin"):
    """Every row of a list, fetched page by page."""
    mark, found, after = "&" if "?" in path else "?", [], ""
    for _ in range(100):
        answer = house.get(f"{path}{mark}limit={limit}&{urlencode({'after': after})}", token)
        found += answer[rows]
        assert len(answer[rows]) <= limit
        if not answer["more"]:
            assert answer["cursor"] == ""
            return found
        after = answer["cursor"]
    raise AssertionError("the list does not end")


@pytest.mark.stores
@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/v1/jobs?all=true", "jobs"),
        ("/v1/jobs?all=true&newest=true", "jobs"),
        ("/v1/jobs?all=true&first=2&last=9&state=Waiting", "jobs"),
        ("/v1/submissions?all=true", "submissions"),
        ("/v1/submissions?all=true&state=Waiting", "submissions"),
        ("/v1/pilots?all=true", "pilots"),
        ("/v1/task-queues", "task_queues"),
        ("/v1/submit-pools", "pools"),
        ("/v1/hosts", "hosts"),
        ("/v1/job-classes", "classes"),
        ("/v1/sites", "sites"),
        ("/v1/queues", "queues"),
        ("/v1/tokens", "tokens"),
        ("/v1/users", "users"),
        ("/v1/audit", "entries"),
        ("/v1/quotas/use", "uses"),
        ("/v1/sites/ads", "ads"),
    ],
)
def test_a_list_in_pages_is_the_whole_list(mixed, path, rows):
    mixed.submitted(*({"Requirements": {"Memory": size}} for size in (100, 200, 300)))
    for n in range(3):
        mixed.pilot(node={"cores": 4, "host": f"wn{n}"})
        mixed.call("POST", "/v1/pilots/drain", {"pilots": [99]}, token="admin")
    rules = "{\n name n\n enabled true\n limit hosts {*} to slots=9\n}\n{\n name m\n enabled true\n limit to slots=9\n}\n"
    mixed.call("POST", "/v1/quotas", {"text": rules}, token="admin")
    assert all(mixed.claim(f"pilot{n}") for n in (1, 2, 3))
    mixed.call("POST", "/v1/job-classes", {"text": "jcname app\nvariant_list default,a,b\n"}, token="ann")
    for site in ("North", "South", "Far"):
        text = f'Name = "{site}"\nUpdateSequenceNumber = 1'
        assert mixed.call("POST", "/v1/sites/ad", {"ad": text}, token=mixed.site(site)).status == 200
    whole = mixed.get(path, "admin")
    assert len(whole[rows]) > 1
    assert (whole["more"], whole["cursor"]) == (False, "")
    for limit in (1, 2, 5, 100):
        assert pages(mixed, path, rows, limit) == whole[rows]


@pytest.mark.parametrize("path", LISTS)
def test_what_is_no_cursor_is_refused(mixed, path):
    for after in ("nonsense", "1.2.3", "-1"):
        answer = mixed.call("GET", f"/v1/{path}?after={after}", token="admin")
        assert (answer.status, answer.code) == (400, "invalid-request")


def test_every_list_says_whether_there_is_more():
    listing = [call for call in CALLS if call.method == "GET" and "limit" in call.query.__struct_fields__]
    listing.remove(WAIT)  # it names some of the jobs that it counts
    assert {call.path for call in listing} == {f"/v1/{name}" for name in LISTS}
    for call in listing:
        assert issubclass(call.answer, Page)
        assert "after" in call.query.__struct_fields__
