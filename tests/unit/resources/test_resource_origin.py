"""Where values come from: every level that speaks, and that the answer agrees with what holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.resources import (
    NodePath,
    QueueId,
    ResourceTree,
    effective_params,
    load_resources,
)
from lodesman.decide.resources.model import Node
from lodesman.wire.vocabulary import Level

TEXT = """
[job_description]
SoftwareTag = "list merge"
[ce_defaults]
MaxTotalJobs = 1
[ce_type.T]
MaxTotalJobs = 2
[site.S]
MaxTotalJobs = 3
SoftwareTag = "a"
VO = ["v", "w"]
[site.S.vo.v]
MaxTotalJobs = 4
[site.S.ce.c]
CEType = "T"
MaxTotalJobs = 5
VO = []
[site.S.ce.c.vo.v]
MaxTotalJobs = 6
SoftwareTag = "b"
[site.S.ce.c.queue.q]
MaxTotalJobs = 7
[site.S.ce.c.queue.q.vo.v]
MaxTotalJobs = 8
"""
LEVELS = list(Level)
QUEUE = NodePath("S", "c", "q")


@pytest.fixture(scope="module")
def config():
    return load_resources([("f.toml", TEXT)])


def origin(config, name, node=QUEUE, vo="v"):
    return effective_params(config.tree, node, vo=vo, types=config.types)[name]


def said(effective):
    return [one.said for one in effective.all_said()]


def levels(effective):
    return [one.level for one in effective.all_said()]


def test_every_level_with_a_value_is_shown_the_strongest_first(config):
    found = origin(config, "maxtotaljobs")
    assert (levels(found), said(found)) == (LEVELS[::-1], [8, 7, 6, 5, 4, 3, 2, 1])
    assert (found.value, found.level) == (8, Level.QUEUE_VO)


def test_each_place_is_the_line_of_the_file(config):
    lines = TEXT.splitlines()
    for one in origin(config, "maxtotaljobs").all_said():
        assert one.source.file == "f.toml"
        assert lines[one.source.line - 1] == f"MaxTotalJobs = {one.said}"


def test_other_vos_and_higher_levels_get_less(config):
    assert said(origin(config, "maxtotaljobs", vo="")) == [7, 5, 3, 2, 1]
    assert said(origin(config, "maxtotaljobs", NodePath("S", "c"))) == [6, 5, 4, 3, 2, 1]
    assert said(origin(config, "maxtotaljobs", NodePath("S"))) == [4, 3]


def test_a_merged_list_has_the_values_of_all_levels(config):
    found = origin(config, "softwaretag")
    assert found.value == ("a", "b")
    assert found.levels == (Level.SITE, Level.CE_VO)
    assert said(found) == [("b",), ("a",)]


def test_an_empty_access_list_says_nothing(config):
    assert levels(origin(config, "vo")) == [Level.SITE]


def test_names_of_nodes_are_written_nowhere(config):
    assert said(origin(config, "queuename")) == []
    assert origin(config, "queuename").value == "q"


def test_an_unknown_node_is_a_key_error(config):
    for wrong in (NodePath("X"), NodePath("S", "x"), NodePath("S", "c", "x")):
        with pytest.raises(KeyError):
            effective_params(config.tree, wrong, types=config.types)
        assert config.tree.find(wrong) is None


def test_kinds_and_texts_of_nodes():
    assert [NodePath(*names).kind for names in (("S",), ("S", "c"), ("S", "c", "q"))] == [
        "Site",
        "CE",
        "Queue",
    ]
    assert str(QUEUE) == "S/c/q"
    assert str(NodePath("S")) == "S"


name_texts = st.text(alphabet="ab/", min_size=1, max_size=3)


@given(st.lists(st.tuples(name_texts, name_texts, name_texts), min_size=1, max_size=6))
def test_every_node_is_found_by_its_own_path(names):
    sites = {}
    for site, ce, queue in names:
        site_node = sites.setdefault(site, Node(name=site, children={}))
        site_node.children[ce] = Node(name=ce, children={queue: Node(name=queue)})
    tree = ResourceTree(sites=sites)
    found = dict(tree.nodes())
    assert all(tree.find(path) is node for path, node in found.items())
    assert [path for path in found if path.queue] == list(tree.queue_ids())
    for site, ce, _ in names:
        assert {NodePath(site), NodePath(site, ce)} <= set(found)
        assert tree.find(NodePath(site, ce, "x")) is None


# --- agreement -------------------------------------------------------------------------------------

params = st.dictionaries(
    st.sampled_from(["P", "Tag", "VO", "CEType"]), st.sampled_from(["a", "b", ("a", "c"), ""])
)
nodes = st.fixed_dictionaries(
    {"params": params, "overlays": st.dictionaries(st.sampled_from(["v", "w"]), params)}
)


def layers_of(made, vo):
    """(level, values, file) of all that can say something, the weakest first, by a plain reading of the rule."""
    default, of_type, site, ce, queue = made
    pairs = (("site", site), ("CE", ce), ("queue", queue))
    nodes = [(level, node[key], key) for level, node in pairs for key in ("params", vo) if key in node]
    own = [(f"{level}(VO)" if key == vo else level, values) for level, values, key in nodes]
    base = [("default", default["params"])]
    kinds = [text for name, text in of_kind([*base, *own]) if name == "CEType"]
    return [*base, *([("CE type", of_type["params"])] if kinds == ["a"] else []), *own]


def of_kind(layers):
    """The effective CEType of a CE: its first text."""
    said = [values["CEType"] for level, values in layers if "CEType" in values and "queue" not in level]
    texts = said[-1:] and (said[-1] if isinstance(said[-1], tuple) else (said[-1],))
    return [("CEType", text) for text in texts if text][:1]


@given(st.lists(nodes, min_size=5, max_size=5), st.sampled_from(["v", "w", "other"]))
def test_effective_and_declared_values_agree_with_a_plain_reading(layers, vo):
    default, of_type, site, ce, queue = layers
    q = Node(name="q", **queue)
    c = Node(name="c", children={"q": q}, **ce)
    tree = ResourceTree(
        sites={"S": Node(name="S", children={"c": c}, **site)},
        ce_defaults=Node(name="", **default),
        ce_types={"a": Node(name="a", **of_type)},
    )
    flat = [{"params": one["params"], **one["overlays"]} for one in layers]
    expected = {}
    for level, values in layers_of(flat, vo):
        for name, value in values.items():
            if name != "VO" or value != "":
                expected.setdefault(name.casefold(), []).append((level, value))
    found = effective_params(tree, QueueId("S", "c", "q"), vo=vo)
    told = {
        name: [(one.level, one.said) for one in params.all_said()][::-1] for name, params in found.items()
    }
    assert {name: said for name, said in told.items() if said} == expected
    for name, said in expected.items():
        assert (found[name].level, found[name].levels[-1]) == (said[-1][0], said[-1][0])
        merged = name == "tag"
        assert found[name].levels == tuple(level for level, _ in said) if merged else said[-1:]
        assert merged or found[name].value == said[-1][1]
