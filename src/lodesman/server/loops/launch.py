"""Submitting pilots: each is stored, submitted by a thread of a submission pool, and its reference is stored.

The seed's limits: minThreadsInPool from the start, maxThreadsInPool, totalThreadsInPool submissions waiting.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import msgspec

from lodesman.base.errors import LodesmanError, words_of
from lodesman.decide.director.iteration import Decision
from lodesman.decide.director.options import DirectorOptions, PoolOptions
from lodesman.decide.director.orders import PoolState, submitted_to
from lodesman.decide.director.placement import Placement
from lodesman.decide.matching import ANY, QueueOffer, key_to_json
from lodesman.decide.resources import LOCAL, QueueId
from lodesman.server.engines.backend import Backend, PilotSpec, join_token_of
from lodesman.server.loops import portions
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.failed_starts import NoteStart
from lodesman.server.loops.left_out import Item, LeftOutItems
from lodesman.server.writer.pilots import hash_token
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.requests import QueuesBody
from lodesman.wire.service import NewPilot, Outcomes
from lodesman.wire.vocabulary import StartFault

log = logging.getLogger(__name__)

Offers = Mapping[tuple[str, QueueId], QueueOffer]  # by VO and queue

_MOST_BYTES = 4 << 20  # of pilots that one request stores
_QUEUES_AT_ONCE = 100  # in one question: a queue may serve thousands of SubmitPools


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSettings:
    """What all pilots have in common."""

    servers: tuple[str, ...]
    program: bytes = field(repr=False)  # the zipapp that `python` runs
    python: str = "python3"
    idle_seconds: float = 120.0
    heartbeat_seconds: float = 60.0
    life_seconds: int = 0  # at most; 0: no limit
    jobstatus_directory: str = ""  # for pilots without $JOBSTATUS
    home_writable: bool = False
    ca_file: str = ""  # the certificates themselves, in PEM
    url_file: str = ""  # where pilots of this machine find the server's address after its next start
    mark: str = ""  # begins the submissions of this server


def common_of(settings: PilotSettings, offer: QueueOffer) -> dict[str, object]:
    """What the files of all pilots of a queue say."""
    platforms = offer.settings.platforms
    options = {
        "cores": offer.request.cores,
        "memory_mb": offer.settings.memory_mb or 0,
        "life_seconds": offer.settings.life_seconds(settings.life_seconds),
        "cpu_scaling_factor": float(offer.settings.cpu_scaling_factor),
        "idle_s": settings.idle_seconds,
        "heartbeat_s": settings.heartbeat_seconds,
        "jobs_at_once": 0,
        "jobstatus_directory": settings.jobstatus_directory,
        "home_writable": settings.home_writable,
        # Of several, or of ANY, a node finds out its own.
        "platform": platforms[0] if len(platforms) == 1 and platforms[0] != ANY else "",
    }
    url_file = settings.url_file or None if offer.backend == LOCAL else None
    return {
        "servers": settings.servers, "options": options, "ca_file": settings.ca_file, "url_file": url_file
    }  # fmt: skip


class _Pool:
    """The threads of a submission pool, and waiting tasks; without options it takes none."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The seed's second proposed fix: the name of the logger says which submission pool it was.
        self.log = logging.getLogger(f"lodesman.pool.{name}")
        self._options: PoolOptions | None = None
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._running = self._idle = 0

    def configure(self, options: PoolOptions | None) -> None:
        """Raises RuntimeError if threads cannot be started."""
        with self._changed:
            self._options = options
            if options is not None:
                tasks = min(self._running + len(self._waiting), options.max_threads)
                for _ in range(max(options.min_threads, tasks) - len(self._threads)):
                    self._start()
            self._changed.notify_all()

    def put(self, task: Callable[[], None]) -> bool:
        """False if none is taken any more."""
        with self._changed:
            if self._options is None:
                return False
            self._waiting.append(task)
            self._changed.notify()
            if self._idle < len(self._waiting) and len(self._threads) < self._options.max_threads:
                try:
                    self._start()
                except RuntimeError:  # the next thread that is free or can be started does it
                    self.log.exception("a submission waits for a thread")
            return True

    def state(self) -> PoolState | None:
        """None if no task is taken any more."""
        with self._changed:
            if self._options is None:
                return None
            most, total = self._options.max_threads, self._options.total_threads
            return PoolState(
                name=self._name, running=self._running, queued=len(self._waiting), max=most, total=total
            )

    def close(self) -> None:
        """Drop what waits, and wait for what runs."""
        with self._changed:
            self._waiting.clear()
        self.configure(None)
        for thread in list(self._threads):
            thread.join()

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"pool-{self._name}_{len(self._threads)}", daemon=True
        )
        thread.start()
        self._threads.add(thread)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            finally:
                with self._changed:
                    self._running -= 1

    def _next(self) -> Callable[[], None] | None:
        """None: the thread has to end."""
        with self._changed:
            while True:
                options = self._options
                too_many = len(self._threads) > options.max_threads if options else not self._waiting
                if too_many:
                    self._threads.discard(threading.current_thread())
                    return None
                if self._waiting:
                    self._running += 1
                    return self._waiting.popleft()
                self._idle += 1
                self._changed.wait()
                self._idle -= 1


