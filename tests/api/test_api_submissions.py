"""GET /v1/submissions, and the filters that lists of jobs have in common with it."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

pytestmark = pytest.mark.stores


def rows(house, query="", token="ann"):
    return house.get(f"/v1/submissions?{query}", token)["submissions"]


def firsts(house, query="", token="ann"):
    return [row["first"] for row in rows(house, query, token)]


@pytest.fixture
def some(house):
    """Jobs 1 to 20 an array of ann's, 21 hers, 22 and 23 bob's; one of hers failed and one runs."""
    house.user("bob", "physics")
    house.submitted({"JobName": "fit_%n", "Parameters": 20})
    pilot = house.pilot(node={"cores": 4, "host": "wn7"})
    failed, *_ = house.claim(pilot, 2)
    house.report(pilot, failed, "Failed", cause="exit", exit_code=3)
    house.now += 10_000
    house.submitted({"JobName": "plot"})
    house.submitted({}, {}, token="bob")
    return house


def test_one_row_for_each_submission(some):
    plot, fit = rows(some)
    assert (fit["first"], fit["jobs"], fit["name"], fit["owner"], fit["id"]) == (1, 20, "fit_%n", "ann", 1)
    assert fit["states"] == {"Failed": 1, "Matched": 1, "Waiting": 18}
    assert (fit["sites"], fit["causes"]) == ({"North": 2}, {"exit": 1})
    assert (plot["states"], plot["sites"], plot["causes"]) == ({"Waiting": 1}, {}, {})
    some.control("kill", 3, 20)
    assert rows(some)[1]["states"] == {"Failed": 1, "Matched": 1, "Killed": 18}


def test_a_job_that_its_pilot_gave_back_before_it_started_has_no_cause(some):
    pilot = some.pilot("South")
    (given_back, *_) = some.claim(pilot, 1)
    some.report(pilot, given_back, "Released", cause="returned")
    assert [row["causes"] for row in rows(some, token="admin", query="all=true")] == [{}, {}, {"exit": 1}]


def test_each_filter_leaves_submissions_out(some):
    assert firsts(some) == [21, 1]
    assert firsts(some, "all=true") == [21, 1]
    assert firsts(some, "all=true", "admin") == [22, 21, 1]
    assert firsts(some, "owner=bob") == []
    assert firsts(some, "owner=bob", "admin") == firsts(some, "", "bob") == [22]
    assert (
        firsts(some, "state=Failed,Done") == firsts(some, "cause=exit") == firsts(some, "site=North") == [1]
    )
    assert firsts(some, "name=fit*") == firsts(some, "submission=1") == [1]
    assert firsts(some, "name=pl?t") == firsts(some, f"since={int(some.now)}") == [21]
    assert firsts(some, f"until={int(some.now) - 1}") == [1]
    assert firsts(some, "group=bio") == firsts(some, "reason=impossible") == []


def test_jobs_have_the_same_filters(some):
    def ids(query, token="ann"):
        return [job["id"] for job in some.get(f"/v1/jobs?{query}", token)["jobs"]]

    assert ids("cause=exit") == ids("state=Failed") == [1]
    assert ids("site=North") == [1, 2]
    assert ids("name=plot") == ids(f"since={int(some.now)}") == ids("submission=2") == [21]
    assert ids("owner=bob") == []
    assert ids("owner=bob", "admin") == [22, 23]
    assert len(ids("name=fit*")) == 20
    (failed,) = some.get("/v1/jobs?cause=exit")["jobs"]
    assert (failed["ce"], failed["queue"], failed["host"]) == ("ce.north", "short", "wn7")
    (attempt,) = some.get("/v1/jobs/1")["attempts"]
    assert (attempt["ce"], attempt["queue"], attempt["host"]) == ("ce.north", "short", "wn7")


@pytest.mark.parametrize(
    "query",
    ["stat=Failed", "state=Odd", "newest=1", "limt=1", "reason=odd", "name=a[b]", "since=x", "after=x"],
)
@pytest.mark.parametrize("path", ["jobs", "submissions"])
def test_what_is_not_understood_is_refused(some, path, query):
    answer = some.call("GET", f"/v1/{path}?{query}", token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")


def test_what_pilots_run_and_one_pilot(some):
    (pilot,) = some.get("/v1/pilots")["pilots"]
    assert (pilot["jobs"], pilot["node_host"]) == ([2], "wn7")
    one = some.get("/v1/pilots/1")
    assert {name: one[name] for name in pilot} == pilot
    assert (one["node"]["host"], one["drain_reason"]) == ("wn7", "")
    assert some.get("/v1/pilots/stamp1")["id"] == 1
    assert some.call("GET", "/v1/pilots/9", token="ann").status == 404


@pytest.fixture
def grouped(house):
    """Jobs 1 to 6 an array in group may_1, of which two were claimed; 7 in june; 8 in none; 9 and 10 in both of two."""
    house.submitted({"JobGroup": "may_1", "Parameters": 6})
    house.claim(house.pilot(node={"cores": 4}), 2)
    house.submitted({"JobGroup": "june"})
    house.submitted({})
    house.submitted({"JobGroup": "may_1"}, {"JobGroup": "june"})
    return house


def ids(house, query):
    return [job["id"] for job in house.get(f"/v1/jobs?{query}", "ann")["jobs"]]


def test_a_job_group_is_a_filter_of_jobs_and_submissions(grouped):
    assert ids(grouped, "job_group=may_1") == ids(grouped, "job_group=m?y*") == [1, 2, 3, 4, 5, 6, 9]
    assert ids(grouped, "job_group=june&newest=true") == [10, 7]
    groups = {job["id"]: job["job_group"] for job in grouped.get("/v1/jobs", "ann")["jobs"]}
    assert groups == {**dict.fromkeys(range(1, 7), "may_1"), 7: "june", 8: "", 9: "may_1", 10: "june"}
    assert grouped.get("/v1/jobs/4", "ann")["job_group"] == "may_1"
    assert ids(grouped, "job_group=may_1&state=Matched") == [1, 2]
    assert ids(grouped, "job_group=may") == ids(grouped, "job_group=may_1&owner=bob") == []
    assert firsts(grouped, "job_group=may_1") == [9, 1]
    assert firsts(grouped, "job_group=june&state=Waiting") == [9, 7]
    answer = grouped.call("GET", "/v1/jobs?job_group=a[b]", token="ann")
    assert (answer.status, answer.json["error"]["data"]["parameter"]) == (400, "job_group")


def test_a_job_that_is_changed_is_found_in_its_new_job_group(grouped):
    body = {"ranges": [[3, 4]], "attributes": {"JobGroup": "july"}}
    assert grouped.call("POST", "/v1/jobs/change", body, token="ann").status == 200
    assert ids(grouped, "job_group=july") == [3, 4]
    assert firsts(grouped, "job_group=july") == [1]
    assert ids(grouped, "job_group=may_1") == [1, 2, 5, 6, 9]


def test_the_jobs_of_a_job_group_are_killed_and_no_others(grouped):
    body = {"action": "kill", "selection": {"job_group": "may*", "states": ["Waiting"]}}
    answer = grouped.call("POST", "/v1/jobs/control", body, token="ann")
    assert (answer.status, answer.json["changed"]) == (200, 5)
    assert ids(grouped, "state=Killed") == [3, 4, 5, 6, 9]
    body = {"action": "hold", "ranges": [[7, 10]], "selection": {"job_group": "june"}}
    assert grouped.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 2
    assert ids(grouped, "state=Held") == [7, 10]
    assert ids(grouped, "state=Waiting") == [8]


@pytest.fixture
def classed(house):
    """Jobs 1 to 5 an array of app.default, of which two were claimed; 6 of app.large; 7 of application; 8 of none."""
    house.user("eva", "physics", admin=True)
    common = "CMDNAME /bin/true\nl_hard {~+}h_cpu=500\n"
    for text in (f"jcname app\nvariant_list default,large\n{common}", f"jcname application\n{common}"):
        assert house.call("POST", "/v1/job-classes", {"text": text}, token="eva").status == 200
    for text in ('JobClass = "app"; Parameters = 5;', 'JobClass = "app.large";', 'JobClass = "application";'):
        assert house.call("POST", "/v1/jobs", {"text": text}, token="ann").status == 200
        if "Parameters" in text:
            house.claim(house.pilot(node={"cores": 4}), 2)
    house.submitted()
    return house


def test_a_job_class_is_a_filter_of_jobs_and_submissions(classed):
    assert ids(classed, "job_class=app") == [1, 2, 3, 4, 5, 6]
    assert ids(classed, "job_class=app.large") == [6]
    assert ids(classed, "job_class=app.d*") == ids(classed, "job_class=app.defaul?") == [1, 2, 3, 4, 5]
    assert ids(classed, "job_class=app*") == ids(classed, "job_class=*.*") == [1, 2, 3, 4, 5, 6, 7]
    assert ids(classed, "job_class=app.") == ids(classed, "job_class=App") == []
    assert ids(classed, "job_class=app&state=Matched&newest=true") == [2, 1]
    assert firsts(classed, "job_class=app") == [6, 1]
    classes = {job["id"]: job["job_class"] for job in classed.get("/v1/jobs", "ann")["jobs"]}
    assert classes == {
        **dict.fromkeys(range(1, 6), "app.default"), 6: "app.large", 7: "application.default", 8: "",
    }  # fmt: skip
    assert classed.get("/v1/jobs/6", "ann")["job_class"] == "app.large"
    answer = classed.call("GET", "/v1/submissions?job_class=a[b]", token="ann")
    assert (answer.status, answer.json["error"]["data"]["parameter"]) == (400, "job_class")


def test_the_jobs_of_a_class_are_held_and_no_others(classed):
    body = {"action": "hold", "ranges": [[3, 3], [6, 8]], "selection": {"job_class": "app"}}
    assert classed.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 2
    assert ids(classed, "state=Held") == [3, 6]
    body = {"action": "kill", "selection": {"job_class": "app.default"}}
    assert classed.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 5
    assert ids(classed, "state=Waiting") == [7, 8]


def test_a_name_with_percent_signs_is_found_as_it_is_shown(house):
    """Of an array, where they are doubled in the description, and of one job, where they stand for themselves."""
    house.submitted({"JobName": "my%%job", "Parameters": 2})
    house.submitted({"JobName": "my%%job"})
    house.submitted({"JobName": "50%%_%n", "Parameters": 2})
    shown = {job["id"]: job["name"] for job in house.get("/v1/jobs", "ann")["jobs"]}
    assert shown == {1: "my%job", 2: "my%job", 3: "my%%job", 4: "50%_0", 5: "50%_1"}
    assert [row["name"] for row in rows(house)] == ["50%%_%n", "my%%job", "my%job"]
    for name, first, jobs in (
        ("my%job", [1], [1, 2]), ("my%j*", [1], [1, 2]), ("my%%job", [3], [3]), ("my%%j?b", [3], [3]),
    ):  # fmt: skip
        query = urlencode({"name": name})
        assert firsts(house, query) == first, name
        assert [job["id"] for job in house.get(f"/v1/jobs?{query}", "ann")["jobs"]] == jobs, name
    pilot = house.pilot(node={"cores": 4, "host": "wn7"})
    house.claim(pilot, 1)
    assert house.get("/v1/jobs/1", "ann")["name"] == "my%job"
