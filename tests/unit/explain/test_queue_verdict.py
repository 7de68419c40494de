"""never, not now or now for a CE queue, and the director's gate before it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.decide import resources
from lodesman.decide.director.limits import Breaker, TokenBucket
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.queues import QueueGates, room_of
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.explain.actors import opener_of, who_opens
from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.explain.verdict import (
    WANTED,
    Demand,
    judge_offer,
    judge_work,
    least_job_refused,
    verdict_of,
)
from lodesman.decide.matching.offers import BACKENDS, PoolScope, never_sent
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.candidates import OwnQueue
from lodesman.server.loops.direct import Director
from lodesman.wire.nodes import BreakerOrder, QueueId
from lodesman.wire.vocabulary import BreakerState, ClampName, QueueReason
from lodesman.wire.why_queues import GateLoad, QueueBreaker

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
Backend = "manual"
"""
POLICY = Policy(load_resources([("s.toml", SITES)]))


def offer(name):
    world = POLICY.vo_config("lab")
    return world.offer(resources.QueueId("A", "c", name))


def judge(*, configured=True, missing=False, fitting=2, room=5, sends=True, **more):
    found = more.get("offer", offer("open"))
    demand = more.get("demand", Counter({Demand.ASKED: 2}))
    closed = None if found is None else never_sent(found, BACKENDS, more.get("pools"))
    never = judge_offer(
        found, closed, configured=configured, backend_missing=missing, never_run=more.get("never_run", False)
    )
    return never or judge_work(found, fitting, demand, room, sends=sends)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"configured": False, "offer": None}, QueueReason.NOT_CONFIGURED),
        ({"offer": None}, QueueReason.NOT_OPEN),
        ({"missing": True, "room": 0}, QueueReason.NO_BACKEND),
        ({"offer": offer("far"), "room": None}, QueueReason.NO_BACKEND),  # the gate is unknown
        ({"offer": offer("manual"), "room": 0}, QueueReason.MANUAL),
        ({"offer": offer("manual"), "fitting": 0}, QueueReason.NO_WORK),
        ({"offer": offer("brief")}, QueueReason.NO_JOB_FITS),
        ({"offer": offer("shut"), "room": 0}, QueueReason.CAPPED),
        ({"offer": offer("shut"), "never_run": True}, QueueReason.CAPPED),
        ({"never_run": True, "room": 0}, QueueReason.NEVER_RUN),
        ({"never_run": True, "fitting": 0}, QueueReason.NEVER_RUN),
        ({"pools": {"Grid": PoolScope(sites=("B",))}, "room": 0}, QueueReason.NOT_SERVED),
        ({"pools": {"Grid": PoolScope(sites=("A",))}}, QueueReason.PILOTS_EXPECTED),
        ({"pools": {}, "offer": offer("manual"), "room": 0}, QueueReason.MANUAL),
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
def test_the_reason_follows_the_order_of_necessary_actions(changes, reason):
    assert judge(**changes) is reason


@given(
    room=st.none() | st.integers(-1, 2), fitting=st.integers(0, 2), missing=st.booleans(),
    demand=st.none() | st.dictionaries(st.sampled_from(Demand), st.integers(1, 3)).map(Counter),
)  # fmt: skip
def test_now_needs_work_a_wish_and_room(room, fitting, missing, demand):
    verdict = verdict_of(judge(room=room, fitting=fitting, missing=missing, demand=demand))
    wished = demand is not None and any(demand[one] for one in WANTED)
    assert (verdict == "now") == (not missing and fitting > 0 and wished and bool(room))
    assert (verdict == "never") == missing


def test_every_verdict_has_a_reason():
    assert {verdict_of(one) for one in QueueReason} == {"never", "not now", "now"}


@pytest.mark.parametrize(
    ("name", "criteria"),
    [
        ("open", []), ("picky", []), ("brief", ["cpu_time"]), ("shut", []),
    ],
)  # fmt: skip
def test_a_queue_where_not_even_the_least_job_could_run(name, criteria):
    assert [reason.criterion for reason in least_job_refused(offer(name))] == criteria


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("open", None), ("shut", "MaxTotalJobs is 0"), ("dammed", "MaxWaitingJobs is 0"), ("slotless", "Slots is 0"),
        ("flowing", None),
        ("far", "there is no backend 'moon' here"), ("manual", None),
    ],
)  # fmt: skip
def test_what_keeps_all_pilots_away_does_so_for_ever(name, text):
    found = never_sent(offer(name), BACKENDS)
    assert (found and found.text) == text


