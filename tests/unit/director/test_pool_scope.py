"""Submission pools that serve some backends, sites or queues, and those that the director does not handle."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState, PoolTry, choose_pool
from lodesman.decide.director.places import Places
from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.resources import QueueId
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import PoolOutcome

QUEUE = QueueId("A", "ce", "long")
TWO_POOLS = {"SubmitPools": "Local, Grid"}


@pytest.mark.parametrize(
    ("scope", "serves"),
    [
        (PoolScope(), True),
        (PoolScope(backends=("slurm",)), True),
        (PoolScope(backends=("local",)), False),
        (PoolScope(sites=("A",)), True),
        (PoolScope(sites=("ce",)), False),
        (PoolScope(queues=("A/ce",)), True),
        (PoolScope(queues=("A/ce/long",)), True),
        (PoolScope(queues=("A/ce/short", "A/c")), False),
        (PoolScope(backends=("local",), sites=("B",), queues=("A/ce/long",)), True),
    ],
)
def test_a_pool_serves_what_any_of_its_lists_names(scope, serves):
    assert scope.serves(QUEUE, "slurm") is serves
    assert scope.serves(QUEUE, "slurm+alice") is serves


def test_a_pool_may_serve_a_batch_system_for_one_identity_alone():
    scope = PoolScope(backends=("slurm+alice",))
    assert [scope.serves(QUEUE, name) for name in ("slurm+alice", "slurm", "slurm+bob")] == [
        True,
        False,
        False,
    ]


words = st.lists(st.sampled_from(["A", "A/ce", "A/ce/long", "slurm", "local", "B"]), max_size=3).map(tuple)


@given(words, words, words, words)
def test_to_name_more_never_serves_less(backends, sites, queues, more):
    scope = PoolScope(backends, sites, queues)
    wider = PoolScope(backends + more, sites + more, queues + more)
    assert not scope.serves(QUEUE, "slurm") or not any(scope) or wider.serves(QUEUE, "slurm")


def test_what_a_pool_serves_is_read_in_any_spelling_of_a_backend():
    options = read_options(TWO_POOLS | {"Grid": {"Backends": "SGE, Slurm@login.example", "Queues": ["A/ce"]}})
    assert options.scopes == {
        "Local": PoolScope(),
        "Grid": PoolScope(("gridengine", "slurm@login.example"), (), ("A/ce",)),
    }
    assert [one.elsewhere for one in options.pools.values()] == ["", ""]


def test_pools_inherit_what_the_director_s_section_says():
    given_options = {
        "Sites": "A",
        "handled_by": "Grid team",
        "Local": {"handled_by": "director", "Sites": []},
    }
    options = read_options(TWO_POOLS | given_options)
    assert {name: (one.sites, one.elsewhere) for name, one in options.pools.items()} == {
        "Local": ((), ""),
        "Grid": (("A",), "Grid team"),
    }


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"Queues": "A"}, "Queues must be a list of SITE/CE or SITE/CE/QUEUE, not 'A'"),
        ({"Sites": ["A", "A"]}, "Sites must be a list of different names"),
        ({"Backends": "slurm, "}, "Backends must be a list of different names"),
        ({"handled_by": " "}, "handled_by must be some text"),
        ({"handled_By": "x"}, "handled_By is not known; did you mean handled_by?"),
    ],
)
def test_faults_name_the_pool(given_options, words):
    with pytest.raises(InvalidConfig) as refused:
        read_options(TWO_POOLS | {"Grid": given_options})
    (fault,) = refused.value.data["faults"]
    assert fault["section"] == "Grid"
    assert f"{fault['option']} {fault['message']}".startswith(words)


def test_a_join_token_that_ends_before_its_pilot_waited_too_long_is_a_fault():
    with pytest.raises(InvalidConfig, match="requiredTimeLeft is less than maxPilotWaitingHours"):
        read_options({"requiredTimeLeft": 7_199, "maxPilotWaitingHours": 2})
    assert read_options({"requiredTimeLeft": 7_200, "maxPilotWaitingHours": 2}).required_time_left == 7_200.0


def test_a_pool_that_is_not_handled_or_serves_nothing_for_it_takes_nothing():
    states = {name: PoolState(name=name) for name in "AB"} | {"C": PoolState(name="C", elsewhere=True)}
    said = {"A": PoolOutcome.NO_QUEUE, "B": PoolOutcome.TAKEN, "C": PoolOutcome.ELSEWHERE}
    for seed in range(20):
        found, tries = choose_pool("ABC", dict(states), random.Random(seed), serves=lambda pool: pool == "B")
        assert found == "B"
        assert dict(tries) == {pool: said[pool] for pool, _ in tries}
    refused = choose_pool("C", dict(states), random.Random(1))
    assert refused == (None, (PoolTry("C", PoolOutcome.ELSEWHERE),))


def test_a_pool_has_a_queue_for_a_key_where_its_jobs_could_run(demand, queue):
    queues = [queue("A", submission_pools=("Local", "Grid")), queue("B", submission_pools=("Local",))]
    places = Places(queues, PoolMap())
    both = {site: demand(sites=(site,)).key for site in "AB"}
    assert {site: places.has_queue(key, "Grid") for site, key in both.items()} == {"A": True, "B": False}
    # Of a pool that serves all queues, placement says what each of them has against the jobs.
    assert places.has_queue(demand(sites=("Z",)).key, "Local")
    assert not places.has_queue(demand(vo="other").key, "Grid")
