"""Local queues of a machine that gets no jobs: no pilots are sent there, answers name the host, and opening it is enough."""

from __future__ import annotations

import socket

import pytest
from tests.api.conftest import RESOURCES

from lodesman.decide.director.hosts import ON_SHUT_HOST
from lodesman.decide.director.limits import Breaker
from lodesman.server.loops.breakers import find_freed_queues
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.store.hosts import put_records
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import live_pilots
from lodesman.wire import inner_calls
from lodesman.wire.hosts import HostName, HostRecord, HostState
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import PilotEnd
from lodesman.wire.vocabulary import BreakerState, PilotState

PATH = "North/ce.north/short"
PLACE = QueueId("North", "ce.north", "short")
VM = HostName("North", "vm")


@pytest.fixture
def director(house, backend, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    house.submitted({"CPUTime": 500, "Site": "North"})
    house.side.director = house.director(backend)
    house.side.keeper.ask_director = house.side.director.now
    return house.side.director


def sent(house, director):
    """The pilots that an iteration sends to the queue."""
    house.now += 1.0
    found = []
    director.launch = lambda decision, _: found.extend(decision.placement.placements)
    director.tick(house.now)
    return sum(one.count for one in found if one.queue_id == PLACE)


def told(house):
    """What `why` says of the job and of the queue, and `tq ls` of the job."""
    house.now += 1.0
    house.side.keeper.refresh(house.now, rest=0.0)
    judged = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    job, queue = house.get("/v1/jobs/1/why"), house.get(f"/v1/queues/why?path={PATH}", "admin")
    return job["main_reason"], {one.reason for one in judged.values()}, job["who"], queue["who"]


OPENS = "an administrator: lode host open vm --site North"


def switch(house, word):
    body = {"host": "vm", "site": "North", "reason": "fan"}
    assert house.call("POST", f"/v1/hosts/{word}", body, token="admin").status == 200


def test_pilots_that_join_on_a_closed_host_speak_for_no_breaker_and_no_more_are_sent(house, director):
    watch = BackendWatch(
        "local", director.watches["local"], db=house.side.db, post=house.post,
        note=lambda queue, fault, reason: director.note_outcome(
            queue, accepted=fault is None, reason=reason, now=house.now
        ),
    )  # fmt: skip
    assert sent(house, director) > 0
    coming = [house.prepare_pilot() for _ in range(4)]
    first = house.pilot(node={"cores": 4, "host": "vm"})
    switch(house, "close")
    for token in coming:
        body = {"join_token": token, "nonce": "n", "node": {"cores": 4, "host": "vm"}}
        assert house.call("POST", "/v1/pilots/join", body).status == 200
        watch._note_joined(live_pilots(house.side.db, "local"))
        assert sent(house, director) == 0
        assert told(house) == ("host-shut", {"host-shut"}, OPENS, OPENS)
    assert director.breakers.get(PLACE, Breaker()) == Breaker()
    house.call("POST", "/v1/pilots/leave", {}, token=first)
    for number in range(1, 5):
        house.post(inner_calls.PILOT_ENDED, PilotEnd(number, PilotState.DONE, ""))
    switch(house, "open")
    assert sent(house, director) > 0, "at the next iteration"


def shut(house, retry_at):
    record = HostRecord(shut=True, since=house.now, retry_at=retry_at, trips=1, fault="the disk is full")
    house.do(Change(lambda tx: put_records(tx, [HostState(VM, record)])))


def test_a_host_shut_by_evidence_gets_one_pilot_when_it_may_be_tried(house, director):
    shut(house, house.now + 60.0)
    assert sent(house, director) == 0
    assert told(house)[:2] == ("host-shut", {"host-shut"})
    house.now += 60.0
    assert sent(house, director) == 1
    assert told(house)[:2] == ("host-shut", {"host-shut"})
    house.prepare_pilot()
    assert sent(house, director) == 0, "one on its way will ask"


def test_what_pilots_on_shut_hosts_said_of_a_queue_ends_with_these(house, director):
    said = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=1e12, reason=ON_SHUT_HOST)
    other = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=1e12, reason="Permission denied")
    both = {PLACE: said, PLACE._replace(queue="long"): other}
    shut(house, None)
    assert find_freed_queues(house.side.db, both) == set()
    switch(house, "open")
    assert find_freed_queues(house.side.db, both) == {PLACE}
    director.breakers = dict(both)
    assert sent(house, director) > 0


def test_a_dry_run_that_changes_nothing_goes_by_the_shut_host_on_both_sides(house, director):
    """A pilot on its way there is no supply for jobs that can run elsewhere."""
    house.submitted(*[{"CPUTime": 500}] * 2)
    assert sent(house, director) > 0
    house.prepare_pilot()
    switch_record = HostRecord(shut=True, since=house.now, by="admin", reason="fan")
    house.do(Change(lambda tx: put_records(tx, [HostState(VM, switch_record)])))
    house.side.keeper.refresh(house.now + 9.0, rest=0.0)
    body = {"files": [{"name": "same.toml", "text": RESOURCES}]}
    plan = house.call("POST", "/v1/plan/resources", body, token="admin").json["director"]
    assert plan["pilots"]["asked"]["before"] > 0
    assert [one for one in plan["pilots"].values() if one["before"] != one["after"]] == []
