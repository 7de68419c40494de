"""Site ads: what is read of them, what is refused by name, and which one of two counts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import ad_text, site_ad
from tests.kits.classad_kit import ad_text as any_ad

from lodesman.base.errors import Forbidden, InvalidRequest, LodesmanError, SyntaxFault
from lodesman.decide.broker.ad import LIFETIME_S, read_site_ad, replaces
from lodesman.languages.classad import parse_ad, write_ad


def test_an_ad_with_all_that_a_site_may_say():
    text = ad_text(
        sequence=1_164_000_000,
        Incarnation='"boot-7"',
        ClassAdLifetime=600,
        CurrentPendingJobs=12,
        PilotStamps='{"b", "a"}',
        StationName='"SAM-FNAL"',
        StationNames='{"sam-lyon", "Sam-Wuppertal"}',
        GramUrl='"https://samgrid.fnal.gov/jobmanager"',
    )
    ad = read_site_ad(text, site="FNAL", now=5.0)
    assert (ad.site, ad.sequence, ad.incarnation) == ("FNAL", 1_164_000_000, "boot-7")
    assert (ad.lifetime_s, ad.received_at) == (600, 5.0)
    assert ad.stamps == {"a", "b"}
    assert ad.stations == {"sam-fnal", "sam-lyon", "sam-wuppertal"}
    assert write_ad(ad.ad) == write_ad(parse_ad(text))
    assert "GramUrl" in ad.ad


def test_what_is_stored_reads_as_the_same_ad():
    ad = site_ad(at=7.0, PilotStamps='{"x"}', Nested="[a = 1; b = {a, 2}]")
    again = read_site_ad(write_ad(ad.ad), site="FNAL", now=7.0)
    assert (again, write_ad(again.ad)) == (ad, write_ad(ad.ad))


def test_what_an_ad_need_not_say():
    ad = read_site_ad('[Name = "FNAL"; UpdateSequenceNumber = 0]', site="FNAL", now=1.0)
    assert (ad.incarnation, ad.lifetime_s) == ("", LIFETIME_S)
    assert ad.stamps == ad.stations == frozenset()
    assert read_site_ad(write_ad(ad.ad), site="FNAL", now=1.0, lifetime_s=60).lifetime_s == 60


@pytest.mark.parametrize(
    ("attribute", "why", "column"),
    [
        ('frobnicate("a")', "in Extra: there is no function frobnicate here", 0),
        ('eval("1")', "in Extra: eval hides what it asks for", 0),
        ("!(random() < 1)", "in Extra: random is worth something else each time", 2),
        ("{1, [b = size(1, 2)]}", "in Extra: size cannot have 2 arguments", 9),
        (r'!regexp("(a)\\1", "aa")', r"in Extra: .*references to groups \\1 are not known here", 1),
    ],
)
def test_a_call_that_is_always_an_error_is_refused_by_name(attribute, why, column):
    text = f'[Name = "FNAL"; UpdateSequenceNumber = 0;\nExtra = {attribute}]'
    with pytest.raises(SyntaxFault, match=why) as refused:
        read_site_ad(text, site="FNAL", now=0.0)
    assert (refused.value.data["line"], refused.value.data["column"]) == (2, 9 + column)


def test_the_end_of_an_ad():
    ad = site_ad(at=100.0)
    assert not ad.is_too_old(1_000.0)
    assert ad.is_too_old(1_000.1)


def test_an_ad_of_another_site_is_refused_by_name():
    with pytest.raises(Forbidden, match=r"advertises for LYON, and the ad is of FNAL"):
        read_site_ad(ad_text("FNAL"), site="LYON", now=0.0)
    with pytest.raises(Forbidden, match="of fnal"):
        read_site_ad(ad_text("fnal"), site="FNAL", now=0.0)
    with pytest.raises(InvalidRequest, match="has no Name"):
        read_site_ad("UpdateSequenceNumber = 1", site="FNAL", now=0.0)


def test_e6_an_ad_without_a_number_is_refused():
    with pytest.raises(InvalidRequest, match="no UpdateSequenceNumber"):
        site_ad(sequence=None)


@pytest.mark.parametrize(
    ("attribute", "value", "needed"),
    [
        ("UpdateSequenceNumber", "1.5", "a whole number"),
        ("UpdateSequenceNumber", "-1", "a whole number"),
        ("UpdateSequenceNumber", "true", "a whole number"),
        ("UpdateSequenceNumber", '"5"', "a whole number"),
        ("UpdateSequenceNumber", "time()", "a whole number"),
        ("ClassAdLifetime", "0", "a number of seconds"),
        ("ClassAdLifetime", "-0.5", "a number of seconds"),
        ("ClassAdLifetime", '"900"', "a number of seconds"),
        ("ClassAdLifetime", "undefined", "a number of seconds"),
        ("ClassAdLifetime", "86400.5", "at most 86,400"),
        ("ClassAdLifetime", "1e308", "at most 86,400"),
        ("Incarnation", "5", "a text"),
        ("Name", '""', "a text"),
        ("PilotStamps", '{"a", 5}', "a list of texts"),
        ("PilotStamps", "{Name}", "a list of texts"),
        ("StationName", "5", "a list of texts"),
    ],
)
def test_a_value_of_another_kind_is_refused_where_it_stands(attribute, value, needed):
    changes = {"sequence": value} if attribute == "UpdateSequenceNumber" else {attribute: value}
    with pytest.raises(SyntaxFault, match=needed) as caught:
        site_ad(**changes)
    text = ad_text(**changes).splitlines()
    line, column = caught.value.data["line"], caught.value.data["column"]
    assert text[line - 1][column - 1 :].startswith(value)
    assert text[line - 1].startswith(attribute)


def test_e8_attributes_that_ask_for_each_other_are_refused():
    with pytest.raises(InvalidRequest, match="A -> B -> A") as caught:
        site_ad(A="B + 1", B="MY.A * 2")
    assert caught.value.data["cycle"] == ["A", "B", "A"]
    with pytest.raises(InvalidRequest, match="Memory -> Memory"):
        site_ad(Memory="Memory")
    with pytest.raises(InvalidRequest, match=r"a0 -> a1 .* -> \.\.\.\."):
        site_ad(**{f"a{n}": f"a{(n + 1) % 500}" for n in range(500)})


def test_what_only_seems_to_ask_for_itself_is_taken():
    site_ad(Memory="TARGET.Memory", A="{B, B}", B="[A = 1; C = A].C", D="ifThenElse(true, B, E)", E="B")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'Name = "FNAL"\nX = "{"y" * 70_000}"', "more than 64 KiB"),
        (f'[Name = "FNAL"; X = {"{" * 1_000}{"}" * 1_000}]', "nested more than 64 deep"),
        ('[Name = "FNAL"; x = ]', "where a value is needed"),
        ("", "no Name"),
    ],
)
def test_hostile_texts_are_refused_by_name(text, message):
    with pytest.raises(LodesmanError, match=message):
        read_site_ad(text, site="FNAL", now=0.0)


@given(st.one_of(st.text(), st.integers().map(lambda seed: any_ad(random.Random(seed)))))
def test_any_text_is_read_or_refused(text):
    for one in (text, f'Name = "FNAL"\nUpdateSequenceNumber = 1\n{text}'):
        try:
            ad = read_site_ad(one, site="FNAL", now=0.0)
        except LodesmanError:
            continue
        again = read_site_ad(write_ad(ad.ad), site="FNAL", now=0.0)
        assert (again, write_ad(again.ad)) == (ad, write_ad(ad.ad))


def test_the_newer_of_two_ads_counts():
    first = site_ad(sequence=10)
    assert replaces(first, None)
    assert replaces(site_ad(sequence=11, at=1.0), first)
    assert not replaces(site_ad(sequence=10, at=1.0), first)
    assert not replaces(site_ad(sequence=9, at=1.0), first)


def test_e5_a_new_incarnation_replaces_whatever_its_number():
    old = site_ad(sequence=10, Incarnation='"a"')
    assert replaces(site_ad(sequence=1, Incarnation='"b"', at=1.0), old)
    assert replaces(site_ad(sequence=1, at=1.0), old)
    assert not replaces(site_ad(sequence=1, Incarnation='"a"', at=1.0), old)


def test_e5_what_has_ended_freezes_no_site():
    old = site_ad(sequence=10)
    assert not replaces(site_ad(sequence=1, at=900.0), old)
    assert replaces(site_ad(sequence=1, at=900.5), old)


NOW = 1_796_000_000


@pytest.mark.parametrize(
    ("stored", "new", "ahead"),
    [
        (NOW + 3_600, NOW, 3_600),  # seconds since 1970
        ((NOW + 3_600) * 1_000, NOW * 1_000 - 5_000, 3_600),  # milliseconds
        (NOW + 30, NOW, 0),  # clocks differ a little
        (NOW - 10, NOW - 600, 0),  # an ad that is late
        (7, 6, 0),  # a count
        (NOW + 3_600, 6, 0),  # nobody knows
        ((1 << 63) - 1, NOW, (1 << 63) - 1 - NOW),
        ((1 << 63) - 1, 6, ((1 << 63) - 1) / 1_000 - NOW),
    ],
)
def test_a_number_of_a_clock_that_was_wrong_is_known(stored, new, ahead):
    old, newer = site_ad(sequence=stored, at=NOW - 100.0), site_ad(sequence=new, at=float(NOW))
    assert old.ahead_s(newer) == pytest.approx(ahead)


def test_no_ad_that_is_stored_counts_longer_than_a_day():
    old = replace(site_ad(sequence=9, at=0.0), lifetime_s=1e308)
    assert [old.is_too_old(at) for at in (86_400.0, 86_400.5)] == [False, True]
    assert replaces(site_ad(sequence=1, at=86_401.0), old)
