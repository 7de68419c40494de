"""Why a pilot got nothing: the answer of `GET /v1/pilots/{pilot}/why`."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.hosts import HostRecord
from lodesman.wire.nodes import Place
from lodesman.wire.pilots import StoredPilot
from lodesman.wire.vocabulary import FreeBy, PilotVerdict
from lodesman.wire.why_jobs import Step


class TaskQueuesExcluded(Struct, frozen=True):
    """How many task queues one criterion excludes, whatever the others say."""

    criterion: str
    task_queues: int


class ResourceOption(Struct, frozen=True):
    """A value that would do instead."""

    value: int | str
    task_queues: int  # For how many.


class ResourceChangeStep(Struct, frozen=True):
    """A value that a resource would have to offer."""

    criterion: str
    text: str
    offered: int | list[str]
    options: list[ResourceOption]  # A numeric option admits the task queues of those before it, too.


class ExampleTaskQueue(Struct, frozen=True):
    """A task queue."""

    task_queue: int
    owner: str
    group: str
    reasons: list[str]  # All that it has against the resource.


class ResourceChange(Struct, frozen=True):
    """A change of a resource that would admit task queues."""

    change: list[str]
    text: str
    task_queues: int  # How many it would admit.
    jobs: int  # How many it would admit.
    steps: list[ResourceChangeStep]
    example: ExampleTaskQueue  # The fullest of the task queues.


class Work(Struct, frozen=True):
    """Task queues with waiting jobs compared with a resource."""

    task_queues: int
    jobs: int
    fitting: int  # Task queues that fit.
    fitting_jobs: int
    ruled_out_by: list[TaskQueuesExcluded]
    nearest: list[ResourceChange]  # The smallest changes.


class FullLimit(Struct, frozen=True):
    """A limit."""

    limit: str
    task_queues: int  # How many fitting ones it keeps from a pilot.


class GroupDrawn(Struct, frozen=True):
    """A group with fitting task queues."""

    group: str
    share: float
    task_queues: int  # How many fit.


class PilotStep(Step, frozen=True):
    """One step on the way from a pilot to a job."""

    step: Literal[
        "pilot", "host", "asks", "serves", "offers", "submit_pools", "waiting", "fits", "limits", "share"
    ]
    count: int | UnsetType = UNSET  # SubmitPools that its queue serves (submit_pools).
    task_queues: int | UnsetType = UNSET  # Those of its VO that have jobs (waiting).
    eligible: int | UnsetType = UNSET  # Those of them that fit (fits).
    limits: list[FullLimit] | UnsetType = UNSET  # The full ones.
    groups: list[GroupDrawn] | UnsetType = UNSET  # Among which its next job is drawn (share).
    record: HostRecord | UnsetType = UNSET  # Of its host, if it is shut (host).


class Amounts(Struct, frozen=True):
    """What a pilot has; None: no limit is known."""

    cores: int | None
    memory_mb: int | None
    norm_cpu_seconds: int | None  # On the reference machine.


class PilotOffer(Place, frozen=True):
    """The request of its next claim."""

    vo: str
    groups: list[str] | None  # None: all.
    owner: str
    pilot_type: str
    platforms: list[str]
    tags: list[str]
    required_tags: list[str]
    job_types: list[str] | None  # None: all.
    job_classes: list[str] | None  # None: all, and jobs without a class.
    submission_pool: str
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    whole: Amounts  # The whole offer.
    free: Amounts  # What is free of it.
    free_by: FreeBy


class PilotAsked(Struct, frozen=True):
    """When it last asked for jobs; None: it has not."""

    seconds_ago: float | None
    jobs: int | None  # For how many.
    waits_seconds: float | None  # How long it has waited in a long poll.


class PilotChances(Struct, frozen=True):
    """Its chances now: task queues with jobs of its VO."""

    task_queues: int
    elsewhere: int  # Those of other VOs.
    eligible: int
    limited: dict[str, int]  # By limit.
    submit_pools: int
    first_submit_pools: list[str]  # Some SubmitPools.


class PilotAges(Struct, frozen=True):
    """The age of each fact in seconds; None: not known."""

    now: float
    task_queues: float
    heard: float | None


class PilotWhy(StoredPilot, frozen=True):
    """Why a pilot gets nothing, or what it would get, and who can change that."""

    drain_reason: str  # Why it has to leave.
    standing: Literal["on its way", "idle", "busy", "draining", "ended"]
    jobs_now: int
    verdict: PilotVerdict
    summary: str
    who: str
    chain: list[PilotStep]
    offer: PilotOffer | UnsetType = UNSET
    asked: PilotAsked | UnsetType = UNSET
    now: PilotChances | UnsetType = UNSET
    task_queues: Work | UnsetType = UNSET
    ages: PilotAges | UnsetType = UNSET
