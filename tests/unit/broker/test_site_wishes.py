"""What jobs ask of the ads of sites, judged between two ads: for claims, and in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import site_ad

from lodesman.decide.broker.site_wishes import WishedQueues, misfits, site_wish
from lodesman.decide.resources.expression import holds_at
from lodesman.languages.classad import parse_expression

STATION = 'StationName == "fnal"'
PLACES = {"A": 0b0011, "B": 0b1100}


def wish(text, queues=0b1111):
    return site_wish(text, parse_expression(text), queues)


def unfit(text, *ads, now=1.0, known=None, queues=0b1111):
    by_site = {one.site: one for one in ads}
    known = WishedQueues() if known is None else known
    return known.unfit({"req2:x": [wish(text, queues)]}, by_site, PLACES, now)["req2:x"]


def words(text, *ads, now=1.0):
    return list(misfits([wish(text)], {one.site: one for one in ads}, PLACES, now))


def test_only_sites_whose_ads_say_so_are_left():
    ads = site_ad("A", StationName='"FNAL"'), site_ad("B", StationName='"lyon"')
    assert unfit(STATION, *ads) == 0b1100
    assert unfit(STATION, *ads, queues=0b0111) == 0b0100
    assert words(STATION, *ads) == [(f'B: {STATION} is false: StationName = "lyon"', 0b1100)]


def test_what_an_ad_does_not_say_is_no_yes():
    assert (
        unfit("SiteAd.Load < 3".replace("SiteAd.", "TARGET."), site_ad("A"), site_ad("B", Load=2)) == 0b0011
    )
    assert words(STATION, site_ad("A", StationName='"fnal"'), site_ad("B")) == [
        (f"B: {STATION} is undefined: StationName = undefined", 0b1100)
    ]


@pytest.mark.parametrize("text", [STATION, "StationName =?= undefined", "CurMatches < 5", "MaxJobs > 1"])
def test_a_site_without_an_ad_fulfils_nothing_that_asks_for_one(text):
    assert unfit(text) == 0b1111
    assert words(text)[0] == (f"A: {text} is unknown: the site has not advertised", 0b0011)


def test_nor_does_one_whose_ad_is_too_old():
    ads, known = [site_ad("A", StationName='"fnal"', at=0.0)], WishedQueues()
    assert unfit(STATION, *ads, now=900.0, known=known) == 0b1100
    assert unfit(STATION, *ads, now=901.0, known=known) == 0b1111
    assert words(STATION, *ads, now=901.0)[0] == (
        f"A: {STATION} is unknown: the ad of the site is 901 s old, older than 900 s", 0b0011,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["CurMatches < 5", "CurrentJobs < 5", "JobsMatchedSinceLastAdvertisement > 9", "UpdateSequenceNumber > 7",
     "size(PilotStamps) > 7", f"{STATION} || CurrentJobs < 5", "Busy < 5", "Age < 5"],
)  # fmt: skip
def test_counters_and_ages_keep_no_job_from_a_pilot_that_is_there(text):
    more = {"Busy": "CurrentJobs + 1", "Age": "time() - 1000"}
    ads = [site_ad(site, CurrentJobs=40, **more) for site in PLACES]
    assert unfit(text, *ads) == 0
    assert words(text, *ads) == []


def test_what_asks_for_the_time_alone_needs_no_ad():
    assert unfit("time() > 99999999999") == 0
    assert words("time() > 99999999999") == []


def test_what_an_ad_asks_of_requests_is_asked_of_nothing():
    ads = site_ad("A", Speed="TARGET.Speed"), site_ad("B", Speed="TARGET.Speed ?: 7")
    assert unfit("Speed > 5", *ads) == 0b0011


def test_limits_and_what_follows_from_them_are_no_counters():
    more = {"Big": "MaxJobs > 50"}
    ads = [site_ad("A", MaxJobs=100, **more), site_ad("B", MaxJobs=10, **more)]
    assert unfit("Big", *ads) == unfit("MaxJobs > 50", *ads) == 0b1100


def test_only_sites_with_another_ad_are_asked_anew(monkeypatch):
    known, asked = WishedQueues(), []
    first = site_ad("A", StationName='"fnal"'), site_ad("B", StationName='"fnal"')
    assert unfit(STATION, *first, known=known) == 0
    between = type(known._sites["A"])
    judge = between.fulfils
    monkeypatch.setattr(between, "fulfils", lambda self, one: asked.append(1) or judge(self, one))
    assert unfit(STATION, *first, known=known) == 0
    assert asked == []
    assert unfit(STATION, first[0], site_ad("B", sequence=2, StationName='"lyon"'), known=known) == 0b1100
    assert asked == [1]
    known.unfit({"req2:x": [wish(STATION)]}, {}, {"A": 0b1}, 1.0)
    assert known._fulfilled == {wish(STATION).request.wants.key: 0}


def test_pools_that_ask_for_nothing_are_named_so_that_they_are_known():
    assert WishedQueues().unfit({"req2:x": [wish("time() > 5")], "req2:y": []}, {}, PLACES, 1.0) == {
        "req2:x": 0,
        "req2:y": 0,
    }


TEXTS = st.sampled_from(
    [STATION, "MaxJobs > 50", "Load < 3", 'member(StationName, {"fnal", "lyon"})', "isUndefined(Load)"]
)
ADS: st.SearchStrategy[dict[str, object] | None] = st.none() | st.builds(
    dict,
    StationName=st.sampled_from(['"fnal"', '"lyon"', None]),
    MaxJobs=st.sampled_from([10, 100]),
    Load=st.sampled_from([1, 5, "Nothing", None]),
)


def test_what_is_true_whatever_an_ad_says_needs_none():
    assert unfit("CurMatches < 5 || true") == 0
    assert words("CurMatches < 5 || true") == []


@given(st.lists(st.tuples(TEXTS, ADS, ADS), min_size=1, max_size=6))
def test_it_says_what_the_exact_evaluator_says_whatever_came_before(rounds):
    known = WishedQueues()
    for number, (text, *attributes) in enumerate(rounds):
        ads = {
            site: site_ad(site, sequence=number, **given)
            for site, given in zip(PLACES, attributes, strict=True)
            if given is not None
        }
        found = known.unfit({"p": [wish(text)]}, ads, PLACES, 1.0)["p"]
        for site, queues in PLACES.items():
            ad = ads.get(site)
            holds = ad is not None and holds_at(parse_expression(text), ad.ad, now=1.0)
            assert found & queues == (0 if holds else queues)