@pytest.mark.parametrize(
    ("gates", "who"),
    [
        (["max-total", "max-waiting"], "time, as pilots there start or end; or the site administrator"),
        (["breaker", "unknown-load", "breaker"],
         ("the site administrator or the administrator of the batch system, by mending what stops the pilots; then: "
          "lode queue breaker SITE/CE/QUEUE auto (else one pilot tries it now and then); "
          "the administrator of the batch system, by making it report its load")),
        (["closed"], "an administrator: lode site open"),
        (["list-match", "list-match"],
         ("the site administrator: NumberOfProcessors, MaxRAM, WallTime, SubmitOptions; or "
          "the administrator of the batch system")),
        (["no-backend"],
         ("an administrator: lode pilot file, whose files anyone can start there; or "
          "the site administrator: Backend")),
        (["unknown", "no-demand"], "the server, at the director's next iteration"),
        ([], "time, as pilots there start or end; or the site administrator"),
    ],
)  # fmt: skip
def test_each_actor_who_can_open_gates_is_named_once(gates, who):
    assert who_opens(gates) == who


def test_who_mends_what_stops_pilots_depends_on_where_they_start():
    """On the server's own machine no site administrator can; an order is taken back by whoever may give one."""
    said = "pilots do not start there: no python9"
    here, elsewhere = opener_of("breaker", said, ["local"]), opener_of("breaker", said, ["local", "slurm"])
    assert who_opens([here]).startswith("the server administrator, on whose machine these pilots start")
    assert who_opens([elsewhere]).startswith(
        "the site administrator or the administrator of the batch system"
    )
    order = BreakerOrder("A", "c", "q", state="open", reason="a new disk", ordered_by="root", at=0.0)
    assert who_opens([opener_of("breaker", order.text, ["local"])]) == (
        "an administrator: lode queue breaker SITE/CE/QUEUE auto"
    )
    assert opener_of("max-total", said, ["local"]) == "max-total"


def test_what_the_last_iteration_did_for_each_task_queue():
    fields = ["tq_id", "asked", "cap"]
    rows = [[1, 3, 3], [2, 4, 4], [3, 0, 0], [4, 0, -2], [5, 0, 9]]
    record = {
        "row_fields": fields,
        "rows": rows,
        "asks": [],
        "no_pool": [{"tq_id": 2, "tries": [["Local", "full"]]}],
        "rooms": {},
        "plan": {},
    }
    iteration = RecordedIteration(1, 5.0, record)
    assert iteration.demands(range(1, 7)) == {
        Demand.ASKED: 1, Demand.NO_POOL: 1, Demand.SUPPLIED: 2, Demand.NOT_DRAWN: 1, Demand.NEW: 1,
    }  # fmt: skip
    assert iteration.demands([1, 1]) == {Demand.ASKED: 2}
    assert iteration.demands([]) == {}


@pytest.mark.parametrize(
    ("target", "sends"),
    [({"policy": "gap"}, True), ({"policy": "ratio"}, True), ({"policy": "adaptive"}, False), ({}, False)],
)
def test_a_target_of_no_pilots_is_a_fault_only_where_it_does_not_count_them(target, sends):
    record = {"row_fields": ["tq_id", "asked", "cap"], "rows": [], "asks": [], "no_pool": [], "rooms": {}}
    record |= {"plan": {"target": 0.0}, "target": target}
    assert RecordedIteration(1, 5.0, record).sends is sends


@pytest.mark.parametrize(("most", "expected"), [(0, 50.0), (20, 20.0), (60, 50.0)])
def test_no_more_pilots_are_expected_than_an_iteration_asks_for(most, expected):
    record = {"row_fields": ["tq_id", "asked", "cap", "mean"], "rows": [[1, 0, 0, 30.0], [2, 0, 0, 20.0]]}
    record |= {"asks": [], "no_pool": [], "rooms": {}, "plan": {"target": 40.0}, "target": {"most": most}}
    assert RecordedIteration(1, 5.0, record).expected_pilots == expected


# --- the gate -------------------------------------------------------------------------------------------


class Batch:
    """A batch system that reports this load."""

    def __init__(self, waiting, running, at=100.0):
        self.told = BatchLoad(waiting=waiting, running=running, observed_at=at)

    def load(self, _queue):
        return self.told


