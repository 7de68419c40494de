"""Effective values: who overrides whom, what is merged, and who said so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.resources import (
    FilePosition,
    QueueId,
    ResourceTree,
    TypeTable,
    effective_params,
)
from lodesman.decide.resources.inherit import all_queues
from lodesman.decide.resources.model import Node
from lodesman.wire.vocabulary import Level

LEVELS = list(Level)
HERE = QueueId("S", "c", "q")


def tree(layers, name="P"):
    """One queue; `layers` maps a level to the value it gives to the parameter."""

    def node(own, overlay, **more):
        params = {name: layers[own]} if own in layers else {}
        overlays = {"vo": {name: layers[overlay]}} if overlay in layers else {}
        return Node(params=params, overlays=overlays, **more)

    queue = node(Level.QUEUE, Level.QUEUE_VO, name="q")
    ce = node(Level.CE, Level.CE_VO, name="c", children={"q": queue})
    ce.params["CEType"] = "Fast"
    site = node(Level.SITE, Level.SITE_VO, name="S", children={"c": ce})
    of_all, of_type = (
        Node(name="", params={name: layers[level]} if level in layers else {})
        for level in (Level.DEFAULT, Level.CE_TYPE)
    )
    return ResourceTree(sites={"S": site}, ce_defaults=of_all, ce_types={"Fast": of_type})


@pytest.mark.parametrize("deepest", LEVELS)
def test_the_deepest_level_wins(deepest):
    layers = {level: f"of {level}" for level in LEVELS[: LEVELS.index(deepest) + 1]}
    found = effective_params(tree(layers), HERE, vo="vo")["p"]
    assert (found.value, found.level, found.levels) == (f"of {deepest}", deepest, (deepest,))


@pytest.mark.parametrize("only", LEVELS)
def test_every_level_reaches_the_queue(only):
    found = effective_params(tree({only: 7}), HERE, vo="vo")["p"]
    assert (found.value, found.level) == (7, only)


def test_overlays_are_for_their_vo_alone():
    layers = {Level.SITE: "plain", Level.SITE_VO: "special", Level.QUEUE_VO: "more special"}
    assert effective_params(tree(layers), HERE, vo="other")["p"].value == "plain"
    assert effective_params(tree(layers), HERE)["p"].value == "plain"
    assert effective_params(tree(layers), HERE, vo="vo")["p"].value == "more special"


def test_a_ce_beats_the_overlay_of_the_site():
    layers = {Level.SITE_VO: "site says for the VO", Level.CE: "CE says"}
    assert effective_params(tree(layers), HERE, vo="vo")["p"].value == "CE says"


def test_lists_replace_unless_their_type_merges():
    layers = {Level.SITE: ("a", "b"), Level.QUEUE: ("c",)}
    assert effective_params(tree(layers), HERE)["p"].value == ("c",)
    assert effective_params(tree(layers, "Platform"), HERE)["platform"].value == ("c",)


def test_merged_lists_unite_all_levels():
    layers = {Level.SITE: ("a", "b"), Level.CE_VO: ("b", "c"), Level.QUEUE: "d"}
    found = effective_params(tree(layers, "Tag"), HERE, vo="vo")["tag"]
    assert found.value == ("a", "b", "c", "d")
    assert found.level is Level.QUEUE
    assert found.levels == (Level.SITE, Level.CE_VO, Level.QUEUE)


def test_names_are_matched_without_case_and_keep_the_spelling_of_the_level_that_counts():
    queue = Node(name="q", params={"MEMORY": 2})
    ce = Node(name="c", params={"memory": 1}, children={"q": queue})
    grown = ResourceTree(sites={"S": Node(name="S", children={"c": ce})})
    found = effective_params(grown, HERE)
    assert (found["memory"].value, found["memory"].name) == (2, "MEMORY")


def test_the_source_is_that_of_the_level_that_counts():
    there, here = FilePosition(file="a", line=1), FilePosition(file="b", line=2)
    queue = Node(name="q", params={"P": 2}, sources={("", "p"): here})
    ce = Node(name="c", children={"q": queue})
    site = Node(name="S", params={"P": 1}, sources={("", "p"): there}, children={"c": ce})
    found = effective_params(ResourceTree(sites={"S": site}), HERE)
    assert found["p"].source is here
    assert found["site"].source is None


def test_a_node_knows_its_own_names():
    found = effective_params(tree({}), HERE)
    assert {name: found[name].value for name in ("site", "cename", "queuename")} == {
        "site": "S",
        "cename": "c",
        "queuename": "q",
    }
    assert found["queuename"].level is Level.QUEUE


def test_a_configured_parameter_beats_the_implicit_name():
    assert effective_params(tree({Level.SITE: "alias"}, "Site"), HERE)["site"].value == "alias"
    assert effective_params(tree({Level.SITE: "front"}, "CEName"), HERE)["cename"].value == "front"


def test_an_empty_access_list_says_nothing():
    layers = {Level.SITE: ("physvo",), Level.CE: (), Level.QUEUE: ""}
    found = effective_params(tree(layers, "VO"), HERE)["vo"]
    assert (found.value, found.level) == (("physvo",), Level.SITE)


def test_an_unknown_queue_is_a_key_error():
    for wrong in (QueueId("X", "c", "q"), QueueId("S", "x", "q"), QueueId("S", "c", "x")):
        with pytest.raises(KeyError):
            effective_params(tree({}), wrong)


def test_names_may_hold_any_character():
    odd = QueueId("A/B::C", "ce/queue", "::")
    ce = Node(name=odd.ce, children={odd.queue: Node(name=odd.queue, params={"P": 1})})
    grown = ResourceTree(sites={odd.site: Node(name=odd.site, children={odd.ce: ce})})
    assert list(grown.queue_ids()) == [odd]
    assert grown.find(odd)
    assert not grown.find(QueueId("A", "B::C::ce/queue", "::"))
    assert not grown.find(QueueId(odd.site, "ce", "queue/::"))
    assert effective_params(grown, odd)["p"].value == 1


layer_values = st.dictionaries(st.sampled_from(LEVELS), st.sampled_from([1, "x", ("a", "b"), ("b", "c")]))


@given(layer_values, st.sampled_from(["vo", "other", ""]))
def test_the_rule_against_a_plain_reading_of_it(layers, vo):
    grown = tree(layers)
    visible = [level for level in LEVELS if level in layers and (vo == "vo" or not level.endswith("(VO)"))]
    found = effective_params(grown, HERE, vo=vo).get("p")
    if not visible:
        assert found is None
    else:
        assert (found.value, found.level) == (layers[visible[-1]], visible[-1])


@given(layer_values)
def test_merging_against_a_plain_reading_of_it(layers):
    found = effective_params(tree(layers, "RequiredTag"), HERE, vo="vo").get("requiredtag")
    visible = [level for level in LEVELS if level in layers]
    if len(visible) > 1:
        offered = [
            layers[level] if isinstance(layers[level], tuple) else (layers[level],) for level in visible
        ]
        assert set(found.value) == {item for values in offered for item in values}
        assert len(found.value) == len(set(found.value))
        assert found.levels == tuple(visible)


@given(layer_values, st.sampled_from(["vo", ""]))
def test_walking_all_queues_gives_the_same(layers, vo):
    types = TypeTable()
    grown = tree(layers, "Tag")
    assert [(queue, dict(params)) for queue, params in all_queues(grown, vo=vo, types=types)] == [
        (HERE, dict(effective_params(grown, HERE, vo=vo, types=types)))
    ]
