"""Answers about task queues, why their jobs wait, and the SubmitPools of their Requirements."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from lodesman.wire.call import Page
from lodesman.wire.nodes import Place, Scalar
from lodesman.wire.vocabulary import Kind, MainReason


class TaskQueueFacts(Struct, frozen=True):
    """What the jobs of one task queue have in common; empty lists and texts ask for nothing. `submission_pools`: of the
    director; `submit_pool`: that of its Requirements. `at_most`: how many jobs of the `submission` run at once; 0: any.
    """

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
    submission_pools: list[str]
    submit_pool: str
    cores: int
    memory_mb: int
    norm_cpu_seconds: int
    pe: str
    consumables: list[str]
    expected_seconds: int
    waits_for_jobs: bool
    at_most: int
    submission: int


class TaskQueueRow(TaskQueueFacts, frozen=True):
    """A task queue. `main_reason` and `detail` hold `since` then; None until judged."""

    id: int
    waiting: int
    held: int
    created_at: float
    main_reason: MainReason | None
    detail: str | None
    since: float | None


class TaskQueueList(Page, frozen=True):
    """Task queues with jobs, the fullest first."""

    task_queues: list[TaskQueueRow]


class WaitingFor(Struct, frozen=True):
    """Jobs and task queues with one pending reason, `since` the first of them; `detail`: what stops most."""

    reason: MainReason
    verdict: Literal["never", "not now", "now"]
    detail: str
    task_queues: int
    jobs: int
    since: float


class WaitingReasons(Struct, frozen=True):
    """Why jobs wait, most jobs first, judged `at` that time from facts of `facts_at`; None: not yet."""

    at: float | None
    facts_at: float | None
    reasons: list[WaitingFor]


class ServedQueue(Place, frozen=True):
    """A CE queue and the SubmitPools that it serves."""

    pools: list[str]


class PoolsOfQueues(Struct, frozen=True):
    """SubmitPools by CE queue, as of the pass number `pass`."""

    number: int = field(name="pass")
    at: float
    queues: list[ServedQueue]


class Required(Struct, frozen=True):
    """What one Requirement asks of a parameter of this kind, in `unit`: any of the values `wanted`."""

    kind: Kind
    unit: str
    wanted: list[Scalar]


class PoolJobs(Struct, frozen=True):
    """Jobs that need a SubmitPool."""

    waiting: int
    held: int
    running: int


class Pool(Struct, frozen=True):
    """A SubmitPool, its requirements by parameter, its `queues` (None before a pass). `unused_since` None: jobs need it."""

    id: str
    vo: str
    requirements: dict[str, Required]
    queues: int | None
    created_at: float
    refreshed_at: float | None
    unused_since: float | None
    jobs: PoolJobs


class PoolPass(Struct, frozen=True):
    """A pass over all SubmitPools; task queues `held` and `released`, since their queues changed."""

    id: int
    at: float
    cause: str
    pools: int
    changed: int
    held: int
    released: int
    seconds: float


class PoolInFull(Pool, frozen=True):
    """A SubmitPool with the queues that serve it, and the last passes, the newest first."""

    served_by: list[Place]
    passes: list[PoolPass]


class Pools(Page, frozen=True):
    """SubmitPools, those that most jobs need first, of `total`."""

    pools: list[Pool]
    total: int
    last_pass: PoolPass | None