def director_of(load, **changes):
    return Director(
        db=cast("Any", None), policy=POLICY, options=read_options({}), watches={"local": cast("Any", load)},
        post=lambda *_: None, pools=lambda: {"Local": PoolState(name="Local")}, launch=lambda *_: None,
        cancel=lambda _: None, rng=random.Random(1), **changes,
    )  # fmt: skip


HERE = QueueId("A", "c", "open")


def gate_of(director, name="open", *, own=None, now=100.0):
    return director.gate("lab", offer(name), own or OwnQueue(), mask=SiteMask(), now=now)


def shut(gate):
    return [one.clamp for one in gate.limits if one.shut]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("far", "there is no backend 'moon' here"),
        ("manual", "pilots there are started manually"),
        ("open", ""),
    ],
)
def test_a_gate_says_why_nothing_is_sent(name, text):
    found = {one.clamp: one.text for one in gate_of(director_of(Batch(0, 0)), name).limits}
    assert found.get(ClampName.NO_BACKEND, "") == text


def test_a_gate_has_every_limit_and_the_free_capacity():
    gate = gate_of(director_of(Batch(3, 4)))
    assert gate.room == 3
    assert [(one.clamp, one.limit, one.shut) for one in gate.limits] == [
        ("max-waiting", 7, False), ("max-total", 3, False), ("token-bucket", 40, False),
    ]  # fmt: skip
    assert gate.load == GateLoad(waiting=3, running=4, slots=None, source="local", age_seconds=0.0)
    assert gate.breaker.state == "closed"
    assert gate.breaker.retry_seconds is None
    assert gate.submission_pools[0].name == "Local"


def test_a_load_that_is_old_or_unknown_shuts_the_gate():
    old = gate_of(director_of(Batch(0, 0, at=100.0)), now=100_000.0)
    assert shut(old) == [ClampName.UNKNOWN_LOAD]
    assert old.load.age_seconds == 99_900.0
    assert gate_of(director_of(Batch(None, 0))).room == 0


def test_an_open_breaker_has_its_end():
    broken = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=400.0, reason="no route")
    gate = gate_of(director_of(Batch(0, 0), breakers={HERE: broken}))
    assert shut(gate) == [ClampName.BREAKER]
    assert gate.breaker == QueueBreaker(
        state=BreakerState.OPEN, failures=3, retry_seconds=300.0, probing=False, reason="no route"
    )
    tried = gate_of(director_of(Batch(0, 0), breakers={HERE: replace(broken, retry_at=99.0)}))
    assert tried.breaker.state == "half-open"
    assert tried.room == 1


def test_an_empty_bucket_fills_again():
    buckets = {HERE.ce_path: TokenBucket(tokens=0.0, updated_at=100.0)}
    keeper = director_of(Batch(0, 0), buckets=buckets)
    assert shut(gate_of(keeper)) == [ClampName.TOKEN_BUCKET]
    filled = gate_of(keeper, now=103.0)
    assert shut(filled) == []
    assert filled.room == 3


def test_a_queue_without_a_backend_takes_no_pilots():
    gate = gate_of(director_of(Batch(0, 0)), "far")
    assert gate.limits[0].text == "there is no backend 'moon' here"
    assert gate.room == 0


@given(
    waiting=st.none() | st.integers(0, 12), running=st.none() | st.integers(0, 12), age=st.sampled_from([0.0, 5_000.0]),
    mine=st.integers(0, 12), tokens=st.integers(0, 5), broken=st.booleans(),
)  # fmt: skip
def test_the_room_is_what_an_iteration_would_allow(waiting, running, age, mine, tokens, broken):
    breaker = Breaker(state=BreakerState.OPEN, retry_at=10**6) if broken else Breaker()
    now = 100.0 + age
    buckets = {HERE.ce_path: TokenBucket(tokens=float(tokens), updated_at=now)}
    keeper = director_of(Batch(waiting, running), breakers={HERE: breaker}, buckets=buckets)
    own = OwnQueue(waiting=mine, submitted_at=[0.0] * mine)
    gate = gate_of(keeper, own=own, now=now)
    rules = QueueGates(
        breakers={HERE: breaker},
        tokens={HERE.ce_path: tokens},
        max_load_age_s=read_options({}).max_load_age_s,
    )
    candidate = keeper._candidates({offer("open").queue: own}, SiteMask(), now).make_one(
        "lab", offer("open"), keeper.vos
    )
    decided = room_of(candidate, 1_000, gates=rules, now=now)
    assert gate.room == decided.room
    assert set(shut(gate)) >= {one.name for one in decided.clamps if one.after == 0}
