"""One site, CE or queue as a VO sees it: every value with its level, file and line."""

from __future__ import annotations

import time

import pytest

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.decide.resources import NodePath, load_resources
from lodesman.server.reads.sites import exact_node, find_node, show_node

TEXT = """
[ce_defaults]
MaxTotalJobs = 50
[ce_type.T]
MaxWaitingJobs = 7
[site.S]
VO = ["v"]
CPUTime = "1 h"
Tag = "site"
[site.S.vo.v]
CPUTime = "2 h"
[site.S.ce.c]
CEType = "T"
[site.S.ce.c.queue."q/1"]
CPUTime = "3 h"
Tag = "queue"
[site.S.ce.c.queue.bare]
maxCPUTime = 60
SI00 = 500
Memory = 4000
[site."A/B".ce.C.queue.D]
[site.A.ce."B/C".queue.D]
"""
LINES = TEXT.splitlines()


@pytest.fixture(scope="module")
def config():
    return load_resources([("f.toml", TEXT)])


def parameters(config, path, vo="v"):
    return {one.name: one for one in show_node(config, find_node(config.tree, path), vo).parameters}


def test_every_value_has_its_level_and_its_line(config):
    found = parameters(config, "S/c/q/1")
    for name, value, level in (
        ("CPUTime", 10_800, "queue"),
        ("MaxTotalJobs", 50, "default"),
        ("MaxWaitingJobs", 7, "CE type"),
        ("CEType", "T", "CE"),
        ("VO", ["v"], "site"),
    ):
        one = found[name]
        assert (one.value, one.level, one.file) == (value, level, "f.toml")
        assert LINES[one.line - 1].startswith(f"{name} = ")


def test_values_of_other_levels_are_shown_and_do_not_count(config):
    one = parameters(config, "S/c/q/1")["CPUTime"]
    assert [(said.level, said.value, said.counts) for said in one.said] == [
        ("queue", 10_800, True), ("site(VO)", 7_200, False), ("site", 3_600, False),
    ]  # fmt: skip
    assert [LINES[said.line - 1] for said in one.said] == [
        'CPUTime = "3 h"', 'CPUTime = "2 h"', 'CPUTime = "1 h"',
    ]  # fmt: skip


def test_all_parts_of_a_merged_list_count(config):
    one = parameters(config, "S/c/q/1")["Tag"]
    assert (one.value, one.levels) == (["site", "queue"], ["site", "queue"])
    assert [said.counts for said in one.said] == [True, True]
    assert (one.type, one.unit) == ("list", "")


def test_types_and_units(config):
    found = parameters(config, "S/c/q/1")
    assert (found["CPUTime"].type, found["CPUTime"].unit) == ("number", "s")
    assert (found["QueueName"].type, found["QueueName"].line) == ("", 0)


def test_defaults_of_the_program_for_undeclared_values(config):
    found = parameters(config, "S/c/bare", vo="w")
    assumed = {name: (one.value, one.made_of) for name, one in found.items() if one.level == "built-in"}
    assert assumed == {
        "Backend": ("t", "CEType"),
        "CPUScalingFactor": (1, ""),
        "MaxRAM": (4000, "Memory"),
        "NumberOfProcessors": (1, ""),
        "WaitingToRunningRatio": (0.0, ""),
    }
    # A site that declares CPUTime: the queue's own maxCPUTime and SI00 have no effect.
    assert found["CPUTime"].level == "site"


def test_minutes_and_specint_are_shown_as_what_they_become():
    text = "[site.S.ce.c.queue.q]\nmaxCPUTime = 60\nSI00 = 500\n"
    found = parameters(load_resources([("f.toml", text)]), "S/c/q")
    assert (found["CPUTime"].value, found["CPUTime"].made_of) == (3600, "maxCPUTime")
    assert (found["CPUScalingFactor"].value, found["CPUScalingFactor"].made_of) == (2, "SI00")
    assert (found["Backend"].value, found["Backend"].made_of) == ("local", "")
    assert (found["MaxTotalJobs"].value, found["MaxWaitingJobs"].value) == (10, 10)


def test_a_site_is_shown_with_the_deviating_values_of_ces_and_queues(config):
    found = show_node(config, NodePath("S"), "v")
    assert (found.kind, found.section, found.line) == ("Site", "site.S", 6)
    assert {one.name for one in found.parameters} == {"Site", "VO", "CPUTime", "Tag"}
    (ce,) = found.below
    assert (ce.kind, ce.ce) == ("CE", "c")
    assert {one.name for one in ce.parameters} == {"MaxTotalJobs", "MaxWaitingJobs", "CEType"}
    assert [queue.queue for queue in ce.below] == ["q/1", "bare"]
    assert {one.name for one in ce.below[0].parameters} == {"CPUTime", "Tag"}
    assert {one.name for one in ce.below[1].parameters} == {"maxCPUTime", "SI00", "Memory"}


def test_a_queue_is_allowed_only_for_its_vos(config):
    for vo, allowed in (("v", True), ("w", False), ("", True)):
        assert show_node(config, NodePath("S", "c", "bare"), vo).allowed is allowed


def test_a_path_that_means_two_things_is_refused_with_both(config):
    with pytest.raises(InvalidRequest) as caught:
        find_node(config.tree, "A/B/C/D")
    assert sorted(caught.value.data["choices"]) == [["A", "B/C", "D"], ["A/B", "C", "D"]]
    assert exact_node(config.tree, NodePath("A/B", "C", "D")).site == "A/B"


@pytest.mark.parametrize("path", ["", "T", "S/x", "S/c/x", "S/c/q/1/x", "s"])
def test_what_is_not_there(config, path):
    with pytest.raises(NotFound, match="There is no site, CE or queue"):
        find_node(config.tree, path)


@pytest.mark.parametrize("names", [("",), ("T",), ("S", "x"), ("S", "c", "x"), ("S", "", "bare")])
def test_what_is_not_there_by_exact_names(config, names):
    with pytest.raises(NotFound):
        exact_node(config.tree, NodePath(*names))


def test_close_names_are_offered():
    config = load_resources([("f.toml", "[site.Harbour]\n[site.Moor]\n")])
    with pytest.raises(NotFound) as caught:
        find_node(config.tree, "Harbor/ce")
    assert "Harbour" in caught.value.hint


@pytest.mark.slow
def test_a_site_with_many_queues_is_shown_fast():
    queues = "".join(f"[site.S.ce.c{n // 20}.queue.q{n}]\nMemory = {n}\n" for n in range(500))
    text = "[site.S]\n" + "".join(f"P{n} = {n}\n" for n in range(50)) + queues
    config = load_resources([("f.toml", text)])
    begun = time.process_time()
    found = show_node(config, NodePath("S"), "v")
    assert sum(len(ce.below) for ce in found.below) == 500
    assert time.process_time() - begun < 5
