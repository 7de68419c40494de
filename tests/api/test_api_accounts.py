"""Users of VOs and groups that exist, tokens and what they made, and refusals that people understand."""

from __future__ import annotations

import pytest

from lodesman.base.errors import Unauthorized
from lodesman.decide.resources import load_resources
from lodesman.server.http import wire
from lodesman.server.http.openapi import document
from lodesman.server.store.journal import Change
from lodesman.server.writer.accounts import issue_token
from lodesman.server.writer.pilots import hash_token


def add(house, name="eve", vo="lab", groups=("physics",)):
    return house.call("POST", "/v1/users", {"name": name, "vo": vo, "groups": list(groups)}, token="admin")


def refusal(answer):
    assert (answer.status, answer.code) == (400, "invalid-request")
    error = answer.json["error"]
    return f"{error['message']} {error.get('hint', '')}".strip()


# --- users


@pytest.mark.stores
def test_a_user_is_of_a_vo_that_the_configuration_knows(house):
    assert add(house).status == 200
    for vo, known in (("labb", "lab, other"), ("nother", "other, lab"), ("é", "other, lab")):
        assert refusal(add(house, vo=vo)) == f"The configuration has no VO {vo}. VOs: {known}."
    # A VO that is known from the access list of a site alone.
    house.core.policy = house.policy(
        load_resources([("s.toml", '[site.A]\nVO = ["atlas"]\n[site.A.ce.c.queue.q]')])
    )
    assert add(house, vo="atlas", groups=("any",)).status == 200
    assert refusal(add(house, vo="lab")).endswith("VOs: atlas.")


def test_a_user_s_groups_belong_to_the_vo(house):
    assert refusal(add(house, groups=("physics", "phisics"))) == (
        "VO lab has no group phisics. Groups: physics, bio, open."
    )
    assert refusal(add(house, groups=("guests",))) == (
        "Group guests belongs to VO other, not to lab. Groups: physics, open, bio."
    )
    assert add(house, vo="other", groups=("guests",)).status == 200


def test_unconfigured_names_are_accepted_if_they_are_valid(house):
    house.core.policy = house.policy(load_resources([]))
    assert add(house, vo="any.vo", groups=("any_group",)).status == 200
    for vo, groups in (("a b", ("g",)), ("é", ("g",)), ("v", ("g\n",)), ("v", ("g", "a/b"))):
        assert "letters, digits and . _ @ -" in refusal(add(house, vo=vo, groups=groups))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"name": "a b"}, "name: only letters, digits and . _ @ - may stand in it."),
        ({"name": "x" * 65}, "name: at most 64 characters."),
        ({"name": ""}, "name: at least 1 character."),
        ({"vo": ""}, "vo: at least 1 character."),
        ({"groups": []}, "groups: at least 1 entry."),
        ({"groups": [""]}, "groups[0]: at least 1 character."),
    ],
)
def test_the_refusal_of_a_user_is_a_sentence(house, body, told):
    whole = {"name": "eve", "vo": "lab", "groups": ["physics"], **body}
    assert refusal(house.call("POST", "/v1/users", whole, token="admin")) == told


# --- other refusals in words


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/jobs/control", {"action": "kill", "ranges": [[1, 1]], "reason": "x" * 1_001},
         "reason: at most 1,000 characters."),
        ("/v1/jobs", {"jobs": [{}], "request_id": "x" * 256}, "request_id: at most 255 characters."),
        ("/v1/jobs", {"jobs": [{}], "form": "xml"}, "form: one of jdl, cfg, json."),
        ("/v1/jobs", {"jobs": [{}], "sandboxes": {"a": {"sha256": "A" * 64, "size": 1}}},
         "sandboxes[...].sha256: 64 hexadecimal digits in lower case."),
        ("/v1/jobs/control", {"action": "kill", "ranges": [[0, 1]]}, "ranges[0][0]: at least 1."),
        ("/v1/tokens", {"account": "ann", "seconds": 1e300}, "seconds: at most 3,153,600,000."),
        ("/v1/tokens", {"account": "ann", "seconds": -1}, "seconds: at least 0."),
    ],
)  # fmt: skip
def test_bounds_and_patterns_are_explained_in_words(house, path, body, told):
    assert refusal(house.call("POST", path, body, token="ann")) == told


