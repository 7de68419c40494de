"""Where values come from: every level that speaks, and that the answer agrees with what holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.vocabulary import Level
from lodesman.resources import (
    ComputingElement,
    NodePath,
    Queue,
    QueueId,
    ResourceTree,
    Site,
    Source,
    TypeTable,
    effective_params,
    find_nodes,
    load_resources,
    origins,
)
from lodesman.resources.model import CeDefaults, Node

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
    return origins(config.tree, node, vo=vo, types=config.types)[name]


def test_every_level_that_speaks_is_told_the_strongest_first(config):
    found = origin(config, "maxtotaljobs")
    assert [(one.level, one.value) for one in found.said] == list(
        zip(reversed(LEVELS), range(8, 0, -1), strict=True)
    )
    assert (found.effective.value, found.effective.level) == (8, Level.QUEUE_VO)
    assert [one.level for one in found.beaten] == list(reversed(LEVELS))[1:]


def test_each_place_is_the_line_of_the_file(config):
    lines = TEXT.splitlines()
    for one in origin(config, "maxtotaljobs").said:
        assert one.source.file == "f.toml"
        assert lines[one.source.line - 1] == f"MaxTotalJobs = {one.value}"


def test_other_vos_and_nodes_above_hear_less(config):
    assert [one.value for one in origin(config, "maxtotaljobs", vo="").said] == [7, 5, 3, 2, 1]
    assert [one.value for one in origin(config, "maxtotaljobs", NodePath("S", "c")).said] == [
        6,
        5,
        4,
        3,
        2,
        1,
    ]
    assert [one.value for one in origin(config, "maxtotaljobs", NodePath("S")).said] == [4, 3]


def test_a_merged_list_is_made_of_all_that_is_said(config):
    found = origin(config, "softwaretag")
    assert found.effective.value == ("a", "b")
    assert found.effective.levels == (Level.SITE, Level.CE_VO)
    assert [one.value for one in found.said] == [("b",), ("a",)]
    assert found.beaten == ()


def test_an_empty_access_list_says_nothing(config):
    assert [one.level for one in origin(config, "vo").said] == [Level.SITE]


def test_names_of_nodes_are_written_nowhere(config):
    assert origin(config, "queuename").said == ()
    assert origin(config, "queuename").effective.value == "q"


def test_an_unknown_node_is_a_key_error(config):
    for wrong in (NodePath("X"), NodePath("S", "x"), NodePath("S", "c", "x")):
        with pytest.raises(KeyError):
            origins(config.tree, wrong, types=config.types)


def test_kinds_and_texts_of_nodes():
    assert [NodePath(*names).kind for names in (("S",), ("S", "c"), ("S", "c", "q"))] == [
        "Site",
        "CE",
        "Queue",
    ]
    assert str(QUEUE) == "S/c/q"
    assert str(NodePath("S")) == "S"


# --- finding a node by its path --------------------------------------------------------------------


def tree_of(*names):
    sites = {}
    for site, ce, queue in names:
        element = ComputingElement(name=ce, queues={queue: Queue(name=queue)})
        sites.setdefault(site, Site(name=site, ces={})).ces[ce] = element
    return ResourceTree(sites=sites)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("A", [("A",)]),
        ("A/b", [("A", "b")]),
        ("A/b/c/d", [("A", "b", "c/d")]),
        ("A/b/c", []),
        ("A/", []),
        ("", []),
        ("B", []),
    ],
)
def test_nodes_are_found_by_their_path(path, found):
    assert find_nodes(tree_of(("A", "b", "c/d")), path) == tuple(NodePath(*names) for names in found)


def test_a_path_may_mean_several_nodes():
    tree = tree_of(("A", "b/c", "d"), ("A/b", "c", "d"))
    assert set(find_nodes(tree, "A/b/c/d")) == {NodePath("A", "b/c", "d"), NodePath("A/b", "c", "d")}
    assert set(find_nodes(tree, "A/b/c")) == {NodePath("A", "b/c"), NodePath("A/b", "c")}


name_texts = st.text(alphabet="ab/", min_size=1, max_size=3)


@given(st.lists(st.tuples(name_texts, name_texts, name_texts), min_size=1, max_size=6))
def test_every_node_is_found_by_its_own_path(names):
    tree = tree_of(*names)
    for site, ce, queue in tree.queue_ids():
        for node in (NodePath(site), NodePath(site, ce), NodePath(site, ce, queue)):
            found = find_nodes(tree, str(node))
            assert node in found
            assert all(str(one) == str(node) for one in found)


# --- agreement -------------------------------------------------------------------------------------

params = st.dictionaries(
    st.sampled_from(["P", "Tag", "VO", "CEType"]), st.sampled_from(["a", "b", ("a", "c"), ""])
)
nodes = st.fixed_dictionaries(
    {"params": params, "overlays": st.dictionaries(st.sampled_from(["v", "w"]), params)}
)


@given(st.lists(nodes, min_size=5, max_size=5), st.sampled_from(["", "v", "other"]))
def test_the_origin_agrees_with_what_holds(layers, vo):
    def sources(layer):
        told = {"": layer["params"], **layer["overlays"]}
        return {
            (for_vo, name.casefold()): Source(file=f"{index}-{for_vo}")
            for index, (for_vo, names) in enumerate(told.items())
            for name in names
        }

    made = [{**layer, "sources": sources(layer)} for layer in layers]
    queue = Queue(name="q", **made[0])
    ce = ComputingElement(name="c", queues={"q": queue}, **made[1])
    defaults = CeDefaults(of_all=Node(name="", **made[3]), of_type={"a": Node(name="a", **made[4])})
    tree = ResourceTree(sites={"S": Site(name="S", ces={"c": ce}, **made[2])}, defaults=defaults)
    types = TypeTable()
    told = origins(tree, QUEUE, vo=vo, types=types)
    held = effective_params(tree, QueueId(*QUEUE), vo=vo, types=types)
    assert {name: one.effective for name, one in told.items()} == dict(held)
    for above in (NodePath("S", "c"), NodePath("S")):
        params = effective_params(tree, above, vo=vo, types=types)
        told_above = origins(tree, above, vo=vo, types=types)
        assert {name: one.effective for name, one in told_above.items()} == dict(params)
    for one in told.values():
        if one.said:
            assert one.said[0].level is one.effective.level
            assert one.said[0].source == one.effective.source
            counted = [said.level for said in one.said if said.level in one.effective.levels]
            assert tuple(reversed(counted)) == one.effective.levels
