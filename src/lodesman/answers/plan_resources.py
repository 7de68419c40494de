"""The answers of `plan resources` and `plan shares`: what another configuration, or other shares, would change."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.places import Place, Remark, Value
from lodesman.answers.vocabulary import ClampName

T = TypeVar("T")
ChangeKind = Literal["added", "removed", "changed"]


class BeforeAfter(Struct, Generic[T]):
    """A value now, and after the change."""

    before: T
    after: T


class _Cut(Struct, Generic[T]):
    count: int
    rows: list[T]
    more: int


class PlannedPlaces(_Cut[Place]):
    """CE queues: how many there are, as many `rows` as were asked for, and how many are left out."""


class ChangedValues(BeforeAfter[Value | None]):
    """The value of a parameter before and after; None: it has none."""


class ChangedQueue(Place):
    """A CE queue whose parameters change, by name: for everybody (`vo` is empty), or as one VO sees them."""

    vo: str
    parameters: dict[str, ChangedValues]


class ChangedQueues(_Cut[ChangedQueue]):
    """Queues that change: how many there are, as many `rows` as were asked for, and how many are left out."""


class PlannedQueues(Struct):
    """How many CE queues there are before and after, and which come, go and change."""

    before: int
    after: int
    added: PlannedPlaces
    removed: PlannedPlaces
    changed: ChangedQueues


class ChangedTexts(BeforeAfter[str | None]):
    """A text before and after."""


class ChangedNumbers(BeforeAfter[float | None]):
    """A number before and after."""


class ChangedFlags(BeforeAfter[bool | None]):
    """A yes or no before and after."""


class GroupValues(Struct):
    """The values of a group that change; None: there is no such group."""

    vo: ChangedTexts | UnsetType = UNSET
    share: ChangedNumbers | UnsetType = UNSET
    job_sharing: ChangedFlags | UnsetType = UNSET
    background: ChangedFlags | UnsetType = UNSET


class ChangedGroup(Struct):
    """A group that comes, goes or changes."""

    group: str
    change: ChangeKind
    values: GroupValues


class Parts(BeforeAfter[float]):
    """Numbers before and after: shares, or parts between 0 and 1."""


class GroupPart(Struct):
    """A group with `jobs`: its share, and which part of the starts of its VO it gets while all these compete."""

    vo: str
    group: str
    jobs: int
    share: Parts
    part: Parts


class ChangedType(Struct):
    """The declaration of a parameter, as it could be written; None: there is none."""

    parameter: str
    change: ChangeKind
    before: str | None
    after: str | None


class TaskQueuesAndJobs(Struct):
    """So many task queues with so many jobs."""

    task_queues: int
    jobs: int


class QueueEffect(Struct):
    """CE queues that can run something: before, after, and how many of them are gained and lost."""

    before: int
    after: int
    gained: int
    lost: int


class AffectedTaskQueue(QueueEffect):
    """A task queue whose CE queues change. `becomes` impossible: its jobs would be Held, `why` says since what;
    possible: those that are would be released. `held`: it is Held now.
    """

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    held: bool
    becomes: Literal["impossible", "possible"] | None
    why: str


class AffectedTaskQueues(_Cut[AffectedTaskQueue]):
    """The worst first: how many there are, as many `rows` as were asked for, and how many are left out."""


class PlannedTaskQueues(Struct):
    """What becomes of the task queues with jobs: so many were looked at."""

    looked_at: int
    impossible: TaskQueuesAndJobs
    possible: TaskQueuesAndJobs
    changed: AffectedTaskQueues


class AffectedPool(QueueEffect):
    """A SubmitPool whose queues change; `new_id` if it gets another identifier, since declarations change."""

    id: str
    new_id: str | None
    vo: str


class AffectedPools(_Cut[AffectedPool]):
    """How many there are, as many `rows` as were asked for, and how many are left out."""


class PlannedPools(Struct):
    """What becomes of the SubmitPools: so many were looked at."""

    looked_at: int
    changed: AffectedPools


class PlannedCounts(BeforeAfter[int]):
    """Numbers of pilots, of queues or of task queues before and after."""


class PlannedRooms(BeforeAfter[int | None]):
    """Pilots that a queue would take at most, before and after; None: it is not there."""


class PlannedPilots(Struct):
    """Pilots of one iteration: those asked, of these those that no submission pool took, and those placed. Chance is
    the same before and after; `expected`: asked on average.
    """

    expected: Parts
    asked: PlannedCounts
    without_submission_pool: PlannedCounts
    placed: PlannedCounts


class GroupPilots(Struct):
    """Pilots of one iteration for the task queues of one group."""

    vo: str
    group: str
    expected: Parts
    asked: PlannedCounts
    placed: PlannedCounts


class GroupsPilots(_Cut[GroupPilots]):
    """By VO and group: how many there are, as many `rows` as were asked for, and how many are left out."""


class LimitExample(Struct):
    """A CE queue (SITE/CE/QUEUE) or a task queue where a limit binds, and its arithmetic."""

    name: str
    text: str


class BindingLimit(Struct):
    """A limit that binds before or after: of how many queues or task queues, and how many pilots it takes away there
    all together; of a pilot that several queues want each of them counts.
    """

    limit: ClampName
    of: Literal["queues", "task queues"]
    count: PlannedCounts
    pilots: PlannedCounts
    example: LimitExample


class QueuePilots(Place):
    """A CE queue that gets more or fewer pilots."""

    pilots: PlannedCounts
    room: PlannedRooms


class QueuesPilots(_Cut[QueuePilots]):
    """Those that gain or lose most first: how many there are, as many `rows` as were asked for, how many are left out."""


class TaskQueuePilots(Struct):
    """A task queue that gets pilots on one side only, and some of the CE queues (SITE/CE/QUEUE) where they go."""

    id: int
    owner: str
    group: str
    vo: str
    jobs: int
    pilots: int
    queues: list[str]


class TaskQueuesPilots(_Cut[TaskQueuePilots]):
    """Those with most pilots first; `pilots` of all of them together."""

    pilots: int


class PlannedIteration(Struct):
    """What the director would do next, before and after: one iteration each on the jobs and pilots of now.

    `limits`: those that take most pilots after come first. `load_seconds_ago`: how old the oldest load is that it goes
    by, None if there is none. `assumed`: what was taken to be so.
    """

    pilots: PlannedPilots
    groups: GroupsPilots
    limits: list[BindingLimit]
    queues: QueuesPilots
    only_after: TaskQueuesPilots
    only_before: TaskQueuesPilots
    load_seconds_ago: float | None
    assumed: list[str]


class ResourcesPlan(Struct):
    """What other resources would change. `files`: what was read for it; `parts`: the groups with jobs, by VO, those
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


class ChangedShare(Struct):
    """The share of a group before and after."""

    group: str
    before: float
    after: float


class WaitingGroup(Struct):
    """A group with `waiting` jobs and its part of the starts of its VO. `director`: its part of the pilots that are
    sent by priority. `starts_an_hour` at the rate of the last hour; None: nothing of its VO was started then.
    """

    vo: str
    group: str
    waiting: int
    share: Parts
    part: Parts
    director: Parts | None
    starts_an_hour: Parts | None


class SharedPlaces(Struct):
    """CE queues for which the same groups compete, and the part of the starts that each of them gets there."""

    vo: str
    queues: int
    sites: list[str]
    more_sites: int
    groups: dict[str, Parts]


class SharesPlan(Struct):
    """What other shares would change: groups with waiting jobs, those that gain most first. Of the groups named,
    `without_waiting_jobs` are those that get nothing now, whatever their share.
    """

    changed: list[ChangedShare]
    groups: list[WaitingGroup]
    without_waiting_jobs: list[str]
    places: list[SharedPlaces]
    notices: list[Remark]
