from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobstatus.kits.history import faults

from lodesman.site.jobstatus.steps import ScriptStep, follow
from lodesman.site.jobstatus.timeline import Facts, LastStatus, decide, no_start, note_publication
from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import RunningPayload

ONE = RunningPayload(4, 900, 900, 5_000, 8_000)
FACTS = Facts(allocated=8, running=(ONE,))
DRAIN = replace(FACTS, drain=frozenset({"node"}))


def publish(said: LastStatus, facts: Facts, now: float) -> LastStatus:
    """After the publication that is due now."""
    due = decide(said, facts, now)
    assert due.publish is not None
    return note_publication(said, due.publish, now)


def why(said: LastStatus, facts: Facts, now: float) -> str | None:
    due = decide(said, facts, now)
    return due.why if due.publish else None


FIRST = publish(LastStatus(), FACTS, 1_000)
DRAINED = publish(FIRST, DRAIN, 1_100)
HELD = publish(DRAINED, FACTS, 1_200)


def test_the_first_status_is_published_at_once_and_whole():
    assert None not in FIRST.status.items().values()
    assert publish(LastStatus(), Facts(allocated=8), 1_000).status.used_cpu == 0


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, running=(ONE, ONE)),
        replace(FACTS, running=()),
        replace(FACTS, running=(replace(ONE, committed=1_001),)),
        replace(FACTS, running=(replace(ONE, enforced_end=7_999),)),
        replace(FACTS, slot_ends=6_000),
        replace(FACTS, pending_waste=10),
        replace(FACTS, priority=1),
        DRAIN,
    ],
)
def test_each_event_is_published_five_seconds_after_the_last(facts):
    for now in (1_000, 1_004):
        soon = decide(FIRST, facts, now)
        assert (soon.publish, soon.ask_again) == (None, 1_005)
    assert decide(FIRST, facts, 1_005).publish is not None


def test_what_failed_is_due_again_after_five_seconds():
    facts = replace(FACTS, priority=1)
    assert why(FIRST, facts, 1_010) == why(FIRST, facts, 1_015) == "changed"
    assert decide(FIRST, facts, 1_010).ask_again == 1_015
    assert decide(FIRST, FACTS, 1_240).ask_again == 1_245
    assert decide(LastStatus(), FACTS, 1_000).ask_again == 1_005
    assert decide(FIRST, replace(FACTS, leaving=True), 1_001).ask_again == 1_006


def test_without_an_event_the_same_is_written_each_four_minutes():
    assert decide(FIRST, FACTS, 1_000).publish is decide(FIRST, FACTS, 1_239).publish is None
    assert decide(FIRST, FACTS, 1_239).ask_again == 1_240
    assert why(FIRST, FACTS, 1_240) == "heart-beat"
    assert decide(FIRST, FACTS, 1_240).publish == FIRST.status


@pytest.mark.parametrize(
    ("end", "event"), [(5_199, None), (5_201, "estimate"), (4_799, "estimate"), (4_801, None)]
)
def test_an_estimate_is_published_when_it_moves_by_five_percent(end, event):
    # 3,990 s are left; the smallest change that counts is 199.5 s.
    assert why(FIRST, replace(FACTS, running=(replace(ONE, expected_end=end),)), 1_010) == event


def test_an_estimate_is_published_when_it_moves_by_a_minute():
    said = publish(LastStatus(), replace(FACTS, running=(replace(ONE, expected_end=1_300),)), 1_000)
    for end, event in ((1_360, None), (1_361, "estimate")):
        assert why(said, replace(FACTS, running=(replace(ONE, expected_end=end),)), 1_010) == event


def test_the_end_of_a_payload_between_the_first_and_the_last_counts():
    ends = [2_000, 4_000, 6_000]
    three = [replace(ONE, cores=2, expected_end=end) for end in ends]
    said = publish(LastStatus(), replace(FACTS, running=tuple(three)), 1_000)
    for end, event in (
        (3_002, None),
        (3_001, "estimate"),
    ):  # 2 of 8 cores for more than 998 s: 249.5 s of all
        three[1] = replace(three[1], expected_end=end)
        assert why(said, replace(FACTS, running=three), 1_010) == event


def test_an_end_that_passes_is_published_anew():
    late = replace(FACTS, running=(replace(ONE, expected_end=1_100),))
    said = publish(LastStatus(), late, 1_000)
    assert decide(said, late, 1_050).ask_again == 1_100
    assert why(said, late, 1_100) == "overdue"
    assert publish(said, late, 1_100).status.first_exp_job_end == 1_400


