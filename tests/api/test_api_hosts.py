"""Hosts that get no jobs, over HTTP: shut by what failed there, tried with one job, opened; and orders of administrators."""

from __future__ import annotations

import re

import pytest

from lodesman.decide.director.hosts import Failure
from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.supply import AsideReason, PilotStanding
from lodesman.decide.resources import QueueId
from lodesman.server.loops.hosts import HostWatch
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.standing import standing_of
from lodesman.server.store.hosts import host_records, note_failure
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import pilots_in_short
from lodesman.server.writer import sessions
from lodesman.server.writer.sessions import load_sessions
from lodesman.wire.hosts import HostName
from lodesman.wire.vocabulary import StartFault

pytestmark = pytest.mark.stores

HOLE = HostName("North", "wn1")
KINDS = ({"CPUTime": 500}, {"CPUTime": 600})


@pytest.fixture
def watch(house):
    return HostWatch(house.side.db, house.post)


@pytest.fixture
def farm(house):
    """Pilots on two hosts, and jobs in two task queues; the second host runs one of each for two minutes."""
    return two_hosts(house)


def two_hosts(house, site="North"):
    """The second is at this site."""
    hole = house.pilot(node={"cores": 4, "host": "wn1"})
    good = house.pilot(site, node={"cores": 4, "host": "wn2"})
    for kind in KINDS * 2:
        house.submitted(kind, kind, kind, kind, kind, kind)
    runs = [*house.claim(good, 2), *house.claim(good, 2)]
    while len({job["id"] <= 6 or 13 <= job["id"] <= 18 for job in runs}) < 2:
        runs += house.claim(good)
    for job in runs:
        house.report(good, job, "Running", started=house.now)
    house.now += 120.0
    return hole, good


def fails(house, pilot, jobs=5):
    """Jobs of both task queues fail at once."""
    done = set()
    for _ in range(200):
        if len(done) >= jobs:
            break
        (job,) = house.claim(pilot)
        kind = job["id"] <= 6 or 13 <= job["id"] <= 18
        if len(done) == jobs - 1 and {kind} == {one for _, one in done}:
            house.report(pilot, job, "Released", cause="pilot-shutdown")  # of the other task queue
            continue
        house.report(pilot, job, "Failed", cause="exit", exit_code=1, started=house.now, ended=house.now)
        done.add((job["id"], kind))


def hole_of(house, token="admin"):
    return next(row for row in house.get("/v1/hosts", token)["hosts"] if row["host"] == "wn1")


def why(house, pilot):
    return house.get(f"/v1/pilots/{pilot.removeprefix('pilot')}/why")


def shut(house, watch, pilot):
    fails(house, pilot)
    watch.tick(house.now)
    assert hole_of(house)["shut"]


def test_the_fifth_failure_shuts_a_host_and_no_other(house, farm, watch):
    hole, good = farm
    fails(house, hole, 4)
    watch.tick(house.now)
    assert (hole_of(house)["shut"], hole_of(house)["failures"]) == (False, 4)
    house.now += 1.0
    fails(house, hole, 5)
    watch.tick(house.now)
    row = hole_of(house)
    assert (row["shut"], row["retry_at"], row["trips"], row["pilots"]) == (True, house.now + 900.0, 1, 1)
    assert (row["evidence"]["hosts_failing"], row["evidence"]["hosts"]) == (0, 1)
    assert house.claim(hole) == []
    assert len(house.claim(good)) == 1
    # Its pilot is supply for nobody, and takes its place in the trail.
    standing = {one.id: standing_of(one, house.now) for one in pilots_in_short(house.side.db)}
    assert standing[int(hole[5:])] is PilotStanding.SHUT
    assert standing[int(good[5:])] is not PilotStanding.SHUT
    (entry,) = house.get("/v1/audit?action=host-shut", "admin")["entries"]
    assert (entry["subject"], entry["by"]) == ("wn1 at North", "server")


