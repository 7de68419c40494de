"""The site mask as a value: what a closing closes, until when, and whose pilots leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.resources import QueueId
from lodesman.wire.nodes import Closing, NodePath, utc

NAMES = ("A", "B", "a/b")
QUEUES = tuple(QueueId(site, ce, queue) for site in NAMES for ce in NAMES for queue in NAMES)
NUMBERS = dict(enumerate(QUEUES))
NODES = sorted({node for s, c, q in QUEUES for node in ((s, "", ""), (s, c, ""), (s, c, q))})


def closing(site, ce="", queue="", **more):
    return Closing(
        **{
            "site": site,
            "ce": ce,
            "queue": queue,
            "reason": "disk broken",
            "closed_by": "root",
            "since": 0.0,
            "until": None,
            "keep_pilots": False,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("node", "closed"),
    [
        (("A",), [("A", "A", "A"), ("A", "B", "a/b")]),
        (("A", "B"), [("A", "B", "A"), ("A", "B", "a/b")]),
        (("A", "B", "a/b"), [("A", "B", "a/b")]),
    ],
)
def test_a_closing_closes_what_is_below_it_and_nothing_else(node, closed):
    mask = SiteMask([closing(*node)])
    assert all(mask.closings_of(place, 5.0) for place in closed)
    below = [place for place in QUEUES if place[: len(node)] == node]
    assert [place for place in QUEUES if mask.closings_of(place, 5.0)] == below


def test_names_with_slashes_are_names():
    mask = SiteMask([closing("a", "b")])
    assert mask.closings_of(("a/b", "A", "A"), 1.0) == ()
    assert str(closing("a/b", "c").node) == str(closing("a", "b/c").node) == "a/b/c"


def test_it_opens_by_itself_at_its_time_and_not_before():
    mask = SiteMask([closing("A", until=10.0)])
    assert mask.closings_of(("A", "A", "A"), 9.999)
    assert not mask.closings_of(("A", "A", "A"), 10.0)
    assert mask.closed(NUMBERS, 9.999)
    assert not mask.closed(NUMBERS, 10.0)
    assert mask.drained(9.999) is not None
    assert mask.drained(10.0) is None
    assert list(mask.active(10.0)) == []


def test_all_closings_of_a_queue_are_listed_the_widest_first():
    queue = closing("A", "A", "A", reason="full", closed_by="ann", since=86_400.0, until=90_000.0)
    mask = SiteMask([queue, closing("A")])
    assert mask.closings_of(("A", "A", "A"), 1.0) == (closing("A"), queue)
    assert mask.reason(("A", "A", "A"), 1.0) == (
        "closed by root since 1970-01-01 00:00 UTC: disk broken; "
        "closed by ann since 1970-01-02 00:00 UTC until 1970-01-02 01:00 UTC: full"
    )
    assert mask.reason(("B", "A", "A"), 1.0) == ""


def test_pilots_stay_only_if_every_closing_lets_them():
    kept = closing("A", keep_pilots=True)
    assert SiteMask([kept]).drains(("A", "A", "A"), 1.0) is None
    assert SiteMask([kept]).drained(1.0) is None
    inner = closing("A", "A")
    mask = SiteMask([kept, inner])
    assert mask.drains(("A", "A", "A"), 1.0) == inner
    assert mask.drains(("A", "B", "A"), 1.0) is None
    assert ("A", "A", "A") in mask.drained(1.0)
    assert ("A", "B", "A") not in mask.drained(1.0)


def test_a_pilot_of_no_known_queue_leaves_with_its_site():
    mask = SiteMask([closing("A")])
    assert mask.closings_of(("A", "", ""), 1.0) == (closing("A"),)
    assert mask.closings_of(("", "", ""), 1.0) == ()


@pytest.mark.parametrize(
    ("mine", "theirs", "concerned"),
    [
        (("A",), ("A", "B", "C"), True),
        (("A", "B", "C"), ("A",), True),
        (("A", "B"), ("A", "C"), False),
        (("A",), ("B",), False),
        (("A", "B"), ("A", "B"), True),
    ],
)
def test_what_concerns_what(mine, theirs, concerned):
    assert closing(*mine).concerns(NodePath(*theirs)) is concerned


def test_nothing_is_closed():
    mask = SiteMask()
    assert mask.closings_of(("A", "A", "A"), 1.0) == ()
    assert mask.hits(NUMBERS, -1, 1.0) == []
    assert mask.closed(NUMBERS, 1.0) == 0
    assert mask.drained(1.0) is None


def test_times_are_in_one_zone():
    assert utc(1_795_383_000.0) == "2026-11-22 21:30 UTC"


def test_an_announced_closing_shuts_out_pilots_that_could_still_run_and_opens_by_itself():
    place, later = ("A", "A", "A"), closing("A", begins=1_000.0, until=2_000.0)
    mask = SiteMask([later])
    found = {
        (now, life): bool(mask.closings_shutting_out(place, now, life))
        for now in (0.0, 399.0, 401.0, 1_000.0, 1_999.0, 2_000.0)
        for life in (0, 600)
    }
    assert found == {
        (0.0, 0): True, (0.0, 600): False, (399.0, 0): True, (399.0, 600): False, (401.0, 0): True, (401.0, 600): True,
        (1_000.0, 0): True, (1_000.0, 600): True, (1_999.0, 0): True, (1_999.0, 600): True,
        (2_000.0, 0): False, (2_000.0, 600): False,
    }  # fmt: skip
    assert [bool(mask.closings_of(place, now)) for now in (999.0, 1_000.0, 2_000.0)] == [False, True, False]
    assert [mask.drained(now) is not None for now in (939.0, 940.0, 1_999.0, 2_000.0)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert [mask.end_of_jobs(place, now) for now in (0.0, 1_500.0, 2_000.0)] == [1_000.0, 1_000.0, None]
    assert mask.end_of_jobs(("B", "A", "A"), 0.0) is None


def test_the_queues_that_it_shuts_out_are_the_same_as_bits():
    mask = SiteMask([closing("A", "A", begins=1_000.0), closing("B")])
    lives = {bit: 600 * (bit % 3) for bit in NUMBERS}
    for now in (0.0, 500.0, 1_000.0):
        closed = mask.closed(NUMBERS, now, lives)
        assert {bit for bit in NUMBERS if closed >> bit & 1} == {
            bit for bit, queue in NUMBERS.items() if mask.closings_shutting_out(queue, now, lives[bit])
        }


def test_its_words_say_when_and_what_still_starts():
    later = closing("A", begins=86_400.0, until=90_000.0)
    assert later.text_at(0.0) == (
        "to be closed from 1970-01-02 00:00 UTC until 1970-01-02 01:00 UTC, says root: disk broken"
    )
    assert later.ahead_text(86_400.0 - 1_799.0).endswith(
        "until then jobs that ask for at most 29 min of CPUTime still start"
    )
    assert later.ahead_text(86_400.0 - 59.0).endswith("until then no job starts")
    assert later.text_at(86_400.0).startswith("closed by root since 1970-01-02 00:00 UTC")


closings = st.lists(
    st.builds(
        lambda node, until, keep: closing(*node, until=until, keep_pilots=keep),
        st.sampled_from(NODES),
        st.sampled_from([None, 5.0, 10.0]),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda one: one.node,
)


def by_node(found):
    return {one.node: one for one in found}


@given(closings, st.sampled_from([0.0, 5.0, 7.0, 10.0]))
def test_masks_of_queues_agree_with_each_queue(found, now):
    mask = SiteMask(found)
    closed, drained = mask.closed(NUMBERS, now), mask.drained(now)
    for bit, place in enumerate(QUEUES):
        by_hand = [one for one in found if one.concerns(place) and (one.until is None or now < one.until)]
        assert by_node(mask.closings_of(place, now)) == by_node(by_hand)
        assert bool(closed >> bit & 1) is bool(by_hand) is bool(mask.reason(place, now))
        assert by_node(one for one, _ in mask.hits(NUMBERS, 1 << bit, now)) == by_node(by_hand)
        leaves = any(not one.keep_pilots for one in by_hand)
        assert (mask.drains(place, now) is not None) is leaves
        assert (drained is not None and place in drained) is leaves


def test_closings_are_ordered_by_their_number_of_queues():
    queues = dict(enumerate([QueueId("A", "c", "q"), QueueId("A", "c", "r"), QueueId("B", "c", "q")]))
    one, site, other = (
        closing(site, ce, queue, reason="x")
        for site, ce, queue in (("A", "c", "q"), ("A", "", ""), ("C", "", ""))
    )
    mask = SiteMask([one, site, other])
    assert mask.hits(queues, 0b111, 1.0) == [(site, 0b011), (one, 0b001)]
    assert mask.hits(queues, 0b110, 1.0) == [(site, 0b010)]
    assert mask.hits(queues, 0b100, 1.0) == []


def test_what_is_announced_counts_once_a_pilot_could_not_end_before():
    mask = SiteMask([closing("A", "B", begins=10_000.0), closing("B", begins=99_000.0), closing("C")])
    lives, inside = (
        dict.fromkeys(NUMBERS, 600),
        {bit for bit, queue in NUMBERS.items() if queue[:2] == ("A", "B")},
    )
    assert mask.announced(NUMBERS, 9_000.0, lives) == 0
    assert ("A", "B", "A") not in mask.leaving(NUMBERS, 9_000.0, lives)
    assert mask.announced(NUMBERS, 9_500.0, lives) == sum(1 << bit for bit in inside)
    leaving = mask.leaving(NUMBERS, 9_500.0, lives)
    assert [("A", "B", "A") in leaving, ("A", "A", "A") in leaving, ("C", "A", "A") in leaving] == [
        True,
        False,
        True,
    ]
