"""Push: a pilot that is bound to one job, from its storage to its end, on a real database."""

from __future__ import annotations

import random

import pytest
from tests.contract.conftest import OFFER, QUEUES
from tests.contract.test_bookings import Limited
from tests.contract.test_reconciler import CLEAN, GHOSTS, spoil

from lodesman.base.errors import Unauthorized, Unavailable
from lodesman.decide.director.supply import PilotStanding
from lodesman.server.loops.standing import standing_of
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import (
    bound_attempts,
    live_attempts,
    pilot_by_id,
    pilots_in_short,
    running_jobs,
    running_jobs_by_site,
)
from lodesman.server.store.read.why import binding_of
from lodesman.server.writer.bound import claim_bound, unbind
from lodesman.server.writer.pilots import (
    drain_pilots,
    end_pilot,
    hash_token,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.server.writer.report import give_back
from lodesman.server.writer.sessions import PilotSession, takes_jobs
from lodesman.server.writer.site_mask import close_site
from lodesman.wire.nodes import Closing
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState

NODE = {"cores": 8, "host": "n1"}


class Push:
    """A house with pilots of a queue that is pushed to."""

    def __init__(self, house) -> None:
        self.house = house
        self.numbers = 0

    def send(self, tq_id, count=1, *, queue="q", submitted=True, **more):
        """Store pilots as the director does, and submit those that got a job; their ids."""
        new = []
        for _ in range(count):
            self.numbers += 1
            stamp = f"push-{self.numbers}"
            new.append(NewPilot(
                stamp=stamp, vo="vo", site="S1", ce="ce", queue=queue, request={**OFFER, "vo": "vo"}, tq_id=tq_id,
                join_hash=hash_token(stamp + "-join"), **{"bound": True, **more},
            ))  # fmt: skip
        ids = self.house.do(Change(prepare_pilots, self.house.live, new))
        stamps = [one.stamp for one in new[: len(ids)]]
        if submitted:
            self.house.do(
                Change(pilots_submitted, self.house.live, {one: (f"n-{one}", "") for one in stamps})
            )
        return ids

    def join(self, pilot, node=NODE, **more):
        house = self.house
        stamp = pilot_by_id(house.reader, pilot).stamp
        row = house.do(Change(join_pilot, house.live, stamp + "-join", "nonce", node, **more)).row
        house.sessions[pilot] = PilotSession(row, now=house.clock)
        return row

    def claim(self, pilot, token="token-of-1", **more):
        return self.house.do(Change(claim_bound, self.house.live, pilot, token, **more))

    def run(self, pilot):
        """It joins and takes its job."""
        self.join(pilot)
        (claimed,) = self.claim(pilot)
        return claimed

    def tq(self, job):
        return self.house.job(job).task_queue

    def one(self, **more):
        """A job, and a pilot that is bound to it."""
        job = self.house.submit(**more).first
        (pilot,) = self.send(self.tq(job))
        return job, pilot


@pytest.fixture
def push(house):
    return Push(house)


def whole(house):
    """What must hold at any time: memory is what is stored, counters count, nothing is a suspect."""
    assert house.live.pilots.bound == bound_attempts(house.reader)
    held = {(pilot, one) for pilot, some in house.live.pilots.held.items() for one in some}
    assert held == {(one.pilot, one.attempt) for one in live_attempts(house.reader)}
    assert house.reconcile() == CLEAN


def waits_untouched(house, job, why):
    """A job that was bound waits again, and has all its attempts left."""
    found = house.job(job)
    assert (found.state, why in found.reason) == ("Waiting", True), (found.state, found.reason)
    (max_attempts, attempt) = house.reader.only("SELECT max_attempts, attempt FROM job WHERE id = ?", (job,))
    ended = house.reader.only(
        "SELECT count(*) FROM attempt WHERE job_id = ? AND cause != 'not-taken'", (job,)
    )[0]
    assert max_attempts - attempt == 3 - ended
    whole(house)


# --- binding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [True, False])
def test_a_job_is_bound_when_its_pilot_is_stored(house, push, rows):
    job, pilot = push.one(rows=rows)
    assert house.state(job) == "Matched"
    assert pilot_by_id(house.reader, pilot).bound_job == job
    assert house.events(job)[-1] == "Matched"
    assert binding_of(house.reader, job) == (pilot, QUEUES[0], house.clock, None)
    whole(house)


def test_only_as_many_pilots_are_stored_as_there_are_jobs(house, push):
    first = house.submit(2).first
    house.submit(1, key=house.key(norm_cpu_seconds=200))  # another task queue's
    sent = push.send(push.tq(first), 5)
    assert [pilot_by_id(house.reader, one).bound_job for one in sent] == [first, first + 1]
    assert len(pilots_in_short(house.reader)) == 2
    assert push.send(push.tq(first), 3) == []
    whole(house)


def test_pilots_of_either_kind_share_a_task_queue(house, push):
    first = house.submit(3).first
    push.send(push.tq(first), 1)
    assert [one.job_id for one in house.claim(house.pilot(), 3)] == [first + 1, first + 2]
    whole(house)


@pytest.mark.parametrize("offer", [{"cores": 1}, {"memory_mb": 10}, {"platforms": ["other"]}])
def test_what_does_not_fit_is_not_bound(house, push, offer):
    job = house.submit(key=house.key(cores=2, memory_mb=100, platforms=("linux",))).first
    new = NewPilot(
        stamp="small", vo="vo", site="S1", ce="ce", queue="q", request={**OFFER, "vo": "vo", **offer},
        tq_id=push.tq(job), join_hash=b"x", bound=True,
    )  # fmt: skip
    assert house.do(Change(prepare_pilots, house.live, [new])) == []
    assert house.state(job) == "Waiting"


def test_nothing_is_bound_in_a_queue_that_is_closed_or_for_a_task_queue_that_is_held(house, push):
    job = house.submit().first
    house.do(Change(close_site, house.live, closing()))
    assert push.send(push.tq(job)) == []
    held = house.submit(held="no queue", key=house.key(norm_cpu_seconds=300)).first
    assert push.send(house.job(held).task_queue, queue="q2") == []
    assert {house.state(job), house.state(held)} == {"Waiting", "Held"}
    whole(house)


def test_a_batch_that_fails_binds_nothing(house, push, monkeypatch):
    job = house.submit().first

    def fails(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("lodesman.server.store.write.pilots.insert_pilot", fails)
    with pytest.raises(Unavailable, match="nothing was stored"):
        push.send(push.tq(job))
    monkeypatch.undo()
    assert house.state(job) == "Waiting"
    whole(house)
    assert len(push.send(push.tq(job))) == 1


# --- the claim --------------------------------------------------------------------------------------------------------


def test_the_pilot_gets_its_job_once_and_no_other(house, push):
    job, pilot = push.one(count=2, rows=True)
    claimed = push.run(pilot)
    assert (claimed.job_id, claimed.attempt) == (job, 1)
    assert push.claim(pilot) == [claimed]  # the answer was lost
    assert push.claim(pilot, "token-of-2") == []
    house.report(pilot, claimed, "Running")
    house.report(pilot, claimed)
    assert push.claim(pilot, "token-of-3") == []
    assert (house.state(job), house.state(job + 1)) == ("Done", "Waiting")
    whole(house)


def test_a_restart_forgets_neither_a_binding_nor_an_answer(house, push):
    job, pilot = push.one()
    house.restart()
    assert house.live.pilots.bound == {pilot: (job, 1)}
    claimed = push.run(pilot)
    house.restart()
    assert push.claim(pilot) == [claimed]
    assert push.claim(pilot, "token-of-2") == []
    whole(house)


def test_before_it_joins_and_after_it_ended_a_pilot_gets_nothing(house, push):
    job, pilot = push.one()
    with pytest.raises(Unauthorized):
        push.claim(pilot)
    house.end_pilot(pilot)
    with pytest.raises(Unauthorized):
        push.claim(pilot)
    waits_untouched(house, job, "gone")


def test_a_pilot_that_never_asks_loses_its_job_as_any_other(house, push):
    """Its heartbeats do not name it: `give_back`, or the end of its lease."""
    job, pilot = push.one()
    push.join(pilot)
    house.do(Change(end_pilot, house.live, pilot, PilotState.LOST, "its lease ended", cause="lease-expired"))
    waits_untouched(house, job, "its lease ended")


def test_a_pilot_that_lives_and_never_asks_loses_its_job_too(house, push):
    job, pilot = push.one()
    push.join(pilot)
    assert house.do(Change(give_back, house.live, pilot, [(job, 1)])) == 1
    waits_untouched(house, job, "three heartbeats")
    assert push.claim(pilot) == []


def test_an_attempt_that_ran_counts_when_its_pilot_is_lost(house, push):
    job, pilot = push.one(max_attempts=1)
    claimed = push.run(pilot)
    house.report(pilot, claimed, "Running")
    house.end_pilot(pilot)
    assert house.state(job) == "Failed"
    assert house.report(pilot, claimed).accepted  # ADR 0022
    assert house.state(job) == "Done"


# --- what ends a binding ----------------------------------------------------------------------------------------------


def closing(**more):
    return Closing(**{
        "site": "S1", "ce": "", "queue": "", "closed_by": "root", "reason": "power", "since": 0.0, "until": None,
        "keep_pilots": False, **more,
    })  # fmt: skip


ENDS = {
    "aborted": (lambda h, p: h.do(Change(end_pilot, h.live, p, PilotState.ABORTED, "walltime")), "walltime"),
    "refused": (
        lambda h, p: h.do(Change(pilots_submitted, h.live, {"push-1": (None, "no quota")})),
        "no quota",
    ),
    "drained": (lambda h, p: h.do(Change(drain_pilots, h.live, [p])), "drained"),
    "closed": (lambda h, _: h.do(Change(close_site, h.live, closing())), "power"),
    "too old": (lambda h, p: h.do(Change(unbind, h.live, [p], "it waited too long")), "too long"),
    "rescheduled": (lambda h, p: h.control("reschedule", pilot_by_id(h.reader, p).bound_job), "reschedule"),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_job_waits_again_and_loses_no_attempt(house, push, how):
    end, why = ENDS[how]
    job = house.submit(max_attempts=3).first
    (pilot,) = push.send(push.tq(job), submitted=how != "refused")
    end(house, pilot)
    waits_untouched(house, job, why)
    row = pilot_by_id(house.reader, pilot)
    assert row.ended_at is not None or row.drain  # so its batch system is asked to cancel it
    house.restart()
    waits_untouched(house, job, why)
    (claimed,) = house.claim(house.pilot("S2"))
    assert (claimed.job_id, claimed.attempt) == (job, 2)


def test_a_pilot_that_lost_its_job_gets_nothing_if_it_starts_all_the_same(house, push):
    job, pilot = push.one()
    house.do(Change(unbind, house.live, [pilot], "it waited too long"))
    assert push.join(pilot).drain
    assert push.claim(pilot) == []
    waits_untouched(house, job, "too long")


@pytest.mark.parametrize(("action", "state"), [("kill", "Killed"), ("hold", "Held"), ("delete", "Deleted")])
def test_a_bound_job_is_controlled_as_one_that_waits(house, push, action, state):
    job, pilot = push.one(count=2)
    assert house.control(action, job).changed == 1
    assert house.state(job) == state
    row = pilot_by_id(house.reader, pilot)
    assert (row.drain, f"job {job}" in row.drain_reason) == (1, True)
    push.join(pilot)
    assert push.claim(pilot) == []
    assert house.state(job) == state
    whole(house)


def test_there_is_nothing_to_release_in_a_bound_job(house, push):
    job, pilot = push.one()
    assert house.control("release", job).examples[0].reason == "it is Matched"
    assert house.live.pilots.bound == {pilot: (job, 1)}


def test_a_held_job_is_released_and_bound_anew(house, push):
    job, _ = push.one()
    house.control("hold", job)
    house.control("release", job)
    (again,) = push.send(push.tq(job))
    assert push.run(again).attempt == 2
    whole(house)


def test_a_job_that_was_taken_is_killed_as_ever(house, push):
    job, pilot = push.one()
    claimed = push.run(pilot)
    house.control("kill", job)
    assert house.live.pilots.stop_orders[pilot] == {(job, claimed.attempt): "because"}
    assert house.control("hold", job, may=lambda *_: True).changed == 0


def test_any_number_of_pilots_that_never_come_costs_no_attempt(house, push):
    job = house.submit(max_attempts=1).first
    for _ in range(4):
        (pilot,) = push.send(push.tq(job))
        house.end_pilot(pilot, PilotState.ABORTED)
        assert house.state(job) == "Waiting"
    house.restart()
    (pilot,) = push.send(push.tq(job))
    claimed = push.run(pilot)
    assert claimed.attempt == 5
    house.report(pilot, claimed, "Running")
    house.end_pilot(pilot)
    assert house.state(job) == "Failed"  # this one began


def test_a_bound_job_whose_pilot_is_gone_is_found(house, push):
    job, pilot = push.one()
    spoil(house, "UPDATE pilot SET ended_at = 5, state = 'Lost' WHERE id = ?", pilot)
    assert house.reconcile() == {**CLEAN, "attempts_of_ended_pilots": 1}
    waits_untouched(house, job, "that pilot had ended")


def test_an_attempt_that_ended_without_its_job_sends_the_job_back(house, push):
    job, _ = push.one(max_attempts=1)
    spoil(
        house,
        "UPDATE attempt SET ended_at = 5, outcome = 'Released', cause = 'not-taken' WHERE job_id = ?",
        job,
    )
    assert house.reconcile() == GHOSTS
    assert house.state(job) == "Waiting"


# --- where it turns out to be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"cores": 1, "host": "n1"}, "1 core"),
        ({"cores": 8, "memory_mb": 50, "host": "n1"}, "50 MB"),
        (NODE, ""),
    ],
)
def test_on_a_node_that_is_too_small_the_job_goes_back(house, push, node, why):
    job = house.submit(key=house.key(cores=2, memory_mb=100)).first
    (pilot,) = push.send(push.tq(job))
    push.join(pilot, node)
    if why:
        waits_untouched(house, job, f"pilot {pilot} joined in S1/ce/q/n1: ")
        assert push.claim(pilot) == []
    else:
        assert len(push.claim(pilot)) == 1


def test_a_bound_job_counts_for_limits_where_its_pilot_was_sent_and_then_where_it_is(house, push):
    Limited(house).put("{\nname a\nenabled true\nlimit users {*} hosts {*} to slots=1\n}\n")
    first = house.submit(3).first
    (one,) = push.send(push.tq(first), 2)  # both would count for a host that is not known yet
    push.join(one)
    assert len(push.claim(one)) == 1
    (other,) = push.send(push.tq(first))
    push.join(other)  # on the same host
    waits_untouched(house, first + 1, "where limits are full")
    house.report(one, push.claim(one)[0])
    (third,) = push.send(push.tq(first))
    push.join(third)
    assert len(push.claim(third)) == 1
    whole(house)


def test_a_full_limit_lets_nothing_be_bound(house, push):
    Limited(house).put("{\nname a\nenabled true\nlimit users {*} to slots=1\n}\n")
    first = house.submit(3).first
    (one,) = push.send(push.tq(first), 3)
    assert house.claim(house.pilot("S2")) == []
    house.end_pilot(one)
    assert len(push.send(push.tq(first), 3)) == 1
    whole(house)


# --- what others see --------------------------------------------------------------------------------------------------


def test_the_director_counts_it_for_no_task_queue(house, push):
    _, pilot = push.one()
    (seen,) = pilots_in_short(house.reader)
    assert (standing_of(seen, house.clock), takes_jobs(seen, house.clock)) == (PilotStanding.BOUND, False)
    assert (running_jobs(house.reader), running_jobs_by_site(house.reader)) == (0, {})
    push.run(pilot)
    (seen,) = pilots_in_short(house.reader)
    assert (standing_of(seen, house.clock), takes_jobs(seen, house.clock)) == (PilotStanding.DRAINING, False)
    assert (running_jobs(house.reader), running_jobs_by_site(house.reader)) == (1, {"S1": 1})


# --- any order of deeds -----------------------------------------------------------------------------------------------


class Deeds:
    """Seven jobs of one task queue, pilots that are bound to them, and what was handed out."""

    def __init__(self, push, seed) -> None:
        self.rng, self.push, self.house = random.Random(seed), push, push.house
        self.jobs = range(self.house.submit(4).first, self.house.submit(3, rows=True).first + 3)
        self.tq_id = push.tq(self.jobs[0])
        self.handed: list[tuple[int, int, int]] = []
        self.live: dict[int, object] = {}

    def any_pilot(self):
        return self.rng.choice(sorted(self.live)) if self.live else 0

    def send(self) -> None:
        self.live.update(dict.fromkeys(self.push.send(self.tq_id, self.rng.randint(1, 3))))

    def join(self) -> None:
        pilot = self.any_pilot()
        if pilot and pilot_by_id(self.house.reader, pilot).joined_at is None:
            self.push.join(pilot)

    def claim(self) -> None:
        pilot = self.any_pilot()
        if pilot in self.house.live.pilots.running:
            for one in self.push.claim(pilot, f"token-{pilot}-{self.rng.randint(1, 2)}"):
                self.handed.append((pilot, one.job_id, one.attempt))
                self.live[pilot] = one

    def end(self) -> None:
        pilot = self.any_pilot()
        claimed = self.live.pop(pilot, None)
        if claimed is not None and self.rng.random() < 0.7:
            self.house.report(pilot, claimed, self.rng.choice(["Done", "Running"]))
        if pilot:
            self.house.end_pilot(pilot)

    def control(self) -> None:
        self.house.control(self.rng.choice(["hold", "release", "reschedule"]), self.rng.choice(self.jobs))

    def drain(self) -> None:
        self.house.do(Change(drain_pilots, self.house.live, [self.any_pilot()]))

    def one(self) -> None:
        self.house.clock += 1
        deeds = [self.send, self.join, self.join, self.claim, self.claim, self.end, self.control, self.drain]
        self.rng.choice([*deeds, self.house.restart])()


@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_of_deeds_each_attempt_is_handed_out_once_and_no_job_is_lost(house, push, seed):
    deeds = Deeds(push, seed)
    for _ in range(60):
        deeds.one()
        whole(house)
    assert deeds.handed
    assert len({one[1:] for one in deeds.handed}) == len(set(deeds.handed)), "an attempt belongs to one pilot"
    for pilot in deeds.live:
        house.end_pilot(pilot)
    assert {house.state(job).value for job in deeds.jobs} <= {"Waiting", "Held", "Done", "Failed"}
    whole(house)