def test_a_pilot_that_joins_where_jobs_fail_at_once_speaks_against_its_queue(house, watch):
    hole, _ = two_hosts(house, "South")
    here, there = QueueId("North", "ce.north", "short"), QueueId("South", "ce.south", "long")
    fails(house, hole, 4)
    watch.tick(house.now)
    assert watch.weigh(here, None, "") == (None, "")
    house.now += 10.0
    fails(house, hole, 5)
    watch.tick(house.now)
    fault, reason = watch.weigh(here, None, "")
    assert fault is StartFault.JOBS_FAIL
    assert reason.startswith("jobs fail at once at this site, and not at others: 9 of 9 attempts")
    assert watch.weigh(here, StartFault.REFUSED, "no") == (StartFault.REFUSED, "no")
    assert watch.weigh(there, None, "") == (None, "")
    house.now += 1_900.0  # only the window counts
    watch.tick(house.now)
    assert watch.weigh(here, None, "") == (None, "")


def test_sites_are_judged_again_after_a_while(house, watch):
    """What became of attempts is not read each second, since some jobs fail at every large site."""
    hole, _ = two_hosts(house, "South")
    watch.tick(house.now)
    fails(house, hole, 2)
    watch.tick(house.now)
    other = house.pilot(node={"cores": 4, "host": "wn3"})
    fails(house, other, 3)
    watch.tick(house.now + 9.0)
    assert watch.failing == {}
    assert not hole_of(house)["shut"]
    watch.tick(house.now + 10.0)
    assert list(watch.failing) == ["North"]
    # There one failure shuts a host.
    rows = {row["host"]: row for row in house.get("/v1/hosts", "admin")["hosts"]}
    assert {host: row["shut"] for host, row in rows.items()} == {"wn1": True, "wn2": False, "wn3": True}
    assert rows["wn1"]["evidence"]["whole_site"]
    assert "at its whole site" in rows["wn1"]["text"]


def test_the_metrics_count_shut_hosts_by_what_shut_them(house, farm, watch):
    def counted():
        text = house.call("GET", "/metrics", token="admin").body.decode()
        return re.findall(r'^lodesman_shut_hosts{cause="(\w+)"} (\S+)$', text, re.MULTILINE)

    assert counted() == [("evidence", "0.0"), ("order", "0.0")]
    shut(house, watch, farm[0])
    assert (
        house.call("POST", "/v1/hosts/close", {"host": "wn2", "reason": "disk"}, token="admin").status == 200
    )
    house.pilot(node={"cores": 4, "host": "wn3"})
    house.now += 120.0  # such counts are kept for a while
    assert counted() == [("evidence", "1.0"), ("order", "1.0")]


def test_pilots_of_a_shut_host_keep_no_pilots_from_being_sent(house, farm, watch, backend):
    assert house.control("hold", 1, 24, token="admin").status == 200
    house.submitted({"CPUTime": 700})
    director, seen = house.director(backend), []
    director.launch = lambda decision, _: seen.append(decision.supply)
    director.tick(house.now)
    body = {"host": "wn1", "reason": "disk"}
    assert house.call("POST", "/v1/hosts/close", body, token="admin").status == 200
    house.now += 1.0
    director.tick(house.now)
    open_supply, shut_supply = seen
    assert (sum(open_supply.counted.values()), sum(shut_supply.counted.values())) == (1, 0)
    assert shut_supply.aside[AsideReason.SHUT] == 1
    assert house.get("/v1/jobs/25/why")["pilots"]["shut"] == 1


def test_failures_of_long_jobs_by_order_or_of_the_pilot_are_no_evidence(house, farm, watch):
    hole, _ = farm
    for cause, lasts in (("exit", 60.5), ("pilot-shutdown", 1.0)):
        for _ in range(6):
            (job,) = house.claim(hole)
            started, state = house.now, "Failed" if cause == "exit" else "Released"
            house.now += lasts
            house.report(hole, job, state, cause=cause, exit_code=1, started=started, ended=house.now)
    for _ in range(6):
        (job,) = house.claim(hole)
        assert house.control("kill", job["id"]).status == 200
        house.report(hole, job, "Failed", cause="exit", exit_code=1, started=house.now, ended=house.now)
    watch.tick(house.now)
    assert (hole_of(house)["failures"], hole_of(house)["shut"]) == (0, False)


