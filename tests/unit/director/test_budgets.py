"""Budgets that CE queues share: the tokens of CEs and the gates of sites, in the placement of pilots."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.budgets import UNBOUNDED, Budget, GateBudget, gate_limit, shared_budgets
from lodesman.decide.director.options import PoolOptions
from lodesman.decide.director.orders import PilotOrder, PoolState, choose_identity
from lodesman.decide.director.placement import place
from lodesman.decide.director.places import Places
from lodesman.decide.director.queues import OwnPilots, QueueCaps, QueueGates, queue_limits
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import ClampName, RefusalKind

NOW = 1_000_000.0
A, B = NodePath("A", "ce"), NodePath("B", "ce")


@dataclass
class Gate:
    """Admits `most` pilots."""

    most: int
    taken: int = 0
    asked: int = 0

    @property
    def shut(self) -> str:
        return f"{self.taken} of {self.most}" if self.taken >= self.most else ""

    def room(self, most: int) -> int:
        self.asked += 1
        return min(most, max(0, self.most - self.taken))

    def admits(self) -> bool:
        return self.room(1) > 0

    def take(self) -> None:
        assert self.taken < self.most
        self.taken += 1


@dataclass
class Sites:
    """Sites that differ only in what their gates have left."""

    gates: dict[str, Gate]

    def request(self, wanted):
        return None


class Fickle(Gate):
    """Was to admit many, and shuts after the second."""

    def room(self, most: int) -> int:
        return 0 if self.taken >= 2 else most


@pytest.fixture(scope="session")
def ask(demand):
    def make(tq_id=1, count=10, **given_key):
        wanted = demand(tq_id, **given_key)
        identity = choose_identity(wanted, options=PoolOptions(name="Local"), rng=random.Random(1))
        return PilotOrder(tq_id=tq_id, key=wanted.key, count=count, pool="Local", identity=identity)

    return make


def put(asks, queues, *, sites, tokens=None, seed=1):
    gates = QueueGates(breakers={}, tokens=tokens or {}, max_load_age_s=600.0, sites=Sites(sites))
    pools = {"Local": PoolState(name="Local", max=0, total=10**6)}
    return place(asks, Places(queues, PoolMap()), pools=pools, gates=gates, now=NOW, rng=random.Random(seed))


def by_site(result) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in result.placements:
        found[one.queue_id.site] += one.count
    return found


def test_all_queues_of_a_site_together_get_what_its_gate_admits(ask, queue):
    gates = {"A": Gate(3), "B": Gate(5)}
    queues = [queue("A", "short"), queue("A", "long"), queue("A", "q", ce="other"), queue("B")]
    result = put([ask(count=60), ask(2, count=40)], queues, sites=gates)
    assert by_site(result) == {"A": 3, "B": 5}
    assert {name: gate.taken for name, gate in gates.items()} == {"A": 3, "B": 5}


def test_a_gate_that_shuts_sooner_than_it_said_is_believed_at_once(ask, queue):
    result = put([ask(count=50)], [queue("A"), queue("A", "long")], sites={"A": Fickle(99)})
    assert by_site(result) == {"A": 2}
    assert {one.kind for one in result.outcomes[0].refused} == {RefusalKind.FILLED}


def test_a_gate_is_asked_once_for_each_pilot_and_once_before(ask, queue):
    gates = {"A": Gate(100), "B": Gate(100)}
    result = put([ask(count=20)], [queue("A"), queue("A", "long"), queue("B")], sites=gates)
    assert sum(gate.asked for gate in gates.values()) == 20 + len(gates)
    assert result.placed == 20


def test_what_shuts_a_site_is_said_of_each_of_its_queues(ask, queue):
    queues = [
        queue("A"),
        queue("A", "long"),
        queue("B", waiting=3, caps=QueueCaps(max_waiting=3, max_total=9)),
    ]
    result = put([ask(count=5)], queues, sites={"A": Gate(7, taken=7), "B": Gate(2)})
    assert result.placed == 0
    clamps = {one.queue_id: one.clamps for one in result.refusals(result.outcomes[0])}
    at_a = clamps[QueueId("A", "ce", "long")]
    assert [(one.name, one.limit, one.detail) for one in at_a] == [
        (ClampName.SITE_GATE, 0, "the gate of the site: 7 of 7")
    ]
    assert [one.name for one in clamps[QueueId("B", "ce", "q")]] == [ClampName.MAX_WAITING]


def test_a_gate_that_cuts_nothing_is_not_said_and_changes_no_draw(ask, queue):
    queues = [queue("A", caps=QueueCaps(max_waiting=300, max_total=None)), queue("B")]
    with_gate = put([ask(count=30)], queues, sites={"A": Gate(30)}, seed=5)
    assert with_gate.rooms[QueueId("A", "ce", "q")].clamps == ()
    assert with_gate.placements == put([ask(count=30)], queues, sites={}, seed=5).placements


def test_a_closed_gate_is_known_where_nothing_is_wanted(queue):
    result = put([], [queue("A")], sites={"A": Gate(0)})
    assert [one.name for one in result.rooms[QueueId("A", "ce", "q")].clamps] == [ClampName.SITE_GATE]


def test_the_words_of_a_gate():
    assert gate_limit(Gate(4), 4) is None
    cut = gate_limit(Gate(4), 5)
    assert cut is not None
    assert (cut.limit, cut.detail) == (4, "the gate of the site admits 4 more")


def test_a_queue_has_the_limit_of_its_site_last(queue):
    gates = QueueGates(breakers={}, tokens={A: 5}, max_load_age_s=600.0)
    cut = gate_limit(Gate(4), 5)
    names = [one.name for one in queue_limits(queue("A"), gates=gates, now=NOW, site=cut)]
    assert names == [ClampName.TOKEN_BUCKET, ClampName.SITE_GATE]


def test_a_budget_binds_when_less_is_left_than_a_queue_takes():
    budget = Budget(0b11, 5, highest=3)
    seen = []
    for _ in range(4):
        seen.append((budget.left, budget.binds))
        budget.take()
    assert seen == [(5, False), (4, False), (3, False), (2, True)]
    gate = GateBudget(0b1, Gate(2), UNBOUNDED, 9)
    gate.take()
    assert (gate.left, gate.binds) == (UNBOUNDED - 1, False)
    gate.take()
    assert (gate.left, gate.binds) == (0, True)


def test_queues_have_the_budgets_of_their_ce_and_site():
    queues = {
        0: QueueId("A", "ce", "q"),
        3: QueueId("A", "ce", "r"),
        4: QueueId("A", "x", "q"),
        9: QueueId("C", "ce", "q"),
    }
    found = shared_budgets(
        dict.fromkeys(queues, 7), queues, tokens={A: 5, B: 1}, sites={"A": Gate(9), "B": Gate(1)}, limits={}
    )
    assert {bit: [one.mask for one in budgets] for bit, budgets in found.items()} == {
        0: [0b1001, 0b11001], 3: [0b1001, 0b11001], 4: [0b11001], 9: [],
    }  # fmt: skip
    assert found[0] == found[3]


SITES = st.sampled_from("ABC")


@given(
    st.dictionaries(SITES, st.integers(0, 12)),
    st.dictionaries(SITES, st.integers(0, 12)),
    st.lists(
        st.tuples(SITES, st.sampled_from("qrs"), st.integers(0, 15), st.integers(0, 5)),
        unique_by=lambda q: q[:2],
    ),
    st.lists(st.tuples(st.integers(1, 30), st.sets(SITES, max_size=2)), max_size=4),
    st.integers(0, 2**32),
)
def test_no_budget_is_exceeded_and_none_left_unused(
    ask, queue, gates, tokens, given_queues, given_asks, seed
):
    sites = {name: Gate(most) for name, most in gates.items()}
    left = {NodePath(name, "ce"): count for name, count in tokens.items()}
    queues = [
        queue(site, name, own=OwnPilots(waiting=own), caps=QueueCaps(max_waiting=most, max_total=None))
        for site, name, most, own in given_queues
    ]
    asks = [ask(k, count, sites=tuple(sorted(names))) for k, (count, names) in enumerate(given_asks)]
    result = put(asks, queues, sites=sites, tokens=left, seed=seed)
    seated = by_site(result)
    for name, gate in sites.items():
        assert gate.taken == seated[name] <= gate.most
    for path, most in left.items():
        assert seated[path.site] <= most
    for outcome in result.outcomes:
        if outcome.placed == outcome.order.count:
            continue
        for one in queues:
            site = one.queue_id.site
            if outcome.order.key.sites and site not in outcome.order.key.sites:
                continue
            own_room = result.rooms[one.queue_id].room - sum(
                placed.count for placed in result.placements if placed.queue_id == one.queue_id
            )
            spent = [
                site in sites and seated[site] == sites[site].most,
                one.queue_id.ce_path in left and seated[site] == left[one.queue_id.ce_path],
            ]
            assert own_room <= 0 or any(spent)
