"""The pilot's own file: what the director wrote for this one pilot. A language: text to values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lodesman.client import parse_server
from lodesman.errors import InvalidConfig


@dataclass(frozen=True)
class Options:
    """How this pilot behaves; 0 and the empty text mean: find out.

    life_seconds: from the pilot's start. cpu_scaling_factor: norm_cpu_seconds per cpu_seconds.
    idle_s: leave after so long without a payload. jobs_at_once: at most so many payloads (0: one per core).
    kill_grace_s: between SIGTERM and SIGKILL. join_patience_s: how long to look for a server at the start.
    flush_s: how long results may take at the very end. watch_s: between two looks at the payloads.
    """

    cores: int = 0
    memory_mb: int = 0
    life_seconds: int = 0
    cpu_scaling_factor: float = 1.0
    idle_s: float = 120.0
    heartbeat_s: float = 60.0
    jobs_at_once: int = 0
    platform: str = ""
    kill_grace_s: float = 10.0
    join_patience_s: float = 600.0
    flush_s: float = 10.0
    watch_s: float = 1.0


@dataclass(frozen=True)
class PilotFile:
    """Whom to ask, and as whom. The join token is good once.

    `submit_pools`: what its queue served when it was submitted, as of that pass of the server; None: ask.
    """

    servers: tuple[str, ...]
    join_token: str
    stamp: str
    options: Options
    site: str = ""
    ce: str = ""
    queue: str = ""
    submit_pools: tuple[str, ...] | None = None
    pools_pass: int = 0
    ca_file: str | None = None


def parse_pilot_file(text: str) -> PilotFile:
    """Read the file's JSON text; unknown names are left out. Raises InvalidConfig."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidConfig("The pilot's file is not JSON.") from None
    if not isinstance(record, dict):
        raise InvalidConfig("The pilot's file is not a JSON record.")
    pools = record.get("submit_pools")
    return PilotFile(
        servers=_servers(record),
        join_token=_text(record, "join_token"),
        stamp=_text(record, "stamp"),
        options=_options(record.get("options", {})),
        site=_text(record, "site", ""),
        ce=_text(record, "ce", ""),
        queue=_text(record, "queue", ""),
        submit_pools=None if pools is None else _texts(record, "submit_pools"),
        pools_pass=int(_count(record, "pools_pass")),
        ca_file=_text(record, "ca_file", "") or None,
    )


def _servers(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Addresses where the pilot's tokens stay private (as the command line wants it of its own)."""
    servers = _texts(record, "servers")
    for text in servers:
        server = parse_server(text)
        if not server.is_private:
            raise InvalidConfig(f"The pilot's tokens would travel to {server} in the clear.")
    return servers


def _options(record: Any) -> Options:
    if not isinstance(record, dict):
        raise InvalidConfig("`options` of the pilot's file is not a record.")
    defaults = Options()
    values: dict[str, Any] = {}
    for name in Options.__dataclass_fields__:
        if record.get(name) is not None:
            values[name] = _option(name, record[name], getattr(defaults, name))
    options = Options(**values)
    if options.cpu_scaling_factor <= 0:
        raise InvalidConfig("The option cpu_scaling_factor must be more than 0.")
    return options


def _option(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, str):
        if isinstance(value, str):
            return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return type(default)(value)
    raise InvalidConfig(f"The option {name} cannot be {value!r}.", section="options")


def _count(record: Mapping[str, Any], name: str) -> Any:
    return _option(name, record[name], 0.0) if record.get(name) is not None else 0


def _text(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name, default)
    if not isinstance(value, str) or (default is None and not value):
        # The value is not shown: it may be a token.
        raise InvalidConfig(f"`{name}` of the pilot's file is missing or no text.")
    return value


def _texts(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidConfig(f"`{name}` of the pilot's file is missing or no list of texts.")
    return tuple(value)