def test_why_says_so_with_the_numbers_and_when_it_is_tried_again(house, farm, watch):
    hole, good = farm
    house.claim(hole)
    shut(house, watch, hole)
    told = why(house, hole)
    assert (told["verdict"], told["who"]) == (
        "host is shut", "time, it is tried by one job; or an administrator: lode host open wn1 --site North",
    )  # fmt: skip
    assert told["summary"].startswith(
        "Its host, wn1 at North: it gets no jobs, since 5 of 5 attempts from 2 task queues"
    )
    assert told["summary"].endswith("it is tried with one job in 15 min.")
    (step,) = [one for one in told["chain"] if one["step"] == "host"]
    assert step["record"]["evidence"]["failures"] == 5
    (step,) = [one for one in why(house, good)["chain"] if one["step"] == "host"]
    assert (step["holds"], step["text"]) == (True, "it runs on wn2 at North, which gets jobs")


def test_one_job_tries_it_and_a_success_opens_it(house, farm, watch):
    hole, _ = farm
    second = house.pilot(node={"cores": 4, "host": "wn1"})
    shut(house, watch, hole)
    house.now += 899.0
    assert house.claim(hole, 3) == house.claim(second) == []
    house.now += 1.0
    (probe,) = house.claim(hole, 3)
    assert house.claim(second) == house.claim(hole) == []
    house.report(hole, probe, "Running", started=house.now)
    house.report(hole, probe, "Done", started=house.now, ended=house.now + 5.0)
    assert hole_of(house)["shut"] is False
    assert len(house.claim(second, 2)) == 2
    # What shut it before counts no more; that it was shut does, for a day.
    watch.tick(house.now)
    assert (hole_of(house)["shut"], hole_of(house)["trips"]) == (False, 1)
    house.now += 86_400.0
    watch.tick(house.now)
    assert host_records(house.side.db) == {}


def test_a_probe_that_fails_at_once_shuts_it_for_longer(house, farm, watch):
    hole, _ = farm
    shut(house, watch, hole)
    house.now += 900.0
    (probe,) = house.claim(hole)
    house.report(hole, probe, "Failed", cause="signal", signal=11, started=house.now, ended=house.now + 1.0)
    row = hole_of(house)
    assert (row["shut"], row["trips"], row["retry_at"]) == (True, 2, house.now + 1_800.0)
    assert row["evidence"]["failures"] == 5
    assert "for the second time" in row["text"]
    assert house.claim(hole) == []


def test_a_probe_that_runs_for_more_than_a_minute_opens_it(house, farm, watch):
    hole, _ = farm
    shut(house, watch, hole)
    house.now += 900.0
    (probe,) = house.claim(hole)
    for wall, is_shut in ((60.0, True), (60.5, False)):
        house.now += wall
        running = {"id": probe["id"], "attempt": probe["attempt"], "wall_seconds": wall}
        assert house.call("POST", "/v1/pilots/heartbeat", {"jobs": [running]}, token=hole).status == 200
        assert hole_of(house)["shut"] == is_shut


def test_a_probe_that_ends_otherwise_or_finds_nothing_is_tried_again(house, farm, watch):
    hole, _ = farm
    second = house.pilot(node={"cores": 4, "host": "wn1"})
    shut(house, watch, hole)
    house.now += 900.0
    assert house.claim(hole, resource={"cores": 0, "memory_mb": 1, "norm_cpu_seconds": 1}) == []
    (probe,) = house.claim(hole)
    house.report(hole, probe, "Released", cause="pilot-shutdown")
    (probe,) = house.claim(hole)
    assert house.control("kill", probe["id"]).status == 200
    assert house.claim(second) == []
    assert house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=hole).status == 200
    assert len(house.claim(second)) == 1
    assert hole_of(house)["shut"]


def test_the_answer_to_a_probe_that_was_lost_is_given_again(house, farm, watch):
    hole, _ = farm
    shut(house, watch, hole)
    house.now += 900.0
    body = house.claim_body()
    first, again = (house.call("POST", "/v1/pilots/claim", body, token=hole).json["jobs"] for _ in range(2))
    assert len(first) == 1
    assert first == again


