"""POST /v1/plan/resources: what the director would do next, before and after; held against what it does."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.loops.test_left_out import fails

from lodesman.decide.director.limits import Breaker, TokenBucket
from lodesman.decide.director.orders import PoolState
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops import direct, refresh
from lodesman.server.reads import plan_resources
from lodesman.server.reads.rehearsal import SEED
from lodesman.wire.nodes import NodePath, QueueId
from lodesman.wire.vocabulary import BreakerState

HEAD = '[group.physics]\nvo = "lab"\n[group.bio]\nvo = "lab"\n'
NORTH = '[site.North]\nVO = ["lab"]\n[site.North.ce.cn.queue.short]\nCPUTime = 1000\nPlatform = "el9"\n'
SOUTH = '[site.South]\nVO = ["lab"]\n[site.South.ce.cs.queue.long]\nCPUTime = 100000\nPlatform = "el8"\n'
EAST = '[site.East]\nVO = ["lab"]\n[site.East.ce.ce.queue.q]\nCPUTime = 5000000\nPlatform = "el9"\n'
BASE = HEAD + NORTH + SOUTH


class Scripted:
    """A batch system that is as full as the test says, queue by queue; counts how often it is asked."""

    queues = ()

    def __init__(self, house) -> None:
        self._house = house
        self.loads: dict[str, tuple[int | None, int | None]] = {}
        self.age = 5.0
        self.asked = 0
        self.backend = self

    def load(self, queue):
        self.asked += 1
        waiting, running = self.loads.get("/".join(queue), (0, 0))
        return BatchLoad(
            waiting=waiting, running=running, others_waiting=0, others_running=0,
            observed_at=self._house.now - self.age,
        )  # fmt: skip


class Installed:
    """A house whose director runs, over two queues."""

    def __init__(self, house) -> None:
        self.house = house
        self.batch = Scripted(house)
        self.use(BASE)
        self.director = house.director(self.batch)
        house.side.director = self.director

    def use(self, text):
        self.policy = self.house.policy(load_resources([("base.toml", text)]))
        self.house.core.policy = self.house.side.policy = self.policy

    def tick(self):
        self.director.policy = self.policy
        return self.director.tick(self.house.now)

    def plan(self, text, limit=100):
        body = {"files": [{"name": "new.toml", "text": text}], "limit": limit}
        answer = self.house.call("POST", "/v1/plan/resources", body, token="admin")
        assert answer.status == 200, answer.body
        return answer.json["director"]


@pytest.fixture
def there(house):
    return Installed(house)


def differences(found):
    """What differs between before and after."""
    rows = [found["pilots"], *found["groups"]["rows"], *found["limits"]]
    pairs = [value for row in rows for value in row.values() if isinstance(value, dict) and "before" in value]
    lists = [found[name]["count"] for name in ("queues", "only_after", "only_before")]
    return [pair for pair in pairs if pair["before"] != pair["after"]], lists


def limits(found):
    return {row["limit"]: row for row in found["limits"]}


def test_without_a_director_there_are_no_limits(house):
    answer = house.call(
        "POST", "/v1/plan/resources", {"files": [{"name": "a.toml", "text": BASE}]}, token="admin"
    )
    assert answer.json["director"] is None


loads = st.tuples(st.one_of(st.none(), st.integers(0, 12)), st.one_of(st.none(), st.integers(0, 12)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["North/cn/short", "South/cs/long"]), loads),
    st.lists(st.integers(1, 60), min_size=1, max_size=3),
    st.permutations([HEAD, NORTH, SOUTH]),
)
def test_planning_the_same_again_changes_nothing_and_stores_nothing(there, found, sizes, parts):
    house, batch = there.house, there.batch
    batch.loads = found
    for number, size in enumerate(sizes):
        house.submitted({"Parameters": size, "CPUTime": 100 + number}, token=("ann", "bob")[number % 2])
    there.director.buckets = {}
    there.tick()
    house.now += 30.0
    changes, asked = house.core.journal.commits, batch.asked
    kept = (dict(there.director.breakers), dict(there.director.buckets), there.director.vos)
    told = there.plan("".join(parts))
    assert differences(told) == ([], [0, 0, 0])
    assert told["pilots"]["asked"]["after"] >= told["pilots"]["placed"]["after"]
    # Nothing is stored, and no batch system is asked.
    assert (house.core.journal.commits, batch.asked) == (changes, asked)
    assert (there.director.breakers, there.director.buckets, there.director.vos) == kept
    assert there.plan("".join(parts)) == told


def test_it_predicts_the_decision_of_the_director(there):
    house = there.house
    house.submitted({"Parameters": 30}, token="ann")
    house.submitted({"Parameters": 20, "CPUTime": 50_000}, token="bob")
    there.batch.loads = {"North/cn/short": (4, 3), "South/cs/long": (9, 0)}
    there.tick()
    there.director.buckets = {}
    told = there.plan(BASE)
    there.director.rng = cast("Any", SimpleNamespace(getrandbits=lambda _: SEED))
    house.now += 1.0
    # The iteration sorts its queues as they are written; North comes first here, too.
    placed = there.tick()
    assert told["pilots"]["placed"]["after"] == placed > 0
    record = house.get("/v1/director", "admin")["plan"]
    assert sum(ask["asked"] for ask in record["asks"]) == told["pilots"]["asked"]["before"]


def test_a_new_queue_is_assumed_empty_with_a_notice(there):
    there.batch.loads = {"North/cn/short": (10, 0), "South/cs/long": (10, 0)}
    there.house.submitted({"Parameters": 30, "Platform": "el9"})
    there.tick()
    there.house.now += 20.0
    told = there.plan(BASE + EAST)
    assert (told["pilots"]["placed"]["before"], told["pilots"]["placed"]["after"]) == (0, 10)
    assert told["queues"]["rows"] == [
        {"site": "East", "ce": "ce", "queue": "q", "pilots": {"before": 0, "after": 10},
         "room": {"before": None, "after": 10}},
    ]  # fmt: skip
    (row,) = told["only_after"]["rows"]
    assert (row["jobs"], row["pilots"], row["queues"], row["owner"]) == (30, 10, ["East/ce/q"], "ann")
    assert told["only_after"]["pilots"] == 10
    assert told["only_before"]["count"] == 0
    assert told["assumed"] == [
        "loads are those of the director's last iteration, 20 s ago",
        "1 queue without a load yet taken for empty, for instance East/ce/q",
        "breakers, rates of CEs and submission pools are those of the running director",
    ]
    assert told["load_seconds_ago"] == 25.0
    bound = limits(told)["max-waiting"]
    assert (bound["count"], bound["of"]) == ({"before": 1, "after": 2}, "queues")
    assert bound["pilots"]["after"] > 0
    assert bound["example"]["text"].startswith("MaxWaitingJobs 10 - ")


def test_a_configuration_that_closes_a_queue(there):
    there.house.submitted({"Parameters": 30, "Platform": "el8"})
    there.tick()
    there.director.buckets = {}
    told = there.plan(BASE + "MaxTotalJobs = 0\n")
    (row,) = told["queues"]["rows"]
    assert (row["site"], row["pilots"]["after"], row["room"]["after"]) == ("South", 0, 0)
    assert row["pilots"]["before"] > 0
    # Nothing can run its jobs then, so they would be Held and nothing is asked for them.
    assert told["pilots"]["asked"]["after"] == told["pilots"]["expected"]["after"] == 0
    assert (told["only_before"]["count"], told["only_before"]["pilots"]) == (1, row["pilots"]["before"])
    told = there.plan(BASE + "MaxTotalJobs = 1\n")
    bound = limits(told)["max-total"]
    assert (bound["count"], bound["pilots"]["before"]) == ({"before": 0, "after": 1}, 0)
    assert bound["pilots"]["after"] > 0
    assert bound["example"] == {"name": "South/cs/long", "text": "MaxTotalJobs 1 - 0 waiting and running"}


def test_jobs_that_would_be_released_get_pilots(there):
    there.house.submit({"CPUTime": 10**6, "Parameters": 4}, token="bob", hold_if_impossible=True)
    there.tick()
    told = there.plan(BASE + EAST)
    assert told["pilots"]["asked"]["before"] == 0 < told["pilots"]["asked"]["after"]
    (group,) = told["groups"]["rows"]
    assert (group["group"], group["expected"]["before"]) == ("bio", 0.0)
    assert group["expected"]["after"] > 0.0
    assert told["only_after"]["count"] == 1


def test_an_unknown_load_stays_unknown(there):
    there.batch.loads = {"North/cn/short": (None, None), "South/cs/long": (None, 3)}
    there.house.submitted({"Parameters": 9})
    there.tick()
    told = there.plan(BASE)
    assert told["pilots"]["placed"] == {"before": 0, "after": 0}
    assert limits(told)["unknown-load"]["count"] == {"before": 2, "after": 2}
    assert told["load_seconds_ago"] is None
    assert "empty" not in "".join(told["assumed"])


def test_a_record_of_an_older_release_knows_no_loads(there):
    there.house.submitted({"Parameters": 9})
    there.tick()
    there.house.edit_record(
        lambda plan: [plan.pop("load_fields"), *(room.pop("load") for room in plan["rooms"].values())]
    )
    told = there.plan(BASE + EAST.replace("5000000", "50"))
    assert limits(told)["unknown-load"]["count"] == {"before": 2, "after": 2}
    assert told["load_seconds_ago"] is None


def test_before_the_first_iteration_all_queues_are_taken_for_empty(there):
    there.house.submitted({"Parameters": 9})
    told = there.plan(BASE)
    assert told["pilots"]["placed"]["after"] > 0
    assert told["assumed"][:2] == [
        "the director has not decided yet",
        "2 queues without a load yet taken for empty, for instance North/cn/short",
    ]


def test_loads_are_believed_as_they_were_when_the_director_went_by_them(there):
    there.house.submitted({"Parameters": 9})
    there.batch.age = there.director.options.max_load_age_s - 10.0
    there.tick()
    there.house.now += 50.0
    told = there.plan(BASE)
    assert "unknown-load" not in limits(told)
    assert told["load_seconds_ago"] == there.batch.age + 50.0
    there.batch.age += 20.0
    there.tick()
    there.house.now += 5.0
    assert limits(there.plan(BASE))["unknown-load"]["count"]["after"] == 2


def test_breakers_rates_and_pools_are_those_of_the_running_director(there):
    there.house.submitted({"Parameters": 30})
    there.tick()
    director, now = there.director, there.house.now
    director.breakers = {
        QueueId("North", "cn", "short"): Breaker(
            state=BreakerState.OPEN, failures=3, retry_at=now + 900.0, reason="refused"
        )
    }
    director.buckets = {NodePath("South", "cs"): TokenBucket(tokens=2.0, updated_at=now)}
    told = there.plan(BASE)
    assert told["pilots"]["placed"]["after"] == 2
    assert set(limits(told)) >= {"breaker", "token-bucket"}
    director.pools = lambda: {"Local": PoolState(name="Local", queued=10**6)}
    pilots = there.plan(BASE)["pilots"]
    assert pilots["placed"]["after"] == 0
    assert pilots["without_submission_pool"]["after"] == pilots["asked"]["after"] > 0


def test_a_closed_site_stays_closed(there):
    there.house.submitted({"Parameters": 30})
    there.tick()
    there.director.buckets = {}
    answer = there.house.call(
        "POST", "/v1/sites/close", {"site": "North", "reason": "disk broken"}, token="admin"
    )
    assert answer.status == 200, answer.body
    told = there.plan(BASE + EAST)
    assert limits(told)["closed"]["count"] == {"before": 1, "after": 1}
    assert limits(told)["closed"]["example"]["name"] == "North/cn/short"
    assert [row["site"] for row in told["queues"]["rows"]] == ["East"]


def test_pilots_offer_what_their_queue_is_then(there):
    """A live pilot in a queue that goes is no supply any more."""
    house = there.house
    there.use(
        HEAD
        + '[site.North]\nVO = ["lab"]\n[site.North.ce."ce.north".queue.short]\nCPUTime = 1000\nPlatform = "el9"\n'
    )
    house.submitted({"Parameters": 20})
    there.tick()
    for _ in range(20):
        house.pilot("North")
    assert there.plan(BASE)["pilots"]["asked"]["before"] < there.plan(BASE)["pilots"]["asked"]["after"]


def test_task_queue_limits_are_reported_too(there):
    there.director.options = replace(there.director.options, max_pilots_per_iteration=3)
    there.house.submitted({"Parameters": 40})
    told = there.plan(BASE)
    row = limits(told)["pilots-per-iteration"]
    assert (row["of"], row["count"]["after"]) == ("task queues", 1)
    assert told["pilots"]["asked"]["after"] == 3
    assert told["pilots"]["expected"]["after"] == pytest.approx(3.0)


def test_lists_are_cut_where_the_caller_wants(there):
    for number in range(4):
        there.house.submitted({"Parameters": 9, "CPUTime": 100 + number}, token=("ann", "bob")[number % 2])
    there.batch.loads = {"North/cn/short": (10, 0), "South/cs/long": (10, 0)}
    there.tick()
    told = there.plan(BASE + EAST, limit=1)
    assert (told["groups"]["count"], len(told["groups"]["rows"]), told["groups"]["more"]) == (2, 1, 1)
    assert told["only_after"]["count"] == len(told["only_after"]["rows"]) + told["only_after"]["more"]
    assert len(told["only_after"]["rows"]) == 1


# --- what the director leaves out -----------------------------------------------------------------------


def of_bob(queues, *_args, **_names):
    return any(key.owner == "bob" for _, key, _ in queues)


DRY_RUNS = {
    "resources": ({"files": [{"name": "new.toml", "text": BASE}]}, lambda answer: answer["director"]),
    "gates": ({"gates": {"North": {"MaxJobs": "5"}}}, lambda answer: answer),
    "director": ({}, lambda answer: answer),
}


def two_task_queues(house):
    """Those of ann, with a SubmitPool, and of bob."""
    house.submitted({"Parameters": 30, "Requirements": {"Platform": "el9"}}, token="ann")
    bobs = house.submitted({"Parameters": 20, "CPUTime": 50_000}, token="bob")
    return f"task queue {house.get(f'/v1/jobs/{bobs}', 'admin')['task_queue']}"


@pytest.mark.parametrize("path", DRY_RUNS)
def test_a_task_queue_at_fault_costs_no_dry_run(there, monkeypatch, path):
    item = two_task_queues(there.house)
    there.batch.loads = {"North/cn/short": (4, 3), "South/cs/long": (1, 0)}
    monkeypatch.setattr(direct, "director_weights", fails(direct.director_weights, of_bob))
    assert there.tick() > 0
    assert set(there.director.left_out.named()) == {item}
    body, planned = DRY_RUNS[path]
    answer = there.house.call("POST", f"/v1/plan/{path}", body, token="admin")
    assert answer.status == 200, answer.body
    assert f"{item} left out, as the director does: see lode status" in planned(answer.json)["assumed"]


def is_bobs(row, *_args):
    return row.key.owner == "bob"


JUDGED = {
    "the queues that can run it": (plan_resources, "runnable", is_bobs, "task queue"),
    "whether it is held": (refresh, "_judgement", is_bobs, "task queue"),
    "its Requirements": (refresh._Evaluator, "mask", lambda *_: True, "SubmitPool"),
}


@pytest.mark.parametrize("part", JUDGED)
def test_what_a_configuration_cannot_be_held_against_is_named(there, monkeypatch, part):
    place, name, is_faulty, kind = JUDGED[part]
    two_task_queues(there.house)
    monkeypatch.setattr(place, name, fails(getattr(place, name), is_faulty))
    answer = there.house.call("POST", "/v1/plan/resources", DRY_RUNS["resources"][0], token="admin")
    assert answer.status == 200, answer.body
    said = [one["message"] for one in answer.json["notices"]]
    assert any(one.startswith(f"{kind} ") and "is left out: StopIteration" in one for one in said), said
