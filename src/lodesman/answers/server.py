"""Answers about the server itself: its health, its configuration, its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lodesman.answers.nodes import Remark


class ConfigurationInShort(Struct):
    """How old the configuration in use is, and when a change of it was refused for so many faults; None: it was not."""

    loaded_at: float
    age_seconds: float
    refused_at: float | None
    faults: int


class Background(Struct):
    """How the background process is: heard of so many seconds ago, None if not yet; steps of it that fail."""

    standing: Literal["ok", "starting", "failing", "restarting", "silent"]
    age_seconds: float | None
    restarts: int
    failing: list[str]


class Health(Struct):
    """The server takes commands; `degraded`: its background process does not do its part. `time` is the server's,
    `commits` are those since it started.
    """

    status: Literal["ok", "degraded"]
    time: float
    commits: int
    configuration: ConfigurationInShort
    background: Background


class Configuration(Struct):
    """What became of the configuration files. `refused_at` None: what was read at `loaded_at` is what they say now;
    else `faults` tell why they were refused. `at_next_start`: options that changed and count from the next start on.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationState:
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
        return msgspec.convert({**asdict(self), "age_seconds": self._age(now)}, Configuration)

    def _age(self, now: float) -> float:
        return max(0.0, now - self.loaded_at)


class HotMetrics(Struct):
    """What the hot process counts; times in seconds."""

    background_heard_seconds_ago: float
    background_ok: int
    background_restarts_total: int
    configuration_loaded_timestamp_seconds: float
    configuration_refused: int
    configuration_refusals_total: int
    commits_total: int
    commands_total: int
    claims_total: int
    claimed_jobs_total: int
    submitted_jobs_total: int
    pilots_joined: int