def test_a_value_of_another_kind_keeps_its_message(house):
    answer = house.call("POST", "/v1/users", {"name": 5}, token="admin")
    assert (
        refusal(answer)
        == "The request does not fit its description: Expected `str`, got `int` - at `$.name`."
    )


# --- tokens that tokens made


def issue(house, account, by, **more):
    answer = house.call("POST", "/v1/tokens", {"account": account, **more}, token=by)
    assert answer.status == 200, answer.body
    return answer.json["token"]


def hash_of(house, note):
    (row,) = [row for row in house.get("/v1/tokens", "admin")["tokens"] if row["note"] == note]
    return row["hash"]


def test_a_revoked_token_takes_along_what_it_made_for_the_same_user(house):
    house.tokens["parent"] = issue(house, "bob", "admin", note="parent")
    house.tokens["child"] = issue(house, "bob", "parent", note="child")
    house.tokens["grandchild"] = issue(house, "bob", "child", note="grandchild")
    house.tokens["beside"] = issue(house, "bob", "bob", note="beside")
    for name in ("parent", "child", "grandchild", "beside"):
        assert house.submit(token=name).status == 200
    told = house.call("DELETE", f"/v1/tokens/{hash_of(house, 'parent')}", token="admin").json
    assert told == {"revoked": 3, "kept": 0}
    for name in ("parent", "child", "grandchild"):
        assert house.submit(token=name).status == 401
        assert house.call("GET", "/v1/me", token=name).status == 401
    assert house.submit(token="beside").status == 200


def test_tokens_that_an_administrator_issued_to_others_stay_and_are_listed(house):
    scopes = ["admin", "jobs:read"]
    house.tokens["second"] = issue(house, "admin", "admin", note="second", scopes=scopes)
    house.tokens["third"] = issue(house, "admin", "second", note="third", scopes=scopes)
    for number, by in enumerate(("second", "third", "third")):
        house.tokens[f"of bob {number}"] = issue(house, "bob", by)
    told = house.call("DELETE", f"/v1/tokens/{hash_of(house, 'second')}", token="admin").json
    assert told == {"revoked": 2, "kept": 3}
    assert house.call("GET", "/v1/me", token="third").status == 401
    assert house.get("/v1/me", "of bob 2")["name"] == "bob"


def test_a_list_of_tokens_shows_the_issuing_token(house):
    house.tokens["parent"] = issue(house, "bob", "admin", note="parent")
    issue(house, "bob", "parent", note="child")
    rows = {row["note"]: row for row in house.get("/v1/tokens", "admin")["tokens"]}
    parent, child = rows["parent"], rows["child"]
    assert (child["made_with"], child["made_by"]) == (parent["hash"], "bob")
    assert parent["made_by"] == "admin"
    assert parent["made_with"] == hash_token(house.tokens["admin"]).hex()
    (first,) = [
        row for row in house.get("/v1/tokens", "admin")["tokens"] if row["hash"] == parent["made_with"]
    ]
    assert (first["made_with"], first["made_by"]) == (None, None)
    house.call("DELETE", f"/v1/tokens/{parent['hash']}", token="admin")


def test_a_token_that_was_revoked_meanwhile_makes_none(house):
    with pytest.raises(Unauthorized, match="revoked"):
        house.do(Change(issue_token, "bob", parent=b"\0" * 32))


