"""Why a job waits: the answers of `GET /v1/jobs/{job}/why`, which a dry run of a submission shares."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import ClosedQueues, Place, QueuesExcluded, Value
from lodesman.wire.quotas import FullBucket
from lodesman.wire.vocabulary import JobState, MainReason

Verdict = Literal["never", "not now", "now"]
_Age = float | None | UnsetType


class Step(Struct, frozen=True):
    """One step of an explanation. `holds`: it is not in the way; None: unknown. `age_seconds` of its facts."""

    step: str
    holds: bool | None
    text: str
    age_seconds: _Age = UNSET


class Option(Struct, frozen=True):
    """A value that would do instead, and in how many CE queues."""

    value: Value
    queues: int


class JobChangeStep(Struct, frozen=True):
    """One attribute to change; `instead` None: leave it out, or unknown. A numeric option admits those before it, too."""

    criterion: str
    text: str
    asked: Value | None
    instead: Value | None
    options: list[Option]


class ExampleQueue(Place, frozen=True):
    """A CE queue, and all that it has against the job."""

    reasons: list[str]


class JobChange(Struct, frozen=True):
    """A change of these attributes of a job that would admit `queues` CE queues, the `example` among them."""

    change: list[str]
    text: str
    queues: int
    steps: list[JobChangeStep]
    example: ExampleQueue


class QueuesForJob(Struct, frozen=True):
    """Of `total` CE queues open to its VO `eligible` can run a job; if none can, the smallest changes of the job."""

    total: int
    eligible: int
    ruled_out_by: list[QueuesExcluded]
    nearest: list[JobChange]


class Holding(Struct, frozen=True):
    """Who holds a job, for how many seconds: a user or an administrator (`name`, if kept), or no queue could run it."""

    limit: Literal["held"]
    by: HeldBy
    name: str | None
    reason: str
    seconds: float


class ClosedGate(Struct, frozen=True):
    """A limit that closes eligible CE queues to pilots; age and source of the oldest load used there, None: unknown."""

    gate: str
    text: str
    queues: int
    example: str
    load_seconds_ago: float | None
    load_source: str | None


class JobStep(Step, frozen=True):
    """One step on the way from a job to a pilot.

    `queues`: configured CE queues (access), those that serve its SubmitPool, `pool` (submit_pool), those that are
    closed, by these `closings` and `more` (site_mask), or shut by gates of sites (site_gates). `admitting`: queues open to
    its VO (access). `ruled_out_by`:
    requirements, site, platform, size, sending. server: what the server itself fails to do for it.
    `limits`: what holds it; `full`: limits without room for it.
    `closed`: what closes queues to pilots (gates).
    """

    step: Literal[
        "class", "server", "access", "requirements", "submit_pool", "site", "site_mask", "platform", "size", "sending",
        "limits", "share", "pilots", "site_gates", "gates",
    ]  # fmt: skip
    queues: int | UnsetType | None = UNSET
    admitting: int | UnsetType = UNSET
    pool: str | UnsetType = UNSET
    ruled_out_by: list[QueuesExcluded] | UnsetType = UNSET
    limits: list[Holding] | UnsetType = UNSET
    full: list[FullBucket] | UnsetType = UNSET
    closed: list[ClosedGate] | UnsetType = UNSET
    closings: list[ClosedQueues] | UnsetType = UNSET
    more: int | UnsetType = UNSET


class QueuePosition(Struct, frozen=True):
    """`waiting` jobs of a task queue, `ahead` of them before a job, and others if `more_ahead`."""

    waiting: int
    ahead: int
    more_ahead: bool


class JobPosition(QueuePosition, frozen=True):
    """The task queue of a job, and its position there."""

    id: int


class JobShare(Struct, frozen=True):
    """The `part` of the job starts that the group gets, with its share of the sum `of` all competing groups; None: what
    they leave. `in_its_queues`: only groups that compete for the same queues count.
    """

    group: str
    share: float
    of: float
    part: float | None
    groups_waiting: int
    in_its_queues: bool


class StartEstimate(Struct, frozen=True):
    """In how many seconds a job starts, in 90 % of cases: by the `running` jobs where it can run, which take
    `job_seconds` each, or by the number of `starts` of such jobs in the last `seconds` in which some waited.
    """

    low_seconds: float
    high_seconds: float
    starts: int
    seconds: float
    running: int = 0
    job_seconds: float | None = None


class JobTurn(Struct, frozen=True):
    """About how many jobs start `before` it, in all; the starts that its task queue gets within a minute (`soon`); known
    slots of the queues that can run it, and how many are free; when it starts, None: unknown.
    """

    before: int
    soon: int
    slots: int
    free_slots: int
    start: StartEstimate | None


class JobPilots(Struct, frozen=True):
    """Live pilots of its VO: usable ones are idle, busy or on their way; others are `draining` or `silent`, or
    on hosts that are `shut`, or `limited`: a limit keeps the job from starting there, or `unreached`: they run and have not
    reached the server. `free_starts`: the jobs like it that fit into what is free of usable ones; `soon_starts`: into those
    that join within a minute.
    """

    live: int
    usable_idle: int
    usable_busy: int
    usable_waiting: int
    draining: int
    silent: int
    shut: int
    limited: int
    seen_seconds_ago: float | None
    free_starts: int
    soon_starts: int
    unreached: int

    @property
    def any_usable(self) -> bool:
        """Whether one of them will be able to take it."""
        return bool(self.usable_idle or self.usable_busy or self.usable_waiting)


class JobDirector(Struct, frozen=True):
    """The director's last decision for its task queue; `room` None: no recent one. An iteration decides nothing if no job
    waits.
    """

    decided_seconds_ago: float | None
    iterated_seconds_ago: float | None
    lines: list[str]
    room: int | None


class JobAges(Struct, frozen=True):
    """The age of each fact in seconds; None: not known, or not needed."""

    configuration: float | None
    pilots: float
    groups: float
    submit_pool: float | None
    director: float | None
    load: float | None


class JobExplained(Struct, frozen=True):
    """Why a job waits, who can change that, and the whole chain to a pilot."""

    verdict: Verdict
    main_reason: MainReason
    summary: str
    who: str
    chain: list[JobStep]
    queues: QueuesForJob
    share: JobShare
    turn: JobTurn
    pilots: JobPilots
    director: JobDirector
    ages: JobAges


class QueueForJob(Place, frozen=True):
    """What the named CE queue has against the job. `room` for pilots, None if unknown; `gate`: why there is none."""

    eligible: bool
    ruled_out_by: list[str]
    reasons: list[str]
    room: int | None
    gate: str


class JobWaits(JobExplained, frozen=True):
    """Why a job waits, or is Held; `reason`: the one given when it came into its state."""

    id: int
    state: JobState
    reason: str
    task_queue: JobPosition
    queue: QueueForJob | UnsetType = UNSET


class JobWaitsNot(Struct, frozen=True):
    """The state of a job that does not wait."""

    id: int
    state: JobState
    reason: str
    verdict: None
    summary: str
