"""The audit trail: who did what, when and from where; refusals counted; kept as long as events."""

from __future__ import annotations

import logging

import pytest

from lodesman.server.store.audit import append_entries
from lodesman.server.store.journal import Change
from lodesman.wire import inner_calls
from lodesman.wire.accounts import AuditNote
from lodesman.wire.service import PurgeOrder

pytestmark = pytest.mark.stores


def trail(house, query="", **more):
    return house.get(f"/v1/audit{query}", "admin", **more)["entries"]


def test_what_administrators_do_is_noted_with_who_when_and_from_where(house, caplog):
    caplog.set_level(logging.INFO, "lodesman.server.store.audit")
    pilot = house.pilot()
    house.now += 5.0
    for method, path, body in (
        ("POST", "/v1/users", {"name": "eve", "vo": "lab", "groups": ["bio"], "admin": True}),
        ("POST", "/v1/tokens", {"account": "eve", "seconds": 0, "note": "laptop"}),
        ("POST", "/v1/users/disable", {"name": "eve"}),
        ("POST", "/v1/users/disable", {"name": "eve", "disabled": False}),
        ("POST", "/v1/pilots/drain", {"pilots": [1]}),
        ("POST", "/v1/sites/close", {"site": "North", "reason": "disk"}),
        ("POST", "/v1/sites/close", {"site": "South", "reason": "no", "dry_run": True}),
        ("POST", "/v1/sites/open", {"site": "North"}),
    ):
        assert house.call(method, path, body, token="admin").status == 200, path
    (token,) = [one["hash"] for one in house.get("/v1/tokens", "admin")["tokens"] if one["account"] == "eve"]
    assert house.call("DELETE", f"/v1/tokens/{token[:12]}", token="admin").status == 200
    rows = trail(house)
    assert [(one["action"], one["subject"]) for one in reversed(rows)] == [
        ("user-changed", "eve"), ("token-issued", "eve"), ("user-disabled", "eve"), ("user-enabled", "eve"),
        ("pilots-drained", "1"), ("site-closed", "North"), ("site-opened", "North"), ("token-revoked", token[:12]),
    ]  # fmt: skip
    assert {(one["by"], one["origin"], one["at"], one["count"]) for one in rows} == {
        ("admin", "127.0.0.1", house.now, 1)
    }
    details = {one["action"]: one["detail"] for one in rows}
    assert details["user-changed"] == "VO lab, groups bio, administrator"
    assert details["token-issued"] == "jobs:read, jobs:write, pilots:read; until revoked; laptop"
    house.call("POST", "/v1/tokens", {"account": "ann", "seconds": 30 * 86_400}, token="admin")
    assert trail(house)[0]["detail"] == "jobs:read, jobs:write, pilots:read; for 30 d"
    lines = [line.action for line in caplog.records if line.name == "lodesman.server.store.audit"]
    assert lines[:2] == ["user-changed", "token-issued"]
    assert house.call("GET", "/v1/audit", token="ann").status == 403
    assert house.call("GET", "/v1/audit", token=pilot).status == 403


def test_what_is_refused_leaves_no_entry(house):
    assert house.call("POST", "/v1/sites/open", {"site": "North"}, token="admin").status == 409
    assert house.call("POST", "/v1/tokens", {"account": "nobody"}, token="admin").status == 404
    assert trail(house) == []


def test_entries_are_found_by_action_user_and_time_and_page_by_page(house):
    for number in range(5):
        house.now += 1.0
        notes = [AuditNote("token-issued" if number % 2 else "user-changed", f"u{number}", f"by{number % 3}")]
        house.do(Change(append_entries, notes))

    def found(query):
        return [one["subject"] for one in trail(house, query)]

    assert found("") == ["u4", "u3", "u2", "u1", "u0"]
    assert found("?action=token-issued") == ["u3", "u1"]
    assert found("?by=by1") == ["u4", "u1"]
    unknown = house.call("GET", "/v1/audit?action=token-isued", token="admin")
    assert unknown.status == 400
    assert "token-issued" in unknown.json["error"]["message"]
    assert found(f"?since={int(house.now) - 1}") == ["u4", "u3"]
    page = house.get("/v1/audit?limit=2", "admin")
    assert (page["more"], [one["subject"] for one in page["entries"]]) == (True, ["u4", "u3"])
    assert found(f"?after={page['cursor']}") == ["u2", "u1", "u0"]
    assert house.get("/v1/audit?limit=5", "admin")["more"] is False


def test_entries_are_kept_as_long_as_events(house):
    house.do(Change(append_entries, [AuditNote("user-changed", "old")]))
    house.now += 10.0
    house.do(Change(append_entries, [AuditNote("user-changed", "new")]))
    house.post(inner_calls.PURGE, PurgeOrder(before=house.now - 5.0))
    assert [one["subject"] for one in trail(house)] == ["new"]


@pytest.mark.parametrize("path", ["/v1/me", "/v1/jobs", "/v1/jobs/control", "/v1/pilots/claim"])
def test_refused_logins_are_counted_by_address_and_token(house, path):
    method = "POST" if path.endswith(("control", "claim")) else "GET"
    for token in ("wrong", "wrong", ""):
        assert house.call(method, path, {}, token=token).status == 401
    rows = {(one.subject, one.origin): (one.action, one.by, one.count) for one in house.core.strangers.take()}
    assert rows == {
        ("8810ad581e59", "127.0.0.1"): ("login-refused", "", 2),
        ("no token", "127.0.0.1"): ("login-refused", "", 1),
    }
    assert house.core.strangers.take() == []


def test_wrong_join_tokens_are_counted_too(house):
    house.call("POST", "/v1/pilots/join", {"join_token": "no-such-token", "node": {}})
    used = house.prepare_pilot()
    for nonce in ("a", "b"):
        house.call("POST", "/v1/pilots/join", {"join_token": used, "node": {}, "nonce": nonce})
    assert [(one.subject, one.count) for one in house.core.strangers.take()] == [
        ("join token", 1),
        ("join token of pilot 1", 1),
    ]


def test_many_addresses_take_no_more_memory(house):
    for number in range(5_000):
        house.core.strangers.refused(f"10.0.{number >> 8}.{number & 255}", "")
    found = house.core.strangers.take()
    assert (len(found), sum(one.count for one in found)) == (1_001, 5_000)
