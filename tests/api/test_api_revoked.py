"""Answers that take long end as soon as a token opens less than when they were asked for."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.api.conftest import Answer
from tests.api.test_api_permissions import REQUESTS

from lodesman.server.writer.pilots import hash_token
from lodesman.wire.calls import CALLS
from lodesman.wire.jsv import JsvSection

GONE = {"revoked": "unknown", "disabled": "unknown", "expired": "expired"}


@pytest.fixture
def server(house):
    """Ann is in two groups, the other of which shares jobs; job 1 is hers, job 2 is bob's in that group."""
    for name in ("ann", "bob"):
        groups = {"group": "open", "users": [name], "reason": "x"}
        assert house.call("POST", "/v1/groups/users", groups, token="admin").status == 200
    house.user("vera", "open", vo_admin=True)
    house.submitted()
    house.submitted({"OwnerGroup": "open"}, token="bob")
    return house


def lessen(house, how, name="ann"):
    """Take away from a user, or from a token; `expired`: of one that is good for a minute."""
    post = {
        "disabled": ("/v1/users/disable", {"name": name}),
        "group": ("/v1/groups/users", {"group": "open", "users": [name], "how": "remove", "reason": "x"}),
        "VO": ("/v1/users", {"name": name, "vo": "other", "groups": ["guests"]}),
        "rank": ("/v1/users", {"name": name, "vo": "lab", "groups": ["open"]}),
    }.get(how)
    if post is not None:
        assert house.call("POST", *post, token="admin").status == 200
    elif how == "revoked":
        path = f"/v1/tokens/{hash_token(house.tokens[name]).hex()}"
        assert house.call("DELETE", path, token="admin").status == 200
    else:
        house.now += 61.0
        house.run(pass_time(house))


async def pass_time(house):
    """What waits for the end of a token has waited for it."""
    now = asyncio.get_running_loop().time()
    for until in [until for held in house.core.principals._held.values() for until in held]:
        assert now + 50 < until.when() < now + 70
        until.reschedule(now)


class Asked:
    """A request under way."""

    def __init__(self, house, method, path, body=None, *, token="ann", stalls=False, **more):
        self.house = house
        self.task, self.connection = house.open(method, path, body, token=token, **more)
        if stalls:
            self.connection.stall_after(1)
        house.run(self._begun())

    async def _begun(self):
        for _ in range(50):  # those that read in a thread are waited for by what follows
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        for _ in range(50):
            await asyncio.sleep(0)

    def ended(self) -> Answer:
        """What it was answered, once it is over; what comes in slowly comes to its end."""
        self.connection.go_on(b"")
        self.house.run(self.task)
        return self.connection.answer()


def never(*_args, **_more):
    return asyncio.get_running_loop().create_future()


def all_long(house):
    """Requests of ann that take long: of each kind in the table of calls, and where those of the hot process wait."""
    house.core.jsv, house.core.verify, house.app.forward = JsvSection(server="script:/x"), never, never
    dry = {"jobs": [{"Executable": "/bin/true", "CPUTime": 500}], "dry_run": True}
    asked = {
        "GET /v1/jobs/wait": Asked(house, "GET", "/v1/jobs/wait?jobs=1-2"),
        "GET /v1/jobs/events": Asked(house, "GET", "/v1/jobs/events?jobs=1-2"),
        "verification": Asked(house, "POST", "/v1/jobs", dry),
    }
    for call in CALLS:
        name = f"{call.method} {call.path}"
        path, body = REQUESTS.get(name, (call.path.replace("{job}", "1"), {}))
        if call.who not in ("jobs:read", "jobs:write", "pilots:read", "user", "any"):
            continue
        if call.process == "reading":
            asked[name] = Asked(house, call.method, path)
        elif call.has_body:
            asked[f"body of {name}"] = Asked(house, call.method, path, json.dumps(body).encode(), stalls=True)
    return asked


def outcome(name, one):
    """The code and the words with which a request ended."""
    answer = one.ended()
    if name == "GET /v1/jobs/events":
        assert answer.status == 200
        kind, data = answer.body.decode().rstrip().split("\n\n")[-1].split("\ndata: ")
        assert kind == "event: end"
        return json.loads(data)["code"], json.loads(data)["message"]
    return answer.code, answer.json["error"]["message"]


@pytest.mark.parametrize("how", GONE)
def test_everything_that_takes_long_ends_with_its_token(server, how):
    if how == "expired":
        body = {"account": "ann", "seconds": 60.0, "scopes": ["jobs:read", "jobs:write", "pilots:read"]}
        server.tokens["ann"] = server.call("POST", "/v1/tokens", body, token="ann").json["token"]
    asked = all_long(server)
    assert len(asked) > 30
    assert not [name for name, one in asked.items() if one.task.done()]
    lessen(server, how)
    found = {name: outcome(name, one) for name, one in asked.items()}
    assert {code for code, _ in found.values()} == {"unauthorized"}, found
    assert all(GONE[how] in words for _, words in found.values()), found
    assert server.core.principals._held == {}


