"""Administrators of one VO: its users, tokens, groups and shares, kill and hold of its jobs; nothing of others."""

import hashlib

import pytest

from lodesman.decide.resources import load_resources

pytestmark = pytest.mark.stores


@pytest.fixture
def two(house):
    """vera administers lab, otto the VO other, where olaf is; ann and bob are in lab, where admin administers all."""
    house.user("vera", "bio", vo_admin=True)
    house.user("olaf", "guests", vo="other")
    house.user("otto", "guests", vo="other", vo_admin=True)
    return house


def post(house, path, token="vera", **body):
    answer = house.call("POST", f"/v1/{path}", body, token=token)
    return answer.status, answer.code if answer.status != 200 else ""


def user(house, name, token="vera", vo="lab", groups=("physics",), **rights):
    return post(house, "users", token, name=name, vo=vo, groups=list(groups), **rights)


OK, NO, UNKNOWN = (200, ""), (403, "forbidden"), (404, "not-found")


def test_an_administrator_makes_them_and_they_are_shown(two):
    assert user(two, "nina", "admin", vo_admin=True) == OK
    rows = {row["name"]: row for row in two.get("/v1/users", "admin")["users"]}
    assert (rows["nina"]["admin"], rows["nina"]["vo_admin"], rows["ann"]["vo_admin"]) == (False, True, False)
    assert two.get("/v1/me", "vera")["vo_admin"]
    entry = two.get("/v1/audit?action=user-changed", "admin")["entries"][0]
    assert entry["detail"] == "VO lab, groups physics, administrator of the VO"


def test_without_the_scope_they_are_users_like_others(two):
    token = two.call("POST", "/v1/tokens", {"account": "vera"}, token="vera").json["token"]
    two.tokens["plain"] = token
    assert user(two, "eve", "plain") == NO
    assert two.call("GET", "/v1/users", token="plain").status == 403
    assert [row["account"] for row in two.get("/v1/tokens", "plain")["tokens"]] == ["vera"] * 2


def test_who_is_one_no_more_has_no_rights_left(two):
    assert user(two, "vera", "admin", groups=("bio",)) == OK
    assert user(two, "eve") == NO


def test_users_of_the_vo(two):
    assert user(two, "eve") == OK
    assert user(two, "eve", groups=("bio",)) == OK
    assert {row["name"] for row in two.get("/v1/users", "vera")["users"]} == {
        "admin",
        "ann",
        "bob",
        "eve",
        "vera",
    }
    assert {row["name"] for row in two.get("/v1/users", "otto")["users"]} == {"olaf", "otto"}
    assert post(two, "users/disable", name="eve") == OK
    assert post(two, "users/disable", name="eve", disabled=False) == OK


def test_no_users_of_others_and_no_administrators(two):
    assert user(two, "eve", vo="other", groups=("guests",)) == NO
    assert user(two, "olaf") == NO
    for rights in ({"admin": True}, {"vo_admin": True}):
        assert user(two, "eve", **rights) == NO
        assert user(two, "vera", **rights) == NO
    assert user(two, "admin") == NO
    assert post(two, "users/disable", name="admin") == NO
    assert post(two, "users/disable", name="olaf") == post(two, "users/disable", name="none") == UNKNOWN
    assert post(two, "users/disable", name="vera") == (409, "conflict")
    assert two.get("/v1/me", "admin")["admin"]
    assert two.get("/v1/me", "olaf")["vo"] == "other"


def test_refusals_tell_nothing_of_other_vos(house):
    house.core.policy = house.policy(
        load_resources([("s.toml", """[group.physics]\nvo = "lab"\n[group.secret]\nvo = "other"\n""")])
    )
    house.user("vera", vo_admin=True)
    house.user("olaf", "secret", vo="other")

    def words(path, **body):
        return house.call("POST", f"/v1/{path}", body, token="vera").body.decode()

    told = [
        words("users", name="eve", vo="other", groups=["physics"]),
        words("users", name="eve", vo="other", groups=["secret"]),
        words("users", name="eve", vo="lab", groups=["secret"]),
        words("groups/users", group="physics", users=["olaf"]),
    ]
    assert "You administer VO lab" in told[0]
    assert told[0] == told[1]
    assert "VO lab has no group secret" in told[2]
    assert "There is no user olaf in VO lab" in told[3]
    assert "other" not in "".join(told)
    assert "secret" not in told[1] + told[3]


def test_they_stay_what_they_are_when_they_change_their_own_groups(two):
    assert user(two, "vera", groups=("physics", "bio")) == OK
    me = two.get("/v1/me", "vera")
    assert (me["groups"], me["vo_admin"]) == (["physics", "bio"], True)