def test_claims_that_wait_get_nothing_from_a_shut_host(house, farm, watch):
    hole, good = farm
    assert house.control("hold", 1, 24, token="admin").status == 200
    task, connection = house.open("POST", "/v1/pilots/claim", house.claim_body(wait_s=50.0), token=hole)
    house.run(house.core.commands.note([]))
    body = {"host": "wn1", "reason": "disk"}
    assert house.call("POST", "/v1/hosts/close", body, token="admin").status == 200
    house.run(task)
    assert connection.answer().json["jobs"] == []
    task, connection = house.open("POST", "/v1/pilots/claim", house.claim_body(wait_s=50.0), token=hole)
    house.submitted(*KINDS)
    assert len(house.claim(good)) == 1
    assert not task.done()
    connection.gone.set()
    house.run(task)
    assert connection.sent == []
    # Another one is answered as soon as the host is open, and asks again.
    task, connection = house.open("POST", "/v1/pilots/claim", house.claim_body(wait_s=50.0), token=hole)
    house.run(house.core.commands.note([]))
    assert house.call("POST", "/v1/hosts/open", {"host": "wn1"}, token="admin").status == 200
    house.run(task)
    assert connection.answer().json["jobs"] == []
    assert len(house.claim(hole)) == 1


def test_what_is_shut_stays_shut_after_a_restart(house, farm, watch):
    hole, _ = farm
    shut(house, watch, hole)
    core = house.core
    sessions = load_sessions(core.reader, now=house.ticks)
    assert sessions[int(hole[5:])].host == HOLE
    gate = type(core.hosts)(core.live, core.sessions, core.commands, core.reader, core.clock)
    assert gate.shut[HOLE].record.retry_at == house.now + 900.0


def test_administrators_close_and_open_a_host(house, farm, watch):
    hole, _ = farm
    done = house.call("POST", "/v1/hosts/close", {"host": "wn1", "reason": "disk broken"}, token="admin").json
    assert done == {"site": "North", "host": "wn1", "shut": True, "pilots": 1}
    assert house.claim(hole) == []
    assert why(house, hole)["who"] == "an administrator: lode host open wn1 --site North"
    assert why(house, hole)["summary"].endswith("closed by admin since 1970-01-12 13:48 UTC: disk broken.")
    house.now += 1e6
    watch.tick(house.now)
    assert house.claim(hole) == []
    assert house.call("POST", "/v1/hosts/open", {"host": "wn1"}, token="admin").json["shut"] is False
    assert len(house.claim(hole)) == 1
    trail = house.get("/v1/audit", "admin")["entries"]
    assert [(one["action"], one["by"], one["detail"]) for one in trail if one["action"].startswith("host")] == [
        ("host-opened", "admin", ""), ("host-closed", "admin", "disk broken"),
    ]  # fmt: skip


def test_opening_a_host_makes_a_new_beginning(house, farm, watch):
    hole, _ = farm
    shut(house, watch, hole)
    house.now += 1.0
    assert house.call("POST", "/v1/hosts/open", {"host": "wn1"}, token="admin").status == 200
    watch.tick(house.now)
    assert hole_of(house)["shut"] is False
    house.now += 1.0
    fails(house, hole)
    watch.tick(house.now)
    assert hole_of(house)["trips"] == 1


def test_a_name_that_two_sites_have_needs_its_site(house):
    house.pilot(node={"host": "wn1"})
    house.pilot("South", node={"host": "wn1"})
    refused = house.call("POST", "/v1/hosts/close", {"host": "wn1", "reason": "x"}, token="admin")
    assert (refused.status, refused.json["error"]["data"]["choices"]) == (400, ["North", "South"])
    body = {"host": "wn1", "site": "South", "reason": "x"}
    assert house.call("POST", "/v1/hosts/close", body, token="admin").status == 200
    assert [(row["site"], row["shut"]) for row in house.get("/v1/hosts")["hosts"]] == [
        ("North", False), ("South", True),
    ]  # fmt: skip
    unknown = house.call("POST", "/v1/hosts/close", {"host": "wn7", "reason": "x"}, token="admin")
    assert (unknown.status, unknown.json["error"]["message"]) == (400, "No pilot lives on a host wn7.")


