"""never <=> no pilot of any queue would be given it, whatever the queues declare and whatever their nodes are (ADR 0023)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.offers import UNLIMITED, as_if_made_for
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.decide.submission import find_exclusions
from lodesman.server.store.read.pilots import PilotRow
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import FreeResources, PilotSession, presented_by
from lodesman.wire.vocabulary import PilotState

NO_POOLS = PoolMap()
AMOUNTS = st.sampled_from([1, 500, 2_000, 4_000])
CPU = st.sampled_from([60, 1_000, 3_600, 86_400])

queues = st.fixed_dictionaries(
    {},
    optional={
        "Memory": AMOUNTS | st.just("ANY"),
        "MaxRAM": AMOUNTS,
        "Platform": st.sampled_from(["el8", "el9", "ANY"]),
        "CPUTime": CPU,
        "CPUScalingFactor": st.sampled_from([0.5, 2.0]),
        "NumberOfProcessors": st.integers(1, 8),
        "Tag": st.sampled_from(["gpu", "ssd"]),
    },
)
keys = st.builds(
    TaskQueueKey,
    owner=st.just("ann"),
    group=st.just("g"),
    vo=st.just("lab"),
    memory_mb=st.just(0) | AMOUNTS,
    norm_cpu_seconds=CPU,
    cores=st.integers(1, 8),
    platforms=st.sampled_from([(), ("el8",), ("el8", "el9")]),
    tags=st.sampled_from([(), ("gpu",)]),
)
nodes = st.fixed_dictionaries(
    {},
    optional={
        "platform": st.sampled_from(["el8", "el9"]),
        "cores": st.integers(1, 64),
        "memory_mb": st.sampled_from([100, 2_000, 64_000]),
        "life_s": st.sampled_from([30.0, 2_000.0, 200_000.0]),
        "cpu_scaling_factor": st.sampled_from([0.5, 1.0, 2.0]),
    },
)
lives = st.sampled_from([0, 600, 4_000])


@dataclass(frozen=True)
class Place:
    """A configured queue and the pilots that the director would send there."""

    ordinal: int
    key: TaskQueueKey
    offer: Any

    def pilot(self, node) -> PilotSession:
        """One for the key, that joined at 0 on such a node; what it presents was stored before as JSON."""
        queue, request = self.offer.queue, as_if_made_for(self.key, self.offer.request)
        row = PilotRow(
            1, "stamp", PilotState.RUNNING, "lab", self.key.owner, self.key.group, "", "",
            queue.site, queue.ce, queue.queue, None, "", 0, 1, 0.0, 0.0, 0.0, 0.0, None, 0, "local", "", None, None, None,
            json.dumps(asdict(request)), json.dumps(node),
        )  # fmt: skip
        return PilotSession(row, now=0.0)

    def asks(self, node, now=0.0):
        """The requests of that pilot: as it claims, as `why` reckons, as the director reads it."""
        session = self.pilot(node)
        left = session.whole(now).norm_cpu_seconds
        says = FreeResources(node.get("cores", 64), node.get("memory_mb", UNLIMITED), left)
        queue = self.offer.queue
        stored = json.dumps(asdict(as_if_made_for(self.key, self.offer.request)))
        return (
            session.request(says, NO_POOLS),
            session.request(session.whole(now), NO_POOLS),
            presented_by(
                stored, json.dumps(node), QueueId(queue.site, queue.ce, queue.queue), joined_at=0.0, now=now
            ),
        )


def world_of(params, life):
    text = "".join(
        f"[site.S{n}.ce.c.queue.q]\n" + "".join(f"{name} = {json.dumps(v)}\n" for name, v in one.items())
        for n, one in enumerate(params)
    )
    return Policy(load_resources([("s.toml", text)]), life_seconds=life).vo_config("lab")


def places(world, key):
    return [Place(ordinal, key, offer) for ordinal, offer in world.by_bit.items()]


@given(st.lists(queues, min_size=1, max_size=3), keys, nodes, lives, st.sampled_from([0.0, 700.0]))
def test_what_is_called_never_no_pilot_is_given(params, key, node, life, now):
    """And more: what a pilot of a queue is given is eligible in that very queue."""
    world = world_of(params, life)
    eligible = world.possible_queues(key, 0)
    assert eligible == find_exclusions(key, {}, world).eligible
    for place in places(world, key):
        for request in place.asks(node, now):
            if not explain(key, request):
                assert eligible >> place.ordinal & 1


@given(st.lists(queues, min_size=1, max_size=3), keys, lives)
def test_what_is_not_called_never_a_pilot_that_is_what_its_queue_declares_is_given(params, key, life):
    world = world_of(params, life)
    eligible = world.possible_queues(key, 0)
    for place in places(world, key):
        has = place.offer.request
        node = {"cores": has.cores, "memory_mb": has.memory_mb, "platform": "whatever"}
        asks = place.asks({name: value for name, value in node.items() if value})
        assert all((explain(key, request) == ()) == bool(eligible >> place.ordinal & 1) for request in asks)


@given(queues, keys, nodes, lives, st.floats(0.0, 3_000.0))
def test_claim_why_and_director_agree_of_every_pilot(params, key, node, life, now):
    (place,) = places(world_of([params], life), key)
    claim, why, director = place.asks(node, now)
    assert why == director
    assert (explain(key, claim) == ()) == (explain(key, why) == ())


@pytest.mark.parametrize(
    ("params", "asks", "node"),
    [
        ({}, {"memory_mb": 900_000}, {"memory_mb": 64_000}),
        ({}, {"memory_mb": 500}, {"memory_mb": 64_000}),
        ({}, {"platforms": ("el9",)}, {"platform": "el9"}),
        ({}, {"cores": 2}, {"cores": 64}),
    ],
)
def test_the_faults_that_there_were(params, asks, node):
    """One road called these possible and another did not: pilots were sent for ever, or jobs refused that could run."""
    key = TaskQueueKey(**{"owner": "ann", "group": "g", "vo": "lab", "norm_cpu_seconds": 100, **asks})
    world = world_of([params], 0)
    assert world.possible_queues(key, 0) == 0
    (place,) = places(world, key)
    assert not any(not explain(key, request) for request in place.asks(node))


def test_no_job_that_outlives_every_pilot_is_waited_for():
    key = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=86_400)
    assert world_of([{}], 0).possible_queues(key, 0)
    assert not world_of([{}], 3_600).possible_queues(key, 0)
