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
    """The first `rows` of a list of `count`; `more` are left out."""

    count: int
    rows: list[T]
    more: int


# --- jobs ------------------------------------------------------------------------------------------------


class JobVerdicts(Struct, frozen=True):
    """The number of jobs of each verdict."""

    never: int
    not_now: int = field(name="not now")
    now: int


class PlannedPosition(QueuePosition, frozen=True):
    """The task queue that the jobs would join, None if `new`; `waiting` counts them, too."""

    id: int | None
    new: bool
    waiting_before: int
    key: TaskQueueFacts


class PlannedCohort(JobExplained, frozen=True):
    """Members that would join one task queue. `members`: (first, last) of runs, from 0; `more_members` are left out."""

    members: list[tuple[int, int]]
    more_members: int
    jobs: int
    task_queue: PlannedPosition


class JobPlan(Struct, frozen=True):
    """The plan of a submission of `count` jobs. `refusal` None: it would be taken, `held` of them Held. `cohorts`: the
    worst first; `more_cohorts` are left out. `limits`: none are known.
    """

    count: int
    group: str
    vo: str
    verdicts: JobVerdicts
    refusal: ErrorBody | None
    held: int
    cohorts: list[PlannedCohort]
    more_cohorts: int
    limits: list[str]
    notices: list[Notice]


# --- resources -------------------------------------------------------------------------------------------


class ChangedValue(BeforeAfter[Value | None], frozen=True):
    """The value of a parameter, or of a group, before and after."""


class ChangedQueue(Place, frozen=True):
    """A CE queue whose parameters change, by name; `vo` empty: for every VO."""

    vo: str
    parameters: dict[str, ChangedValue]


class PlannedQueues(Struct, frozen=True):
    """How many CE queues there are before and after, and which come, go and change."""

    before: int
    after: int
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
    """A group with `jobs`: its share, and its part of the job starts of its VO."""

    vo: str
    group: str
    jobs: int
    share: BeforeAfter[float]
    part: BeforeAfter[float]


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
    """A task queue whose CE queues change. `becomes` impossible: its jobs would be Held, and `why`; possible: released."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    held: bool
    becomes: Literal["impossible", "possible"] | None
    why: str


class PlannedTaskQueues(Struct, frozen=True):
    """The effect on the task queues with jobs, of which `checked` exist. `changed`: the worst first."""

    checked: int
    impossible: TaskQueuesAndJobs
    possible: TaskQueuesAndJobs
    changed: Cut[AffectedTaskQueue]


class AffectedPool(QueueEffect, frozen=True):
    """A SubmitPool whose queues change; `new_id`: its identifier under changed declarations."""

    id: str
    new_id: str | None
    vo: str


class PlannedPools(Struct, frozen=True):
    """The effect on the SubmitPools, of which `checked` exist."""

    checked: int
    changed: Cut[AffectedPool]


class PlannedPilots(Struct, frozen=True):
    """Pilots of one iteration, with the same random numbers before and after; `expected`: asked on average."""

    expected: BeforeAfter[float]
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
    """A CE queue (SITE/CE/QUEUE) or a task queue where a limit binds, and its arithmetic."""

    name: str
    text: str


class BindingLimit(Struct, frozen=True):
    """A limit that binds: for how many queues or task queues, and the pilots that it takes away from them together."""

    limit: ClampName
    of: Literal["queues", "task queues"]
    count: BeforeAfter[int]
    pilots: BeforeAfter[int]
    example: LimitExample


class QueuePilots(Place, frozen=True):
    """A CE queue that gets more or fewer pilots, and its maximum number; None: it does not exist."""

    pilots: BeforeAfter[int]
    room: BeforeAfter[int | None]


class TaskQueuePilots(Struct, frozen=True):
    """A task queue that gets pilots only before or only after, and some of the CE queues where they go."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    pilots: int
    queues: list[str]


class TaskQueuesPilots(Cut[TaskQueuePilots], frozen=True):
    """The task queues with most pilots first; `pilots` of all of them together."""

    pilots: int


class PlannedIteration(Struct, frozen=True):
    """The next iteration of the director, before and after, on the jobs and pilots of now; largest changes first.
    `load_seconds_ago`: the age of the oldest load used, None without any. `assumed`: the assumptions, in words.
    """

    pilots: PlannedPilots
    groups: Cut[GroupPilots]
    limits: list[BindingLimit]
    queues: Cut[QueuePilots]
    only_after: TaskQueuesPilots
    only_before: TaskQueuesPilots
    load_seconds_ago: float | None
    assumed: list[str]


class ResourcesPlan(Struct, frozen=True):
    """The effect of other resources. `parts`: groups with jobs, by VO, those that gain most first."""

    files: list[str]
    queues: PlannedQueues
    groups: list[ChangedGroup]
    parts: list[GroupPart]
    types: list[ChangedType]
    task_queues: PlannedTaskQueues
    submit_pools: PlannedPools
    director: PlannedIteration | None
    notices: list[Remark]


# --- the director ----------------------------------------------------------------------------------------


class PolicyPlan(Struct, frozen=True):
    """One iteration by one policy: the pilots asked for, and those placed, None where they are not placed. The record has
    some of the task queues and CE queues.
    """

    policy: TargetPolicy
    asked: int
    placed: int | None
    record: DirectorRecord


class DirectorPlans(Struct, frozen=True):
    """One iteration of the director by several policies, with the same random numbers: `iteration`, stored `at` that time,
    or one of now (None). `task_queues`, `queues`: the number of all. `assumed`: the assumptions, in words.
    """

    iteration: int | None
    at: float
    task_queues: int
    queues: int
    plans: list[PolicyPlan]
    assumed: list[str]


# --- shares ----------------------------------------------------------------------------------------------


class ChangedShare(BeforeAfter[float], frozen=True):
    """The share of a group before and after."""

    group: str


class WaitingGroup(Struct, frozen=True):
    """A group with `waiting` jobs, its share, and its part of the job starts of its VO. `director`: its part of the
    pilots sent by priority. `starts_an_hour`: at the rate of the last hour; None: none.
    """

    vo: str
    group: str
    waiting: int
    share: BeforeAfter[float]
    part: BeforeAfter[float]
    director: BeforeAfter[float] | None
    starts_an_hour: BeforeAfter[float] | None


class SharedPlaces(Struct, frozen=True):
    """CE queues for which the same groups compete, and the part of the starts that each of them gets there."""

    vo: str
    queues: int
    sites: list[str]
    more_sites: int
    groups: dict[str, BeforeAfter[float]]


class SharesPlan(Struct, frozen=True):
    """The effect of other shares, groups that gain most first. Groups `without_waiting_jobs` get nothing now.
    `private_starts_an_hour`: by VO, what private pilots start beside; shares do not change it.
    """

    changed: list[ChangedShare]
    groups: list[WaitingGroup]
    private_starts_an_hour: dict[str, float]
    without_waiting_jobs: list[str]
    places: list[SharedPlaces]
    notices: list[Remark]
