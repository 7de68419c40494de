"""Live reload: changed configuration files are read again; a bad change keeps the old configuration, which DATA/run
keeps for a background process that starts meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lodesman.base.errors import LodesmanError
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.config import RefusedConfig, ServerConfig, Texts
from lodesman.server.config.set_up import set_up_notices
from lodesman.server.live.core import Core
from lodesman.server.live.rules import forget_old_usage, use_classes, use_policy
from lodesman.server.main.bootstrap import Load, gate_options
from lodesman.server.main.data_folder import run_directory, write_file
from lodesman.server.store.journal import Change
from lodesman.server.writer.groups import know_shares
from lodesman.server.writer.reoffer import Offers, offer_sessions, set_offers
from lodesman.server.writer.submit_pools import number_queues, set_shares
from lodesman.wire.accounts import AuditNote
from lodesman.wire.server import ConfigurationState

log = logging.getLogger(__name__)

# The rest of these sections is read at the start only.
_TAKEN_IN = frozenset({"server.keep_days", "server.sandbox_quota_mb"})


class ConfigWatch:
    """Watches the files of a configuration."""

    def __init__(
        self,
        config: ServerConfig,
        load: Load,
        *,
        refused: RefusedConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refused`: the files are refused already, and `config` is the last good one."""
        self._load = load
        self._clock = clock
        self._started = config
        self._sources = config.sources
        self.state = _taken_in(ConfigurationState(), config, clock())
        if refused is not None:
            self._refuse(refused)

    def poll(self) -> ServerConfig | None:
        """The new configuration if the files changed and are good."""
        if not self._sources.changed():
            return None
        try:
            config = self._load()
        except RefusedConfig as refused:
            self._refuse(refused)
            return None
        self._sources = config.sources
        waiting = changed_options(self._started, config)
        before = replace(self.state, reloads=self.state.reloads + 1, at_next_start=waiting)
        self.state = _taken_in(before, config, self._clock())
        extra = {"notices": len(self.state.notices), "at_next_start": waiting}
        for notice in (new for new in self.state.notices if new not in before.notices):
            place = {name: notice[name] for name in ("source", "section", "line")}
            log.warning("the configuration: %s", notice["message"], extra=place)
        log.info("the configuration was read again", extra=extra)
        return config

    def _refuse(self, refused: RefusedConfig) -> None:
        # What a refused configuration names is watched, too: a change of one of its files may correct it.
        self._sources = refused.sources
        faults = tuple(refused.data.get("faults", ()))
        refusals, now = self.state.refusals + 1, self._clock()
        self.state = replace(self.state, refusals=refusals, refused_at=now, faults=faults)
        extra = {"faults": faults, "in_use_since": self.state.loaded_at}
        # What is wrong stands in the faults; a trace would hide it.
        log.error("the changed configuration is not used: %s", refused, extra=extra)


