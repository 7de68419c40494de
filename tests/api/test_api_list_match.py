"""What a batch system never runs (list-match), and queues for private pilots, as `why` and dry runs show them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import private_pools
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import Check
from lodesman.wire.nodes import utc

TEXT = """
[site.A]
VO = ["lab"]
CPUTime = 1000
[site.A.ce.c.queue.wide]
NumberOfProcessors = {cores}
{more}
"""
WORDS = "sbatch: More processors requested than permitted"
NOW = f"local refuses pilots of 64 cores there, which may pass: {WORDS}"
SAYS = f"local says that it never runs pilots of 64 cores there: {WORDS}"
QUEUE = "/v1/queues/why?site=A&ce=c&queue=wide"
WHO = (
    "the site administrator: NumberOfProcessors, MaxRAM, WallTime, SubmitOptions; or "
    "the administrator of the batch system"
)


class Cluster:
    """A house with one queue, whose batch system says whether it runs pilots."""

    def __init__(self, house, backend, cores=64, more="") -> None:
        self.house, self.possible, self.final = house, False, True
        self.director = house.director(backend)
        house.side.director = self.director
        self.watch = cast("Any", SimpleNamespace(name="local", backend=self, options=()))
        self.use(cores, more)

    def use(self, cores, more=""):
        policy = self.house.policy(
            load_resources([("s.toml", TEXT.format(cores=cores, more=more))]),
            private_pools=private_pools(self.director.options),
        )
        self.house.core.policy = self.house.side.policy = self.director.policy = policy

    def check(self, spec):
        possible = self.possible or spec.cores < 64
        return Check(possible=possible, detail=WORDS, final=self.final and not possible)

    def iterate(self):
        """An iteration, and the next poll."""
        self.house.now += 20.0
        placed = self.director.tick(self.house.now)
        self.director.list_match.tick(self.watch, self.house.now)
        self.house.side.keeper.refresh(self.house.now, rest=0.0)
        return placed


@pytest.fixture
def cluster(house, backend):
    return Cluster(house, backend)


def test_never_is_said_of_a_queue_with_the_words_of_its_batch_system(house, cluster):
    job = house.submitted({"Parameters": 20})
    assert cluster.iterate() > 0, "what is not known closes nothing"
    assert cluster.iterate() == 0
    told = house.get(QUEUE)
    assert (told["verdict"], told["main_reason"]) == ("never", "refused-by-batch-system")
    says = f"{SAYS} (since {utc(house.now - 20.0)}, it is asked again after {utc(house.now + 280.0, '%H:%M:%S')})"
    assert (told["summary"], told["who"]) == (f"No pilot will ever be sent there: {says}.", WHO)
    (limit,) = [one for one in told["gate"]["limits"] if one["shut"]]
    assert limit == {"clamp": "list-match", "limit": 0, "text": says, "shut": True}
    assert [one["step"] for one in told["chain"] if one["holds"] is False] == ["possible", "room"]
    told = house.get(f"/v1/jobs/{job}/why")
    assert (told["verdict"], told["main_reason"], told["who"]) == ("not now", "no-room-for-pilots", WHO)
    assert f"none may be sent now: {says} (1 queue)" in told["summary"]
    plan = house.get("/v1/director", "admin")["plan"]
    assert plan["rooms"]["A/c/wide"]["clamps"][0][0] == "list-match"
    cluster.possible = True
    house.now += 300.0
    assert [cluster.iterate(), cluster.iterate() > 0] == [0, True]
    assert house.get(QUEUE)["main_reason"] != "refused-by-batch-system"


def test_a_refusal_that_may_pass_is_not_now_and_says_since_when_and_when_it_is_asked_again(house, cluster):
    """A node that is down is refused in the words of one that never was: a second of it shut a queue for five minutes."""
    cluster.final = False
    job = house.submitted({"Parameters": 20})
    assert cluster.iterate() > 0
    began = house.now
    for lasted in (20.0, 40.0, 80.0):
        house.now = began + lasted - 20.0
        assert cluster.iterate() == 0
        told = house.get(QUEUE)
        again = utc(began + 2.0 * lasted, "%H:%M:%S")
        says = f"{NOW} (since {utc(began)}, it is asked again after {again})"
        assert (told["verdict"], told["main_reason"]) == ("not now", "no-room-for-pilots")
        assert told["summary"].endswith(f"none may be sent now: {says}.")
        assert told["who"] == "time, it is asked again soon; or the administrator of the batch system"
        assert [one["clamp"] for one in told["gate"]["limits"] if one["shut"]] == ["refused-for-now"]
        told = house.get(f"/v1/jobs/{job}/why")
        assert (told["verdict"], told["main_reason"]) == ("not now", "no-room-for-pilots")
        assert "which may pass" in told["summary"]
    cluster.possible = True
    house.now = began + 140.0
    assert [cluster.iterate(), cluster.iterate() > 0] == [0, True]
    cluster.possible = False
    house.now += 300.0
    for _ in range(9):
        cluster.iterate()
    assert house.get(QUEUE)["verdict"] == "never", "it stays so"


def test_without_a_director_the_last_iteration_says_it(house, cluster):
    house.submitted({"Parameters": 20})
    cluster.iterate()
    cluster.iterate()
    house.side.director = None
    told = house.get(QUEUE)
    assert told["main_reason"] == "refused-by-batch-system"
    assert told["summary"].startswith(f"No pilot will ever be sent there: {SAYS} (since ")


def test_dry_runs_go_by_what_is_known(house, cluster):
    house.submitted({"Parameters": 20})
    cluster.iterate()
    told = house.call("POST", "/v1/plan/director", {"policies": [], "limit": 5}, token="admin").json
    (record,) = [one["record"] for one in told["plans"]]
    assert record["rooms"]["A/c/wide"]["clamps"][0][-1].startswith(SAYS)
    body = {"files": [{"name": "n.toml", "text": TEXT.format(cores=2, more="")}], "limit": 9}
    told = house.call("POST", "/v1/plan/resources", body, token="admin").json["director"]
    (limit,) = [one for one in told["limits"] if one["limit"] == "list-match"]
    assert limit["count"] == {"before": 1, "after": 0}
    assert told["pilots"]["placed"]["before"] == 0 < told["pilots"]["placed"]["after"]


def test_a_queue_for_private_pilots_and_the_jobs_that_get_none(house, backend):
    cluster = Cluster(house, backend, cores=1, more="GenericPilots = false")
    told = house.submit({}, {"PilotType": "private"})
    assert (told.status, told.code) == (422, "impossible")
    assert told.json["error"]["data"]["attribute"] == "PilotType"
    assert "suggestion: PilotType -> private (1 of 1 queue)" in told.json["error"]["message"]
    held = house.submitted({"ForceGeneric": True}, hold_if_impossible=True)
    told = house.get(QUEUE)
    assert told["main_reason"] == "no-fitting-job-waits"
    (step,) = [one for one in told["chain"] if one["step"] == "possible"]
    assert step["text"].endswith(
        "it takes private pilots only: GenericPilots is no; a job that asks for little can run there"
    )
    private = house.submitted({"PilotType": "private"})
    assert cluster.iterate() > 0
    assert house.get(QUEUE)["work"]["fitting"] == 1
    assert house.get(f"/v1/jobs/{private}/why")["queues"]["eligible"] == 1
    told = house.get(f"/v1/jobs/{held}/why?queue=A/c/wide")
    assert (told["verdict"], told["queue"]["ruled_out_by"], told["queue"]["reasons"]) == (
        "never", ["GenericPilots"], ["it takes private pilots only: GenericPilots is no"],
    )  # fmt: skip


def test_where_private_pilots_are_drawn_some_jobs_go_there_with_them(house, backend):
    cluster = Cluster(house, backend, cores=1, more="GenericPilots = false")
    cluster.director.options = read_options({"PrivatePilotFraction": 0.5})
    cluster.use(1, "GenericPilots = false")
    house.submitted({"Parameters": 20})
    kinds = set()
    for seed in range(20):
        cluster.director.rng = random.Random(seed)
        placed = cluster.iterate()
        (ask,) = house.get("/v1/director", "admin")["plan"]["asks"]
        kinds.add((ask["private"], placed > 0))
        if not ask["private"]:
            (refused,) = ask["refused"]
            assert refused["kind"] == "the queue takes private pilots only (GenericPilots)"
    assert kinds == {(True, True), (False, False)}
