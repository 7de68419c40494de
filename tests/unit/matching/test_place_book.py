"""Limits of sites and CEs in the engine: what DIRAC means by them without its known faults, and against a plain count."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.limit_rules import RunPlace, join_books
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.place_book import PlaceBook, concerns
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources.draft import DELAY, RUNNING
from lodesman.decide.resources.model import FilePosition
from lodesman.decide.resources.place_limits import PlaceLimit
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.wire.nodes import NodePath

A, B = RunPlace("A", "ce1", "q"), RunPlace("A", "ce2", "q")
ELSEWHERE = RunPlace("E", "ce1", "q")


def limit(number, attribute="", value="", *, site="A", ce="", kind=RUNNING):
    return PlaceLimit(
        kind=kind, path=NodePath(site, ce), attribute=attribute, value=value, number=number, source=FilePosition()
    )  # fmt: skip


def key(**more):
    return TaskQueueKey(**{"owner": "ann", "group": "g", "vo": "v", **more})


MERGE, USER = key(job_type="Merge"), key(job_type="User")
OF_X, MERGE_OF_X = key(group="x"), key(job_type="Merge", group="x")
BOB, CAT = key(owner="bob"), key(owner="cat")


def is_shut(limits, what, place):
    """Whether a task queue may not be drawn: asked of one that comes, so that nothing is remembered."""
    limits.add(0, 0, what)
    shut = bool(limits.shut_slots(place)[0])
    limits.remove(0, 0, what)
    return shut


@pytest.mark.parametrize(
    ("rules", "running", "shut", "free"),
    [
        # running >= n excludes the value there, and nothing else.
        ([limit(2, "JobType", "Merge")], [(MERGE, A)] * 2, [(MERGE, A), (MERGE, B)], [(USER, A), (MERGE, ELSEWHERE)]),
        ([limit(2, "JobType", "Merge")], [(MERGE, A), (USER, A)], [], [(MERGE, A)]),
        # n = 0 closes.
        ([limit(0, "JobType", "Merge")], [], [(MERGE, A)], [(USER, A)]),
        # Two attributes over their limits: each blocks (DIRAC blocks only jobs that have both).
        (
            [limit(1, "JobType", "Merge"), limit(1, "OwnerGroup", "x")], [(MERGE_OF_X, A)],
            [(MERGE, A), (OF_X, A), (MERGE_OF_X, A)], [(USER, A)],
        ),
        # Two values of one attribute over their limits: both are blocked (in DIRAC neither is).
        (
            [limit(1, "Owner", "bob"), limit(1, "Owner", "cat")], [(BOB, A), (CAT, A)],
            [(BOB, A), (CAT, A)], [(USER, A)],
        ),
        # A limit of a CE counts what runs there (DIRAC: what runs at the site).
        (
            [limit(1, "JobType", "Merge", ce="ce1")], [(MERGE, B), (MERGE, B)], [], [(MERGE, A), (MERGE, B)],
        ),
        ([limit(1, "JobType", "Merge", ce="ce1")], [(MERGE, A)], [(MERGE, A)], [(MERGE, B)]),
        # Site and CE: both hold.
        (
            [limit(2, "JobType", "Merge"), limit(1, "JobType", "Merge", ce="ce1")], [(MERGE, A)],
            [(MERGE, A)], [(MERGE, B)],
        ),
        (
            [limit(2, "JobType", "Merge"), limit(9, "JobType", "Merge", ce="ce1")], [(MERGE, B)] * 2,
            [(MERGE, A), (MERGE, B)], [(USER, A)],
        ),
        # All jobs of a site.
        ([limit(2)], [(MERGE, A), (USER, B)], [(MERGE, A), (BOB, B)], [(USER, ELSEWHERE)]),
        # A job that names several tags counts for each.
        (
            [limit(1, "Tag", "GPU"), limit(1, "Tag", "SSD")], [(key(tags=("GPU", "SSD")), A)],
            [(key(tags=("GPU",)), A), (key(tags=("SSD", "X")), A)], [(key(tags=("X",)), A), (USER, A)],
        ),
        ([limit(1, "UserPriority", "7")], [(key(user_priority=7), A)], [(key(user_priority=7), A)], [(USER, A)]),
    ],
)  # fmt: skip
def test_what_the_limits_mean(rules, running, shut, free):
    limits = RunLimits(PlaceBook(rules))
    for what, place in running:
        limits.take(what, place)
    assert [one for one in shut if not is_shut(limits, *one)] == []
    assert [one for one in free if is_shut(limits, *one)] == []
    for what, place in running:
        limits.give(what, place)
    assert [one for one in shut if is_shut(limits, *one) and rules[0].number] == []


def test_attributes_with_one_value_make_one_set_and_those_of_lists_one_for_each_value():
    rules = [limit(1, "JobType", name, site=site) for name in ("a", "b") for site in ("A", "E")]
    assert len(PlaceBook(rules).sets) == 1
    assert len(PlaceBook([limit(1, "Tag", name) for name in ("a", "b")]).sets) == 2
    assert len(PlaceBook([limit(1), limit(1, ce="ce1"), limit(1, "Owner", "x")]).sets) == 3


def test_a_delay_is_shut_as_long_as_it_is_said_to_be():
    shut = set[str]()
    rule = limit(9, "JobType", "Merge", kind=DELAY)
    limits = RunLimits(PlaceBook([rule], lambda name: name not in shut))
    limits.add(0, 0, MERGE)
    limits.add(0, 1, USER)
    assert limits.shut_slots(A)[0] == 0
    limits.take(MERGE, A)  # what runs is no matter
    assert limits.shut_slots(A)[0] == 0
    limits.take_freed()
    shut.add(rule.name)
    limits.review(rule.rule, ("A",))
    assert limits.shut_slots(A)[0] == 1
    assert limits.shut_slots(ELSEWHERE)[0] == 0
    assert limits.take_freed() is None
    limits.add(0, 2, key(job_type="Merge", owner="new"))
    assert limits.shut_slots(A)[0] == 0b101
    shut.clear()
    limits.review(rule.rule, ("A",))
    assert limits.shut_slots(A)[0] == 0
    freed = limits.take_freed()
    assert freed is not None
    assert freed(limits.spot(A))
    assert not freed(limits.spot(ELSEWHERE))
    limits.review("a rule that is gone", ("A",))


# --- several books ------------------------------------------------------------------------------------------

QUOTAS = "{\n name q\n enabled true\n limit users {*} hosts {*} to slots=2\n limit users bob to slots=1\n}\n"


def quotas(text=QUOTAS):
    vocabulary = Vocabulary()
    return QuotaBook(read_quota_sets(text, vocabulary.complexes, faults=[]), vocabulary)


def test_books_without_rules_cost_nothing():
    empty, places = quotas(""), PlaceBook([limit(1)])
    assert join_books([empty, places]) is places
    assert not join_books([empty, PlaceBook([])]).names


def test_the_rules_of_several_books_hold_each_for_itself():
    places, sets = PlaceBook([limit(3), limit(1, "JobType", "Merge")]), quotas()
    book = join_books([sets, places])
    assert book.names == ("q/1", "q/2", "RunningLimit/MaxRunningJobs", "RunningLimit/JobType/Merge")
    assert book.sets == ((0, 2), (2, 3), (3, 4))
    limits, host = RunLimits(book), A._replace(host="h")
    alone = [RunLimits(sets), RunLimits(places)]
    for what in (BOB, BOB, MERGE, CAT):
        for one in (limits, *alone):
            one.take(what, host)
        uses = sorted(str(use) for use, _ in limits.uses())
        assert uses == sorted(str(use) for one in alone for use, _ in one.uses())
        for asked in (BOB, MERGE, USER, CAT):
            for place in (host, A._replace(host="other"), ELSEWHERE):
                assert is_shut(limits, asked, place) == any(is_shut(one, asked, place) for one in alone)
    found = {use.rule for use, _ in limits.refusals(BOB, host)}
    assert found == {"q/1", "RunningLimit/MaxRunningJobs"}


# --- against a plain count ------------------------------------------------------------------------------------

KEYS = [
    key(owner=owner, job_type=kind, tags=tags)
    for owner in ("ann", "bob") for kind in ("User", "Merge") for tags in ((), ("GPU",), ("GPU", "SSD"))
]  # fmt: skip
PLACES = [RunPlace(site, ce, "q") for site in ("A", "E") for ce in ("ce1", "ce2")]
VALUES = {"": [""], "Owner": ["ann", "bob", "none"], "JobType": ["User", "Merge"], "Tag": ["GPU", "SSD"]}


@st.composite
def some_limit(draw):
    attribute = draw(st.sampled_from(sorted(VALUES)))
    value = draw(st.sampled_from(VALUES[attribute]))
    site, ce = draw(st.sampled_from(["A", "E"])), draw(st.sampled_from(["", "ce1", "ce2"]))
    return limit(draw(st.integers(0, 3)), attribute, value, site=site, ce=ce)


def at(rule, place):
    return rule.path.site == place.site and rule.path.ce in ("", place.ce)


@given(
    rules=st.lists(some_limit(), max_size=8, unique_by=lambda rule: rule.name),
    steps=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(PLACES), st.booleans()), max_size=25),
)
def test_the_engine_and_a_plain_count_agree(rules, steps):
    limits, running = RunLimits(PlaceBook(rules)), Counter[tuple[TaskQueueKey, RunPlace]]()
    for slot, what in enumerate(KEYS):
        limits.add(0, slot, what)
    for what, place, ends in steps:
        if ends and running[what, place]:
            limits.give(what, place)
            running[what, place] -= 1
        elif not ends:
            limits.take(what, place)
            running[what, place] += 1
        for there in PLACES:
            full = [
                rule
                for rule in rules
                if at(rule, there)
                and rule.number
                <= sum(n for (w, p), n in running.items() if at(rule, p) and concerns(rule, w))
            ]
            wanted = sum(1 << slot for slot, w in enumerate(KEYS) if any(concerns(rule, w) for rule in full))
            assert limits.shut_slots(there)[0] == wanted
