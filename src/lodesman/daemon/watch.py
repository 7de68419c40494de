"""Live reload: the configuration files are read again when they change; a bad change keeps the old one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from lodesman.commands.configuration import ConfigurationState
from lodesman.config import ServerConfig, Stamps, Watched
from lodesman.daemon.kept import Load, Refusal
from lodesman.errors import InvalidConfig

log = logging.getLogger(__name__)


class ConfigWatch:
    """Watches the files of a configuration. `load` reads it anew; `state` tells what became of it.

    `refused`: the files are refused already, and `config` is the one that was kept.
    """

    def __init__(
        self,
        config: ServerConfig,
        load: Load,
        *,
        refused: Refusal | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._clock = clock
        self._started = config
        self._look(config.watched, config.stamps)
        self.state = _taken(ConfigurationState(), config, clock())
        if refused is not None:
            self._look(refused.watched, refused.stamps)
            self._refuse(refused.fault)

    def _look(self, watched: Watched, stamps: Stamps) -> None:
        self._watched, self._seen = watched, stamps

    def poll(self) -> ServerConfig | None:
        """The new configuration if the files changed and are good, else None."""
        if self._watched.stamps() == self._seen:
            return None
        try:
            # What a refused configuration names is watched from now on: mending one of its files must be noticed.
            config = self._load(looked_at=self._look)
        except InvalidConfig as refused:
            self._refuse(refused)
            return None
        waiting = changed_options(self._started, config)
        before = replace(self.state, reloads=self.state.reloads + 1, at_next_start=waiting)
        self.state = _taken(before, config, self._clock())
        extra = {"notices": len(self.state.notices), "at_next_start": waiting}
        log.info("the configuration was read again", extra=extra)
        return config

    def _refuse(self, refused: InvalidConfig) -> None:
        faults = tuple(refused.data.get("faults", ()))
        refusals, now = self.state.refusals + 1, self._clock()
        self.state = replace(self.state, refusals=refusals, refused_at=now, faults=faults)
        extra = {"faults": faults, "in_use_since": self.state.loaded_at}
        # What is wrong stands in the faults; a trace would hide it.
        log.error("the changed configuration is not used: %s", refused, extra=extra)


# The rest of these sections is read at the start only.
TAKEN_IN = frozenset({"server.keep_days", "server.sandbox_quota_mb"})


def changed_options(old: ServerConfig, new: ServerConfig) -> tuple[str, ...]:
    """The options that differ and that a running server does not take in."""
    found = [] if old.polling_seconds == new.polling_seconds else ["director.PollingTime"]
    for section in ("server", "pilots", "admin"):
        before, after = msgspec.structs.asdict(getattr(old, section)), getattr(new, section)
        found += [f"{section}.{name}" for name, value in before.items() if value != getattr(after, name)]
    return tuple(name for name in found if name not in TAKEN_IN)


def _taken(before: ConfigurationState, config: ServerConfig, now: float) -> ConfigurationState:
    own = () if config.path is None else (config.path,)
    return replace(
        before,
        files=tuple(map(str, (*own, *config.resource_files))),
        resource_files=tuple(map(str, config.resource_files)),
        loaded_at=now,
        refused_at=None,
        faults=(),
        notices=tuple(notice.as_dict() for notice in config.resources.notices),
    )
