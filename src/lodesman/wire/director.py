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
    """The target number of pilots of an iteration, what its policy went by, and the arithmetic, one step a line. `most`: the
    maximum number of pilots for all task queues together, 0: no such limit (of a target above 0).

    `usable_pilots`: those that wait or are idle for one of the waiting jobs. `waiting_pilots`: all usable ones that have not
    started; `running_pilots`: those that run and take jobs.
    """

    policy: TargetPolicy
    value: float
    most: int
    waiting_jobs: int
    running_jobs: int
    usable_pilots: int
    waiting_pilots: int
    running_pilots: int
    arithmetic: list[str]


class DirectorPlan(Struct, frozen=True):
    """Sums and options of every row; `max_cpu` and `lowest_cpu_boost` in seconds on the reference machine."""

    target: float
    priority_sum: float
    waiting_jobs: int
    pilots_per_priority: float
    pilots_per_job: float
    max_cpu: int
    lowest_cpu_boost: int
    extra_fraction: float
    extra_pilots: int


class DirectorRefused(Struct, frozen=True):
    """The number of CE queues that took none of the pilots; some of them (SITE/CE/QUEUE) with the reasons."""

    kind: RefusalKind
    count: int
    examples: dict[str, list[str]]


class DirectorAsk(Struct, frozen=True):
    """Pilots asked for a task queue through a submission pool, and those placed. `private`: for their owner and group
    alone, by the `reason` and the random number drawn, None if none was needed. `account`: the identity with which they are
    submitted, '' for the batch system's own.
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
    account: str = ""


class DirectorNoPool(Struct, frozen=True):
    """Pilots asked for a task queue that no submission pool took: (pool, its answer)."""

    tq_id: int
    asked: int
    tries: list[tuple[str, PoolOutcome]]


class DirectorRoom(Struct, frozen=True):
    """Pilots wanted in a CE queue, their maximum number, what is `left` of it after the placements, its limits, and the load
    in the order of `load_fields`. `slots`: the pilots that run there at once; `others`: those there that are not ours.
    """

    wanted: int
    room: int
    clamps: list[_ClampValues]
    left: int | UnsetType = UNSET
    slots: int | UnsetType | None = UNSET
    others: int | UnsetType | None = UNSET
    load: _LoadValues | UnsetType = UNSET


class DirectorRecord(Struct, frozen=True):
    """One iteration, at `now`. `rows`: the arithmetic of each task queue, in the order of `row_fields`; `left_out` of
    them are not kept.

    `borrowed`: usable pilots sent for another task queue. `aside`: live pilots that count nowhere, by reason. `spare`:
    pilots that no task queue needs; `cancel`: those cancelled now. `placements`: (task queue, CE queue, pilots).
    `rooms`: by CE queue; records of older releases have no loads, nor what is left. `seed`: of the random numbers;
    `options`: the director's own, by name.
    """

    now: float
    target: DirectorTarget
    plan: DirectorPlan
    row_fields: list[str]
    rows: list[_RowValues]
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
    seed: int | UnsetType = UNSET
    options: dict[str, str | int | float | list[str | int]] | UnsetType = UNSET


class DirectorAnswer(Struct, frozen=True):
    """The number of the last iteration, when it was, and its record; None if there is none. Only the task queues of the
    caller's VO.
    """

    iteration: int | None
    at: float | None
    plan: DirectorRecord | None
