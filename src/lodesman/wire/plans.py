"""The answers of `POST /v1/plan/...`: what would become of a submission, and what other resources or shares would change."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from msgspec import Struct, field

from lodesman.wire.call import ErrorBody
from lodesman.wire.director import DirectorRecord
from lodesman.wire.jobs import Notice
from lodesman.wire.nodes import Place, Remark, Value
from lodesman.wire.task_queues import TaskQueueFacts
from lodesman.wire.vocabulary import ClampName, TargetPolicy
from lodesman.wire.why_jobs import JobExplained, QueuePosition

T = TypeVar("T")
ChangeKind = Literal["added", "removed", "changed"]


class BeforeAfter(Struct, Generic[T], frozen=True):
    """A value now, and after the change; null: there is none."""

    before: T
    after: T


class Cut(Struct, Generic[T], frozen=True):
    """The beginning of a list."""

    count: int  # Of the whole list.
    rows: list[T]
    more: int  # How many are left out.


# --- jobs ------------------------------------------------------------------------------------------------


class JobVerdicts(Struct, frozen=True):
    """The number of jobs of each verdict."""

    never: int
    not_now: int = field(name="not now")
    now: int


class PlannedPosition(QueuePosition, frozen=True):
    """The task queue that the jobs would join."""

    id: int | None  # None if `new`.
    new: bool
    waiting_before: int  # How many wait now; `waiting` counts these jobs, too.
    key: TaskQueueFacts


class PlannedCohort(JobExplained, frozen=True):
    """Members that would join one task queue."""

    members: list[tuple[int, int]]  # (first, last) of runs, from 0.
    more_members: int  # How many runs are left out.
    jobs: int
    task_queue: PlannedPosition


class JobPlan(Struct, frozen=True):
    """The plan of a submission."""

    count: int  # How many jobs it has.
    group: str
    vo: str
    verdicts: JobVerdicts
    refusal: ErrorBody | None  # None: it would be taken.
    held: int  # How many of the jobs would be Held.
    cohorts: list[PlannedCohort]  # The worst first.
    more_cohorts: int  # How many are left out.
    limits: list[str]  # None are known.
    notices: list[Notice]


# --- resources -------------------------------------------------------------------------------------------


class ChangedValue(BeforeAfter[Value | None], frozen=True):
    """The value of a parameter, or of a group, before and after."""


class ChangedQueue(Place, frozen=True):
    """A CE queue whose parameters change."""

    vo: str  # '': for every VO.
    parameters: dict[str, ChangedValue]  # By name.


class PlannedQueues(Struct, frozen=True):
    """Which CE queues come, go and change."""

    before: int  # How many there are.
    after: int  # How many there are.
    added: Cut[Place]
    removed: Cut[Place]
    changed: Cut[ChangedQueue]


class ChangedGroup(Struct, frozen=True):
    """A group that comes, goes or changes, with the values that change."""

    group: str
    change: ChangeKind
    values: dict[str, ChangedValue]


class ChangedType(Struct, frozen=True):
    """The declaration of a parameter, as it could be written; None: there is none."""

    parameter: str
    change: ChangeKind
    before: str | None
    after: str | None


class GroupPart(Struct, frozen=True):
    """A group with jobs."""

    vo: str
    group: str
    jobs: int
    share: BeforeAfter[float]
    part: BeforeAfter[float]  # Of the job starts of its VO.


class TaskQueuesAndJobs(Struct, frozen=True):
    """A number of task queues, and of their jobs."""

    task_queues: int
    jobs: int


class QueueEffect(Struct, frozen=True):
    """The number of CE queues that can run something."""

    before: int
    after: int
    gained: int
    lost: int


class AffectedTaskQueue(QueueEffect, frozen=True):
    """A task queue whose CE queues change."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    held: bool
    # impossible: its jobs would be Held; possible: they would be released.
    becomes: Literal["impossible", "possible"] | None
    why: str  # Why it is impossible.


class PlannedTaskQueues(Struct, frozen=True):
    """The effect on the task queues with jobs."""

    checked: int  # How many task queues exist.
    impossible: TaskQueuesAndJobs
    possible: TaskQueuesAndJobs
    changed: Cut[AffectedTaskQueue]  # The worst first.


class AffectedPool(QueueEffect, frozen=True):
    """A SubmitPool whose queues change."""

    id: str
    new_id: str | None  # Its identifier under changed declarations.
    vo: str


class PlannedPools(Struct, frozen=True):
    """The effect on the SubmitPools."""

    checked: int  # How many exist.
    changed: Cut[AffectedPool]


