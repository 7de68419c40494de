"""Why a pilot got nothing: the answers of `GET /v1/pilots/{pilot}/why`."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.vocabulary import FreeBy, PilotState, PilotVerdict
from lodesman.answers.why_jobs import Age


class RuledOut(Struct):
    """How many task queues one criterion rules out, whatever the others say."""

    criterion: str
    task_queues: int


class Asked(Struct):
    """What would do instead, and for how many task queues."""

    value: int | str
    task_queues: int


class ChangeOfResource(Struct):
    """How a resource falls short. Of a number each option admits its own task queues and those of the ones before it."""

    criterion: str
    offered: int | list[str]
    options: list[Asked]


class ExampleTaskQueue(Struct):
    """A task queue, and all that it has against the resource."""

    task_queue: int
    owner: str
    group: str
    reasons: list[str]


class ResourceRemedy(Struct):
    """Changes of a resource that together admit so many task queues and jobs, the `example` being the fullest."""

    change: list[str]
    text: str
    task_queues: int
    jobs: int
    steps: list[ChangeOfResource]
    example: ExampleTaskQueue


class Work(Struct):
    """Task queues with waiting jobs, of all VOs, held against a resource: those that fit, what rules out the others,
    worst first, and the smallest changes.
    """

    task_queues: int
    jobs: int
    fitting: int
    fitting_jobs: int
    ruled_out_by: list[RuledOut]
    nearest: list[ResourceRemedy]


class FullLimit(Struct):
    """A limit that keeps so many fitting task queues from a pilot."""

    limit: str
    task_queues: int


class GroupDrawn(Struct):
    """A group with fitting task queues, and its share."""

    group: str
    share: float
    task_queues: int


class PilotStep(Struct):
    """One step on the way from a pilot to a job. `holds`: it stands in nobody's way; None: nobody knows.

    `age_seconds`: how old this is, None if unknown. `count`: SubmitPools that its queue serves (submit_pools).
    `task_queues` of its VO have jobs (waiting), `eligible` of them fit (fits). `limits`: those that are full. `groups`:
    among which its next job is drawn (share).
    """

    step: Literal[
        "pilot", "asks", "serves", "offers", "submit_pools", "waiting", "fits", "limits", "share"
    ]  # fmt: skip
    holds: bool | None
    text: str
    age_seconds: Age = UNSET
    count: int | UnsetType = UNSET
    task_queues: int | UnsetType = UNSET
    eligible: int | UnsetType = UNSET
    limits: list[FullLimit] | UnsetType = UNSET
    groups: list[GroupDrawn] | UnsetType = UNSET


class Amounts(Struct):
    """Cores, memory in MB, and seconds of CPU time on the reference machine; None: no limit is known."""

    cores: int | None
    memory_mb: int | None
    norm_cpu_seconds: int | None


class PilotOffer(Struct):
    """The request that its next claim would make: the `whole` of what it offers, what is `free`, and who says so.

    `groups` None: those of every group of its VO; `job_types` None: jobs of every type.
    """

    vo: str
    groups: list[str] | None
    owner: str
    pilot_type: str
    site: str
    ce: str
    queue: str
    platforms: list[str]
    tags: list[str]
    required_tags: list[str]
    job_types: list[str] | None
    submission_pool: str
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    whole: Amounts
    free: Amounts
    free_by: FreeBy


class PilotAsked(Struct):
    """When it last asked and for how many jobs, None if it has not; how long it waits in a long poll, None if not."""

    seconds_ago: float | None
    jobs: int | None
    waits_seconds: float | None


class PilotChances(Struct):
    """What the live index has for it now: task queues with jobs of its VO, elsewhere, those that fit, and by limit those
    that would. Of the SubmitPools that its queue serves some are named.
    """

    task_queues: int
    elsewhere: int
    eligible: int
    limited: dict[str, int]
    submit_pools: int
    first_submit_pools: list[str]


class PilotAges(Struct):
    """Seconds since each fact was true; None: not known."""

    now: float
    task_queues: float
    heard: float | None


class PilotNamed(Struct):
    """Which pilot it is: its place, whom it serves (empty: everybody), and its jobs. `reason`: why it ended;
    `drain_reason`: why it has to leave, where its queue was closed.
    """

    id: int
    stamp: str
    state: PilotState
    standing: Literal["on its way", "idle", "busy", "draining", "ended"]
    reason: str
    drain_reason: str
    site: str
    ce: str
    queue: str
    native_id: str | None
    vo: str
    owner: str
    group: str
    pilot_type: str
    submission_pool: str
    jobs_done: int
    jobs_now: int
    verdict: PilotVerdict
    summary: str
    who: str
    chain: list[PilotStep]


class PilotLives(PilotNamed):
    """Why a live pilot gets nothing, or what it would get, and who can change that."""

    offer: PilotOffer
    asked: PilotAsked
    now: PilotChances
    task_queues: Work
    ages: PilotAges


class PilotEnded(PilotNamed):
    """A pilot that is gone: its chain is empty."""
