"""Queues for some job classes alone: what may be submitted, who gets it, and how it is explained."""

from __future__ import annotations

import pytest

from lodesman.resources import load_resources

APP = "jcname app\nvariant_list default,v1\nCMDNAME /bin/true\n"
OTHER = "jcname other\nCMDNAME /bin/true\n"
SITES = """[site.North.ce."ce.north".queue.short]
CPUTime = 100000
NumberOfProcessors = 4
Memory = 4000
{north}
[site.South.ce."ce.south".queue.long]
CPUTime = 100000
NumberOfProcessors = 4
Memory = 4000
{south}
"""


@pytest.fixture
def lists(house):
    """Two classes; `lists(north, south)` configures the jc_list of the two queues."""
    house.user("eva", "physics", admin=True)
    assert house.call("POST", "/v1/job-classes", {"text": APP + OTHER}, token="eva").status == 200

    def configure(north, south):
        words = {"north": north and f"jc_list = {north!r}", "south": south and f"jc_list = {south!r}"}
        policy = house.policy(load_resources([("sites.toml", SITES.format(**words))]))
        house.core.policy = house.side.policy = policy
        return house

    return configure


def submit(house, text, **more):
    return house.call("POST", "/v1/jobs", {"text": f'Executable = "/bin/true"; {text}', **more}, token="ann")


@pytest.mark.parametrize(
    ("north", "south", "text", "sites"),
    [
        ("app", "NO_JC", 'JobClass = "app.v1";', ["North"]),
        ("app", "NO_JC", "", ["South"]),
        ("app.v1", "ANY_JC", 'JobClass = "app";', ["South"]),
        ("", "app", 'JobClass = "other";', ["North"]),
        ("NONE,[node1=other]", "NONE", 'JobClass = "other";', ["North"]),
    ],
)
def test_a_job_may_run_where_its_class_is_named(lists, north, south, text, sites):
    house = lists(north, south)
    assert submit(house, text).status == 200
    queues = house.get("/v1/jobs/1/why")["queues"]
    excluded = [] if queues["eligible"] == 2 else [("JobClass", 1)]
    assert [(one["criterion"], one["queues"]) for one in queues["ruled_out_by"]] == excluded
    there = [site for site in ("North", "South") if submit(house, f'Site = "{site}"; {text}').status == 200]
    assert (queues["eligible"], there) == (len(sites), sites)


def test_a_job_that_no_queue_lets_in_is_refused_with_what_would_do(lists):
    house = lists("app.v1,NO_JC", "NO_JC")
    answer = submit(house, 'JobClass = "other";')
    error = answer.json["error"]
    assert (answer.status, error["data"]["attribute"]) == (422, "JobClass")
    assert "JobClass" in error["message"]
    # Held, if it was asked for; `why` has the queues, the reason and the smallest change.
    assert submit(house, 'JobClass = "other";', hold_if_impossible=True).status == 200
    why = house.get("/v1/jobs/1/why")
    (best, *_) = why["queues"]["nearest"]
    assert (best["text"], best["queues"]) == ("JobClass left out", 2)
    assert "it takes no jobs of class other.default" in best["example"]["reasons"][0]


def test_the_claim_follows_the_list(lists):
    house = lists("app", "ANY_JC,NO_JC")
    assert submit(house, 'JobClass = "other";').status == 200
    assert submit(house, 'JobClass = "app.v1";').status == 200
    north = house.pilot("North", job_classes=["app"], norm_cpu_seconds=100_000)
    assert [one["id"] for one in house.claim(north, 5)] == [2]
    assert [one["id"] for one in house.claim(house.pilot("South"), 5)] == [1]


def test_a_class_that_a_list_names_stays_and_the_refusal_names_the_queue(lists):
    house = lists("NO_JC,[@gpu=app.v1]", "other")
    answer = house.call("POST", "/v1/job-classes/remove", {"names": ["app"]}, token="eva")
    assert answer.status == 409
    assert answer.json["error"]["message"] == (
        'Job class "app" is still referenced in the jc_list of North/ce.north/short.'
    )
    lists("NO_JC", "other")
    assert house.call("POST", "/v1/job-classes/remove", {"names": ["app"]}, token="eva").status == 200


def test_a_list_that_names_an_unknown_class_is_a_notice_to_administrators(lists):
    house = lists("NO_JC,nothing,app.v9,[node1=app]", "")
    notices = house.get("/v1/configuration", "admin")["notices"]
    assert [(one["message"], one["source"], one["line"]) for one in notices] == [
        (f'JcList of North/ce.north/short: no job class or job class variant "{name}"', "sites.toml", 5)
        for name in ("app.v9", "nothing")
    ]
    assert house.get("/v1/configuration")["notices"] == []


def test_the_list_is_a_parameter_of_the_queue_and_is_explained(lists):
    house = lists("app.v1", "NO_JC")
    shown = house.get("/v1/resources?site=North&ce=ce.north&queue=short", "admin")
    found = {one["name"]: (one["value"], one["line"]) for one in shown["parameters"]}
    assert found["JcList"] == ("app.v1", 5)
    assert submit(house, "").status == 200
    queue = house.get("/v1/queues/why?site=North&ce=ce.north&queue=short", "admin")
    assert "JcList" in str(queue)
