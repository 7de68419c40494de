"""Which pilots start within a minute, and how many jobs they take."""

from __future__ import annotations

import pytest

from lodesman.decide.explain.turns import PilotCounts, QueueSlots, Size, vo_slots
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.wire.nodes import QueueId

SITES = '[site.S]\nVO = ["lab"]\n[site.S.ce.c.queue.q]\nNumberOfProcessors = 4\nMemory = 8000\n[site.S.ce.c.queue.r]\n'
Q, R = QueueId("S", "c", "q"), QueueId("S", "c", "r")


def key(cores=1, memory_mb=0):
    return TaskQueueKey(owner="a", group="g", vo="lab", norm_cpu_seconds=1, cores=cores, memory_mb=memory_mb)


@pytest.mark.parametrize(("slots", "others", "own", "free", "starting"), [
    (6, 0, PilotCounts(2, 3), 4, 3),
    (6, 0, PilotCounts(2, 9), 4, 4),
    (6, 3, PilotCounts(2, 9), 1, 1),
    (6, 0, PilotCounts(6, 6), 0, 0),  # they wait behind full slots
    (6, 0, PilotCounts(6, 6, quick=2), 0, 2),  # but others like them joined soon
    (None, 0, PilotCounts(6, 6), None, 0),
    (6, None, PilotCounts(0, 6), None, 0),  # the load is not known
    (None, 0, PilotCounts(6, 6, quick=None), None, 6),
])  # fmt: skip
def test_pilots_that_find_a_slot_start_within_a_minute(slots, others, own, free, starting):
    found = QueueSlots(slots, others, own)
    assert (found.free, found.starting()) == (free, starting)


def test_the_director_may_send_as_many_as_start_and_as_it_left_room_for():
    config = Policy(load_resources([("s.toml", SITES)])).vo_config("lab")
    rooms = {
        "S/c/q": {"room": 9, "left": 5, "slots": 6, "others": 0},
        "S/c/r": {"room": 9, "slots": 2, "others": 2},
    }
    found = vo_slots(config, rooms, {Q: PilotCounts(1, 2)}, most=100.0)
    assert found.sendable == {(3, Size(4, 8_000)): 1 << config.table.bit(Q)}
    every = config.table.open_to_vo
    assert found.count(every) == (8, 5)
    assert [found.starts(one, every) for one in (key(), key(3), key(5), key(1, 4_000))] == [12, 3, 0, 6]
    assert found.starts(key(), 1 << config.table.bit(R)) == 0
    few = vo_slots(config, rooms, {Q: PilotCounts(1, 2)}, most=1.2)
    assert few.starts(key(3), every) == 1, "no more than an iteration asks for"
    assert vo_slots(config, {}, {}, most=9.0).count(every) == (0, 0)
