"""getEligibleNodes: the tree of eligible nodes, and the reasons of all others."""

import copy

import pytest

from lodesman.answers.vocabulary import Level
from lodesman.errors import InvalidJob, InvalidRequest
from lodesman.resources import (
    AccessDenied,
    MissingParameter,
    NodeVerdict,
    NotAmong,
    NotEqual,
    ResourceConfig,
    Resources,
    TooSmall,
    load_toml,
)

CONFIG = """
[job_description]
SoftwareTag = "list merge"
CPUModel = "string"

[site.North]
SoftwareTag = "Base"
Country = "no"
[site.North.vo.physvo]
SoftwareTag = "Gauss"
[site.North.ce.n1]
CPUModel = "Intel Xeon"
[site.North.ce.n1.queue.short]
Memory = 2000
[site.North.ce.n1.queue.long]
Memory = 8000
SoftwareTag = ["AppVersion1"]
VO = ["physvo"]
[site.North.ce.n2]
CPUModel = "AMD EPYC"
[site.North.ce.n2.queue.all]
Memory = "4 GB"
SoftwareTag = ["AppVersion2"]

[site.South]
Country = "it"
[site.South.ce.s1]
CPUModel = "ANY"
VO = "biovo"
[site.South.ce.s1.queue.big]
Memory = 64000
SoftwareTag = ["AppVersion1", "AppVersion2"]
"""


@pytest.fixture(scope="module")
def config():
    return load_toml(CONFIG)


def test_without_selection_everything_is_eligible(config):
    assert Resources(config).get_eligible_nodes("Queue") == {
        "North": {"n1": ["short", "long"], "n2": ["all"]},
        "South": {"s1": ["big"]},
    }


def test_the_example_of_the_seed(config):
    wanted = {"SoftwareTag": ["AppVersion1", "AppVersion2"], "CPUModel": "Intel Xeon", "Memory": 4000}
    assert Resources(config, vo="physvo").get_eligible_nodes("Queue", {}, wanted) == {
        "North": {"n1": ["long"]}
    }
    assert Resources(config, vo="biovo").get_eligible_nodes("Queue", {}, wanted) == {"South": {"s1": ["big"]}}


def test_diracs_spelling(config):
    resources = Resources(config, vo="physvo")
    wanted = {"Memory": 4000}
    assert resources.getEligibleNodes("Queue", {}, wanted) == resources.get_eligible_nodes(
        "Queue", {}, wanted
    )


def test_the_selections_are_not_changed(config):
    ce_select = {"Site": ["North", "South"], "CPUModel": ["Intel Xeon", "AMD EPYC"]}
    queue_select = {"Memory": "4000 MB", "SoftwareTag": ["AppVersion2", "AppVersion1", "AppVersion1"]}
    before = copy.deepcopy((ce_select, queue_select))
    Resources(config, vo="physvo").get_eligible_nodes("Queue", ce_select, queue_select)
    assert (ce_select, queue_select) == before


def test_values_are_inherited_and_merged(config):
    base = Resources(config).get_eligible_nodes("Queue", None, {"SoftwareTag": "Base", "Country": "no"})
    assert base == {"North": {"n1": ["short", "long"], "n2": ["all"]}}


def test_overlays_are_for_their_vo(config):
    wanted = {"SoftwareTag": "Gauss"}
    assert Resources(config, vo="physvo").get_eligible_nodes("Queue", None, wanted) == {
        "North": {"n1": ["short", "long"], "n2": ["all"]}
    }
    assert Resources(config, vo="biovo").get_eligible_nodes("Queue", None, wanted) == {}


def test_the_ce_selection_is_held_against_the_ce(config):
    found = Resources(config).get_eligible_nodes("Queue", {"CPUModel": "AMD EPYC"}, {"Memory": 4000})
    assert found == {"North": {"n2": ["all"]}, "South": {"s1": ["big"]}}
    # The memory is declared for queues; the CE itself says nothing about it.
    assert Resources(config).get_eligible_nodes("Queue", {"Memory": 1}) == {}


def test_names_can_be_selected(config):
    found = Resources(config).get_eligible_nodes("Queue", {"Site": "North"}, {"QueueName": ["all", "big"]})
    assert found == {"North": {"n2": ["all"]}}


def test_the_site_says_something_and_the_queue_overrides_it():
    config = load_toml("[site.S]\nMemory = 1\n[site.S.ce.c.queue.q]\nMemory = 2")
    assert Resources(config).get_eligible_nodes("Queue", None, {"Memory": 2}) == {"S": {"c": ["q"]}}


