"""Why a job waits: the answers of `GET /v1/jobs/{job}/why`, and what a dry run of a submission tells alike."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.places import Criterion, Place, Value
from lodesman.answers.site_mask import ClosingThere
from lodesman.answers.vocabulary import JobState, MainReason

Verdict = Literal["never", "not now", "now"]
Age = float | None | UnsetType


class Option(Struct):
    """A value that would do instead, and in how many CE queues."""

    value: Value
    queues: int


class JobChangeStep(Struct):
    """One attribute to change, in words and as values. `instead` None: leave it out, or nothing is known. A numeric
    option also admits the queues of the options before it.
    """

    criterion: str
    text: str
    asked: Value | None
    instead: Value | None
    options: list[Option]


class ExampleQueue(Place):
    """A CE queue, and all that it has against the job."""

    reasons: list[str]


class JobChange(Struct):
    """Changes of a job that together admit so many CE queues, `example` among them; `change`: of which attributes."""

    change: list[str]
    text: str
    queues: int
    steps: list[JobChangeStep]
    example: ExampleQueue


class QueuesForJob(Struct):
    """Of `total` CE queues open to its VO `eligible` can run a job. If none can: the smallest changes of the job."""

    total: int
    eligible: int
    ruled_out_by: list[Criterion]
    nearest: list[JobChange]


class Holding(Struct):
    """What holds a job: since so many seconds, by a user (of that `name`, where it was kept), or since it is impossible."""

    limit: Literal["held"]
    by: Literal["user", "impossible"]
    name: str | None
    reason: str
    seconds: float


class ClosedGate(Struct):
    """What closes so many of the eligible CE queues to pilots, in one word and in words; `example`: SITE/CE/QUEUE.

    How old the oldest load is that the director went by there, and who told it; None: not known of any.
    """

    gate: str
    text: str
    queues: int
    example: str
    load_seconds_ago: float | None
    load_told_by: str | None


class JobStep(Struct):
    """One step on the way from a job to a pilot. `holds`: it stands in nobody's way; None: nobody knows.

    `age_seconds`: how old this is, None if unknown. `queues`: configured CE queues (access), or those that serve its
    SubmitPool, `pool` (submit_pool), or those that are closed, by these `closings` and so many `more` (site_mask);
    `admitting`: those that its VO may use (access). `ruled_out_by`: requirements,
    site, platform, size, sending. `limits`: what holds it. `closed`: what closes CE queues to pilots (gates).
    """

    step: Literal[
        "class", "access", "requirements", "submit_pool", "site", "site_mask", "platform", "size", "sending", "limits",
        "share", "pilots", "gates",
    ]  # fmt: skip
    holds: bool | None
    text: str
    age_seconds: Age = UNSET
    queues: int | UnsetType | None = UNSET
    admitting: int | UnsetType = UNSET
    pool: str | UnsetType = UNSET
    ruled_out_by: list[Criterion] | UnsetType = UNSET
    limits: list[Holding] | UnsetType = UNSET
    closed: list[ClosedGate] | UnsetType = UNSET
    closings: list[ClosingThere] | UnsetType = UNSET
    more: int | UnsetType = UNSET


class JobPosition(Struct):
    """The task queue of a job: `waiting` jobs, `ahead` of them before it, more than those if `more_ahead`."""

    id: int
    waiting: int
    ahead: int
    more_ahead: bool


class JobShare(Struct):
    """Which `part` of the starts the group gets, with its share of the sum `of` all groups that compete; None: only
    what others leave. `in_its_queues`: only those are counted whose jobs can run where this one can.
    """

    group: str
    share: float
    of: float
    part: float | None
    groups_waiting: int
    in_its_queues: bool


class JobPilots(Struct):
    """Live pilots of its VO; those that could take it are idle, busy or on their way. `silent`, `draining`: they could,
    but are.
    """

    live: int
    usable_idle: int
    usable_busy: int
    usable_waiting: int
    draining: int
    silent: int
    seen_seconds_ago: float | None


class JobDirector(Struct):
    """What the director's last iteration did for its task queue; `room` for pilots in the eligible queues, None if it
    has not decided lately.
    """

    decided_seconds_ago: float | None
    lines: list[str]
    room: int | None


class JobAges(Struct):
    """Seconds since each fact was true; None: not known, or not needed."""

    configuration: float | None
    pilots: float
    groups: float
    submit_pool: float | None
    director: float | None
    load: float | None


class JobExplained(Struct):
    """Why a job waits, in one word and in one sentence, and who can change that; then the whole chain to a pilot."""

    verdict: Verdict
    main_reason: MainReason
    summary: str
    who: str
    chain: list[JobStep]
    queues: QueuesForJob
    share: JobShare
    pilots: JobPilots
    director: JobDirector
    ages: JobAges


class QueueForJob(Place):
    """All that the CE queue asked about has against the job. `room` for pilots, None if nobody knows; `gate`: why there
    is none.
    """

    eligible: bool
    ruled_out_by: list[str]
    reasons: list[str]
    room: int | None
    gate: str


class JobWaits(JobExplained):
    """Why a job waits, or is Held; `reason`: what was said when it came into its state."""

    id: int
    state: JobState
    reason: str
    task_queue: JobPosition
    queue: QueueForJob | UnsetType = UNSET


class JobWaitsNot(Struct):
    """A job that does not wait: what it does."""

    id: int
    state: JobState
    reason: str
    verdict: None
    summary: str
