"""Remembered masks are true after everything that can happen to a group, and are not remembered for ever."""

import random
from dataclasses import replace

import pytest

from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.group_index import _RECENT
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.lottery import Lottery
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.matching.views import _VIEWS_AT_MOST, Views, numbers_of

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1", norm_cpu_seconds=0)
REQUEST = ResourceRequest(vo="vo1", site="A", memory_mb=1000)


class Watched:
    """An index with one view on it."""

    def __init__(self, request=REQUEST):
        self.index = Index()
        self.lottery = Lottery(self.index)
        self.request = request
        self.view = Views(self.index).view_of(request)
        self.next_id = 0

    def put(self, **changes):
        self.next_id += 1
        self.index.put(self.next_id, replace(KEY, project=f"p{self.next_id}", **changes), 1, now=0.0)
        return self.next_id

    def seen(self):
        ballot = self.lottery.find_ballot(self.view)
        return {
            queue.tq_id
            for group in ballot.groups
            for queue in group.queues(self.view.mask(group, numbers_of(self.request)))
        }

    def expected(self):
        return {
            tq_id for tq_id, key, waiting in self.index.queues() if waiting and not explain(key, self.request)
        }


@pytest.fixture
def watched():
    return Watched()


@pytest.mark.parametrize("arrivals", [1, 3, 8, 9, _RECENT, _RECENT + 1, 3 * _RECENT])
def test_a_mask_catches_up_with_few_and_many_arrivals(watched, arrivals):
    watched.put()
    assert watched.seen() == {1}
    for n in range(arrivals):
        watched.put(sites=("A",) if n % 2 else ("B",))
    assert watched.seen() == watched.expected()


def test_a_wide_mask_that_missed_more_than_is_remembered_is_made_anew(watched, monkeypatch):
    """Wide masks are updated for longer, but not beyond the changes that the group keeps."""
    monkeypatch.setattr("lodesman.decide.matching.group_index._WIDE", 1)
    watched.put()
    watched.seen()
    for n in range(_RECENT + 5):
        watched.put(sites=("A",) if n % 2 else ("B",))
    assert watched.seen() == watched.expected()


def test_a_slot_that_is_reused_between_two_choices(watched):
    fitting = watched.put()
    watched.put()
    assert len(watched.seen()) == 2
    watched.index.remove(fitting)
    unfit = watched.put(sites=("B",))
    assert watched.seen() == {2}
    watched.index.remove(unfit)
    assert watched.seen() == {2}
    again = watched.put()
    assert watched.seen() == {2, again}


def test_a_task_queue_with_a_long_list_of_sites_arrives(watched):
    watched.put()
    watched.seen()
    here = watched.put(sites=tuple(sorted(["A", *(f"S{n:03}" for n in range(400))])))
    watched.put(sites=tuple(f"S{n:03}" for n in range(400)))
    assert watched.seen() == {1, here}


def test_the_mask_of_a_vanished_group_is_not_taken_for_that_of_a_new_one(watched):
    old = watched.put(group="old")
    assert watched.seen() == {old}
    watched.index.remove(old)
    watched.put(group="new", sites=("B",))
    assert [group.number for group in watched.index.groups()] == [0]
    assert watched.seen() == set()


def test_numbers_are_asked_anew_each_time(watched):
    small, large = watched.put(memory_mb=500), watched.put(memory_mb=2000)
    (group,) = watched.lottery.find_ballot(watched.view).groups
    assert {queue.tq_id for queue in group.queues(watched.view.mask(group, [1, 1000, 0]))} == {small}
    assert {queue.tq_id for queue in group.queues(watched.view.mask(group, [1, 4000, 0]))} == {small, large}
    assert watched.view.mask(group, [0, 4000, 0]) == 0


def test_a_node_too_small_for_anything_leaves_the_masks_alone(watched):
    watched.put(memory_mb=500)
    (group,) = watched.lottery.find_ballot(watched.view).groups
    assert watched.view.mask(group, [1, 100, 0]) == 0
    assert watched.view._seen == [0]
    assert watched.view.mask(group, [1, 500, 0]) == 1
    assert watched.view._seen == [group.arrived]