def test_ces_and_sites(config):
    resources = Resources(config)
    assert resources.get_eligible_nodes("CE", {"CPUModel": "AMD EPYC"}) == {
        "North": {"n2": []},
        "South": {"s1": []},
    }
    assert resources.get_eligible_nodes("Site", {"Country": ["no", "se"]}) == {"North": {}}
    assert Resources(config, vo="physvo").get_eligible_nodes("CE") == {"North": {"n1": [], "n2": []}}
    assert Resources(config, vo="physvo").get_eligible_nodes("Site") == {"North": {}, "South": {}}


@pytest.mark.parametrize("kind", ["queue", "Storage", ""])
def test_other_node_kinds_are_refused(config, kind):
    with pytest.raises(InvalidRequest, match="Queue, CE, Site"):
        Resources(config).get_eligible_nodes(kind)


@pytest.mark.parametrize("kind", ["CE", "Site"])
def test_a_queue_selection_needs_queues(config, kind):
    with pytest.raises(InvalidRequest, match="makes no sense"):
        Resources(config).get_eligible_nodes(kind, {}, {"Memory": 1})


def test_bad_values_are_refused(config):
    with pytest.raises(InvalidJob, match="Memory"):
        Resources(config).get_eligible_nodes("Queue", {}, {"Memory": "lots"})


def test_every_node_has_its_reasons(config):
    wanted = {"Memory": 4000, "SoftwareTag": ["AppVersion1"]}
    found = Resources(config, vo="physvo").explain_nodes("Queue", {"CPUModel": "Intel Xeon"}, wanted)
    assert found == [
        NodeVerdict(
            site="North",
            ce="n1",
            queue="short",
            reasons=(
                TooSmall(parameter="Memory", wanted=4000, offered=2000, unit="MB", level=Level.QUEUE),
                NotAmong(
                    parameter="SoftwareTag",
                    wanted=("AppVersion1",),
                    offered=("Base", "Gauss"),
                    level=Level.SITE_VO,
                ),
            ),
        ),
        NodeVerdict(site="North", ce="n1", queue="long"),
        NodeVerdict(
            site="North",
            ce="n2",
            queue="all",
            reasons=(
                NotEqual(parameter="CPUModel", wanted="Intel Xeon", offered="AMD EPYC", level=Level.CE),
                NotAmong(
                    parameter="SoftwareTag",
                    wanted=("AppVersion1",),
                    offered=("Base", "Gauss", "AppVersion2"),
                    level=Level.QUEUE,
                ),
            ),
        ),
        NodeVerdict(
            site="South",
            ce="s1",
            queue="big",
            reasons=(AccessDenied(vo="physvo", allowed=("biovo",), level=Level.CE),),
        ),
    ]
    assert [verdict.eligible for verdict in found] == [False, True, False, False]


def test_a_requirement_nobody_knows_makes_nothing_eligible(config):
    found = Resources(config).explain_nodes("Queue", None, {"Unheard": 1})
    assert {verdict.reasons for verdict in found} == {(MissingParameter(parameter="Unheard", wanted=(1,)),)}
    assert Resources(config).get_eligible_nodes("Queue", None, {"Unheard": 1}) == {}


def test_access_lists():
    config = load_toml(
        """
        [site.S]
        VO = ["a", "b"]
        [site.S.ce.c.queue.inherits]
        [site.S.ce.c.queue.own]
        VO = "c"
        [site.S.ce.c.queue.open]
        VO = "ANY"
        [site.S.ce.c.queue.emptied]
        VO = []
        [site.T.ce.c.queue.nothing_said]
        """
    )

    def queues(vo):
        found = Resources(config, vo=vo).get_eligible_nodes("Queue")
        return {queue for ces in found.values() for names in ces.values() for queue in names}

    assert queues("a") == {"inherits", "open", "emptied", "nothing_said"}
    assert queues("c") == {"own", "open", "nothing_said"}
    assert queues("d") == {"open", "nothing_said"}
    assert queues("") == {"inherits", "own", "open", "emptied", "nothing_said"}


def test_an_empty_tree():
    assert Resources(ResourceConfig()).get_eligible_nodes("Queue", {"a": 1}, {"b": 1}) == {}
    assert Resources(ResourceConfig()).explain_nodes("Site") == []
