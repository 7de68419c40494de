"""New SubmitPool maps and new configurations, as they reach jobs and pilots; getSubmitPoolsForQueue."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.resources import load_resources
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.loops.site_matching import KnownWishes, UnfitQueues
from lodesman.server.writer.pilots import hash_token

NORTH, SOUTH = ["North", "ce.north", "short"], ["South", "ce.south", "long"]
MOVED = """
[job_description]
Software = "list"
[site.North]
Platform = "el9"
VO = ["lab"]
[site.North.ce."ce.north".queue.short]
CPUTime = 1000
Memory = 2000
NumberOfProcessors = 4
[site.South]
Platform = "el8"
VO = ["lab"]
[site.South.ce."ce.south".queue.long]
CPUTime = 100000
Memory = 8000
Software = ["root", "geant"]
[group.physics]
vo = "lab"
"""


def configure(house, text):
    """Both processes take in a changed configuration; returns what keeps the pools true to it."""
    house.core.policy = house.side.policy = house.policy(load_resources([("s.toml", text)]))
    return keep(house)


def keep(house):
    ask_ads = UnfitQueues(house.side.keeper.ads.look, KnownWishes().look).look
    keeper = PoolKeeper(
        house.side.db, house.post, refresh_seconds=900.0, grace_seconds=3_600.0, ask_ads=ask_ads
    )
    keeper.tick(house.side.policy, house.now)
    return keeper


def ask(house, token, *queues):
    return house.call("POST", "/v1/submit-pools/for-queues", {"queues": list(queues)}, token=token)


def pools_of(house, queue, token="ann"):
    return ask(house, token, queue).json["queues"][0]["pools"]


def test_a_pool_that_another_queue_serves_now_reaches_its_pilots_at_once(house):
    job = house.submitted({"Requirements": {"Software": "root"}})
    north, south = house.pilot("North"), house.pilot("South")
    assert house.claim(south) == []
    configure(house, MOVED)
    assert house.claim(north) == []
    assert [one["id"] for one in house.claim(south)] == [job]


def test_a_pilot_that_waits_is_answered_when_its_queue_begins_to_serve_a_pool(house):
    job = house.submitted({"Requirements": {"Software": "root"}})
    task, connection = house.open(
        "POST", "/v1/pilots/claim", house.claim_body(wait_s=30), token=house.pilot("South")
    )
    house.run(asyncio.sleep(0))
    configure(house, MOVED)
    house.run(task)
    assert [one["id"] for one in connection.answer().json["jobs"]] == [job]


def test_a_changed_configuration_judges_new_submissions_and_drops_old_verdicts(house):
    assert house.submit({"CPUTime": 10**7}).status == 422
    text = '[site.North]\nVO = ["lab"]\n[site.North.ce.c.queue.q]\nCPUTime = 100000000\n[group.physics]\nvo = "lab"\n'
    house.core.policy = house.policy(load_resources([("s.toml", text)]))
    assert house.submit({"CPUTime": 10**7}).status == 200
    assert house.submit({"Site": "South"}).status == 400


def test_another_configuration_is_distinguished_from_other_conflicts(house):
    """By that the background process knows that it need only wait."""
    found = {"previous": 0, "answers": 0, "cause": "x", "pools": 0, "seconds": 0.0}
    for name, body in (("pool-pass", found), ("pool-renewals", {})):
        answer = house.call("POST", f"/v1/service/{name}", {**body, "config": "old"}, token="service")
        assert (answer.status, answer.json["error"]["data"]) == (409, {"config": house.core.policy.digest})
    stale = {**found, "previous": 7, "config": house.core.policy.digest}
    answer = house.call("POST", "/v1/service/pool-pass", stale, token="service")
    assert (answer.status, answer.json["error"].get("data", {})) == (409, {})


def test_a_job_that_nothing_can_run_is_released_when_a_queue_appears(house):
    wanted = {"CPUTime": 500, "Requirements": {"Software": "gate"}}
    assert house.submit(wanted).status == 422
    job = house.submitted(wanted, hold_if_impossible=True)
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], found["held_by"]) == ("Held", "impossible")
    assert "Requirements.Software excludes 2 of 2" in found["reason"]
    keep(house)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Held"
    assert house.control("release", job).status == 200
    assert house.get(f"/v1/jobs/{job}")["state"] == "Held"
    configure(house, MOVED.replace('"geant"', '"gate"'))
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], found["held_by"]) == ("Waiting", None)
    assert [event["event"] for event in found["events"]] == ["Held", "Waiting"]
    assert [one["id"] for one in house.claim(house.pilot("South"))] == [job]


def test_a_job_for_a_site_that_is_not_there_yet_is_released_when_it_comes(house):
    job = house.submitted({"CPUTime": 500, "Site": ["East"]}, hold_if_impossible=True)
    keep(house)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Held"
    configure(house, MOVED + '[site.East]\nVO = ["lab"]\n[site.East.ce.c.queue.q]\nCPUTime = 1000\n')
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"


def test_a_job_for_a_submission_pool_that_is_not_there_yet_is_released_when_it_comes(house):
    def pools(*names):
        policy = house.policy(house.core.policy.config, submission_pools=dict.fromkeys(names, PoolScope()))
        house.core.policy = house.side.policy = policy

    pools("Local")
    job = house.submitted({"CPUTime": 500, "SubmitPool": "Grid"}, hold_if_impossible=True)
    keep(house)
    assert "SubmitPool -> Local" in house.get(f"/v1/jobs/{job}")["reason"]
    pools("Local", "Grid")
    keep(house)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"
    pools("Local")
    keep(house)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Held"


def test_jobs_that_become_impossible_are_listed_as_held(house):
    first = house.submitted({"Requirements": {"Software": "root"}}, {"CPUTime": 400})
    array = house.submitted(
        text='[Executable = "x"; CPUTime = 500; Parameters = 3; Requirements = [Software = "geant"]]'
    )
    configure(house, MOVED.replace('Software = ["root", "geant"]', ""))
    held = house.get("/v1/jobs?state=Held")["jobs"]
    assert [row["id"] for row in held] == [first, array, array + 1, array + 2]
    assert [row["id"] for row in house.get("/v1/jobs?state=Waiting")["jobs"]] == [first + 1]
    counts = {row["state"]: row["jobs"] for row in house.get("/v1/jobs/counts")["counts"]}
    assert counts == {"Held": 4, "Waiting": 1}
    faulty = house.get("/v1/usage")["faulty"]
    assert sum(row["count"] for row in faulty if row["state"] == "Held") == 4


def test_an_evaluation_by_another_configuration_is_refused(house):
    keeper = keep(house)
    house.core.policy = house.policy(load_resources([("s.toml", MOVED)]))
    told = house.call("POST", "/v1/service/pool-pass", {
        "previous": 1, "answers": 0, "config": house.side.policy.digest, "cause": "interval", "pools": 0,
        "seconds": 0.1,
    }, token="service")  # fmt: skip
    assert (told.status, told.code) == (409, "conflict")
    house.side.policy = house.core.policy
    assert keeper.tick(house.side.policy, house.now) == "configuration"


def test_a_job_that_was_judged_by_another_configuration_asks_for_a_refresh(house):
    keeper = keep(house)
    house.submitted()
    assert keeper.tick(house.side.policy, house.now) == ""
    old = house.core.policy
    keeper = configure(house, MOVED)
    house.core.policy = old
    house.submitted({"Requirements": {"Software": "root"}})
    house.core.policy = house.side.policy
    assert pools_of(house, NORTH)
    assert keeper.tick(house.side.policy, house.now) == "request"
    assert pools_of(house, NORTH) == []
    assert pools_of(house, SOUTH)


# --- getSubmitPoolsForQueue -----------------------------------------------------------------------------------


@pytest.mark.stores
def test_one_call_for_a_bunch_of_queues(house):
    assert ask(house, "ann", NORTH).json == {
        "pass": 0, "at": 0.0, "queues": [{"site": "North", "ce": "ce.north", "queue": "short", "pools": []}],
    }  # fmt: skip
    for wanted in ("root", "geant"):
        house.submitted({"Requirements": {"Software": wanted}})
    house.submitted({"Requirements": {"Memory": 1000}})
    keep(house)
    told = ask(house, "admin", NORTH, SOUTH, NORTH, ["No", "such", "queue"]).json
    assert (told["pass"], told["at"]) == (1, house.now)
    counts = [(row["site"], len(row["pools"])) for row in told["queues"]]
    assert counts == [("North", 3), ("South", 1), ("North", 3), ("No", 0)]
    assert told["queues"][0]["pools"] == sorted(told["queues"][0]["pools"])
    assert ask(house, "admin", NORTH, SOUTH, NORTH, ["No", "such", "queue"]).json == told
    assert ask(house, "ann", NORTH, SOUTH).json["queues"] == told["queues"][:2]
    assert ask(house, "ann", ["No", "such", "queue"]).status == 404


def test_the_time_stamp_is_that_of_the_last_refresh(house):
    keep(house)
    house.now += 900
    keep(house)
    assert (ask(house, "ann", NORTH).json["pass"], ask(house, "ann", NORTH).json["at"]) == (2, house.now)


def test_a_pilot_asks_for_the_queue_that_it_was_sent_to_and_for_no_other(house):
    house.submitted({"Requirements": {"Software": "root"}})
    pilot = house.pilot("North")
    assert len(pools_of(house, NORTH, pilot)) == 1
    assert ask(house, pilot, NORTH, SOUTH).code == "forbidden"
    assert ask(house, pilot, ["North", "ce.north", ""]).code == "forbidden"


def test_a_pilot_may_ask_before_it_joins_by_its_join_token_and_ask_nothing_else(house):
    house.submitted({"Requirements": {"Software": "root"}})
    join = house.prepare_pilot("North")
    assert len(pools_of(house, NORTH, join)) == 1
    assert ask(house, join, SOUTH).code == "forbidden"
    assert house.call("POST", "/v1/pilots/claim", house.claim_body(), token=join).code == "unauthorized"
    assert house.call("GET", "/v1/jobs", token=join).code == "unauthorized"
    house.now += 8 * 86_400
    assert ask(house, join, NORTH).code == "unauthorized"


def unplaced(house, *, site="", ce="", queue=""):
    """A pilot that was sent to an unknown queue; returns its join token."""
    stamp = f"free{house.claims}{site}{ce}{queue}"
    row = {
        "stamp": stamp, "vo": "lab", "site": site, "ce": ce, "queue": queue, "request": {"vo": "lab"},
        "join_hash": base64.b64encode(hash_token(f"join-{stamp}")).decode(),
    }  # fmt: skip
    assert house.call("POST", "/v1/service/pilots", [row], token="service").status == 200
    return f"join-{stamp}"


def test_a_pilot_that_was_sent_to_no_queue_asks_for_those_that_it_may_be_in(house):
    house.submitted({"Requirements": {"Software": "root"}})
    assert len(pools_of(house, NORTH, unplaced(house))) == 1
    at_site = unplaced(house, site="North")
    assert len(pools_of(house, NORTH, at_site)) == 1
    assert ask(house, at_site, SOUTH).code == "forbidden"


@pytest.mark.parametrize(
    "body", [{}, {"queues": []}, {"queues": [["a", "b"]]}, {"queues": [["a", "b", "x" * 2_000]]}]
)
def test_a_question_that_makes_no_sense(house, body):
    assert house.call("POST", "/v1/submit-pools/for-queues", body, token="ann").code == "invalid-request"


@pytest.mark.stores
def test_permissions(house):
    assert ask(house, "", NORTH).code == "unauthorized"
    assert ask(house, "nobody's", NORTH).code == "unauthorized"
    house.user("eve", "physics", scopes=("jobs:read",))
    assert ask(house, "eve", NORTH).code == "forbidden"


def test_a_question_with_too_long_an_answer(house, monkeypatch):
    monkeypatch.setattr("lodesman.server.http.pilots._MOST_POOLS", 3)
    for wanted in ("root", "geant"):
        house.submitted({"Requirements": {"Software": wanted}})
    assert ask(house, "ann", NORTH).status == 200
    assert ask(house, "ann", NORTH, NORTH).code == "too-large"


def test_a_requirement_set_of_two_vos_is_two_pools(house):
    house.user("olaf", "guests", vo="other")
    house.submitted({"Requirements": {"CPUTime": 900}})
    house.submitted({"CPUTime": 100, "Requirements": {"CPUTime": 900}}, token="olaf")
    assert len(pools_of(house, NORTH)) == 1
    far = pools_of(house, ["Far", "ce.far", "q"], "olaf")
    assert len(far) == 1
    assert set(far).isdisjoint(pools_of(house, NORTH))


# --- pilots that find out where they run ------------------------------------------------------------------------


def place(queue):
    return dict(zip(("site", "ce", "queue"), queue, strict=True))


def join(house, token, **more):
    answer = house.call(
        "POST", "/v1/pilots/join", {"join_token": token, "nonce": "n", "node": {"cores": 2}, **more}
    )
    assert answer.status == 200, answer.body
    name = f"pilot{answer.json['pilot']}"
    house.tokens[name] = answer.json["token"]
    return name, answer.json


def stored(house, pilot):
    row = house.side.db.execute(
        "SELECT site, ce, queue, request, node FROM pilot WHERE id = ?", (int(pilot.removeprefix("pilot")),)
    ).fetchone()
    return [*row[:3]], json.loads(row[3]), json.loads(row[4])


def test_a_pilot_that_found_out_where_it_runs_is_a_pilot_of_that_queue(house):
    job = house.submitted({"Requirements": {"Software": "geant"}})
    token = unplaced(house)
    pools = pools_of(house, NORTH, token)
    pilot, told = join(house, token, place=place(NORTH), submit_pools=pools, pools_pass=0)
    assert told["place"] == place(NORTH)
    queue, request, node = stored(house, pilot)
    assert queue == NORTH
    assert (request["platforms"], request["cores"], request["norm_cpu_seconds"]) == (["el9"], 4, 1000)
    assert node == {"cores": 2, "submit_pools": {"pass": 0, "presented": 1, "serves": 1, "stale": 0}}
    assert [one["id"] for one in house.claim(pilot)] == [job]


def test_a_list_that_a_pilot_presents_is_never_trusted(house):
    first = house.submitted({"Requirements": {"Software": "root"}})
    token = unplaced(house)
    pools = pools_of(house, NORTH, token)
    configure(house, MOVED)
    # No more eligible: the pilot presents a pool that its queue serves no more.
    north, _ = join(house, token, place=place(NORTH), submit_pools=pools, pools_pass=0)
    assert stored(house, north)[2]["submit_pools"]["stale"] == 1
    assert house.claim(north) == []
    # Newly eligible: it presents nothing, and its queue serves the pool.
    south, _ = join(house, unplaced(house, site="South"), place=place(SOUTH), submit_pools=[])
    assert [one["id"] for one in house.claim(south)] == [first]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({}, ["No", "such", "queue"]),
        ({}, ["Far", "ce.far", "q"]),
        ({"site": "South"}, NORTH),
        ({"ce": "ce.south"}, NORTH),
        ({"site": "North", "queue": "long"}, NORTH),
    ],
)
def test_a_place_that_is_not_believed(house, sent, told):
    job = house.submitted({"Requirements": {"Software": "root"}})
    pilot, answer = join(house, unplaced(house, **sent), place=place(told))
    assert answer["place"] == {"site": "", "ce": "", "queue": "", **sent}
    assert house.claim(pilot) == []
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"


def test_a_pilot_that_was_sent_to_a_queue_stays_there_whatever_it_says(house):
    house.submitted({"Requirements": {"Software": "root"}})
    pilot, answer = join(house, house.prepare_pilot("South"), place=place(NORTH))
    assert answer["place"] == place(SOUTH)
    assert house.claim(pilot) == []


def test_a_lost_answer_to_a_join_is_asked_for_again(house):
    token = unplaced(house)
    join(house, token, place=place(NORTH))
    pilot, told = join(house, token, place=place(NORTH))
    assert told["place"] == place(NORTH)
    _, told = join(house, token, place=place(SOUTH))
    assert told["place"] == place(NORTH)
    assert stored(house, pilot)[0] == NORTH
