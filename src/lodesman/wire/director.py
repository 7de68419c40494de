"""The last iteration of the director, as `director.record` stores it."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.vocabulary import ClampName, PoolOutcome, RefusalKind, TargetPolicy

# --- the director -------------------------------------------------------------------------------------------------------

# (clamp, pilots before, pilots after, limit, words).
_ClampValues = tuple[ClampName, int, int, int, str]
# In the order of `row_fields`.
_RowValues = tuple[
    int, float, int, int, int, float, float, float, float, int, int, int, int, int, list[_ClampValues]
]  # fmt: skip
# Pilots waiting and running (None: unknown), UNIX seconds, and the source.
_LoadValues = tuple[int | None, int | None, float, str]


class DirectorTarget(Struct, frozen=True):
    """The target number of pilots of an iteration, and what its policy went by."""

    policy: TargetPolicy
    value: float  # The target.
    # The maximum number of pilots for all task queues together; 0: no such limit (of a target above 0).
    most: int
    waiting_jobs: int
    running_jobs: int
    usable_pilots: int  # Those that wait or are idle for one of the waiting jobs.
    waiting_pilots: int  # All usable ones that have not started.
    running_pilots: int  # Those that run and take jobs.
    arithmetic: list[str]  # One step a line.


class DirectorPlan(Struct, frozen=True):
    """Sums and options of every row."""

    target: float
    priority_sum: float
    waiting_jobs: int
    pilots_per_priority: float
    pilots_per_job: float
    max_cpu: int  # In seconds on the reference machine, like `lowest_cpu_boost`.
    lowest_cpu_boost: int
    extra_fraction: float
    extra_pilots: int


class DirectorRefused(Struct, frozen=True):
    """CE queues that took none of the pilots."""

    kind: RefusalKind
    count: int  # The number of these queues.
    examples: dict[str, list[str]]  # Some of them (SITE/CE/QUEUE) with the reasons.


class DirectorAsk(Struct, frozen=True):
    """Pilots asked for a task queue through a submission pool."""

    tq_id: int
    asked: int
    placed: int
    pool: str
    private: bool  # They are for their owner and group alone.
    owner: str
    group: str
    # Why they are private or not.
    reason: Literal["the task queue asks for private pilots", "drawn by PrivatePilotFraction"]
    draw: float | None  # The random number drawn for that; None if none was needed.
    refused: list[DirectorRefused]
    account: str = ""  # The identity with which they are submitted; '' for the batch system's own.


class DirectorNoPool(Struct, frozen=True):
    """Pilots asked for a task queue that no submission pool took."""

    tq_id: int
    asked: int
    tries: list[tuple[str, PoolOutcome]]  # Pools, each with its answer.


class DirectorRoom(Struct, frozen=True):
    """The room for pilots in a CE queue."""

    wanted: int  # How many pilots were.
    room: int  # Their maximum number.
    clamps: list[_ClampValues]  # Its limits.
    left: int | UnsetType = UNSET  # Of the room after the placements.
    slots: int | UnsetType | None = UNSET  # The pilots that run there at once.
    others: int | UnsetType | None = UNSET  # Pilots there that are not ours.
    load: _LoadValues | UnsetType = UNSET  # In the order of `load_fields`.


class DirectorRecord(Struct, frozen=True):
    """One iteration of the director."""

    now: float  # When it was, UNIX seconds.
    target: DirectorTarget
    plan: DirectorPlan
    row_fields: list[str]
    rows: list[_RowValues]  # The arithmetic of each task queue, in the order of `row_fields`.
    left_out: int  # How many rows are not kept.
    borrowed: dict[str, int]  # Usable pilots sent for another task queue.
    aside: dict[str, int]  # Live pilots that count nowhere, by reason.
    spare: int  # Pilots that no task queue needs.
    cancel: list[int]  # Those cancelled now.
    asks: list[DirectorAsk]
    no_pool: list[DirectorNoPool]
    placements: list[tuple[int, str, int]]  # Task queue, CE queue and pilots of each.
    rooms: dict[str, DirectorRoom]  # By CE queue; records of older releases have no loads, nor what is left.
    load_fields: list[str] | UnsetType = UNSET
    seed: int | UnsetType = UNSET  # Of the random numbers.
    # The director's own, by name.
    options: dict[str, str | int | float | list[str | int]] | UnsetType = UNSET


class DirectorAnswer(Struct, frozen=True):
    """The last iteration; None if there is none."""

    iteration: int | None  # Its number.
    at: float | None  # When it was, UNIX seconds.
    plan: DirectorRecord | None  # Its record, with only the task queues of the caller's VO.
