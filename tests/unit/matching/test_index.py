"""The index: slots that stay, jobs that come and go, limits, and when entries are dropped."""

from dataclasses import replace

import pytest

from lodesman.decide.matching.index import _IDLE_AT_LEAST, Index
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1", norm_cpu_seconds=0)
REQUEST = ResourceRequest(vo="vo1")


def key(n, **changes):
    return replace(KEY, project=f"p{n}", **changes)


@pytest.fixture
def index():
    return Index()


def filled(index, count, waiting=1):
    for n in range(count):
        index.put(n, key(n), waiting, now=0.0)
    return index


def test_what_was_put_is_found(index):
    slot = index.put(7, key(1), 3, now=0.0)
    assert slot == 0
    assert index.has(7)
    assert not index.has(8)
    assert len(index) == 1
    assert index.find(key(1)) == 7
    assert index.find(key(2)) is None
    assert index.key(7) == key(1)
    assert index.waiting(7) == 3
    assert index.waiting(8) == 0
    assert list(index.queues()) == [(7, key(1), 3)]


def test_slots_are_numbered_in_each_group(index):
    assert [index.put(n, key(n), 1, now=0.0) for n in range(3)] == [0, 1, 2]
    assert index.put(3, key(3, group="chem"), 1, now=0.0) == 0
    assert index.put(4, key(4, vo="vo2"), 1, now=0.0) == 0


def test_neither_an_id_nor_a_key_comes_twice(index):
    index.put(1, key(1), 1, now=0.0)
    with pytest.raises(ValueError, match="already"):
        index.put(1, key(2), 1, now=0.0)
    with pytest.raises(ValueError, match="already"):
        index.put(2, key(1), 1, now=0.0)
    assert len(index) == 1


def test_a_key_with_duplicates_is_refused(index):
    with pytest.raises(ValueError, match="duplicates"):
        index.put(1, key(1, sites=("A", "A")), 1, now=0.0)
    assert not index.has(1)


def test_less_than_no_jobs_is_refused(index):
    with pytest.raises(ValueError, match="-1"):
        index.put(1, key(1), -1, now=0.0)


# --- jobs come and go ---------------------------------------------------------------------------------


def test_take_and_add_are_inverse(index):
    index.put(1, key(1), 2, now=0.0)
    index.take(1, now=1.0)
    index.take(1, now=1.0)
    assert index.waiting(1) == 0
    assert not index.is_open(1)
    index.add_waiting(1, 1, now=1.0)
    index.add_waiting(1, 1, now=1.0)
    assert index.waiting(1) == 2
    assert index.is_open(1)


def test_more_than_waits_cannot_be_taken(index):
    index.put(1, key(1), 2, now=0.0)
    with pytest.raises(ValueError, match="cannot take 3"):
        index.take(1, 3, now=0.0)
    with pytest.raises(ValueError, match="cannot take -1"):
        index.take(1, -1, now=0.0)
    with pytest.raises(ValueError, match="cannot add"):
        index.add_waiting(1, -1, now=0.0)
    assert index.waiting(1) == 2


def test_nothing_taken_or_added_changes_nothing(index):
    index.put(1, key(1), 0, now=0.0)
    index.take(1, 0, now=5.0)
    index.add_waiting(1, 0, now=5.0)
    assert index.waiting(1) == 0
    assert not index.is_open(1)
    assert index.forget_idle(300.5) == [1]


def test_an_unknown_task_queue_is_a_mistake(index):
    for use in (index.key, index.remove, index.block):
        with pytest.raises(KeyError):
            use(1)
    with pytest.raises(KeyError):
        index.take(1, now=0.0)
    with pytest.raises(KeyError):
        index.add_waiting(1, 1, now=0.0)


# --- slots --------------------------------------------------------------------------------------------


def test_an_emptied_task_queue_keeps_its_slot_for_300_seconds(index):
    filled(index, 2)
    index.take(0, now=100.0)
    assert index.forget_idle(400.0) == []
    assert index.has(0)
    assert index.put(5, key(5), 1, now=400.0) == 2
    assert index.forget_idle(400.1) == [0]
    assert not index.has(0)
    assert index.find(key(0)) is None
    assert index.put(6, key(6), 1, now=401.0) == 0


def test_a_task_queue_that_fills_again_is_not_dropped(index):
    filled(index, 1)
    index.take(0, now=0.0)
    index.add_waiting(0, 1, now=250.0)
    assert index.forget_idle(1000.0) == []
    index.take(0, now=1000.0)
    assert index.forget_idle(1299.0) == []
    assert index.forget_idle(1301.0) == [0]


def test_a_task_queue_put_without_jobs_is_idle_at_once(index):
    index.put(1, key(1), 0, now=10.0)
    assert index.forget_idle(310.0) == []
    assert index.forget_idle(310.1) == [1]


def test_a_removed_task_queue_frees_its_slot_at_once(index):
    filled(index, 3)
    index.remove(1)
    assert not index.has(1)
    assert [tq_id for tq_id, _, _ in index.queues()] == [0, 2]
    assert index.put(9, key(9), 1, now=0.0) == 1
    assert index.put(10, key(10), 1, now=0.0) == 3


def test_many_idle_task_queues_are_dropped_early_the_longest_idle_first(index):
    count = _IDLE_AT_LEAST + 10
    filled(index, count)
    for n in range(count):
        index.take(n, now=float(n) / 1000)
    assert index.forget_idle(0.5) == []
    assert index.forget_idle(10.0) == list(range(10))
    assert index.forget_idle(10.0) == []
    assert len(index) == _IDLE_AT_LEAST


def test_a_group_without_task_queues_vanishes_and_its_number_is_used_again(index):
    index.put(1, key(1), 1, now=0.0)
    index.put(2, key(2, group="chem"), 1, now=0.0)
    before = index.version
    index.remove(1)
    assert index.version > before
    assert [group.name for group in index.groups()] == ["chem"]
    index.put(3, key(3, group="phys"), 1, now=0.0)
    assert sorted(group.number for group in index.groups()) == [0, 1]
    assert index.group_numbers() == 2


def test_the_groups_that_a_resource_serves(index):
    for n, (vo, group) in enumerate([("vo1", "bio"), ("vo1", "chem"), ("vo2", "bio")]):
        index.put(n, key(n, vo=vo, group=group), 1, now=0.0)

    def names(groups):
        return [(group.vo, group.name) for group in groups]

    assert names(index.groups_for("vo1", None)) == [("vo1", "bio"), ("vo1", "chem")]
    assert names(index.groups_for("vo2", ("bio", "bio", "chem"))) == [("vo2", "bio")]
    assert index.groups_for("vo3", None) == []


# --- limits -------------------------------------------------------------------------------------------


def test_each_limit_blocks_on_its_own(index):
    index.put(1, key(1), 1, now=0.0)
    index.block(1, "site cap")
    index.block(1, "quota")
    index.block(1, "quota")
    assert not index.is_open(1)
    index.unblock(1, "quota")
    assert not index.is_open(1)
    index.unblock(1, "site cap")
    assert index.is_open(1)
    index.unblock(1, "site cap")
    assert index.is_open(1)


def test_a_block_outlasts_emptiness_and_the_other_way_round(index):
    index.put(1, key(1), 1, now=0.0)
    index.block(1)
    index.take(1, now=0.0)
    index.unblock(1)
    assert not index.is_open(1)
    index.block(1)
    index.add_waiting(1, 1, now=0.0)
    assert not index.is_open(1)
    index.unblock(1)
    assert index.is_open(1)


# --- sums ---------------------------------------------------------------------------------------------
