"""POST /v1/pilots/files: pilots that people start themselves, from the request to the join or to the end of the file."""

from __future__ import annotations

import json

import pytest

from lodesman.decide.director.supply import PilotStanding
from lodesman.decide.resources import load_resources
from lodesman.pilot.context import parse_pilot_file
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.standing import standing_of
from lodesman.server.reads.pilot_files import UnstartedPilots
from lodesman.server.store.read.pilots import pilots_in_short
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.service import NewPilot

SITES = """
[site.Three]
VO = ["lab"]
[site.Three.ce.nodes]
Backend = "manual"
CPUTime = 1000
Platform = "el9"
[site.Three.ce.nodes.queue.hand]
MaxTotalJobs = 4
NumberOfProcessors = 2
[site.Three.ce.nodes.queue.free]
[site.Three.ce.nodes.queue.private]
GenericPilots = false
[site.Three.ce.nodes.queue.batch]
Backend = "local"
[site.Theirs]
VO = ["other"]
[site.Theirs.ce.c.queue.q]
Backend = "manual"
[group.physics]
vo = "lab"
share = 1000
"""
QUEUE = "Three/nodes/hand"
HOUR = 3_600.0


@pytest.fixture
def house(house):
    """With queues of three nodes, and the settings of a server that other machines reach."""
    policy = house.policy(load_resources([("three.toml", SITES)]))
    house.core.policy = house.side.policy = policy
    house.side.pilot_settings = PilotSettings(
        servers=("https://grid.example:7777",), program=b"#!/usr/bin/env python3\nPK", ca_file="PEM", mark="abc",
    )  # fmt: skip
    return house


def make(house, token="admin", **body):
    return house.call("POST", "/v1/pilots/files", {"path": QUEUE, **body}, token=token)


def joins(house, content, **more):
    body = {"join_token": json.loads(content)["join_token"], "nonce": "n" * 16, "node": {}, **more}
    return house.call("POST", "/v1/pilots/join", body)


def pilots(house, *, everything=True):
    rows = house.get(f"/v1/pilots?all={str(everything).lower()}", "admin")["pilots"]
    return {row["id"]: (row["state"], row["reason"]) for row in rows}


def test_each_file_is_one_pilot_of_the_queue_that_joins_once(house):
    made = make(house, count=3, hours=2).json
    assert (made["site"], made["ce"], made["queue"], made["vo"]) == ("Three", "nodes", "hand", "lab")
    assert made["expires_at"] == house.now + 2 * HOUR
    assert (made["servers"], made["notices"]) == (["https://grid.example:7777"], [])
    files = [parse_pilot_file(one["content"]) for one in made["pilots"]]
    assert len({one.join_token for one in files}) == len({one.stamp for one in files}) == 3
    (first, *_) = files
    assert (first.servers, first.ca_file, first.url_file) == (("https://grid.example:7777",), "PEM", None)
    assert (first.site, first.ce, first.queue, first.options.cores, first.options.platform) == (
        "Three", "nodes", "hand", 2, "el9",
    )  # fmt: skip
    assert first.stamp.startswith("abc")
    assert set(pilots(house).values()) == {("Prepared", "")}
    joined = joins(house, made["pilots"][0]["content"])
    assert joined.json["pilot"] == made["pilots"][0]["id"]
    again = joins(house, made["pilots"][0]["content"], nonce="m" * 16)
    assert (again.status, again.code) == (401, "unauthorized")


def test_such_a_pilot_runs_jobs_of_all_users_of_its_vo(house):
    first = house.submitted({"Site": "Three", "CPUTime": 500})
    (one,) = make(house).json["pilots"]
    house.tokens["hand"] = joins(house, one["content"]).json["token"]
    assert [job["id"] for job in house.claim("hand")] == [first]


def test_what_nobody_starts_ends_when_its_file_expires(house):
    """It holds no place in its queue, and the director does not count on it."""
    made = make(house, count=2, hours=1).json["pilots"]
    standing = {standing_of(one, house.now) for one in pilots_in_short(house.side.db)}
    assert standing == {PilotStanding.UNSTARTED}
    joins(house, made[0]["content"])
    unstarted = UnstartedPilots(house.side.db, house.post)
    house.now += HOUR
    assert unstarted.tick(house.now) == 0
    house.now += 1.0
    assert joins(house, made[1]["content"]).status == 401
    assert unstarted.tick(house.now) == 1
    assert unstarted.tick(house.now) == 0
    assert pilots(house) == {
        made[0]["id"]: ("Running", ""),
        made[1]["id"]: ("Aborted", "it was not started before its file expired"),
    }


@pytest.mark.stores
def test_a_file_that_expired_is_ended_also_when_its_token_was_deleted(house):
    (one,) = make(house, hours=1).json["pilots"]
    house.now += 2 * HOUR
    house.post(inner_calls.FORGET_IDLE, Nothing())
    assert UnstartedPilots(house.side.db, house.post).tick(house.now) == 1
    assert pilots(house)[one["id"]][0] == "Aborted"


