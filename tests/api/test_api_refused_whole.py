"""Calls for several things that are refused for one of them: the refusal is theirs, and nothing was done."""

import pytest

from lodesman.wire.accounts import LimitSection

pytestmark = pytest.mark.stores


def members(house, how, *users):
    body = {"group": "physics", "users": [*users], "how": how, "reason": "because"}
    return house.call("POST", "/v1/groups/users", body, token="admin")


@pytest.mark.parametrize(("other", "status"), [("bob", 404), ("cleo", 409)])
def test_users_leave_a_group_all_or_none(house, other, status):
    """One is in no such group, one in no other."""
    house.user("ann2", "physics", "bio")
    house.user("cleo", "physics")
    before = house.get("/v1/users", "admin")
    answer = members(house, "remove", "ann2", other)
    assert answer.status == status
    assert house.get("/v1/users", "admin") == before
    assert members(house, "remove", "ann2").status == 200


def test_a_token_too_many_is_refused_though_another_one_has_expired(house):
    def issue(**more):
        return house.call("POST", "/v1/tokens", {"account": "bob", **more}, token="bob")

    assert [issue().status for _ in range(3)] == [200] * 3
    assert issue(seconds=5).status == 200
    house.now += 10
    house.core.limits = LimitSection(tokens=3)
    assert (issue().status, issue().code) == (413, "too-large")
    house.core.limits = LimitSection(tokens=5)
    assert issue().status == 200
    assert house.get("/health", "")["faults"] == []
