"""Gates of sites: the ten edge cases of SAM-Grid's counters, any Requirements, and why a gate is shut."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import filled, ledger, match, site_ad, strict

from lodesman.decide.broker.gate import LEDGER_S, SiteGate, SiteMatch
from lodesman.languages.classad import ERROR, UNDEFINED, evaluate, parse_ad, write_ad
from lodesman.languages.classad.fast import MatchSide
from lodesman.languages.classad.values import is_true
from lodesman.wire.vocabulary import GateMode

BOTH = pytest.mark.parametrize("gate_of", [ledger, strict])
JOB = parse_ad('[Owner = "anna"; Memory = 4000; MaxJobs = 1000000; CurMatches = 0]')
FIRST = "CurMatches < MaxJobs"
SECOND = "JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
THIRD = "JobsMatchedSinceLastAdvertisement + CurrentPendingJobs < MaxPendingJobs"


# --- what the seed says -----------------------------------------------------------------------------------


@BOTH
def test_the_initial_value_of_curmatches_is_currentjobs(gate_of):
    gate = gate_of(site_ad(CurMatches=None, CurrentSubmittingJobs=0))
    assert gate.values()["CurMatches"] == gate.values()["CurrentJobs"] == 40
    assert gate.values()["JobsMatchedSinceLastAdvertisement"] == 0


@BOTH
def test_each_match_counts_at_once(gate_of):
    gate = gate_of(site_ad(CurrentSubmittingJobs=0))
    for number in range(3):
        assert gate.values()["CurMatches"] == 40 + number
        assert gate.values()["JobsMatchedSinceLastAdvertisement"] == number
        gate.take()
    assert gate.matched == 3


@BOTH
def test_1_it_is_shut_when_the_matches_reach_maxjobs(gate_of):
    gate = gate_of(site_ad(CurrentJobs=95, CurrentSubmittingJobs=0))
    assert filled(gate) == 5
    assert gate.shut == f"{FIRST} is false: CurMatches = 100, MaxJobs = 100"


@BOTH
def test_2_it_is_shut_when_those_that_are_submitted_reach_maxsubmittingjobs(gate_of):
    gate = gate_of(site_ad())
    assert filled(gate) == 7
    assert gate.shut.startswith(f"{SECOND} is false: JobsMatchedSinceLastAdvertisement = 7, ")


@BOTH
def test_the_simplest_way_of_the_seed(gate_of):
    simple = {"CurMatches": None, "JobsMatchedSinceLastAdvertisement": None, "MaxSubmittingJobs": None}
    simple |= {"CurrentSubmittingJobs": None, "Requirements": "(CurrentJobs < MaxJobs)"}
    assert gate_of(site_ad(**simple, CurrentJobs=99)).admits()
    full = gate_of(site_ad(**simple, CurrentJobs=100))
    assert not full.admits()
    assert full.shut == "CurrentJobs < MaxJobs is false: CurrentJobs = 100, MaxJobs = 100"


def test_the_simplest_way_does_not_flood_a_site_in_ledger_mode():
    simple = {
        "Requirements": "(CurrentJobs < MaxJobs)",
        "MaxSubmittingJobs": None,
        "CurrentSubmittingJobs": None,
    }
    assert filled(strict(site_ad(**simple))) == 1_000
    gate = ledger(site_ad(**simple))
    assert filled(gate) == 60
    assert gate.shut == f"{FIRST} is false: CurMatches = 100, MaxJobs = 100"


# --- E1 to E10 --------------------------------------------------------------------------------------------


def test_e1_a_new_ad_forgets_what_is_still_on_its_way_in_strict_mode():
    on_the_way = [match(str(number), at=1.0) for number in range(7)]
    new = site_ad(sequence=2, at=300.0, CurrentSubmittingJobs=0)
    assert filled(strict(new, *on_the_way, now=300.0)) == 10
    assert filled(ledger(new, *on_the_way, now=300.0)) == 3


def test_e1_in_ledger_mode_an_ad_that_lists_the_stamp_ends_it():
    on_the_way = [match(str(number), at=1.0) for number in range(7)]
    new = site_ad(
        sequence=2, at=300.0, CurrentSubmittingJobs=7, PilotStamps='{"0", "1", "2", "3", "4", "5", "6"}'
    )
    gate = ledger(new, *on_the_way, now=300.0)
    assert gate.matched == 0
    assert filled(gate) == 3


def test_e1_an_ad_that_comes_long_after_the_match_ends_it_too():
    old = match("a", at=1.0)
    assert ledger(site_ad(at=1.0 + LEDGER_S - 0.1), old, now=901.0).matched == 1
    assert ledger(site_ad(at=1.0 + LEDGER_S), old, now=901.0).matched == 0
    # Time alone does not: no ad says that it is not there.
    assert ledger(site_ad(at=0.0, ClassAdLifetime=9_000), old, now=5_000.0).matched == 1
    # Nor does it for a pilot that the batch system has perhaps not taken yet.
    waiting = SiteMatch(stamp="a", matched_at=1.0)
    assert ledger(site_ad(at=5_000.0), waiting, now=5_000.0).matched == 1
    assert SiteGate("FNAL", site_ad(at=61.0), matches=[old], now=61.0, ledger_s=60.0).matched == 0


def test_e2_strict_counts_running_jobs_ledger_jobs_in_any_state():
    ad = site_ad(CurrentJobs=95, CurrentSubmittingJobs=3, CurrentPendingJobs=1)
    assert strict(ad).values()["CurMatches"] == 95
    assert filled(strict(ad)) == 5
    assert ledger(ad).values()["CurMatches"] == 99
    assert filled(ledger(ad)) == 1


def test_e3_a_count_that_would_be_negative_is_zero_and_said():
    gate = strict(site_ad(CurMatches=10))
    assert gate.values()["JobsMatchedSinceLastAdvertisement"] == 0
    assert gate.notice == "its CurMatches = 10 is less than CurrentJobs, and counts as 40"
    # -30 would open the second limit by 30 jobs.
    assert filled(gate) == 7
    assert gate.values()["CurMatches"] == 47
    assert strict(site_ad()).notice == ledger(site_ad(CurMatches=10)).notice == ""
    assert filled(strict(site_ad(CurMatches=44))) == 3


def test_e3_the_ledger_does_not_use_what_the_site_says_of_matches():
    assert filled(ledger(site_ad(CurMatches=10, JobsMatchedSinceLastAdvertisement=-30))) == 7


@BOTH
def test_e4_jobs_that_end_are_known_by_the_next_ad(gate_of):
    full = site_ad(CurrentJobs=100, CurrentSubmittingJobs=0, PilotStamps='{"a"}')
    assert not gate_of(full, match("a", at=-50.0), now=0.0).admits()
    assert not gate_of(full, match("a", at=-50.0, ended=True), now=100.0).admits()
    assert gate_of(site_ad(sequence=2, CurrentJobs=99, CurrentSubmittingJobs=0, at=300.0), now=300.0).admits()


def test_e5_what_was_counted_goes_with_the_ad():
    matched = [match(str(number), at=10.0) for number in range(7)]
    assert strict(site_ad(), *matched, now=20.0).matched == 7
    assert strict(site_ad(sequence=1, Incarnation='"again"', at=30.0), *matched, now=30.0).matched == 0


@BOTH
def test_e5_a_site_whose_ad_is_too_old_is_shut(gate_of):
    assert gate_of(site_ad(), now=900.0).admits()
    gate = gate_of(site_ad(), now=1_020.4)
    assert not gate.admits()
    assert not gate.admits(JOB)
    assert gate.room(50) == 0
    assert gate.shut == "its ad is 1,020 s old, older than 900 s"
    assert gate_of(site_ad(ClassAdLifetime=60), now=61.0).shut == "its ad is 61 s old, older than 60 s"


@BOTH
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"MaxJobs": '"100"'}, f'{FIRST} is error: CurMatches = NUMBER, MaxJobs = "100"'),
        ({"MaxJobs": None}, f"{FIRST} is undefined: CurMatches = NUMBER, MaxJobs = undefined"),
        (
            {"CurrentJobs": None, "CurMatches": None},
            f"{FIRST} is undefined: CurMatches = undefined, MaxJobs = 100",
        ),
        ({"MaxSubmittingJobs": None}, f"{SECOND} is undefined: JobsMatchedSinceLastAdvertisement = 0, "),
        ({"CurrentSubmittingJobs": None}, f"{SECOND} is undefined: JobsMatchedSinceLastAdvertisement = 0, "),
        ({"MaxJobs": "10 / 0"}, f"{FIRST} is error: CurMatches = NUMBER, MaxJobs = error"),
    ],
)
def test_e7_what_has_no_number_matches_nothing_and_says_why(gate_of, changes, text):
    gate = gate_of(site_ad(**changes))
    assert not gate.admits()
    # A request cannot give what the site does not say.
    assert not gate.admits(JOB)
    assert gate.room(5) == 0
    found = gate.values()["CurMatches"]
    assert gate.shut.startswith(text.replace("NUMBER", str(found)))


@BOTH
def test_e7_unknown_is_not_zero(gate_of):
    gate = gate_of(site_ad(CurrentJobs="undefined", CurrentSubmittingJobs="error"))
    assert gate.values()["CurrentJobs"] is UNDEFINED
    assert gate.values()["CurrentSubmittingJobs"] is ERROR
    assert not gate.admits()
    gate.take()
    assert not gate.admits()


@BOTH
def test_e8_a_cycle_by_way_of_a_request_matches_nothing_and_is_named(gate_of):
    ad = site_ad(Requirements="Wish > 1", Wish="TARGET.Wish")
    asking = parse_ad("[Wish = TARGET.Wish]")
    gate = gate_of(ad)
    assert not gate.admits(asking)
    assert gate.clauses(asking)[0].cycle == ("Wish", "Wish")


def test_e9_a_match_that_came_to_nothing_is_given_back_by_the_ledger_alone():
    ad = site_ad(CurrentSubmittingJobs=0)
    failed = [match(str(number), ended=True) for number in range(4)]
    assert filled(strict(ad, *failed, now=2.0)) == 6
    assert filled(ledger(ad, *failed, now=2.0)) == 10


@BOTH
def test_e10_it_is_closed_at_equality(gate_of):
    assert not gate_of(site_ad(CurrentJobs=100, CurrentSubmittingJobs=0)).admits()
    assert not gate_of(site_ad(CurrentJobs=101, CurrentSubmittingJobs=0)).admits()
    assert not gate_of(site_ad(CurrentSubmittingJobs=10)).admits()
    assert filled(gate_of(site_ad(CurrentSubmittingJobs=9))) == 1


def test_the_trace_of_the_reference():
    first = strict(site_ad())
    assert filled(first) == 7
    assert first.values()["CurMatches"] == 47
    assert filled(strict(site_ad(sequence=2, CurrentJobs=47, CurrentSubmittingJobs=8))) == 2


# --- ads and Requirements ---------------------------------------------------------------------------------


def test_a_site_that_never_advertised_has_no_gate():
    gate = ledger(None)
    assert gate.admits()
    assert gate.admits(JOB)
    assert gate.room(12) == 12
    gate.take()
    assert (gate.shut, gate.clauses(), gate.values()) == ("", (), {})


@BOTH
def test_limits_without_requirements_are_those_of_the_seed(gate_of):
    gate = gate_of(site_ad(Requirements=None))
    assert [one.text for one in gate.clauses()] == [FIRST, SECOND]
    assert filled(gate) == 7


@BOTH
@pytest.mark.parametrize(
    ("limits", "clauses", "room"),
    [
        ({"MaxJobs": 50}, [FIRST], {GateMode.STRICT: 10, GateMode.LEDGER: 7}),
        ({"MaxSubmittingJobs": 10}, [SECOND], dict.fromkeys(GateMode, 7)),
        ({"MaxPendingJobs": 9, "CurrentPendingJobs": 4}, [THIRD], dict.fromkeys(GateMode, 5)),
        (
            {"MaxJobs": 100, "MaxPendingJobs": 9, "CurrentPendingJobs": 4},
            [FIRST, THIRD],
            dict.fromkeys(GateMode, 5),
        ),
        ({"MaxJobs": 60, "MaxSubmittingJobs": 10}, [FIRST, SECOND], dict.fromkeys(GateMode, 7)),
    ],
)
def test_an_ad_without_requirements_has_those_of_the_limits_that_are_given(gate_of, limits, clauses, room):
    """The simplest way of the seed has MaxJobs alone."""
    gate = gate_of(site_ad(**{"Requirements": None, "MaxJobs": None, "MaxSubmittingJobs": None, **limits}))
    assert [one.text for one in gate.clauses()] == clauses
    assert filled(gate) == room[GateMode.STRICT if gate_of is strict else GateMode.LEDGER]


@BOTH
def test_a_limit_that_is_given_and_whose_count_is_not_matches_nothing(gate_of):
    gate = gate_of(site_ad(Requirements=None, MaxSubmittingJobs=None, MaxPendingJobs=9))
    assert gate.shut.startswith(f"{THIRD} is undefined")


@BOTH
def test_an_ad_that_says_nothing_of_jobs_opens_nothing(gate_of):
    gate = gate_of(site_ad(Requirements=None, MaxJobs=None, MaxSubmittingJobs=None))
    assert not gate.admits()
    assert gate.shut == "its ad has neither Requirements nor limits"
    assert gate.clauses() == ()
    assert gate_of(site_ad(Requirements="true", MaxJobs=None, MaxSubmittingJobs=None)).room(9) == 9


@BOTH
def test_requirements_may_ask_for_anything_of_both_sides(gate_of):
    ad = site_ad(
        Requirements="CurrentPendingJobs < 20 && TARGET.Memory <= MY.Memory && CurMatches < MaxJobs && Free > 2",
        Memory=8000, CurrentPendingJobs=5, MaxSubmittingJobs=None, Free="MaxJobs - CurMatches",
    )  # fmt: skip
    gate = gate_of(ad)
    assert gate.admits(JOB)
    assert not gate.admits(parse_ad("[Memory = 9000]"))
    assert not gate.admits(parse_ad('[Owner = "anna"]'))
    # Without a request what asks one is left out.
    expected = 100 - gate.values()["CurMatches"] - 2
    assert gate.room(200) == expected
    assert filled(gate) == expected
    assert gate.shut == "Free > 2 is false: Free = 2"
    assert not gate.admits(JOB)


@BOTH
def test_a_clause_about_both_is_judged_for_each_request(gate_of):
    ad = site_ad(Requirements="TARGET.Urgent ? CurMatches < 45 : CurMatches < 43", CurrentSubmittingJobs=0)
    urgent, other = parse_ad("[Urgent = true]"), MatchSide(parse_ad("[Urgent = false]"))
    gate = gate_of(ad)
    counts = []
    for request in (other, urgent):
        count = 0
        while gate.admits(request):
            gate.take()
            count += 1
        counts.append(count)
    assert counts == [3, 2]


@BOTH
def test_the_clock_of_the_cycle_is_that_of_the_ad(gate_of):
    ad = site_ad(Requirements="time() % 86400 < 3600", ClassAdLifetime=86_400)
    assert gate_of(ad, now=1_000.0).admits()
    assert not gate_of(ad, now=5_000.0).admits()


@BOTH
def test_what_was_asked_leaves_no_trace(gate_of):
    ad = site_ad()
    gate = gate_of(ad)
    before = gate.values()
    gate.room(50)
    gate.clauses(JOB)
    assert gate.values() == before
    gate.take()
    assert gate_of(ad).values() == before
    assert set(ad.rules) == {gate.mode}


def test_the_explanation_has_each_clause_with_its_values():
    ad = site_ad(Requirements=f"TARGET.Memory > 5000 && {FIRST}")
    first, second, third = ledger(ad).clauses(JOB)
    assert (first.text, first.value, first.other) == ("TARGET.Memory > 5000", False, (("Memory", 4000),))
    assert (second.text, second.value, dict(second.own)) == (FIRST, True, {"CurMatches": 43, "MaxJobs": 100})
    assert (third.text, third.value) == (SECOND, True)
    assert [one.text for one in strict(ad).clauses(JOB)] == ["TARGET.Memory > 5000", FIRST]


CLAUSES = st.sampled_from(
    [
        FIRST,
        SECOND,
        "MaxJobs > CurMatches + 3",
        "CurMatches + CurrentPendingJobs <= 90",
        "CurMatches % 7 != 3",
        "JobsMatchedSinceLastAdvertisement != 5",
        "CurrentJobs > 2",
        "Free >= 1",
        "5 < MaxJobs",
        "!(CurMatches >= MaxJobs)",
        "MaxSubmittingJobs - CurrentSubmittingJobs > JobsMatchedSinceLastAdvertisement",
        "true",
    ]
)
NUMBERS = st.integers(-2, 60)


@given(
    clauses=st.lists(CLAUSES, min_size=1, max_size=3),
    mode=st.sampled_from(GateMode),
    counts=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    most=st.integers(0, 80),
    taken=st.integers(0, 5),
)
def test_room_is_what_can_be_matched_one_by_one(clauses, mode, counts, most, taken):
    names = ("MaxJobs", "MaxSubmittingJobs", "CurrentJobs", "CurrentSubmittingJobs", "CurrentPendingJobs")
    ad = site_ad(
        **dict(zip(names, counts, strict=True)),
        Free="MaxJobs - CurMatches",
        Requirements=" && ".join(clauses),
    )
    gate = SiteGate("FNAL", ad, mode=mode, now=0.0)
    for _ in range(taken):
        gate.take()
    room = gate.room(most)
    assert gate.matched == taken
    assert room == filled(gate, most)


COUNTS = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 30), st.integers(0, 12))


def literally(ad, cur_matches):
    """The Requirements of the text that was published, with CurMatches replaced by a number."""
    text = re.sub(r"(?m)^ *CurMatches = .*;$", f"CurMatches = {cur_matches};", write_ad(ad.ad))
    return is_true(evaluate("Requirements", parse_ad(text)))


@given(ads=st.lists(st.tuples(COUNTS, st.lists(st.integers(0, 9), max_size=3)), min_size=1, max_size=4))
def test_strict_mode_is_the_text_of_the_seed(ads):
    """Some ads, each with some cycles in which up to so many jobs are matched; a restart between any two cycles."""
    pilots = []
    for number, ((max_jobs, max_submitting, jobs, submitting), cycles) in enumerate(ads):
        begun = 300.0 * number
        ad = site_ad(
            sequence=number, at=begun, MaxJobs=max_jobs, MaxSubmittingJobs=max_submitting, CurrentJobs=jobs,
            CurrentSubmittingJobs=submitting,
        )  # fmt: skip
        cur_matches = jobs
        for place, wanted in enumerate(cycles):
            now = begun + 50.0 * (place + 1)
            gate = strict(ad, *pilots, now=now)
            for _ in range(wanted):
                assert gate.values()["CurMatches"] == cur_matches
                assert gate.admits() == literally(ad, cur_matches)
                if not gate.admits():
                    break
                gate.take()
                cur_matches += 1
                pilots.append(match(f"p{len(pilots)}", at=now, ended=len(pilots) % 2 == 0))


# --- what follows from the ad alone --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", GateMode)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"MaxSubmittingJobs": 4, "Requirements": None},
        {"MaxJobs": "40 + 7"},
        {"MaxJobs": '"100"'},
        {"MaxJobs": None},
        {"CurrentJobs": None},
        {"Requirements": "CurMatches < MaxJobs && MaxJobs > 1000"},
        {"Requirements": "Two * 2 >= CurMatches + JobsMatchedSinceLastAdvertisement", "Two": "MaxJobs / 4"},
        {"Requirements": "2 * CurMatches < MaxJobs"},
        {"Requirements": "CurMatches > 45 || CurMatches < 42"},
        {"Requirements": "true"},
    ],
)
def test_the_number_that_shuts_a_gate_says_what_its_clauses_say_one_by_one(mode, changes):
    ad = site_ad("FNAL", **changes)
    one_by_one = SiteGate("FNAL", ad, mode=mode, now=1.0)
    for matched in range(80):
        gate = SiteGate("FNAL", ad, mode=mode, matches=[match(f"m{n}") for n in range(matched)], now=1.0)
        assert (
            gate.admits() == one_by_one.admits() == one_by_one._is_open(one_by_one.matched) == (not gate.shut)
        )
        assert bool(gate.room(1)) == gate.admits()
        one_by_one.take()


def test_it_is_worked_out_once_for_each_ad(monkeypatch):
    ad = site_ad("FNAL")
    assert ledger(ad).admits()
    monkeypatch.setattr(MatchSide, "accepts", None)
    monkeypatch.setattr(MatchSide, "set", None)
    gate = ledger(ad, match("a"), now=2.0)
    assert (gate.room(1_000), filled(gate), gate.admits()) == (6, 6, False)


def test_where_the_time_decides_or_matches_may_open_it_is_asked_each_time():
    late = site_ad("FNAL", Requirements="CurMatches < MaxJobs && time() < 100", MaxSubmittingJobs=None)
    assert [ledger(late, now=now).room(9) for now in (1.0, 200.0)] == [9, 0]
    assert late.rules[GateMode.LEDGER].shut_at is None
    odd = site_ad("FNAL", Requirements="CurMatches != 41", MaxSubmittingJobs=None, MaxJobs=None)
    gate = strict(odd)
    assert (gate.room(9), gate.admits()) == (1, True)
    gate.take()
    assert (gate.room(9), gate.admits()) == (0, False)
    gate.take()
    assert (gate.room(9), gate.admits()) == (9, True)


def test_a_match_is_not_released_by_the_clock_but_by_an_ad_that_has_counted_it():
    """An ad that was published before the match came 599 s after it, and those that followed were lost: nothing has counted
    the job 900 s after its submission.
    """
    full = {"MaxJobs": 41, "MaxSubmittingJobs": None, "Requirements": FIRST, "CurrentSubmittingJobs": 0}
    before = site_ad(at=599.0, CurrentJobs=40, **full)
    for now in (901.0, 1_499.0, 1_500.0):
        assert not ledger(before, match("a", 0.0), now=now).admits()
    counted = site_ad(at=901.0, sequence=2, CurrentJobs=41, **{**full, "MaxJobs": 42})
    assert ledger(counted, match("a", 0.0), now=902.0).room(9) == 1


# --- ads that list no stamps: the counts say what they show -------------------------------------------------------


def pilots(count, at, *, joined=True):
    return [SiteMatch(stamp=f"{at}-{n}", matched_at=at, submitted_at=at, joined=joined) for n in range(count)]


def counting(total, *, at, others=None, **said):
    """An ad that counts so many jobs in all; `others` as the ad before it had them."""
    return replace(site_ad(at=at, CurrentJobs=total, CurrentSubmittingJobs=0, **said), others=others)


@pytest.mark.parametrize(
    ("total", "sent", "unshown", "others"),
    [
        (60, pilots(10, 5.0), 0, 50),  # risen by as many as were sent
        (57, pilots(10, 5.0), 3, 50),
        (50, pilots(10, 5.0), 10, 50),  # not risen
        (60, pilots(10, 5.0, joined=False), 10, 50),  # they may still be submitted
        (65, pilots(10, 5.0), 0, 55),  # jobs of others have come
        (40, pilots(10, 5.0), 10, 40),  # and gone: at most as many as were sent are not shown
        (55, [*pilots(5, -2_000.0), *pilots(5, 5.0)], 5, 50),
        (60, [*pilots(10, 5.0), *pilots(2, 400.0)], 2, 50),  # sent after it came
        (50, [], 0, 50),
        (45, [], 0, 45),
    ],
)
def test_an_ad_without_stamps_shows_the_pilots_by_which_its_counts_rose(total, sent, unshown, others):
    gate = ledger(counting(total, at=300.0), *sent, now=400.0)
    assert gate.others(50) == others
    assert ledger(counting(total, at=300.0, others=others), *sent, now=400.0).matched == unshown


def test_the_first_ad_without_stamps_may_show_none_of_the_newest_pilots():
    sent = [*pilots(3, -2_000.0), *pilots(4, 5.0)]
    gate = ledger(counting(60, at=300.0), *sent, now=300.0)
    assert (gate.others(None), gate.matched) == (57, 4)
    assert "4 of 7 pilots count twice" in gate.notice
    assert "1 of 1 pilot counts twice" in ledger(counting(60, at=300.0), *pilots(1, 5.0), now=300.0).notice
    assert gate.notice in ledger(counting(99, at=300.0), *sent, now=300.0).shut


@pytest.mark.parametrize("said", [{"PilotStamps": "{}"}, {"PilotStamps": '{"x"}'}])
def test_an_ad_that_lists_stamps_says_itself_what_it_shows(said):
    gate = ledger(counting(60, at=300.0, **said), *pilots(4, 5.0), now=300.0)
    assert (gate.others(50), gate.matched, gate.notice) == (None, 4, "")


def test_without_a_number_of_all_jobs_each_new_pilot_counts():
    ad = replace(site_ad(at=300.0, CurrentJobs="1/0"), others=50)
    assert (ledger(ad).others(50), ledger(ad, *pilots(4, 5.0), now=300.0).matched) == (None, 4)
    assert ledger(None).others(50) is None
    assert strict(counting(60, at=300.0), *pilots(4, 5.0), now=300.0).notice == ""
