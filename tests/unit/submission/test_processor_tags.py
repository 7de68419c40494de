"""DIRAC's tags of cores: jobs and queues have them by their NumberOfProcessors, as its matcher makes them."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.resources.settings import processor_tags, with_processor_tags, without_processor_tags
from lodesman.decide.submission import JobDraft, optimize
from lodesman.languages.jobs import JobSpec

TEXT = """
[site.A.ce.c.queue.one]
Tag = ["gpu"]
[site.A.ce.c.queue.eight]
NumberOfProcessors = 8
Tag = ["gpu"]
[site.A.ce.c.queue.only]
NumberOfProcessors = 8
RequiredTag = ["MultiProcessor"]
[site.A.ce.c.queue.just-four]
NumberOfProcessors = 8
RequiredTag = ["4Processors"]
"""
WORLD = Policy(load_resources([("s.toml", TEXT)])).vo_config("lab")


def queues(**spec):
    spec = JobSpec(executable="x", norm_cpu_seconds=10, **spec)
    done = optimize(JobDraft(spec=spec, owner="ann", group="g", vo="lab"), WORLD)
    return {one.queue.queue for one in WORLD.offers if not one.reasons(done.key, 0)}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, {"one", "eight"}),
        ({"cores": 4}, {"eight", "only", "just-four"}),
        ({"cores": 8}, {"eight", "only"}),
        ({"cores": 9}, set()),
        ({"tags": ("MultiProcessor",)}, {"eight", "only"}),
        ({"tags": ("8Processors", "gpu")}, {"eight"}),
        ({"tags": ("2Processors",), "cores": 4}, {"eight", "only", "just-four"}),
        ({"tags": ("9Processors",)}, set()),
        ({"tags": ("1Processors",)}, set()),
        ({"tags": ("MultiProcessor",), "cores": 4}, {"eight", "only", "just-four"}),
    ],
)
def test_where_jobs_can_run(spec, found):
    assert queues(**spec) == found


def test_a_queue_of_one_core_cannot_require_several():
    with pytest.raises(InvalidConfig, match="requires MultiProcessor"):
        load_resources([("s.toml", '[site.A.ce.c.queue.q]\nRequiredTag = ["MultiProcessor"]')])
    with pytest.raises(InvalidConfig, match="requires 9Processors"):
        load_resources(
            [("s.toml", '[site.A.ce.c.queue.q]\nNumberOfProcessors = 8\nRequiredTag = ["9Processors"]')]
        )


def test_the_tags_by_themselves():
    assert (processor_tags(1), processor_tags(3)) == ((), ("3Processors", "MultiProcessor"))
    assert with_processor_tags(("a",), 1) == ("a",)
    assert with_processor_tags(("a", "2Processors"), 3) == (
        "a",
        "2Processors",
        "MultiProcessor",
        "3Processors",
    )
    assert len(with_processor_tags((), 100_000)) == 1024
    assert without_processor_tags(with_processor_tags(("a", "xProcessors"), 3)) == ("a", "xProcessors")
