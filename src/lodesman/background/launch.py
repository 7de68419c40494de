"""Submitting pilots: stored first, then handed to a submission pool's threads, then their references stored.

A submission pool is a thread pool with the seed's limits: minThreadsInPool threads from the start,
maxThreadsInPool at most, totalThreadsInPool submissions waiting for one. The queue was chosen before.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import msgspec

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.requests import QueuesBody
from lodesman.answers.service import NewPilot, Outcomes
from lodesman.background import portions
from lodesman.batch.backend import Backend, PilotCopy, PilotSpec
from lodesman.commands.pilots import hash_token
from lodesman.director.iteration import Decision
from lodesman.director.options import DirectorOptions
from lodesman.director.orders import PoolState
from lodesman.director.placement import Placement
from lodesman.errors import LodesmanError
from lodesman.matching import ANY, QueueOffer, key_to_json
from lodesman.resources import QueueId

log = logging.getLogger(__name__)

# What is configured of a queue, as each VO sees it.
Offers = Mapping[tuple[str, QueueId], QueueOffer]

# Pilots that are stored and submitted together: what is said of them must fit into one request to the server.
_MOST_BYTES = 4 << 20
_MOST_PILOTS = 1_000
# Queues whose SubmitPools are asked for at once: a queue may serve thousands.
_QUEUES_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSettings:
    """What all pilots have in common, in seconds; `command` starts one. `life_seconds`: at most, 0: no such limit.
    `url_file`: where pilots of this machine find the server's address after its next start.
    """

    servers: tuple[str, ...]
    command: tuple[str, ...]
    idle_seconds: float = 120.0
    heartbeat_seconds: float = 60.0
    life_seconds: int = 0
    ca_file: str = ""
    url_file: str = ""


@dataclass(slots=True)
class _Pool:
    threads: ThreadPoolExecutor
    max: int
    min: int = 0
    total: int = 0
    running: int = 0
    queued: int = 0


class SubmissionPools:
    """The director's thread pools, by name. `note` learns how each submission ended."""

    def __init__(
        self,
        options: DirectorOptions,
        *,
        backends: Mapping[str, Backend],
        post: Post,
        settings: PilotSettings,
        note: Callable[[QueueId, bool, str], None],
    ) -> None:
        self._backends = backends
        self._post = post
        self._settings = settings
        self._note = note
        self._lock = threading.Lock()
        self._pools: dict[str, _Pool] = {}
        self.configure(options)

    def configure(self, options: DirectorOptions) -> None:
        """Have the pools that the options name, with their threads; what is under way in others ends by itself."""
        with self._lock:
            before, self._pools = self._pools, {}
            for name, pool in options.pools.items():
                known = before.get(name)
                if known is None or known.max != pool.max_threads:
                    threads = ThreadPoolExecutor(max(1, pool.max_threads), thread_name_prefix=f"pool-{name}")
                    known = _Pool(threads, pool.max_threads)
                if pool.min_threads > known.min:
                    _start(known.threads, pool.min_threads)
                known.min, known.total = pool.min_threads, pool.total_threads
                self._pools[name] = known
            for name, old in before.items():
                if self._pools.get(name) is not old:
                    old.threads.shutdown(wait=False)

    def states(self) -> dict[str, PoolState]:
        """How full each pool is now."""
        with self._lock:
            return {
                name: PoolState(name=name, running=p.running, queued=p.queued, max=p.max, total=p.total)
                for name, p in self._pools.items()
            }

    def launch(self, decision: Decision, offers: Offers) -> None:
        """Store the pilots of a decision and hand them to their pools, with the settings that their VO has there."""
        served = self._served(list({one.queue_id: None for one in decision.placement.placements}))
        for placement in decision.placement.placements:
            offer = offers.get((placement.request.vo, placement.queue_id))
            if offer is None:
                log.warning("a queue is configured no more", extra={"queue": str(placement.queue_id)})
                continue
            for copies in self._prepare(placement, offer, served.get(placement.queue_id, {})):
                self._hand_over(placement, offer, copies)

    def _hand_over(self, placement: Placement, offer: QueueOffer, copies: list[PilotCopy]) -> None:
        with self._lock:  # so that the threads are not shut down in between
            pool = self._pools.get(placement.order.pool)
            if pool is not None:
                pool.queued += 1
                try:
                    pool.threads.submit(self._submit, pool, placement, offer, copies)
                except RuntimeError:  # no thread could be started: the next one that can be does it
                    log.exception("a submission waits for a thread", extra={"pool": placement.order.pool})
                return
        # The configuration has changed since the decision.
        reason = f"there is no submission pool {placement.order.pool!r} any more"
        refused: Outcomes = {copy.stamp: (None, reason) for copy in copies}
        self._post(calls.PILOTS_SUBMITTED, refused)

    def close(self) -> None:
        """Let running submissions end; those not begun are dropped (the census finds none of them)."""
        for pool in self._pools.values():
            pool.threads.shutdown(wait=True, cancel_futures=True)

    def _served(self, queues: list[QueueId]) -> dict[QueueId, dict[str, object]]:
        """What queues serve (`getSubmitPoolsForQueue`). When the server does not answer, pilots ask for themselves."""
        found: dict[QueueId, dict[str, object]] = {}
        for part in portions(queues, _QUEUES_AT_ONCE):
            try:
                answer = self._post(calls.POOLS_OF_QUEUES, QueuesBody(list(part)))
            except LodesmanError as fault:
                log.warning("it is not known which SubmitPools queues serve: %s", fault)
                continue
            for queue, row in zip(part, answer.queues, strict=True):
                found[queue] = {
                    "submit_pools": row.pools, "pools_pass": answer.number, "pools_at": answer.at,
                }  # fmt: skip
        return found

    def _prepare(
        self, placement: Placement, offer: QueueOffer, served: Mapping[str, object]
    ) -> Iterator[list[PilotCopy]]:
        """Store the pilots of a placement, in parts, before they are submitted. They require what their task queue does."""
        order, who, place = placement.order, placement.order.identity, placement.queue_id._asdict()
        pilot = NewPilot(
            stamp="", join_hash=b"", vo=placement.request.vo, **place, request=asdict(placement.request),
            owner=who.serves_owner, group=who.serves_group or "", pilot_type=who.pilot_type,
            submission_pool=order.pool, tq_id=order.tq_id, requirements=key_to_json(order.key),
        )  # fmt: skip
        common = {**self._common(offer), **place, **served}
        most = min(_MOST_PILOTS, max(1, _MOST_BYTES // len(msgspec.json.encode(pilot))))
        for part in portions(range(placement.count), most):
            copies, rows = [], []
            for _ in part:
                stamp, join = secrets.token_hex(12), secrets.token_urlsafe(32)
                file = msgspec.json.encode({**common, "join_token": join, "stamp": stamp})
                copies.append(PilotCopy(stamp=stamp, pilot_file=file))
                rows.append(msgspec.structs.replace(pilot, stamp=stamp, join_hash=hash_token(join)))
            self._post(calls.PREPARE_PILOTS, rows)
            yield copies

    def _common(self, offer: QueueOffer) -> dict[str, object]:
        """What the files of all pilots of a queue say."""
        common, platforms = self._settings, offer.settings.platforms
        options = {
            "cores": offer.request.cores,
            "memory_mb": offer.settings.memory_mb or 0,
            "life_seconds": offer.settings.life_seconds(common.life_seconds),
            "cpu_scaling_factor": float(offer.settings.cpu_scaling_factor),
            "idle_s": common.idle_seconds,
            "heartbeat_s": common.heartbeat_seconds,
            "jobs_at_once": 0,
            # Of several, or of ANY, a node finds out its own.
            "platform": platforms[0] if len(platforms) == 1 and platforms[0] != ANY else "",
        }
        url_file = common.url_file or None if offer.backend == "local" else None
        return {
            "servers": common.servers, "options": options, "ca_file": common.ca_file, "url_file": url_file
        }  # fmt: skip

    def _submit(self, pool: _Pool, placement: Placement, offer: QueueOffer, copies: list[PilotCopy]) -> None:
        with self._lock:
            pool.queued -= 1
            pool.running += 1
        queue = placement.queue_id
        spec = PilotSpec(
            queue=queue,
            command=self._settings.command,
            cores=offer.request.cores,
            memory_mb=offer.settings.memory_mb or 0,
            wall_seconds=offer.settings.wall_seconds or 0,
        )
        try:
            done = self._backends[offer.backend].submit(spec, copies)
            outcome: Outcomes = {s: (native, "") for s, native in done.accepted.items()}
            outcome |= {stamp: (None, refusal.reason) for stamp, refusal in done.refused.items()}
            self._post(calls.PILOTS_SUBMITTED, outcome)
            if not done.accepted:
                # That a submission was taken proves little; a pilot that joins proves the queue (census).
                self._note(queue, False, next((r for _, r in outcome.values() if r), ""))
        except LodesmanError as fault:
            # Not known whether it was submitted: the pilots stay Prepared and the census finds them.
            log.warning("a submission failed: %s", fault, extra={"queue": str(queue)})
            self._note(queue, False, fault.message)
        except Exception as fault:  # nothing reads the future
            log.exception("a submission failed", extra={"queue": str(queue)})
            self._note(queue, False, f"{type(fault).__name__}: {fault}")
        finally:
            with self._lock:
                pool.running -= 1


def _start(threads: ThreadPoolExecutor, count: int) -> None:
    """Have at least `count` threads now: while each has something to wait for, the next one is a new one."""
    go = threading.Event()
    for _ in range(count):
        threads.submit(go.wait)
    go.set()
