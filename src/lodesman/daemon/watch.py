"""Live reload: the configuration files are read again when they change; a bad change keeps the old one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from lodesman.config import ServerConfig
from lodesman.errors import InvalidConfig

log = logging.getLogger(__name__)


class ConfigWatch:
    """Watches the files of a configuration. `load` reads it anew."""

    def __init__(self, config: ServerConfig, load: Callable[[], ServerConfig]) -> None:
        self._load = load
        self._files = _files(config)
        self._seen = _stamps(self._files)

    def poll(self) -> ServerConfig | None:
        """The new configuration if the files changed and are good, else None."""
        now = _stamps(self._files)
        if now == self._seen:
            return None
        self._seen = now
        try:
            config = self._load()
        except InvalidConfig as fault:
            # What is wrong stands in the fault; a trace would hide it.
            log.error("the changed configuration is not used: %s", fault)  # noqa: TRY400
            return None
        self._files = _files(config)
        self._seen = _stamps(self._files)
        log.info("the configuration was read again")
        return config


def _files(config: ServerConfig) -> tuple[Path, ...]:
    own = () if config.path is None else (config.path,)
    return (*own, *config.resource_files)


def _stamps(files: tuple[Path, ...]) -> tuple[tuple[int, int] | None, ...]:
    """Change time and size of each file; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_size))
    return tuple(found)