class PlannedPilots(Struct, frozen=True):
    """Pilots of one iteration, with the same random numbers before and after."""

    expected: BeforeAfter[float]  # Asked on average.
    asked: BeforeAfter[int]
    without_submission_pool: BeforeAfter[int]
    placed: BeforeAfter[int]


class GroupPilots(Struct, frozen=True):
    """Pilots of one iteration for the task queues of one group."""

    vo: str
    group: str
    expected: BeforeAfter[float]
    asked: BeforeAfter[int]
    placed: BeforeAfter[int]


class LimitExample(Struct, frozen=True):
    """A place where a limit binds."""

    name: str  # A CE queue (SITE/CE/QUEUE) or a task queue.
    text: str  # The arithmetic of the limit there.


class BindingLimit(Struct, frozen=True):
    """A limit that binds."""

    limit: ClampName
    of: Literal["queues", "task queues"]
    count: BeforeAfter[int]  # For how many queues or task queues.
    pilots: BeforeAfter[int]  # That it takes away from them together.
    example: LimitExample


class QueuePilots(Place, frozen=True):
    """A CE queue that gets more or fewer pilots."""

    pilots: BeforeAfter[int]
    room: BeforeAfter[int | None]  # Their maximum number; None: the queue does not exist.


class TaskQueuePilots(Struct, frozen=True):
    """A task queue that gets pilots only before or only after."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    pilots: int
    queues: list[str]  # Some of the CE queues where they go.


class TaskQueuesPilots(Cut[TaskQueuePilots], frozen=True):
    """The task queues with most pilots first."""

    pilots: int  # Of all of them together.


class PlannedIteration(Struct, frozen=True):
    """The next iteration of the director, before and after, on the jobs and pilots of now; largest changes first."""

    pilots: PlannedPilots
    groups: Cut[GroupPilots]
    limits: list[BindingLimit]
    queues: Cut[QueuePilots]
    only_after: TaskQueuesPilots
    only_before: TaskQueuesPilots
    load_seconds_ago: float | None  # The age of the oldest load used; None without any.
    assumed: list[str]  # The assumptions, in words.


class ResourcesPlan(Struct, frozen=True):
    """The effect of other resources."""

    files: list[str]
    queues: PlannedQueues
    groups: list[ChangedGroup]
    parts: list[GroupPart]  # Groups with jobs, by VO, those that gain most first.
    types: list[ChangedType]
    task_queues: PlannedTaskQueues
    submit_pools: PlannedPools
    director: PlannedIteration | None
    notices: list[Remark]


# --- the director ----------------------------------------------------------------------------------------


class PolicyPlan(Struct, frozen=True):
    """One iteration by one policy."""

    policy: TargetPolicy
    asked: int  # How many pilots.
    placed: int | None  # How many pilots; None where they are not placed.
    record: DirectorRecord  # Has some of the task queues and CE queues.


class DirectorPlans(Struct, frozen=True):
    """One iteration of the director by several policies, with the same random numbers."""

    iteration: int | None  # The number of a stored one; None: one of now.
    at: float  # When it was stored, UNIX seconds.
    task_queues: int  # The number of all.
    queues: int  # The number of all.
    plans: list[PolicyPlan]
    assumed: list[str]  # The assumptions, in words.


# --- shares ----------------------------------------------------------------------------------------------


class ChangedShare(BeforeAfter[float], frozen=True):
    """The share of a group before and after."""

    group: str


class WaitingGroup(Struct, frozen=True):
    """A group with waiting jobs."""

    vo: str
    group: str
    waiting: int  # How many jobs.
    share: BeforeAfter[float]
    part: BeforeAfter[float]  # Of the job starts of its VO.
    director: BeforeAfter[float] | None  # Its part of the pilots sent by priority.
    starts_an_hour: BeforeAfter[float] | None  # At the rate of the last hour; None: none.


class SharedPlaces(Struct, frozen=True):
    """CE queues for which the same groups compete."""

    vo: str
    queues: int  # How many.
    sites: list[str]
    more_sites: int
    groups: dict[str, BeforeAfter[float]]  # The part of the starts that each group gets there.


class SharesPlan(Struct, frozen=True):
    """The effect of other shares."""

    changed: list[ChangedShare]
    groups: list[WaitingGroup]  # Those that gain most first.
    # By VO, what private pilots start beside; shares do not change it.
    private_starts_an_hour: dict[str, float]
    without_waiting_jobs: list[str]  # Groups that get nothing now.
    places: list[SharedPlaces]
    notices: list[Remark]
