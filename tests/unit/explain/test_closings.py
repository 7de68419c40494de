"""Closed queues in `why`: present gates, a step with a few closings, and the command that opens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.explain.actors import who_opens
from lodesman.decide.explain.closing import closings_step, closings_text, longest_minutes
from lodesman.decide.explain.last_iteration import REOPENED, Capacity, Gate
from lodesman.wire.nodes import Closing

CLOSED = Gate("closed", "closed by root since 1970-01-01 00:00 UTC: power")
FULL = Gate("max-waiting", "MaxWaitingJobs 10 - 10 waiting")


def closing(site="North", ce="", queue="", **more):
    return Closing(
        **{
            "site": site,
            "ce": ce,
            "queue": queue,
            "reason": "power",
            "closed_by": "root",
            "since": 0.0,
            "until": None,
            "keep_pilots": False,
            **more,
        }
    )


def gates(closings, eligible, closed=None, is_open=0):
    return Capacity(open=is_open, by_pilots={}, closed=closed or {}).gates(eligible, closings, 0.0)


def test_what_is_closed_now_counts_whatever_the_director_knew():
    found = gates([(closing(), 0b0011)], 0b1111, {FULL: 0b0110}, is_open=0b1001)
    assert found == [(CLOSED, 0b0011), (FULL, 0b0100)]


def test_a_closing_that_was_opened_since_is_not_shown():
    assert gates([], 0b111, {CLOSED: 0b11, FULL: 0b100}) == [(REOPENED, 0b11), (FULL, 0b100)]
    assert gates([(closing(), 0b11)], 0b11, {CLOSED: 0b11}) == [(CLOSED, 0b11)]


def test_a_queue_that_is_closed_twice_is_counted_once():
    inner = closing(ce="c", reason="full")
    found = gates([(closing(), 0b111), (inner, 0b001)], 0b111)
    assert found == [(CLOSED, 0b111)]


@given(st.integers(0, 255), st.lists(st.integers(0, 255), max_size=3), st.integers(0, 255))
def test_every_queue_without_room_has_one_gate(eligible, closed, full):
    closings = [(closing(f"S{n}", reason=str(n)), mask & eligible) for n, mask in enumerate(closed)]
    found = gates(closings, eligible, {FULL: full})
    total = 0
    for _, mask in found:
        assert not total & mask
        total |= mask
    wanted = full
    for mask in closed:
        wanted |= mask
    assert total == wanted & eligible


def test_the_step_lists_a_few_and_counts_the_rest():
    found = [(closing(f"S{n}", until=3_600.0 if n else None), 1 << n) for n in range(7)]
    told = closings_step(found, 0b11111111, may_run=False, now=5.0)
    assert (told.step, told.holds, told.queues, told.more) == ("site_mask", True, 7, 2)
    assert [one.site for one in told.closings] == [f"S{n}" for n in range(5)]
    assert told.closings[1].until == 3_600.0
    assert told.text.startswith(
        "7 of 8 eligible queues closed by administrators: S0 is closed by root since 1970-01-01 00:00 UTC: power (1 queue); "
        "S1 is closed by root since 1970-01-01 00:00 UTC until 1970-01-01 01:00 UTC: power (1 queue); "
    )
    assert told.text.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("closed", "eligible", "may_run", "holds"),
    [(0b01, 0b11, False, True), (0b11, 0b11, False, False), (0b11, 0b11, True, True), (0, 0, False, True)],
)
def test_the_step_is_an_obstacle_only_if_all_are_closed_and_no_pilot_stayed(closed, eligible, may_run, holds):
    found = [(closing(), closed)] if closed else []
    assert closings_step(found, eligible, may_run=may_run, now=5.0).holds is holds


def test_the_actors_of_the_first_closings_are_listed():
    found = [closing("A", until=60.0), closing("B"), closing("C"), closing("D"), closing("E")]
    assert who_opens((), found) == (
        "root or another administrator: lode site open A, or time: at 1970-01-01 00:01 UTC; "
        "root or another administrator: lode site open B; root or another administrator: lode site open C; "
        "likewise for 2 more"
    )


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (("North",), "lode site open North"),
        (("North", "ce", "q"), "lode site open North/ce/q"),
        (("North", "a/b"), "lode site open North a/b"),
        (("my site", "$(rm)"), "lode site open 'my site/$(rm)'"),
    ],
)
def test_the_command_can_be_typed_as_shown(node, words):
    assert who_opens((), [closing(*node)]) == f"root or another administrator: {words}"


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_longest_job_that_still_starts_is_found_in_whole_minutes(asked, left):
    found = longest_minutes(asked, lambda seconds: seconds <= left)
    assert found == max(0, min(left // 60, (asked - 1) // 60))


def test_what_is_closed_and_what_is_to_be_are_told_apart():
    now, ahead = closing(), closing("South", begins=600.0)
    assert closings_text([now], 0, 0.0).startswith(
        "no pilot is there and all of them are closed: North is closed by"
    )
    assert "all of them are closed, or are to be: North" in closings_text([now, ahead], 0, 0.0)
    assert "all of them are to be closed: South" in closings_text([ahead], 0, 0.0)
    assert "start" not in closings_text([ahead], 0, 0.0)
    assert closings_text([ahead], 9, 0.0).endswith("jobs that ask for at most 9 min of CPUTime still start")