def test_false_comes_with_what_else_is_new():
    said = publish(FIRST, replace(DRAIN, slot_ends=4_000), 1_100)
    assert (said.status.can_postpone_last_job, said.status.last_max_job_end) == (False, 4_000)
    assert said.status.last_exp_job_end == 4_000


def test_while_false_the_enforced_end_does_not_rise():
    longer = replace(ONE, expected_end=9_000, enforced_end=20_000)
    later = publish(DRAINED, replace(DRAIN, running=(longer,)), 1_110)
    assert (later.status.last_exp_job_end, later.status.last_max_job_end) == (8_000, 8_000)
    sooner = publish(later, replace(DRAIN, slot_ends=6_000), 1_120)
    assert sooner.promised_end == sooner.status.last_max_job_end == 6_000
    broken = publish(sooner, DRAIN, 6_100)
    assert (broken.status.first_exp_job_end, broken.status.last_max_job_end) == (6_000, 6_000)
    assert decide(broken, DRAIN, 6_110).ask_again == 6_340


def test_true_again_is_published_alone():
    assert HELD.status == replace(DRAINED.status, can_postpone_last_job=True)
    several = replace(FACTS, running=(ONE, ONE), priority=3)
    assert publish(DRAINED, several, 1_200).status == HELD.status


def test_in_the_hold_nothing_changes_but_the_times_of_the_files():
    several = replace(FACTS, running=(), priority=3)
    assert decide(HELD, several, 1_439).publish is None
    assert decide(HELD, several, 1_440).publish == HELD.status
    beat = publish(publish(HELD, several, 1_440), several, 1_680)
    assert decide(beat, several, 1_799).publish is None
    assert decide(beat, several, 1_799).ask_again == 1_800
    assert why(beat, several, 1_800) == "hold-over"
    over = publish(beat, several, 1_800)
    assert (over.status.used_cpu, over.status.priority_factor, over.promised_end) == (0, 3, None)


def test_false_again_ends_the_hold_and_restores_the_promise():
    withdrawn = replace(DRAIN, running=(replace(ONE, enforced_end=20_000),), priority=2)
    said = publish(HELD, withdrawn, 1_300)
    assert (said.status.last_max_job_end, said.status.priority_factor) == (8_000, 2)
    assert said.held_until is None
    again = publish(said, FACTS, 1_400)
    assert again.held_until == 2_000


def test_after_the_hold_the_enforced_end_may_rise():
    longer = replace(FACTS, running=(replace(ONE, enforced_end=20_000),))
    beat = publish(HELD, longer, 1_500)
    assert publish(beat, longer, 1_800).status.last_max_job_end == 20_000


def test_a_pilot_that_leaves_says_so_at_once_even_in_the_hold():
    said = publish(HELD, replace(FACTS, leaving=True), 1_201)
    assert (said.status.used_cpu, said.status.can_postpone_last_job) == (0, False)
    assert (said.status.last_exp_job_end, said.status.last_max_job_end) == (1_201, 1_201)
    assert decide(said, replace(FACTS, leaving=True), 1_202).publish is None


def test_an_idle_pilot_that_leaves_says_so_at_once():
    idle = publish(LastStatus(), Facts(allocated=8), 1_000)
    said = publish(idle, Facts(allocated=8, leaving=True), 1_001)
    assert said.status.can_postpone_last_job is False
    assert why(DRAINED, replace(DRAIN, leaving=True), 1_101) == "leaving"


def test_the_next_question_is_never_now():
    ending = replace(DRAIN, slot_ends=1_500)
    said = publish(FIRST, ending, 1_490)
    assert said.status.first_exp_job_end == 1_500
    assert decide(said, ending, 1_500).ask_again == 1_730


def test_an_idle_pilot_is_of_the_moment_while_true_and_unchanged_while_false():
    idle = Facts(allocated=8)
    said = publish(LastStatus(), idle, 1_000)
    assert publish(said, idle, 1_240).status.last_exp_job_end == 1_240
    retired = replace(idle, drain=frozenset({"node"}))
    said = publish(said, retired, 1_300)
    assert decide(said, retired, 1_540).publish == said.status
    pending = publish(said, replace(retired, pending_waste=5), 1_400)
    assert pending.status == replace(said.status, add_uncom_time=5)


