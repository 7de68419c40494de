"""Answers about pilots, answers to pilots, and the last iteration of the director (as `director.record` stores it)."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.nodes import Place
from lodesman.wire.vocabulary import ClampName, PilotState, PoolOutcome, RefusalKind, TargetPolicy

UNREACHED_SECONDS: Final = 60.0
"""A pilot reaches its server within this time once it runs, or something is in its way."""
NOT_NEEDED: Final = "not needed any more"
"""Why a surplus pilot was cancelled."""


class PilotJoined(Struct, frozen=True):
    """A pilot's number, token and settings, in seconds; `sandbox_mb` limits the output of one job. `bound_job`: the only job
    that it runs (None: any that fits).
    """

    pilot: int
    stamp: str
    token: str
    lease_s: float
    heartbeat_s: float
    idle_s: float
    sandbox_mb: int
    server_time: float
    place: Place
    pools_pass: int
    bound_job: int | None


class Payload(Struct, frozen=True, omit_defaults=True):
    """What is run, and with what. `expected_seconds` of wall time, 0: its user does not say; `vacate_priority`: higher is
    kept longer.
    """

    name: str
    executable: str
    arguments: list[str]
    environment: dict[str, str]
    std_input: str
    std_output: str
    std_error: str
    output_sandbox: list[str]
    cores: int
    memory_mb: int
    expected_seconds: int = 0
    vacate_priority: int = 0


class PayloadFile(Struct, frozen=True, omit_defaults=True):
    """A file of the input sandbox, to be fetched from `url`; `unpack`: an archive; `executable`: it may be executed;
    `modified`: its time of change, in UNIX seconds (0: not known).
    """

    name: str
    url: str
    sha256: str
    size: int
    unpack: bool
    executable: bool = False
    modified: int = 0


class Limits(Struct, frozen=True):
    """What an attempt may use; 0: no limit."""

    norm_cpu_seconds: int
    cpu_seconds: int
    wall_seconds: int
    memory_mb: int
    output_mb: int


class AttemptWork(Struct, frozen=True):
    """What an attempt runs. `exclusive`: it must not run longer than the server is heard."""

    spec: Payload
    input: list[PayloadFile]
    limits: Limits
    exclusive: bool


class ClaimedJob(AttemptWork, frozen=True):
    """One attempt handed to a pilot. `index`: of a member of an array."""

    id: int
    attempt: int
    index: int | UnsetType = UNSET


class ClaimAnswer(Struct, frozen=True):
    """The jobs that a pilot got; `drain`: it takes no further jobs."""

    jobs: list[ClaimedJob]
    drain: bool


class KillOrder(Struct, frozen=True):
    """A payload to be ended."""

    id: int
    attempt: int
    reason: str


class HeartbeatAnswer(Struct, frozen=True):
    """What a pilot shall end, and how long its lease is, in seconds. `others_wait`: for jobs that this pilot has ahead; it
    gives some of them back.
    """

    kill: list[KillOrder]
    drain: bool
    lease_s: float
    others_wait: bool | UnsetType = UNSET


class ReportResult(Struct, frozen=True):
    """Whether a report counted; why not, or why in an unusual way."""

    id: int
    attempt: int
    accepted: bool
    reason: str | UnsetType = UNSET


class ReportsAnswer(Struct, frozen=True):
    """One result per report, in their order. `others_wait`: as in the answer to a heartbeat."""

    results: list[ReportResult]
    others_wait: bool | UnsetType = UNSET


class StoredPilot(Struct, frozen=True):
    """A pilot. Empty `owner` and `group`: for all of its VO. `reason`: why it ended. `jobs_done`: the jobs that ended in it
    by themselves, Done or Failed; none that went back or was killed.
    """

    id: int
    stamp: str
    state: PilotState
    vo: str
    owner: str
    group: str
    pilot_type: str
    submission_pool: str
    site: str
    ce: str
    queue: str
    native_id: str | None
    reason: str
    jobs_done: int


class Pilot(StoredPilot, frozen=True):
    """A pilot, sent for `task_queue`. `drain` 1: it has to leave. `backend` is the batch system that it was submitted to.
    That said last that the pilot runs on `host` ('': not known), and holds it since `held_since` (None: does not), at
    `native_seen`: of one that has not joined, first. `bound_job`: the only job that it runs (None: any that fits).
    """

    task_queue: int | None
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    ended_at: float | None
    drain: Literal[0, 1]
    backend: str
    host: str
    held_since: float | None
    native_seen: float | None
    bound_job: int | None


class ListedPilot(Pilot, frozen=True):
    """A pilot with the jobs that it runs now. `node_host`: its host as it says itself, '' if it has not."""

    node_host: str
    jobs: list[int]

    def is_unreached(self, now: float) -> bool:
        """Whether it runs, by its batch system, and has not reached the server for too long; not if it has to leave."""
        runs = bool(self.host) and self.joined_at is None and self.ended_at is None and not self.drain
        return runs and self.native_seen is not None and now - self.native_seen >= UNREACHED_SECONDS


class PilotInFull(ListedPilot, frozen=True):
    """`drain_reason`: why it has to leave, '' if a user said so. `node`: what it said of its machine when it joined."""

    drain_reason: str
    node: dict[str, Any]


class PilotLog(Struct, frozen=True):
    """The end of what a pilot wrote, at most 64 kB, as its batch system `backend` keeps it. `host`: where it runs or ran."""

    pilot: int
    stamp: str
    backend: str
    native_id: str
    host: str
    text: str


class Pilots(Page, frozen=True):
    """Pilots, the newest first."""

    pilots: list[ListedPilot]


class PilotsDrained(Struct, frozen=True):
    """How many pilots were ordered to finish their jobs and leave."""

    changed: int


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
