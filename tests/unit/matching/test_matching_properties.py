"""Reasons, masks and draws say the same in random worlds, after anything that can happen to an index."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.index import _CROWDED_SECONDS, _IDLE_SECONDS
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.parked import signature
from lodesman.decide.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.decide.matching.shares import GroupShare
from lodesman.decide.matching.task_queue import TaskQueueKey


def some(letters, size):
    return st.sets(st.sampled_from(letters), max_size=size).map(lambda s: tuple(sorted(s)))


NUMBERS = [0, 1, 2, 31, 32, 33, 60, 61, 100, 3_600]
keys = st.builds(
    TaskQueueKey,
    owner=st.sampled_from(["a", "b"]),
    group=st.sampled_from(["g", "h"]),
    vo=st.sampled_from(["v", "w"]),
    job_type=st.sampled_from(["User", "MC"]),
    job_class=st.sampled_from(["", "", "app"]),
    variant=st.sampled_from(["v1", "default"]),
    user_priority=st.sampled_from([0, 1, 5, 10]),
    sites=some("ABC", 3),
    banned_sites=some("ABC", 2),
    grid_ces=some(["c1", "c2"], 2),
    platforms=some("pqr", 2),
    tags=some("tuvx", 3),
    pilot_type=st.sampled_from(["", PRIVATE]),
    submission_pools=some(["s1", "s2"], 2),
    submit_pool=st.sampled_from(["", "x", "y"]),
    cores=st.sampled_from([1, 2, 40]),
    memory_mb=st.sampled_from(NUMBERS),
    norm_cpu_seconds=st.sampled_from(NUMBERS),
)
requests = st.builds(
    ResourceRequest,
    vo=st.sampled_from(["v", "w"]),
    groups=st.none() | some("gh", 2),
    owner=st.sampled_from(["", "", "a"]),
    pilot_type=st.sampled_from(["", PRIVATE]),
    site=st.sampled_from(["", "A", "B", ANY]),
    ce=st.sampled_from(["", "c1", ANY]),
    platforms=some(["p", "q", ANY], 2),
    tags=some(["t", "u", "v", ANY], 3),
    required_tags=some("tu", 1),
    job_types=st.none() | some(["User", "MC", ANY], 2),
    job_classes=st.none() | some(["NO_JC", "ANY_JC", "app", "app.v1"], 2),
    submit_pools=some("xyz", 2),
    submission_pool=st.sampled_from(["", "s1"]),
    cores=st.sampled_from([0, 1, 2, 64]),
    memory_mb=st.sampled_from(NUMBERS),
    norm_cpu_seconds=st.integers(0, 130) | st.sampled_from(NUMBERS),
)


@given(keys, requests)
def test_rounding_never_makes_a_task_queue_eligible_that_is_not(key, request):
    if not explain(key, signature(request)):
        assert not explain(key, request)


@given(requests)
def test_a_signature_is_its_own_signature(request):
    assert signature(signature(request)) == signature(request)


@given(
    st.lists(st.tuples(keys, st.integers(0, 2), st.booleans()), max_size=15, unique_by=lambda one: one[0]),
    st.lists(requests, min_size=1, max_size=4),
)
def test_no_reason_and_only_then_it_is_in_what_is_drawn_from(queues, asking):
    matcher = Matcher()
    for tq_id, (key, waiting, blocked) in enumerate(queues):
        matcher.index.put(tq_id, key, waiting, now=0.0)
        if blocked:
            matcher.index.block(tq_id, "limit")
    rng = random.Random(1)
    for request in asking:
        eligible = {
            tq_id
            for tq_id, (key, waiting, blocked) in enumerate(queues)
            if waiting and not blocked and not explain(key, request)
        }
        assert set(matcher.eligible(request)) == eligible
        undo: list[Callable[[], object]] = []
        chosen = matcher.choose(request, 1, now=0.0, rng=rng, undo=undo)
        assert bool(chosen) == bool(eligible)
        assert set(chosen) <= eligible
        for step in reversed(undo):
            step()


class IndexLife(RuleBasedStateMachine):
    """Everything that can happen to an index, against dictionaries."""

    queues = Bundle("queues")

    def __init__(self):
        super().__init__()
        self.matcher = Matcher()
        self.index = self.matcher.index
        self.rng = random.Random(7)
        self.now = 1000.0
        self.number = 0
        self.keys = {}
        self.waiting = {}
        self.limits = {}
        self.emptied = {}

    @rule(target=queues, key=keys, waiting=st.integers(0, 3))
    def put(self, key, waiting):
        known = self.index.find(key)
        if known is not None:
            assert self.keys[known] == key
            return known
        self.number += 1
        self.index.put(self.number, key, waiting, now=self.now)
        self.keys[self.number] = key
        self.limits[self.number] = set()
        self._set(self.number, waiting)
        return self.number

    def _set(self, tq_id, waiting):
        self.waiting[tq_id] = waiting
        if waiting:
            self.emptied.pop(tq_id, None)
        else:
            self.emptied[tq_id] = self.now

    def _forget(self, tq_id):
        for known in (self.keys, self.waiting, self.limits):
            del known[tq_id]
        self.emptied.pop(tq_id, None)

    @rule(tq_id=queues, n=st.integers(1, 3))
    def add_waiting(self, tq_id, n):
        if tq_id in self.keys:
            self.index.add_waiting(tq_id, n, now=self.now)
            self._set(tq_id, self.waiting[tq_id] + n)

    @rule(tq_id=queues, n=st.integers(1, 4))
    def take(self, tq_id, n):
        if tq_id in self.keys and self.waiting[tq_id] >= n:
            self.index.take(tq_id, n, now=self.now)
            self._set(tq_id, self.waiting[tq_id] - n)

    @rule(tq_id=consumes(queues))
    def remove(self, tq_id):
        if tq_id in self.keys:
            self.index.remove(tq_id)
            self._forget(tq_id)

    @rule(tq_id=queues, limit=st.sampled_from(["q", "r"]), full=st.booleans())
    def limit(self, tq_id, limit, full):
        if tq_id in self.keys:
            (self.index.block if full else self.index.unblock)(tq_id, limit)
            (self.limits[tq_id].add if full else self.limits[tq_id].discard)(limit)

    @rule(seconds=st.sampled_from([0.5, _CROWDED_SECONDS, 100.0, _IDLE_SECONDS]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def forget_idle(self):
        due = {tq_id for tq_id, since in self.emptied.items() if self.now - since > _IDLE_SECONDS}
        assert set(self.index.forget_idle(self.now)) == due
        for tq_id in due:
            self._forget(tq_id)

    @rule(
        shares=st.dictionaries(
            st.sampled_from("gh"),
            st.builds(GroupShare, share=st.sampled_from([0.0, 1.0, 500.0]), job_sharing=st.booleans()),
        )
    )
    def set_shares(self, shares):
        self.matcher.lottery.set_shares(shares)

    @rule(request=requests, count=st.integers(1, 4), keep=st.booleans())
    def choose(self, request, count, keep):
        eligible = {
            tq_id for tq_id in self.keys if self._open(tq_id) and not explain(self.keys[tq_id], request)
        }
        assert set(self.matcher.eligible(request)) == eligible
        undo: list[Callable[[], object]] = []
        chosen = self.matcher.choose(request, count, now=self.now, rng=self.rng, undo=undo)
        assert set(chosen) <= eligible
        assert len(chosen) == min(count, sum(self.waiting[tq_id] for tq_id in eligible))
        if keep:
            for tq_id in chosen:
                self._set(tq_id, self.waiting[tq_id] - 1)
        else:
            for step in reversed(undo):
                step()
        for tq_id in set(chosen):
            if not keep:
                self._set(tq_id, self.waiting[tq_id])

    def _open(self, tq_id):
        return self.waiting[tq_id] > 0 and not self.limits[tq_id]

    @invariant()
    def counts_agree(self):
        assert {tq_id: waiting for tq_id, _, waiting in self.index.queues()} == self.waiting
        assert {tq_id: key for tq_id, key, _ in self.index.queues()} == self.keys

    @invariant()
    def bits_agree(self):
        for group in self.index.groups():
            members = {queue.tq_id for queue in group.slots if queue is not None}
            assert members
            assert {queue.tq_id for queue in group.queues(group.open)} == {
                t for t in members if self._open(t)
            }
            assert {queue.tq_id for queue in group.queues(group.alive)} == {
                t for t in members if self.waiting[t]
            }


TestIndexLife = pytest.mark.slow(IndexLife.TestCase)
TestIndexLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
