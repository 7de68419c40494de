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
    """A value that would do instead, and for how many task queues."""

    value: int | str
    task_queues: int


class ResourceChangeStep(Struct, frozen=True):
    """A value that a resource would have to offer. A numeric option admits the task queues before it, too."""

    criterion: str
    text: str
    offered: int | list[str]
    options: list[ResourceOption]


class ExampleTaskQueue(Struct, frozen=True):
    """A task queue, and all that it has against the resource."""

    task_queue: int
    owner: str
    group: str
    reasons: list[str]


class ResourceChange(Struct, frozen=True):
    """A change of a resource that would admit these task queues and jobs; the `example` is the fullest of them."""

    change: list[str]
    text: str
    task_queues: int
    jobs: int
    steps: list[ResourceChangeStep]
    example: ExampleTaskQueue


class Work(Struct, frozen=True):
    """Task queues with waiting jobs compared with a resource: those that fit, exclusions, the smallest changes."""

    task_queues: int
    jobs: int
    fitting: int
    fitting_jobs: int
    ruled_out_by: list[TaskQueuesExcluded]
    nearest: list[ResourceChange]


class FullLimit(Struct, frozen=True):
    """A limit, and how many fitting task queues it keeps from a pilot."""

    limit: str
    task_queues: int


class GroupDrawn(Struct, frozen=True):
    """A group with fitting task queues, and its share."""

    group: str
    share: float
    task_queues: int


class PilotStep(Step, frozen=True):
    """One step on the way from a pilot to a job.

    `count`: SubmitPools that its queue serves (submit_pools). `task_queues` of its VO have jobs (waiting), `eligible`
    of them fit (fits). `limits`: the full ones. `groups`: among which its next job is drawn (share). `record`: of
    its host, if it is shut (host).
    """

    step: Literal[
        "pilot", "host", "asks", "serves", "offers", "submit_pools", "waiting", "fits", "limits", "share"
    ]
    count: int | UnsetType = UNSET
    task_queues: int | UnsetType = UNSET
    eligible: int | UnsetType = UNSET
    limits: list[FullLimit] | UnsetType = UNSET
    groups: list[GroupDrawn] | UnsetType = UNSET
    record: HostRecord | UnsetType = UNSET


class Amounts(Struct, frozen=True):
    """Cores, memory in MB, and seconds of CPU time on the reference machine; None: no limit is known."""

    cores: int | None
    memory_mb: int | None
    norm_cpu_seconds: int | None


class PilotOffer(Place, frozen=True):
    """The request of its next claim: the `whole` offer, and what is `free`. `groups`, `job_types` None: all; `job_classes`
    None: all, and jobs without a class.
    """

    vo: str
    groups: list[str] | None
    owner: str
    pilot_type: str
    platforms: list[str]
    tags: list[str]
    required_tags: list[str]
    job_types: list[str] | None
    job_classes: list[str] | None
    submission_pool: str
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    whole: Amounts
    free: Amounts
    free_by: FreeBy


class PilotAsked(Struct, frozen=True):
    """When it last asked, for how many jobs; how long it has waited in a long poll. None: it has not."""

    seconds_ago: float | None
    jobs: int | None
    waits_seconds: float | None


class PilotChances(Struct, frozen=True):
    """Its chances now: task queues with jobs of its VO, elsewhere, eligible, `limited` by limit; some SubmitPools."""

    task_queues: int
    elsewhere: int
    eligible: int
    limited: dict[str, int]
    submit_pools: int
    first_submit_pools: list[str]


class PilotAges(Struct, frozen=True):
    """The age of each fact in seconds; None: not known."""

    now: float
    task_queues: float
    heard: float | None


class PilotWhy(StoredPilot, frozen=True):
    """Why a pilot gets nothing, or what it would get, and who can change that. `drain_reason`: why it has to leave."""

    drain_reason: str
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