def test_the_caps_hold_for_those_who_make_files_at_the_same_moment(house, monkeypatch):
    # Both found room for three before either was stored.
    monkeypatch.setattr("lodesman.server.reads.pilot_files.pilots_of_queue", lambda *_: [])
    assert make(house, count=3).status == 200
    second = make(house, count=3)
    assert (second.status, second.code, second.json["error"]["data"]["room"]) == (409, "conflict", 1)
    assert "Three/nodes/hand takes 4 pilots, and 3 are there" in second.json["error"]["message"]
    assert len(pilots(house)) == 3
    made = [
        one["subject"] for one in house.get("/v1/audit", "admin")["entries"] if one["action"] == "pilots-made"
    ]
    assert made == [QUEUE]
    assert make(house, count=1).status == 200


def test_the_caps_of_the_queue_hold(house):
    assert make(house, count=3).status == 200
    full = make(house, count=2)
    assert (full.status, full.code, full.json["error"]["data"]["room"]) == (409, "conflict", 1)
    assert "MaxTotalJobs of Three/nodes/hand is 4, and 3 pilots are there" in full.json["error"]["message"]
    assert make(house, count=1).status == 200
    assert make(house, path="Three/nodes/free", count=50).status == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"path": "Three/nodes/batch"}, 400, "has the backend local"),
        ({"path": "Three/nodes/private"}, 400, "takes private pilots only"),
        ({"path": "Three/nodes"}, 404, "is no queue"),
        ({"path": "Three/nodes/hnad"}, 404, "no site, CE or queue"),
        ({"path": "", "site": "Three"}, 400, "Name a queue"),
        ({"path": "Theirs/c/q"}, 404, "VO lab may not use Theirs/c/q"),
        ({"count": 0}, 400, "count"),
        ({"count": 101}, 400, "count"),
        ({"hours": 0}, 400, "hours"),
        ({"hours": 721}, 400, "hours"),
        ({"vo": "nowhere"}, 404, "no VO nowhere"),
    ],
)
def test_what_is_refused(house, body, status, words):
    refused = make(house, **body)
    assert refused.status == status
    assert words in refused.json["error"]["message"]
    assert pilots(house) == {}


def test_of_a_closed_queue_no_files_are_made(house):
    closing = {"path": "Three", "reason": "new disks"}
    assert house.call("POST", "/v1/sites/close", closing, token="admin").status == 200
    refused = make(house)
    assert (refused.status, refused.code) == (409, "conflict")
    assert "closed by admin" in refused.json["error"]["message"]


def test_administrators_alone_make_them_and_the_trail_says_so(house):
    """Whoever has such a file gets the jobs of the VO: no site token and no user may have one made."""
    assert make(house, "ann").status == 403
    assert make(house, count=2, hours=3).status == 200
    (entry,) = house.get("/v1/audit?action=pilots-made", "admin")["entries"]
    assert (entry["subject"], entry["by"], entry["origin"]) == (QUEUE, "admin", "127.0.0.1")
    assert entry["detail"].startswith("2 for VO lab, good until 1970-01-12")


@pytest.mark.parametrize("server", ["http://127.0.0.1:7777", "https://localhost:7777", "https://[::1]:7777"])
def test_an_address_that_only_this_machine_has_is_said(house, server):
    house.side.pilot_settings = PilotSettings(servers=(server,), program=b"")
    (notice,) = make(house).json["notices"]
    assert server in notice
    assert "public_url" in notice


def test_why_names_how_pilots_come_there(house, backend):
    house.side.director = house.director(backend)
    house.submitted({"Site": "Three", "CPUTime": 500})
    house.side.director.tick(house.now)
    why = house.get(f"/v1/queues/why?path={QUEUE}", "admin")
    assert (why["main_reason"], why["verdict"]) == ("manual-pilots", "not now")
    assert "lode pilot file" in why["who"]
    (one,) = make(house).json["pilots"]
    pilot = house.get(f"/v1/pilots/{one['id']}/why", "admin")
    assert pilot["who"] == "whoever has its file, by starting it: python3 -I FILE"
    assert pilot["chain"][0]["text"].startswith("its file waits to be started for Three/nodes/hand")
    job = house.get("/v1/jobs/1/why", "admin")
    assert job["pilots"]["usable_waiting"] == 0  # a file is no promise


def test_the_output_of_such_a_pilot_is_where_it_was_started(house):
    (one,) = make(house).json["pilots"]
    refused = house.call("GET", f"/v1/pilots/{one['id']}/logs", token="admin")
    assert refused.status == 404
    assert "A person started pilot" in refused.json["error"]["message"]


def test_a_pilot_that_was_refused_says_why_instead_of_an_output(house):
    place = {"site": "Three", "ce": "nodes", "queue": "batch"}
    house.post(
        inner_calls.PREPARE_PILOTS, [NewPilot(stamp="s-1", vo="lab", request={}, join_hash=b"x", **place)]
    )
    house.post(inner_calls.PILOTS_SUBMITTED, {"s-1": (None, "no such queue")})
    refused = house.call("GET", "/v1/pilots/s-1/logs", token="admin")
    assert refused.status == 404
    assert "has not accepted it (no such queue)" in refused.json["error"]["message"]