# --- paths without an endpoint


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/nosuch", "See /v1/openapi.json."),
        ("/", "See /v1/openapi.json."),
        ("/lode/v1/jobs", "The server's address ends before /lode."),
        ("/lode/v1/submit-pools/", "The server's address ends before /lode."),
    ],
)
def test_a_call_that_is_not_there_is_named(house, path, hint):
    answer = house.call("GET", path, token="ann")
    assert (answer.status, answer.code) == (404, "not-found")
    assert answer.json["error"]["message"] == f"No such endpoint: GET {path}."
    assert answer.json["error"]["hint"] == hint


def test_a_call_with_another_method_and_a_long_path_are_named_in_short(house):
    answer = house.call("POST", "/v1/me", {}, token="ann")
    assert answer.json["error"]["message"] == "No such endpoint: POST /v1/me."
    answer = house.call("GET", "/" + "x" * 5_000, token="ann")
    assert len(answer.json["error"]["message"]) < 300


def test_every_pattern_of_a_body_has_its_words():
    """What a new pattern means must be said in `wire`, else people read the pattern."""

    def patterns(value):
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                yield value["pattern"]
            value = list(value.values())
        if isinstance(value, list):
            for one in value:
                yield from patterns(one)

    found = set(patterns(document()["components"]["schemas"]))
    assert found
    assert [pattern for pattern in found if not any(part in pattern for part in wire._PATTERNS)] == []


# --- one's own tokens, and disabled users


def test_users_list_and_revoke_their_own_tokens_only(house):
    house.tokens["second"] = issue(house, "bob", "bob", note="second")
    mine = house.get("/v1/tokens", "bob")["tokens"]
    assert ({one["account"] for one in mine}, len(mine)) == ({"bob"}, 2)
    assert house.call("DELETE", f"/v1/tokens/{hash_of(house, 'second')}", token="ann").status == 404
    assert house.call("DELETE", f"/v1/tokens/{hash_of(house, 'second')}", token="bob").status == 200
    assert house.call("GET", "/v1/me", token="second").status == 401
    assert house.call("GET", "/v1/tokens", token=house.pilot()).status == 403


def test_only_tokens_of_users_are_revoked(house):
    house.pilot()
    for digest in ("pilot1", "service"):
        prefix = hash_token(house.tokens[digest]).hex()
        assert house.call("DELETE", f"/v1/tokens/{prefix}", token="admin").status == 404


def test_with_all_everything_ends_that_an_administrator_s_token_made(house):
    scopes = ["admin", "jobs:read"]
    house.tokens["brief"] = issue(house, "admin", "admin", note="brief", scopes=scopes, seconds=3.0)
    house.call(
        "POST", "/v1/users", {"name": "eve", "vo": "lab", "groups": ["physics"], "admin": True}, token="brief"
    )
    house.tokens["child"] = issue(house, "eve", "brief", scopes=scopes, seconds=0)
    house.tokens["grandchild"] = issue(house, "bob", "child", seconds=0)
    told = house.call("DELETE", f"/v1/tokens/{hash_of(house, 'brief')}?all=true", token="admin").json
    assert told == {"revoked": 3, "kept": 0}
    for name in ("brief", "child", "grandchild"):
        assert house.call("GET", "/v1/me", token=name).status == 401


def test_no_token_of_a_disabled_user_opens_anything(house):
    def disable(name, token="admin", disabled=True):
        body = {"name": name, "disabled": disabled}
        return house.call("POST", "/v1/users/disable", body, token=token).status

    assert house.submit(token="bob").status == 200
    assert (disable("bob", "ann"), disable("admin"), disable("nobody"), disable("bob")) == (
        403,
        409,
        404,
        200,
    )
    assert house.submit(token="bob").status == house.call("GET", "/v1/me", token="bob").status == 401
    assert house.call("POST", "/v1/tokens", {"account": "bob"}, token="admin").status == 409
    rows = {one["name"]: one for one in house.get("/v1/users", "admin")["users"]}
    assert (rows["bob"]["disabled_at"], rows["bob"]["tokens"]) == (house.now, 1)
    assert rows["ann"]["disabled_at"] is None
    assert add(house, "bob").status == 200
    assert house.call("GET", "/v1/me", token="bob").status == 401, "changing a user enables none"
    assert disable("bob", disabled=False) == 200
    assert house.submit(token="bob").status == 200


