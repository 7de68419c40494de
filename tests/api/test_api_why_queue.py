"""GET /v1/queues/why: why no pilots are sent to a CE queue, held against what submission, director and claim do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.options import IdentityRule
from lodesman.decide.resources import load_resources
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import BreakerState

NORTH = {"site": "North", "ce": "ce.north", "queue": "short"}
SOUTH = {"site": "South", "ce": "ce.south", "queue": "long"}


def why(house, token="ann", **where):
    return house.get(f"/v1/queues/why?{urlencode(where or NORTH)}", token)


def step(told, name):
    (found,) = [one for one in told["chain"] if one["step"] == name]
    return found


@pytest.fixture
def director(house, backend):
    """A director whose gates the reading side sees, as in the background process."""
    found = house.director(backend)
    house.side.director = found
    return found


jobs = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_000, 1_001, 100_001])},
    optional={
        "Memory": st.sampled_from([0, 2_000, 2_001]),
        "NumberOfProcessors": st.sampled_from([1, 4, 5]),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Site": st.sampled_from(["North", "South"]),
        "BannedSite": st.just("North"),
        "GridCE": st.sampled_from(["ce.north", "ce.south"]),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "Requirements": st.sampled_from([{"Software": "root"}, {"Software": "fluka"}]),
    },
)


@pytest.mark.slow
@at_most(60)
@given(wanted=st.lists(jobs, min_size=1, max_size=4))
def test_what_could_be_run_there_is_what_a_pilot_there_is_given(house, director, wanted):
    """The task queues that are counted are those for which the offer, with the pools it serves, has no reason."""
    assert director is not None
    for one in wanted:
        house.submit(one, hold_if_impossible=True)
    told = why(house)
    world = house.side.policy.vo_config("lab")
    (offer,) = [one for one in world.offers if one.queue.site == "North"]
    served = house.core.live.pools.of_queue(("North", "ce.north", "short")).pools
    waiting = {
        tq_id: key
        for tq_id, key, count in house.core.live.queues.index.queues()
        if count and tq_id not in house.core.live.queues.held
    }
    fitting = {
        tq_id
        for tq_id, key in waiting.items()
        if not offer.reasons(key, (key.submit_pool in served) << offer.bit)
    }
    assert told["work"]["task_queues"] == len(waiting)
    assert told["work"]["fitting"] == len(fitting)
    assert (told["main_reason"] == "no-fitting-job-waits") == (not fitting)
    everything = {"cores": 64, "memory_mb": 10**6, "norm_cpu_seconds": 10**8}
    if "north" not in house.tokens:
        house.tokens["north"] = house.tokens[house.pilot(tags=["SSD"])]
    taken = 0
    while some := house.claim("north", 10, resource=everything):
        taken += len(some)
        for one in some:
            house.report("north", one)
    assert taken == told["work"]["fitting_jobs"]
    house.control("kill", 1, 10**6)


def test_nothing_waits_that_could_be_run_there(house, director):
    house.submitted({"CPUTime": 5_000}, {"CPUTime": 5_000, "Platform": "el8"})
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-fitting-job-waits")
    assert told["summary"] == (
        "No job waits that could be run there: CPUTime excludes 2 of 2, Platform excludes 1 of 2; "
        "suggestion: CPUTime 1000 -> 5000."
    )
    assert [one["step"] for one in told["chain"] if one["holds"] is False] == ["work"]
    assert told["work"]["nearest"][0]["example"]["owner"] == "ann"


def test_before_the_first_iteration_and_after_it(house, director):
    house.submitted()
    assert why(house)["main_reason"] == "director-has-not-decided"
    assert director.tick(house.now) > 0
    house.now += 4
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("now", "pilots-expected")
    assert told["director"]["wanted"] > 0
    assert told["director"]["placed"] >= 0
    assert told["director"]["lines"][0].startswith("Task queue 1: pilots: ")
    assert told["director"]["decided_seconds_ago"] == 4.0
    assert told["ages"]["director"] == 4.0
    assert step(told, "director")["demand"] == {"asked": 1}
    assert step(told, "director")["text"].startswith(
        "at its last iteration, for these task queues: pilots asked: 1; "
    )
    assert (
        "could have come here at its last iteration, and there was free capacity for"
        in step(told, "director")["text"]
    )


def test_a_queue_full_of_other_work_shows_the_arithmetic_of_each_limit(house, director, backend):
    house.submitted()
    director.tick(house.now)
    backend.waiting, backend.running = 9, 8
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-room-for-pilots")
    assert told["summary"].endswith("none may be sent now: MaxTotalJobs 10 - 17 waiting and running.")
    limits = {one["clamp"]: one for one in told["gate"]["limits"]}
    assert limits["max-waiting"] == {
        "clamp": "max-waiting", "limit": 1, "text": "MaxWaitingJobs 10 - 9 waiting", "shut": False,
    }  # fmt: skip
    assert limits["max-total"]["shut"] is True
    assert told["gate"]["load"]["waiting"] == 9
    assert told["who"] == "time, as pilots there start or end; or the site administrator"
    assert [one["step"] for one in told["chain"] if one["holds"] is False] == ["room"]


def test_an_unknown_load_closes_the_queue(house, director, backend):
    house.submitted()
    director.tick(house.now)
    backend.waiting = None
    told = why(house)
    assert told["main_reason"] == "no-room-for-pilots"
    assert "did not know" in told["summary"]
    assert told["who"] == "the administrator of the batch system, by making it report its load"


def test_an_open_breaker_and_until_when(house, director):
    house.submitted()
    director.tick(house.now)
    broken = Breaker(
        state=BreakerState.OPEN, failures=3, trips=1, retry_at=house.now + 240, reason="no route"
    )
    director.breakers[QueueId("North", "ce.north", "short")] = broken
    told = why(house)
    assert (told["verdict"], told["gate"]["breaker"]["retry_seconds"]) == ("not now", 240.0)
    assert (
        step(told, "breaker")["text"]
        == "its breaker is open, and one pilot tries it in 4 min; the last 3 pilots did not start: no route"
    )
    assert told["summary"].endswith("none may be sent now: pilots do not start there: no route.")
    house.now += 241
    assert why(house)["gate"]["breaker"]["state"] == "half-open"


def test_a_closed_queue_and_one_whose_breaker_is_open_are_named_also_while_no_job_waits(house, director):
    director.tick(house.now)
    assert why(house)["main_reason"] == "no-fitting-job-waits"
    director.breakers[QueueId("North", "ce.north", "short")] = Breaker(
        state=BreakerState.OPEN, failures=3, trips=1, retry_at=house.now + 240, reason="no route"
    )
    told = why(house)
    assert (told["main_reason"], told["verdict"]) == ("no-room-for-pilots", "not now")
    assert told["summary"].endswith("none may be sent now: pilots do not start there: no route.")
    director.breakers.clear()
    closed = house.call("POST", "/v1/sites/close", {"site": "North", "reason": "power cut"}, token="admin")
    assert closed.status == 200
    assert why(house)["summary"].endswith(": power cut.")


def test_enough_pilots_wait_already(house, director, backend):
    house.submitted()
    for _ in range(30):
        house.prepare_pilot()
    director.tick(house.now)
    backend.waiting = 0
    told = why(house, **SOUTH)
    assert (told["verdict"], told["main_reason"]) == ("not now", "enough-pilots")
    assert step(told, "director")["holds"] is False


def test_submission_pools_that_are_full(house, director):
    house.submitted({"SubmitPool": "Nowhere"})
    director.tick(house.now)
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-submission-pool")
    assert told["gate"]["submission_pools"][0]["name"] == "Local"


def test_closed_to_the_vo(house, director):
    told = why(house, "admin", site="Far", ce="ce.far", queue="q")
    assert (told["verdict"], told["main_reason"]) == ("never", "not-open-to-vo")
    assert told["summary"] == "VO lab has no access: the site admits other."
    assert told["who"] == "the site administrator: its VO list"
    assert [one["step"] for one in told["chain"]] == ["configured", "access", "pilots", "lately"]
    assert told["gate"] is told["work"] is None
    assert (
        why(house, "admin", vo="other", site="Far", ce="ce.far", queue="q")["main_reason"]
        == "no-fitting-job-waits"
    )


MORE = """
[site.Odd]
VO = ["lab"]
[site.Odd.ce.c.queue.moon]
Backend = "moon"
[site.Odd.ce.c.queue.brief]
CPUTime = 0.5
[site.Odd.ce.c.queue.shut]
MaxTotalJobs = 0
[site.Odd.ce.c.queue.slotless]
Slots = 0
[site.Odd.ce.c.queue.manual]
Backend = "manual"
[site.Odd.ce."a/b".queue."c/d"]
"""


def test_a_queue_where_others_start_the_pilots(house, director):
    house.core.policy = house.side.policy = director.policy = house.policy(
        load_resources([("more.toml", MORE)])
    )
    assert why(house, site="Odd", ce="c", queue="manual")["main_reason"] == "no-fitting-job-waits"
    house.submitted({})
    director.tick(house.now)
    told = why(house, site="Odd", ce="c", queue="manual")
    assert (told["verdict"], told["main_reason"]) == ("not now", "manual-pilots")
    words = "1 task queue could be run there; pilots there are started manually, by files of lode pilot file."
    assert told["summary"] == words
    assert told["who"] == "an administrator: lode pilot file, whose files anyone can start there"
    assert step(told, "possible")["holds"] is True


def test_a_director_that_sends_none(house, director):
    house.submitted()
    director.options = replace(director.options, pilots_per_iteration=0.0)
    director.tick(house.now)
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "director-sends-none")
    assert (
        told["summary"] == "1 task queue could be run there; the director sends no pilots: its target is 0."
    )
    job = house.get("/v1/jobs/1/why")
    assert (job["verdict"], job["main_reason"]) == ("not now", "director-sends-none")
    assert "the director sends none: its target is 0 pilots" in job["summary"]
    assert job["who"] == told["who"]
    assert told["who"].startswith("the server administrator: pilotsPerIteration")


def test_the_director_that_stopped_deciding_says_nothing_of_a_queue(house, director):
    house.submitted()
    director.tick(house.now)
    house.now += 3_600.0
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "director-has-not-decided")
    assert told["summary"].endswith("the director has not decided anything about it for 60 min.")
    assert (step(told, "director")["holds"], step(told, "director")["age_seconds"]) == (None, 3_600.0)
    assert told["ages"]["director"] == 3_600.0


def test_an_identity_whose_credential_ends_shuts_the_queue_for_its_own_pilots_alone(house, director):
    house.submitted()
    rule = IdentityRule(owner="ann", backends=frozenset({"local"}))
    director.options = replace(director.options, identities={"ann": rule, "bob": rule})
    doubts = {"local+ann": "her token ended", "local+bob": ""}
    watches = {name: SimpleNamespace(doubt=doubt) for name, doubt in doubts.items()}
    director.watches = {**director.watches, **watches}
    told = why(house)
    assert told["gate"]["room"]
    (limit,) = (one for one in told["gate"]["limits"] if one["clamp"] == "credential")
    assert (limit["shut"], limit["text"]) == (False, "no pilots with the identity ann: her token ended")
    assert limit["text"] in step(told, "room")["text"]


@pytest.mark.parametrize(
    ("queue", "reason", "words"),
    [
        ("moon", "no-backend", "there is no backend 'moon' here"),
        (
            "brief",
            "no-job-could-fit",
            "the job needs 1 s of normalised CPU time, the resource has 0",
        ),
        ("shut", "capped-at-zero", "MaxTotalJobs is 0"),
        ("slotless", "capped-at-zero", "Slots is 0"),
    ],
)
def test_never_as_things_are_configured(house, director, queue, reason, words):
    house.side.policy = director.policy = house.policy(load_resources([("more.toml", MORE)]))
    house.submit({}, hold_if_impossible=True)
    told = why(house, site="Odd", ce="c", queue=queue)
    assert (told["verdict"], told["main_reason"]) == ("never", reason)
    assert told["summary"] == f"No pilot will ever be sent there: {words}."
    assert step(told, "possible")["holds"] is False
    assert told["who"].startswith("the site administrator")


def test_names_may_hold_slashes(house, director):
    house.side.policy = director.policy = house.policy(load_resources([("more.toml", MORE)]))
    told = why(house, path="Odd/a/b/c/d")
    assert (told["site"], told["ce"], told["queue"]) == ("Odd", "a/b", "c/d")


def test_settings_and_where_they_are_written(house, director):
    told = {one["name"]: one for one in why(house, "admin", path="North/ce.north/short")["settings"]}
    assert (told["CPUTime"]["value"], told["CPUTime"]["level"]) == (1_000, "queue")
    assert told["Platform"]["level"] == "site"
    assert told["Platform"]["file"] == "sites.toml"
    assert told["Platform"]["line"] > 0
    assert (told["MaxWaitingJobs"]["value"], told["MaxWaitingJobs"]["level"]) == (10, "built-in")


def test_pilots_sent_there_and_how_they_ended(house, director):
    house.prepare_pilot("South")
    pilot = house.pilot()
    house.call("POST", "/v1/pilots/leave", {"reason": "error", "message": "no disk"}, token=pilot)
    for n in (3, 4):
        house.prepare_pilot()
        body = {"pilot": n, "state": "Aborted", "reason": "killed by the batch system"}
        house.call("POST", "/v1/service/ended", body, token="service")
    house.prepare_pilot()
    house.now += 60
    told = why(house)
    assert told["pilots"] == {"Submitted": 1}
    assert [one["id"] for one in told["lately"]] == [5, 4, 3, 2]
    assert [one["joined"] for one in told["lately"]] == [False, False, False, True]
    assert told["lately"][1]["reason"] == "killed by the batch system"
    assert step(told, "lately")["text"] == (
        "of the last 4 pilots sent there 3 ended, 2 of them without ever joining; "
        "the last: killed by the batch system"
    )
    assert step(told, "pilots")["text"] == "our live pilots there: 1 Submitted"


def test_pilots_that_the_server_ordered_to_end_are_not_blamed(house, director):
    for n in (1, 2):
        house.prepare_pilot()
        house.call("POST", "/v1/service/submitted", {f"stamp{n}": [f"native-{n}", ""]}, token="service")
    seen = {"2": ["node1", None, house.now]}
    assert house.call("POST", "/v1/service/seen", seen, token="service").status == 200
    ordered = {"pilots": [2], "reason": "not needed any more"}
    assert house.call("POST", "/v1/service/ordered", ordered, token="service").status == 200
    house.now += 120
    (surplus, _) = house.get("/v1/pilots", "admin")["pilots"]
    assert (surplus["drain"], surplus["host"]) == (1, "node1")
    assert "do not reach" not in why(house)["summary"]
    for n, reason in ((1, "not needed any more"), (2, "not needed any more (ended with exit code 143)")):
        body = {"pilot": n, "state": "Aborted", "reason": reason}
        house.call("POST", "/v1/service/ended", body, token="service")
    told = why(house)
    assert [one["ordered"] for one in told["lately"]] == [True, True]
    assert step(told, "lately")["holds"] is True
    assert (
        "2 ended, 2 of them by order before they joined; the last: not needed" in step(told, "lately")["text"]
    )


@pytest.mark.stores
def test_only_the_last_few_are_listed(house, director):
    for _ in range(9):
        house.prepare_pilot()
    assert [one["id"] for one in why(house)["lately"]] == [9, 8, 7, 6, 5]


def test_a_queue_that_is_configured_no_more_and_has_pilots(house, director):
    house.prepare_pilot()
    house.side.policy = house.policy(load_resources([("more.toml", MORE)]))
    told = why(house, path="North/ce.north/short")
    assert (told["verdict"], told["main_reason"]) == ("never", "not-configured")
    assert told["pilots"] == {"Submitted": 1}
    assert told["settings"] == []


def test_without_a_director_the_last_iteration_is_what_is_known(house, backend):
    """Another process than the director's gives the same answer."""
    house.submitted()
    assert why(house)["main_reason"] == "director-has-not-decided"
    director = house.director(backend)
    director.tick(house.now)
    told = why(house)
    assert (told["verdict"], told["gate"]) == ("now", None)
    assert step(told, "room")["age_seconds"] == 0.0
    backend.waiting = backend.running = 100
    director.tick(house.now)
    assert why(house)["main_reason"] == "no-room-for-pilots"
    assert "MaxWaitingJobs 10 - 100 waiting" in why(house)["summary"]


@pytest.mark.parametrize(
    "query",
    ["", "path=North", "path=North/ce.north", "site=North&ce=ce.north", "site=North", "queue=short&path=a/b/c", "vo=lab"],
)  # fmt: skip
def test_what_names_no_queue(house, query):
    answer = house.call("GET", f"/v1/queues/why?{query}", token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")


@pytest.mark.parametrize(
    "query", ["path=North/ce.north/none", "site=x&ce=y&queue=z", "path=North/ce.north/short&vo=moon"]
)
def test_what_is_not_there(house, query):
    answer = house.call("GET", f"/v1/queues/why?{query}", token="ann")
    assert (answer.status, answer.code) == (404, "not-found")


def test_permissions_are_those_of_the_list_of_queues(house):
    house.user("cleo", "physics", scopes=("jobs:read",))
    assert house.call("GET", f"/v1/queues/why?{urlencode(NORTH)}", token="cleo").status == 403
    assert why(house, "admin")["vo"] == "lab"
