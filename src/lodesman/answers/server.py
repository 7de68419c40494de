"""Answers about the server itself: its health, its configuration, its counters."""

from __future__ import annotations

from typing import Literal

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
