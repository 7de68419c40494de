"""What a dry run of the director is given: loads of the last iteration, pools of a configuration, task queues."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.matching.policy import Policy
from lodesman.decide.rehearse.iteration import expected
from lodesman.decide.rehearse.resources import cut
from lodesman.decide.resources import load_resources
from lodesman.server.loops.left_out import StepPass
from lodesman.server.loops.refresh import RefreshInput
from lodesman.server.reads.plan_resources import ConfigPools, RecordedLoads
from lodesman.server.store.submit_pools import PassRequests, PassRow, PoolRow
from lodesman.wire.nodes import QueueId
from lodesman.wire.plans import Cut

HERE, THERE = QueueId("A", "c", "q"), QueueId("B", "c", "q")
NOW = 1_000.0


def recorded(told_by, *, waiting=3, running=4):
    return {str(HERE): {"load": [waiting, running, 990.0, told_by]}}


def backend(name, rooms):
    record = {
        "row_fields": ["tq_id", "asked", "cap"], "rows": [], "asks": [], "no_pool": [], "plan": {}, "rooms": rooms,
        "load_fields": ["waiting", "running", "observed_at", "told_by"],
    }  # fmt: skip
    return RecordedLoads(name=name, last=RecordedIteration(1, 995.0, record), now=NOW)


def numbers(load):
    return load.waiting, load.running, load.observed_at


def test_a_batch_system_keeps_its_reported_load():
    batch = backend("slurm", recorded("slurm"))
    assert numbers(batch.load(HERE)) == (3, 4, 990.0)
    assert (batch.empty, batch.observed) == (set(), [990.0])


def test_an_unreported_load_stays_unknown():
    batch = backend("slurm", recorded("slurm", waiting=None))
    assert numbers(batch.load(HERE)) == (None, 4, 990.0)
    assert (batch.empty, batch.observed) == (set(), [])


def test_an_unknown_queue_is_taken_as_empty():
    batch = backend("slurm", recorded("slurm"))
    assert numbers(batch.load(THERE)) == (0, 0, NOW)
    assert batch.empty == {THERE}


@pytest.mark.parametrize("told_by", ["no backend", "local"])
def test_a_queue_that_moves_to_another_batch_system_has_no_load_there(told_by):
    batch = backend("slurm", recorded(told_by))
    assert numbers(batch.load(HERE)) == (0, 0, NOW)
    assert batch.empty == {HERE}


def test_a_queue_of_which_an_older_release_kept_no_load_is_unknown():
    batch = backend("slurm", {str(HERE): {}})
    assert numbers(batch.load(HERE)) == (None, None, NOW)
    assert batch.empty == set()


def test_a_load_recorded_for_several_batch_systems_counts_once():
    told = [backend(name, recorded("local, slurm")).load(HERE) for name in ("local", "slurm")]
    assert [sum(numbers) for numbers in zip(*((one.waiting, one.running) for one in told), strict=True)] == [
        3,
        4,
    ]
    assert {one.observed_at for one in told} == {990.0}


def test_pools_of_a_configuration():
    policy = Policy(load_resources([("a.toml", "[site.A.ce.c.queue.q]\n[site.B.ce.c.queue.q]\n")]))
    seen = RefreshInput(
        last=PassRow(), state=PassRequests(0, 0, 0), queues=[],
        pools=[PoolRow("p", "lab", '{"Site": ["string", "==", "", ["B"]]}', 0, 0.0, None)],
    )  # fmt: skip
    pools = ConfigPools(policy, seen, {}, 0.0, StepPass("x", {}))
    assert (pools.mask("p"), pools.mask("q")) == (2, None)
    assert (pools.bit(HERE), pools.bit(THERE), pools.bit(("C", "c", "q"))) == (0, 1, None)


# --- on average -------------------------------------------------------------------------------------------


def poisson(mean, rng):
    """Slowly: by exponential gaps."""
    count, left = 0, mean
    while (left := left - rng.expovariate(1.0)) > 0.0:
        count += 1
    return count


@pytest.mark.parametrize(("mean", "cap"), [(0.3, 1), (2.0, 2), (5.0, 3), (20.0, 22), (4.0, 40)])
def test_what_is_asked_on_average(mean, cap):
    rng = random.Random(11)
    drawn = [min(poisson(mean, rng), cap) for _ in range(4_000)]
    assert expected(mean, cap) == pytest.approx(sum(drawn) / len(drawn), rel=0.05, abs=0.05)


@given(st.floats(0.0, 5_000.0), st.integers(-3, 6_000))
def test_the_average_is_neither_more_than_the_mean_nor_than_the_cap(mean, cap):
    found = expected(mean, cap)
    assert 0.0 <= found <= min(mean, max(0, cap)) + 1e-6
    assert expected(mean, cap + 1) >= found - 1e-6


def test_lists_are_cut():
    assert cut(iter("abc"), 2) == Cut(count=3, rows=["a", "b"], more=1)
    assert cut([], 2) == Cut(count=0, rows=[], more=0)
