"""`now` is said of as many jobs as pilots take, and of the others when they start."""

from __future__ import annotations

import random

import pytest

from lodesman.server.loops.reasons import MainReasons

pytestmark = pytest.mark.stores

SOUTH = {"Site": "South", "CPUTime": 500}


def why(house, job, token="ann"):
    return house.get(f"/v1/jobs/{job}/why", token)


def decided(house, backend):
    """The director has looked, and found all slots free."""
    house.director(backend).tick(house.now)


def test_the_first_job_of_an_idle_machine_is_now(house, backend):
    decided(house, backend)
    house.now += 9.0
    house.submitted(SOUTH)
    told = why(house, 1)
    assert (told["verdict"], told["main_reason"]) == ("now", "pilot-expected")
    assert told["turn"] == {"before": 0, "soon": 1, "slots": 1, "free_slots": 1, "start": {
        "low_seconds": 0.0, "high_seconds": 60.0, "starts": 0, "seconds": 0.0, "running": 0, "job_seconds": None,
    }}  # fmt: skip


def test_a_member_of_a_large_array_is_not_now_because_the_first_one_is(house, backend):
    decided(house, backend)
    house.submitted({**SOUTH, "Parameters": 1_000_000})
    assert why(house, 1)["verdict"] == "now"
    told = why(house, 900_000)
    assert (told["verdict"], told["main_reason"], told["turn"]["before"]) == (
        "not now",
        "queued-behind",
        899_999,
    )
    assert told["turn"]["start"] is None
    assert "about 899,999 jobs are before it; of 1 slot of these queues 1 is free" in told["summary"]
    assert "when it starts is not known: no start of late" in told["summary"]
    assert next(one for one in told["chain"] if one["step"] == "share")["holds"] is False


def test_behind_full_slots_no_pilot_is_expected_however_many_wait(house, backend):
    decided(house, backend)
    house.submitted({**SOUTH, "Parameters": 9})
    pilot = house.pilot("South", cores=1, memory_mb=8_000, norm_cpu_seconds=100_000, platforms=["el8"])
    assert house.claim(pilot)
    for _ in range(6):
        house.prepare_pilot("South", cores=1, memory_mb=8_000)
    told = why(house, 2)
    assert (told["pilots"]["usable_waiting"], told["pilots"]["soon_starts"]) == (6, 0)
    assert (told["verdict"], told["main_reason"]) == ("not now", "pilots-busy")
    assert (told["turn"]["slots"], told["turn"]["free_slots"]) == (1, 0)
    assert "of 1 slot of these queues none is free" in told["summary"]
    assert why(house, 3)["main_reason"] == "queued-behind"


def test_what_is_free_of_a_pilot_counts(house):
    """A pilot of four cores takes four jobs of one core, and while one runs three."""
    house.submitted({"Site": "North", "Parameters": 9})
    pilot = house.pilot(cores=4)
    assert [why(house, n)["main_reason"] for n in (4, 5)] == ["next", "queued-behind"]
    house.claim(pilot)
    told = why(house, 4)
    assert (told["pilots"]["free_starts"], told["pilots"]["usable_busy"], told["main_reason"]) == (
        3,
        1,
        "next",
    )
    assert why(house, 5)["main_reason"] == "queued-behind"


@pytest.mark.parametrize("who", [("ann", "ann"), ("ann", "bob")])
def test_jobs_for_other_queues_are_not_before_it(house, who):
    """Two arrays at two sites, and a pilot at one: nobody takes its slots from the array that may run there."""
    for site, token in zip(("South", "North"), who, strict=True):
        house.submitted({"Site": site, "CPUTime": 500, "Parameters": 6}, token=token)
    pilot = house.pilot(cores=4)
    assert MainReasons(house.side.db, house.side.fresh()).judge(house.side.policy, house.now) is not None
    told = [why(house, n, "admin") for n in range(7, 13)]
    assert [one["main_reason"] for one in told] == ["next"] * 4 + ["queued-behind"] * 2
    assert [one["turn"]["before"] for one in told] == [0, 1, 2, 3, 4, 5]
    assert [job["id"] for _ in range(4) for job in house.claim(pilot)] == [7, 8, 9, 10]


def test_when_a_job_starts_at_the_rate_of_late(house):
    house.submitted({**SOUTH, "Parameters": 30})
    pilot = house.pilot("South", cores=1, memory_mb=8_000, norm_cpu_seconds=100_000, platforms=["el8"])
    for _ in range(7):
        (job,) = house.claim(pilot)
        house.now += 30.0
        house.report(pilot, job)
    (job,) = house.claim(pilot)
    house.side.fresh()  # what one refresh sees start, the next one sees end
    told = why(house, 30)
    start = told["turn"]["start"]
    assert (start["starts"], start["seconds"]) == (7, 210.0)
    assert 500 < start["low_seconds"] < 660 < start["high_seconds"] < 800
    assert (start["running"], round(start["job_seconds"])) == (1, 30)
    assert "by 1 job that runs and takes about 30 s" in told["summary"]
    rows = house.get("/v1/jobs?first=8&last=30&start=true")["jobs"]
    assert "start" not in rows[0], "it runs"
    assert rows[-1]["start"] == {name: start[name] for name in ("low_seconds", "high_seconds")}
    lows = [row["start"]["low_seconds"] for row in rows[1:]]
    assert lows == sorted(lows)
    assert "start" not in house.get("/v1/jobs?first=30")["jobs"][0]
    # So do task queues without a start of their own: it is the same pilot.
    house.submitted({**SOUTH, "CPUTime": 600})
    house.submitted(SOUTH, token="bob")
    assert why(house, 31)["turn"]["start"]["low_seconds"] > 0
    assert house.get("/v1/jobs?first=32&start=true", "bob")["jobs"][0]["start"]["high_seconds"] > 30


