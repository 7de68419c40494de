"""The verdicts of `lode why` compared with what happens then, over random worlds.

now: a free pilot gets the job, or one that the director sends next. never: no pilot that lives or may be sent.
not now: no pilot that is free. Sites are closed before the director decides, or after, and some opened again.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from functools import partial
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad, CancelOutcome
from lodesman.server.live.rules import use_policy
from lodesman.server.loops.limit_use import ask_limits
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.writer.pilots import hash_token
from lodesman.wire import inner_calls
from lodesman.wire.service import LimitQuery

EVERYTHING = {"cores": 64, "memory_mb": 10**6, "norm_cpu_seconds": 10**8}
TICKS = 40

queues = st.fixed_dictionaries(
    {},
    optional={
        "Backend": st.sampled_from(["local", "local", "moon", "manual"]),
        "MaxTotalJobs": st.sampled_from([0, 10, 10]),
        "MaxWaitingJobs": st.sampled_from([0, 10, 10]),
        "GenericPilots": st.sampled_from(["yes", "no"]),
        "CPUTime": st.sampled_from([1_000, 100_000]),
        "Memory": st.sampled_from([2_000, 8_000]),
        "NumberOfProcessors": st.sampled_from([1, 4]),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Tag": st.just(["SSD"]),
        "Software": st.sampled_from([["root"], ["fluka"]]),
    },
)
jobs = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_001])},
    optional={
        "Memory": st.sampled_from([2_000, 2_001]),
        "NumberOfProcessors": st.sampled_from([1, 2]),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Site": st.sampled_from(["S0", "S1"]),
        "Tag": st.just("SSD"),
        "ForceGeneric": st.booleans(),
        "Requirements": st.sampled_from([{"Software": "root"}, {"Nonsense": "x"}]),
    },
)
worlds = st.fixed_dictionaries(
    {
        "queues": st.lists(queues, min_size=2, max_size=4),
        # Pilots by queue: free, busy or on its way.
        "pilots": st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from(["free", "busy", "coming"])), max_size=3
        ),
        "full": st.booleans(),
        "decided": st.booleans(),
        # Sites that are closed, whether their pilots stay, when that is, and for how long.
        "closings": st.lists(
            st.tuples(
                st.integers(0, 3),
                st.booleans(),
                st.sampled_from(["before", "after", "opened"]),
                st.sampled_from([None, None, 0.5, 5.0]),
            ),
            max_size=3,
            unique_by=lambda one: one[0],
        ),
        # By site, how many jobs may run there at once.
        "limits": st.dictionaries(st.integers(0, 3), st.sampled_from([0, 1, 1, 9]), max_size=3),
        "job": jobs,
    }
)


class Load:
    """A batch system that is as full as the example says, asked just now."""

    def __init__(self, house):
        self.house, self.full, self.backend = house, False, self

    def load(self, _queue):
        number = 1_000 if self.full else 0
        return BatchLoad(
            waiting=number, running=number, others_waiting=0, others_running=0, observed_at=self.house.now
        )

    def cancel(self, pilots):
        return dict.fromkeys(pilots, CancelOutcome.UNKNOWN)


class World:
    """An example made real in a house: its queues, pilots and director."""

    def __init__(self, house, example):
        self.house, self.example = house, example
        house.now += 400.0  # what the director decided in other examples is long ago
        text = "\n".join(self._site(number, one) for number, one in enumerate(example["queues"]))
        self.policies(load_resources([("s.toml", '[job_description]\nSoftware = "list"\n' + text)]))
        self.offers = house.side.policy.vo_config("lab").offers
        self.backend = Load(house)
        self.director = house.director(self.backend)
        self.director.limited = lambda queues: house.post(inner_calls.LIMITED, LimitQuery(queues))
        self.placed = {}
        self.director.launch = self._launch
        self.free, self.busy, self.coming = [], [], []
        for number, kind in example["pilots"]:
            if number < len(self.offers):
                self._pilot(self.offers[number], kind)

    def policies(self, config):
        """Each process has its own policy and finds live pilots by its own means; a refresh follows."""
        house = self.house
        house.core.policy = house.policy(config, inhabited=house.core.inhabited.requests)
        house.run(use_policy(house.core, house.core.policy))
        house.side.policy = house.policy(
            config, inhabited=lambda queues: house.side.fresh().pilots.inhabited(queues)
        )
        keeper = PoolKeeper(house.side.db, self.house.post, refresh_seconds=900.0, grace_seconds=900.0)
        keeper.tick(house.side.policy, house.now)

    def _site(self, number, parameters):
        lines = [
            f"{name} = {str(value) if isinstance(value, int | list) else repr(value)}"
            for name, value in parameters.items()
        ]
        most = self.example.get("limits", {}).get(number)
        limit = [] if most is None else [f"[site.S{number}.running_limit]\nMaxRunningJobs = {most}"]
        return "\n".join(
            [f'[site.S{number}]\nVO = ["lab"]', *limit, f"[site.S{number}.ce.c.queue.q]", *lines]
        )

    def _launch(self, decision, _offers):
        for one in decision.placement.placements:
            self.placed.setdefault(one.order.tq_id, tuple(one.queue_id))

    def _pilot(self, offer, kind):
        if kind == "coming":
            if offer.queue not in self.shut():
                self.coming.append(self.send(offer))
            return
        token = self.join(self.send(offer))
        if kind == "free":
            self.free.append(token)
            return
        filler = self.house.submit(
            {"CPUTime": 1, "Site": offer.queue.site, "Tag": list(offer.request.tags)}, token="bob"
        )
        if filler.status == 200 and self.house.claim(token, 1, resource=EVERYTHING):
            self.busy.append(token)
        else:
            self.free.append(token)

    def close(self, *moments):
        """Close the sites of these moments."""
        for number, keep, moment, seconds in self.example.get("closings", ()):
            if moment in moments and number < len(self.example["queues"]):
                until = None if seconds is None else self.house.now + seconds
                body = {"site": f"S{number}", "reason": "x", "keep_pilots": keep, "until": until}
                assert self.house.call("POST", "/v1/sites/close", body, token="admin").status == 200

    def open(self, *moments):
        """Open them, unless they opened by themselves."""
        for number, _, moment, _ in self.example.get("closings", ()):
            if moment in moments:
                self.house.call("POST", "/v1/sites/open", {"site": f"S{number}"}, token="admin")

    def shut(self):
        """The queues of which `lode why QUEUE` says that no pilot is ever sent there."""
        reasons = {offer.queue: self.queue(offer.queue)["main_reason"] for offer in self.offers}
        return {queue for queue, reason in reasons.items() if reason in ("no-backend", "capped-at-zero")}

    def queue(self, place):
        asked = urlencode({"site": place.site, "ce": place.ce, "queue": place.queue})
        return self.house.get(f"/v1/queues/why?{asked}")

    def send(self, offer):
        """A pilot as the director stores it; returns its join token."""
        self.house.pilots += 1
        stamp = f"stamp{self.house.pilots}"
        row = {
            "stamp": stamp, "vo": "lab", "site": offer.queue.site, "ce": offer.queue.ce, "queue": offer.queue.queue,
            "request": asdict(offer.request),
            "join_hash": base64.b64encode(hash_token(f"join-{stamp}")).decode(),
        }  # fmt: skip
        assert self.house.call("POST", "/v1/service/pilots", [row], token="service").status == 200
        self.house.call("POST", "/v1/service/submitted", {stamp: [f"native-{stamp}", ""]}, token="service")
        return f"join-{stamp}"

    def join(self, token):
        body = {"join_token": token, "nonce": "n", "node": {"cores": 64, "memory_mb": 10**6}}
        answer = self.house.call("POST", "/v1/pilots/join", body)
        assert answer.status == 200, answer.body
        return answer.json["token"]

    def decide(self, full):
        self.backend.full = full
        self.house.now += 1.0
        self.director.tick(self.house.now)

    def gets(self, token, job):
        """Whether the pilot is given the job, be it after others."""
        while given := [one["id"] for one in self.house.claim(token, 10, resource=EVERYTHING)]:
            if job in given:
                return True
        return False

    def clean(self):
        self.open("before", "after", "opened")
        self.house.control("kill", 1, 10**6, token="admin")
        for session in list(self.house.core.sessions):
            self.house.call(
                "POST",
                "/v1/service/ended",
                {"pilot": session, "state": "Done", "reason": ""},
                token="service",
            )
        rows = self.house.side.db.execute("SELECT id FROM pilot WHERE ended_at IS NULL")
        for (number,) in list(rows):
            self.house.call(
                "POST",
                "/v1/service/ended",
                {"pilot": number, "state": "Aborted", "reason": ""},
                token="service",
            )


def happens(world, job, tq_id):
    """Whether a pilot gets the job: one with room for it, one on its way, or one that the director sends."""
    if any(world.gets(token, job) for token in (*world.free, *world.busy)):
        return True
    if any(world.gets(world.join(token), job) for token in world.coming):
        return True
    for _ in range(TICKS):
        if tq_id in world.placed:
            offer = next(one for one in world.offers if tuple(one.queue) == world.placed[tq_id])
            return world.gets(world.join(world.send(offer)), job)
        world.decide(world.example["full"])
    return False


def two_queues(**more):
    """A world where the director would send a pilot."""
    return {
        "queues": [{}, {"Tag": ["SSD"]}],
        "pilots": [],
        "full": False,
        "decided": True,
        "job": {"CPUTime": 1},
    } | more


@pytest.mark.slow
@example(world=two_queues(closings=[(0, False, "after", None), (1, False, "after", None)]))
@example(world=two_queues(closings=[(0, False, "opened", None), (1, True, "before", None)]))
@example(world=two_queues(queues=[{}, {}], closings=[(0, False, "after", None)]))
@example(world=two_queues(queues=[{"GenericPilots": "no"}, {"GenericPilots": "no"}]))
@example(world=two_queues(limits={0: 0}))
@example(world=two_queues(limits={0: 0}, pilots=[(0, "free"), (0, "coming")], full=True))
@example(world=two_queues(queues=[{}, {}], limits={0: 1}, pilots=[(0, "busy"), (0, "coming")], full=True))
@example(
    world=two_queues(
        queues=[{}, {}], limits={0: 0}, pilots=[(0, "coming")], closings=[(1, False, "after", None)]
    )
)
@example(
    world=two_queues(queues=[{"GenericPilots": "no"}, {"Tag": ["SSD"]}], pilots=[(0, "busy"), (0, "coming")])
)
@example(
    world=two_queues(
        closings=[(0, False, "after", 5.0), (1, True, "after", None)], job={"CPUTime": 1, "Tag": "SSD"}
    )
)
@example(
    world=two_queues(closings=[(0, False, "after", None), (1, True, "after", None)], pilots=[(1, "free")])
)
@example(
    world=two_queues(
        closings=[(0, False, "after", None), (1, False, "after", None)], pilots=[(0, "free"), (0, "coming")]
    )
)
@example(
    world=two_queues(queues=[{}, {"NumberOfProcessors": 4}], pilots=[(1, "busy")], full=True, decided=False)
)
@at_most(60)
@given(world=worlds)
def test_a_verdict_comes_true(house, world):
    made = World(house, world)
    try:
        held_against_what_happens(made)
    finally:
        made.clean()


def held_against_what_happens(world):
    house, example = world.house, world.example
    wanted = {**example["job"], "Project": f"of {house.now:.0f}"}  # a task queue of its own
    world.close("before", "opened")
    dry = house.submit(wanted, dry_run=True)
    if dry.status != 200 and dry.code != "impossible":
        return  # a site that is not there
    job = house.submit(wanted, hold_if_impossible=True).json["first"]
    if example["decided"]:
        world.decide(example["full"])
    world.close("after")
    world.placed.clear()  # nothing of it was sent, and part of it would go where it is closed now
    world.open("opened")
    # Pilots that leave a queue to which none is ever sent were all that it had.
    dry = house.submit(wanted, dry_run=True)
    house.side.keeper.refresh(house.now, rest=0.0)  # a slow machine would make do with an older one
    told = house.get(f"/v1/jobs/{job}/why")
    tq_id = told["task_queue"]["id"]
    there = house.core.inhabited.requests(frozenset(offer.queue for offer in world.offers))
    inhabited = {(one.site, one.ce, one.queue) for one in there}
    never = {offer.queue for offer in world.offers if world.queue(offer.queue)["verdict"] == "never"}
    alive = {
        offer.queue for offer in world.offers if offer.queue not in never or tuple(offer.queue) in inhabited
    }
    assert (told["main_reason"] == "impossible") == (dry.status != 200)
    assert told["queues"]["eligible"] <= len(alive)
    if told["main_reason"] != "impossible":
        seen = partial(ask_limits, house.post, house.side.policy, {})
        judged = MainReasons(house.side.db, house.side.keeper, limits=seen).judge(
            house.side.policy, house.now
        )
        assert judged[tq_id][0] == told["main_reason"]
    if told["main_reason"] in ("limited", "over-limit", "site-gate"):
        assert not [offer.queue for offer in world.offers if world.queue(offer.queue)["verdict"] == "now"]
    if told["verdict"] == "now":
        assert happens(world, job, tq_id)
    elif told["verdict"] == "not now":
        assert not any(world.gets(token, job) for token in world.free)
        eligible = [offer for offer in world.offers if reaches(house, job, offer)]
        assert len(eligible) == told["queues"]["eligible"] > 0
        world.open("before", "after")
        free = [one for one in eligible if int(one.queue.site[1:]) not in example.get("limits", {})]
        assert not free or world.gets(world.join(world.send(free[0])), job)
    else:
        assert not happens(world, job, tq_id)
        # Before the next refresh holds it, a pilot would take it that nothing sends.
        held = told["state"] == "Held"
        assert not (held and any(world.gets(world.join(world.send(offer)), job) for offer in world.offers))


def reaches(house, job, offer):
    """Whether `lode why JOB --queue` says that the queue could run it; if it cannot, there are reasons."""
    queue = house.get(f"/v1/jobs/{job}/why?{urlencode({'queue': '/'.join(offer.queue)})}")["queue"]
    assert queue["eligible"] == (not queue["reasons"]) == (not queue["ruled_out_by"])
    return queue["eligible"]


@pytest.mark.parametrize("name", ["MaxTotalJobs", "MaxWaitingJobs", "Slots", "Backend"])
def test_a_queue_to_which_no_pilot_is_ever_sent_runs_nothing_unless_one_lives_there(house, name):
    value = "moon" if name == "Backend" else 0
    world = World(house, {"queues": [{name: value}], "pilots": []})
    refused = house.submit({})
    assert refused.code == "impossible"
    assert f"{name} excludes 1 of 1" in refused.json["error"]["message"]
    assert "by the site administrator" in refused.json["error"]["message"]
    house.submit({}, hold_if_impossible=True)
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["queues"]["ruled_out_by"]) == ("never", [{"criterion": name, "queues": 1}])
    assert world.queue(world.offers[0].queue)["verdict"] == "never"
    pilot = world.join(world.send(world.offers[0]))
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["main_reason"]) == ("not now", "held")
    assert told["who"].startswith("no action needed")
    assert house.submitted({"CPUTime": 2}) == 2
    assert house.get("/v1/jobs/2/why")["main_reason"] == "next"
    assert world.gets(pilot, 2)
