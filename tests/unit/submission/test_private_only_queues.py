"""Queues with `GenericPilots = no`: which jobs are possible there, and what is said to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.offers import gets_private
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.submission import find_exclusions, never_text

OPEN, QUIET, SHUT = "open", "quiet", "shut"
SITES = """
[site.A]
CPUTime = 1000
[site.A.ce.c.queue.open]
[site.A.ce.c.queue.quiet]
GenericPilots = false
[site.A.ce.c.queue.shut]
GenericPilots = false
Slots = 0
"""
KEYS = st.builds(
    TaskQueueKey,
    owner=st.just("ann"),
    group=st.just("g"),
    vo=st.just("lab"),
    norm_cpu_seconds=st.just(100),
    pilot_type=st.sampled_from(["", "private"]),
    force_generic=st.booleans(),
    submission_pools=st.sampled_from([(), ("A",), ("B",), ("A", "B")]),
)
KEY = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=100)


def world(*drawing, sites=SITES, alive=()):
    there = frozenset(alive)
    return Policy(
        load_resources([("s.toml", sites)]),
        private_pools=frozenset(drawing),
        inhabited=lambda queues: frozenset(one for one in there if (one.site, one.ce, one.queue) in queues),
    ).vo_config("lab")


def named(config, mask):
    return {offer.queue.queue for offer in config.offers if mask >> offer.bit & 1}


@given(KEYS, st.sets(st.sampled_from(["", "A", "B"])))
def test_a_queue_for_private_pilots_is_possible_for_those_who_get_some(key, drawing):
    config = world(*drawing)
    found = find_exclusions(key, {}, config)
    expected = {OPEN, QUIET} if gets_private(key, drawing) else {OPEN}
    assert named(config, found.eligible) == expected
    assert config.possible_queues(key, 0) == found.eligible
    assert ("GenericPilots" in dict(found.planes)) == (QUIET not in expected)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "PilotType -> private"),
        ({"force_generic": True}, "PilotType -> private and ForceGeneric left out"),
    ],
)
def test_the_refusal_says_what_to_change(changes, text):
    config = world(sites="[site.A.ce.c.queue.q]\nGenericPilots = 'no'\n")
    found = find_exclusions(replace(KEY, **changes), {}, config)
    assert never_text(found) == (
        f"no queue of VO lab can run it: GenericPilots excludes 1 of 1; suggestion: {text} (1 of 1 queue)"
    )
    (change,) = found.job_changes()
    assert change.example.reasons == ["it takes private pilots only: GenericPilots is no"]
    assert not never_text(find_exclusions(replace(KEY, pilot_type="private"), {}, config))


def test_a_pilot_that_is_there_counts_while_it_lives():
    there = ResourceRequest(vo="lab", site="A", ce="c", queue=QUIET, norm_cpu_seconds=1_000)
    found = find_exclusions(KEY, {}, world(alive=[there]))
    assert named(found.config, found.eligible) == {OPEN, QUIET}
    of_bob = find_exclusions(KEY, {}, world(alive=[replace(there, owner="bob")]))
    assert named(of_bob.config, of_bob.eligible) == {OPEN}


def test_where_two_things_are_in_the_way_both_are_said():
    config = world(sites="[site.A.ce.c.queue.q]\nGenericPilots = false\nSlots = 0\n")
    (change,) = find_exclusions(KEY, {}, config).job_changes()
    assert change.change == ["Slots", "GenericPilots"]
    assert "Slots of the queues, by the site administrator (Slots is 0)" in change.text
    assert change.example.reasons == ["Slots is 0", "it takes private pilots only: GenericPilots is no"]


def test_another_fraction_is_another_policy():
    config = load_resources([("s.toml", SITES)])
    assert Policy(config).digest != Policy(config, private_pools=frozenset({"A"})).digest