@pytest.mark.slow
def test_starts_come_when_they_were_foretold(house):
    """Six slots and two groups, asked about jobs that wait; after 80 s those that begin take four times as long."""
    first = {who: house.submitted({**SOUTH, "Parameters": 300}, token=who) for who in ("ann", "bob")}
    offer = {"cores": 1, "memory_mb": 8_000, "norm_cpu_seconds": 100_000, "platforms": ["el8"]}
    pilots = {house.pilot("South", **offer): 0.0 for _ in range(6)}
    rng, begun, asked, running, begin = random.Random(4), {}, [], {}, house.now
    while house.now < begin + 250.0:  # then they would be silent
        house.now = max(house.now, min(pilots.values()))
        pilot = min(pilots, key=pilots.get)
        if pilot in running:
            house.report(pilot, running.pop(pilot))
        (running[pilot],) = house.claim(pilot)
        begun[running[pilot]["id"]] = house.now
        length = 10.0 if house.now < begin + 80.0 else 40.0
        pilots[pilot] = house.now + length * rng.uniform(0.9, 1.1)
        if 40.0 < house.now - begin < 75.0 or house.now - begin > 110.0:
            who = rng.choice(["ann", "bob"])
            number = (
                first[who] + sum(first[who] <= one < first[who] + 300 for one in begun) + rng.randrange(10)
            )
            start = why(house, number, who)["turn"]["start"]
            asked.append((number, house.now, start["low_seconds"], start["high_seconds"]))
    # What was asked before that, of jobs that started after it, no one could know.
    told = [
        one for one in asked if one[0] in begun and (begun[one[0]] < begin + 80.0 or one[1] > begin + 80.0)
    ]
    inside = sum(low <= begun[one] - at <= high for one, at, low, high in told)
    assert len(told) > 20
    assert inside >= 0.85 * len(told)


def test_short_jobs_of_before_say_nothing_of_long_ones_that_run_now(house):
    house.submitted({**SOUTH, "Parameters": 30})
    pilot = house.pilot("South", cores=1, memory_mb=8_000, norm_cpu_seconds=100_000, platforms=["el8"])
    for _ in range(7):
        (job,) = house.claim(pilot)
        house.now += 10.0
        house.report(pilot, job)
    assert house.claim(pilot)
    house.side.fresh()  # what one refresh sees start, the next one sees end
    before = why(house, 30)["turn"]["start"]
    assert 150 < before["low_seconds"] < 220 < before["high_seconds"] < 300
    house.now += 80.0
    after = why(house, 30)["turn"]["start"]
    assert after["low_seconds"] < 80 * 22 < after["high_seconds"]
    assert after["job_seconds"] > 2 * before["job_seconds"]


def test_lists_counts_and_why_agree_on_whose_turn_is_next(house, backend):
    decided(house, backend)
    house.submitted({"Site": "North", "CPUTime": 500, "Parameters": 20})
    keeper = house.side.fresh()
    changed = MainReasons(house.side.db, keeper).judge(house.side.policy, house.now)
    body = {"changed": changed, "facts_at": None}
    assert house.call("POST", "/v1/service/reasons", body, token="service").status == 200
    rows = {row["id"]: row["main_reason"] for row in house.get("/v1/jobs")["jobs"]}
    assert rows == {n: why(house, n)["main_reason"] for n in rows}
    assert [n for n, reason in rows.items() if reason == "pilot-expected"] == list(range(1, 9)), (
        "2 slots of 4 cores"
    )
    counts = {one["reason"]: one["jobs"] for one in house.get("/v1/task-queues/reasons")["reasons"]}
    assert counts == {"pilot-expected": 8, "queued-behind": 12}
    metrics = house.call("GET", "/metrics", token="admin").body.decode()
    assert 'reason="queued-behind",verdict="not now"} 12.0' in metrics


def test_a_plan_says_of_as_many_jobs_as_pilots_take_that_they_are_now(house, backend):
    decided(house, backend)
    body = {"jobs": [{"Executable": "x", "Site": "North", "CPUTime": 500, "Parameters": 20}]}
    plan = house.call("POST", "/v1/plan/job", body, token="ann").json
    assert plan["verdicts"] == {"never": 0, "not now": 12, "now": 8}
    house.submitted({"Site": "North", "CPUTime": 500, "Parameters": 5})
    plan = house.call("POST", "/v1/plan/job", body, token="ann").json
    assert (plan["verdicts"], plan["cohorts"][0]["turn"]["before"]) == (
        {"never": 0, "not now": 17, "now": 3},
        5,
    )
