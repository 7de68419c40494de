"""Answers about task queues, and why their jobs wait."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from lodesman.answers.vocabulary import MainReason


class TaskQueueFacts(Struct):
    """What the jobs of one task queue have in common: whose they are, where they may run and what they ask for.

    Empty lists and texts ask for nothing. `submission_pools`: of the director; `submit_pool`: that of its Requirements.
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
    submission_pools: list[str]
    submit_pool: str
    cores: int
    memory_mb: int
    norm_cpu_seconds: int


class TaskQueueRow(TaskQueueFacts):
    """A task queue with so many jobs that wait, or are Held since nothing can run them. `main_reason` and its `detail`
    hold `since` then; None until they were judged.
    """

    id: int
    waiting: int
    held: int
    created_at: float
    main_reason: MainReason | None
    detail: str | None
    since: float | None


class TaskQueues(Struct):
    """Task queues with jobs, the fullest first."""

    task_queues: list[TaskQueueRow]


class WaitingFor(Struct):
    """Jobs and task queues with one main reason; `detail`: the criterion or the gate that stops most. The first of them
    waits for it `since` then.
    """

    reason: MainReason
    verdict: Literal["never", "not now", "now"]
    detail: str
    task_queues: int
    jobs: int
    since: float


class WaitingReasons(Struct):
    """Why jobs wait, most jobs first, as judged `at` that time from facts of `facts_at`; None: not yet."""

    at: float | None
    facts_at: float | None
    reasons: list[WaitingFor]
