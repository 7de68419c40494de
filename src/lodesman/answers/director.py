"""The answer of `GET /v1/director`: the last iteration with its arithmetic, as it is stored (`director.record`)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.vocabulary import ClampName, PoolOutcome, RefusalKind

# (clamp, pilots before, pilots after, limit, words).
ClampValues = tuple[ClampName, int, int, int, str]
# In the order of `row_fields`.
RowValues = tuple[
    int, float, int, int, int, float, float, float, float, int, int, int, int, int, list[ClampValues]
]  # fmt: skip
# Pilots waiting and running (None: it could not tell), UNIX seconds, and who told it.
LoadValues = tuple[int | None, int | None, float, str]


class DirectorTarget(Struct):
    """Pilots aimed at: value = base x waiting_factor x running_factor, from the jobs in the system."""

    base: float
    value: float
    waiting_jobs: int
    running_jobs: int
    waiting_factor: float
    running_factor: float


class DirectorPlan(Struct):
    """The sums and options that every row is computed with; `max_cpu` and `lowest_cpu_boost` in seconds on the reference
    machine.
    """

    target: float
    priority_sum: float
    waiting_jobs: int
    pilots_per_priority: float
    pilots_per_job: float
    max_cpu: int
    lowest_cpu_boost: int
    extra_fraction: float
    extra_pilots: int


class DirectorRefused(Struct):
    """So many CE queues that took none of the pilots; some of them with the reasons, by name (SITE/CE/QUEUE)."""

    kind: RefusalKind
    count: int
    examples: dict[str, list[str]]


class DirectorAsk(Struct):
    """Pilots asked for one task queue through a submission pool, and how many were placed. `private`: for their owner
    and group alone, by the `reason` and the random number drawn, None if none was needed.
    """

    tq_id: int
    asked: int
    placed: int
    pool: str
    private: bool
    owner: str
    group: str
    reason: Literal["the task queue asks for private pilots", "drawn by PrivatePilotFraction"]
    draw: float | None
    refused: list[DirectorRefused]


class DirectorNoPool(Struct):
    """Pilots asked for one task queue that no submission pool took: (pool, what it said) of each."""

    tq_id: int
    asked: int
    tries: list[tuple[str, PoolOutcome]]


class DirectorRoom(Struct):
    """Pilots wanted in a CE queue, those that it would take at most, what took some away, and the load that this came
    from, in the order of `load_fields`.
    """

    wanted: int
    room: int
    clamps: list[ClampValues]
    load: LoadValues | UnsetType = UNSET


class DirectorRecord(Struct):
    """One iteration, at `now`. `rows`: the arithmetic of each task queue, its numbers in the order of `row_fields`; of
    very many so many rows and asks are `left_out`.

    `borrowed`: by task queue, usable pilots that were sent for another. `aside`: live pilots that count nowhere, by
    reason. `spare`: pilots that no task queue needs; `cancel`: those to be cancelled now. `placements`: (task queue,
    CE queue, pilots). `rooms`: by CE queue; an older release kept no loads.
    """

    now: float
    target: DirectorTarget
    plan: DirectorPlan
    row_fields: list[str]
    rows: list[RowValues]
    left_out: int
    borrowed: dict[str, int]
    aside: dict[str, int]
    spare: int
    cancel: list[int]
    asks: list[DirectorAsk]
    no_pool: list[DirectorNoPool]
    placements: list[tuple[int, str, int]]
    rooms: dict[str, DirectorRoom]
    load_fields: list[str] | UnsetType = UNSET


class DirectorAnswer(Struct):
    """When the director last decided, and what; None if it never did. Only of the task queues of the caller's VO."""

    at: float | None
    plan: DirectorRecord | None
