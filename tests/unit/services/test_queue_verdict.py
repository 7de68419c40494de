"""never, not now or now for a CE queue, and the director's gate before it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman import resources
from lodesman.answers.vocabulary import BreakerState, ClampName, QueueReason
from lodesman.background.candidates import OwnQueue
from lodesman.background.direct import Director
from lodesman.batch import QueueLoad
from lodesman.commands.policy import Policy
from lodesman.director import Breaker, PoolState, QueueId, TokenBucket, read_options
from lodesman.director.floor import QueueGates, room_of
from lodesman.resources import load_resources
from lodesman.services.why.picture import Iteration
from lodesman.services.why.queue_case import find_offer
from lodesman.services.why.queue_gate import Gates
from lodesman.services.why.queue_verdict import (
    VERDICTS,
    WANTED,
    WHO,
    Demand,
    QueueFacts,
    demands,
    judge_queue,
    least_job_refused,
    who_opens,
)
from lodesman.submission import never_sent

SITES = """
[site.A]
VO = ["lab"]
CPUTime = 1000
[site.A.ce.c.queue.open]
[site.A.ce.c.queue.picky]
Tag = ["GPU"]
RequiredTag = ["GPU"]
[site.A.ce.c.queue.brief]
CPUTime = 0.5
[site.A.ce.c.queue.shut]
MaxTotalJobs = 0
[site.A.ce.c.queue.dammed]
MaxWaitingJobs = 0
[site.A.ce.c.queue.slotless]
Slots = 0
[site.A.ce.c.queue.flowing]
MaxWaitingJobs = 0
WaitingToRunningRatio = 0.5
[site.A.ce.c.queue.far]
Backend = "moon"
[site.A.ce.c.queue.manual]
Backend = "by-hand"
"""
POLICY = Policy(load_resources([("s.toml", SITES)]))


def offer(name):
    found = find_offer(POLICY, resources.QueueId("A", "c", name), "lab")
    assert found is not None
    return found


def facts(**changes):
    good: dict[str, Any] = {
        "configured": True, "offer": offer("open"), "backend_missing": False, "fitting": 2,
        "demand": Counter({Demand.ASKED: 2}), "room": 5,
    }  # fmt: skip
    return QueueFacts(**good | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"configured": False, "offer": None}, QueueReason.NOT_CONFIGURED),
        ({"offer": None}, QueueReason.NOT_OPEN),
        ({"backend_missing": True, "room": 0}, QueueReason.NO_BACKEND),
        ({"offer": offer("far"), "room": None}, QueueReason.NO_BACKEND),  # though nobody can look at the gate
        ({"offer": offer("manual"), "by_hand": True, "room": 0}, QueueReason.BY_HAND),
        ({"offer": offer("manual"), "by_hand": True, "fitting": 0}, QueueReason.NO_WORK),
        ({"offer": offer("brief")}, QueueReason.NO_JOB_FITS),
        ({"offer": offer("shut"), "room": 0}, QueueReason.CAPPED),
        ({"fitting": 0, "demand": Counter()}, QueueReason.NO_WORK),
        ({"demand": None}, QueueReason.NOT_DECIDED),
        ({"room": None}, QueueReason.NOT_DECIDED),
        ({"room": None, "sends": False}, QueueReason.NOT_DECIDED),
        ({"sends": False}, QueueReason.DIRECTOR_OFF),
        ({"demand": Counter({Demand.SUPPLIED: 2}), "room": 0}, QueueReason.ENOUGH_PILOTS),
        ({"demand": Counter({Demand.NO_POOL: 1, Demand.SUPPLIED: 1})}, QueueReason.NO_SUBMISSION_POOL),
        ({"room": 0}, QueueReason.NO_ROOM),
        ({"demand": Counter({Demand.NEW: 1, Demand.SUPPLIED: 1})}, QueueReason.PILOTS_EXPECTED),
        ({"demand": Counter({Demand.NOT_DRAWN: 1})}, QueueReason.PILOTS_EXPECTED),
        ({}, QueueReason.PILOTS_EXPECTED),
        ({"room": -1}, QueueReason.PILOTS_EXPECTED),
    ],
)
def test_the_reason_in_the_order_in_which_somebody_would_have_to_act(changes, reason):
    assert judge_queue(facts(**changes)) is reason


@given(
    room=st.none() | st.integers(-1, 2), fitting=st.integers(0, 2), missing=st.booleans(),
    demand=st.none() | st.dictionaries(st.sampled_from(Demand), st.integers(1, 3)).map(Counter),
)  # fmt: skip
def test_now_needs_work_a_wish_and_room(room, fitting, missing, demand):
    verdict = VERDICTS[judge_queue(facts(room=room, fitting=fitting, backend_missing=missing, demand=demand))]
    wished = demand is not None and any(demand[one] for one in WANTED)
    assert (verdict == "now") == (not missing and fitting > 0 and wished and bool(room))
    assert (verdict == "never") == missing


def test_every_reason_has_a_verdict_and_who_can_change_it():
    assert set(VERDICTS) == set(WHO) == set(QueueReason)
    assert set(VERDICTS.values()) == {"never", "not now", "now"}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("open", []), ("picky", []), ("brief", ["too-little-cpu-time"]), ("shut", []),
    ],
)  # fmt: skip
def test_a_queue_where_not_even_the_least_job_could_run(name, codes):
    assert [reason.code for reason in least_job_refused(offer(name))] == codes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("open", None), ("shut", "MaxTotalJobs is 0"), ("dammed", "MaxWaitingJobs is 0"), ("slotless", "Slots is 0"),
        ("flowing", None),
        ("far", "there is no backend 'moon' here"), ("manual", None),
    ],
)  # fmt: skip
def test_what_keeps_all_pilots_away_does_so_for_ever(name, text):
    found = never_sent(offer(name))
    assert (found and found.text) == text


@pytest.mark.parametrize(
    ("gates", "who"),
    [
        (["max-total", "max-waiting"], "time, as pilots there start or end; or who configures the sites"),
        (["breaker", "unknown-load", "breaker"],
         ("time, it is tried again by itself; or who runs the batch system; "
          "who runs the batch system, by having it tell its load")),
        (["closed"], "an administrator: lode site open"),
        (["no-backend"], "who configures the sites: Backend; or who starts pilots there"),
        (["unknown", "no-demand"], "the server, at the director's next iteration"),
        ([], "time, as pilots there start or end; or who configures the sites"),
    ],
)  # fmt: skip
def test_who_can_open_gates_is_told_of_each_of_them_once(gates, who):
    assert who_opens(gates) == who


def test_what_the_last_iteration_did_for_each_task_queue():
    fields = ["tq_id", "asked", "cap"]
    rows = [[1, 3, 3], [2, 4, 4], [3, 0, 0], [4, 0, -2], [5, 0, 9]]
    record = {"row_fields": fields, "rows": rows, "asks": [], "no_pool": [{"tq_id": 2}], "rooms": {}}
    iteration = Iteration(1, 5.0, record)
    assert demands(iteration, range(1, 7)) == {
        Demand.ASKED: 1, Demand.NO_POOL: 1, Demand.SUPPLIED: 2, Demand.NOT_DRAWN: 1, Demand.NEW: 1,
    }  # fmt: skip
    assert demands(iteration, [1, 1]) == {Demand.ASKED: 2}
    assert demands(iteration, []) == {}


# --- the gate -------------------------------------------------------------------------------------------


class Batch:
    """A batch system that tells this load."""

    def __init__(self, waiting, running, at=100.0):
        self.told = QueueLoad(waiting=waiting, running=running, observed_at=at)

    def load(self, _queue):
        return self.told


def gates(load, **changes):
    director = Director(
        db=cast("Any", None), policy=POLICY, options=read_options({}), backends={"local": cast("Any", load)},
        post=lambda *_: None, pools=lambda: {"Local": PoolState(name="Local")}, launch=lambda *_: None,
        rng=random.Random(1), **changes,
    )  # fmt: skip
    return Gates(director)


HERE = QueueId("A", "c", "open")


def look(keeper, name="open", *, own=None, now=100.0):
    return keeper.look("lab", offer(name), own=own or OwnQueue(), now=now)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("far", "there is no backend 'moon' here"),
        ("manual", "pilots there are started by hand"),
        ("open", ""),
    ],
)
def test_a_gate_says_why_nothing_is_sent(name, text):
    assert look(gates(Batch(0, 0)), name).candidate.no_backend == text


def test_a_gate_tells_every_limit_and_the_room():
    gate = look(gates(Batch(3, 4)))
    assert gate.room == 3
    assert gate.shut == ()
    told = gate.as_dict()
    assert [(one["clamp"], one["limit"]) for one in told["limits"]] == [
        ("max-waiting", 7), ("max-total", 3), ("token-bucket", 40),
    ]  # fmt: skip
    assert told["load"] == {"waiting": 3, "running": 4, "slots": None, "told_by": "local", "age_seconds": 0.0}
    assert told["breaker"]["state"] == "closed"
    assert told["breaker"]["retry_seconds"] is None
    assert told["submission_pools"][0]["name"] == "Local"


def test_a_load_that_is_old_or_unknown_shuts_the_gate():
    old = look(gates(Batch(0, 0, at=100.0)), now=100_000.0)
    assert [one.name for one in old.shut] == [ClampName.UNKNOWN_LOAD]
    assert old.as_dict()["load"]["age_seconds"] == 99_900.0
    assert look(gates(Batch(None, 0))).room == 0


def test_an_open_breaker_tells_until_when():
    broken = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=400.0, reason="no route")
    gate = look(gates(Batch(0, 0), breakers={HERE: broken}))
    assert [one.name for one in gate.shut] == [ClampName.BREAKER]
    assert gate.as_dict()["breaker"] == {
        "state": "open", "failures": 3, "retry_seconds": 300.0, "probing": False, "reason": "no route",
    }  # fmt: skip
    tried = look(gates(Batch(0, 0), breakers={HERE: replace(broken, retry_at=99.0)}))
    assert tried.as_dict()["breaker"]["state"] == "half-open"
    assert tried.room == 1


def test_an_empty_bucket_fills_again():
    buckets = {HERE.ce_id: TokenBucket(tokens=0.0, updated_at=100.0)}
    keeper = gates(Batch(0, 0), buckets=buckets)
    assert [one.name for one in look(keeper).shut] == [ClampName.TOKEN_BUCKET]
    filled = look(keeper, now=103.0)
    assert filled.shut == ()
    assert filled.room == 3


def test_a_queue_without_a_backend_takes_no_pilots():
    gate = look(gates(Batch(0, 0)), "far")
    assert gate.candidate.no_backend == "there is no backend 'moon' here"
    assert gate.room == 0


@given(
    waiting=st.none() | st.integers(0, 12), running=st.none() | st.integers(0, 12), age=st.sampled_from([0.0, 5_000.0]),
    mine=st.integers(0, 12), tokens=st.integers(0, 5), broken=st.booleans(),
)  # fmt: skip
def test_the_room_is_what_an_iteration_would_allow(waiting, running, age, mine, tokens, broken):
    breaker = Breaker(state=BreakerState.OPEN, retry_at=10**6) if broken else Breaker()
    now = 100.0 + age
    buckets = {HERE.ce_id: TokenBucket(tokens=float(tokens), updated_at=now)}
    keeper = gates(Batch(waiting, running), breakers={HERE: breaker}, buckets=buckets)
    own = OwnQueue(waiting=mine, submitted_at=[0.0] * mine)
    gate = look(keeper, own=own, now=now)
    rules = QueueGates(
        breakers={HERE: breaker}, tokens={HERE.ce_id: tokens}, max_load_age_s=read_options({}).max_load_age_s
    )
    decided = room_of(gate.candidate, 1_000, gates=rules, now=now)
    assert gate.room == decided.room
    assert {one.name for one in gate.shut} >= {one.name for one in decided.clamps if one.after == 0}
