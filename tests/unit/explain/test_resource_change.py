"""What a resource would have to be: each criterion says it in its own words, and what it says would do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.explain.survey import NAMES, change_step
from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.criteria import CRITERIA
from lodesman.decide.matching.request import PRIVATE

KEY = TaskQueueKey(owner="ann", group="g", vo="v")
HERE = ResourceRequest(
    vo="v", groups=("g",), site="A", ce="c1", platforms=("p",), tags=("ssd",), cores=4, memory_mb=2_000
)
BY_NAME = {one.name: one for one in CRITERIA}
POOL = "req1:0123456789abcdef0123456789abcdef"


def test_every_criterion_has_a_word_for_people():
    assert set(NAMES) == set(BY_NAME)
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "changes", "here", "text"),
    [
        ("site", {"sites": ("B", "C")}, {}, "Site -> B or C"),
        ("banned_site", {"banned_sites": ("A", "B")}, {}, "BannedSite other than A"),
        ("ce", {"grid_ces": ("c2",)}, {}, "GridCE -> c2"),
        ("platform", {"platforms": ("q",)}, {}, "Platform -> q"),
        ("platform", {"platforms": ("q",)}, {"platforms": ()}, "Platform -> q"),
        ("tag", {"tags": ("gpu", "ssd")}, {}, "Tag with gpu"),
        ("required_tag", {"tags": ("x",)}, {"required_tags": ("long", "x")}, "RequiredTag without long"),
        ("job_class", {"job_class": "a", "variant": "v"}, {"job_classes": ("NO_JC",)}, "JcList -> ANY_JC or a or a.v"),
        ("job_class", {}, {"job_classes": ("ANY_JC", "app")}, "JcList -> NO_JC"),
        ("job_type", {"job_type": "MC"}, {"job_types": ("User",)}, "JobType -> MC"),
        ("submit_pool", {"submit_pool": POOL}, {"submit_pools": ("a", "b", "c", "d")}, f"SubmitPool -> {POOL[:20]}..."),
        ("submission_pool", {"submission_pools": ("SAM",)}, {}, "SubmissionPool -> SAM"),
        ("pilot_type", {"pilot_type": PRIVATE}, {}, "PilotType -> private"),
        ("owner", {"owner": "bob"}, {"owner": "ann"}, "Owner -> bob"),
        ("group", {"group": "h"}, {}, "OwnerGroup -> h"),
        ("vo", {"vo": "w"}, {}, "VO -> w"),
        ("cores", {"cores": 8}, {}, "NumberOfProcessors 4 -> 8"),
        ("memory", {"memory_mb": 2_001}, {}, "Memory 2000 -> 2001"),
        ("cpu_time", {"norm_cpu_seconds": 60}, {}, "CPUTime 0 -> 60"),
    ],
)  # fmt: skip
def test_each_criterion_says_what_would_do(name, changes, here, text):
    key, request = replace(KEY, **changes), replace(HERE, **here)
    assert not BY_NAME[name].holds(key, request)
    told = change_step(BY_NAME[name], request, [key])
    assert (told.criterion, told.text) == (NAMES[name], text)
    assert [one.task_queues for one in told.options] == [1] * len(told.options)


def test_the_most_wanted_values_come_first_and_not_all_are_listed():
    keys = [replace(KEY, sites=sites) for sites in (("B",), ("C", "D"), ("C", "E"), ("B", "C"), ("F",))]
    told = change_step(BY_NAME["site"], HERE, keys)
    assert [(one.value, one.task_queues) for one in told.options[:2]] == [("C", 3), ("B", 2)]
    assert len(told.options) == 3


def test_many_submit_pools_are_not_all_listed():
    request = replace(HERE, submit_pools=tuple(f"p{n}" for n in range(1_000)))
    told = change_step(BY_NAME["submit_pool"], request, [replace(KEY, submit_pool="x")])
    assert isinstance(told.offered, list)
    assert len(told.offered) == 3


@given(st.lists(st.integers(2_001, 2_050), min_size=1, max_size=30))
def test_of_a_number_each_option_admits_what_it_says(asked):
    told = change_step(BY_NAME["memory"], HERE, [replace(KEY, memory_mb=mb) for mb in asked])
    options = [(one.value, one.task_queues) for one in told.options]
    for value, n in options:
        assert isinstance(value, int)
        better = replace(HERE, memory_mb=value)
        assert n == sum(BY_NAME["memory"].holds(replace(KEY, memory_mb=mb), better) for mb in asked)
    assert options[0][0] == min(asked)
    assert options[-1] == (max(asked), len(asked))
    assert told.text == f"Memory 2000 -> {max(asked)}"
