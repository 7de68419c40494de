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
    """One step of an explanation."""

    step: str
    holds: bool | None  # It is not in the way; None: unknown.
    text: str
    age_seconds: _Age = UNSET  # Of its facts.


class Option(Struct, frozen=True):
    """A value that would do instead."""

    value: Value
    queues: int  # In how many CE queues.


class JobChangeStep(Struct, frozen=True):
    """One attribute to change."""

    criterion: str
    text: str
    asked: Value | None
    instead: Value | None  # None: leave the attribute out, or unknown.
    options: list[Option]  # A numeric option admits the queues of those before it, too.


class ExampleQueue(Place, frozen=True):
    """A CE queue."""

    reasons: list[str]  # All that it has against the job.


class JobChange(Struct, frozen=True):
    """A change of a job that would admit CE queues."""

    change: list[str]  # The attributes.
    text: str
    queues: int  # How many it would admit.
    steps: list[JobChangeStep]
    example: ExampleQueue  # One of them.


class QueuesForJob(Struct, frozen=True):
    """The CE queues that can run a job."""

    total: int  # Those open to its VO.
    eligible: int  # Those that can run it.
    ruled_out_by: list[QueuesExcluded]
    nearest: list[JobChange]  # If none can, the smallest changes of the job.


class Holding(Struct, frozen=True):
    """Who holds a job."""

    limit: Literal["held"]
    by: HeldBy  # A user or an administrator, or no queue could run it.
    name: str | None  # Of the user or administrator, if kept.
    reason: str
    seconds: float  # For how long.


class ClosedGate(Struct, frozen=True):
    """A limit that closes eligible CE queues to pilots."""

    gate: str
    text: str
    queues: int
    example: str
    load_seconds_ago: float | None  # The age of the oldest load used there; None: unknown.
    load_source: str | None  # The source of that load; None: unknown.


class JobStep(Step, frozen=True):
    """One step on the way from a job to a pilot."""

    # server: what the server itself fails to do for it.
    step: Literal[
        "class", "server", "access", "requirements", "submit_pool", "site", "site_mask", "platform", "size", "sending",
        "limits", "share", "pilots", "site_gates", "gates",
    ]  # fmt: skip
    # Configured CE queues (access), those that serve its SubmitPool (submit_pool), those that are closed (site_mask),
    # or shut by gates of sites (site_gates).
    queues: int | UnsetType | None = UNSET
    admitting: int | UnsetType = UNSET  # Queues open to its VO (access).
    pool: str | UnsetType = UNSET  # Its SubmitPool (submit_pool).
    ruled_out_by: list[QueuesExcluded] | UnsetType = UNSET  # Of requirements, site, platform, size, sending.
    limits: list[Holding] | UnsetType = UNSET  # What holds it.
    full: list[FullBucket] | UnsetType = UNSET  # Limits without room for it.
    closed: list[ClosedGate] | UnsetType = UNSET  # What closes queues to pilots (gates).
    closings: list[ClosedQueues] | UnsetType = UNSET  # What closes the queues (site_mask).
    more: int | UnsetType = UNSET  # How many closings are left out.


class QueuePosition(Struct, frozen=True):
    """A place among the waiting jobs of a task queue."""

    waiting: int
    ahead: int  # How many of them are before the job.
    more_ahead: bool  # There are others.


class JobPosition(QueuePosition, frozen=True):
    """The task queue of a job, and its position there."""

    id: int  # Of the task queue.


class JobShare(Struct, frozen=True):
    """What the group of a job gets of the job starts."""

    group: str
    share: float  # Of the group.
    of: float  # The sum of the shares of all competing groups.
    part: float | None  # Of the job starts; None: what the others leave.
    groups_waiting: int
    in_its_queues: bool  # Only groups that compete for the same queues count.


class StartEstimate(Struct, frozen=True):
    """In how many seconds a job starts, in 90 % of cases: by the running jobs, or by the last starts."""

    low_seconds: float
    high_seconds: float
    starts: int  # The number of starts of such jobs in the last `seconds`.
    seconds: float  # In which some waited.
    running: int = 0  # The jobs where it can run.
    job_seconds: float | None = None  # What each of these takes.


class JobTurn(Struct, frozen=True):
    """When it is the turn of a job."""

    before: int  # About how many jobs start before it, in all.
    soon: int  # The starts that its task queue gets within a minute.
    slots: int  # Known ones of the queues that can run it.
    free_slots: int  # How many of them are free.
    start: StartEstimate | None  # None: unknown.


class JobPilots(Struct, frozen=True):
    """Live pilots of its VO: usable ones are idle, busy or on their way."""

    live: int
    usable_idle: int
    usable_busy: int
    usable_waiting: int
    draining: int
    silent: int
    shut: int  # On hosts that are shut.
    limited: int  # A limit keeps the job from starting there.
    seen_seconds_ago: float | None
    free_starts: int  # The jobs like it that fit into what is free of usable pilots.
    soon_starts: int  # The jobs like it that fit into pilots that join within a minute.
    unreached: int  # They run and have not reached the server.

    @property
    def any_usable(self) -> bool:
        """One of them will be able to take it."""
        return bool(self.usable_idle or self.usable_busy or self.usable_waiting)


class JobDirector(Struct, frozen=True):
    """The director's last decision for its task queue. An iteration decides nothing if no job waits."""

    decided_seconds_ago: float | None
    iterated_seconds_ago: float | None
    lines: list[str]
    room: int | None  # None: no recent decision.


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
    """What the named CE queue has against the job."""

    eligible: bool
    ruled_out_by: list[str]
    reasons: list[str]
    room: int | None  # For pilots; None if unknown.
    gate: str  # Why there is no room.


class JobWaits(JobExplained, frozen=True):
    """Why a job waits, or is Held."""

    id: int
    state: JobState
    reason: str  # The one given when it came into its state.
    task_queue: JobPosition
    queue: QueueForJob | UnsetType = UNSET


class JobWaitsNot(Struct, frozen=True):
    """The state of a job that does not wait."""

    id: int
    state: JobState
    reason: str
    verdict: None
    summary: str