def test_tokens_of_the_vo(two):
    made = two.call("POST", "/v1/tokens", {"account": "ann", "note": "made by vera"}, token="vera")
    assert made.status == 200
    assert two.get("/v1/me", "ann")["name"] == "ann"
    assert {row["account"] for row in two.get("/v1/tokens", "vera")["tokens"]} == {"ann", "bob", "vera"}
    digest = hashlib.sha256(made.json["token"].encode()).hexdigest()
    assert two.call("DELETE", f"/v1/tokens/{digest}", token="otto").status == 404
    assert two.call("DELETE", f"/v1/tokens/{digest}", token="vera").status == 200


def test_no_tokens_of_others_and_none_with_more(two):
    assert post(two, "tokens", account="olaf") == UNKNOWN
    assert post(two, "tokens", account="admin") == NO
    assert post(two, "tokens", account="ann", scopes=["admin"]) == (409, "conflict")
    for name in ("admin", "olaf"):
        digest = hashlib.sha256(two.tokens[name].encode()).hexdigest()
        assert two.call("DELETE", f"/v1/tokens/{digest}", token="vera").status == 404
    assert two.get("/v1/me", "olaf")["name"] == "olaf"


def test_groups_of_the_vo(two):
    share = {"share": 5.0, "reason": "beam time"}
    assert post(two, "groups/share", group="physics", **share) == OK
    assert post(two, "groups/share", group="guests", **share) == UNKNOWN
    assert post(two, "groups/users", group="bio", users=["ann", "vera"]) == OK
    assert post(two, "groups/users", group="bio", users=["olaf"])[0] in (400, 404)
    assert post(two, "groups/users", group="bio", users=["admin"]) == NO
    assert post(two, "groups/users", group="guests", users=["ann"]) == UNKNOWN
    rows = {row["group"]: row["users"] for row in two.get("/v1/groups", "vera")["groups"]}
    assert rows == {"bio": ["ann", "bob", "vera"], "open": [], "physics": ["admin", "ann"]}
    changes = two.get("/v1/groups/bio", "vera")["changes"]
    assert {one["user"] for one in changes} == {"ann", "bob", "vera"}


def test_a_share_that_other_vos_have_too_is_for_administrators_of_the_server(two):
    two.user("eve", "both")
    two.user("emil", "both", vo="other")
    assert post(two, "groups/share", group="both", share=5.0, reason="x") == NO
    assert post(two, "groups/users", group="both", users=["emil"], how="remove") == UNKNOWN
    row = next(row for row in two.get("/v1/groups", "vera")["groups"] if row["group"] == "both")
    assert row["users"] == ["eve"]


def test_jobs_of_the_vo_are_found_held_released_and_killed_and_nothing_else(two):
    two.submitted()
    two.submitted(token="olaf")
    assert [row["id"] for row in two.get("/v1/jobs?all=true", "vera")["jobs"]] == [1]
    assert two.get("/v1/jobs", "vera")["jobs"] == []
    assert two.get("/v1/jobs/1", "vera")["owner"] == "ann"
    assert [one["owner"] for one in two.get("/v1/jobs/counts", "vera")["counts"]] == ["ann"]
    for path in ("jobs/1/description", "jobs/1/logs", "jobs/1/output", "jobs/2"):
        assert two.call("GET", f"/v1/{path}", token="vera").status == 404

    def control(action, job=1):
        answer = two.call(
            "POST",
            "/v1/jobs/control",
            {"action": action, "ranges": [[job, job]], "reason": "x"},
            token="vera",
        )
        return answer.json["changed"] if answer.status == 200 else answer.status

    assert [control(one) for one in ("hold", "release")] == [1, 1]
    assert [control(one) for one in ("reschedule", "delete")] == [404, 404]
    assert control("kill", 2) == 404
    change = {"ranges": [[1, 1]], "attributes": {"Memory": 5}}
    assert two.call("POST", "/v1/jobs/change", change, token="vera").status == 404
    assert control("kill") == 1


def test_what_an_administrator_holds_stays_held(two):
    two.submitted()
    assert two.control("hold", 1, token="admin").status == 200
    answer = two.call("POST", "/v1/jobs/control", {"action": "release", "ranges": [[1, 1]]}, token="vera")
    assert (answer.json["changed"], answer.json["refused"]) == (0, 1)


def test_usage_has_the_names_of_the_vo(two):
    two.submitted()
    pilot = two.pilot()
    (job,) = two.claim(pilot)
    two.report(pilot, job)
    for name, names in (("vera", ["ann"]), ("bob", [""]), ("otto", [])):
        assert [row["name"] for row in two.get("/v1/usage/days?by=user", name)["rows"]] == names
