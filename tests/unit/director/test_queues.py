"""Limits on new pilots in a CE queue: caps, unknown loads, what the program itself submitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.limits import Breaker, clamp
from lodesman.decide.director.queues import OwnPilots, QueueCaps, QueueGates, queue_limits
from lodesman.decide.resources import NodePath, QueueId
from lodesman.wire.vocabulary import BreakerState, ClampName

NOW = 1_000_000.0
CAPS = QueueCaps(max_waiting=10, max_total=25)


def limits(queue, *, breaker=None, tokens=None):
    gates = QueueGates(
        breakers={queue.queue_id: breaker} if breaker else {},
        tokens={} if tokens is None else {queue.queue_id.ce_path: tokens},
        max_load_age_s=600.0,
    )
    return list(queue_limits(queue, gates=gates, now=NOW))


def granted(queue, wanted=1000, **given_gates):
    return clamp(wanted, limits(queue, **given_gates))


def test_a_queue_knows_its_ce_and_its_name():
    queue_id = QueueId("LAB.A.ch", "ce1.a.ch", "long")
    assert queue_id.ce_path == NodePath("LAB.A.ch", "ce1.a.ch")
    assert str(queue_id) == "LAB.A.ch/ce1.a.ch/long"


def test_without_caps_and_gates_there_is_no_limit(queue):
    assert limits(queue()) == []


@pytest.mark.parametrize(
    ("waiting", "running", "room", "name"),
    [
        (0, 0, 10, ClampName.MAX_WAITING),
        (7, 0, 3, ClampName.MAX_WAITING),
        (10, 0, 0, ClampName.MAX_WAITING),
        (15, 0, 0, ClampName.MAX_WAITING),
        (2, 20, 3, ClampName.MAX_TOTAL),
        (0, 25, 0, ClampName.MAX_TOTAL),
    ],
)
def test_the_caps_hold_with_what_is_seen(queue, waiting, running, room, name):
    result = granted(queue(waiting=waiting, running=running, caps=CAPS))
    assert result.count == room
    assert result.clamps[-1].name is name


def test_the_caps_hold_with_what_was_submitted_and_is_not_seen(queue):
    hidden = queue(waiting=0, running=0, own=OwnPilots(waiting=8, running=5), caps=CAPS)
    assert granted(hidden).count == 2
    assert granted(queue(own=OwnPilots(waiting=4, running=20), caps=CAPS)).count == 1


def test_what_was_submitted_since_the_load_was_seen_is_added(queue):
    assert granted(queue(waiting=6, own=OwnPilots(waiting=3, since_load=3), caps=CAPS)).count == 1


@pytest.mark.parametrize(
    "given_queue",
    [
        {"waiting": None},
        {"running": None},
        {"observed_at": NOW - 601.0},
        {"waiting": -1},
    ],
)
def test_an_unknown_or_stale_load_lets_nothing_through(queue, given_queue):
    result = granted(queue(caps=CAPS, **given_queue))
    assert result.count == 0
    assert [bite.name for bite in result.clamps] == [ClampName.UNKNOWN_LOAD]


def test_an_unknown_load_stops_a_queue_without_caps_too(queue):
    assert granted(queue(waiting=None)).count == 0


def test_the_doubt_names_what_is_unknown(queue):
    (limit, *_) = limits(queue(waiting=None, running=None))
    assert limit.detail == "waiting: batch did not know; running: batch did not know"


def test_a_closed_queue_says_why(queue):
    result = granted(queue(closed="banned by an operator"))
    assert (result.count, result.clamps[0].name) == (0, ClampName.CLOSED)
    assert result.clamps[0].detail == "banned by an operator"


def test_a_missing_backend_is_listed_after_the_closing(queue):
    (closed, missing, *_) = limits(
        queue(closed="closed by root", no_backend="there is no backend 'moon' here")
    )
    assert (closed.name, missing.name) == (ClampName.CLOSED, ClampName.NO_BACKEND)
    assert (missing.limit, missing.detail) == (0, "there is no backend 'moon' here")
    assert granted(queue(no_backend="x")).count == 0
    assert granted(queue(no_pool="x")).count == 0
    assert [one.name for one in granted(queue(credential="it ended")).clamps] == [ClampName.CREDENTIAL]


def test_what_a_batch_system_never_runs_is_not_sent_whatever_else_is_in_the_way(queue):
    """A load that is unknown or a breaker that is open passes; this does not."""
    opened = Breaker(state=BreakerState.OPEN, retry_at=NOW + 60)
    result = granted(queue(never="slurm says no", waiting=None), breaker=opened)
    assert [(bite.name, bite.after, bite.detail) for bite in result.clamps] == [
        (ClampName.LIST_MATCH, 0, "slurm says no")
    ]


def test_an_open_breaker_stops_and_a_half_open_one_lets_one_through(queue):
    opened = Breaker(state=BreakerState.OPEN, failures=3, retry_at=NOW + 60, reason="sbatch: error")
    assert granted(queue(), breaker=opened).count == 0
    assert "pilots do not start there: sbatch: error" in granted(queue(), breaker=opened).clamps[0].detail
    half = Breaker(state=BreakerState.HALF_OPEN)
    assert granted(queue(), breaker=half).count == 1


def test_tokens_are_the_last_limit(queue):
    result = granted(queue(caps=CAPS), tokens=4)
    assert result.count == 4
    assert [bite.name for bite in result.clamps] == [ClampName.MAX_WAITING, ClampName.TOKEN_BUCKET]


def test_every_limit_is_there_in_the_documented_order(queue):
    crowded = queue(closed="x", no_backend="y", never="z", refused="r", own=OwnPilots(waiting=9), caps=CAPS)
    names = [one.name for one in limits(crowded, breaker=Breaker(state=BreakerState.OPEN), tokens=3)]
    assert names == [
        ClampName.CLOSED,
        ClampName.NO_BACKEND,
        ClampName.LIST_MATCH,
        ClampName.REFUSED_FOR_NOW,
        ClampName.BREAKER,
        ClampName.MAX_WAITING,
        ClampName.MAX_TOTAL,
        ClampName.TOKEN_BUCKET,
    ]


LOAD = st.one_of(st.none(), st.integers(-2, 40))
SMALL = st.integers(0, 30)
CAP = st.one_of(st.none(), st.integers(0, 40))


@given(LOAD, LOAD, st.tuples(SMALL, SMALL, SMALL), st.tuples(CAP, CAP), st.floats(0, 2000))
def test_own_pilots_never_exceed_a_cap_whatever_is_seen(queue, waiting, running, own, caps, age):
    pilots = OwnPilots(waiting=own[0], running=own[1], since_load=own[2])
    rules = QueueCaps(max_waiting=caps[0], max_total=caps[1])
    one = queue(waiting=waiting, running=running, observed_at=NOW - age, own=pilots, caps=rules)
    new = granted(one).count
    if new == 0:
        return
    assert age <= 600.0
    assert waiting is not None
    assert running is not None
    if rules.max_waiting is not None:
        assert pilots.waiting + new <= rules.max_waiting
        assert waiting + pilots.since_load + new <= rules.max_waiting
    if rules.max_total is not None:
        assert pilots.waiting + pilots.running + new <= rules.max_total
        assert waiting + running + pilots.since_load + new <= rules.max_total


def test_the_caps_go_by_the_worst_case_of_records_and_load(queue):
    rules = QueueCaps(max_waiting=1, max_total=25, waiting_to_running=5.0)
    one = queue(waiting=4, running=9, own=OwnPilots(waiting=6, running=2, since_load=1), caps=rules)
    assert [limit.detail for limit in limits(one)] == [
        "WaitingToRunningRatio 5 x 2 running - 6 waiting",
        "MaxTotalJobs 25 - 14 waiting and running",
    ]


RATIO = QueueCaps(max_waiting=4, max_total=100, waiting_to_running=0.5)


@pytest.mark.parametrize(
    ("own", "seen", "room"),
    [
        (0, 0, 4),  # nothing runs: MaxWaitingJobs
        (8, 8, 4),  # the fraction is no more than it
        (20, 20, 10),
        (21, 21, 10),  # rounded down
        (20, 6, 4),  # only pilots that run by both count: neither hides nor foreign jobs open the gate
        (0, 40, 4),
    ],
)
def test_the_more_pilots_run_the_more_may_wait(queue, own, seen, room):
    assert granted(queue(running=seen, own=OwnPilots(running=own), caps=RATIO)).count == room


def test_the_ratio_is_named_where_it_decides(queue):
    one = queue(waiting=2, running=20, own=OwnPilots(running=20), caps=RATIO)
    assert limits(one)[0].detail == "WaitingToRunningRatio 0.5 x 20 running - 2 waiting"
    assert limits(queue(caps=RATIO))[0].detail == "MaxWaitingJobs 4 - 0 waiting"


def test_the_ratio_lifts_no_other_cap(queue):
    full = QueueCaps(max_waiting=4, max_total=25, waiting_to_running=10.0)
    assert granted(queue(running=20, own=OwnPilots(running=20), caps=full)).count == 5
    closed = QueueCaps(max_waiting=4, max_total=0, waiting_to_running=10.0)
    assert granted(queue(running=20, own=OwnPilots(running=20), caps=closed)).count == 0
    without = QueueCaps(max_waiting=None, max_total=None, waiting_to_running=0.5)
    assert limits(queue(running=20, own=OwnPilots(running=20), caps=without)) == []


def test_no_pilot_is_sent_to_a_queue_without_a_slot(queue):
    one = queue(slots=0)
    assert granted(one).count == 0
    assert [(limit.name.value, limit.detail) for limit in limits(one) if limit.limit == 0] == [
        ("max-total", "Slots is 0")
    ]
    assert granted(queue(slots=1)).count == granted(queue(slots=None)).count > 1
