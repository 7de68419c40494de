"""The answer of `plan job`: what would become of a submission."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from lodesman.answers.errors import Refusal
from lodesman.answers.jobs import Notice
from lodesman.answers.task_queues import TaskQueueFacts
from lodesman.answers.why_jobs import JobExplained


class JobVerdicts(Struct):
    """So many jobs of each verdict."""

    never: int
    not_now: int = field(name="not now")
    now: int


class PlannedPosition(Struct):
    """The task queue that the jobs would join, None if it would be `new`; `waiting` jobs with them, `ahead` of them
    before theirs, more than those if `more_ahead`.
    """

    id: int | None
    waiting: int
    ahead: int
    more_ahead: bool
    new: bool
    waiting_before: int
    key: TaskQueueFacts


class PlannedCohort(JobExplained):
    """So many members that would join one task queue, and why they would wait. `members`: (first, last) of each run of
    them, counted from 0; so many more runs are left out.
    """

    members: list[tuple[int, int]]
    more_members: int
    jobs: int
    task_queue: PlannedPosition


class JobPlan(Struct):
    """What would become of a submission of so many jobs; `refusal`: what it would be refused with, None if it would not.

    `held`: jobs that would be Held. `cohorts`: the worst first; so many more are left out. `limits`: none are known yet.
    """

    count: int
    group: str
    vo: str
    verdicts: JobVerdicts
    refusal: Refusal | None
    held: int
    cohorts: list[PlannedCohort]
    more_cohorts: int
    limits: Annotated[list[dict[str, Any]], Meta(max_length=0)]
    notices: list[Notice]
