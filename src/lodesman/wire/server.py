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
    """The age of the configuration in use, and when a change of it was refused for its faults, None: it was not."""

    loaded_at: float
    age_seconds: float
    refused_at: float | None
    faults: int


class BackgroundStatus(Struct, frozen=True):
    """The background process: seconds since it was heard, None if not yet; its failing steps."""

    standing: Literal["ok", "starting", "failing", "restarting", "silent"]
    age_seconds: float | None
    restarts: int
    failing: list[str]


class Health(Struct, frozen=True):
    """The server takes commands; `degraded`: its background process fails, or its database. `commits` since the server
    started. `trouble`: why the database stored nothing when it should last, '' if it did. `warnings`: what keeps pilots
    from starting, or lets strangers into the database, one sentence each; the server itself is well. `faults`: what it
    found wrong in what is stored, and mended, and what it failed to do by a fault of its own, since it started; its log
    names each.

    `local_pilots`: how pilots on its own machine are kept from it, '' without local queues.
    """

    status: Literal["ok", "degraded"]
    time: float
    commits: int
    configuration: ConfigurationInShort
    background: BackgroundStatus
    local_pilots: str = ""
    trouble: str = ""
    warnings: list[str] = []
    faults: list[str] = []


class Configuration(Struct, frozen=True):
    """The state of the configuration files. `refused_at`: when their last change was refused for its `faults`; None: it
    is in use. `at_next_start`: changed options that count from the next start.
    """

    loaded_at: float
    age_seconds: float
    refused_at: float | None
    files: list[str]
    reloads: int
    refusals: int
    faults: list[Remark]
    notices: list[Remark]
    at_next_start: list[str]


class ConfigurationState(Struct, frozen=True, kw_only=True):
    """The state that the answers about the configuration are made of; `faults` and `notices` as `Remark` has them."""

    files: tuple[str, ...] = ()
    resource_files: tuple[str, ...] = ()
    loaded_at: float = 0.0
    reloads: int = 0
    refusals: int = 0
    refused_at: float | None = None
    faults: tuple[Mapping[str, Any], ...] = ()
    notices: tuple[Mapping[str, Any], ...] = ()
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
    """What the hot process counts; times in seconds. `database_ok`: 0 while the database refuses changes."""

    background_heard_seconds_ago: float
    background_ok: int
    background_restarts_total: int
    configuration_loaded_timestamp_seconds: float
    configuration_refused: int
    configuration_refusals_total: int
    database_ok: int
    commits_total: int
    commands_total: int
    claims_total: int
    claimed_jobs_total: int
    submitted_jobs_total: int
    pilots_joined: int
    clock_jumps_total: int


class SiteOutcomes(Struct, frozen=True):
    """The attempts that ended at a site, by outcome, and their CPU time in seconds."""

    site: str
    cpu_seconds: float
    outcomes: dict[str, int]


class GroupClaims(Struct, frozen=True):
    """Job starts of a group, and its share now. `private`: those by private pilots, which serve one group; `compared`: of
    the others those with known competitors (a sample where there are many groups); `target`: how many starts of all
    compared ones its shares of then are worth.
    """

    group: str
    share: float
    claims: int
    private: int
    compared: int
    target: float


class Claims(Struct, frozen=True):
    """The number of job starts of a group while groups with these shares competed; {}: by private pilots; None: not
    recorded.
    """

    group: str
    shares: dict[str, float] | None
    count: int


class Spread(Struct, frozen=True):
    """Quantiles of `count` times, in seconds; None without any."""

    count: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float | None


class Faulty(Struct, frozen=True):
    """The number of jobs that are Held, Failed or Killed for one reason; `id`: the first of them."""

    id: int
    count: int
    state: Literal["Held", "Failed", "Killed"]
    reason: str


class AttemptCounts(Struct, frozen=True):
    """All attempts, their jobs, and attempt numbers given twice among the newest of them: expect 0."""

    attempts: int = field(name="all")
    jobs: int
    same_number_twice: int


class PilotCount(Struct, frozen=True):
    """The number of pilots of a site in a state."""

    site: str
    state: PilotState
    pilots: int


class Usage(Struct, frozen=True):
    """Jobs by state, attempts by site, job starts by group, waiting and running times, failures by reason. `claims`: of the
    shares that were most often in use; `correction` None: shares are not corrected by usage.
    """

    states: dict[str, int]
    sites: list[SiteOutcomes]
    groups: list[GroupClaims]
    claims: list[Claims]
    waiting_seconds: Spread
    running_seconds: Spread
    faulty: list[Faulty]
    attempts: AttemptCounts
    pilots: list[PilotCount]
    correction: ShareCorrection | None = None