@pytest.mark.parametrize("reported", [None, 7, "", "x" * 256, "a\nb"])
def test_a_pilot_without_a_host_is_never_judged(house, watch, reported):
    pilot = house.pilot(node={"cores": 4, "host": reported})
    house.submitted(*KINDS * 3)
    for _ in range(6):
        (job,) = house.claim(pilot)
        house.report(pilot, job, "Failed", cause="exit", exit_code=1, started=house.now, ended=house.now)
    watch.tick(house.now)
    assert house.get("/v1/hosts", "admin")["hosts"] == []


def test_with_one_host_only_nothing_is_shut(house, watch):
    pilot = house.pilot(node={"cores": 4, "host": "wn1"})
    house.submitted(*KINDS * 5)
    for _ in range(10):
        (job,) = house.claim(pilot)
        house.report(pilot, job, "Failed", cause="exit", exit_code=1, started=house.now, ended=house.now)
    watch.tick(house.now)
    assert (hole_of(house)["failures"], hole_of(house)["shut"]) == (10, False)


def test_users_see_the_hosts_with_pilots_of_their_vo(house, farm, watch):
    house.user("olaf", "guests", vo="other")
    shut(house, watch, farm[0])
    assert hole_of(house, "ann")["shut"]
    assert house.get("/v1/hosts", "olaf")["hosts"] == []


def test_old_failures_are_forgotten(house, farm, watch):
    shut(house, watch, farm[0])
    house.now += 3_601.0
    watch.tick(house.now)
    assert house.side.db.only("SELECT count(*) FROM quick_failure") == (0,)


@pytest.mark.slow
def test_of_a_flood_of_failures_the_last_are_kept(house, watch):
    def flood(tx):
        for n in range(5_100):
            note_failure(tx, Failure(house.now, HostName("North", f"wn{n}"), 1, n, 1.0))

    house.do(Change(flood))
    watch.tick(house.now)
    first, last, n = house.side.db.only("SELECT min(id), max(id), count(*) FROM quick_failure")
    assert (last, n) == (5_100, 4_999)
    assert first == 102


def test_an_order_that_came_first_is_not_overruled(house, farm, watch):
    """The background process judges by what it read before an administrator opened the host."""
    hole, _ = farm
    fails(house, hole)
    ahead = HostWatch(house.side.db, lambda *ask: late.append(ask))
    late = []
    ahead.tick(house.now)
    house.now += 1.0
    assert house.call("POST", "/v1/hosts/open", {"host": "wn1"}, token="admin").status == 200
    house.post(*late[0])
    assert hole_of(house)["shut"] is False
    assert len(house.claim(hole)) == 1


# --- what pilots find wrong with their nodes ------------------------------------------------------------------------------

FULL = "No space left on device in /scratch/lode-x"


def leaves(house, pilot, reason="node-fault", message=FULL):
    assert (
        house.call("POST", "/v1/pilots/leave", {"reason": reason, "message": message}, token=pilot).status
        == 200
    )


def test_a_node_of_no_use_that_stops_the_pilots_is_named_for_the_queue_and_in_lists(house, backend):
    house.submitted({"CPUTime": 500, "Site": "North"})
    backend.now = house.now
    director = house.director(backend)
    director.tick(house.now)
    leaves(house, house.pilot(node={"cores": 4, "host": "wn1"}))
    house.side.keeper.ask_director = director.now
    house.side.keeper.refresh(house.now, rest=0.0)
    place = "/v1/queues/why?path=North/ce.north/short"
    assert f"; but the last pilot there left on wn1: node-fault: {FULL}." in house.get(place)["summary"]
    director.breakers[QueueId("North", "ce.north", "short")] = Breaker(
        failures=1, reason=f"node-fault: {FULL} (on wn1)"
    )
    house.side.keeper.refresh(house.now, rest=0.0)
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["main_reason"]) == ("not now", "node-fault")
    assert f"node-fault: {FULL} (on wn1)" in told["summary"]
    judged = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    assert [one.reason for one in judged.values()] == ["node-fault"]
    house.pilot(node={"cores": 4, "host": "wn2"})
    assert "node-fault" not in house.get(place)["summary"]


