"""The example configuration of the demo loads, and its sites differ in what they can run."""

from pathlib import Path

import pytest
from tests.unit.resources.conftest import eligible, eligible_mask, load_toml

from lodesman.decide.resources import QueueTable, queue_settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "three-sites.toml"
NORTH, SOUTH, EAST = "LCG.North.local", "LCG.South.local", "HPC.East.local"


@pytest.fixture(scope="module")
def config():
    return load_toml(EXAMPLE.read_text(encoding="utf-8"), source=EXAMPLE.name)


@pytest.fixture(scope="module")
def table(config):
    return QueueTable(config, "gridlab")


def test_it_loads_without_a_notice(config):
    assert config.notices == ()
    assert list(config.tree.sites) == [NORTH, SOUTH, EAST]


def test_every_queue_is_local_limited_and_complete(config, table):
    for bit in table.queues:
        found = queue_settings(table.params(bit), config.types)
        assert found.backend == "local"
        assert found.max_waiting_jobs > 0
        assert found.max_total_jobs >= found.max_waiting_jobs
        assert found.norm_cpu_seconds >= 600
        assert 1000 <= found.memory_mb <= 8000
        assert found.platforms
        assert found.processors in {1, 2}
        assert found.vos == ("gridlab",)
        assert table.params(bit)["slots"].value >= 1


def test_two_groups_of_one_vo_share_three_to_one(config):
    assert {name: (group.vo, group.share) for name, group in config.groups.items()} == {
        "physics": ("gridlab", 3000.0),
        "bio": ("gridlab", 1000.0),
    }
    assert config.vos == ("gridlab",)


@pytest.mark.parametrize(
    ("requirements", "sites"),
    [
        ({}, {NORTH, SOUTH, EAST}),
        ({"Memory": 3000}, {SOUTH, EAST}),
        ({"Memory": 32000}, {EAST}),
        ({"Memory": 512000}, set()),
        ({"SoftwareTag": ["ROOT-6.30", "ROOT-6.32"]}, {NORTH, EAST}),
        ({"SoftwareTag": ["AppVersion1", "AppVersion2"], "Memory": 4000}, {SOUTH, EAST}),
        ({"SoftwareTag": "AppVersion2"}, {SOUTH, EAST}),
        ({"SoftwareTag": "BLAST-9.99"}, set()),
        ({"CPUModel": "Intel Xeon"}, {NORTH}),
        ({"Tag": "GPU"}, {EAST}),
        ({"Platform": "x86_64-el9"}, {NORTH}),
        ({"ScratchSpace": "50 GB"}, {EAST}),
        ({"Internet": True}, {NORTH}),
        ({"Python": "3.9"}, {EAST}),
        ({"CPUTime": "12 h"}, {SOUTH}),
    ],
)
def test_the_queues_of_each_job(table, requirements, sites):
    assert set(table.sites(eligible_mask(table, requirements))) == sites


def test_the_overlays_of_the_vo_make_a_difference(config):
    wanted = {"ScratchSpace": 10}
    assert eligible(config, wanted, "gridlab")
    assert eligible(config, wanted) == {}


def test_other_vos_have_no_access(config):
    assert eligible(config, vo="strangers") == {}