def test_expired_tokens_are_forgotten_after_a_week_those_that_made_others_last(house):
    house.tokens["parent"] = issue(house, "bob", "admin", note="parent", seconds=10.0)
    house.tokens["child"] = issue(house, "bob", "parent", note="child", seconds=5.0)
    assert house.call("GET", "/v1/me", token="child").status == 200

    def left():
        assert house.call("POST", "/v1/service/forget-idle", token="service").status == 200
        return {one["note"] for one in house.get("/v1/tokens", "admin")["tokens"]} & {"parent", "child"}

    house.now += 7 * 86_400.0
    assert left() == {"parent", "child"}
    house.now += 11.0
    assert left() == {"parent"}
    assert left() == set()
    assert hash_token(house.tokens["child"]) not in house.core.principals


# --- users who leave, and users who come in numbers


def remove(house, name="eve", token="admin", **more):
    return house.call("POST", "/v1/users/remove", {"name": name, **more}, token=token)


def bring(house, *users, token="admin", **more):
    rows = [{"vo": "lab", "groups": ["physics"], **one} for one in users]
    return house.call("POST", "/v1/users/import", {"users": rows, **more}, token=token)


@pytest.mark.stores
def test_a_user_who_left_has_no_token_and_the_history_stays(house):
    house.user("eve")
    job = house.submitted({"CPUTime": 500}, token="eve")
    answer = remove(house)
    assert (answer.status, answer.json["error"]["data"]) == (409, {"live": {"Waiting": 1}})
    assert "lode user rm eve --kill" in answer.json["error"]["hint"]
    tried = remove(house, dry_run=True).json
    assert (tried["tokens"], tried["live"], tried["dry_run"]) == (1, {"Waiting": 1}, True)
    assert house.get("/v1/me", "eve")["name"] == "eve"
    body = {"action": "kill", "ranges": [], "selection": {"owner": "eve"}}
    assert house.call("POST", "/v1/jobs/control", body, token="admin").json["changed"] == 1
    done = remove(house).json
    assert (done["tokens"], done["live"], done["jobs"], done["dry_run"]) == (1, {}, 1, False)
    assert house.call("GET", "/v1/me", token="eve").status == 401
    assert "eve" not in {one["name"] for one in house.get("/v1/users", "admin")["users"]}
    assert "eve" not in {one["account"] for one in house.get("/v1/tokens", "admin")["tokens"]}
    assert house.get(f"/v1/jobs/{job}", "admin")["owner"] == "eve"
    assert house.get("/v1/audit", "admin")["entries"][0]["action"] == "user-removed"
    assert remove(house).status == 404


