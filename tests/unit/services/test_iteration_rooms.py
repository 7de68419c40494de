"""What a stored iteration of the director says: rooms by masks, task queues that no pool took, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.director import QueueId
from lodesman.resources import load_resources
from lodesman.services.policy import Policy
from lodesman.services.why.picture import Iteration, Picture, fresh_seconds
from lodesman.services.why.step import not_lately
from lodesman.store.engine import open_reader, open_writer

QUEUES = 6
SITES = "".join(
    f'[site.S{n}]\nVO = ["lab"]\n[site.S{n}.ce.c.queue.q]\nCPUTime = 100\n' for n in range(QUEUES)
)
FIELDS = ["tq_id", "asked", "cap"]


@pytest.fixture(scope="module")
def world():
    return Policy(load_resources([("s.toml", SITES)])).world("lab")


def queue(number):
    return (f"S{number}", "c", "q")


def record(rooms=None, rows=(), no_pool=()):
    return {
        "row_fields": FIELDS, "rows": [list(row) for row in rows], "asks": [], "rooms": rooms or {},
        "no_pool": [{"tq_id": n, "asked": 1, "tries": [["Nowhere", "unknown"]]} for n in no_pool],
    }  # fmt: skip


bites = st.sampled_from([[], [["breaker", 5, 0, 0, "it failed"]], [["max-total", 5, 0, 0, "full"]]])
rooms = st.dictionaries(
    st.integers(0, QUEUES - 1), st.tuples(st.integers(0, 3), bites), max_size=QUEUES
)  # those that are left out the director did not look at


@given(rooms, st.integers(0, 2**QUEUES - 1))
def test_masks_tell_what_each_queue_tells(world, found, mask):
    told = {
        str(QueueId(*queue(n))): {"wanted": 1, "room": room, "clamps": clamps}
        for n, (room, clamps) in found.items()
    }
    iteration = Iteration(1, 5.0, record(told))
    masks = iteration.rooms(world)
    chosen = [n for n in range(QUEUES) if mask >> n & 1]
    assert masks.open == sum(1 << n for n, (room, _) in found.items() if room)
    assert masks.total(mask) == sum(found.get(n, (0, []))[0] for n in chosen)
    shut: dict[tuple[str, str], int] = {}
    for n in chosen:
        if not masks.open >> n & 1:
            gate = iteration.gate(queue(n))
            shut[gate] = shut.get(gate, 0) | 1 << n
    assert dict(masks.shut(mask)) == shut
    sizes = [one.bit_count() for _, one in masks.shut(mask)]
    assert sizes == sorted(sizes, reverse=True)
    assert iteration.rooms(world) is masks


def test_a_task_queue_that_no_pool_took_stays_so_until_pilots_are_asked_for_it_again():
    first = Iteration(1, 5.0, record(rows=[(1, 2, 2), (2, 2, 2), (3, 2, 2)], no_pool=[1, 2, 3]))
    second = Iteration(2, 6.0, record(rows=[(1, 0, 2), (2, 1, 2)]), before=first)
    assert [second.no_pool(n) for n in (1, 2, 3, None)] == [True, False, False, False]
    assert second.refusals(1) == [("Nowhere", "unknown")]
    assert second.refusals(2) == ()
    third = Iteration(3, 7.0, record(rows=[(1, 0, 2)]), before=second)
    assert third.no_pool(1)
    assert not Iteration(4, 8.0, record(rows=[(1, 1, 2)]), before=third).no_pool(1)


@pytest.mark.parametrize(
    ("polling", "fresh"), [(1.0, 60.0), (20.0, 60.0), (120.0, 360.0), (3_600.0, 10_800.0)]
)
def test_an_iteration_is_believed_for_as_long_as_some_may_be_missed(polling, fresh):
    assert fresh_seconds(polling) == fresh


def test_a_decision_that_is_old_is_none(tmp_path):
    writer = open_writer(tmp_path / "lode.db")
    picture = Picture(open_reader(tmp_path / "lode.db"), fresh_seconds=10.0)
    assert picture.decision(0.0) is None
    picture.iteration = Iteration(1, 100.0, record())
    assert picture.decision(110.0) is picture.iteration
    assert picture.decision(99.0) is picture.iteration  # a clock that was set back
    assert picture.decision(110.1) is None
    writer.close()


@pytest.mark.parametrize(("age", "text"), [(None, "yet"), (61.0, "for 61 s"), (36_000.0, "for 10.0 h")])
def test_since_when_nothing_was_decided(age, text):
    assert not_lately(age) == text
