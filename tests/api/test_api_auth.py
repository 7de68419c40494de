"""Who may ask what: tokens, scopes, other people's jobs, groups that share, pilots and services."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import pytest

from lodesman.server.writer.pilots import hash_token

USER_CALLS = (
    ("POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true"}]}),
    ("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[1, 1]]}),
    ("POST", "/v1/pilots/drain", {"pilots": [1]}),
    ("POST", "/v1/users", {"name": "eve", "vo": "lab", "groups": ["physics"]}),
    ("POST", "/v1/tokens", {"account": "admin"}),
    ("DELETE", "/v1/tokens/abcdef", None),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/jobs/counts", None),
    ("GET", "/v1/jobs/1", None),
    ("GET", "/v1/jobs/1/why", None),
    ("GET", "/v1/jobs/1/logs", None),
    ("GET", "/v1/jobs/1/output", None),
    ("POST", "/v1/sandboxes", b"text"),
    ("GET", "/v1/pilots", None),
    ("GET", "/v1/pilots/1/why", None),
    ("GET", "/v1/queues/why?path=North/ce.north/short", None),
    ("GET", "/v1/task-queues", None),
    ("GET", "/v1/sites", None),
    ("GET", "/v1/queues", None),
    ("GET", "/v1/usage", None),
    ("GET", "/v1/director", None),
    ("GET", "/v1/tokens", None),
    ("GET", "/metrics", None),
)
PILOT_CALLS: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/pilots/claim", {"claim_token": "claim-token", "resource": {}}),
    ("POST", "/v1/pilots/heartbeat", {}),
    ("POST", "/v1/pilots/report", {"reports": []}),
    ("POST", "/v1/pilots/leave", {"reason": "idle"}),
    ("PUT", "/v1/jobs/1/attempts/1/output", b"text"),
)
SERVICE_CALLS: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/service/pilots", []),
    ("POST", "/v1/service/submitted", {}),
    ("POST", "/v1/service/seen", {}),
    ("POST", "/v1/service/ordered", {"pilots": [1], "reason": "x"}),
    ("POST", "/v1/service/breakers", []),
    ("POST", "/v1/service/ended", {"pilot": 1, "state": "Lost", "reason": "x"}),
    ("POST", "/v1/service/sandbox", {"owner": "ann", "sha256": "0" * 64, "size": 1}),
    ("POST", "/v1/service/iteration", {"plan": {}}),
    ("POST", "/v1/service/reconcile", {}),
    ("POST", "/v1/service/pilot", {"pilot": 1, "used": []}),
    ("POST", "/v1/service/limited", {"queues": []}),
)
ALL_CALLS = (*USER_CALLS, *PILOT_CALLS, *SERVICE_CALLS, ("GET", "/v1/me", None))


def named(calls):
    return pytest.mark.parametrize("call", calls, ids=[f"{method} {path}" for method, path, _ in calls])


def ask(house, call, token):
    method, path, body = call
    return house.call(method, path, body, token=token)


@named(ALL_CALLS)
def test_nothing_is_answered_or_done_without_a_token(house, call):
    house.submitted()
    for token in ("", "not-a-token", "\xff\xfe", "x" * 10_000):
        answer = ask(house, call, token)
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic YW5uOmFubg==", "bearertoken"])
def test_other_kinds_of_credentials_are_refused(house, value):
    for path in ("/v1/jobs/control", "/v1/me"):
        method = "POST" if path.endswith("control") else "GET"
        assert house.call(method, path, headers={"authorization": value}).status == 401


def test_the_word_bearer_may_be_written_in_any_case(house):
    answer = house.call("GET", "/v1/me", headers={"authorization": f"bEARER  {house.tokens['ann']} "})
    assert answer.json["name"] == "ann"


@named(USER_CALLS)
def test_a_pilot_s_token_opens_no_user_s_call(house, call):
    house.submitted()
    answer = ask(house, call, house.pilot())
    assert (answer.status, answer.code) == (403, "forbidden")


@named(PILOT_CALLS)
def test_a_user_s_token_opens_no_pilot_s_call(house, call):
    for name in ("ann", "admin"):
        assert ask(house, call, name).status == 403
    assert ask(house, call, "service").status == 401


@named((*SERVICE_CALLS, ("GET", "/v1/service/metrics", None)))
def test_the_service_s_calls_are_not_on_the_public_port(house, call):
    method, path, body = call
    for name in ("ann", "admin"):
        assert house.call(method, path, body, token=name, public=True).status == 404
    for name in ("", "service"):
        assert house.call(method, path, body, token=name, public=True).status == 401


@named(SERVICE_CALLS)
def test_the_service_s_calls_are_closed_to_everybody_else(house, call):
    for name in ("ann", "admin", house.pilot()):
        assert ask(house, call, name).status == 403


def test_a_token_does_what_its_scopes_say(house):
    house.user("cleo", "physics", scopes=("jobs:read",))
    assert house.submit(token="cleo").status == 403
    assert house.get("/v1/jobs", "cleo") == {"jobs": [], "more": False, "cursor": ""}
    assert house.call("GET", "/v1/pilots", token="cleo").status == 403
    house.user("dora", "physics", scopes=("pilots:read",))
    assert house.call("GET", "/v1/jobs", token="dora").status == 403
    assert house.get("/v1/pilots", "dora") == {"pilots": [], "more": False, "cursor": ""}
    assert house.control("kill", 1, token="cleo").status == 403
    assert house.upload(b"x", token="cleo").status == 403


def test_an_administrator_s_token_without_that_scope_is_a_user_s(house):
    house.tokens["plain"] = house.call("POST", "/v1/tokens", {"account": "admin"}, token="admin").json[
        "token"
    ]
    refused = house.call("GET", "/v1/users", token="plain")
    assert (refused.status, refused.json["error"]["message"]) == (
        403, "This token may not do that: it lacks the scope admin.",
    )  # fmt: skip
    assert refused.json["error"]["hint"].endswith(": lode token issue admin --admin")
    only = {"account": "admin", "scopes": ["admin"]}
    house.tokens["only"] = house.call("POST", "/v1/tokens", only, token="admin").json["token"]
    assert (
        house.call("GET", "/v1/sites", token="only").json["error"]["message"].endswith("scope pilots:read.")
    )
    assert (
        "only an administrator"
        in house.call("GET", "/v1/users", token="ann").json["error"]["message"].lower()
    )
    assert (
        house.call("POST", "/v1/users", {"name": "eve", "vo": "lab", "groups": ["g"]}, token="plain").status
        == 403
    )
    house.submitted(token="ann")
    assert house.call("GET", "/v1/jobs/1", token="plain").status == 404


def test_an_expired_token_is_worth_nothing(house):
    house.user("cleo", "physics", seconds=100.0)
    assert house.submit(token="cleo").status == 200
    assert house.get("/v1/me", "cleo")["name"] == "cleo"
    house.now += 101
    for answer in (house.submit(token="cleo"), house.call("GET", "/v1/me", token="cleo")):
        assert answer.status == 401
        assert "expired" in answer.json["error"]["message"]


def test_a_token_with_no_end_does_not_expire(house):
    house.user("eve", "physics", seconds=None)
    wanted = {"account": "eve", "seconds": 0}
    house.tokens["long"] = house.call("POST", "/v1/tokens", wanted, token="eve").json["token"]
    house.now += 1e9
    assert house.get("/v1/me", "long")["name"] == "eve"


def test_a_token_cannot_outlive_itself_by_making_another(house):
    house.user("cleo", "physics", seconds=100.0)
    for seconds in (0, 1_000_000.0):
        wanted = {"account": "cleo", "seconds": seconds}
        house.tokens["child"] = house.call("POST", "/v1/tokens", wanted, token="cleo").json["token"]
        assert house.get("/v1/me", "child")["name"] == "cleo"
    house.now += 101
    assert house.call("GET", "/v1/me", token="child").status == 401


def test_a_revoked_token_dies_at_once_in_both_processes(house):
    assert house.submit(token="bob").status == 200
    assert house.get("/v1/me", "bob")["name"] == "bob"
    rows = house.get("/v1/tokens", "admin")["tokens"]
    (digest,) = [row["hash"] for row in rows if row["account"] == "bob"]
    assert house.call("DELETE", f"/v1/tokens/{digest[:12]}", token="ann").status == 404
    assert house.call("DELETE", f"/v1/tokens/{digest[:12]}", token="admin").status == 200
    assert house.submit(token="bob").status == 401
    assert house.call("GET", "/v1/me", token="bob").status == 401
    assert house.call("DELETE", f"/v1/tokens/{digest[:12]}", token="admin").status == 404


@pytest.mark.stores
@pytest.mark.parametrize("prefix", ["", "%", "zz", "__", "0' OR 1=1"])
def test_a_prefix_that_names_no_token_revokes_none(house, prefix):
    assert house.call("DELETE", f"/v1/tokens/{prefix}", token="admin").status == 404
    assert len(house.get("/v1/tokens", "admin")["tokens"]) == 3


def test_a_prefix_that_names_two_tokens_revokes_neither(house):
    for _ in range(20):
        house.call("POST", "/v1/tokens", {"account": "ann"}, token="ann")
    rows = house.get("/v1/tokens", "admin")["tokens"]
    first = Counter(row["hash"][0] for row in rows).most_common(1)[0][0]  # 16 digits, more tokens
    answer = house.call("DELETE", f"/v1/tokens/{first}", token="admin")
    assert (answer.status, answer.code) == (409, "conflict")


def test_no_list_of_tokens_shows_one(house):
    body = house.call("GET", "/v1/tokens", token="admin").body.decode()
    assert not any(token in body for token in house.tokens.values())


def test_one_may_issue_tokens_for_oneself_with_no_more_rights(house):
    answer = house.call("POST", "/v1/tokens", {"account": "ann", "scopes": ["jobs:read"]}, token="ann")
    house.tokens["less"] = answer.json["token"]
    assert house.get("/v1/me", "less")["scopes"] == ["jobs:read"]
    wanted = {"account": "ann", "scopes": ["jobs:read", "jobs:write"]}
    assert house.call("POST", "/v1/tokens", wanted, token="less").status == 409
    wanted = {"account": "ann", "scopes": ["admin"]}
    assert house.call("POST", "/v1/tokens", wanted, token="ann").status == 409
    assert house.call("POST", "/v1/tokens", {"account": "bob"}, token="ann").status == 403


def test_an_administrator_issues_tokens_for_all_but_never_admin_rights(house):
    assert house.call("POST", "/v1/tokens", {"account": "bob"}, token="admin").status == 200
    answer = house.call("POST", "/v1/tokens", {"account": "bob", "scopes": ["admin"]}, token="admin")
    assert answer.status == 409
    assert house.call("POST", "/v1/tokens", {"account": "nobody"}, token="admin").status == 404
    answer = house.call("POST", "/v1/tokens", {"account": "bob", "scopes": ["fly"]}, token="admin")
    assert (answer.status, "fly" in answer.json["error"]["message"]) == (400, True)


def test_a_pilot_can_make_no_token(house):
    pilot = house.pilot()
    for account in ("", "ann", "admin"):
        assert house.call("POST", "/v1/tokens", {"account": account, "scopes": []}, token=pilot).status == 403


def test_a_user_s_groups_change_at_once(house):
    house.submit(token="bob")
    assert house.submit(token="bob", group="physics").status == 403
    body = {"name": "bob", "vo": "lab", "groups": ["physics"]}
    assert house.call("POST", "/v1/users", body, token="admin").status == 200
    assert house.submit(token="bob", group="physics").status == 200
    assert house.submit(token="bob", group="bio").status == 403


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "vo": "lab", "groups": ["g"]},
        {"name": "a b", "vo": "lab", "groups": ["g"]},
        {"name": "eve\n", "vo": "lab", "groups": ["g"]},
        {"name": "x" * 65, "vo": "lab", "groups": ["g"]},
        {"name": "eve", "vo": "lab", "groups": []},
        {"name": "eve", "vo": "lab", "groups": "g"},
        {"name": "eve", "groups": ["g"]},
        {"name": "eve", "vo": "lab", "groups": ["g"], "admin": "yes"},
        [],
        b"{",
        b"\xff",
    ],
)
def test_a_user_is_made_of_good_values_only(house, body):
    answer = house.call("POST", "/v1/users", body, token="admin")
    assert (answer.status, answer.code) == (400, "invalid-request")


# --- jobs of others -------------------------------------------------------------------------------------


def everything_about(house, job, token):
    paths = (f"/v1/jobs/{job}", *(f"/v1/jobs/{job}/{part}" for part in ("why", "logs", "output")))
    return [house.call("GET", path, token=token).status for path in paths]


def test_jobs_of_others_do_not_exist(house):
    job = house.submitted(token="ann")
    house.user("cleo", "physics")  # the same group, but it does not share
    for name in ("bob", "cleo"):
        assert everything_about(house, job, name) == [404, 404, 404, 404]
        assert house.get(f"/v1/jobs?all=true&first={job}", name) == {"jobs": [], "more": False, "cursor": ""}
        for action in ("kill", "hold", "release", "reschedule", "delete"):
            assert house.control(action, job, token=name).status == 404
    unknown = house.call("GET", "/v1/jobs/999", token="bob").json["error"]["message"]
    other = house.call("GET", f"/v1/jobs/{job}", token="bob").json["error"]["message"]
    assert unknown.replace("999", "N") == other.replace(str(job), "N")
    assert house.get(f"/v1/jobs/{job}", "ann")["state"] == "Waiting"
    assert house.get(f"/v1/jobs/{job}", "admin")["owner"] == "ann"


def test_counts_are_one_s_own(house):
    house.submitted(token="ann")
    house.submitted(token="bob")
    assert house.get("/v1/jobs/counts", "bob")["counts"] == [
        {"owner": "bob", "group": "bio", "state": "Waiting", "jobs": 1}
    ]
    assert len(house.get("/v1/jobs/counts", "admin")["counts"]) == 2


def test_failures_of_others_are_not_shown(house):
    house.submitted({"Executable": "/bin/true", "CPUTime": 10**6}, token="ann", hold_if_impossible=True)
    house.submitted(token="ann")
    house.control("kill", 2, reason="a secret of ann", token="ann")
    assert b"secret" not in house.call("GET", "/v1/usage", token="bob").body
    assert house.get("/v1/usage", "bob")["faulty"] == []
    assert [row["id"] for row in house.get("/v1/usage", "ann")["faulty"]] == [1, 2]
    assert [row["id"] for row in house.get("/v1/usage", "admin")["faulty"]] == [1, 2]


def test_a_range_of_several_people_s_jobs_touches_one_s_own(house):
    house.submitted(token="ann")
    house.submitted(token="bob")
    house.submitted(token="ann")
    assert house.control("kill", 1, 3, token="bob").json["changed"] == 1
    states = [house.get(f"/v1/jobs/{job}", "admin")["state"] for job in (1, 2, 3)]
    assert states == ["Waiting", "Killed", "Waiting"]


def test_members_of_a_group_that_shares_see_and_steer_each_other_s_jobs(house):
    for name in ("cleo", "dora"):
        house.user(name, "open")
    job = house.submitted(token="cleo")
    assert house.get(f"/v1/jobs/{job}", "dora")["owner"] == "cleo"
    assert house.get("/v1/jobs", "dora")["jobs"] == []
    assert [row["id"] for row in house.get("/v1/jobs?all=true", "dora")["jobs"]] == [job]
    assert house.control("hold", job, token="dora").json["changed"] == 1
    assert house.get(f"/v1/jobs/{job}", "cleo")["state"] == "Held"
    assert everything_about(house, job, "ann")[:2] == [404, 404]


def test_a_group_shares_with_its_members_of_the_same_vo_only(house):
    house.user("cleo", "open")
    house.user("far", "open", vo="other")
    job = house.submitted(token="cleo")
    assert house.call("GET", f"/v1/jobs/{job}", token="far").status == 404
    assert house.get("/v1/jobs?all=true", "far")["jobs"] == []


def test_a_group_of_another_vo_takes_no_jobs(house):
    house.user("far", "physics", vo="other")
    answer = house.submit(token="far")
    assert answer.status == 400
    assert "VO" in answer.json["error"]["message"]


# --- pilots ---------------------------------------------------------------------------------------------


def test_a_join_token_is_good_for_one_process(house):
    join = house.prepare_pilot()
    first = house.call("POST", "/v1/pilots/join", {"join_token": join, "nonce": "one", "node": {}})
    assert first.json["stamp"] == "stamp1"
    for nonce in ("two", ""):
        again = house.call("POST", "/v1/pilots/join", {"join_token": join, "nonce": nonce, "node": {}})
        assert again.status == 401
    house.tokens["first"] = first.json["token"]
    assert house.call("POST", "/v1/pilots/heartbeat", {}, token="first").status == 200
    same = house.call("POST", "/v1/pilots/join", {"join_token": join, "nonce": "one", "node": {}})
    assert (same.status, same.json["pilot"]) == (200, first.json["pilot"])
    assert house.call("POST", "/v1/pilots/heartbeat", {}, token="first").status == 401
    assert house.call("POST", "/v1/pilots/heartbeat", {}, token=same.json["token"]).status == 200


def test_a_join_without_nonce_cannot_be_repeated(house):
    body = {"join_token": house.prepare_pilot(), "node": {}}
    assert house.call("POST", "/v1/pilots/join", body).status == 200
    assert house.call("POST", "/v1/pilots/join", body).status == 401


def test_a_join_token_expires(house):
    join = house.prepare_pilot()
    house.now += 5 * 86_400 + 1
    answer = house.call("POST", "/v1/pilots/join", {"join_token": join, "node": {}})
    assert (answer.status, "expired" in answer.json["error"]["message"]) == (401, True)


def test_a_join_token_opens_nothing_else(house):
    join = house.prepare_pilot()
    for call in (*PILOT_CALLS, *USER_CALLS):
        assert ask(house, call, join).status == 401


def test_a_pilot_that_left_is_not_authenticated(house):
    pilot = house.pilot()
    assert house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=pilot).status == 200
    for call in PILOT_CALLS:
        assert ask(house, call, pilot).status == 401


def test_a_pilot_whose_end_was_reported_is_refused_and_its_jobs_go_back(house):
    job = house.submitted()
    pilot = house.pilot()
    house.claim(pilot)
    ended = {"pilot": 1, "state": "Lost", "reason": "ended: killed"}
    assert house.call("POST", "/v1/service/ended", ended, token="service").json == {"rescued": 1}
    assert house.call("POST", "/v1/pilots/heartbeat", {}, token=pilot).status == 401
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"
    again = {"join_token": "join-stamp1", "nonce": "n", "node": {}}
    assert house.call("POST", "/v1/pilots/join", again).status == 401


def test_a_refused_pilot_cannot_join(house):
    row = {"stamp": "refused", "vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "request": {},
           "join_hash": base64.b64encode(hash_token("join-refused")).decode()}  # fmt: skip
    house.call("POST", "/v1/service/pilots", [row], token="service")
    house.call("POST", "/v1/service/submitted", {"refused": [None, "the queue is closed"]}, token="service")
    answer = house.call("POST", "/v1/pilots/join", {"join_token": "join-refused", "node": {}})
    assert (answer.status, answer.code) == (401, "unauthorized")


def test_a_pilot_does_not_touch_another_pilot_s_attempt(house):
    house.submitted()
    owner, other = house.pilot(), house.pilot()
    (job,) = house.claim(owner)
    told = house.report(other, job, "Failed", cause="exit", exit_code=1)
    assert (told["accepted"], told["reason"]) == (False, "not your attempt")
    path = f"/v1/jobs/{job['id']}/attempts/1/output"
    sha = {"x-sha256": "0" * 64}
    assert house.call("PUT", path, b"text", token=other, headers=sha).status == 403
    live = {"jobs": [{"id": job["id"], "attempt": 1, "tail": "forged"}]}
    assert house.call("POST", "/v1/pilots/heartbeat", live, token=other).json["kill"] == []
    logs = house.get(f"/v1/jobs/{job['id']}/logs")
    assert (logs["state"], logs["tail"]) == ("Matched", "")


def test_a_pilot_gets_kill_orders_for_its_own_jobs_only(house):
    house.submitted()
    owner, other = house.pilot(), house.pilot()
    (job,) = house.claim(owner)
    house.control("kill", job["id"])
    entry = {"jobs": [{"id": job["id"], "attempt": 1}]}
    assert house.call("POST", "/v1/pilots/heartbeat", entry, token=other).json["kill"] == []
    kills = house.call("POST", "/v1/pilots/heartbeat", entry, token=owner).json["kill"]
    assert [(one["id"], one["attempt"]) for one in kills] == [(job["id"], 1)]


@pytest.mark.parametrize(
    "path", ["/v1%2fme", "/v1/%6de", "/v1/%4De", "/v1%5Cme", "/v1/%2e%2e/v1/me", "/v1/jobs/%31"]
)
def test_a_path_in_disguise_is_refused(house, path):
    """A filter before the server would not see the call that it stands for."""
    answer = house.call("GET", path, token="ann")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-request")
    assert "percent-encoded" in answer.json["error"]["message"]


def test_what_must_be_encoded_in_a_path_is_read(house):
    assert house.call("GET", "/v1/submit-pools/req1%3Aab", token="ann").status == 404