def test_a_pilot_that_finds_its_node_of_no_use_shuts_the_host_and_says_so(house):
    house.submitted({"CPUTime": 500})
    first, other = (house.pilot(node={"cores": 4, "host": "wn1"}) for _ in range(2))
    leaves(house, first)
    row = hole_of(house)
    assert (row["shut"], row["fault"], row["retry_at"]) == (True, FULL, house.now + 900.0)
    assert f"since a pilot there found: {FULL}; it is tried with one job in 15 min" in row["text"]
    assert FULL in why(house, first)["summary"]
    assert why(house, first)["who"] == "the site administrator, by mending the node"
    assert FULL in why(house, other)["summary"]
    assert house.get(f"/v1/pilots/{first[5:]}")["state"] == "Aborted"
    (entry,) = house.get("/v1/audit?action=host-shut", "admin")["entries"]
    assert FULL in entry["detail"]
    assert house.claim(other) == []


@pytest.mark.parametrize(("reason", "state"), [("drained", "Done"), ("error", "Aborted")])
def test_a_pilot_that_leaves_for_another_reason_shuts_nothing(house, reason, state):
    pilot = house.pilot(node={"cores": 4, "host": "wn1"})
    leaves(house, pilot, reason)
    assert house.get(f"/v1/pilots/{pilot[5:]}")["state"] == state
    assert house.get("/v1/hosts", "admin")["hosts"] == []


def test_a_pilot_that_names_no_host_shuts_none(house):
    leaves(house, house.pilot())
    assert house.get("/v1/hosts", "admin")["hosts"] == []


def test_a_job_that_met_a_bad_node_waits_for_another_one(house):
    """No attempt is charged, and the job says what its node was."""
    job = house.submitted({"CPUTime": 500, "MaxAttempts": 1})
    hole, good = (house.pilot(node={"cores": 4, "host": host}) for host in ("wn1", "wn2"))
    (found,) = house.claim(hole)
    house.report(hole, found, "Running", started=house.now)
    house.report(hole, found, "Released", cause="node-fault", message=f"{FULL}.")
    row = house.get(f"/v1/jobs/{job}")
    assert row["state"] == "Waiting"
    assert row["reason"] == f"the node failed: {FULL}."
    assert FULL in house.get(f"/v1/jobs/{job}/why")["summary"]
    assert hole_of(house)["fault"] == FULL
    assert house.claim(hole) == []
    leaves(house, hole)  # says nothing new
    assert hole_of(house)["trips"] == 1
    (again,) = house.claim(good)
    assert (again["id"], again["attempt"]) == (job, 2)
    house.report(good, again)


@pytest.mark.parametrize("host", ["wn1", ""])
def test_a_pilot_that_found_its_node_of_no_use_gets_no_more(house, host):
    """Also one that does not say why, or where it is; other pilots of the host get none either."""
    house.submitted(*[{"CPUTime": 500}] * 3)
    hole, beside = (house.pilot(node={"cores": 4, "host": host}) for _ in range(2))
    (found,) = house.claim(hole)
    house.report(hole, found, "Released", cause="node-fault")
    assert house.claim(hole) == []
    assert len(house.claim(beside)) == (not host)


def test_a_pilot_that_hands_back_all_that_it_gets_gets_no_more(house, monkeypatch):
    monkeypatch.setattr(sessions, "_MOST_UNUSED", 3)
    house.submitted(*[{"CPUTime": 500}] * 2)
    pilot = house.pilot(node={"cores": 4, "host": "wn1"})
    for end in ["returned"] * 3 + ["", *["returned"] * 4]:
        (job,) = house.claim(pilot)
        if end:
            house.report(pilot, job, "Released", cause=end)
        else:
            house.report(pilot, job)
    assert house.claim(pilot) == []
    assert len(house.claim(house.pilot(node={"cores": 4, "host": "wn2"}))) == 1


def test_a_probe_that_meets_a_bad_node_leaves_the_host_shut_for_longer(house):
    house.submitted({"CPUTime": 500}, {"CPUTime": 500})
    first, second = (house.pilot(node={"cores": 4, "host": "wn1"}) for _ in range(2))
    leaves(house, first)
    house.now += 901.0
    (probe,) = house.claim(second)
    house.report(second, probe, "Released", cause="node-fault", message=f"{FULL}.")
    row = hole_of(house)
    assert (row["shut"], row["trips"], row["retry_at"]) == (True, 2, house.now + 1_800.0)
