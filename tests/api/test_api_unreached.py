"""Pilots that run in their batch system and do not reach the server: what is said of them, by whom it is asked."""

from __future__ import annotations

import pytest

from lodesman.server.loops.reasons import MainReasons
from lodesman.user.cli.commands.pilots import _remark
from lodesman.wire import calls

JOB = {"CPUTime": 500, "Site": "North"}
PUBLIC_URL = "the server administrator, if public_url of [server] is wrong; or the site, if its nodes cannot reach that"


@pytest.fixture
def away(house):
    """Two pilots whose batch system has just said that they run, and a third that waits."""
    house.user("eva", "physics", admin=True)
    house.submitted(JOB)
    tokens = [house.prepare_pilot() for _ in range(3)]
    seen = {str(number): [f"n{number}", None, house.now] for number in (1, 2)}
    assert house.call("POST", "/v1/service/seen", seen, token="service").status == 200
    return tokens


def why(house):
    house.side.keeper.refresh(house.now, rest=0.0)
    told = house.get("/v1/jobs/1/why")
    judged = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    assert [one.reason for one in judged.values()] == [told["main_reason"]]
    return told


def test_a_minute_later_they_are_the_reason_everywhere(house, backend, away):
    assert why(house)["main_reason"] == "no-pilot-soon"
    assert house.call("GET", "/health").json["warnings"] == []
    house.now += 61.0
    told = why(house)
    assert (told["verdict"], told["main_reason"]) == ("not now", "pilots-do-not-reach-the-server")
    assert told["who"] == PUBLIC_URL
    words = "2 pilots run there, the first on n1 for 61 s, and have not reached this server"
    assert told["summary"].endswith(
        f"but its pilots do not reach this server: North/ce.north/short: {words}."
    )
    assert (told["pilots"]["unreached"], told["pilots"]["usable_waiting"]) == (2, 1)
    (warning,) = house.call("GET", "/health").json["warnings"]
    assert warning.startswith(
        "2 pilots run and have not reached this server: is public_url of [server] right?"
    )
    backend.now = house.now
    house.director(backend).tick(house.now)
    house.side.keeper.refresh(house.now, rest=0.0)
    queue = house.get("/v1/queues/why?path=North/ce.north/short", "eva")
    assert queue["who"] == PUBLIC_URL
    assert queue["summary"].endswith(f"; but {words}.")


def test_remarks_of_pilots_name_it(house, away, monkeypatch):
    house.now += 61.0
    monkeypatch.setattr("time.time", lambda: house.now)
    rows = calls.PILOTS.read(house.call("GET", "/v1/pilots", token="eva").body).pilots
    away = "runs, and has not reached the server"
    assert [_remark(row) for row in sorted(rows, key=lambda row: row.id)] == [away, away, ""]


def test_where_one_has_joined_the_others_are_no_reason(house, away):
    house.pilot()
    house.now += 61.0
    told = why(house)
    assert (told["verdict"], told["main_reason"], told["pilots"]["unreached"]) == ("now", "next", 0)


def test_one_that_comes_after_all_ends_it(house, away):
    house.now += 61.0
    assert why(house)["main_reason"] == "pilots-do-not-reach-the-server"
    body = {"join_token": away[0], "nonce": "n", "node": {"cores": 4, "memory_mb": 2000}}
    assert house.call("POST", "/v1/pilots/join", body).status == 200
    assert why(house)["main_reason"] == "next"
