"""The background process: reading, director, local pilots and upkeep.

It ends with the hot process, and may be killed at any time: what it needs is stored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from lodesman.decide.resources import LOCAL
from lodesman.server.config import RefusedConfig, ServerConfig
from lodesman.server.http.reads import ReadApp
from lodesman.server.main import bootstrap
from lodesman.server.main.bootstrap import Load
from lodesman.server.main.config_watch import load_or_kept
from lodesman.server.main.data_folder import socket_path
from lodesman.server.main.log_lines import start_logging
from lodesman.server.main.loops import Loop
from lodesman.server.main.parts import BackgroundParts
from lodesman.server.main.process import hide_process, keep_what_was_loaded
from lodesman.server.main.processes import woken_by
from lodesman.server.main.web import OwnServer
from lodesman.server.reads.pilot_files import UnstartedPilots
from lodesman.server.writer.groups import know_shares
from lodesman.wire import inner_calls
from lodesman.wire.service import BackgroundState

log = logging.getLogger(__name__)

_KEEP_PILOT_FILES_SECONDS = 86_400.0
_FIRST_POLL_SECONDS: Final = 10.0
# The least time between two iterations of the director, however much happens.
_GAP_SECONDS: Final = 5.0
_GAP_OF_REFRESHES: Final = 0.5
_GAP_OF_ORDERS: Final = 0.1
# Between two looks at local pilots that have all ended; new ones are told.
_LOCAL_REST: Final = 5.0


class BackgroundProcess:
    """The parts of the process at work: its loops, and its answers to readers."""

    def __init__(self, config: ServerConfig, load: Load, *, refused: RefusedConfig | None = None) -> None:
        self.parts = BackgroundParts(config, load, refused=refused)
        for loop in self._loops():
            self.parts.loops.add(loop)

    async def run(self) -> None:
        """Serve and work until SIGTERM, or until the hot process is gone."""
        keep_what_was_loaded()
        parts = self.parts
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_reader(sys.stdin.fileno(), partial(self._hear, stop))
        reads = OwnServer(ReadApp(parts.side), socket_path(parts.config))
        serving = asyncio.create_task(reads.serve())
        serving.add_done_callback(lambda _: stop.set())
        try:
            await parts.loops.run(stop)
        finally:
            reads.end()
            (ended,) = await asyncio.gather(serving, return_exceptions=True)
            if ended is not None:
                log.error("reading ended with a fault", exc_info=ended)
            await asyncio.to_thread(parts.pools.close)
            await asyncio.to_thread(parts.side.site_tests.close)
            await asyncio.to_thread(parts.side.verifier.close)
        if parts.config.pilots.stop_at_exit:
            left = await asyncio.gather(
                asyncio.to_thread(parts.local.stop_all, grace_seconds=bootstrap.PILOT_GRACE_SECONDS),
                asyncio.to_thread(parts.backends.end_pilots, parts.reader),
            )
            if any(left):
                log.error("pilots could not be stopped", extra={"stamps": [*chain(*left)]})

    def _hear(self, stop: asyncio.Event) -> None:
        """The end of what the hot process announces is the end of this one."""
        words = os.read(sys.stdin.fileno(), 4_096)
        for name in woken_by(words):
            self.parts.loops.wake(name)
        if not words:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            stop.set()

    def _loops(self) -> list[Loop]:
        parts = self.parts
        unstarted = UnstartedPilots(parts.config.database.reader(), parts.post)
        return [
            Loop("backend", 0.5, self._run_pilots, gap=_GAP_OF_ORDERS, idle=self._local_rest),
            Loop("census", 2.0, lambda: parts.look_at(parts.backends.watches[LOCAL])),
            Loop("director", parts.config.polling_seconds, self._direct, gap=_GAP_SECONDS),
            Loop("cancel", 60.0, parts.cancelling.tick, gap=_GAP_OF_ORDERS),
            Loop("snapshot", 0.5, lambda: parts.side.keeper.refresh(time.time())),
            Loop("reasons", 2.0, lambda: parts.reasons.tick(parts.policy, time.time(), parts.post)),
            Loop("purge", 600.0, lambda: parts.local.purge(time.time() - _KEEP_PILOT_FILES_SECONDS)),
            Loop("retention", 1.0, lambda: parts.retention.tick(time.time()), idle=parts.retention.rest),
            Loop("configuration", bootstrap.CONFIG_SECONDS, self._refresh, gap=_GAP_OF_REFRESHES),
            Loop("hosts", 1.0, lambda: parts.hosts.tick(time.time())),
            Loop("unstarted", 10.0, lambda: unstarted.tick(time.time())),
            Loop("starts", 5.0, parts.failed_starts.write_counted),
            Loop(
                "usage", 1.0, lambda: parts.usage.tick(parts.policy, time.time()),
                gap=_GAP_OF_ORDERS, idle=parts.usage.rest,
            ),
            Loop(
                "accounting", 1.0, lambda: parts.accounting.tick(time.time()),
                idle=lambda: parts.accounting.rest(time.time()),
            ),
            Loop("reconciler", 1.0, parts.reconciler.tick, idle=parts.reconciler.rest),
            Loop("sizes", 1.0, parts.sizes.tick, idle=parts.sizes.rest),
            Loop("alive", 5.0, self._say_alive),
        ]  # fmt: skip

    def _run_pilots(self) -> None:
        self.parts.count_accounts()
        self.parts.local.tick()

    def _local_rest(self) -> float:
        return _LOCAL_REST if self.parts.local.is_idle else 0.0

    def _direct(self) -> None:
        """The first iteration waits for the first loads, but not long."""
        parts = self.parts
        know_shares(parts.director.db, parts.policy, time.time())
        for watch in parts.backends.watches.values():
            watch.polled.wait(_FIRST_POLL_SECONDS)
        parts.director.tick(time.time())

    def _refresh(self) -> None:
        self.parts.reload()
        if self.parts.submit_pools.tick(self.parts.policy, time.time()):
            self.parts.loops.wake_soon("director")  # jobs are bound to pilots by SubmitPools

    def _say_alive(self) -> None:
        parts = self.parts
        left_out, damaged = list(parts.left_out.named()), parts.local.damaged
        parts.post(inner_calls.ALIVE, BackgroundState(dict(parts.loops.failing()), left_out, damaged))


def run_background(load: Load, kept: Path | None = None) -> None:
    """Run until the hot process ends. Raises RefusedConfig, Unavailable.

    `load` reads the configuration, now and when its files change. While they are refused, the texts in `kept` count.
    """
    start_logging("background")
    hide_process()
    config, refused = load_or_kept(load, kept)
    with config.database.usable():
        process = BackgroundProcess(config, load, refused=refused)
    asyncio.run(process.run())
