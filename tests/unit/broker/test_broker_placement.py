"""Pilots placed by the director at sites that advertise themselves: gates, Requirements, Rank, and limits held exactly."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import match, site_ad
from tests.unit.director.conftest import _BITS, make_demand, make_queue

from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.broker.site_choice import SiteChoice
from lodesman.decide.broker.site_wishes import site_wish
from lodesman.decide.director.options import PoolOptions
from lodesman.decide.director.orders import PilotOrder, PoolState, choose_identity
from lodesman.decide.director.placement import place
from lodesman.decide.director.places import Places
from lodesman.decide.director.queues import QueueCaps, QueueGates
from lodesman.languages.classad import parse_expression
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import ClampName, GateMode, RefusalKind

NOW = 1_000_000.0
LIMITS = "CurMatches < MaxJobs"


@pytest.fixture(autouse=True)
def _numbered_anew():
    """Each test numbers its CE queues in the order in which it makes them."""
    _BITS.clear()


def order(tq_id=1, count=10, *, pool="Local", **key):
    demand = make_demand(tq_id, **key)
    identity = choose_identity(demand, options=PoolOptions(name=pool), rng=random.Random(1))
    return PilotOrder(tq_id=tq_id, key=demand.key, count=count, pool=pool, identity=identity)


def gate(site, *, matches=(), at=NOW, **changes):
    said = {
        "CurrentJobs": 0,
        "CurrentSubmittingJobs": 0,
        "MaxSubmittingJobs": 1_000,
        "MaxJobs": 1_000,
        **changes,
    }
    return SiteGate(site, site_ad(site, at=at, **said), mode=GateMode.LEDGER, matches=matches, now=NOW)


def put(orders, queues, gates, *, ranks=None, wishes=None, seed=1, serving=None, by_capacity=False):
    places = {queue.queue_id.site: 0 for queue in queues}
    for queue in queues:
        places[queue.queue_id.site] |= 1 << queue.bit
    sites = {site: SiteGate(site, None, now=NOW) for site in places} | {one.site: one for one in gates}
    choice = SiteChoice(
        sites, places, now=NOW, wishes=wishes or {}, by_capacity=by_capacity,
        ranks={pool: parse_expression(text) for pool, text in (ranks or {}).items()},
    )  # fmt: skip
    queue_gates = QueueGates(breakers={}, tokens={}, max_load_age_s=600.0, sites=choice)
    pools = {one.pool: PoolState(name=one.pool, max=0, total=10**6) for one in orders}
    rng = random.Random(seed)
    return place(
        orders, Places(queues, serving or PoolMap()), pools=pools, gates=queue_gates, now=NOW, rng=rng
    )


def by_site(result, tq_id=0) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in result.placements:
        if tq_id in (0, one.order.tq_id):
            found[one.queue_id.site] += one.count
    return found


def test_a_site_gets_what_its_gate_has_left_after_the_pilots_that_no_ad_shows():
    gates = [gate("A", MaxJobs=12, CurrentJobs=4, matches=[match(f"m{n}", NOW) for n in range(3)])]
    result = put([order(count=50)], [make_queue("A"), make_queue("A", "long"), make_queue("B")], gates)
    assert (by_site(result)["A"], result.placed) == (5, 50)


def test_the_seed_by_its_numbers():
    """MaxJobs 100, MaxSubmittingJobs 10, 40 jobs of which 3 are being submitted: 7 matches."""
    gates = [gate("A", MaxJobs=100, MaxSubmittingJobs=10, CurrentJobs=40, CurrentSubmittingJobs=3)]
    assert by_site(put([order(count=50)], [make_queue("A")], gates)) == {"A": 7}


def test_an_ad_that_is_too_old_shuts_the_site_and_says_so():
    result = put([order(count=3)], [make_queue("A")], [gate("A", at=NOW - 1_000)])
    assert result.placed == 0
    (refusal,) = result.refusals(result.outcomes[0])
    assert (refusal.kind, [one.name for one in refusal.clamps]) == (
        RefusalKind.NO_ROOM,
        [ClampName.SITE_GATE],
    )
    assert refusal.clamps[0].detail == "the gate of the site: its ad is 1,000 s old, older than 900 s"


def test_a_site_that_takes_no_such_pilots_gets_none_and_the_others_theirs():
    gates = [gate("A", Requirements=f'{LIMITS} && TARGET.JobOwner == "bob"')]
    orders = [order(1, count=5), order(2, count=5, owner="bob")]
    result = put(orders, [make_queue("A"), make_queue("B")], gates)
    assert by_site(result, 1) == {"B": 5}
    assert by_site(result, 2)["A"] > 0
    (refusal,) = result.refusals(result.outcomes[0])
    assert (refusal.queue_id.site, refusal.kind) == ("A", RefusalKind.UNMATCHED)
    assert str(refusal.reasons[0]) == 'TARGET.JobOwner == "bob" is false: JobOwner = "ann"'


def test_pilots_that_do_not_fit_any_more_are_not_admitted():
    gates = [gate("A", MaxJobs=8, Requirements="CurMatches + TARGET.Cpus <= MaxJobs")]
    result = put([order(count=9, cores=4)], [make_queue("A", cores=8)], gates)
    assert result.placed == 5
    (refusal,) = result.refusals(result.outcomes[0])
    assert refusal.kind is RefusalKind.NOT_ADMITTED
    assert "CurMatches + TARGET.Cpus <= MaxJobs is false" in str(refusal.reasons[0])


def test_rank_comes_first_and_free_capacity_among_equals():
    queues = [make_queue(site, caps=QueueCaps(max_waiting=4, max_total=None)) for site in "ABC"]
    gates = [gate("A", Speed=1), gate("B", Speed=2), gate("C", Speed=2)]
    result = put([order(count=10)], queues, gates, ranks={"Local": "Speed"})
    assert by_site(result) == {"A": 2, "B": 4, "C": 4}
    assert by_site(put([order(count=4)], queues, gates, ranks={"Local": "-Speed"})) == {"A": 4}


def test_a_rank_by_matches_spreads_pilots_evenly():
    queues = [make_queue(site) for site in "ABCD"]
    gates = [gate(site) for site in "ABCD"]
    result = put([order(1, count=10), order(2, count=10)], queues, gates, ranks={"Local": "-CurMatches"})
    assert by_site(result) == {"A": 5, "B": 5, "C": 5, "D": 5}


class Serving:
    """Every queue serves the pool."""

    def mask(self, pool, /):
        return (1 << 64) - 1

    def bit(self, place, /):
        return None


def test_a_station_list_sends_pilots_where_it_is_advertised():
    queues = [make_queue(site) for site in "ABC"]
    stations = parse_expression('member(StationName, {"fnal", "cern"})')
    wishes = {"req2:s": [site_wish("stations", stations, 0b111)]}
    gates = [gate("A", StationName='"fnal"'), gate("B", StationName='"lyon"')]

    orders = [order(1, count=6, submit_pool="req2:s"), order(2, count=6)]
    result = put(orders, queues, gates, wishes=wishes, serving=Serving())
    assert by_site(result, 1) == {"A": 6}
    assert len(by_site(result, 2)) > 1
    words = {one.queue_id.site: str(one.reasons[0]) for one in result.refusals(result.outcomes[0])}
    assert words == {
        "B": 'stations is false: StationName = "lyon"',
        "C": "stations is unknown: the site has not advertised",
    }


def test_sites_are_drawn_at_random_and_a_seed_draws_the_same():
    queues = [make_queue(site) for site in "ABC"]
    results = [
        put([order(count=9)], queues, [gate(site) for site in "ABC"], seed=seed) for seed in (1, 1, 2, 3)
    ]
    assert results[0].placements == results[1].placements
    assert len({tuple(one.placements) for one in results}) > 1


# Sites with the room of each of their queues; F has another station, G and H never advertised.
DRAWS = {
    "wide and narrow": {"A": [300], "B": [100], "C": [50], "D": [10]},
    "alike": {"A": [50], "B": [50], "C": [50], "D": [50]},
    "many queues": {"A": [20, 20, 20, 20, 20], "B": [10], "C": [1_000, 10]},
    "with strangers": {"A": [10], "B": [90], "F": [500], "G": [500], "H": [10]},
}
MOST_CHI2 = {1: 10.8, 2: 13.8, 3: 16.3}
"""By degrees of freedom: more than that is seen once in a thousand times."""


def drawn(rooms, *, rounds=200, each=10, by_capacity=False, ranks=None, key="req2:s", **limits):
    """How many pilots each site got, in rounds that all begin alike; and what each round gave."""
    queues = [
        make_queue(site, f"q{n}", caps=QueueCaps(max_waiting=room, max_total=None))
        for site, some in rooms.items()
        for n, room in enumerate(some)
    ]
    wanted = parse_expression('member(StationName, {"fnal", "cern"}) || member("cern", StationNames)')
    wishes = {"req2:s": [site_wish("stations", wanted, (1 << 64) - 1)]}
    names = {"F": {"StationName": '"lyon"'}, "B": {"StationNames": '{"x", "CERN"}'}}
    found, rounds_of = Counter(), []
    for seed in range(rounds):
        gates = [
            gate(site, Speed=0, **names.get(site, {"StationName": '"fnal"'}), **limits.get(site, {}))
            for site in rooms
            if site not in "GH"
        ]
        one = by_site(put([order(1, count=each, submit_pool=key)], queues, gates, wishes=wishes, seed=seed,
                          serving=Serving(), by_capacity=by_capacity, ranks=ranks))  # fmt: skip
        found += one
        rounds_of.append(one)
    return found, rounds_of


def chi2(found, weights):
    total, weight = found.total(), sum(weights.values())
    wanted = {site: total * one / weight for site, one in weights.items()}
    return sum((found[site] - one) ** 2 / one for site, one in wanted.items())


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [None, {"Local": "Speed"}])
@pytest.mark.parametrize("rooms", DRAWS.values(), ids=DRAWS)
def test_each_site_of_a_station_list_is_as_likely_as_the_others(rooms, ranks):
    """The seed: "The broker will randomly select one of the sites that advertise a station name"."""
    found, _ = drawn(rooms, ranks=ranks)
    named = dict.fromkeys((site for site in rooms if site < "F"), 1)
    assert set(found) == set(named)
    assert found.total() == 2_000
    assert chi2(found, named) < MOST_CHI2[len(named) - 1]
    assert chi2(found, {"A": 2, **dict.fromkeys([*named][1:], 1)}) > MOST_CHI2[3], (
        "the test sees a difference"
    )


@pytest.mark.slow
def test_by_capacity_and_without_stations_queues_are_drawn_by_their_room():
    rooms = {"A": [600], "B": [200], "C": [150, 50], "D": [20]}
    found, _ = drawn(rooms, by_capacity=True)
    assert found == drawn(rooms, key="")[0]
    assert found["A"] > 2 * found["B"] > 8 * found["D"]
    assert chi2(Counter({site: found[site] for site in "BC"}), {"B": 1, "C": 1}) < MOST_CHI2[1] * 1.5


@pytest.mark.slow
def test_a_site_that_is_full_or_shut_leaves_the_others_as_likely():
    """Limits are held in each round: A takes 2, B none at all, C has room for one; the rest is for D and E."""
    rooms = {"A": [50], "B": [50], "C": [1], "D": [50], "E": [50]}
    found, rounds = drawn(rooms, each=40, A={"MaxJobs": 2}, B={"MaxJobs": 0})
    assert {(one["A"], one["B"], one["C"]) for one in rounds} == {(2, 0, 1)}
    assert found.total() == 8_000
    assert chi2(Counter({site: found[site] for site in "DE"}), {"D": 1, "E": 1}) < MOST_CHI2[1]


SITES = st.sampled_from("ABC")


@given(
    st.dictionaries(
        SITES,
        st.fixed_dictionaries(
            {"MaxJobs": st.integers(0, 12), "MaxSubmittingJobs": st.integers(0, 8), "CurrentJobs": st.integers(0, 8),
             "CurrentSubmittingJobs": st.integers(0, 4)}
        ),
    ),
    st.dictionaries(SITES, st.integers(0, 6)),
    st.lists(st.tuples(SITES, st.sampled_from("qr"), st.integers(0, 15)), unique_by=lambda one: one[:2]),
    st.lists(st.integers(1, 30), max_size=3),
    st.sampled_from(["", "MaxJobs", "-CurMatches"]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_no_site_ever_gets_more_than_its_gate_allows(ads, pending, given_queues, counts, rank, seed):
    """In ledger mode: jobs that the ad counts, pilots that it does not show yet and new ones together keep both limits."""
    gates = [
        gate(site, matches=[match(f"m{n}", NOW) for n in range(pending.get(site, 0))], **said)
        for site, said in ads.items()
    ]
    queues = [
        make_queue(site, name, caps=QueueCaps(max_waiting=most, max_total=None))
        for site, name, most in given_queues
    ]
    orders = [order(number, count) for number, count in enumerate(counts, 1)]
    result = put(orders, queues, gates, ranks={"Local": rank} if rank else None, seed=seed)
    got = by_site(result)
    for site, said in ads.items():
        before = said["CurrentJobs"] + said["CurrentSubmittingJobs"] + pending.get(site, 0)
        submitting = said["CurrentSubmittingJobs"] + pending.get(site, 0)
        if got[site]:
            assert before + got[site] <= said["MaxJobs"]
            assert submitting + got[site] <= said["MaxSubmittingJobs"]
        left = min(said["MaxJobs"] - before, said["MaxSubmittingJobs"] - submitting) - got[site]
        rooms = sum(count for queue_id, count in result.left.items() if queue_id.site == site)
        assert rooms == 0 or left > 0
    if any(result.left.values()):
        assert result.placed == sum(counts)