def test_an_administrator_of_a_vo_gives_nobody_what_a_user_of_another_vo_left(house):
    house.user("vad", vo_admin=True)
    house.user("zed", "guests", vo="other")
    house.user("lou")
    for name in ("zed", "lou"):
        job = house.submitted({"CPUTime": 500}, token=name)
        house.call("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job, job]]}, token="admin")
        assert remove(house, name).status == 200
    asked = {"vo": "lab", "groups": ["physics"], "same_person": True}
    answer = house.call("POST", "/v1/users", {"name": "zed", **asked}, token="vad")
    assert (answer.status, "Not all of that is of VO lab" in answer.json["error"]["hint"]) == (409, True)
    assert house.call("POST", "/v1/users", {"name": "lou", **asked}, token="vad").status == 200


def test_the_only_administrator_stays_one(house):
    plain = {"name": "admin", "vo": "lab", "groups": ["physics"]}
    for call in (
        lambda: house.call("POST", "/v1/users", plain, token="admin"),
        lambda: bring(house, {"name": "kim"}, plain, update=True),
        lambda: bring(house, {"name": "kim"}, plain, update=True, dry_run=True),
    ):
        answer = call()
        assert (answer.status, answer.json["error"]["message"]) == (409, "admin is the only administrator.")
        assert answer.json["error"].get("data", {"user": 1})["user"] == 1
    assert bring(house, plain, {"name": "kim", "admin": True}, update=True, dry_run=True).status == 200
    house.user("other", admin=True)
    assert house.call("POST", "/v1/users", plain, token="admin").status == 200


@pytest.mark.stores
def test_a_name_is_not_given_to_another_while_jobs_or_files_are_there(house):
    house.user("eve")
    job = house.submitted({"CPUTime": 500}, token="eve")
    house.call("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job, job]]}, token="admin")
    assert remove(house).status == 200
    answer = add(house)
    assert (answer.status, answer.json["error"]["message"]) == (
        409, "There was a user eve before, of whom there is still: 1 submission.",
    )  # fmt: skip
    assert bring(house, {"name": "eve"}).status == 409
    body = {"name": "eve", "vo": "lab", "groups": ["physics"], "same_person": True}
    assert house.call("POST", "/v1/users", body, token="admin").status == 200
    house.user("kim")
    assert remove(house, "kim").status == 200
    assert add(house, "kim").status == 200  # of whom nothing is there


def test_who_may_not_be_removed(house):
    house.user("vera", vo_admin=True)
    house.user("olaf", "guests", vo="other")
    assert remove(house, "admin").status == 409
    assert remove(house, "vera", "vera").status == 409
    assert remove(house, "admin", "vera").status == 403
    assert remove(house, "olaf", "vera").status == remove(house, "none", "vera").status == 404
    assert remove(house, "ann", "ann").status == 403


@pytest.mark.stores
def test_users_of_a_list_are_made_all_or_none(house):
    names = lambda: {one["name"] for one in house.get("/v1/users", "admin")["users"]}  # noqa: E731
    before = names()
    answer = bring(house, {"name": "u1"}, {"name": "u2", "vo": "labb"})
    assert (answer.status, answer.json["error"]["data"]["user"]) == (400, 1)
    answer = bring(house, {"name": "u1"}, {"name": "u2"}, {"name": "u1"})
    assert (answer.status, answer.json["error"]["data"]["user"]) == (400, 2)
    assert names() == before
    tried = bring(house, {"name": "u1"}, {"name": "u2"}, dry_run=True)
    assert [one["change"] for one in tried.json["users"]] == ["new", "new"]
    assert names() == before
    for change in ("new", "same"):
        done = bring(house, {"name": "u1"}, {"name": "u2", "groups": ["physics", "bio"]})
        assert [one["change"] for one in done.json["users"]] == [change] * 2
    assert names() == {*before, "u1", "u2"}
    answer = bring(house, {"name": "u3"}, {"name": "u2"})
    assert (answer.status, answer.json["error"]["data"]["user"]) == (409, 1)
    assert "is there already, otherwise: VO lab, groups physics, bio" in answer.json["error"]["message"]
    done = bring(house, {"name": "u3"}, {"name": "u2"}, update=True)
    assert [one["change"] for one in done.json["users"]] == ["new", "changed"]
    assert bring(house, *({"name": f"n{one}"} for one in range(1_001))).status == 400


def test_all_users_of_a_list_that_are_refused_are_named(house):
    bad = [{"name": f"u{n}", "groups": ["nowhere"]} for n in range(12)]
    data = bring(house, {"name": "ada"}, *bad).json["error"]["data"]
    assert (data["user"], [one["user"] for one in data["others"]]) == (1, list(range(2, 11)))
    assert all("nowhere" in one["message"] for one in data["others"])
    answer = bring(house, {"name": "ada"}, {"name": "ada"}, {"name": "dan"}, {"name": "dan"})
    data = answer.json["error"]["data"]
    assert (data["user"], data["others"]) == (1, [{"user": 3, "message": "User dan comes twice."}])
    assert "ada" not in {one["name"] for one in house.get("/v1/users", "admin")["users"]}
