"""What the director finds at the sites: ads, pilots that were placed there, modes and ranks as configured."""

from __future__ import annotations

import pytest
from tests.kits.broker_kit import match, site_ad

from lodesman.base.errors import InvalidConfig
from lodesman.decide.broker.site_wishes import site_wish
from lodesman.decide.director.options import PoolOptions, read_options
from lodesman.decide.director.site_matching import NO_SITES
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import gate_modes, load_resources
from lodesman.languages.classad import parse_expression
from lodesman.server.loops.site_matching import GateOptions, SiteMatcher, places_of, ranks_of
from lodesman.wire.vocabulary import GateMode

NOW = 1_000.0
SITES = """
[site.North]
gatemode = "Strict"
[site.North.ce."ce".queue.a]
CPUTime = 100
[site.North.ce."ce".queue.b]
CPUTime = 100
[site.South.ce."ce".queue.c]
CPUTime = 100
"""
NO_DB = None


@pytest.fixture(scope="module")
def policy():
    return Policy(load_resources([("sites.toml", SITES)]))


def matcher(ads, *, live=None, ended=(), **more):
    asked = []

    def ended_since(_db, site, since):
        asked.append((site, since))
        return ended

    found = SiteMatcher(
        ads=lambda _db: {ad.site: ad for ad in ads}, live=lambda _db: live or {}, ended=ended_since, **more
    )
    return found, asked


def gates(found, policy, pools=None):
    return found.look(NO_DB, policy, pools or {}, NOW).sites


def test_without_ads_ranks_and_wishes_there_is_nothing_to_ask(policy):
    found, asked = matcher([], live={"North": [match("a")]})
    assert found.look(NO_DB, policy, {"Local": PoolOptions(name="Local")}, NOW) is NO_SITES
    assert asked == []


def test_each_site_has_a_gate_of_its_ad_and_the_pilots_there(policy):
    ads = [site_ad("South", at=NOW), site_ad("North", at=NOW - 100)]
    live = {"South": [match("a", NOW), match("b", NOW)], "North": [match("c", NOW - 50)]}
    found, asked = matcher(ads, live=live, ended=[match("d", NOW - 20, ended=True)])
    all_gates = gates(found, policy)
    assert {site: (gate.mode, gate.matched) for site, gate in all_gates.items()} == {
        "North": (GateMode.STRICT, 2),
        "South": (GateMode.LEDGER, 2),
    }
    assert asked == [("North", NOW - 100)], "pilots that ended count in strict mode alone"


def test_sites_that_never_advertised_are_known_and_have_no_gate(policy):
    found, _ = matcher([site_ad("South", at=NOW)])
    choice = found.look(NO_DB, policy, {}, NOW)
    assert choice.sites["North"].ad is None
    assert list(choice.gates) == ["South"]


def test_an_ad_of_a_site_that_is_not_configured_is_left_out(policy):
    found, _ = matcher([site_ad("Gone", at=NOW)])
    assert "Gone" not in gates(found, policy)


def test_how_gates_count_is_configured(policy):
    options = GateOptions(mode=GateMode.STRICT, ledger_s=5.0)
    found, _ = matcher([site_ad("South", at=NOW)], live={"South": [match("a", NOW)]}, options=options)
    assert gates(found, policy)["South"].mode is GateMode.STRICT
    short, _ = matcher(
        [site_ad("South", at=NOW)], live={"South": [match("a", NOW - 9)]}, options=GateOptions(ledger_s=5.0)
    )
    assert gates(short, policy)["South"].matched == 0


def test_wishes_and_ranks_count_also_where_no_site_advertises(policy):
    wish = site_wish("x", parse_expression('StationName == "a"'), 1)
    found, _ = matcher([], wishes=lambda _db, _policy: {"req2:x": [wish]})
    assert found.look(NO_DB, policy, {}, NOW).wishes == {"req2:x": [wish]}
    ranked, _ = matcher([])
    pools = {"Grid": PoolOptions(name="Grid", rank="Speed"), "Local": PoolOptions(name="Local")}
    assert ranked.look(NO_DB, policy, pools, NOW) is not NO_SITES
    assert list(ranks_of(pools)) == ["Grid"]


def test_the_queues_of_sites_are_bits(policy):
    bits = policy.bits
    north, south = places_of(policy)["North"], places_of(policy)["South"]
    assert (north, south) == (
        sum(1 << bit for queue, bit in bits.items() if queue.site == "North"),
        sum(1 << bit for queue, bit in bits.items() if queue.site == "South"),
    )
    assert places_of(Policy(load_resources([]))) == {}


# --- configuration -------------------------------------------------------------------------------------------------


def test_the_mode_of_a_site_is_read_in_any_case(policy):
    assert gate_modes(policy.config.tree) == {"North": GateMode.STRICT}


def test_a_mode_that_there_is_not_is_refused():
    with pytest.raises(InvalidConfig, match="ledger or strict"):
        load_resources([("sites.toml", SITES.replace("Strict", "lax"))])


def test_a_rank_is_an_expression_in_its_canonical_form():
    options = read_options(
        {"SubmitPools": ["Grid", "Local"], "Rank": "-CurMatches", "Grid": {"Rank": "a+ 1"}}
    )
    assert {name: pool.rank for name, pool in options.pools.items()} == {
        "Grid": "a + 1",
        "Local": "-CurMatches",
    }
    assert read_options({"Rank": 5}).pools["Local"].rank == "5"


@pytest.mark.parametrize("rank", ["1 +", "f(", True, "x" * 70_000])
def test_what_is_no_expression_is_refused(rank):
    with pytest.raises(InvalidConfig) as refused:
        read_options({"Rank": rank})
    assert refused.value.data["faults"][0]["option"] == "Rank"
