"""What a pilot asks of a site, as an ad."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lodesman.decide.broker.site_choice import request_ad
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.classad import evaluate, parse_expression

KEY = TaskQueueKey(
    owner="ann",
    group="users",
    vo="lab",
    cores=4,
    memory_mb=2000,
    norm_cpu_seconds=3600,
    tags=("gpu",),
    user_priority=3,
)


@dataclass(frozen=True)
class Who:
    private: bool = False
    owner: str = "generic"
    group: str = "pilots"


GENERIC = Who()


def ask(text, key=KEY, who=GENERIC):
    return evaluate(parse_expression(text), request_ad(key, who, submission_pool="Grid"))


def test_it_says_as_whom_and_for_whom_it_runs():
    assert ask('Owner == "generic" && Group == "pilots" && JobOwner == "ann" && JobGroup == "users"') is True
    assert ask('VO == "lab" && PilotType == "generic" && SubmissionPool == "Grid"') is True
    assert (
        ask('Owner == "ann" && PilotType == "private"', who=Who(private=True, owner="ann", group="users"))
        is True
    )


def test_it_says_what_its_jobs_need():
    assert (
        ask('Cpus == 4 && Memory == 2000 && CPUTime == 3600 && member("gpu", Tags) && UserPriority == 3')
        is True
    )
    assert ask("size(Platforms)") == 0


def test_what_the_jobs_do_not_have_is_undefined():
    assert ask("isUndefined(Project) && isUndefined(JobClass)") is True
    said = TaskQueueKey(
        owner="a", group="g", vo="lab", project="atlas", job_class="app", pilot_type="private"
    )
    assert ask('Project == "atlas" && JobClass == "app" && PilotType == "private"', said) is True


def test_every_attribute_is_documented():
    said = {entry.name for entry in request_ad(KEY, Who(), submission_pool="p")}
    written = set(re.findall(r"\b[A-Z]\w+", str(request_ad.__doc__)))
    assert said <= written
