"""The hot process: HTTP, index and writer. It starts the background process and keeps it alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from lodesman.base.errors import Unavailable
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.config import ServerConfig
from lodesman.server.engines.isolation import Isolation
from lodesman.server.engines.local import LocalBackend
from lodesman.server.http.hot import HotApp, InnerApp, ask_verifier, forward
from lodesman.server.live.core import Core, PilotTerms
from lodesman.server.live.leases import Leases, look_at_clock, mend_strays, open_due_delays
from lodesman.server.live.pulse import Pulse
from lodesman.server.main import bootstrap
from lodesman.server.main.backends import END_SECONDS, end_pilots
from lodesman.server.main.bootstrap import Load, OpenPort
from lodesman.server.main.config_watch import ConfigWatch, HotConfiguration, keep_texts, kept_file
from lodesman.server.main.data_folder import (
    INNER_SOCKET,
    prepare_data,
    run_directory,
    service_token,
    socket_path,
    write_url,
)
from lodesman.server.main.log_lines import start_logging
from lodesman.server.main.loops import to_mark
from lodesman.server.main.process import (
    check_limits,
    heed_hang_up,
    hide_process,
    keep_what_was_loaded,
    raise_open_files,
)
from lodesman.server.main.processes import RESTART_SECONDS, BackgroundChild, next_rest
from lodesman.server.main.server_note import note_server
from lodesman.server.main.web import OwnServer, Web
from lodesman.server.store import Writer, incarnation
from lodesman.server.store.accounts import count_accounts, groups_by_user
from lodesman.server.store.files import lock_place
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.read.pilots import live_pilots
from lodesman.server.store.sandboxes import note_uploads
from lodesman.server.store.shelf import Shelf
from lodesman.server.writer.groups import know_shares
from lodesman.server.writer.job_classes import ClassRules, load_classes
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.order import end_batch
from lodesman.server.writer.quotas import QuotaRules

log = logging.getLogger(__name__)

_SECOND = 1.0
_LEASE_CHECK_SECONDS = 5.0
_STOP_SECONDS = 20.0
# How long the last start after a fault was put off, for the next one (environment).
_REST = "LODE_SERVER_REST"


def _pilot_terms(config: ServerConfig) -> PilotTerms:
    return PilotTerms(
        lease_seconds=config.pilots.lease_seconds,
        heartbeat_seconds=config.pilots.heartbeat_seconds,
        idle_seconds=config.pilots.idle_seconds,
        sandbox_mb=config.server.sandbox_mb,
    )


class Server:
    """Owns everything of the hot process."""

    def __init__(self, port: OpenPort, *, accepts_new: bool) -> None:
        config = self.config = port.config
        self._child = BackgroundChild(
            port.arguments, kept_file(config), open_files=raise_open_files(),
            at_end=lambda: self.core.background.ended(self.core.ticks()),
        )  # fmt: skip
        self._watch = ConfigWatch(config, port.load)
        writer = self._open(accepts_new=accepts_new)
        keep_texts(kept_file(config), config)
        live = WriterState(writer, rng=random.Random(), now=time.time(), packs=config.matching.packs)
        policy = self._policy(config, live.pools.bits)
        know_shares(writer, policy, time.time())
        live.queues.matcher.lottery.set_shares(policy.shares())
        self._writer, words = writer, policy.vocabulary
        isolation = self._isolate()
        self.core = Core(
            writer=writer,
            live=live,
            policy=policy,
            quotas=QuotaRules(live, quota_sets(writer), words, policy.config.limits, groups_by_user(writer)),
            job_classes=ClassRules(load_classes(writer, words, config.job_classes)),
            terms=_pilot_terms(config),
            at_end=partial(end_batch, live),
            died=self._writer_died,
            configuration=lambda: self._watch.state,
            limits=config.limits,
            shelf=self._shelf,
            gates=bootstrap.gate_options(config),
            jsv=config.jsv,
            verify=lambda body: ask_verifier(self._pulse, service_token(config), body),
            openness=self._openness,
            local_pilots=lambda accounts: "" if isolation is None else isolation.sentence(accounts),
            announce=self._child.announce,
        )
        self._leases = Leases(self.core)
        self._configuration = HotConfiguration(self.core, self._watch, config, self._policy)
        self._seen_reader, self._seen_commits = config.database.reader(), 0
        self._pulse = self._feel_pulse()
        self.app = HotApp(self.core, partial(forward, self._pulse))
        self._inner = OwnServer(InnerApp(self.core), socket_path(config, INNER_SOCKET))
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        # Set when the writer ended by a fault that is over with a new start.
        self.failed = False
        self.end: Callable[[], None] = lambda: None

    def _open(self, *, accepts_new: bool) -> Writer:
        """Raises DatabaseLost unless it `accepts_new`."""
        check_limits()
        data = self.config.data
        # The database may be elsewhere.
        self._ownership = os.fdopen(lock_place(data / "server.lock", f"the data folder {data}"))
        if not accepts_new:
            incarnation.refuse_new(self.config.database)
        writer = self.config.database.writer()
        self._openness = writer.openness()
        if self._openness:
            log.warning("%s", self._openness)
        self._shelf = Shelf(data / "sandboxes", limit_bytes=0)
        # Whether the pilots of this database have to end: it is not the one that ran here last.
        self._is_other = incarnation.begin(writer, next_job=self._shelf.next_job())
        note_uploads(writer, self._shelf)
        prepare_data(writer, self.config, now=time.time())
        return writer

    def _isolate(self) -> Isolation | None:
        isolation = bootstrap.isolation_of(self.config, make_account=True)
        # One line that says it, for the log and the screen.
        self.local_pilots = "" if isolation is None else isolation.sentence(count_accounts(self._writer))
        if isolation is not None:
            fine = isolation.separate or (isolation.usable and isolation.trusted)
            log.log(logging.INFO if fine else logging.WARNING, "%s", self.local_pilots)
        return isolation

    def _policy(self, config: ServerConfig, bits: Mapping[QueueId, int]) -> Policy:
        life = self.config.pilots.life_seconds
        inhabited = lambda queues: self.core.inhabited.requests(queues)  # noqa: E731, PLW0108 - the first policy is older than the core
        return bootstrap.policy_of(config, bits, life_seconds=life, inhabited=inhabited)

    async def start(self) -> None:
        """On the event loop, before the first request."""
        keep_what_was_loaded()
        self._note = note_server(self.config.data, os.environ)
        self.core.start()
        self._writer.start_upkeep()
        for pilot in live_pilots(self.core.reader) if self._is_other else ():
            await self._leases.end(pilot.id, "the database was restored or copied")
        await mend_strays(self.core)
        await self._configuration.offer_anew()
        check_seconds = min(_LEASE_CHECK_SECONDS, self.config.pilots.lease_seconds / 4)
        self._serving = asyncio.create_task(self._inner.serve(), name="inner")
        self._tasks = [
            asyncio.create_task(self._again(check_seconds, self._leases.watch), name="leases"),
            asyncio.create_task(self._again(_SECOND, self._note_given), name="seen"),
            asyncio.create_task(self._again(_SECOND, partial(open_due_delays, self.core)), name="delays"),
            asyncio.create_task(self._again(0.0, self._child.keep_background), name="background"),
            asyncio.create_task(self._again(_SECOND, self._pulse.look), name="pulse"),
            asyncio.create_task(self._again(_SECOND, partial(look_at_clock, self.core)), name="clock"),
            asyncio.create_task(
                self._again(bootstrap.CONFIG_SECONDS, self._configuration.watch_config), name="configuration"
            ),
        ]

    async def before_stop(self) -> None:
        """End the background process, and local pilots that end with the server.

        Requests are still answered: last reports are taken, and no jobs are given out.
        """
        if self._stopping:
            return
        self._stopping = True
        self.core.ending = True
        self.core.waits.close()
        # Without the database no report is taken: there is nothing to wait for.
        gone, pilots = self.core.journal.fault is not None, self.config.data / "pilots"
        waits = self.config.pilots.stop_at_exit and self.config.backends
        seconds = _STOP_SECONDS + END_SECONDS if waits else _STOP_SECONDS
        code = await self._child.end(signal.SIGKILL if gone else signal.SIGTERM, seconds=seconds)
        if code != 0 and self.config.pilots.stop_at_exit and pilots.is_dir():
            log.warning("the background process did not end in order: its pilots are ended from here")
            grace = 0.0 if gone else bootstrap.PILOT_GRACE_SECONDS
            await asyncio.to_thread(LocalBackend(pilots, {}).stop_all, grace_seconds=grace)
            if not gone and self.config.backends:
                sockets, db = run_directory(self.config) / "ssh", self.config.database.reader()
                await asyncio.to_thread(end_pilots, self.config.backends, sockets, db)

    async def stop(self) -> None:
        """After the last request: write what is left."""
        await self.before_stop()
        if self._note is not None:
            self._note.unlink(missing_ok=True)
        self._inner.end()
        await asyncio.gather(self._serving, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.core.commands.note(self.core.strangers.take())
        await asyncio.to_thread(self.core.journal.close)
        if self.core.journal.fault is None:
            with contextlib.suppress(OSError, Unavailable):
                incarnation.note(self._seen_reader)
        # The last connection that ends leaves the whole database in one file.
        for connection in (self._seen_reader, *self.core.readers, self._writer):
            connection.close()
        self._ownership.close()

    def _feel_pulse(self) -> Pulse:
        reads, core = socket_path(self.config), self.core
        return Pulse(reads, core.background, core.ticks, lambda: self._child.pid)

    def _writer_died(self) -> None:
        """On the writer's thread: nothing can be stored any more, so the process ends."""
        self.failed = self.core.journal.fault is None
        self.end()

    async def _again(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        """A bug in one step must not end the loop."""
        while not self._stopping:
            await asyncio.sleep(to_mark(asyncio.get_running_loop().time(), seconds))
            try:
                await step()
            except Exception:
                log.exception("a step of the server failed", extra={"step": step.__name__.strip("_")})
                await asyncio.sleep(RESTART_SECONDS)

    async def _note_given(self) -> None:
        commits = self.core.journal.commits
        if commits != self._seen_commits:
            try:
                await asyncio.to_thread(incarnation.note, self._seen_reader)
                self._seen_commits = commits
            except (OSError, Unavailable) as fault:
                log.warning("what was given out cannot be noted: %s", fault)


def run_server(
    config: ServerConfig,
    arguments: list[str],
    load: Load,
    greet: Callable[[ServerConfig, str], None] | None = None,
    *,
    accepts_new: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM. `arguments` lead the background process to the configuration, `load` reads it
    again.

    `greet` gets it with the port. `accepts_new`: a new database may take the place of one that is gone. Raises
    Conflict, Unavailable if files cannot be used or go while it runs, DatabaseLost.
    """
    start_logging("hot")
    hide_process()
    begun = time.monotonic()
    port = bootstrap.listen(config, arguments, load)
    with port.config.database.usable():
        server = Server(port, accepts_new=accepts_new)
        write_url(port.config)
    if greet is not None:
        greet(port.config, server.local_pilots)
    web = Web(
        server.app,
        port.config.server,
        on_start=server.start,
        before_stop=server.before_stop,
        on_stop=server.stop,
    )
    server.end = web.end
    heed_hang_up(web.end)
    web.run(sockets=port.sockets)
    if server.core.journal.fault is not None:
        raise server.core.journal.fault
    if server.failed:
        _start_again(port.arguments, lived=time.monotonic() - begun)


def _start_again(arguments: list[str], *, lived: float) -> None:
    """In the same process id, with the same configuration and port. Does not return."""
    rest = next_rest(float(os.environ.get(_REST, "0")), lived=lived)
    log.critical("the server is started again after a fault", extra={"in_seconds": rest})
    time.sleep(rest)
    os.environ[_REST] = str(rest)
    os.execv(  # noqa: S606 - no shell is wanted
        sys.executable, [sys.executable, "-P", "-m", "lodesman.server.main", "server", *arguments]
    )
