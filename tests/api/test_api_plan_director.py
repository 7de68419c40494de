"""POST /v1/plan/director: iterations by several policies, held against what the director does and stored."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.api.test_api_plan_limits import Installed

from lodesman.server.reads.rehearsal import SEED
from lodesman.wire.vocabulary import TargetPolicy

ALL = list(TargetPolicy)


@pytest.fixture
def there(house):
    """Two task queues with 30 and 20 jobs, and two CE queues with some pilots."""
    found = Installed(house)
    house.submitted({"Parameters": 30}, token="ann")
    house.submitted({"Parameters": 20, "CPUTime": 50_000}, token="bob")
    found.batch.loads = {"North/cn/short": (4, 3), "South/cs/long": (1, 0)}
    return found


def plan(house, *policies, status=200, token="admin", **body):
    sent = {**({"policies": policies} if policies else {}), **body}
    answer = house.call("POST", "/v1/plan/director", sent, token=token)
    assert answer.status == status, answer.body
    return answer.json if status == 200 else answer.json["error"]


def by_policy(answer):
    return {one["policy"]: one for one in answer["plans"]}


def last(house):
    """The last iteration as it is stored."""
    return house.get("/v1/director", "admin")


def test_the_plan_of_now_is_what_the_director_does_then(there):
    house = there.house
    planned = plan(house)
    assert (planned["iteration"], planned["at"]) == (None, house.now)
    (one,) = planned["plans"]
    there.director.rng = cast("Any", SimpleNamespace(getrandbits=lambda _: SEED))
    assert there.tick() == one["placed"] > 0
    assert last(house)["plan"] == one["record"]


def test_policies_side_by_side_differ_by_the_policy_only(there):
    house = there.house
    there.tick()
    kept = (
        house.core.journal.commits,
        dict(there.director.breakers),
        dict(there.director.buckets),
        last(house),
    )
    answer = plan(house, *ALL)
    found = by_policy(answer)
    assert list(found) == ALL
    records = [one["record"] for one in found.values()]
    assert {record["seed"] for record in records} == {SEED}
    for name in ("waiting_jobs", "running_jobs", "usable_pilots", "waiting_pilots", "running_pilots"):
        assert len({record["target"][name] for record in records}) == 1
    assert {policy: one["record"]["target"]["value"] for policy, one in found.items()} == {
        "seed": 40.0,
        "adaptive": 40.0 * 50 / 200,
        "gap": 17.0,  # a third of 50
        "ratio": 4.0,  # none runs: minTarget
    }
    assert found["gap"]["asked"] <= 17
    assert found["ratio"]["asked"] <= 4
    for policy, one in found.items():
        assert one["record"]["options"]["TargetPolicy"] == policy
        assert one["placed"] == sum(count for *_, count in one["record"]["placements"])
    # Nothing is stored, and the running director is as it was.
    assert kept == (
        house.core.journal.commits, there.director.breakers, there.director.buckets, last(house)
    )  # fmt: skip
    assert plan(house, *ALL) == answer


def test_a_stored_iteration_is_shown_as_it_was(there):
    there.tick()
    stored = last(there.house)
    answer = plan(there.house, iteration=stored["iteration"])
    (one,) = answer["plans"]
    assert (answer["iteration"], answer["at"], answer["assumed"]) == (1, stored["at"], [])
    assert (one["policy"], one["record"]) == ("seed", stored["plan"])
    assert one["placed"] == sum(ask["placed"] for ask in stored["plan"]["asks"])


def test_a_stored_iteration_by_other_policies_has_the_options_and_the_chance_of_then(there):
    house = there.house
    there.tick()
    number = last(house)["iteration"]
    before = plan(house, "seed", "gap", "ratio", iteration=number)
    house.submitted({"Parameters": 500}, token="ann")
    there.director.options = replace(there.director.options, pilots_per_iteration=1.0, extra_pilots=0)
    house.now += 60.0
    there.tick()
    assert plan(house, "seed", "gap", "ratio", iteration=number) == before
    found = by_policy(before)
    assert [found[name]["placed"] is None for name in ("seed", "gap", "ratio")] == [False, True, True]
    assert found["gap"]["record"]["target"]["value"] == 17.0
    assert found["gap"]["record"]["placements"] == found["gap"]["record"]["asks"] == []
    assert "only pilots of the stored policy are placed" in before["assumed"][0]


def test_lists_are_cut_and_task_queues_named(there):
    house = there.house
    full = plan(house, *ALL)
    assert (full["task_queues"], full["queues"]) == (2, 2)
    cut = plan(house, *ALL, limit=1)
    for one, whole in zip(cut["plans"], full["plans"], strict=True):
        assert [row[0] for row in one["record"]["rows"]] == [1]  # 30 jobs
        assert len(one["record"]["rooms"]) == 1
        assert (one["asked"], one["placed"]) == (whole["asked"], whole["placed"])
    named = plan(house, task_queues=[2])["plans"][0]["record"]
    assert [row[0] for row in named["rows"]] == [2]
    assert {ask["tq_id"] for ask in named["asks"]} <= {2}
    fault = plan(house, task_queues=[2, 99], status=404)
    assert fault["message"] == "The iteration has no task queue 99."


def test_what_cannot_be_planned(there):
    house = there.house
    assert plan(house, iteration=7, status=404)["hint"] == "None is stored yet."
    there.tick()
    assert plan(house, iteration=7, status=404)["hint"] == "Those from 1 to 1 are stored."
    assert "policies" in plan(house, "best", status=400)["message"]
    plan(house, "gap", token="ann", status=403)
    house.edit_record(lambda record: (record.pop("seed"), record.pop("options")))
    assert plan(house, iteration=1)["plans"][0]["policy"] == "seed"
    assert plan(house, "gap", iteration=1, status=404)["message"].startswith("An older release stored this")
    house.side.director = None
    assert plan(house, status=503)["message"] == "The director does not run."
