"""What the background process is made of, and what of it follows the configuration."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from functools import partial

from lodesman.decide.director.iteration import Excess
from lodesman.decide.explain.facts import fresh_seconds
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import LOCAL, QueueId
from lodesman.server.config import RefusedConfig, ServerConfig
from lodesman.server.engines.backend import Backend
from lodesman.server.engines.zipapp import build_zipapp
from lodesman.server.http.health import UpkeepFigures
from lodesman.server.http.read_side import ReadSide
from lodesman.server.loops.accounting import UsageAdder
from lodesman.server.loops.cancelling import Canceller
from lodesman.server.loops.candidates import find_local_slots
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.direct import Director
from lodesman.server.loops.failed_starts import FailedStarts
from lodesman.server.loops.hosts import HostWatch
from lodesman.server.loops.launch import SubmissionPools
from lodesman.server.loops.left_out import LeftOutItems
from lodesman.server.loops.limit_use import ask_limits, limits_at
from lodesman.server.loops.list_match import ListMatch
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.reconciler import Reconciler, size_proof
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.loops.retention import Retention
from lodesman.server.loops.site_matching import KnownWishes, SiteMatcher, UnfitQueues
from lodesman.server.loops.site_tests import SiteTests
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.loops.usage_watch import UsageWatch
from lodesman.server.main import bootstrap
from lodesman.server.main.backends import Backends, make_backend, make_local_backend
from lodesman.server.main.bootstrap import Load, gate_options
from lodesman.server.main.config_watch import ConfigWatch
from lodesman.server.main.data_folder import (
    INNER_SOCKET,
    run_directory,
    service_token,
    share_directory,
    socket_path,
)
from lodesman.server.main.loops import Loop, Loops
from lodesman.server.main.processes import HotCalls
from lodesman.server.store.accounts import count_accounts
from lodesman.server.store.incarnation import mark_of
from lodesman.server.store.read.pilots import backends_of_pilots
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.site_ads import ended_matches, live_matches
from lodesman.server.store.submit_pools import bits_of_queues
from lodesman.server.writer.groups import know_shares
from lodesman.server.writer.job_classes import load_classes
from lodesman.server.writer.site_ads import KnownAds
from lodesman.wire import inner_calls
from lodesman.wire.vocabulary import StartFault


class BackgroundParts:
    """The parts of the background process, wired."""

    def __init__(self, config: ServerConfig, load: Load, *, refused: RefusedConfig | None = None) -> None:
        self._watch = ConfigWatch(config, load, refused=refused)
        self._changed: ServerConfig | None = None
        self.config = config
        self.post = HotCalls(socket_path(config, INNER_SOCKET), service_token(config)).post
        reader = config.database.reader
        self.reader = reader()
        self.policy = self._policy(config)
        self._class_section = config.job_classes
        self._accounts_db = reader()
        self._accounts = count_accounts(self._accounts_db)
        self.mark = mark_of(self.reader)
        self.local = make_local_backend(config, lambda: self._accounts, reader())
        self.left_out, self.loops = LeftOutItems(), Loops([])
        self.local.stored = partial(self.loops.wake_soon, "backend")
        self.ads, self.wishes = KnownAds(), KnownWishes(self.left_out)
        self.list_match, self.failed_starts = ListMatch(), FailedStarts()
        self.backends = self._backends()
        self.pilot_settings = bootstrap.pilot_settings(config, self.mark)
        self.pools = self._submission_pools()
        self.cancelling = Canceller(reader(), self.post, self._note_outcome, self.backends.watches)
        self.director = self._director()
        self.side = self._read_side()
        # Only now can the policy be asked.
        self._serve_queues(config, self.policy, find_local_slots(self.policy))
        self.submit_pools = PoolKeeper(
            reader(),
            self.post,
            refresh_seconds=config.submit_pools.refresh_seconds,
            grace_seconds=config.submit_pools.grace_seconds,
            ask_ads=UnfitQueues(self.ads.look, self.wishes.look, self.left_out).look,
            left_out=self.left_out,
            classes=self.side.classes,
        )
        self.retention = Retention(
            reader(), self.post, self.side.shelf, keep_days=config.server.keep_days, left_out=self.left_out
        )
        self.reasons = MainReasons(
            reader(), self.side.keeper,
            limits=lambda: ask_limits(self.post, self.policy, self.backends.watches), unfit=lambda: self.submit_pools.unfit,
        )  # fmt: skip
        self.reconciler = Reconciler(reader(), self.post, left_out=self.left_out)
        self.sizes = size_proof(self.reconciler, reader(), self.side.shelf)
        self.hosts = HostWatch(reader(), self.post)
        self.accounting = UsageAdder(reader(), self.post)
        self.usage = UsageWatch(reader(), self.post, self.side.keeper, config.shares)

    def _policy(self, config: ServerConfig) -> Policy:
        """Raises LodesmanError. The hot process numbers new queues first."""
        bits = bits_of_queues(self.reader)
        new = [queue for queue in config.resources.tree.queue_ids() if queue not in bits]
        if new:
            self.post(inner_calls.NUMBER_QUEUES, new)
            bits = bits_of_queues(self.reader)
        life = self.config.pilots.life_seconds
        inhabited = lambda queues: self.side.keeper.pilots.inhabited(queues)  # noqa: E731, PLW0108 - the first policy is older
        policy = bootstrap.policy_of(config, bits, life_seconds=life, inhabited=inhabited)
        know_shares(self.reader, policy, time.time())
        return policy

    def _backends(self) -> Backends:
        run = run_directory(self.config)
        return Backends(
            self.local,
            make=lambda section: make_backend(section, run / "ssh", self.mark),
            watch=self._watched,
            begin=self._poll,
            kept=run / "backends.json",
            with_pilots=backends_of_pilots(self.reader),
        )

    def _watched(self, name: str, backend: Backend) -> BackendWatch:
        reader = self.config.database.reader()
        return BackendWatch(
            name, backend, db=reader, post=self.post, note=self._note_outcome, started=time.time()
        )

    def _poll(self, watch: BackendWatch, seconds: float) -> None:
        self.loops.add(Loop(f"poll {watch.name}", seconds, lambda: self.look_at(watch)))
        look = lambda: self.list_match.tick(watch, time.time())  # noqa: E731
        self.loops.add(Loop(f"list-match {watch.name}", seconds, look))
        self.loops.add(Loop(f"forget {watch.name}", 600.0, lambda: watch.forget(time.time())))

    def look_at(self, watch: BackendWatch) -> None:
        """Poll a batch system. First loads that come late are news to the director."""
        is_first = not watch.polled.is_set()
        watch.tick(time.time())
        if is_first and watch.polled.is_set() and self.director.iterated_at is not None:
            self.loops.wake_soon("director")

    def _serve_queues(self, config: ServerConfig, policy: Policy, slots: dict[QueueId, int]) -> None:
        """Raises LodesmanError, and changes nothing."""
        self.backends.configure(config.backends, policy, config.director.required_time_left)
        self.pools.watches = self.director.watches = self.cancelling.watches = self.backends.watches
        self.local.slots = slots
        self.backends.watches[LOCAL].queues = tuple(slots)

    def _submission_pools(self) -> SubmissionPools:
        return SubmissionPools(
            self.config.director,
            watches=self.backends.watches,
            post=self.post,
            settings=self.pilot_settings,
            note=self._note_outcome,
            left_out=self.left_out,
        )

    def _site_tests(self) -> SiteTests:
        zipapp = share_directory(self.config) / "site-test.pyz"
        build_zipapp(zipapp, module="probe")
        settings = dataclasses.replace(self.pilot_settings, program=zipapp.read_bytes())
        return SiteTests(settings, lambda: self.backends.watches)

    def _director(self) -> Director:
        config = self.config
        return Director(
            db=config.database.reader(),
            policy=self.policy,
            options=config.director,
            watches=self.backends.watches,
            post=self.post,
            pools=self.pools.states,
            launch=self.pools.launch,
            cancel=self._cancel,
            list_match=self.list_match,
            sites=SiteMatcher(
                ads=self.ads.look,
                live=live_matches,
                ended=ended_matches,
                wishes=self.wishes.look,
                options=gate_options(config),
            ),
            limited=lambda queues: self.post(inner_calls.LIMITED, limits_at(queues, self.backends.watches)),
            rng=random.Random(),
            settings=bootstrap.name_settings(config),
            left_out=self.left_out,
        )

    def _cancel(self, excess: Excess) -> None:
        self.cancelling.order(excess)
        self.loops.wake_soon("cancel")

    def _read_side(self) -> ReadSide:
        config, polling = self.config, self.config.polling_seconds
        keeper = SnapshotKeeper(
            config.database.reader(), fresh_seconds=fresh_seconds(polling), left_out=self.left_out
        )
        keeper.ask_director, keeper.polling_seconds = self.director.now, polling
        keeper.ads = self.ads
        keeper.sharing = lambda: self.policy.sharing_groups()  # noqa: PLW0108 - the policy is swapped
        return ReadSide(
            db=config.database.reader(),
            policy=self.policy,
            shelf=Shelf(config.data / "sandboxes", limit_bytes=config.server.sandbox_mb << 20),
            clock=time.time,
            keeper=keeper,
            ask_hot=lambda call, body: asyncio.to_thread(self.post, call, body),
            classes=lambda db: load_classes(db, self.policy.vocabulary, self._class_section),
            director=self.director,
            jsv=config.jsv,
            site_tests=self._site_tests(),
            pilot_settings=self.pilot_settings,
            gates=gate_options(config),
            configuration=lambda: self._watch.state,
            quota_bytes=config.server.sandbox_quota_mb << 20,
            most_files=config.limits.input_files,
            upkeep=self._figures,
        )

    def reload(self) -> None:
        """Take in a changed configuration: all of it, or nothing and try again."""
        know_shares(self.reader, self.policy, time.time())
        config = self._changed = self._watch.poll() or self._changed
        if config is None:
            return
        policy = self._policy(config)
        slots = find_local_slots(policy)
        self.pools.configure(config.director)
        self._serve_queues(config, policy, slots)
        policy.set_usage(self.policy.usage)
        self.policy = self.director.policy = self.side.policy = policy
        self.usage.options = config.shares
        self.loops.wake_soon("usage")
        self.director.options = config.director
        self.director.sites.options = self.side.gates = gate_options(config)
        self._class_section, self.side.jsv = config.job_classes, config.jsv
        self.side.verifier.configured(config.jsv)
        self.side.quota_bytes = config.server.sandbox_quota_mb << 20
        self.side.most_files = config.limits.input_files
        self.retention.keep_days = config.server.keep_days
        self.submit_pools.refresh_seconds = config.submit_pools.refresh_seconds
        self.submit_pools.grace_seconds = config.submit_pools.grace_seconds
        self._changed = None

    def _note_outcome(self, queue_id: QueueId, fault: StartFault | None, reason: str) -> None:
        fault, reason = self.hosts.weigh(queue_id, fault, reason)
        self.failed_starts.note(queue_id, fault, reason)
        self.director.note_outcome(queue_id, accepted=fault is None, reason=reason, now=time.time())

    def count_accounts(self) -> None:
        """On their number it depends whether local pilots may run."""
        self._accounts = count_accounts(self._accounts_db)

    def _figures(self) -> UpkeepFigures:
        loops = self.loops.loops
        return UpkeepFigures(
            failures={loop.name: loop.failures for loop in loops},
            succeeded_at={loop.name: loop.succeeded_at for loop in loops if loop.succeeded_at is not None},
            repaired=dict(self.reconciler.repaired),
            gates=self.director.gates,
            failed_starts=dict(self.failed_starts.counts),
            breakers={queue: breaker.state for queue, breaker in self.director.breakers.items()},
        )
