"""SubmitPools as masks: the task queues that a queue serves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.places import ServedTaskQueues
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId
from lodesman.server.writer.pool_map import PoolMap

A, B, C = (QueueId(site, "ce", "q") for site in "ABC")


def key_of(pool: str, owner: str = "ann") -> TaskQueueKey:
    return TaskQueueKey(owner=owner, group="g", vo="lab", submit_pool=pool)


def members(mask: int) -> set[int]:
    return {bit for bit in range(mask.bit_length()) if mask >> bit & 1}


def test_a_queue_that_no_pool_speaks_of_serves_none(pools):
    found = pools({A: 0}, {"one": [A]})
    table = KeyTable({1: key_of("one"), 2: key_of("")})
    assert ServedTaskQueues(table, found).served_at(B) == 1 << table.bit(2)


def test_without_pools_only_task_queues_without_one_are_served():
    table = KeyTable({1: key_of("one"), 2: key_of(""), 3: key_of("two")})
    assert ServedTaskQueues(table, PoolMap()).served_at(A) == 1 << table.bit(2)
    assert ServedTaskQueues(KeyTable(), PoolMap()).served_at(A) == 0


def test_a_dropped_task_queue_is_served_by_no_pilot(pools):
    table = KeyTable({1: key_of("one"), 2: key_of("one", owner="bob")})
    table.drop(1)
    found = pools({A: 0}, {"one": [A]})
    assert ServedTaskQueues(table, found).served_at(A) == table.full == 1 << table.bit(2)


NAMES = ["p1", "p2", "p3", "gone", ""]
IDS = [QueueId(f"S{k}", "ce", "q") for k in range(20)]


@given(
    st.lists(st.integers(0, 60), min_size=20, max_size=20, unique=True),
    st.fixed_dictionaries({name: st.lists(st.sampled_from(IDS[:17]), unique=True) for name in NAMES[:3]}),
    st.lists(st.sampled_from(NAMES), max_size=30),
    st.sets(st.integers(0, 29)),
)
def test_rows_and_columns_are_one_table(pools, numbers, queues, asked, dropped):
    found = pools(dict(zip(IDS, numbers, strict=True)), queues)
    table = KeyTable({k: key_of(pool, owner=f"o{k}") for k, pool in enumerate(asked)})
    for tq_id in dropped:
        if tq_id in table._bits:
            table.drop(tq_id)
    by_queue = ServedTaskQueues(table, found)
    for one in IDS:
        wanted = {
            tq_id for tq_id, pool in enumerate(asked)
            if tq_id in table._bits and (not pool or one in queues.get(pool, ()))
        }  # fmt: skip
        assert {table.tq_id(bit) for bit in members(by_queue.served_at(one))} == wanted
