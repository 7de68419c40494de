"""Answers about pilots, and those that pilots get."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.nodes import Place
from lodesman.answers.vocabulary import PilotState


class PilotJoined(Struct):
    """A pilot's number, token and habits, in seconds; `place`: where it was sent. `pools_pass`: the last pass over
    SubmitPools. `sandbox_mb`: the most that the output of one job may have.
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


class Payload(Struct):
    """What is run, and with what."""

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


class PayloadFile(Struct):
    """A file of the input sandbox, to be fetched from `url`; `unpack`: an archive."""

    name: str
    url: str
    sha256: str
    size: int
    unpack: bool


class Limits(Struct):
    """What an attempt may use; 0: no limit."""

    norm_cpu_seconds: int
    cpu_seconds: int
    wall_seconds: int
    memory_mb: int
    output_mb: int


class Work(Struct):
    """What an attempt runs. `exclusive`: it must not run longer than the server is heard."""

    spec: Payload
    input: list[PayloadFile]
    limits: Limits
    exclusive: bool


class ClaimedJob(Work):
    """One attempt handed to a pilot."""

    id: int
    attempt: int


class ClaimAnswer(Struct):
    """The jobs that a pilot got; `drain`: it shall ask no more."""

    jobs: list[ClaimedJob]
    drain: bool


class KillOrder(Struct):
    """A payload to be ended."""

    id: int
    attempt: int
    reason: str


class HeartbeatAnswer(Struct):
    """What a pilot shall end, and how long its lease is, in seconds."""

    kill: list[KillOrder]
    drain: bool
    lease_s: float


class ReportResult(Struct):
    """Whether a report counted; why not, or why in another way than usual."""

    id: int
    attempt: int
    accepted: bool
    reason: str | UnsetType = UNSET


class ReportsAnswer(Struct):
    """One result per report, in their order."""

    results: list[ReportResult]


class Pilot(Struct):
    """A pilot. `owner` and `group` are empty if it serves everybody of its VO; `drain` 1: it finishes what it runs and
    leaves. `task_queue`: for which it was sent. `reason`: why it ended.
    """

    id: int
    stamp: str
    state: PilotState
    vo: str
    owner: str
    group: str
    pilot_type: str
    submission_pool: str
    task_queue: int | None
    site: str
    ce: str
    queue: str
    native_id: str | None
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    ended_at: float | None
    drain: Literal[0, 1]
    reason: str
    jobs_done: int


class Pilots(Struct):
    """Pilots, the newest first."""

    pilots: list[Pilot]


class PilotsDrained(Struct):
    """How many pilots were told to finish what they run and to leave."""

    changed: int
