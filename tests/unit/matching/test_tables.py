"""Whole snapshots by masks: the same answers as the predicate pair by pair."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.criteria import CRITERIA, explain
from lodesman.decide.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.decide.matching.tables import _IDENTITY, PLACE, KeyTable, RequestTable, serves
from lodesman.decide.matching.task_queue import TaskQueueKey


def some(*values: str) -> st.SearchStrategy[tuple[str, ...]]:
    """A few of these, sorted and without doubles, often none."""
    return st.lists(st.sampled_from(values), max_size=2).map(lambda found: tuple(sorted(set(found))))


def key_of(**given_fields) -> TaskQueueKey:
    return TaskQueueKey(**({"owner": "ann", "group": "g", "vo": "lab"} | given_fields))


IDENTITY_FIELDS = ("vo", "groups", "owner", "pilot_type", "submission_pool")
KEYS = st.builds(
    TaskQueueKey,
    owner=st.sampled_from(["ann", "bob"]),
    group=st.sampled_from(["g", "h"]),
    vo=st.sampled_from(["lab", "ego"]),
    job_type=st.sampled_from(["User", "Test"]),
    job_class=st.sampled_from(["", "", "app"]),
    variant=st.sampled_from(["v1", "default"]),
    sites=some("A", "B", "C"),
    banned_sites=some("A", "B"),
    grid_ces=some("ce1", "ce2"),
    platforms=some("x", "y"),
    tags=some("gpu", "ssd"),
    pilot_type=st.sampled_from(["", PRIVATE]),
    submission_pools=some("Local", "SAM"),
    submit_pool=st.sampled_from(["", "req1:a"]),
    cores=st.integers(1, 3),
    memory_mb=st.integers(0, 3),
    norm_cpu_seconds=st.sampled_from([0, 31, 32, 100]),
)
REQUESTS = st.builds(
    ResourceRequest,
    vo=st.sampled_from(["lab", "ego"]),
    groups=st.one_of(st.none(), some("g", "h")),
    owner=st.sampled_from(["", "ann", "bob"]),
    pilot_type=st.sampled_from(["", PRIVATE]),
    site=st.sampled_from(["", "A", "B", ANY]),
    ce=st.sampled_from(["", "ce1", ANY]),
    platforms=some("x", "y", ANY),
    tags=some("gpu", "ssd", ANY),
    required_tags=some("gpu", "ssd"),
    job_types=st.one_of(st.none(), some("User", "Test", ANY)),
    job_classes=st.one_of(st.none(), some("NO_JC", "ANY_JC", "app", "app.v1")),
    submit_pools=some("req1:a", "req1:b"),
    submission_pool=st.sampled_from(["", "Local", "SAM", ANY]),
    cores=st.integers(1, 3),
    memory_mb=st.integers(0, 3),
    norm_cpu_seconds=st.sampled_from([0, 31, 32, 100]),
)


@given(st.lists(KEYS, max_size=12), st.lists(REQUESTS, max_size=6), st.data())
def test_task_queues_by_masks_are_those_of_the_predicate(keys, requests, data):
    table = KeyTable(dict(enumerate(keys)))
    here = dict(enumerate(keys))
    gone = data.draw(st.sets(st.sampled_from(sorted(here))) if here else st.just(set()))
    for tq_id in sorted(gone):
        table.drop(tq_id)
        del here[tq_id]
    for number, key in enumerate(data.draw(st.lists(KEYS, max_size=4))):
        table.put(100 + number, key)
        here[100 + number] = key
    assert table.full.bit_count() == len(here)
    for request in requests:
        served = sum(
            1 << table.bit(k) for k, key in here.items() if key.submit_pool in ("", *request.submit_pools)
        )
        found = table.narrow_served(served, replace(request, submit_pools=()))
        assert {tq_id for tq_id in here if found >> table.bit(tq_id) & 1} == {
            tq_id for tq_id, key in here.items() if not explain(key, request)
        }
        assert found & ~table.full == 0
        assert table.pools == {table.bit(k): key.submit_pool for k, key in here.items() if key.submit_pool}


@given(KEYS, st.lists(REQUESTS, max_size=12))
def test_places_and_identities_together_are_the_predicate(key, requests):
    table = RequestTable(PLACE, enumerate(requests))
    mask = table.narrow((1 << len(requests)) - 1, key)
    for bit, request in enumerate(requests):
        assert (mask >> bit & 1 and serves(key, request)) == (not explain(key, request))


@given(REQUESTS, REQUESTS)
def test_the_place_does_not_read_the_identity_nor_the_other_way_round(one, other):
    """So places can be judged for all pilots at once, and identities once for all places."""
    chosen = {name: getattr(other, name) for name in IDENTITY_FIELDS}
    same_place = replace(one, **chosen)
    for criterion in PLACE:
        assert criterion.of_request(same_place) == criterion.of_request(one)
    same_identity = replace(other, **{name: getattr(one, name) for name in IDENTITY_FIELDS})
    for criterion in _IDENTITY:
        assert criterion.of_request(same_identity) == criterion.of_request(one)


def test_every_criterion_is_on_one_side():
    assert sorted(one.name for one in (*_IDENTITY, *PLACE)) == sorted(one.name for one in CRITERIA)
    assert len(_IDENTITY) == len(IDENTITY_FIELDS)
    assert set(IDENTITY_FIELDS) < {field.name for field in fields(ResourceRequest)}


def test_a_mask_is_only_narrowed():
    table = RequestTable(PLACE, ((bit, ResourceRequest(vo="lab", site="AB"[bit % 2])) for bit in range(4)))
    key = key_of(sites=("A",), cores=1, memory_mb=0, norm_cpu_seconds=0)
    assert table.narrow(0b1111, key) == 0b0101
    assert table.narrow(0b1110, key) == 0b0100
    assert table.narrow(0b1010, key) == 0


def test_a_bit_is_given_out_again_and_means_the_new_task_queue():
    table = KeyTable({7: key_of(sites=("A",)), 8: key_of(sites=("B",))})
    bit = table.bit(7)
    table.drop(7)
    assert table.full == 1 << table.bit(8)
    with pytest.raises(KeyError):
        table.bit(7)
    table.put(9, key_of(sites=("B",)))
    assert table.bit(9) == bit
    assert table.tq_id(bit) == 9
    here = ResourceRequest(vo="lab", site="A", norm_cpu_seconds=10**9)
    assert table.narrow_served(table.full, here) == 0
    assert table.narrow_served(table.full, replace(here, site="B")) == table.full


def test_an_empty_table_answers():
    assert KeyTable().narrow_served(KeyTable().full, ResourceRequest(vo="lab")) == 0
    assert RequestTable().narrow(0, key_of()) == 0


@given(KEYS, st.lists(REQUESTS, max_size=8), st.sets(st.sampled_from([one.name for one in PLACE])))
def test_places_can_be_narrowed_by_some_criteria_alone(key, requests, names):
    table = RequestTable(PLACE, enumerate(requests))
    mask = table.narrow((1 << len(requests)) - 1, key, names)
    chosen = [one for one in PLACE if one.name in names]
    for bit, request in enumerate(requests):
        assert bool(mask >> bit & 1) == all(one.holds(key, request) for one in chosen)
