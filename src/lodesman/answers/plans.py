"""The answers of `POST /v1/plan/...`: what would become of a submission, and what other resources or shares would change."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from msgspec import Struct, field

from lodesman.answers.call import ErrorBody
from lodesman.answers.jobs import Notice
from lodesman.answers.nodes import Place, Remark, Value
from lodesman.answers.task_queues import TaskQueueFacts
from lodesman.answers.vocabulary import ClampName
from lodesman.answers.why_jobs import JobExplained, QueuePosition

T = TypeVar("T")
ChangeKind = Literal["added", "removed", "changed"]


class BeforeAfter(Struct, Generic[T]):
    """A value now, and after the change; null: there is none."""

    before: T
    after: T


class Cut(Struct, Generic[T]):
    """The first `rows` of a list, at most as many as were asked for: how many there are, and how many are left out."""

    count: int
    rows: list[T]
    more: int


# --- jobs ------------------------------------------------------------------------------------------------


class JobVerdicts(Struct):
    """The number of jobs of each verdict."""

    never: int
    not_now: int = field(name="not now")
    now: int


class PlannedPosition(QueuePosition):
    """The task queue that the jobs would join, None if it would be `new`; `waiting` counts them, too."""

    id: int | None
    new: bool
    waiting_before: int
    key: TaskQueueFacts


class PlannedCohort(JobExplained):
    """Members that would join one task queue, and why they would wait. `members`: (first, last) of each run of them,
    counted from 0; `more_members` runs are left out.
    """

    members: list[tuple[int, int]]
    more_members: int
    jobs: int
    task_queue: PlannedPosition


class JobPlan(Struct):
    """What would become of a submission of `count` jobs; `refusal`: what it would be refused with, None if it would not.

    `held`: jobs that would be Held. `cohorts`: the worst first; `more_cohorts` are left out. `limits`: none are known.
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


class ChangedValue(BeforeAfter[Value | None]):
    """The value of a parameter, or of a group, before and after."""


class ChangedQueue(Place):
    """A CE queue whose parameters change, by name: for every VO (`vo` is empty), or as one VO sees them."""

    vo: str
    parameters: dict[str, ChangedValue]


class PlannedQueues(Struct):
    """How many CE queues there are before and after, and which come, go and change."""

    before: int
    after: int
    added: Cut[Place]
    removed: Cut[Place]
    changed: Cut[ChangedQueue]


class ChangedGroup(Struct):
    """A group that comes, goes or changes, with the values that change."""

    group: str
    change: ChangeKind
    values: dict[str, ChangedValue]


class ChangedType(Struct):
    """The declaration of a parameter, as it could be written; None: there is none."""

    parameter: str
    change: ChangeKind
    before: str | None
    after: str | None


class GroupPart(Struct):
    """A group with `jobs`: its share, and which part of the starts of its VO it gets while all these compete."""

    vo: str
    group: str
    jobs: int
    share: BeforeAfter[float]
    part: BeforeAfter[float]


class TaskQueuesAndJobs(Struct):
    """A number of task queues, and of their jobs."""

    task_queues: int
    jobs: int


class QueueEffect(Struct):
    """CE queues that can run something: before, after, and how many of them are gained and lost."""

    before: int
    after: int
    gained: int
    lost: int


class AffectedTaskQueue(QueueEffect):
    """A task queue whose CE queues change. `becomes` impossible: its jobs would be Held, and `why`; possible: Held jobs
    would be released. `held`: it is Held now.
    """

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    held: bool
    becomes: Literal["impossible", "possible"] | None
    why: str


class PlannedTaskQueues(Struct):
    """What becomes of the task queues with jobs; `checked`: how many there are. `changed`: the worst first."""

    checked: int
    impossible: TaskQueuesAndJobs
    possible: TaskQueuesAndJobs
    changed: Cut[AffectedTaskQueue]


class AffectedPool(QueueEffect):
    """A SubmitPool whose queues change; `new_id` if it gets another identifier, since declarations change."""

    id: str
    new_id: str | None
    vo: str


