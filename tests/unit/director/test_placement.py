"""Placement of pilots on CE queues: eligibility, room, no flood, and why not."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.options import PoolOptions
from lodesman.decide.director.orders import PilotOrder, PoolState, choose_identity
from lodesman.decide.director.placement import place
from lodesman.decide.director.places import Places
from lodesman.decide.director.queues import OwnPilots, QueueCaps, QueueGates
from lodesman.decide.matching.criteria import Reason
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import BreakerState, ClampName, RefusalKind

NOW = 1_000_000.0
A, B, C = (QueueId(site, "ce", "q") for site in "ABC")


@pytest.fixture(scope="session")
def ask(demand):
    def make(tq_id=1, count=10, *, pool="Local", fraction=0.0, **given_key):
        wanted = demand(tq_id, **given_key)
        options = PoolOptions(name=pool, private_fraction=fraction)
        identity = choose_identity(wanted, options=options, rng=random.Random(1))
        return PilotOrder(tq_id=tq_id, key=wanted.key, count=count, pool=pool, identity=identity)

    return make


@pytest.fixture(scope="session")
def put():
    def run(asks, queues, *, breakers=None, tokens=None, serving=None, seed=1, most=10**6):
        gates = QueueGates(breakers=breakers or {}, tokens=tokens or {}, max_load_age_s=600.0)
        places = Places(queues, serving or PoolMap())
        pools = {one.pool: PoolState(name=one.pool, max=0, total=most) for one in asks}
        return place(asks, places, pools=pools, gates=gates, now=NOW, rng=random.Random(seed))

    return run


def caps(most: int) -> QueueCaps:
    return QueueCaps(max_waiting=most, max_total=None)


def per_queue(result) -> Counter[QueueId]:
    found: Counter[QueueId] = Counter()
    for one in result.placements:
        found[one.queue_id] += one.count
    return found


def refusals(result, number=0):
    """All that was answered to one ask."""
    return list(result.refusals(result.outcomes[number]))


# --- who may go where ---------------------------------------------------------------------------------


def test_pilots_go_where_the_predicate_lets_them_run(ask, put, queue):
    result = put([ask(sites=("B",))], [queue("A"), queue("B")])
    assert per_queue(result) == {B: 10}
    (outcome,) = result.outcomes
    assert (outcome.order.count, outcome.placed) == (10, 10)
    (refusal,) = result.refusals(outcome)
    assert (refusal.queue_id, refusal.kind) == (A, RefusalKind.INELIGIBLE)
    assert [reason.criterion for reason in refusal.reasons] == ["site"]


def test_a_placement_says_what_its_pilots_will_present(ask, put, queue):
    (placed,) = put([ask(fraction=1.0, count=2)], [queue("A")]).placements
    assert (placed.order.tq_id, placed.count, placed.order.pool) == (1, 2, "Local")
    assert (placed.request.site, placed.request.owner, placed.request.groups) == ("A", "ann", ("users",))
    assert placed.request.submission_pool == "Local"


def test_pilots_of_one_owner_and_of_two_kinds_present_different_things(ask, put, queue):
    """In one queue, so that what was made for one is not taken for the other."""
    asks = [ask(1, fraction=1.0), ask(2, fraction=1.0, pilot_type="private"), ask(3, fraction=0.0)]
    result = put(asks, [queue("A")])
    assert {one.order.tq_id: one.request.pilot_type for one in result.placements} == {
        1: "",
        2: "private",
        3: "",
    }
    assert {one.order.tq_id: one.request.owner for one in result.placements} == {1: "ann", 2: "ann", 3: ""}


def test_a_queue_whose_pilots_do_not_live_long_enough_gets_none(ask, put, queue):
    result = put([ask(norm_cpu_seconds=5000)], [queue("A", norm_cpu_seconds=4999)])
    assert result.placed == 0
    assert refusals(result)[0].reasons == (
        Reason("cpu_time", "the job needs 5000 s of normalised CPU time, the resource has 4999"),
    )


def test_only_queues_of_the_pool_are_used(ask, put, queue):
    result = put([ask(pool="gLite")], [queue("A"), queue("B", submission_pools=("gLite", "Local"))])
    assert per_queue(result) == {B: 10}
    assert refusals(result)[0].kind is RefusalKind.OTHER_POOL


def test_queues_where_the_identity_of_the_pilots_is_shut_get_none_of_them(ask, put, queue):
    queues = [queue("A", shut_for={"ann": "her token ended"}), queue("B")]
    for account, expected in (("ann", {B: 10}), ("", None)):
        order = ask(sites=("A", "B"))
        result = put([replace(order, identity=replace(order.identity, account=account))], queues)
        assert sum(per_queue(result).values()) == 10
        assert expected in (None, per_queue(result))
        kinds = {(one.queue_id, one.kind) for one in refusals(result)}
        assert kinds == ({(A, RefusalKind.NO_CREDENTIAL)} if account else set())


def test_only_queues_of_the_vo_are_used(ask, put, queue):
    result = put([ask(vo="other")], [queue("A"), queue("B", vos=("lab", "other"))])
    assert per_queue(result) == {B: 10}
    assert refusals(result)[0].kind is RefusalKind.OTHER_VO
    assert result.placements[0].request.vo == "other"


def test_no_generic_pilot_goes_to_a_queue_that_takes_private_ones_only(ask, put, queue):
    asks = [
        ask(1), ask(2, force_generic=True), ask(3, fraction=1.0), ask(4, pilot_type="private"),
        ask(5, pilot_type="private", vo="other"), ask(6, vo="other"), ask(7, sites=("B",)),
    ]  # fmt: skip
    result = put(asks, [queue("A", private_only=("lab",), vos=("lab", "other"))])
    assert {one.order.tq_id for one in result.placements} == {3, 4, 5, 6}
    for number in (0, 1, 6):
        (refusal,) = refusals(result, number)
        assert (refusal.kind, refusal.reasons, refusal.clamps) == (RefusalKind.PRIVATE_ONLY, (), ())
    assert result.rooms[A].wanted == 40


@pytest.mark.parametrize(("most", "used"), [(1, 1), (4, 4), (16, 16), (40, 16)])
def test_what_goes_to_each_queue_is_one_of_the_submissions_that_the_pool_takes(ask, put, queue, most, used):
    queues = [queue(f"S{number}", caps=caps(5)) for number in range(16)]
    result = put([ask(count=200)], queues, most=most)
    assert (len(result.placements), result.placed) == (used, 5 * used)
    kinds = {one.kind: one.count for one in result.outcomes[0].refused}
    assert kinds == {
        kind: count
        for kind, count in ((RefusalKind.FILLED, used), (RefusalKind.POOL_FULL, 16 - used))
        if count
    }


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 1_000))
def test_a_pool_is_sent_no_more_submissions_than_it_takes(ask, put, queue, asks, room, seed):
    orders = [ask(number, 9, project=f"p{number}") for number in range(min(asks, room))]
    result = put(orders, [queue(name) for name in "ABCDE"], most=room, seed=seed)
    assert len(result.placements) <= room
    assert all(one.placed for one in result.outcomes)


def test_private_pilots_of_a_group_stay_out_of_queues_for_others(ask, put, queue):
    result = put([ask(fraction=1.0)], [queue("A", groups=("theory",)), queue("B")])
    assert per_queue(result) == {B: 10}
    assert refusals(result)[0].reasons == (
        Reason("group", "the resource takes jobs of nothing, not of group users"),
    )


def test_a_job_that_names_its_pool_gets_pilots_of_that_pool(ask, put, queue):
    result = put(
        [ask(pool="SAM", submission_pools=("SAM",))], [queue("A", submission_pools=("Local", "SAM"))]
    )
    assert result.placements[0].request.submission_pool == "SAM"


# --- room ---------------------------------------------------------------------------------------------


def test_a_queue_gets_no_more_than_its_room_in_one_iteration(ask, put, queue):
    asks = [ask(tq_id, count=50) for tq_id in range(1, 6)]
    result = put(asks, [queue("A", caps=caps(7)), queue("B", caps=caps(3))])
    assert per_queue(result) == {A: 7, B: 3}
    assert sum(one.placed for one in result.outcomes) == 10
    room = result.rooms[A]
    assert (room.wanted, room.room) == (250, 7)
    assert [(bite.name, bite.after) for bite in room.clamps] == [(ClampName.MAX_WAITING, 7)]


def test_scarce_room_is_shared_as_asked(ask, put, queue):
    got: Counter[int] = Counter()
    for seed in range(100):
        result = put([ask(1, count=90), ask(2, count=30)], [queue("A", caps=caps(12))], seed=seed)
        got.update({one.order.tq_id: one.placed for one in result.outcomes})
    # 1200 places, three quarters of them for the first: hypergeometric, four standard errors.
    assert got[1] == pytest.approx(900, abs=60)


def test_queues_are_drawn_by_their_free_room(ask, put, queue):
    result = put([ask(count=100)], [queue("A", caps=caps(300)), queue("B", caps=caps(100))])
    assert per_queue(result)[A] == pytest.approx(75, abs=20)


def test_free_slots_are_filled_before_pilots_have_to_wait(ask, put, queue):
    queues = [queue("A", slots=6, running=2, caps=caps(50)), queue("B", slots=3, running=3, caps=caps(500))]
    assert per_queue(put([ask(count=4)], queues)) == {A: 4}
    assert per_queue(put([ask(count=10)], queues))[A] >= 4


def test_a_slot_is_free_for_one_pilot_only(ask, put, queue):
    """Two slots here, and there a slot more than the cap lets in: three start at once, wherever they are drawn."""
    queues = [
        queue("A", slots=2, caps=caps(50)),
        queue("B", slots=3, caps=caps(1)),
        queue("C", caps=caps(50)),
    ]
    for seed in range(20):
        assert per_queue(put([ask(count=3)], queues, seed=seed)) == {A: 2, B: 1}


def test_placements_are_in_the_order_of_asks_and_queues(ask, put, queue):
    queues = [queue("C"), queue("A"), queue("B")]
    result = put([ask(2, count=30), ask(1, count=30)], queues)
    assert [(one.order.tq_id, one.queue_id) for one in result.placements] == [
        (tq_id, queue_id) for tq_id in (2, 1) for queue_id in (A, B, C)
    ]


def test_slots_taken_by_own_pilots_that_are_not_seen_are_taken(ask, put, queue):
    queues = [
        queue("A", slots=6, own=OwnPilots(waiting=6), caps=caps(50)),
        queue("B", slots=1, caps=caps(50)),
    ]
    assert per_queue(put([ask(count=1)], queues)) == {B: 1}


def test_the_tokens_of_a_ce_bound_all_its_queues(ask, put, queue):
    queues = [queue("A", "short"), queue("A", "long"), queue("B")]
    result = put([ask(count=30)], queues, tokens={NodePath("A", "ce"): 5, NodePath("B", "ce"): 4})
    by_ce: Counter[NodePath] = Counter()
    for one in result.placements:
        by_ce[one.queue_id.ce_path] += one.count
    assert by_ce == {NodePath("A", "ce"): 5, NodePath("B", "ce"): 4}


def test_a_half_open_queue_gets_one_probe(ask, put, queue):
    breakers = {A: Breaker(state=BreakerState.HALF_OPEN, failures=3)}
    assert per_queue(put([ask(count=30)], [queue("A")], breakers=breakers)) == {A: 1}


# --- why not ------------------------------------------------------------------------------------------


def test_no_free_capacity_is_reported_with_the_limits(ask, put, queue):
    queues = [
        queue("A", waiting=None),
        queue("B", closed="banned by an operator"),
        queue("C", waiting=4, caps=caps(4)),
    ]
    result = put([ask(count=3)], queues)
    (outcome,) = result.outcomes
    told = refusals(result)
    assert (outcome.placed, len(told)) == (0, 3)
    assert {one.kind for one in told} == {RefusalKind.NO_ROOM}
    names = {one.queue_id: one.clamps[0].name for one in told}
    assert names == {A: ClampName.UNKNOWN_LOAD, B: ClampName.CLOSED, C: ClampName.MAX_WAITING}


def test_free_capacity_that_others_took_is_reported_as_taken(ask, put, queue):
    result = put([ask(1, count=5), ask(2, count=5)], [queue("A", caps=caps(6))])
    assert sum(one.placed for one in result.outcomes) == 6
    for outcome in result.outcomes:
        if outcome.placed < 5:
            assert [one.kind for one in outcome.refused] == [RefusalKind.FILLED]


def test_a_task_queue_that_got_all_has_no_refusal(ask, put, queue):
    (outcome,) = put([ask(count=3)], [queue("A"), queue("B", closed="x")]).outcomes
    assert (outcome.placed, outcome.refused) == (3, ())


def test_no_queue_at_all_places_nothing(ask, put):
    result = put([ask(count=3)], [])
    assert result.placements == ()
    assert (result.outcomes[0].placed, result.outcomes[0].refused) == (0, ())


def test_nothing_asked_places_nothing(put, queue):
    result = put([], [queue("A")])
    assert (result.placements, result.outcomes) == ((), ())
    assert result.rooms[A].wanted == 0


def test_a_seed_replays_the_placement(ask, put, queue):
    args = ([ask(1, count=20), ask(2, count=20)], [queue("A", caps=caps(15)), queue("B", caps=caps(9))])
    assert put(*args, seed=4) == put(*args, seed=4)


# --- all cases ----------------------------------------------------------------------------------------

QUEUES = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C"]),
        st.one_of(st.none(), st.integers(0, 20)),
        st.integers(0, 20),
        st.integers(0, 9),
        st.one_of(st.none(), st.integers(0, 15)),
    ),
    max_size=3,
    unique_by=lambda one: one[0],
)
ASKS = st.lists(st.tuples(st.integers(1, 30), st.lists(st.sampled_from("ABC"), max_size=2)), max_size=4)


@given(QUEUES, ASKS, st.dictionaries(st.sampled_from("ABC"), st.integers(0, 12)), st.integers(0, 2**32))
def test_no_bound_is_ever_exceeded_and_no_room_left_unused(
    ask, put, queue, explain, given_queues, given_asks, tokens, seed
):
    queues = [
        queue(site, waiting=waiting, own=OwnPilots(waiting=own), caps=caps(most), slots=slots)
        for site, waiting, most, own, slots in given_queues
    ]
    asks = [
        ask(k, count=count, sites=tuple(sorted(set(sites)))) for k, (count, sites) in enumerate(given_asks)
    ]
    left = {NodePath(site, "ce"): count for site, count in tokens.items()}
    result = put(asks, queues, tokens=left, seed=seed)
    seated = per_queue(result)
    for one in queues:
        count = seated[one.queue_id]
        assert count == 0 or one.load.waiting is not None
        assert count <= max(0, (one.caps.max_waiting or 0) - max(one.own.waiting, one.load.waiting or 0))
        assert count <= left.get(one.queue_id.ce_path, count)
    for placed in result.placements:
        assert not explain(asks[placed.order.tq_id].key, placed.request)
    for k, outcome in enumerate(result.outcomes):
        assert outcome.placed == sum(one.count for one in result.placements if one.order.tq_id == k)
        assert outcome.placed <= outcome.order.count
        told = list(result.refusals(outcome))
        if outcome.placed < outcome.order.count:
            assert {one.queue_id for one in told} == {one.queue_id for one in queues}
        for refusal in told:
            if refusal.kind is RefusalKind.FILLED:
                token = left.get(refusal.queue_id.ce_path)
                used_up = seated[refusal.queue_id] == result.rooms[refusal.queue_id].room
                assert used_up or seated[refusal.queue_id] == token