@pytest.mark.parametrize(
    ("said", "ends", "now", "reason"),
    [
        (LastStatus(), 10**9, 1_000, None),
        (FIRST, 10**9, 1_100, None),
        (DRAINED, 5_000, 1_110, None),
        (DRAINED, 5_001, 1_110, "promise"),
        (HELD, 1_300, 1_799, "hold"),
        (HELD, 10**9, 1_800, None),
    ],
)
def test_when_a_payload_may_start(said, ends, now, reason):
    assert no_start(said, ends, now) == reason


def test_a_clock_that_is_set_back_does_not_silence_a_pilot():
    assert why(FIRST, FACTS, 500) == "heart-beat"
    assert why(FIRST, replace(FACTS, priority=1), 500) == "changed"


class Notes:
    """A sink that fails as a list says, in turns, and notes the rest."""

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.asked = 0

    def publish(self, status: Status) -> bool:
        self.asked += 1
        return self.outcomes[self.asked % len(self.outcomes)]


NAMES = st.sampled_from("abc")
WORDS = st.sampled_from("start start end commit estimate drain resume resume priority wait".split())
STEPS = st.lists(
    st.tuples(WORDS, NAMES, st.integers(0, 400), st.integers(1, 2_000), st.none() | st.integers(0, 4_000)),
    max_size=30,
)


def as_steps(drawn):
    """Only what can happen: a payload starts once, and what is not there does not end."""
    now, there, steps = 1_000, set(), []
    for number, (word, name, pause, expected, limit) in enumerate(drawn):
        now += pause
        payload = f"{name}{number}" if word == "start" else next(iter(sorted(there)), None)
        if word == "start":
            there.add(payload)
        elif payload is None and word in ("end", "commit", "estimate"):
            continue
        elif word == "end":
            there.discard(payload)
        steps.append(
            ScriptStep(
                now, word, payload or "", 1 + number % 3, now + expected,
                None if limit is None else now + expected + limit, now + 3_000 if limit else None,
                moves_slot=word in ("drain", "resume"), value=number,
            )
        )  # fmt: skip
    last = steps[-1].at if steps else now
    return [*steps, ScriptStep(last + 1_000, "wait"), ScriptStep(last + 1_001, "leave")]


@given(STEPS, st.lists(st.booleans(), max_size=5))
def test_whatever_happens_no_rule_is_broken(drawn, outcomes):
    happened = list(follow(Facts(allocated=16), as_steps(drawn), Notes([*outcomes, True])))
    log = [(one.at, one.status) for one in happened if one.status and one.written]
    assert faults(log) == []
    assert happened[-1].status.used_cpu == 0 or not happened[-1].written
    assert all(one.why in ("hold", "promise", "drain") for one in happened if one.refused)


def held_log():
    """First, drained, True again, its end."""
    return [(1_000, FIRST.status), (1_100, DRAINED.status), (1_200, HELD.status), (1_800, HELD.status)]


@pytest.mark.parametrize(
    ("place", "at", "changes", "fault"),
    [
        (0, 1_000, {"first_exp_job_end": 5_001}, "0 ends out of order"),
        (0, 890, {}, "0 start in the future"),
        (0, 1_000, {"used_cpu": None}, "0 incomplete"),
        (0, 1_000, {"add_uncom_time": -1}, "0 negative"),
        (0, 1_000, {"used_cpu": 0}, "0 waste of an idle pilot"),
        (1, 1_004, {}, "1 too soon"),
        (2, 1_200, {"priority_factor": 1}, "2 changed with the return to True"),
        (3, 1_790, {"priority_factor": 1}, "3 changed in the hold"),
        (3, 1_790, {"can_postpone_last_job": False, "last_max_job_end": 8_001}, "3 enforced end rises"),
        (3, 1_790, {"can_postpone_last_job": False, "last_max_job_end": None}, "3 enforced end rises"),
        (3, 1_801, {}, "3 too late"),
        (3, 1_800, {"first_exp_job_end": 1_799}, "3 end in the past"),
    ],
)
def test_the_checker_sees_each_fault(place, at, changes, fault):
    log = held_log()
    assert faults(log) == []
    log[place] = (at, replace(log[place][1], **changes))
    if changes.get("used_cpu") == 0:
        log[place] = (at, replace(log[place][1], add_final_exp_waste=1))
    assert fault in faults(log)
