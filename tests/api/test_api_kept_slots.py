"""Free slots to which no pilot is sent since a closing is announced: every answer names the closing."""

from __future__ import annotations

import pytest

from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.reasons import MainReasons

JOB = {"CPUTime": 60, "Site": "North"}
WHERE = "North is to be closed from 1970-01-12 14:46 UTC, says admin: power"
OPENS = "admin or another administrator: lode site open North"


class Slots:
    """A batch system with slots at North, and one at South; in one of each a pilot runs."""

    queues = ()

    def __init__(self, house, slots=2):
        self.house, self.slots, self.backend = house, slots, self

    def load(self, queue):
        slots = self.slots if queue.site == "North" else 1
        return BatchLoad(
            waiting=0, running=1, others_waiting=0, others_running=0, observed_at=self.house.now,
            slots=slots,
        )  # fmt: skip


@pytest.fixture
def busy(house):
    """A pilot of one core at North that runs a job, beside a free slot."""
    return one_busy(house)


def one_busy(house, slots=2):
    pilot = house.pilot(cores=1, node={"cores": 1})
    house.submitted(JOB)
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running", started=house.now)
    return house.director(Slots(house, slots))


def announce(house, **more):
    body = {"site": "North", "reason": "power", "begins": house.now + 3_600.0, **more}
    assert house.call("POST", "/v1/sites/close", body, token="admin").status == 200


def look(house, director=None):
    house.now += 1.0
    if director is not None:
        director.tick(house.now)
        director.iterated_at = house.now
    house.side.keeper.refresh(house.now, rest=0.0)


def judged(house):
    found = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    return {tq_id: (one.reason, one.detail) for tq_id, one in found.items()}


@pytest.mark.parametrize("decides", [True, False])
def test_the_closing_is_named_and_not_time(house, busy, decides):
    house.submitted(JOB)
    look(house, busy)
    announce(house)
    look(house, busy if decides else None)
    told = house.get("/v1/jobs/2/why")
    assert (told["verdict"], told["main_reason"]) == ("not now", "closed-by-administrator")
    assert told["summary"].endswith(
        f"but no pilot is free, and none is sent to the slots that are: {WHERE}; "
        "1 running pilot may take it, if a job there ends in time."
    )
    assert told["who"] == f"{OPENS}; or time, as the jobs of running pilots end"
    assert told["turn"]["start"] is None
    (step,) = (one for one in told["chain"] if one["step"] == "site_mask")
    assert step["holds"] is False
    assert judged(house) == {1: ("closed-by-administrator", "North")}


def test_a_plan_and_the_queue_name_the_same(house, busy):
    house.submitted(JOB)
    look(house, busy)
    announce(house)
    look(house, busy)
    house.user("eva", "physics", admin=True)
    queue = house.get("/v1/queues/why?path=North/ce.north/short", "eva")
    assert (queue["main_reason"], queue["who"]) == ("no-room-for-pilots", OPENS)
    plan = house.call(
        "POST", "/v1/plan/job", {"jobs": [{"Executable": "/bin/true", **JOB, "CPUTime": 90}]}, token="ann"
    )
    (cohort,) = plan.json["cohorts"]
    assert OPENS in cohort["who"]


def test_jobs_behind_others_are_told_of_it_too(house, busy):
    house.submitted(*[JOB] * 6)  # the free slot takes a pilot with four cores
    look(house, busy)
    announce(house)
    look(house, busy)
    told = house.get("/v1/jobs/7/why")
    assert told["main_reason"] == "queued-behind"
    assert f"of 2 slots of these queues 1 is free, and no pilot is sent there: {WHERE}; " in told["summary"]
    assert told["who"] == f"{OPENS}; or time, as the jobs before it start and end"
    assert house.get("/v1/jobs/2/why")["main_reason"] == "closed-by-administrator"
    first = [house.get(f"/v1/jobs/{n}/why")["main_reason"] for n in range(2, 8)]
    assert first == ["closed-by-administrator"] * 4 + ["queued-behind"] * 2
    (reason,) = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now).values()
    assert (reason.reason, reason.next_reason, reason.next_jobs) == (
        "queued-behind",
        "closed-by-administrator",
        4,
    )


def test_where_no_slot_is_free_time_is_the_answer(house):
    director = one_busy(house, slots=1)
    house.submitted(JOB)
    look(house, director)
    announce(house)
    look(house, director)
    told = house.get("/v1/jobs/2/why")
    assert (told["main_reason"], told["who"]) == (
        "pilots-busy",
        "time, as the jobs of running pilots end",
    )
    assert judged(house) == {1: ("pilots-busy", "")}


def test_a_pilot_at_a_site_that_stays_open_may_take_it_and_the_closing_is_named_beside(house, busy):
    pilot = house.pilot("South", cores=1, platforms=["el9"], node={"cores": 1})
    both = {"CPUTime": 60}
    house.submitted(both)
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running", started=house.now)
    house.submitted(both)
    look(house, busy)
    announce(house)
    look(house, busy)
    told = house.get("/v1/jobs/3/why")
    assert (told["main_reason"], told["who"]) == (
        "pilots-busy",
        f"{OPENS}; or time, as the jobs of running pilots end",
    )
    assert f"1 is free, and no pilot is sent there: {WHERE}; " in told["summary"]
    assert judged(house) == {2: ("pilots-busy", "")}


def test_when_it_is_opened_a_pilot_is_expected(house, busy):
    house.submitted(JOB)
    look(house, busy)
    announce(house)
    look(house, busy)
    assert house.call("POST", "/v1/sites/open", {"site": "North"}, token="admin").status == 200
    look(house, busy)
    assert house.get("/v1/jobs/2/why")["main_reason"] == "pilot-expected"
    assert judged(house) == {1: ("pilot-expected", "")}
