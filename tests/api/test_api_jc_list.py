"""Queues for some job classes alone: what may be submitted, who gets it, and how it is explained."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lodesman.decide.resources import load_resources
from lodesman.server.loops.refresh import PoolKeeper

APP = "jcname app\nvariant_list default,v1\nCMDNAME /bin/true\n"
CLOSED = """jcname closed
user_lists %eva
jcname banned
xuser_lists physics
CMDNAME /bin/true
jcname long
variant_list default,days
CMDNAME /bin/true
"""
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


@pytest.fixture
def closed(lists, monkeypatch):
    """More classes, of which ann may use `long.days` alone; `closed` as `lists`. `enforce_jc`."""
    house = lists("", "")
    assert house.call("POST", "/v1/job-classes", {"text": CLOSED}, token="eva").status == 200
    switched = {"names": ["long.default"], "switch": "disable"}
    assert house.call("POST", "/v1/job-classes/switch", switched, token="eva").status == 200

    def enforce(**settings):
        def under(now):
            return replace(now, **settings)

        house.core.job_classes.now = under(house.core.job_classes.now)
        known = house.side.classes
        monkeypatch.setattr(house.side, "classes", lambda db: under(known(db)))

    house.configure_classes = enforce
    return lists


def suggested(house, job='JobClass = "other";', token="ann"):
    """What is suggested for a job of a class: to a submission, in `why`, in a plan and in the words of the refresh."""
    text = f'Executable = "/bin/true"; CPUTime = 60; {job}'
    answer = house.call("POST", "/v1/jobs", {"text": text}, token=token)
    assert answer.status == 422
    held = house.call("POST", "/v1/jobs", {"text": text, "hold_if_impossible": True}, token=token).json[
        "first"
    ]
    why = house.get(f"/v1/jobs/{held}/why", token)
    plan = house.call("POST", "/v1/plan/job", {"text": text}, token=token).json
    keeper = PoolKeeper(
        house.side.db, house.post, refresh_seconds=900.0, grace_seconds=900.0, classes=house.side.classes
    )
    keeper.tick(house.side.policy, house.now)
    reasons = {answer.json["error"]["message"].partition(": ")[2].rstrip("."), why["reason"]}
    reasons.add(house.get(f"/v1/jobs/{held}", token)["reason"])
    assert len(reasons) == 1, reasons
    near = [one["queues"]["nearest"] for one in (answer.json["error"]["data"], why, plan["refusal"]["data"])]
    texts = [[one["text"] for one in found] for found in near]
    assert texts[0] == texts[1] == texts[2], texts
    assert all(text in reasons.pop() for text in texts[0][:1])
    return held, near[0]


@pytest.mark.parametrize(
    ("north", "south", "settings", "wanted"),
    [
        ("closed", "banned", {}, None),
        ("closed,app", "closed,banned", {}, ("JobClass -> app", "app", 1)),
        ("closed", "long", {}, ("JobClass -> long.days", "long.days", 1)),
        ("closed,long.default", "long.default", {}, None),
        ("gone,app.v9", "closed", {}, None),
        ("banned,NO_JC", "closed,app", {}, ("JobClass left out", None, 1)),
        ("banned,NO_JC", "closed", {"default_jc": "app"}, ("JobClass -> NONE", "NONE", 1)),
        ("banned,NO_JC", "closed", {"enforce_jc": True}, None),
        ("banned,NO_JC", "NO_JC,app.v1", {}, ("JobClass left out", None, 2)),
        ("banned,app", "closed,app.v1", {}, ("JobClass -> app.v1", "app.v1", 2)),
    ],
)
def test_a_class_is_suggested_only_to_those_who_may_use_it_and_then_a_waiting_job_gets_it(
    closed, north, south, settings, wanted
):
    house = closed(north, south)
    house.configure_classes(**settings)
    job, near = suggested(house)
    if wanted is None:
        assert near == []
        return
    (step,) = near[0]["steps"]
    assert (near[0]["text"], step["instead"], near[0]["queues"]) == wanted
    assert not [one for one in step["options"] if one["value"] in ("closed", "banned", "long")]
    body = {"ranges": [[job, job]], "attributes": {"JobClass": step["instead"]}}
    assert house.call("POST", "/v1/jobs/change", body, token="ann").json["changed"] == 1
    why = house.get(f"/v1/jobs/{job}/why")
    assert (why["state"], why["queues"]["eligible"]) == ("Waiting", wanted[2])


def test_any_class_is_suggested_by_the_name_of_one(closed):
    house = closed("closed,ANY_JC", "NONE")
    _, near = suggested(house, "")
    assert near[0]["text"] == "JobClass -> app"
    for name in ("app", "other", "long"):
        assert (
            house.call(
                "POST", "/v1/job-classes/switch", {"names": [name], "switch": "disable"}, token="eva"
            ).status
            == 200
        )
    assert suggested(house, "")[1] == []
