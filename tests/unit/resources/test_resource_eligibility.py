"""Which queues fulfil Requirements, and the reasons against all others."""

import pytest
from tests.unit.resources.conftest import eligible, load_toml, reasons

from lodesman.base.errors import InvalidJob
from lodesman.decide.resources import (
    ResourceConfig,
)
from lodesman.decide.resources.requirement import Mismatch

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


def test_without_requirements_everything_is_eligible(config):
    assert eligible(config) == {
        "North": {"n1": ["short", "long"], "n2": ["all"]},
        "South": {"s1": ["big"]},
    }


def test_the_example_of_the_seed(config):
    wanted = {"SoftwareTag": ["AppVersion1", "AppVersion2"], "CPUModel": "Intel Xeon", "Memory": 4000}
    assert eligible(config, wanted, "physvo") == {"North": {"n1": ["long"]}}
    assert eligible(config, wanted, "biovo") == {"South": {"s1": ["big"]}}


def test_values_are_inherited_and_merged(config):
    base = eligible(config, {"SoftwareTag": "Base", "Country": "no"})
    assert base == {"North": {"n1": ["short", "long"], "n2": ["all"]}}


def test_overlays_are_for_their_vo(config):
    wanted = {"SoftwareTag": "Gauss"}
    assert eligible(config, wanted, "physvo") == {"North": {"n1": ["short", "long"], "n2": ["all"]}}
    assert eligible(config, wanted, "biovo") == {}


def test_names_can_be_required(config):
    assert eligible(config, {"Site": "North", "QueueName": ["all", "big"]}) == {"North": {"n2": ["all"]}}


def test_the_site_says_something_and_the_queue_overrides_it():
    config = load_toml("[site.S]\nMemory = 1\n[site.S.ce.c.queue.q]\nMemory = 2")
    assert eligible(config, {"Memory": 2}) == {"S": {"c": ["q"]}}


def test_bad_values_are_refused(config):
    with pytest.raises(InvalidJob, match="Memory"):
        eligible(config, {"Memory": "lots"})


def test_every_queue_has_its_reasons(config):
    wanted = {"Memory": 4000, "SoftwareTag": ["AppVersion1"], "CPUModel": "Intel Xeon"}
    model = "CPUModel: wanted Intel Xeon, the CE offers AMD EPYC"
    tag = "SoftwareTag: wanted AppVersion1"
    found = reasons(config, wanted, "physvo")
    assert {queue: tuple(map(str, why)) for queue, why in found.items()} == {
        ("North", "n1", "short"): (
            "Memory: wanted at least 4000 MB, the queue offers 2000",
            f"{tag}, the site(VO) offers Base or Gauss",
        ),
        ("North", "n1", "long"): (),
        ("North", "n2", "all"): (
            model,
            f"{tag}, the queue offers Base or Gauss or AppVersion2",
        ),
        ("South", "s1", "big"): ("VO physvo has no access: the CE admits biovo",),
    }


def test_an_unknown_requirement_makes_nothing_eligible(config):
    found = reasons(config, {"Unheard": 1})
    assert set(found.values()) == {(Mismatch("Unheard", "Unheard is not declared (wanted 1)"),)}
    assert eligible(config, {"Unheard": 1}) == {}


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
        return {
            queue for ces in eligible(config, vo=vo).values() for names in ces.values() for queue in names
        }

    assert queues("a") == {"inherits", "open", "emptied", "nothing_said"}
    assert queues("c") == {"own", "open", "nothing_said"}
    assert queues("d") == {"open", "nothing_said"}
    assert queues("") == {"inherits", "own", "open", "emptied", "nothing_said"}


def test_an_empty_tree():
    assert eligible(ResourceConfig(), {"a": 1}) == {}
    assert reasons(ResourceConfig(), {}) == {}
