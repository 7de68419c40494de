"""Answers about pilots, answers to pilots, and files of pilots that people start themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.nodes import Place
from lodesman.wire.requests import OpenSiteBody
from lodesman.wire.vocabulary import PilotState

UNREACHED_SECONDS: Final = 60.0
"""A running pilot reaches its server within this time, or something is in its way."""
NOT_NEEDED: Final = "not needed any more"
"""Why a surplus pilot was cancelled."""


class PilotJoined(Struct, frozen=True):
    """A pilot's number, token and settings. Settings that end in `_s` are in seconds."""

    pilot: int
    stamp: str
    token: str
    lease_s: float
    heartbeat_s: float
    idle_s: float
    sandbox_mb: int  # Limits the output of one job.
    server_time: float
    place: Place
    pools_pass: int  # The pass over the SubmitPools as of which its queue serves them.
    bound_job: int | None  # The only job that it runs; None: any that fits.


class Payload(Struct, frozen=True, omit_defaults=True):
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
    expected_seconds: int = 0  # Of wall time; 0: its user does not say.
    vacate_priority: int = 0  # Higher is kept longer.


class PayloadFile(Struct, frozen=True, omit_defaults=True):
    """A file of the input sandbox."""

    name: str
    url: str  # From where it is fetched.
    sha256: str
    size: int
    unpack: bool  # It is an archive.
    executable: bool = False  # It may be executed.
    modified: int = 0  # Its time of change, in UNIX seconds; 0: not known.


class Limits(Struct, frozen=True):
    """What an attempt may use; 0: no limit."""

    norm_cpu_seconds: int
    cpu_seconds: int
    wall_seconds: int
    memory_mb: int
    output_mb: int


class AttemptWork(Struct, frozen=True):
    """What an attempt runs."""

    spec: Payload
    input: list[PayloadFile]
    limits: Limits
    exclusive: bool  # It must not run longer than the server is heard.


class ClaimedJob(AttemptWork, frozen=True):
    """One attempt handed to a pilot."""

    id: int
    attempt: int
    index: int | UnsetType = UNSET  # Of a member of an array.


class ClaimAnswer(Struct, frozen=True):
    """The jobs that a pilot got."""

    jobs: list[ClaimedJob]
    drain: bool  # It takes no further jobs.


class KillOrder(Struct, frozen=True):
    """A payload to be ended."""

    id: int
    attempt: int
    reason: str


class HeartbeatAnswer(Struct, frozen=True):
    """What a pilot shall end, and how long its lease is."""

    kill: list[KillOrder]
    drain: bool  # It takes no further jobs.
    lease_s: float  # In seconds.
    others_wait: bool | UnsetType = UNSET  # For jobs that this pilot has ahead; it gives some of them back.


class ReportResult(Struct, frozen=True):
    """Whether a report counted."""

    id: int
    attempt: int
    accepted: bool
    reason: str | UnsetType = UNSET  # Why it did not count, or why in an unusual way.


class ReportsAnswer(Struct, frozen=True):
    """What became of reports."""

    results: list[ReportResult]  # One per report, in their order.
    others_wait: bool | UnsetType = UNSET  # As in the answer to a heartbeat.


class StoredPilot(Struct, frozen=True):
    """A pilot."""

    id: int
    stamp: str
    state: PilotState
    vo: str
    owner: str  # '': for all of its VO, like `group`.
    group: str
    pilot_type: str
    submission_pool: str
    site: str
    ce: str
    queue: str
    native_id: str | None
    reason: str  # Why it ended.
    # The jobs that ended in it by themselves, Done or Failed; none that went back or was killed.
    jobs_done: int


class Pilot(StoredPilot, frozen=True):
    """A pilot, with what its batch system said last."""

    task_queue: int | None  # The one that it was sent for.
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    ended_at: float | None
    drain: Literal[0, 1]  # 1: it has to leave.
    backend: str  # The batch system that it was submitted to.
    host: str  # Where it runs; '': not known.
    held_since: float | None  # The batch system holds it since then; None: it does not.
    # When the batch system said so last; of a pilot that has not joined, when first.
    native_seen: float | None
    bound_job: int | None  # The only job that it runs; None: any that fits.


class ListedPilot(Pilot, frozen=True):
    """A pilot with what it runs."""

    node_host: str  # Its host as it says itself; '' if it has not.
    jobs: list[int]  # Those that it runs now.

    def is_unreached(self, now: float) -> bool:
        """Whether it runs, by its batch system, and has not reached the server for too long; not if it has to leave."""
        runs = bool(self.host) and self.joined_at is None and self.ended_at is None and not self.drain
        return runs and self.native_seen is not None and now - self.native_seen >= UNREACHED_SECONDS


class PilotInFull(ListedPilot, frozen=True):
    """A pilot with all that is known of it."""

    drain_reason: str  # Why it has to leave; '' if a user said so.
    node: dict[str, Any]  # What it said of its machine when it joined.


class PilotLog(Struct, frozen=True):
    """The end of what a pilot wrote, as its batch system keeps it."""

    pilot: int
    stamp: str
    backend: str  # The batch system.
    native_id: str
    host: str  # Where it runs or ran.
    text: str  # At most 64 kB.


class Pilots(Page, frozen=True):
    """Pilots, the newest first."""

    pilots: list[ListedPilot]


class PilotsDrained(Struct, frozen=True):
    """How many pilots were ordered to finish their jobs and leave."""

    changed: int


MOST_FILES = 100
_MOST_HOURS = 720


class PilotFilesBody(OpenSiteBody, frozen=True, kw_only=True):
    """A manual queue, by names or by `path`, in which people start pilots."""

    count: Annotated[int, Meta(ge=1, le=MOST_FILES)] = 1  # How many pilots may be started.
    hours: Annotated[float, Meta(gt=0, le=_MOST_HOURS)] = 12.0  # Within which each may join once.
    vo: str = ""  # '': the caller's.


class MadePilot(Struct, frozen=True):
    """One pilot, and its file."""

    id: int
    stamp: str
    content: str  # JSON with a join token that is good once. Whoever has it gets jobs.


class PilotFiles(Place, frozen=True):
    """Pilots that were stored for a queue."""

    vo: str
    pilots: list[MadePilot]  # Each with its own file.
    expires_at: float  # Until when they may join, UNIX seconds.
    servers: list[str]  # Where they join.
    notices: list[str]  # What may keep them from joining.
    program: bytes  # A zipapp, which all of them run.
