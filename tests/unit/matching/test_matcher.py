"""Choosing takes jobs one by one and can be undone; explaining counts what stands between."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.shares import GroupShare
from lodesman.decide.matching.task_queue import TaskQueueKey

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1", norm_cpu_seconds=0)
REQUEST = ResourceRequest(vo="vo1", site="A")


@pytest.fixture
def matcher():
    return Matcher()


def put(matcher, tq_id, waiting=1, **changes):
    matcher.index.put(tq_id, replace(KEY, project=f"p{tq_id}", **changes), waiting, now=0.0)


def choose(matcher, request=REQUEST, count=1, *, seed=1, undo=None):
    return matcher.choose(request, count, now=0.0, rng=random.Random(seed), undo=[] if undo is None else undo)


def waiting(matcher):
    return {tq_id: jobs for tq_id, _, jobs in matcher.index.queues()}


# --- choosing -----------------------------------------------------------------------------------------


def test_each_job_chosen_leaves_its_task_queue(matcher):
    put(matcher, 1, 2)
    assert choose(matcher) == [1]
    assert waiting(matcher) == {1: 1}
    assert choose(matcher) == [1]
    assert choose(matcher) == []
    assert waiting(matcher) == {1: 0}


def test_nothing_chosen_leaves_no_undo(matcher):
    undo: list[Callable[[], object]] = []
    assert choose(matcher, undo=undo) == []
    assert undo == []


def test_several_jobs_at_once_are_as_many_as_there_are(matcher):
    put(matcher, 1, 3)
    put(matcher, 2, 2)
    put(matcher, 3, 9, sites=("B",))
    assert Counter(choose(matcher, count=4)).total() == 4
    assert len(choose(matcher, count=4)) == 1
    assert waiting(matcher) == {1: 0, 2: 0, 3: 9}


def test_no_jobs_asked_no_jobs_chosen(matcher):
    put(matcher, 1, 3)
    assert choose(matcher, count=0) == []
    assert waiting(matcher) == {1: 3}


def test_undo_restores_everything_in_reverse_order(matcher):
    put(matcher, 1, 3)
    put(matcher, 2, 1)
    undo: list[Callable[[], object]] = []
    assert len(choose(matcher, count=10, undo=undo)) == 4
    assert len(undo) == 1
    assert matcher.eligible(REQUEST) == []
    for step in reversed(undo):
        step()
    assert waiting(matcher) == {1: 3, 2: 1}
    assert sorted(matcher.eligible(REQUEST)) == [1, 2]


def test_the_second_claim_of_a_batch_sees_the_first(matcher):
    put(matcher, 1, 1)
    undo: list[Callable[[], object]] = []
    assert choose(matcher, undo=undo) == [1]
    assert choose(matcher, undo=undo) == []
    for step in reversed(undo):
        step()
    assert choose(matcher) == [1]


def test_each_job_of_one_request_is_drawn_anew(matcher):
    for n in range(4):
        put(matcher, n, 10_000, group=f"g{n}")
    matcher.lottery.set_shares({"g0": GroupShare(share=3000), "g1": GroupShare(share=1000)})
    got = Counter(choose(matcher, count=6000))
    assert got[0] == pytest.approx(3000, abs=200)
    assert got[3] == pytest.approx(1000, abs=150)


def test_a_limit_applies_to_the_next_job_of_the_same_request(matcher):
    """The caller blocks between two choices; what is blocked is not drawn."""
    put(matcher, 1, 5)
    put(matcher, 2, 5)
    matcher.index.block(1, "quota")
    assert choose(matcher, count=10) == [2] * 5
    matcher.index.unblock(1, "quota")
    assert choose(matcher, count=10) == [1] * 5


# --- who took part ------------------------------------------------------------------------------------


def competed(matcher, count=1):
    found: list[str] = []
    chosen = matcher.choose(REQUEST, count, now=0.0, rng=random.Random(5), undo=[], competed=found)
    assert len(found) == len(chosen)
    return [json.loads(one) for one in found]


def test_the_groups_that_competed_with_their_shares(matcher):
    matcher.lottery.set_shares({"b": GroupShare(share=70)})
    put(matcher, 1, 1, group="a")
    put(matcher, 2, 9, group="b")
    put(matcher, 3, 9, group="c", sites=("B",))
    assert competed(matcher) == [{"a": 1000, "b": 70}]


def test_a_group_whose_last_job_was_taken_competes_no_more(matcher):
    """Each job of one request is a draw of its own, and a group without jobs deserves nothing of it."""
    matcher.lottery.set_shares({"a": GroupShare(share=1e9)})
    put(matcher, 1, 1, group="a")
    put(matcher, 2, 4, group="b")
    assert competed(matcher, 5) == [{"a": 1e9, "b": 1000}, *[{"b": 1000}] * 4]


def test_new_shares_count_from_the_next_draw_on(matcher):
    put(matcher, 1, 9, group="a")
    before = competed(matcher)
    matcher.lottery.set_shares({"a": GroupShare(share=3)})
    assert (before, competed(matcher)) == ([{"a": 1000}], [{"a": 3}])


def test_groups_without_share_compete_among_themselves(matcher):
    matcher.lottery.set_shares({"a": GroupShare(share=0), "c": GroupShare(share=0)})
    for number, group in enumerate("abc"):
        put(matcher, number, 1, group=group)
    assert competed(matcher, 2) == [{"b": 1000}, {"a": 1, "c": 1}]


def test_a_private_pilot_without_a_group_is_refused_by_every_group(matcher):
    put(matcher, 1)
    put(matcher, 2, group="chem")
    assert matcher.eligible(replace(REQUEST, pilot_type="private")) == []
    assert matcher.eligible(replace(REQUEST, pilot_type="private", groups=("chem",))) == [2]
