"""Match cycles: both Requirements, stations, Rank and chance; what is remembered says the same as asking anew."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from bench.match_cycle import MatchCycle, NoSite, RankedBook, cycle_request
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.kits.broker_kit import match, site_ad

from lodesman.decide.broker.gate import SiteGate
from lodesman.languages.classad import Run, evaluate, matches, parse_ad

ANY = "[Requirements = true]"


def gates_of(*ads, now=0.0, shut=()):
    gates = {ad.site: SiteGate(ad.site, ad, now=now) for ad in ads}
    return gates | {site: SiteGate(site, None, now=now) for site in shut}


def cycle_of(*ads, book=None, seed=1, now=0.0, without=()):
    return MatchCycle(book or RankedBook(), gates_of(*ads, now=now, shut=without), now=now, rng=Random(seed))


def request(text=ANY, count=1, stations=()):
    return cycle_request(parse_ad(text), count=count, stations=stations)


THREE = [site_ad(name, StationName=f'"sam-{name}"') for name in ("FNAL", "Lyon", "Wuppertal")]


@pytest.mark.slow
def test_one_of_the_sites_with_a_station_of_the_list_is_chosen_at_random():
    found = Counter()
    for seed in range(300):
        outcome = cycle_of(*THREE, seed=seed).match(
            request(stations=["SAM-fnal", "sam-lyon", "sam-elsewhere"])
        )
        found.update(outcome.sites)
    assert set(found) == {"FNAL", "Lyon"}
    assert 110 < found["FNAL"] < 190
    again = [cycle_of(*THREE, seed=7).match(request()).sites for _ in range(3)]
    assert again[0] == again[1] == again[2]


def test_without_a_list_it_is_one_of_all():
    assert {next(iter(cycle_of(*THREE, seed=seed).match(request()).sites)) for seed in range(50)} == {
        "FNAL", "Lyon", "Wuppertal",
    }  # fmt: skip


def test_a_station_that_no_site_advertises():
    outcome = cycle_of(*THREE).match(request(stations=["sam-elsewhere"]))
    assert outcome.sites == {}
    assert outcome.refused == {NoSite.STATION: 3}


def test_each_match_counts_for_the_next_one_of_the_same_cycle():
    cycle = cycle_of(*THREE)
    first, second = cycle.match(request(count=15)), cycle.match(request(count=15))
    assert first.sites.total() == 15
    assert second.sites.total() == 6
    assert Counter(first.sites) + Counter(second.sites) == {"FNAL": 7, "Lyon": 7, "Wuppertal": 7}
    assert first.refused == {}
    assert second.refused == {NoSite.GATE: 3}


def test_the_rows_of_pilots_count_in_the_next_cycle():
    ad = site_ad()
    rows = [match(str(number)) for number in range(5)]
    gates = {"FNAL": SiteGate("FNAL", ad, matches=rows, now=2.0)}
    assert MatchCycle(RankedBook(), gates, now=2.0, rng=Random(1)).match(request(count=9)).sites == {
        "FNAL": 2
    }


def test_the_requirements_of_both_sides_must_be_true():
    ads = [
        site_ad("Small", Memory=2000, Requirements='CurMatches < MaxJobs && TARGET.Owner != "eve"'),
        site_ad("Large", Memory=8000, Requirements='CurMatches < MaxJobs && TARGET.Owner == "anna"'),
    ]  # fmt: skip
    wish = "Requirements = TARGET.Memory >= MY.Need; Need = 4000"
    cycle = cycle_of(*ads)
    assert cycle.match(request(f'[Owner = "anna"; {wish}]')).sites == {"Large": 1}
    assert cycle.match(request(f'[Owner = "otto"; {wish}]')).refused == {NoSite.REQUEST: 1, NoSite.SITE: 1}
    assert cycle.match(request('[Owner = "eve"; Requirements = true]')).refused == {NoSite.SITE: 2}
    assert cycle.match(request('[Owner = "anna"]')).refused == {NoSite.REQUEST: 2}


def test_rank_chooses_among_sites_and_what_is_no_number_is_zero():
    ads = [site_ad(name, Speed=speed) for name, speed in (("A", 1), ("B", 5), ("C", 5), ("D", '"fast"'))]
    found = Counter()
    for seed in range(40):
        found.update(
            cycle_of(*ads, seed=seed).match(request("[Requirements = true; Rank = TARGET.Speed]")).sites
        )
    assert set(found) == {"B", "C"}
    worst = "[Requirements = true; Rank = -TARGET.Speed]"
    assert cycle_of(*ads).match(request(worst)).sites == {"D": 1}
    # When the best are full the next best get them.
    assert cycle_of(*ads).match(request("[Requirements = true; Rank = TARGET.Speed]", count=20)).sites == {
        "B": 7, "C": 7, "A": 6,
    }  # fmt: skip


def test_rank_may_ask_for_what_matches_change():
    ads = [site_ad(name, CurrentJobs=jobs) for name, jobs in (("A", 10), ("B", 12))]
    outcome = cycle_of(*ads).match(request("[Requirements = true; Rank = -TARGET.CurMatches]", count=6))
    assert outcome.sites == {"A": 4, "B": 2}


def test_requirements_may_ask_for_what_matches_change():
    text = "[Requirements = TARGET.JobsMatchedSinceLastAdvertisement < 2]"
    outcome = cycle_of(site_ad()).match(request(text, count=5))
    assert outcome.sites == {"FNAL": 2}
    assert outcome.refused == {NoSite.REQUEST: 1}


def test_a_site_may_say_more_of_one_request_than_of_another():
    ad = site_ad(Allowed='TARGET.Owner == "anna"', Requirements="CurMatches < (TARGET.Urgent ? 50 : 45)")
    wish = "Requirements = TARGET.Allowed; Urgent"
    cycle = cycle_of(ad)
    assert cycle.match(request(f'[Owner = "otto"; {wish} = true]')).sites == {}
    assert cycle.match(request(f'[Owner = "anna"; {wish} = false]', count=9)).sites == {"FNAL": 2}
    assert cycle.match(request(f'[Owner = "anna"; {wish} = true]', count=9)).sites == {"FNAL": 5}


@pytest.mark.parametrize(
    "text", ["TARGET =!= undefined", 'TARGET["Memory"] > 1', "size(TARGET.Tags) > 1", "time() > 50"]
)
def test_any_expression_of_either_side(text):
    ad = site_ad(Memory=5, Tags='{"a", "b"}', Requirements=f"({text}) && CurMatches < 45")
    asking = request(f'[Requirements = {text}; Memory = 5; Tags = {{"a", "b"}}]', count=9)
    assert cycle_of(ad, now=100.0).match(asking).sites == {"FNAL": 2}
    late = cycle_of(site_ad(Requirements="time() > 50"), now=10.0)
    assert late.match(request()).refused == {NoSite.GATE: 1}


def test_a_site_that_never_advertised_and_one_whose_ad_is_too_old():
    cycle = cycle_of(site_ad("Old"), now=1_000.0, without=["Silent"])
    assert cycle.match(request(count=3)).sites == {"Silent": 3}
    refused = cycle.match(request("[Requirements = TARGET.Memory > 1]")).refused
    assert refused == {NoSite.REQUEST: 2}


def test_a_new_ad_of_one_site_changes_what_is_remembered_of_it_alone():
    book = RankedBook()
    asking = request('[Requirements = TARGET.Memory >= 4000; Owner = "anna"]')
    small = [site_ad(name, Memory=2000) for name in ("A", "B")]
    assert cycle_of(*small, book=book).match(asking).refused == {NoSite.REQUEST: 2}
    larger = site_ad("B", sequence=2, Memory=8000)
    assert cycle_of(small[0], larger, book=book).match(asking).sites == {"B": 1}
    choosy = site_ad("B", sequence=3, Memory=8000, Requirements='TARGET.Owner != "anna"')
    assert cycle_of(small[0], choosy, book=book).match(asking).refused == {NoSite.REQUEST: 1, NoSite.SITE: 1}
    assert cycle_of(small[0], book=book, without=["B"]).match(asking).refused == {NoSite.REQUEST: 2}
    assert cycle_of(small[0], book=book).match(asking).refused == {NoSite.REQUEST: 1}


def test_what_is_not_asked_any_more_is_forgotten():
    book = RankedBook()
    for number in range(5):
        cycle_of(*THREE, book=book).match(
            request(f"[Requirements = {number} < 9; Rank = {number} + TARGET.X]")
        )
        assert len(book._memos["wants"]) <= 2
    assert all(len(memos) <= 2 for memos in book._memos.values())


# --- against pairs of ads, one by one --------------------------------------------------------------------


SITE_CLAUSES = [
    "CurMatches < MaxJobs",
    "TARGET.a > b",
    'TARGET.s == "x"',
    "Mixed",
    "TARGET.a < CurMatches",
    "c > 0",
    "true",
]
REQUEST_CLAUSES = [
    "TARGET.b < a", "TARGET.s == s", "TARGET.Live > 40", "TARGET.c == 1", "TARGET.Mixed", "b > 1", "TARGET.MaxJobs > a",
]  # fmt: skip
LETTERS = st.sampled_from(['"x"', '"y"', "undefined"])


def clauses(choices):
    return st.lists(st.sampled_from(choices), min_size=1, max_size=3).map(" && ".join)


@st.composite
def sites(draw, number):
    numbers = {name: draw(st.integers(0, 3)) for name in "bc"}
    return {
        "site": f"S{number}", "MaxJobs": draw(st.integers(39, 43)), "s": draw(LETTERS), **numbers,
        "Mixed": draw(st.sampled_from(["TARGET.a == 1", "c", "time() > 50", "CurMatches > 41"])), "Live": "CurMatches + 1",
        "CurrentSubmittingJobs": 0, "MaxSubmittingJobs": None, "Requirements": draw(clauses(SITE_CLAUSES)),
    }  # fmt: skip


@st.composite
def asks(draw):
    rank = draw(st.sampled_from(["TARGET.b", "TARGET.Live", "TARGET.c - a", "TARGET.s", "TARGET.Mixed"]))
    return (
        f"[a = {draw(st.integers(0, 3))}; b = {draw(st.integers(0, 3))}; s = {draw(LETTERS)}; Rank = {rank}; "
        f"Requirements = {draw(clauses(REQUEST_CLAUSES))}]"
    )


@pytest.mark.slow
@at_most(30)
@given(
    rounds=st.lists(
        st.tuples(st.tuples(*[sites(number) for number in range(4)]), st.lists(asks(), max_size=4)),
        min_size=1,
        max_size=3,
    ),
    changed=st.lists(st.sets(st.integers(0, 3)), min_size=3, max_size=3),
    seed=st.integers(0, 100),
)
def test_a_cycle_finds_what_matching_pair_by_pair_finds(rounds, changed, seed):
    """Some sites have other ads from round to round; the book stays."""
    book, rng = RankedBook(), Random(seed)
    ads = {}
    for turn, (described, wishes) in enumerate(rounds):
        now = 40.0 + 20 * turn
        for number, facts in enumerate(described):
            if turn == 0 or number in changed[turn]:
                ads[f"S{number}"] = site_ad(sequence=turn, **facts)
        gates = gates_of(*ads.values(), now=now)
        cycle = MatchCycle(book, gates, now=now, rng=rng)
        for text in wishes:
            mine = parse_ad(text)
            good = {}
            for site, gate in gates.items():
                if matches(mine, gate.side.ad, run=Run(now=now)) and not gate.shut:
                    rank = evaluate("rank", mine, gate.side.ad, run=Run(now=now))
                    good[site] = float(rank) if isinstance(rank, (int, float)) else 0.0
            outcome = cycle.match(cycle_request(mine))
            if good:
                (chosen,) = outcome.sites
                assert good.get(chosen) == max(good.values())
            else:
                assert outcome.sites == {}
                assert sum(outcome.refused.values()) == len(gates)
