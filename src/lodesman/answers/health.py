"""The answer of `GET /health`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


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
