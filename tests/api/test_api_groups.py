"""Shares and members of groups by command: in use at once, with who, when and why; what users see of them."""

import pytest

from lodesman.decide.matching import director_weights
from lodesman.server.live.leases import Leases
from lodesman.server.live.rules import use_shares
from lodesman.server.writer.groups import know_shares

pytestmark = pytest.mark.stores


def set_share(house, share, group="physics", token="admin", reason="beam time", **more):
    body = {"group": group, "share": share, "reason": reason, **more}
    return house.call("POST", "/v1/groups/share", body, token=token)


def members(house, how, *users, group="bio", token="admin", reason=""):
    body = {"group": group, "users": list(users), "how": how, "reason": reason}
    return house.call("POST", "/v1/groups/users", body, token=token)


def groups(house, token="admin"):
    return {row["group"]: row for row in house.get("/v1/groups", token)["groups"]}


def drawn(house):
    return {name: one.share for name, one in house.core.live.queues.matcher.lottery.shares.items()}


def test_a_share_by_command_holds_at_once_and_says_who_set_it_when_and_why(house):
    assert groups(house)["physics"] == {
        "group": "physics", "vo": "lab", "share": 3000.0, "file_share": 3000.0, "job_sharing": False, "set_by": "",
        "set_at": None, "reason": "", "users": ["admin", "ann"],
    }  # fmt: skip
    answer = set_share(house, 500)
    assert answer.status == 200
    assert drawn(house) == {"physics": 500, "bio": 1000, "open": 1000, "guests": 1000}
    found = groups(house)["physics"]
    assert answer.json == found
    assert (found["share"], found["file_share"]) == (500.0, 3000.0)
    assert (found["set_by"], found["set_at"], found["reason"]) == ("admin", house.now, "beam time")


def test_claims_are_drawn_by_it_and_so_are_director_weights_and_plans(house):
    house.submitted({"Parameters": 40})
    house.submitted({"Parameters": 40}, token="bob")
    assert set_share(house, 0).status == 200
    pilot = house.pilot(cores=4)
    house.claim(pilot, 20, resource={"cores": 4, "memory_mb": 2_000, "norm_cpu_seconds": 1_000})
    assert {row["group"] for row in house.get("/v1/jobs?all=true&state=Matched", "admin")["jobs"]} == {"bio"}
    house.side.keeper.refresh(house.now, rest=0.0)
    weights = director_weights(house.side.keeper.snapshot.waiting, house.side.policy.shares())
    assert sorted(weights.values()) == [0.001, 1000]
    plan = house.call("POST", "/v1/plan/shares", {"shares": {"physics": 1000.0}}, token="admin").json
    assert plan["changed"] == [{"group": "physics", "before": 0.0, "after": 1000.0}]


def test_it_is_taken_back(house):
    refused = set_share(house, None)
    assert (refused.status, refused.code) == (409, "conflict")
    set_share(house, 500)
    house.now += 5
    assert set_share(house, None, reason="over").json["share"] == 3000.0
    assert drawn(house)["physics"] == 3000
    found = groups(house)["physics"]
    assert (found["set_by"], found["set_at"]) == ("", None)
    changes = house.get("/v1/groups/physics", "admin")["changes"]
    assert [(one["change"], one["share"], one["by"], one["reason"]) for one in changes[:2]] == [
        ("share-reset", None, "admin", "over"), ("share-set", 500.0, "admin", "beam time"),
    ]  # fmt: skip
    trail = house.get("/v1/audit?action=group-changed", "admin")["entries"]
    assert [one["detail"] for one in trail] == ["share that of the files; over", "share 500; beam time"]


def test_a_share_with_a_time_ends_by_itself(house):
    until = house.now + 100.0
    assert set_share(house, 500, until=until).json["until"] == until
    house.now = until - 0.5
    house.run(Leases(house.core).watch())
    assert (drawn(house)["physics"], groups(house)["physics"]["until"]) == (500, until)
    house.now = until
    house.run(Leases(house.core).watch())
    assert drawn(house)["physics"] == 3000
    found = groups(house)["physics"]
    assert (found["share"], found["set_by"], "until" in found) == (3000.0, "", False)
    assert set_share(house, None).status == 409
    assert house.get("/v1/groups/physics", "admin")["changes"][0]["until"] == until
    for share, wrong in ((5, until), (None, until + 50.0)):
        assert set_share(house, share, until=wrong).status == 400
    assert set_share(house, 700, until=until + 50.0).status == 200
    assert set_share(house, 600).status == 200  # for good
    house.now += 60.0
    house.run(Leases(house.core).watch())
    assert drawn(house)["physics"] == 600