class SubmissionPools:
    """The director's thread pools, by name."""

    def __init__(
        self,
        options: DirectorOptions,
        *,
        watches: Mapping[str, BackendWatch],
        post: Post,
        settings: PilotSettings,
        note: NoteStart,
        left_out: LeftOutItems | None = None,
    ) -> None:
        """`note` learns how each submission ended. `watches` may be swapped."""
        self._left_out = left_out or LeftOutItems()
        self.watches = watches
        self._post = post
        self._settings = settings
        self._note = note
        self._pools: dict[str, _Pool] = {}
        self.configure(options)

    def configure(self, options: DirectorOptions) -> None:
        """Have the pools that the director handles; what is under way in others ends by itself."""
        ours = {
            name: pool_options for name, pool_options in options.pools.items() if not pool_options.elsewhere
        }
        self._join_seconds, self._identities = options.required_time_left, options.identities
        missing = ours.keys() - self._pools.keys()
        self._pools = {**self._pools, **{name: _Pool(name) for name in sorted(missing)}}
        for name, pool in self._pools.items():
            pool.configure(ours.get(name))

    def states(self) -> dict[str, PoolState]:
        """How full each pool is now."""
        states = {name: pool.state() for name, pool in self._pools.items()}
        return {name: state for name, state in states.items() if state is not None}

    def launch(self, decision: Decision, offers: Offers) -> None:
        """Store the pilots of a decision, and hand them to their pools."""
        served = self._served(list({placement.queue_id: None for placement in decision.placement.placements}))
        with self._left_out.step("the director: launch") as left:
            for placement in decision.placement.placements:
                offer = offers.get((placement.request.vo, placement.queue_id))
                if offer is None:
                    log.warning("a queue is configured no more", extra={"queue": str(placement.queue_id)})
                    continue
                with left.item(Item("CE queue", placement.queue_id)):
                    self._launch(placement, offer, served.get(placement.queue_id, {}))

    def _launch(self, placement: Placement, offer: QueueOffer, served: Mapping[str, object]) -> None:
        watch = self.watches.get(self._backend(placement, offer))
        if watch is None:
            log.warning("there is no such backend", extra={"backend": self._backend(placement, offer)})
            return
        specs: list[PilotSpec] = []
        try:
            specs.extend(self._prepare(placement, offer, served, watch))
        finally:
            if specs:
                self._hand_over(placement, watch.backend, specs)

    def _new_submission(self) -> str:
        mark = self._settings.mark
        return mark + secrets.token_hex(12)[len(mark) :]

    def _backend(self, placement: Placement, offer: QueueOffer) -> str:
        return submitted_to(offer.backend, placement.order.identity.account, self._identities)

    def _hand_over(self, placement: Placement, backend: Backend, specs: list[PilotSpec]) -> None:
        pool = self._pools.get(placement.order.pool)
        if pool is not None and pool.put(partial(self._run, backend, specs, pool.log)):
            return
        # The configuration has changed since the decision.
        reason = f"there is no submission pool {placement.order.pool!r} any more"
        for spec in specs:
            refused: Outcomes = dict.fromkeys(spec.stamps().values(), (None, reason))
            self._post(inner_calls.PILOTS_SUBMITTED, refused)

    def close(self) -> None:
        """Let running submissions end, and drop the others, which the census will not find."""
        for pool in self._pools.values():
            pool.close()

    def _served(self, queues: list[QueueId]) -> dict[QueueId, dict[str, object]]:
        """Without an answer (`getSubmitPoolsForQueue`), pilots ask for themselves."""
        served: dict[QueueId, dict[str, object]] = {}
        for part in portions(queues, _QUEUES_AT_ONCE):
            try:
                answer = self._post(inner_calls.POOLS_OF_QUEUES, QueuesBody(list(part)))
            except LodesmanError as fault:
                log.warning("it is not known which SubmitPools queues serve: %s", fault)
                continue
            for queue, row in zip(part, answer.queues, strict=True):
                served[queue] = {
                    "submit_pools": row.pools, "pools_pass": answer.number, "pools_at": answer.at,
                }  # fmt: skip
        return served

    def _prepare(
        self, placement: Placement, offer: QueueOffer, served: Mapping[str, object], watch: BackendWatch
    ) -> Iterator[PilotSpec]:
        """Store the pilots of a placement, in parts; of bound pilots only those that got a job."""
        order, who, place = placement.order, placement.order.identity, placement.queue_id._asdict()
        pilot = NewPilot(
            stamp="", join_hash=b"", vo=placement.request.vo, **place, request=asdict(placement.request),
            owner=who.serves_owner, group=who.serves_group or "", pilot_type=who.pilot_type,
            submission_pool=order.pool, tq_id=order.tq_id, requirements=key_to_json(order.key),
            backend=self._backend(placement, offer), join_seconds=self._join_seconds,
            bound=offer.settings.push, forwards=offer.settings.forwards,
        )  # fmt: skip
        common, shape = common_of(self._settings, offer), offer.shape
        if not offer.settings.forwards:  # else they find out where they are
            common = {**common, **place, **served}
        most = min(watch.backend.sizes.copies, max(1, _MOST_BYTES // len(msgspec.json.encode(pilot))))
        for part in portions(range(placement.count), most):
            submission, secret = self._new_submission(), secrets.token_urlsafe(32)
            spec = PilotSpec(
                queue=placement.queue_id,
                submission=submission,
                count=len(part),
                program=self._settings.program,
                pilot_file=msgspec.json.encode({**common, "submission": submission, "secret": secret}),
                python=self._settings.python,
                cores=shape.cores,
                memory_mb=shape.memory_mb,
                wall_seconds=shape.wall_seconds,
                options=(*watch.options, *shape.options),
                forwards=pilot.forwards,
            )
            rows = [
                msgspec.structs.replace(pilot, stamp=stamp, join_hash=hash_token(join_token_of(secret, n)))
                for n, stamp in spec.stamps().items()
            ]
            answer = self._post(inner_calls.PREPARE_PILOTS, rows)
            if not pilot.bound or answer.stored == spec.count:
                yield spec
                continue
            # Others took the jobs meanwhile, or limits are full.
            if answer.stored:
                yield replace(spec, count=answer.stored)
            return

    def _run(self, backend: Backend, specs: list[PilotSpec], log: logging.Logger) -> None:
        for spec in specs:
            self._submit(backend, spec, log)

    def _submit(self, backend: Backend, spec: PilotSpec, log: logging.Logger) -> None:
        queue = spec.queue
        try:
            done = backend.submit(spec)
            outcome: Outcomes = {s: (native, "") for s, native in done.accepted.items()}
            outcome |= {stamp: (None, refusal.reason) for stamp, refusal in done.refused.items()}
            self._post(inner_calls.PILOTS_SUBMITTED, outcome)
            reason = next((r for _, r in outcome.values() if r), "")
            numbers = {"accepted": len(done.accepted), "refused": len(done.refused), "reason": reason}
            log.info("a submission was answered", extra={"queue": str(queue), **numbers})
            if not done.accepted:
                # That a submission was taken proves little; a pilot that joins proves the queue (census).
                self._note(queue, StartFault.REFUSED, reason)
        except LodesmanError as fault:
            # Not known whether it was submitted: the pilots stay Prepared and the census finds them.
            log.warning("a submission failed: %s", fault, extra={"queue": str(queue)})
            self._note(queue, StartFault.UNANSWERED, fault.message)
        except Exception as fault:  # its thread has other tasks to do
            log.exception("a submission failed", extra={"queue": str(queue)})
            self._note(queue, StartFault.UNANSWERED, words_of(fault))
