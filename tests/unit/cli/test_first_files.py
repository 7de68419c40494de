"""What `lode init` says of this machine: a first job that asks for memory or a platform can run (ADR 0023)."""

from __future__ import annotations

import pytest

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.pilot.node import describe_node
from lodesman.user.cli.commands.serve import SLOTS, sites_file


@pytest.fixture
def machine(tmp_path):
    """A machine of that memory (kB) and system; None is omitted."""

    def make(total_kb=None, release=None):
        for name, text in (
            ("proc/meminfo", total_kb and f"MemTotal: {total_kb} kB\n"),
            ("etc/os-release", release),
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                (tmp_path / name).write_text(text)
        return tmp_path

    return make


def queue_of(text):
    (offer,) = Policy(load_resources([("sites.toml", text)])).vo_config("local").offers
    return offer


def test_the_memory_is_shared_by_the_pilots(machine):
    offer = queue_of(sites_file(machine(8_192_000, 'ID=debian\nVERSION_ID="12"\n')))
    assert offer.settings.memory_mb == 8_000 // SLOTS
    assert offer.settings.platforms[0].endswith("-debian12")


@pytest.mark.parametrize("release", [None, "", "ID='a\"b\\\\c'\n", "ID=\N{SNOWMAN}\n"])
def test_whatever_the_machine_calls_itself_the_file_can_be_read(machine, release):
    root = machine(None, release)
    offer = queue_of(sites_file(root))
    told = describe_node(cores=1, root=root)
    assert offer.settings.platforms == (told.platform,)
    assert offer.settings.memory_mb is None  # unknown: none is declared, and the file shows how


def test_here_a_job_that_asks_for_this_platform_and_some_memory_can_run():
    text = sites_file()
    offer = queue_of(text)
    key = TaskQueueKey(
        owner="ann", group="users", vo="local", memory_mb=100, platforms=offer.settings.platforms,
        norm_cpu_seconds=86_400,
    )  # fmt: skip
    assert Policy(load_resources([("sites.toml", text)])).vo_config("local").possible_queues(key, 0)
