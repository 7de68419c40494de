"""Pilots on hosts that get no jobs promise no start: jobs name the host, and who opens it."""

from __future__ import annotations

import socket

import pytest

from lodesman.server.loops.reasons import MainReasons

JOB = {"CPUTime": 500, "Site": "North"}


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    return "vm"


def shut(house, host="vm"):
    body = {"host": host, "site": "North", "reason": "fan"}
    assert house.call("POST", "/v1/hosts/close", body, token="admin").status == 200


def why(house, director=None):
    house.now += 1.0
    if director is not None:
        director.tick(house.now)
        director.iterated_at = house.now
    house.side.keeper.refresh(house.now, rest=0.0)
    told = house.get("/v1/jobs/1/why")
    judged = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    assert [one.reason for one in judged.values()] == [told["main_reason"]]
    body = {"changed": judged, "facts_at": None}
    assert house.call("POST", "/v1/service/reasons", body, token="service").status == 200
    return told


def test_the_only_host_of_a_local_queue_is_named(house, backend, here):
    house.submitted(JOB)
    house.pilot(node={"cores": 4, "host": here})
    house.prepare_pilot()
    shut(house)
    told = why(house, house.director(backend))
    assert (told["verdict"], told["main_reason"]) == ("not now", "host-shut")
    assert told["summary"].startswith(
        "1 of 2 queues can run it, but hosts of its pilots get no jobs: vm at North: closed by admin since "
    )
    assert told["summary"].endswith(": fan.")
    assert told["who"] == "an administrator: lode host open vm --site North"
    assert told["turn"]["start"] is None
    (step,) = [one["text"] for one in told["chain"] if one["step"] == "pilots"]
    assert step.startswith("2 live pilots of its VO, of which can take it: 0 idle, 0 busy, 0 on their way; ")
    assert "; 2 of them could but their hosts are shut;" in step
    pilots = told["pilots"]
    assert (pilots["usable_waiting"], pilots["soon_starts"], pilots["shut"]) == (0, 0, 2)
    assert house.call("POST", "/v1/hosts/open", {"host": "vm", "site": "North"}, token="admin").status == 200
    assert why(house)["main_reason"] == "next"


def test_before_a_pilot_was_sent_it_is_known_already(house, backend, here):
    house.submitted(JOB)
    house.pilot(node={"cores": 4, "host": here})
    shut(house)
    house.call("POST", "/v1/pilots/leave", {}, token="pilot1")
    assert why(house, house.director(backend))["main_reason"] == "host-shut"


def test_another_host_of_a_batch_system_leaves_hope(house, backend, here):
    house.submitted(JOB)
    house.pilot(node={"cores": 4, "host": "wn1"})
    house.prepare_pilot()
    shut(house, "wn1")
    assert why(house)["main_reason"] == "pilot-on-its-way"


def test_where_all_pilots_are_on_shut_hosts_and_none_may_be_sent_they_are_named(house, here, backend):
    backend.waiting = 1_000
    house.submitted(JOB)
    house.pilot(node={"cores": 4, "host": "wn1"})
    house.pilot(node={"cores": 4, "host": "wn1"})
    shut(house, "wn1")
    told = why(house, house.director(backend))
    assert told["main_reason"] == "host-shut"
    assert told["who"] == "an administrator: lode host open wn1 --site North"


def test_a_local_queue_names_its_host(house, backend, here):
    house.submitted(JOB)
    house.pilot(node={"cores": 4, "host": here})
    shut(house)
    why(house, house.director(backend))
    house.user("eva", "physics", admin=True)
    told = house.get("/v1/queues/why?path=North/ce.north/short", "eva")
    assert ", and none may be sent now: vm at North: closed by admin since " in told["summary"]
    assert told["who"] == "an administrator: lode host open vm --site North"