@pytest.mark.parametrize("how", ["group", "VO"])
def test_who_may_see_less_has_to_ask_again_and_sees_what_is_left(server, how):
    asked = all_long(server)
    lessen(server, how)
    found = {name: outcome(name, one)[0] for name, one in asked.items()}
    assert set(found.values()) == {"unavailable"}, found
    again = server.call("GET", "/v1/jobs/wait?jobs=1&seconds=0", token="ann")
    assert (again.status, again.json["left"]) == (200, 1)
    assert server.call("GET", "/v1/jobs/wait?jobs=2&seconds=0", token="ann").code == "not-found"


def test_an_administrator_of_a_vo_who_is_none_any_more_has_to_ask_again(server):
    one = Asked(server, "GET", "/v1/jobs/wait?jobs=2", token="vera")
    lessen(server, "rank", "vera")
    assert one.ended().code == "unavailable"


def test_what_others_lose_and_what_one_gets_ends_nothing(server):
    stream = Asked(server, "GET", "/v1/jobs/events?jobs=1-2")
    server.run(stream.connection.told(b"event: states"))
    lessen(server, "disabled", "bob")
    for group in ("physics", "bio"):
        body = {"group": group, "users": ["ann"], "reason": "x"}
        assert server.call("POST", "/v1/groups/users", body, token="admin").status == 200
    assert server.control("kill", 1).status == 200
    server.run(stream.connection.told(b"event: change"))
    assert not stream.task.done()
    lessen(server, "revoked")
    assert outcome("GET /v1/jobs/events", stream)[0] == "unauthorized"
    changes = [one for one in stream.connection.answer().body.split(b"\n\n") if b"event: change" in one]
    assert len(changes) == 1


def test_nothing_is_sent_of_what_happens_after_the_revocation(server):
    stream = Asked(server, "GET", "/v1/jobs/events?jobs=1-2")
    server.run(stream.connection.told(b"event: states"))
    lessen(server, "revoked")
    assert server.control("kill", 1, token="admin").status == 200
    assert b"Killed" not in stream.ended().body


def test_a_file_that_is_on_its_way_breaks_off(server):
    async def forward(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await never()

    server.app.forward = forward
    download = Asked(server, "GET", "/v1/jobs/1/output")
    lessen(server, "revoked")
    download.ended()
    assert [one["type"] for one in download.connection.sent] == ["http.response.start", "http.response.body"]


def test_an_upload_that_is_on_its_way_is_not_kept(server):
    one = Asked(server, "POST", "/v1/sandboxes", b"input", stalls=True, headers={"x-sha256": "0" * 64})
    lessen(server, "disabled")
    assert one.ended().code == "unauthorized"
    assert not [path for path in server.shelf.root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("how", ["revoked", "disabled"])
def test_what_comes_in_slowly_or_waits_for_its_turn_is_not_carried_out(server, how):
    async def hold():
        lock = server.core.turns.of("ann")
        await lock.acquire()
        return lock

    lock, body = server.run(hold()), {"action": "kill", "ranges": [[1, 1]]}
    waits = Asked(server, "POST", "/v1/jobs/control", body)
    raw = json.dumps({"jobs": [{"Executable": "/bin/true", "CPUTime": 500}]}).encode()
    slow = Asked(server, "POST", "/v1/jobs", raw, stalls=True)
    lessen(server, how)
    lock.release()
    assert (waits.ended().code, slow.ended().code) == ("unauthorized", "unauthorized")
    rows = server.get("/v1/jobs?all=true", "admin")["jobs"]
    assert [(one["id"], one["state"]) for one in rows] == [(1, "Waiting"), (2, "Waiting")]


async def is_parked(house, number):
    """Returns when the claim of a pilot waits: the writer is a thread of its own."""
    while house.core.live.parked.of_pilot(number) is None:
        await asyncio.to_thread(lambda: None)


def test_a_claim_that_waits_ends_with_its_pilot_and_with_an_earlier_token(house):
    for how in ("ended", "joined anew"):
        pilot = house.pilot("South")
        number = int(pilot.removeprefix("pilot"))
        parked = Asked(house, "POST", "/v1/pilots/claim", house.claim_body(wait_s=40, cores=1), token=pilot)
        house.run(is_parked(house, number))
        if how == "ended":
            body = {"pilot": number, "state": "Lost", "reason": "silent"}
            assert house.call("POST", "/v1/service/ended", body, token="service").status == 200
        else:
            body = {"join_token": f"join-stamp{house.pilots}", "nonce": "n", "node": {"cores": 4}}
            assert house.call("POST", "/v1/pilots/join", body).status == 200
        assert parked.ended().json["jobs"] == []


def test_a_group_that_shares_its_jobs_no_more(server):
    one, other = (Asked(server, "GET", "/v1/jobs/wait?jobs=2", token=name) for name in ("ann", "admin"))
    server.loop.call_soon(server.core.principals.unshare, frozenset({"open"}))
    assert one.ended().code == "unavailable"
    assert not other.task.done()