class PlannedPools(Struct):
    """What becomes of the SubmitPools; `checked`: how many there are."""

    checked: int
    changed: Cut[AffectedPool]


class PlannedPilots(Struct):
    """Pilots of one iteration: asked, refused by all submission pools, and placed. Chance is the same before and after;
    `expected`: asked on average.
    """

    expected: BeforeAfter[float]
    asked: BeforeAfter[int]
    without_submission_pool: BeforeAfter[int]
    placed: BeforeAfter[int]


class GroupPilots(Struct):
    """Pilots of one iteration for the task queues of one group."""

    vo: str
    group: str
    expected: BeforeAfter[float]
    asked: BeforeAfter[int]
    placed: BeforeAfter[int]


class LimitExample(Struct):
    """A CE queue (SITE/CE/QUEUE) or a task queue where a limit binds, and its arithmetic."""

    name: str
    text: str


class BindingLimit(Struct):
    """A limit that binds before or after: of how many queues or task queues, and how many pilots it takes away there
    all together; a pilot that several queues want counts in each of them.
    """

    limit: ClampName
    of: Literal["queues", "task queues"]
    count: BeforeAfter[int]
    pilots: BeforeAfter[int]
    example: LimitExample


class QueuePilots(Place):
    """A CE queue that gets more or fewer pilots, and how many it would take at most; None: it is not there."""

    pilots: BeforeAfter[int]
    room: BeforeAfter[int | None]


class TaskQueuePilots(Struct):
    """A task queue that gets pilots on one side only, and some of the CE queues (SITE/CE/QUEUE) where they go."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    pilots: int
    queues: list[str]


class TaskQueuesPilots(Cut[TaskQueuePilots]):
    """The ones with most pilots first; `pilots` of all of them together."""

    pilots: int


class PlannedIteration(Struct):
    """What the director would do next, before and after: one iteration each on the jobs and pilots of now.

    `limits` that take most pilots after come first; so do `queues` that gain or lose most. `load_seconds_ago`: the age of
    the oldest load that it goes by, None if there is none. `assumed`: the assumptions, in words.
    """

    pilots: PlannedPilots
    groups: Cut[GroupPilots]
    limits: list[BindingLimit]
    queues: Cut[QueuePilots]
    only_after: TaskQueuesPilots
    only_before: TaskQueuesPilots
    load_seconds_ago: float | None
    assumed: list[str]


class ResourcesPlan(Struct):
    """What other resources would change. `files`: what was read for it; `parts`: the groups with jobs, by VO, the ones
    that gain most first. `director`: what it would do next, None where there is none.
    """

    files: list[str]
    queues: PlannedQueues
    groups: list[ChangedGroup]
    parts: list[GroupPart]
    types: list[ChangedType]
    task_queues: PlannedTaskQueues
    submit_pools: PlannedPools
    director: PlannedIteration | None
    notices: list[Remark]


# --- shares ----------------------------------------------------------------------------------------------


class ChangedShare(BeforeAfter[float]):
    """The share of a group before and after."""

    group: str


class WaitingGroup(Struct):
    """A group with `waiting` jobs and its part of the starts of its VO. `director`: its part of the pilots that are
    sent by priority. `starts_an_hour` at the rate of the last hour; None: nothing of its VO was started then.
    """

    vo: str
    group: str
    waiting: int
    share: BeforeAfter[float]
    part: BeforeAfter[float]
    director: BeforeAfter[float] | None
    starts_an_hour: BeforeAfter[float] | None


class SharedPlaces(Struct):
    """CE queues for which the same groups compete, and the part of the starts that each of them gets there."""

    vo: str
    queues: int
    sites: list[str]
    more_sites: int
    groups: dict[str, BeforeAfter[float]]


class SharesPlan(Struct):
    """What other shares would change: groups with waiting jobs, the ones that gain most first. The named groups
    `without_waiting_jobs` get nothing now, whatever their share.
    """

    changed: list[ChangedShare]
    groups: list[WaitingGroup]
    without_waiting_jobs: list[str]
    places: list[SharedPlaces]
    notices: list[Remark]
