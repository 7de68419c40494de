"""The choice among sites for pilots: which may be, which come first, and what is asked anew at each match."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import match, site_ad
from tests.unit.broker.test_request_ad import GENERIC, Who

from lodesman.decide.broker import cycle as cycle_module
from lodesman.decide.broker import site_choice
from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.broker.site_choice import SiteChoice, SiteMemory, request_ad
from lodesman.decide.broker.site_wishes import site_wish
from lodesman.decide.masks.bits import bits
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.classad import Run, parse_expression
from lodesman.wire.vocabulary import GateMode

OPEN = "CurMatches < MaxJobs"
KEY = TaskQueueKey(owner="ann", group="users", vo="lab", norm_cpu_seconds=3600, memory_mb=2000)


@dataclass(frozen=True)
class Wanted:
    key: TaskQueueKey = KEY
    pool: str = "Grid"
    identity: Who = GENERIC


def gate(site, *, mode=GateMode.LEDGER, matches=(), **changes):
    given_ad = {
        "CurrentJobs": 0,
        "CurrentSubmittingJobs": 0,
        "MaxSubmittingJobs": None,
        "Requirements": OPEN,
        **changes,
    }
    return SiteGate(site, site_ad(site, **given_ad), mode=mode, matches=matches, now=10.0)


def choice(gates, *, memory=None, ranks=None, wishes=(), silent="", now=10.0):
    """Each site has two CE queues: bits 2n and 2n + 1; those of `silent`, too, have no ad."""
    sites = {one.site: one for one in (*gates, *(SiteGate(name, None, now=now) for name in silent))}
    wished = [(pool, site_wish(text, parse_expression(text), queues)) for pool, text, queues in wishes]
    return SiteChoice(
        sites,
        {name: 0b11 << 2 * n for n, name in enumerate(sites)},
        now=now,
        memory=memory,
        ranks={pool: parse_expression(text) for pool, text in (ranks or {}).items()},
        wishes={name: [one for pool, one in wished if pool == name] for name, _ in wished},
    )


def about(pool="req2:x", **changes):
    return Wanted(key=replace(KEY, submit_pool=pool, **changes))


# --- what sites say of requests ---------------------------------------------------------------------------------


def test_sites_that_ask_nothing_of_requests_make_no_difference():
    assert choice([gate("A"), gate("B", MaxJobs=1)]).request(Wanted()) is None
    assert choice([], silent="AB").request(Wanted()) is None


def test_sites_whose_requirements_refuse_a_request_are_left_out():
    one = choice(
        [
            gate("A", Requirements=f'{OPEN} && TARGET.VO == "other"'),
            gate("B", Requirements=f"{OPEN} && Cpus < 4"),
        ]
    )
    asked = one.request(Wanted())
    assert (asked.refusing, asked.admits("B", 2)) == (0b11, True)
    assert asked.refusal("A", 0) == 'TARGET.VO == "other" is false: VO = "lab"'
    assert asked.refusal("B", 2) == ""
    other = one.request(Wanted(key=replace(KEY, vo="other", cores=8)))
    assert other.refusing == 0b1100


def test_a_clause_with_the_numbers_of_the_gate_is_asked_at_each_match():
    one = choice([gate("A", MaxJobs=8, Requirements="CurMatches + TARGET.Cpus <= MaxJobs")])
    asked = one.request(Wanted(key=replace(KEY, cores=6)))
    assert asked.refusing == 0
    answers = []
    for _ in range(4):
        answers.append(asked.admits("A", 0))
        one.gates["A"].take()
    assert answers == [True, True, True, False]
    assert asked.refusal("A", 0).startswith("CurMatches + TARGET.Cpus <= MaxJobs is false")


def test_an_attribute_of_the_site_may_bring_the_numbers_in():
    ad = {
        "Free": "MaxJobs - CurMatches",
        "Better": "Free * 1",
        "MaxJobs": 2,
        "Requirements": "TARGET.Cpus <= Better",
    }
    one = choice([gate("A", **ad)])
    asked = one.request(Wanted(key=replace(KEY, cores=2)))
    assert (asked.refusing, asked.admits("A", 0)) == (0, True)
    one.gates["A"].take()
    assert not asked.admits("A", 0)


def test_a_site_that_has_not_advertised_admits_all():
    asked = choice([gate("A", Requirements='TARGET.VO == "lab"')], silent="B").request(Wanted())
    assert asked.admits("B", 2)
    assert asked.refusal("B", 2) == ""


# --- what requests wish of sites ---------------------------------------------------------------------------------


def test_a_station_list_selects_the_sites_that_advertise_one_of_it():
    wishes = [("req2:x", 'member(StationName, {"fnal", "cern"})', 0b111111)]
    gates = [gate("A", StationName='"fnal"'), gate("B", StationName='"lyon"')]
    one = choice(gates, wishes=wishes, silent="C")
    assert one.request(about()).refusing == 0b111100
    assert one.request(about("req2:other")) is None
    asked = one.request(about())
    assert asked.refusal("B", 2) == f'{wishes[0][1]} is false: StationName = "lyon"'
    assert asked.refusal("C", 4) == f"{wishes[0][1]} is unknown: the site has not advertised"
    assert asked.refusal("A", 0) == ""


def test_a_wish_counts_only_in_the_queues_that_it_is_for():
    asked = choice([gate("A")], wishes=[("req2:x", "false", 0b01)], silent="B").request(about())
    assert asked.refusing == 0b01
    assert (asked.refusal("A", 1), bool(asked.refusal("A", 0))) == ("", True)


def test_nothing_known_is_no_yes_even_for_a_wish_that_is_true_of_nothing():
    wishes = [("req2:x", "CurMatches =?= undefined", 0b1111), ("req2:y", "CurMatches < 5 || true", 0b1111)]
    one = choice([gate("A")], wishes=wishes, silent="B")
    asked = one.request(about())
    assert asked.refusing == 0b1100
    assert (asked.admits("A", 0), asked.admits("B", 2)) == (False, False)
    assert asked.refusal("B", 2) == "CurMatches =?= undefined is unknown: the site has not advertised"
    other = one.request(about("req2:y"))
    assert (other.refusing, other.admits("B", 2), other.refusal("B", 2)) == (0, True, "")


def test_a_wish_about_the_numbers_of_a_gate_is_asked_at_each_match():
    one = choice([gate("A"), gate("B")], wishes=[("req2:x", "CurMatches < 2", 0b1111)])
    asked = one.request(about())
    assert asked.refusing == 0
    for left in (True, True, False):
        assert asked.admits("A", 0) is left
        one.gates["A"].take()
    assert asked.admits("B", 2)


def test_a_wish_about_the_time_is_asked_at_each_match():
    wishes = [("req2:x", "time() < 100", 0b11)]
    memory = SiteMemory()
    ad = gate("A")
    assert choice([ad], memory=memory, wishes=wishes, now=10.0).request(about()).admits("A", 0)
    late = choice([ad], memory=memory, wishes=wishes, now=200.0).request(about())
    assert (late.refusing, late.admits("A", 0)) == (0, False)


# --- Rank -------------------------------------------------------------------------------------------------------


def test_the_sites_with_the_greatest_rank_come_first():
    gates = [gate("A", Speed=1), gate("B", Speed=3), gate("C", Speed=3)]
    one = choice(gates, ranks={"Grid": "Speed"}, silent="D")
    asked = one.request(Wanted())
    assert asked.best(0b11111111) == 0b111100
    assert asked.best(0b11000011) == 0b11
    assert asked.best(0b11000000) == 0b11000000
    assert one.request(replace(Wanted(), pool="Other")) is None


@pytest.mark.parametrize("rank", ["Text", "Missing", "1/0", "Flag * -1", "0.0"])
def test_what_is_no_number_ranks_as_zero(rank):
    one = choice([gate("A", Text='"x"', Flag="false"), gate("B", Missing=-1)], ranks={"Grid": f"{rank}"})
    assert one.request(Wanted()).best(0b0011) == 0b0011
    low = choice([gate("A", Speed=-1), gate("B", Text='"x"')], ranks={"Grid": "Speed"})
    assert low.request(Wanted()).best(0b1111) == 0b1100


def test_a_rank_may_ask_of_the_request_and_true_is_one():
    gates = [gate("A", Big="false"), gate("B", Big="true")]
    one = choice(gates, ranks={"Grid": "(MY.Memory > 1000) =?= Big"})
    assert one.request(Wanted()).best(0b1111) == 0b1100
    assert one.request(Wanted(key=replace(KEY, memory_mb=10))).best(0b1111) == 0b0011


def test_a_rank_by_matches_spreads_pilots():
    one = choice([gate("A"), gate("B"), gate("C", CurrentJobs=1)], ranks={"Grid": "-CurMatches"})
    asked, went = one.request(Wanted()), []
    for _ in range(5):
        best = asked.best(0b111111)
        site = next(name for name, mask in one.places.items() if mask & best)
        went.append((site, best))
        one.gates[site].take()
    assert went == [("A", 0b1111), ("B", 0b1100), ("A", 0b111111), ("B", 0b111100), ("C", 0b110000)]


# --- what is kept ------------------------------------------------------------------------------------------------


def test_only_new_ads_are_judged_anew(monkeypatch):
    judged, memory = [], SiteMemory()
    for name in ("_may_want", "_may_welcome"):
        judge = getattr(cycle_module, name)
        monkeypatch.setattr(cycle_module, name, lambda *pair, judge=judge: judged.append(1) or judge(*pair))
    asking = f'{OPEN} && TARGET.VO == "lab" && TARGET.Memory < 3000'
    gates = [gate(f"S{n}", Requirements=asking, StationName=f'"s{n % 3}"') for n in range(10)]
    wishes = [("req2:x", 'StationName == "s1"', (1 << 20) - 1)]
    requests = [about(), about(memory_mb=5000), about(owner="bob"), about()]

    def run(gates):
        judged.clear()
        one = choice(gates, memory=memory, wishes=wishes)
        return [one.request(wanted).refusing for wanted in requests], len(judged)

    first, count = run(gates)
    assert count == 3 * 10, "two kinds of requests that the sites tell apart, and one wish"
    assert run(gates) == (first, 0)
    gates[1] = gate("S1", Requirements=asking, StationName='"s2"', sequence=2)
    second, count = run(gates)
    assert (count, second[0]) == (3, first[0] | 0b1100)


def test_requests_are_kept_up_to_a_number(monkeypatch):
    monkeypatch.setattr(site_choice, "_MOST_KNOWN", 3)
    memory = SiteMemory()
    for memory_mb in range(8):
        choice([gate("A", Requirements="TARGET.Memory < 3000")], memory=memory).request(
            about(memory_mb=memory_mb)
        )
    assert len(memory._requests) <= 3


# --- all cases ---------------------------------------------------------------------------------------------------

CLAUSES = st.sampled_from(
    ["CurMatches < MaxJobs", "TARGET.Memory < 3000", "Memory =?= 2000", "TARGET.Cpus + CurMatches < 4", "Half > 1",
     'JobOwner == "ann"', "time() > 5", "TARGET.Missing", "MaxJobs > 1", "JobsMatchedSinceLastAdvertisement < 2"]
)  # fmt: skip
WISHES = st.sampled_from(
    ["MaxJobs > 2", "CurMatches < 2", "Half > 1", 'StationName == "a"', "isUndefined(Odd)", "time() < 50"]
)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.lists(CLAUSES, min_size=1, max_size=3, unique=True), st.integers(0, 3)
        ),
        max_size=4,
    ),
    st.lists(st.tuples(WISHES, st.integers(0, 255)), max_size=2),
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([1000, 2000, 5000]), st.sampled_from(["ann", "bob"])),
        max_size=4,
    ),
    st.lists(st.integers(0, 3), max_size=6),
)
def test_it_says_what_both_sides_say_pair_by_pair(sites, wishes, requests, moves):
    """`refusing` and `admits` together are the exact match of gate and wishes, at every moment."""
    memory, names = SiteMemory(), [f"S{n}" for n in range(len(sites))]
    wished = [("req2:x", text, queues) for text, queues in wishes]

    def begin():
        gates = [
            gate(name, MaxJobs=most, Requirements=" && ".join(parts), Half="(MaxJobs - CurMatches) / 2",
                 matches=[match(f"m{n}") for n in range(matched)])
            for name, (most, parts, matched) in zip(names, sites, strict=True)
        ]  # fmt: skip
        return choice(gates, memory=memory, wishes=wished, silent="X")

    for _ in range(2):
        one = begin()
        wanted = [about(cores=cores, memory_mb=memory, owner=owner) for cores, memory, owner in requests]
        asked = [one.request(each) for each in wanted]
        for move in [*moves, None]:
            for each, request in zip(wanted, asked, strict=True):
                hold_against_each_site(one, each, request, wishes)
            if move is not None and move < len(names):
                one.gates[names[move]].take()


def hold_against_each_site(one, wanted, asked, wishes):
    ad = request_ad(wanted.key, wanted.identity, submission_pool=wanted.pool)
    for site, mask in one.places.items():
        exact = one.sites[site]
        for bit in bits(mask):
            wished = [
                site_wish(text, parse_expression(text), queues)
                for text, queues in wishes
                if queues >> bit & 1
            ]
            truth = exact.admits(ad) and all(
                wish.request.side.accepts(exact.side, Run(now=10.0))
                and not (wish.needs_ad and exact.ad is None)
                for wish in wished
            )
            said = asked is None or (not asked.refusing >> bit & 1 and asked.admits(site, bit))
            # What a gate says whoever asks is asked as a budget.
            assert (said and exact.admits()) == truth
            assert asked is None or bool(asked.refusal(site, bit)) == (not truth)


def test_a_site_of_which_nothing_is_known_has_no_gate_and_no_ad():
    one = choice([gate("A")], wishes=[("req2:x", "MaxJobs > 1", 0b1111)])
    asked = one.request(about())
    assert (asked.admits("X", 2), asked.refusal("X", 2)) == (
        False,
        "MaxJobs > 1 is unknown: the site has not advertised",
    )
    assert choice([gate("A")], ranks={"Grid": "1"}).request(Wanted()).admits("X", 2)
