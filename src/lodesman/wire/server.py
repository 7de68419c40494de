"""Answers about the server itself: its health, its configuration, its counters, how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from lodesman.wire.groups import ShareCorrection
from lodesman.wire.nodes import Remark
from lodesman.wire.vocabulary import PilotState


class ConfigurationInShort(Struct, frozen=True):
    """The age of the configuration in use."""

    loaded_at: float
    age_seconds: float
    refused_at: float | None  # When a change of it was refused for its faults; None: it was not.
    faults: int  # How many.


class BackgroundStatus(Struct, frozen=True):
    """The background process."""

    standing: Literal["ok", "starting", "failing", "restarting", "silent"]
    age_seconds: float | None  # Since it was heard; None if not yet.
    restarts: int
    failing: list[str]  # Its failing steps.


class Health(Struct, frozen=True):
    """How the server is, which takes commands."""

    status: Literal["ok", "degraded"]  # degraded: its background process fails, or its database.
    time: float
    commits: int  # Since the server started.
    configuration: ConfigurationInShort
    background: BackgroundStatus
    local_pilots: str = ""  # How pilots on its own machine are kept from it; '' without local queues.
    trouble: str = ""  # Why the database stored nothing when it should last; '' if it did.
    # What keeps pilots from starting, or lets strangers into the database, one sentence each; the server itself is
    # well.
    warnings: list[str] = []
    # What the server found wrong in what is stored, and mended, and what it failed to do by a fault of its own, since
    # it started; its log names each.
    faults: list[str] = []


class Configuration(Struct, frozen=True):
    """The state of the configuration files."""

    loaded_at: float
    age_seconds: float
    refused_at: float | None  # When their last change was refused for its `faults`; None: it is in use.
    files: list[str]
    reloads: int
    refusals: int
    faults: list[Remark]
    notices: list[Remark]
    at_next_start: list[str]  # Changed options that count from the next start.


class ConfigurationState(Struct, frozen=True, kw_only=True):
    """The state that the answers about the configuration are made of."""

    files: tuple[str, ...] = ()
    resource_files: tuple[str, ...] = ()
    loaded_at: float = 0.0
    reloads: int = 0
    refusals: int = 0
    refused_at: float | None = None
    faults: tuple[Mapping[str, Any], ...] = ()  # As `Remark` has them.
    notices: tuple[Mapping[str, Any], ...] = ()  # As `Remark` has them.
    at_next_start: tuple[str, ...] = ()

    def in_short(self, now: float) -> ConfigurationInShort:
        """What everybody may know."""
        return ConfigurationInShort(self.loaded_at, self._age(now), self.refused_at, len(self.faults))

    def in_full(self, now: float) -> Configuration:
        """All of it."""
        return msgspec.convert({**msgspec.structs.asdict(self), "age_seconds": self._age(now)}, Configuration)

    def _age(self, now: float) -> float:
        return max(0.0, now - self.loaded_at)


class HotMetrics(Struct, frozen=True):
    """What the hot process counts; times in seconds."""

    background_heard_seconds_ago: float
    background_ok: int
    background_restarts_total: int
    configuration_loaded_timestamp_seconds: float
    configuration_refused: int
    configuration_refusals_total: int
    database_ok: int  # 0 while the database refuses changes.
    commits_total: int
    commands_total: int
    claims_total: int
    claimed_jobs_total: int
    submitted_jobs_total: int
    pilots_joined: int
    clock_jumps_total: int


class SiteOutcomes(Struct, frozen=True):
    """The attempts that ended at a site."""

    site: str
    cpu_seconds: float
    outcomes: dict[str, int]  # How many of each outcome.


class GroupClaims(Struct, frozen=True):
    """Job starts of a group."""

    group: str
    share: float  # Now.
    claims: int  # All job starts.
    private: int  # Those by private pilots, which serve one group.
    compared: int  # Of the others those with known competitors (a sample where there are many groups).
    target: float  # How many starts of all compared ones its shares of then are worth.


class Claims(Struct, frozen=True):
    """The number of job starts of a group while groups with these shares competed."""

    group: str
    shares: dict[str, float] | None  # {}: by private pilots; None: not recorded.
    count: int


class Spread(Struct, frozen=True):
    """Quantiles of some times, in seconds; None without any."""

    count: int  # How many times there are.
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float | None  # The longest.


class Faulty(Struct, frozen=True):
    """The number of jobs that are Held, Failed or Killed for one reason."""

    id: int  # The first of them.
    count: int
    state: Literal["Held", "Failed", "Killed"]
    reason: str


class AttemptCounts(Struct, frozen=True):
    """All attempts and their jobs."""

    attempts: int = field(name="all")  # The number of attempts.
    jobs: int
    same_number_twice: int  # Attempt numbers given twice among the newest attempts: expect 0.


class PilotCount(Struct, frozen=True):
    """The number of pilots of a site in a state."""

    site: str
    state: PilotState
    pilots: int


class Usage(Struct, frozen=True):
    """How the server is used."""

    states: dict[str, int]  # Jobs by state.
    sites: list[SiteOutcomes]  # Attempts by site.
    groups: list[GroupClaims]  # Job starts by group.
    claims: list[Claims]  # Of the shares that were most often in use.
    waiting_seconds: Spread
    running_seconds: Spread
    faulty: list[Faulty]  # Jobs by reason.
    attempts: AttemptCounts
    pilots: list[PilotCount]
    correction: ShareCorrection | None = None  # None: shares are not corrected by usage.
