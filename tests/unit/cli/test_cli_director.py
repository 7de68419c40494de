"""`lode director plan`: several policies side by side, and all of their arithmetic."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from tests.unit.director.conftest import make_demand, make_pilot, make_queue

from lodesman.decide.director.iteration import DirectorInput, decide
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.queues import QueueCaps
from lodesman.decide.director.record import replay, to_record
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.director import DirectorRecord
from lodesman.wire.plans import DirectorPlans, PolicyPlan
from lodesman.wire.vocabulary import TargetPolicy

NOW = 1_000_000.0
PATH = "/v1/plan/director"


def record_of(policy):
    demands = [
        make_demand(7, waiting_jobs=30, sites=("A",)),
        make_demand(8, waiting_jobs=10, weight=3.0, sites=("A",)),
    ]
    seen = DirectorInput(
        demands=demands,
        table=KeyTable({one.tq_id: one.key for one in demands}),
        serving=PoolMap(),
        pilots=[make_pilot(k, tq_id=7) for k in range(6)],
        queues=[
            make_queue("A", caps=QueueCaps(max_waiting=18, max_total=None)),
            make_queue("B"),
        ],
        pools={"Local": PoolState(name="Local")},
        suspects={},
        breakers={},
        buckets={},
    )
    options = read_options({"TargetPolicy": policy})
    return to_record(decide(seen, options=options, now=NOW, seed=1))


def plan(policy, record, placed=None):
    asked = sum(row[-2] for row in record["rows"])
    whole = msgspec.convert(msgspec.to_builtins(record), DirectorRecord)
    return PolicyPlan(policy=policy, asked=asked, placed=placed, record=whole)


@pytest.fixture
def now(server):
    """Two policies of now."""
    found = {policy: record_of(policy) for policy in (TargetPolicy.SEED, TargetPolicy.GAP)}
    plans = [
        plan(policy, record, sum(count for *_, count in record["placements"]))
        for policy, record in found.items()
    ]
    answer = DirectorPlans(
        iteration=None, at=NOW, task_queues=3, queues=2, plans=plans, assumed=["the next one is another"]
    )
    server.on("POST", PATH, msgspec.to_builtins(answer))
    return server


def test_policies_stand_side_by_side(at, now):
    result = at("director", "plan", "--policy", "seed", "--policy", "gap")
    assert now.asked[0].json == {"policies": ["seed", "gap"], "limit": 30}
    out = result.out.splitlines()
    assert out[:12] == [
        "One of now: nothing is stored or submitted.",
        "seed: target 40, 50 pilots asked, 18 placed",
        "  target = pilotsPerIteration = 40",
        "  pilotsPerPriority = 40 / prioritySum 4 = 10",
        "  pilotsPerJob = 40 / waitingJobs 40 = 1",
        "gap: target 12, 12 pilots asked, 12 placed",
        "  missing = 40 waiting jobs - 6 usable pilots waiting or idle = 34",
        "  part = 34 / gapIterations 3, rounded up = 12",
        "  target = 12 from minTarget 4 to maxTarget 1000, and at most the missing 34 = 12",
        "  pilotsPerPriority = 12 / prioritySum 4 = 3",
        "  pilotsPerJob = 12 / waitingJobs 40 = 0.3",
        "",
    ]
    titles = "TQ WAITING WEIGHT CAP SEED: MEAN DRAWN ASKED PLACED GAP: MEAN DRAWN ASKED PLACED"
    assert [" ".join(line.split()) for line in out[12:]] == [
        titles,
        "7 30 1 34 6000.00 5902 34 15 1800.00 1746 8 8",
        "8 10 3 16 6000.00 6063 16 3 1800.00 1834 4 4",
        "",
        "QUEUE FREE CAPACITY SEED GAP LIMITED BY",
        "A/ce/q 18 18 12 MaxWaitingJobs 18 - 0 waiting",
        "B/ce/q 40 0 0 -",
    ]
    assert result.err.splitlines() == [
        "lode: 1 more task queue: --limit.",
        "lode: Note: the next one is another.",
    ]


def test_all_the_arithmetic_of_a_task_queue(at, now):
    out = at("director", "plan", "7", "8").out
    assert now.asked[0].json == {"task_queues": [7, 8], "limit": 30}
    heads = [line for line in out.splitlines() if line.startswith("Task queue")]
    assert heads == [
        "Task queue 7 by seed: pilots: 15 of 34 asked were placed",
        "Task queue 7 by gap: pilots: 8 of 8 asked were placed",
        "Task queue 8 by seed: pilots: 3 of 16 asked were placed",
        "Task queue 8 by gap: pilots: 4 of 4 asked were placed",
    ]
    for step in (
        "mean = (10 x 1 + 1 x 30) x 150 = 6000",
        "usable-supply: 5902 -> 34 (40 allowed for 30 jobs - 6 usable pilots waiting or idle)",
        "mean = (3 x 1 + 0.3 x 30) x 150 = 1800",
        "pilots-per-iteration: 34 -> 8 (target of gap 12 for 50 asked by all task queues)",
    ):
        assert f"\n  {step}\n" in out


def test_what_a_stored_iteration_does_not_place(at, server):
    record = record_of(TargetPolicy.SEED)
    answer = DirectorPlans(
        iteration=12, at=time.time() - 5, task_queues=2, queues=2,
        plans=[plan("seed", record, 6), plan("ratio", replay(record, TargetPolicy.RATIO))], assumed=[],
    )  # fmt: skip
    server.on("POST", PATH, msgspec.to_builtins(answer))
    words = ("director", "plan", "--iteration", "12", "--policy", "ratio")
    result = at(*words)
    assert server.asked[0].json == {"policies": ["ratio"], "iteration": 12, "limit": 30}
    assert result.out.startswith("Iteration 12, decided 5 s ago: nothing is stored or submitted.")
    assert at(*words, "--json").json == json.loads(msgspec.json.encode(answer))
    assert "\nratio: target 0, 0 pilots asked, not placed\n" in result.out
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "7 30 1 34 6000.00 5902 34 15 0.00 0 0 -" in rows
    assert "A/ce/q 18 18 - MaxWaitingJobs 18 - 0 waiting" in rows
    assert "\nTask queue 7 by ratio: pilots: not placed\n  pilotsPerPriority" in at(*words, "7").out


def test_an_unknown_policy_is_wrong_usage(at, server):
    assert (at("director", "plan", "--policy", "best").code, server.asked) == (2, [])
