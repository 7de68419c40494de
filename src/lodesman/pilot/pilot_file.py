"""The pilot's own file: what the server wrote for this one pilot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lodesman.client import parse_server
from lodesman.errors import InvalidConfig, InvalidRequest
from lodesman.pilot.protocol import read_number, read_text, read_texts


@dataclass(frozen=True)
class PilotOptions:
    """How this pilot behaves; 0 and the empty text mean: find out.

    life_seconds: from the pilot's start. cpu_scaling_factor: norm_cpu_seconds per cpu_seconds.
    idle_s: leave after this time without a payload. jobs_at_once: most payloads at a time (0: one per core).
    kill_grace_s: between SIGTERM and SIGKILL. join_patience_s: timeout of the join.
    flush_s: timeout for the last results. watch_s: between two checks of the payloads.
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
    """The servers, the pilot's identity and its options. The join token is good once.

    `submit_pools`: what its queue served in the server's pass `pools_pass`, when it was submitted; None: ask.
    """

    servers: tuple[str, ...]
    join_token: str
    stamp: str
    options: PilotOptions
    site: str = ""
    ce: str = ""
    queue: str = ""
    submit_pools: tuple[str, ...] | None = None
    pools_pass: int = 0
    ca_file: str | None = None


def parse_pilot_file(text: str) -> PilotFile:
    """Read the file's JSON text; unknown names are ignored. Raises InvalidConfig."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidConfig("The pilot's file is not JSON.") from None
    if not isinstance(record, dict):
        raise InvalidConfig("The pilot's file is not a JSON record.")
    try:
        return _pilot_file(record)
    except InvalidRequest as fault:
        raise InvalidConfig(f"The pilot's file: {fault.message}") from None


def _pilot_file(record: Mapping[str, Any]) -> PilotFile:
    pools = record.get("submit_pools")
    return PilotFile(
        servers=_servers(record),
        join_token=_required(record, "join_token"),
        stamp=_required(record, "stamp"),
        options=_options(record.get("options", {})),
        site=read_text(record, "site", ""),
        ce=read_text(record, "ce", ""),
        queue=read_text(record, "queue", ""),
        submit_pools=None if pools is None else read_texts(record, "submit_pools"),
        pools_pass=int(read_number(record, "pools_pass")),
        ca_file=read_text(record, "ca_file", "") or None,
    )


def _servers(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Addresses to which tokens travel encrypted, or on this machine."""
    servers = read_texts(record, "servers")
    for text in servers:
        server = parse_server(text)
        if not server.is_private:
            raise InvalidConfig(f"The pilot's tokens would travel to {server} in the clear.")
    return servers


def _required(record: Mapping[str, Any], name: str) -> str:
    text = read_text(record, name)
    if not text:
        raise InvalidRequest(f"`{name}` is empty.")
    return text


def _options(record: Any) -> PilotOptions:
    if not isinstance(record, dict):
        raise InvalidConfig("`options` of the pilot's file is not a record.")
    values = {
        name: _option(name, record[name], getattr(PilotOptions, name))
        for name in PilotOptions.__dataclass_fields__
        if record.get(name) is not None
    }
    options = PilotOptions(**values)
    if options.cpu_scaling_factor <= 0:
        raise InvalidConfig("The option cpu_scaling_factor must be more than 0.")
    return options


def _option(name: str, value: Any, default: Any) -> Any:
    """A value of the default's type."""
    if isinstance(default, str):
        if isinstance(value, str):
            return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15:
        return type(default)(value)
    raise InvalidConfig(f"The option {name} cannot be {value!r}.", section="options")
