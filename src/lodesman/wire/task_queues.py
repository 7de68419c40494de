"""Answers about task queues, why their jobs wait, and the SubmitPools of their Requirements."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from lodesman.wire.call import Page
from lodesman.wire.nodes import Place, Scalar
from lodesman.wire.vocabulary import Kind, MainReason


class TaskQueueFacts(Struct, frozen=True):
    """What the jobs of one task queue have in common; empty lists and texts ask for nothing."""

    owner: str
    group: str
    vo: str
    job_class: str
    variant: str
    project: str
    job_type: str
    user_priority: int
    sites: list[str]
    banned_sites: list[str]
    grid_ces: list[str]
    platforms: list[str]
    tags: list[str]
    pilot_type: str
    force_generic: bool
    submission_pools: list[str]  # Of the director.
    submit_pool: str  # That of its Requirements.
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    pe: str
    consumables: list[str]
    expected_seconds: int
    waits_for_jobs: bool
    at_most: int  # How many jobs of the `submission` run at once; 0: any.
    submission: int


class TaskQueueRow(TaskQueueFacts, frozen=True):
    """A task queue."""

    id: int
    waiting: int
    held: int
    created_at: float
    main_reason: MainReason | None  # None until judged.
    detail: str | None
    since: float | None  # When the reason came to hold; None until judged.


class TaskQueueList(Page, frozen=True):
    """Task queues with jobs, the fullest first."""

    task_queues: list[TaskQueueRow]


class WaitingFor(Struct, frozen=True):
    """Jobs and task queues with one pending reason."""

    reason: MainReason
    verdict: Literal["never", "not now", "now"]
    detail: str  # What stops most.
    task_queues: int
    jobs: int
    since: float  # Of the first of them.


class WaitingReasons(Struct, frozen=True):
    """Why jobs wait."""

    at: float | None  # When that was judged; None: not yet.
    facts_at: float | None  # From when the facts are; None: not yet.
    reasons: list[WaitingFor]  # Most jobs first.


class ServedQueue(Place, frozen=True):
    """A CE queue and the SubmitPools that it serves."""

    pools: list[str]


class PoolsOfQueues(Struct, frozen=True):
    """SubmitPools by CE queue."""

    number: int = field(name="pass")  # The pass as of which they are.
    at: float
    queues: list[ServedQueue]


class Required(Struct, frozen=True):
    """What one Requirement asks of a parameter."""

    kind: Kind  # Of the parameter.
    unit: str  # Of the values.
    wanted: list[Scalar]  # Any of these values will do.


class PoolJobs(Struct, frozen=True):
    """Jobs that need a SubmitPool."""

    waiting: int
    held: int
    running: int


class Pool(Struct, frozen=True):
    """A SubmitPool."""

    id: str
    vo: str
    requirements: dict[str, Required]  # By parameter.
    queues: int | None  # How many serve it; None before a pass.
    created_at: float
    refreshed_at: float | None
    unused_since: float | None  # None: jobs need it.
    jobs: PoolJobs


class PoolPass(Struct, frozen=True):
    """A pass over all SubmitPools."""

    id: int
    at: float
    cause: str
    pools: int
    changed: int
    held: int  # Task queues that were held, since their queues changed.
    released: int  # Task queues that were released, since their queues changed.
    seconds: float


class PoolInFull(Pool, frozen=True):
    """A SubmitPool with the queues that serve it."""

    served_by: list[Place]
    passes: list[PoolPass]  # The last ones, the newest first.


class Pools(Page, frozen=True):
    """SubmitPools, those that most jobs need first."""

    pools: list[Pool]
    total: int  # How many there are.
    last_pass: PoolPass | None
