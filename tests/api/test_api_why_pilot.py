"""GET /v1/pilots/{pilot}/why: why a pilot got nothing, held against what a claim gives it."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.matching import GroupShare
from lodesman.decide.matching.criteria import explain
from lodesman.server.writer.pilots import hash_token
from lodesman.server.writer.sessions import FreeResources


def why(house, pilot, token="ann"):
    return house.get(f"/v1/pilots/{pilot}/why", token)


def step(told, name):
    (found,) = [one for one in told["chain"] if one["step"] == name]
    return found


def number(pilot):
    return int(pilot.removeprefix("pilot"))


FREE = {"cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 0}

jobs = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_000, 1_001, 50_000])},
    optional={
        "Memory": st.sampled_from([0, 2_000, 2_001]),
        "NumberOfProcessors": st.sampled_from([1, 2, 4]),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Site": st.sampled_from(["North", "South"]),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "Requirements": st.just({"Software": "root"}),
    },
)
offers = st.fixed_dictionaries(
    {},
    optional={
        "cores": st.sampled_from([1, 2, 4]),
        "tags": st.sampled_from([["SSD"], ["SSD", "GPU"]]),
        "required_tags": st.just(["SSD"]),
        "platforms": st.sampled_from([["el8"], ["el9"], ["el8", "el9"]]),
        "norm_cpu_seconds": st.sampled_from([1_000, 60_000]),
    },
)


@pytest.mark.slow
@at_most(60)
@given(wanted=st.lists(jobs, max_size=4), offer=offers, site=st.sampled_from(["North", "South"]))
def test_why_pilot_agrees_with_the_claim(house, wanted, offer, site):
    """would get a job now <=> a claim gives one; eligible = task queues for which the index has no reason."""
    pilot = house.pilot(site, **offer)
    assert house.claim(pilot, resource=FREE) == []
    if wanted:
        house.submit(*wanted, hold_if_impossible=True)
    told = why(house, number(pilot))
    index, session = house.core.live.queues.index, house.core.sessions[number(pilot)]
    request = session.request(FreeResources(4, 2_000, 10**9), house.core.live.pools)
    reasons = {tq_id: explain(key, request) for tq_id, key, waiting in index.queues() if waiting}
    free = [tq_id for tq_id, found in reasons.items() if not found and index.is_open(tq_id)]
    assert told["now"]["eligible"] == len(free)
    assert told["task_queues"]["fitting"] == len(free)
    assert (told["verdict"] == "would get a job now") == bool(free)
    if not free and told["now"]["task_queues"]:
        held = any(not found and not index.is_open(tq_id) for tq_id, found in reasons.items())
        assert told["verdict"] == ("limited" if held else "nothing fits")
    # No pilot gets jobs of held task queues.
    others = [found for tq_id, found in reasons.items() if index.is_open(tq_id)]
    if told["verdict"] == "nothing fits" and others:
        assert told["task_queues"]["ruled_out_by"]
        fewest = min(len(found) for found in others)
        assert {len(one["change"]) for one in told["task_queues"]["nearest"]} == {fewest}
    taken = house.claim(pilot, resource=FREE)
    assert bool(taken) == bool(free)
    house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=pilot)
    house.control("kill", 1, 10**6)


def test_on_its_way_it_has_not_asked(house):
    house.prepare_pilot()
    house.now += 30
    told = why(house, 1)
    assert (told["verdict"], told["standing"], told["state"]) == ("has not asked", "on its way", "Submitted")
    assert told["who"] == "its batch system, by starting it"
    assert "waits in North/ce.north/short, since 30 s" in told["summary"]
    assert [one["step"] for one in told["chain"] if one["holds"] is False][:2] == ["pilot", "asks"]
    assert told["asked"] == {"seconds_ago": None, "jobs": None, "waits_seconds": None}


def test_one_that_runs_and_has_not_reached_the_server_is_not_said_to_wait(house):
    house.prepare_pilot()
    house.now += 30
    house._writer.execute("UPDATE pilot SET host = 'wn7'")
    told = why(house, 1)
    said = "it runs on wn7, from where it has not reached this server; it was sent to North/ce.north/short, 30 s ago"
    assert said in told["summary"]
    assert told["who"].startswith("the server administrator, if public_url of [server] is wrong; or the site")


def test_a_pilot_that_joined_and_never_asked(house):
    house.submitted()
    house.pilot()
    told = why(house, 1)
    assert (told["verdict"], told["standing"]) == ("has not asked", "idle")
    assert told["summary"] == "It has not asked since it joined or the server started."
    assert told["now"]["eligible"] == 1
    assert told["offer"]["free_by"] == "its offer without what its jobs were promised"


def test_it_is_found_by_its_stamp(house):
    house.pilot()
    assert why(house, "stamp1")["id"] == 1


@pytest.mark.parametrize("name", ["9", "nosuch", "stamp9", "%20", "0", "9" * 40])
def test_a_pilot_that_never_was(house, name):
    answer = house.call("GET", f"/v1/pilots/{name}/why", token="ann")
    assert (answer.status, answer.code) == (404, "not-found")


def test_nothing_waits(house):
    pilot = house.pilot()
    house.claim(pilot)
    told = why(house, 1)
    assert (told["verdict"], told["summary"]) == ("nothing waits", "No job of VO lab waits.")
    assert step(told, "waiting")["holds"] is False


def test_what_waits_for_another_vo_is_nothing_for_it(house):
    house.user("far", "guests", vo="other")
    house.submitted(token="far")
    house.claim(house.pilot())
    told = why(house, 1)
    assert (told["verdict"], told["now"]["elsewhere"]) == ("nothing waits", 1)
    assert step(told, "waiting")["text"].endswith("(1 of other VOs)")


def test_nothing_fits_and_what_would(house):
    house.submitted(
        {"CPUTime": 5_000}, {"CPUTime": 5_000}, {"CPUTime": 9_000}, {"Platform": "el8", "CPUTime": 9_000}
    )
    house.claim(house.pilot())
    house.now += 5
    told = why(house, 1)
    assert told["verdict"] == "nothing fits"
    assert told["summary"] == (
        "No task queue of 3 fits what it has free: CPUTime excludes 3, Platform excludes 1; "
        "suggestion: CPUTime 1000 -> 9000."
    )
    (near,) = told["task_queues"]["nearest"]
    assert (near["task_queues"], near["jobs"]) == (2, 3)
    assert near["example"]["reasons"] == [
        "the job needs 5000 s of normalised CPU time, the resource has 1000"
    ]
    assert step(told, "asks")["age_seconds"] == 5.0
    assert told["asked"]["seconds_ago"] == 5.0
    assert told["offer"]["whole"] == {"cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 1_000}


class Nothing:
    """A command that does nothing."""

    def apply(self, _tx):
        return None


def test_it_waits_in_a_long_poll(house):
    pilot = house.pilot()
    task, connection = house.open("POST", "/v1/pilots/claim", house.claim_body(wait_s=30), token=pilot)
    house.get("/v1/pilots")  # the loop takes the claim in
    house.run(house.core.commands.run(Nothing()))  # what was posted before is applied
    house.now += 7
    told = why(house, 1)
    assert (told["verdict"], told["asked"]["waits_seconds"]) == ("nothing waits", 7.0)
    assert "long poll, since 7 s" in step(told, "asks")["text"]
    assert told["offer"]["free_by"] == "what it asks for"
    house.submitted()
    house.run(task)
    assert len(connection.answer().json["jobs"]) == 1
    assert why(house, 1)["asked"]["waits_seconds"] is None


def test_what_runs_in_it_is_not_free(house):
    house.submitted({"NumberOfProcessors": 3})
    assert len(house.claim(house.pilot())) == 1
    house.submitted({"NumberOfProcessors": 2})
    told = why(house, 1)
    assert (told["verdict"], told["standing"], told["jobs_now"]) == ("nothing fits", "busy", 1)
    assert told["offer"]["free"] == {"cores": 1, "memory_mb": 500, "norm_cpu_seconds": 1_000}
    assert told["offer"]["free_by"] == "its offer without what its jobs were promised"
    assert told["task_queues"]["nearest"][0]["text"] == "NumberOfProcessors 1 -> 2"
    house.submitted({"CPUTime": 100})
    assert why(house, 1)["verdict"] == "would get a job now"


def test_full(house):
    house.submitted({"NumberOfProcessors": 4})
    assert len(house.claim(house.pilot())) == 1
    house.submitted()
    told = why(house, 1)
    assert (told["verdict"], told["who"]) == ("full", "time, as its jobs end")
    assert told["summary"] == "It has 1 job and no core free."
    assert step(told, "offers")["holds"] is False


def test_a_drained_pilot_gets_nothing(house):
    house.claim(house.pilot())
    house.submitted()
    house.call("POST", "/v1/pilots/drain", {"pilots": [1]}, token="admin")
    told = why(house, 1)
    assert (told["verdict"], told["standing"]) == ("draining", "draining")
    assert step(told, "pilot")["holds"] is False


def test_an_ended_pilot_says_how_it_ended(house):
    pilot = house.pilot()
    house.call("POST", "/v1/pilots/leave", {"reason": "error", "message": "no disk"}, token=pilot)
    house.now += 300
    told = why(house, 1)
    assert (told["verdict"], told["state"], told["chain"]) == ("ended", "Aborted", [])
    assert told["summary"] == "It ended 5 min ago (Aborted: error: no disk) after 0 jobs."


def test_what_is_limited(house):
    house.claim(house.pilot())
    house.submitted()
    index = house.core.live.queues.index
    (tq_id,) = [tq_id for tq_id, _, _ in index.queues()]
    index.block(tq_id, "physics at most 0")
    told = why(house, 1)
    assert (told["verdict"], told["summary"]) == ("limited", "All that fits is limited: physics at most 0.")
    assert told["now"]["limited"] == {"physics at most 0": 1}
    assert step(told, "limits")["holds"] is False
    index.unblock(tq_id, "physics at most 0")
    assert why(house, 1)["verdict"] == "would get a job now"


def test_what_is_held_since_no_configured_queue_can_run_it(house):
    house.claim(house.pilot(platforms=["vax"]))
    house.submit({"Platform": "vax"}, hold_if_impossible=True)
    told = why(house, 1)
    assert told["verdict"] == "limited"
    assert told["summary"] == "All that fits is limited: Held, since no configured queue can run it."


def private_pilot(house, owner, group):
    """A pilot of one owner, joined, that has asked."""
    stamp = f"private-{owner}"
    offer = {"vo": "lab", "cores": 4, "memory_mb": 2_000, "platforms": ["el9"], "norm_cpu_seconds": 1_000}
    row = {
        "stamp": stamp, "vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "request": offer,
        "owner": owner, "group": group, "pilot_type": "private", "submission_pool": "Local",
        "join_hash": base64.b64encode(hash_token(f"join-{stamp}")).decode(),
    }  # fmt: skip
    house.call("POST", "/v1/service/pilots", [row], token="service")
    body = {"join_token": f"join-{stamp}", "nonce": "n", "node": {"cores": 4}}
    joined = house.call("POST", "/v1/pilots/join", body).json
    house.tokens[stamp] = joined["token"]
    house.claim(stamp)
    return joined["pilot"]


def test_a_private_pilot_and_whom_it_serves(house):
    pilot = private_pilot(house, "ann", "physics")
    house.submitted(token="bob")
    told = why(house, pilot)
    assert told["verdict"] == "nothing fits"
    assert {one["criterion"] for one in told["task_queues"]["ruled_out_by"]} == {"Owner", "OwnerGroup"}
    assert step(told, "serves")["text"] == (
        "only jobs of ann, group physics, VO lab (private pilot), sent through submission pool Local"
    )
    house.submitted(token="ann")
    assert why(house, pilot)["verdict"] == "would get a job now"


def test_groups_without_a_share_are_served_if_no_other_has_what_fits(house):
    house.claim(house.pilot())
    house.core.live.queues.matcher.lottery.set_shares({"bio": GroupShare(share=0.0)})
    house.submitted(token="bob")
    told = why(house, 1)
    assert told["verdict"] == "would get a job now"
    assert (
        step(told, "share")["text"] == "only groups without a share have what fits, and they are served: bio"
    )
    house.submitted(token="ann")
    assert step(why(house, 1), "share")["text"] == "its next job is drawn among 1 group by share: physics"
    assert why(house, 1)["now"]["eligible"] == 2


def test_a_pilot_that_ends_between_two_reads_is_shown_as_ended(house):
    pilot = house.pilot()
    ask = house.side.ask_hot

    async def slowly(call, body):
        told = json.loads(bytes(await ask(call, body)))
        task, _ = house.open("POST", "/v1/pilots/leave", {"reason": "idle"}, token=pilot)
        await task
        return json.dumps({**told, "joined": False}).encode()

    house.side.ask_hot = slowly
    assert why(house, 1)["verdict"] == "ended"


def test_a_silent_pilot_has_the_verdict_silent(house):
    house.claim(house.pilot())
    house.submitted()
    house.ticks += 1_000.0
    told = why(house, 1)
    assert told["verdict"] == "would get a job now"
    assert told["who"] == "the administrator of its node: it should have asked long ago"
    assert told["ages"]["heard"] == 1_000.0
    assert step(told, "pilot")["holds"] is False
    assert "last heartbeat was 17 min ago" in step(told, "pilot")["text"]


def test_submit_pools_are_those_of_now(house):
    house.submitted({"Requirements": {"Software": "root"}})
    house.claim(house.pilot())
    told = why(house, 1)["now"]
    assert told["submit_pools"] == 1
    assert told["first_submit_pools"][0].startswith("req")
    assert step(why(house, 1), "submit_pools")["text"] == "its queue serves 1 SubmitPool now"


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({}, ""),
        ({"submit_pools": "odd"}, ""),
        ({"submit_pools": {"stale": 0}}, ""),
        ({"submit_pools": {"stale": 2}}, "; of what it presented when it joined, 2 differed"),
    ],
)
def test_stale_submit_pools_are_reported_and_do_not_count(house, node, told):
    house.pilot(node={"cores": 4, **node})
    assert step(why(house, 1), "submit_pools")["text"] == f"its queue serves 0 SubmitPools now{told}"


def test_permissions_are_those_of_the_list_of_pilots(house):
    house.pilot()
    house.user("cleo", "physics", scopes=("jobs:read",))
    assert house.call("GET", "/v1/pilots/1/why", token="cleo").status == 403
    assert why(house, 1, "bob")["id"] == 1
    assert why(house, 1, "admin")["id"] == 1


def test_asking_changes_nothing(house):
    house.submitted()
    pilot = house.pilot()
    for _ in range(3):
        why(house, 1)
    assert house.get("/v1/jobs/1")["state"] == "Waiting"
    assert len(house.claim(pilot)) == 1
