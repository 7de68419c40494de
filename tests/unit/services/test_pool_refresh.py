"""A changed configuration: which queues serve which SubmitPool, evaluated anew and swapped as a whole."""

from __future__ import annotations

import json

import pytest

from lodesman.jobs import JobSpec
from lodesman.resources import load_resources
from lodesman.services.policy import Policy
from lodesman.services.refresh import RefreshPools, pool_queues
from lodesman.services.sessions import load_pools
from lodesman.services.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.submission import Draft, optimize

SHORT, LONG = ("North", "cn", "short"), ("South", "cs", "long")


@pytest.fixture
def pool(base, policy, make_key):
    """A stored pool of a job that wants a queue with two slots: only North's."""
    spec = JobSpec(executable="x", requirements={"Slots": 2})
    world = policy.world("lab")
    draft = optimize(Draft(spec=spec, owner="ann", group="physics", vo="lab"), world)
    queues = tuple((q.site, q.ce, q.queue) for q in policy.queues_of_mask("lab", draft.pool_mask))
    assert draft.key is not None
    cohort = PreparedCohort(key=draft.key, template="{}", expand=False, max_attempts=1, runs=((0, 1),))
    new = NewPool(id=draft.submit_pool, requirements=draft.requirements, vo="lab", queues=queues)
    base.do(Submit(base.live, PreparedSubmission(
        owner="ann", group="physics", vo="lab", name="", form="json", record="", members=None, count=1,
        cohorts=(cohort,), pools=(new,),
    )))  # fmt: skip
    return draft.submit_pool


def test_as_long_as_nothing_changed_nothing_changes(base, policy, pool):
    found = pool_queues(base.db, policy)
    assert found == {pool: [SHORT]}
    assert base.do(RefreshPools(base.live, found)) == 0


def test_a_queue_that_fits_now_serves_the_pool_in_memory_and_on_disk(base, pool):
    text = '[site.South]\nVO = ["lab"]\n[site.South.ce.cs.queue.long]\nSlots = 5\n'
    changed = Policy(load_resources([("s.toml", text)]))
    found = pool_queues(base.db, changed)
    assert found == {pool: [LONG]}
    assert base.do(RefreshPools(base.live, found)) == 1
    for pools in (base.live.pools, load_pools(base.db)):
        assert (pools.of_queue(SHORT), pools.of_queue(LONG)) == ((), (pool,))
    assert base.do(RefreshPools(base.live, found)) == 0


def test_requirements_that_the_declared_types_cannot_read_any_more_have_no_queue(base, policy, pool):
    with base.writer:
        unreadable = json.dumps({"Slots": ["number", ["many"]]})
        base.writer.execute("UPDATE submit_pool SET requirements = ?", (unreadable,))
    assert pool_queues(base.db, policy) == {pool: []}
    assert base.do(RefreshPools(base.live, {pool: []})) == 1
    assert load_pools(base.db).of_queue(SHORT) == ()


def test_a_refresh_moves_the_time_of_all_pools(base, policy, pool):
    base.clock += 900
    base.do(RefreshPools(base.live, pool_queues(base.db, policy)))
    assert [row[0] for row in base.db.execute("SELECT refreshed_at FROM submit_pool")] == [base.clock]
