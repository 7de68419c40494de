"""The last good configuration, kept beside the database: a process that is started while the files are refused uses it.

Only the server's own second process does so. A server that is started by somebody needs files without a fault.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lodesman.config import ServerConfig, Stamps, Texts, Watched
from lodesman.daemon.bootstrap import run_directory, write_secret
from lodesman.errors import InvalidConfig

FILE = "configuration.json"
log = logging.getLogger(__name__)

Load = Callable[..., ServerConfig]  # as `config.load_config`, the file and its overrides given


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the files are refused, and which they were."""

    fault: InvalidConfig
    watched: Watched
    stamps: Stamps


def kept_file(config: ServerConfig) -> Path:
    """Where the texts of the configuration in use are kept."""
    return run_directory(config) / FILE


def keep(file: Path, config: ServerConfig) -> None:
    """Write down the texts of a good configuration; if that fails the log says so, and the older one stays."""
    try:
        write_secret(file, msgspec.json.encode(config.texts).decode())
    except OSError as fault:
        log.warning("the configuration cannot be kept for a restart: %s", fault)


def load_or_kept(load: Load, kept: Path | None) -> tuple[ServerConfig, Refusal | None]:
    """The configuration of the files; if they are refused, the one that is kept, and why. Raises InvalidConfig."""
    looked: list[tuple[Watched, Stamps]] = []
    try:
        return load(looked_at=lambda watched, stamps: looked.append((watched, stamps))), None
    except InvalidConfig as fault:
        texts = None if kept is None else _texts(kept)
        if texts is None:
            raise
        watched, stamps = looked[-1]
        return load(texts=texts), Refusal(fault=fault, watched=watched, stamps=stamps)


def _texts(kept: Path) -> Texts | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(kept.read_bytes(), type=Texts)
    return None