def test_it_holds_after_a_start_and_with_another_configuration(house):
    set_share(house, 500)
    other = house.policy(house.core.policy.config)
    assert other.shares()["physics"].share == 3000
    know_shares(house.side.db, other, house.now)
    assert other.shares()["physics"].share == 500
    assert other.share_of("physics") == 500
    house.core.policy = other
    house.run(use_shares(house.core))
    assert drawn(house)["physics"] == 500


@pytest.mark.parametrize(
    ("group", "share", "reason", "status"),
    [("physic", 5, "x", 404), ("physics", -1, "x", 400), ("physics", 5, "", 400), ("physics", 5, "  ", 400)],
)
def test_what_is_wrong_is_refused_and_changes_nothing(house, group, share, reason, status):
    answer = set_share(house, share, group, reason=reason)
    assert answer.status == status
    if status == 404:
        assert "Groups: physics" in answer.json["error"]["hint"]
    assert drawn(house)["physics"] == 3000
    assert house.get("/v1/audit?action=group-changed", "admin")["entries"] == []


def test_members_join_and_leave(house):
    assert members(house, "add", "ann", reason="new project").json["users"] == ["ann", "bob"]
    assert house.get("/v1/me")["groups"] == ["physics", "bio"]
    house.submitted(group="bio")
    assert members(house, "remove", "ann").json["users"] == ["bob"]
    assert house.submit(group="bio").code == "forbidden"
    assert house.get("/v1/jobs/1")["group"] == "bio"
    changes = house.get("/v1/groups/bio", "admin")["changes"]
    assert [(one["change"], one["user"], one["by"], one["reason"]) for one in changes] == [
        ("user-removed", "ann", "admin", ""), ("user-added", "ann", "admin", "new project"),
        ("user-added", "bob", "server", ""),
    ]  # fmt: skip


def test_members_come_and_go_with_the_command_that_makes_users(house):
    house.call("POST", "/v1/users", {"name": "ann", "vo": "lab", "groups": ["bio"]}, token="admin")
    first = house.get("/v1/groups/physics", "admin")["changes"][0]
    assert (first["change"], first["user"], first["by"]) == ("user-removed", "ann", "admin")


def test_all_of_the_users_or_none(house):
    house.user("olaf", "guests", vo="other")
    assert members(house, "add", "ann", "nobody").status == 404
    # bio is a group of VO lab.
    assert members(house, "add", "ann", "olaf").status == 400
    assert groups(house)["bio"]["users"] == ["bob"]
    assert members(house, "remove", "bob").code == "conflict"
    assert members(house, "remove", "ann").code == "not-found"


def test_users_see_the_groups_of_their_vo_and_of_the_members_themselves(house):
    house.user("olaf", "guests", vo="other")
    set_share(house, 500)
    assert set(groups(house, "olaf")) == {"guests"}
    found = groups(house, "bob")
    assert set(found) == {"physics", "bio", "open"}
    assert (found["physics"]["users"], found["bio"]["users"]) == ([], ["bob"])
    assert found["physics"]["reason"] == "beam time"
    assert house.call("GET", "/v1/groups/physics", token="olaf").status == 404
    assert {one["user"] for one in house.get("/v1/groups/physics", "bob")["changes"]} == {""}
    assert set_share(house, 5, token="bob").status == 403
    assert members(house, "add", "bob", group="physics", token="bob").status == 403


def test_a_group_that_only_users_have_gets_a_share_too(house):
    house.user("eve", "unlisted")
    assert groups(house)["unlisted"]["file_share"] is None
    assert set_share(house, 70, "unlisted").json["share"] == 70.0
    assert drawn(house)["unlisted"] == 70


def test_a_plan_of_other_files_says_that_the_share_by_command_holds(house):
    set_share(house, 500)
    body = {"files": [{"name": "more.toml", "text": "[group.physics]\nvo = 'lab'\nshare = 9"}]}
    plan = house.call("POST", "/v1/plan/resources", body, token="admin").json
    assert (
        "hold instead of those of the files: physics. See: lode group ls." in plan["notices"][-1]["message"]
    )
