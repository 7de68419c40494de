"""Answers about pilots, answers to pilots, and files of pilots that people start themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.nodes import Place
from lodesman.wire.requests import OpenSiteBody
from lodesman.wire.vocabulary import PilotState

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


MOST_FILES = 100
_MOST_HOURS = 720


class PilotFilesBody(OpenSiteBody, frozen=True, kw_only=True):
    """A queue, by names or by `path`, and how many pilots of which VO ('': the caller's) may be started there. Each may join
    once, within `hours`.
    """

    count: Annotated[int, Meta(ge=1, le=MOST_FILES)] = 1
    hours: Annotated[float, Meta(gt=0, le=_MOST_HOURS)] = 12.0
    vo: str = ""


class MadePilot(Struct, frozen=True):
    """One pilot: `content` is its own file, JSON with a join token that is good once. Whoever has it gets jobs."""

    id: int
    stamp: str
    content: str


class PilotFiles(Place, frozen=True):
    """Pilots that were stored for a queue, each with its file, and the `program` that all of them run (a zipapp). They join
    at `servers`, until `expires_at` (UNIX seconds). `notices`: what may keep them from it.
    """

    vo: str
    pilots: list[MadePilot]
    expires_at: float
    servers: list[str]
    notices: list[str]
    program: bytes
