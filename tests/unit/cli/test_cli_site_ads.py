"""`lode site token`, `lode site gate`, and the ads in `lode site ls` and tokens of sites in `lode token ls`."""

from __future__ import annotations

import time

import pytest

HOSTILE = "evil\x1b[31m"
NUMBERS = {"max_jobs": 100, "max_submitting_jobs": 10, "current_jobs": 40, "current_submitting_jobs": 3}
ENTRY = {"received_at": 1_000.0, "sequence": 7, "incarnation": "ce7", "stamps": 12, "numbers": NUMBERS}
AD = {**ENTRY, "site": "North", "lifetime_seconds": 900.0, "is_too_old": False}
FULL = {
    "clause": "CurMatches < MaxJobs", "value": "false", "cycle": [],
    "own": [{"name": "CurMatches", "value": "100"}, {"name": "MaxJobs", "value": "100"}], "other": [],
}  # fmt: skip


def gate(**changes):
    return {
        "site": "North", "mode": "ledger", "at": 1_120.0, "ad": AD, "text": "", "shut": "", "notice": "", "room": 7,
        "matched": 2, "pilots": 14, "values": [{"name": "MaxJobs", "value": "100"},
                                               {"name": "CurrentPendingJobs", "value": "undefined"}],
        "clauses": [FULL], "day": [ENTRY, {**ENTRY, "numbers": {}, "received_at": 700.0}], **changes,
    }  # fmt: skip


def fields(text):
    return dict(line.split(None, 1) for line in text.partition("\n\n")[0].splitlines())


def test_an_open_gate(at, server):
    server.on("GET", "/v1/sites/gate", gate())
    shown = at("site", "gate", "North")
    assert server.asked[-1].query == {"site": "North"}
    assert fields(shown.out) == {
        "site": "North", "gate": "open, for 7 pilots more", "mode": "ledger", "MaxJobs": "100",
        "ad": "number 7 of ce7, 2 min old, good for 13 min more", "pilots": "14, of which the ad does not show 2",
    }  # fmt: skip
    _, clauses, day = shown.out.split("\n\n")
    assert clauses.splitlines()[1].split(None, 1) == [
        "false",
        "CurMatches < MaxJobs  CurMatches = 100, MaxJobs = 100  -",
    ]
    first, second = day.splitlines()[1:]
    assert first.split() == ["1970-01-01", "00:16", "UTC", "40", "3", "-", "100", "10", "-", "12"]
    assert second.split() == ["1970-01-01", "00:11", "UTC", *["-"] * 6, "12"]
    assert at("site", "gate", "North", "--json").json == gate()


@pytest.mark.slow
def test_the_newest_ads_are_shown_or_those_of_the_day(at, server):
    server.on("GET", "/v1/sites/gate", gate(day=[ENTRY] * 15))
    shown = at("site", "gate", "North")
    assert (shown.out.count("1970-01-01"), shown.err) == (12, "lode: 3 ads more of the last day: --day.\n")
    shown = at("site", "gate", "North", "--day")
    assert (shown.out.count("1970-01-01"), shown.err) == (15, "")


def test_a_shut_gate_and_what_is_odd(at, server):
    old = {**AD, "is_too_old": True, "incarnation": HOSTILE}
    text = "its ad is 1,000 s old, older than 900 s"
    server.on(
        "GET", "/v1/sites/gate", gate(shut=text, room=0, ad=old, at=2_000.0, notice="X is odd", clauses=[])
    )
    shown = at("site", "gate", "North")
    found = fields(shown.out)
    assert found["gate"] == f"shut: {text}"
    assert found["ad"].endswith("17 min old, too old")
    assert "\x1b" not in shown.out
    assert shown.err == "lode: X is odd.\n"


def test_a_site_that_never_advertised(at, server):
    server.on("GET", "/v1/sites/gate", gate(ad=None, room=10_000, values=[], clauses=[], day=[], pilots=3))
    assert fields(at("site", "gate", "North").out) == {
        "site": "North", "gate": "open, for any number more", "pilots": "3",
        "ad": "none: the site never advertised, only its configured limits hold",
    }  # fmt: skip


def test_a_token_for_a_site(at, server, home):
    server.on("POST", "/v1/sites/token", {"token": "secret"})
    assert at("site", "token", "North").out == "secret\n"
    assert server.asked[-1].json == {"site": "North", "seconds": 0.0}
    done = at("site", "token", "North", "--days", "2", "--note", "ce7", "--output", str(home / "north.token"))
    assert (done.out, done.err) == ("", f"lode: The token is in {home / 'north.token'}.\n")
    assert server.asked[-1].json == {"site": "North", "seconds": 172_800.0, "note": "ce7"}
    assert (home / "north.token").read_text() == "secret\n"
    assert (home / "north.token").stat().st_mode & 0o777 == 0o600
    assert at("site", "token", "North", "--output", str(home / "north.token")).code == 6
    assert len(server.of("POST", "/v1/sites/token")) == 2  # no token is lost
    assert at("site", "token", "North", "--output", str(home / "new"), "--json").json == {
        "file": str(home / "new")
    }


def token(**changes):
    return {"hash": "ab" * 32, "kind": "user", "account": "ann", "scopes": ["admin"], "note": "", "created_at": 0.0,
            "expires_at": None, "made_with": None, "made_by": None, **changes}  # fmt: skip


def test_tokens_of_sites_are_listed(at, server):
    tokens = [token(), token(kind="site", account="North", scopes=[])]
    server.on("GET", "/v1/tokens", {"tokens": tokens, "more": False, "cursor": ""})
    rows = [line.split() for line in at("token", "ls").out.splitlines()]
    assert (rows[1][1], rows[2][1:3]) == ("ann", ["site", "North"])


@pytest.mark.parametrize("closed", [False, True])
def test_the_list_of_sites_has_the_age_of_ads(at, server, closed):
    closing = {"site": "A", "ce": "", "queue": "", "reason": "x", "closed_by": "eva", "since": 0.0, "until": None,
               "keep_pilots": False}  # fmt: skip
    site = {"ces": 1, "queues": 2, "pilots": {}, "running_jobs": 0, "closed": [closing] if closed else []}
    sites = [
        {**site, "site": "A", "ad_at": time.time() - 130, "ad_is_too_old": False},
        {**site, "site": "B", "ad_at": time.time() - 7_300, "ad_is_too_old": True},
        {**site, "site": "C"},
    ]  # fmt: skip
    answer = {"sites": sites, "closed": [closing] if closed else [], "more": False, "cursor": ""}
    server.on("GET", "/v1/sites", answer)
    lines = at("site", "ls").out.splitlines()
    end = " all" if closed else ""
    assert [" ".join(line.split()[5:]) for line in lines[1:]] == [
        f"2 min{end}",
        f"2.0 h, too old{end}",
        f"none{end}",
    ]
    assert lines[0].split()[6:] == ["AD", *(["CLOSED"] if closed else [])]