class HotConfiguration:
    """Takes what is new in the configuration files into the core."""

    def __init__(
        self, core: Core, watch: ConfigWatch, config: ServerConfig,
        make_policy: Callable[[ServerConfig, Mapping[QueueId, int]], Policy],
    ) -> None:  # fmt: skip
        """`config`: as at the start; `make_policy`: of a configuration and the numbers of its queues."""
        self._core = core
        self._watch = watch
        self._config = config
        self._make_policy = make_policy
        self._changed: ServerConfig | None = None  # not taken in yet
        self._has_offered = False

    async def watch_config(self) -> None:
        """Take in what changed. Raises LodesmanError; it is tried again."""
        before = self._watch.state
        config = await asyncio.to_thread(self._watch.poll)
        self._changed = config or self._changed
        await self._note(before, is_new=config is not None)
        if self._changed is not None:
            await self._take_in(self._changed)
            self._changed = None
        elif not self._has_offered:
            await self.offer_anew()
        await forget_old_usage(self._core)

    async def _note(self, before: ConfigurationState, *, is_new: bool) -> None:
        state = self._watch.state
        files = ", ".join(state.files)
        if is_new:
            await self._core.commands.note([AuditNote("configuration-changed", files)])
        elif state.refusals > before.refusals:
            words = "; ".join(str(fault.get("message", "")) for fault in state.faults)
            await self._core.commands.note([AuditNote("configuration-refused", files, detail=words)])

    async def _take_in(self, config: ServerConfig) -> None:
        core = self._core
        await asyncio.to_thread(keep_texts, kept_file(self._config), config)
        core.limits, core.jsv = config.limits, config.jsv
        core.gates = gate_options(config)
        core.live.queues.packs = config.matching.packs
        core.live.limits = config.limits
        queues = list(config.resources.tree.queue_ids())
        bits = await core.commands.run(Change(number_queues, core.live, queues))
        policy = await asyncio.to_thread(self._make_policy, config, bits)
        if config.shares.corrector != "none":
            policy.set_usage(core.policy.usage)
        know_shares(core.reader, policy, time.time())
        core.principals.unshare(core.policy.sharing_groups() - policy.sharing_groups())
        core.policy = policy
        with contextlib.suppress(LodesmanError):
            await core.commands.run(Change(set_shares, core.live, core.policy.shares()))
            await use_policy(core, policy)
            await use_classes(core, policy.vocabulary, config.job_classes)
        await self.offer_anew(config.resources.vos)

    async def offer_anew(self, vos: Iterable[str] = ()) -> None:
        """Let live pilots offer what their queues are now, tried again if that fails; `vos` will have pilots soon."""
        core = self._core
        used = {*vos, *(session.vo for session in core.sessions.values())}
        offers = await asyncio.to_thread(Offers, core.policy, used)
        self._has_offered = False
        try:
            await core.commands.run(Change(set_offers, core.live, core.sessions, offers))
        except LodesmanError as fault:
            log.warning("pilots do not have the new offers of their queues yet: %s", fault)
            return
        # Those whose join was answered in between.
        offer_sessions(core.sessions.values(), offers)
        self._has_offered = True


def changed_options(old: ServerConfig, new: ServerConfig) -> tuple[str, ...]:
    """The options that differ and that a running server does not take in."""
    changed = [] if old.polling_seconds == new.polling_seconds else ["director.PollingTime"]
    for section in ("server", "pilots", "local", "store", "admin"):
        before, after = msgspec.structs.asdict(getattr(old, section)), getattr(new, section)
        changed += [f"{section}.{name}" for name, value in before.items() if value != getattr(after, name)]
    return tuple(name for name in changed if name not in _TAKEN_IN)


def _taken_in(before: ConfigurationState, config: ServerConfig, now: float) -> ConfigurationState:
    own = () if config.path is None else (config.path,)
    return replace(
        before,
        files=tuple(map(str, (*own, *config.resource_files, *config.native_files))),
        resource_files=tuple(map(str, config.resource_files)),
        loaded_at=now,
        refused_at=None,
        faults=(),
        notices=tuple(notice.as_dict() for notice in (*config.resources.notices, *set_up_notices(config))),
    )


def kept_file(config: ServerConfig) -> Path:
    """The file with the texts of the last good configuration."""
    return run_directory(config) / "configuration.json"


def keep_texts(file: Path, config: ServerConfig) -> None:
    """Store the texts of a good configuration; if that fails the older one stays."""
    try:
        write_file(file, msgspec.json.encode(config.texts).decode())
    except OSError as fault:
        log.warning("the configuration cannot be kept for a restart: %s", fault)


def load_or_kept(load: Load, kept: Path | None) -> tuple[ServerConfig, RefusedConfig | None]:
    """The configuration; if its files are refused, the last good one, and why. Raises RefusedConfig."""
    try:
        return load(), None
    except RefusedConfig as refused:
        if kept is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                return load(texts=msgspec.json.decode(kept.read_bytes(), type=Texts)), refused
        raise
