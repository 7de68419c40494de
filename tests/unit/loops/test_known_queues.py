"""Task queues that the director keeps between iterations: always what the database says."""

from __future__ import annotations

import random

import pytest

from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.criteria import explain
from lodesman.server.loops.snapshot import KnownQueues
from lodesman.server.store.task_queues import queues_with_jobs
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit

SITES = ("A", "B", "C")


@pytest.fixture
def submit(base, make_key):
    def put(count, **key):
        one = make_key(**key)
        cohort = PreparedCohort(key=one, template="{}", expand=False, max_attempts=1, runs=((0, count),))
        base.do(Submit(base.live, PreparedSubmission(
            owner=one.owner, group=one.group, vo=one.vo, name="", form="json", record="", members=None,
            count=count, cohorts=(cohort,),
        )))  # fmt: skip

    return put


def empty(base, owner):
    """Its task queues have no waiting job any more."""
    with base.writer:
        base.writer.execute(
            "UPDATE task_queue_count SET waiting = 0 WHERE tq_id IN (SELECT id FROM task_queue WHERE key LIKE ?)",
            (f'%"owner":"{owner}"%',),
        )


def test_nothing_waits(base):
    known = KnownQueues(base.db)
    assert (known.read(), known.table.full) == ([], 0)


def test_counts_are_read_anew_and_keys_once(base, submit):
    known = KnownQueues(base.db)
    submit(3)
    ((tq_id, key, waiting),) = known.read()
    assert waiting == 3
    assert known.table.bit(tq_id) == 0
    submit(4)
    ((same, again, more),) = known.read()
    assert (same, more) == (tq_id, 7)
    assert again is key


def test_all_who_keep_a_task_queue_share_its_key(base, submit):
    """The director and the snapshot: of very many task queues a copy for each would be most of the memory."""
    director, snapshot = KnownQueues(base.db), KnownQueues(base.db)
    submit(3, sites=SITES)
    (of_one,), (of_other,) = director.read(), snapshot.read()
    assert of_one[1] is of_other[1]


def test_the_same_rows_are_returned_until_something_changes(base, submit):
    known = KnownQueues(base.db)
    submit(3)
    rows = known.read()
    assert known.read() is rows
    submit(1)
    assert known.read() is not rows


def test_a_task_queue_that_was_empty_comes_back(base, submit):
    known = KnownQueues(base.db)
    submit(1, owner="ann")
    submit(1, owner="bob")
    known.read()
    empty(base, "ann")
    ((_, key, _),) = known.read()
    assert key.owner == "bob"
    assert known.table.full.bit_count() == 1
    submit(5, owner="ann")
    assert [one.owner for _, one, _ in known.read()] == ["ann", "bob"]
    assert known.table.full.bit_count() == 2


def test_after_any_changes_it_is_what_the_database_says(base, submit):
    rng = random.Random(4)
    known = KnownQueues(base.db)
    here = ResourceRequest(vo="lab", site="A", norm_cpu_seconds=1_000)
    for _ in range(12):
        for _ in range(rng.randrange(6)):
            some = tuple(sorted(rng.sample(SITES, rng.randrange(3))))
            submit(1, owner=f"o{rng.randrange(5)}", sites=some, norm_cpu_seconds=rng.choice([100, 5_000]))
        empty(base, f"o{rng.randrange(5)}")
        found = known.read()
        assert sorted(found, key=lambda one: one[0]) == found
        assert found == sorted(queues_with_jobs(base.db), key=lambda one: one[0])
        mask = known.table.narrow_served(known.table.full, here)
        assert [bool(mask >> known.table.bit(tq_id) & 1) for tq_id, _, _ in found] == [
            not explain(key, here) for _, key, _ in found
        ]