@pytest.mark.slow
def test_long_random_life_of_an_index():
    watched = Watched()
    rng = random.Random(4)
    sites = [(), ("A",), ("A", "B"), ("B",)]
    for step in range(1_500):
        known = [tq_id for tq_id, _, _ in watched.index.queues()]
        if rng.random() < 0.55 or not known:
            watched.put(
                sites=rng.choice(sites), group=rng.choice("xyz"), memory_mb=rng.choice([0, 900, 1100])
            )
        else:
            watched.index.remove(rng.choice(known))
        if step % rng.choice([1, 5, 40]) == 0:
            assert watched.seen() == watched.expected()


def test_requests_alike_but_for_numbers_and_names_of_queues_share_a_view():
    views = Views(Index())
    one = views.view_of(REQUEST)
    assert views.view_of(replace(REQUEST, cores=8, memory_mb=1, norm_cpu_seconds=77, queue="short")) is one
    assert views.view_of(replace(REQUEST, site="B")) is not one
    assert len(views._young.keys() | views._old.keys()) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"vo": "vo2"}, {"groups": ("bio",)}, {"owner": "alice"}, {"pilot_type": "private"}, {"site": "B"},
        {"ce": "c"}, {"platforms": ("p",)}, {"tags": ("t",)}, {"required_tags": ("t",)}, {"job_types": ("User",)},
        {"submit_pools": ("x",)}, {"submission_pool": "s"}, {"job_classes": ()},
    ],
    ids=str,
)  # fmt: skip
def test_every_attribute_of_a_mask_distinguishes_views(changes):
    views = Views(Index())
    assert views.view_of(REQUEST) is not views.view_of(replace(REQUEST, **changes))


def pools(count, first=0):
    """A list of its own: the same strings, another object."""
    return tuple(f"pool{n:04}" for n in range(first, first + count))


def test_few_pools_are_distinguished_by_value():
    views = Views(Index())
    assert views.view_of(replace(REQUEST, submit_pools=pools(3))) is views.view_of(
        replace(REQUEST, submit_pools=pools(3))
    )


def test_many_pools_are_distinguished_by_their_version():
    views = Views(Index())
    one = views.view_of(replace(REQUEST, submit_pools=pools(300), pools_version=1))
    assert views.view_of(replace(REQUEST, submit_pools=pools(300), pools_version=1, cores=3)) is one
    assert views.view_of(replace(REQUEST, submit_pools=pools(300, 1), pools_version=2)) is not one


def test_many_pools_without_a_version_are_distinguished_by_value():
    views = Views(Index())
    one = views.view_of(replace(REQUEST, submit_pools=pools(300)))
    assert views.view_of(replace(REQUEST, submit_pools=pools(300), cores=3)) is one
    assert views.view_of(replace(REQUEST, submit_pools=pools(300, 1))) is not one


@pytest.mark.parametrize("versions", [True, False])
def test_lists_that_are_gone_are_not_mistaken_for_new_ones(versions):
    """Python gives the place of a list that is gone to the next one."""
    index = Index()
    lottery = Lottery(index)
    for n in range(200):
        index.put(n, replace(KEY, project=f"p{n}", submit_pool=f"pool{n:04}"), 1, now=0.0)
    views = Views(index)
    for first in range(150):
        request = replace(REQUEST, submit_pools=pools(20, first), pools_version=first if versions else None)
        view = views.view_of(request)
        found = {
            queue.tq_id
            for group in lottery.find_ballot(view).groups
            for queue in group.queues(view.mask(group, numbers_of(request)))
        }
        assert found == {n for n in range(200) if first <= n < first + 20}


@pytest.mark.slow
def test_views_are_dropped_when_not_used():
    views = Views(Index())
    first = views.view_of(REQUEST)
    for n in range(3 * _VIEWS_AT_MOST):
        views.view_of(replace(REQUEST, site=f"S{n}"))
        if n % 100 == 0:
            assert views.view_of(REQUEST) is first
    assert len(views._young.keys() | views._old.keys()) <= 2 * _VIEWS_AT_MOST
    for n in range(3 * _VIEWS_AT_MOST):
        views.view_of(replace(REQUEST, site=f"T{n}"))
    assert views.view_of(REQUEST) is not first
