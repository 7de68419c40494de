"""Submitting pilots: stored first, then handed to a submission pool's threads, then their references stored.

A submission pool is a thread pool with the seed's limits (minThreadsInPool, maxThreadsInPool,
totalThreadsInPool); the broker has chosen the queue before.
"""

from __future__ import annotations

import base64
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from lodesman.batch import Backend, PilotCopy, PilotSpec
from lodesman.director import Decision, DirectorOptions, Placement, PoolState, QueueId
from lodesman.errors import LodesmanError
from lodesman.matching import QueueOffer
from lodesman.services.pilots import hash_token

log = logging.getLogger(__name__)

Post = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotHabits:
    """What every pilot is told (seconds); `command` starts it."""

    servers: tuple[str, ...]
    command: tuple[str, ...]
    idle_seconds: float = 120.0
    heartbeat_seconds: float = 60.0
    life_seconds: int = 0
    ca_file: str = ""


@dataclass(slots=True)
class _Pool:
    threads: ThreadPoolExecutor
    max: int
    total: int
    running: int = 0
    queued: int = 0


class SubmissionPools:
    """The director's thread pools, by name. `told` learns how each submission ended."""

    def __init__(
        self,
        options: DirectorOptions,
        *,
        backends: Mapping[str, Backend],
        post: Post,
        habits: PilotHabits,
        told: Callable[[QueueId, bool, str], None],
    ) -> None:
        self._backends = backends
        self._post = post
        self._habits = habits
        self._told = told
        self._lock = threading.Lock()
        self._pools: dict[str, _Pool] = {}
        self.configure(options)

    def configure(self, options: DirectorOptions) -> None:
        """Have the pools that the options name, with their threads; what is under way in others ends by itself."""
        with self._lock:
            before, self._pools = self._pools, {}
            for name, pool in options.pools.items():
                known = before.pop(name, None)
                if known is None or known.max != pool.max_threads:
                    threads = ThreadPoolExecutor(max(1, pool.max_threads), thread_name_prefix=f"pool-{name}")
                    if known is not None:
                        known.threads.shutdown(wait=False)
                    known = _Pool(threads, pool.max_threads, pool.total_threads)
                known.total = pool.total_threads
                self._pools[name] = known
        for gone in before.values():
            gone.threads.shutdown(wait=False)

    def states(self) -> dict[str, PoolState]:
        """How full each pool is now."""
        with self._lock:
            return {
                name: PoolState(name=name, running=p.running, queued=p.queued, max=p.max, total=p.total)
                for name, p in self._pools.items()
            }

    def launch(self, decision: Decision, offers: Mapping[QueueId, QueueOffer]) -> None:
        """Store the pilots of a decision and hand them to their pools."""
        for placement in decision.placement.placements:
            offer = offers[placement.queue_id]
            copies = self._prepare(placement, offer)
            pool = self._pools[placement.pool]
            with self._lock:
                pool.queued += 1
            pool.threads.submit(self._submit, pool, placement, offer, copies)

    def close(self) -> None:
        """Let running submissions end; those not begun are dropped (the census finds none of them)."""
        for pool in self._pools.values():
            pool.threads.shutdown(wait=True, cancel_futures=True)

    def _prepare(self, placement: Placement, offer: QueueOffer) -> list[PilotCopy]:
        copies, rows = [], []
        who, queue = placement.identity, placement.queue_id
        for _ in range(placement.count):
            stamp, join = secrets.token_hex(12), secrets.token_urlsafe(32)
            copies.append(PilotCopy(stamp=stamp, pilot_file=self._pilot_file(stamp, join, placement, offer)))
            rows.append(
                {
                    "stamp": stamp, "vo": who.vo, "site": queue.site, "ce": queue.ce, "queue": queue.queue,
                    "request": asdict(placement.request), "owner": who.serves_owner,
                    "group": who.serves_group or "", "pilot_type": who.pilot_type,
                    "submission_pool": placement.pool, "tq_id": placement.tq_id,
                    "join_hash": base64.b64encode(hash_token(join)).decode(),
                }
            )  # fmt: skip
        self._post("pilots", rows)
        return copies

    def _pilot_file(self, stamp: str, join: str, placement: Placement, offer: QueueOffer) -> bytes:
        queue, habits = placement.queue_id, self._habits
        options = {
            "cores": offer.settings.processors or 0,
            "memory_mb": offer.settings.memory_mb or 0,
            "life_seconds": habits.life_seconds,
            "cpu_scaling_factor": float(offer.settings.cpu_scaling_factor),
            "idle_s": habits.idle_seconds,
            "heartbeat_s": habits.heartbeat_seconds,
            "jobs_at_once": 0,
            "platform": "".join(offer.settings.platforms[:1]),
        }
        return msgspec.json.encode(
            {
                "servers": habits.servers, "join_token": join, "stamp": stamp, "site": queue.site,
                "ce": queue.ce, "queue": queue.queue, "submit_pools": placement.request.submit_pools,
                "options": options, "ca_file": habits.ca_file,
            }
        )  # fmt: skip

    def _submit(self, pool: _Pool, placement: Placement, offer: QueueOffer, copies: list[PilotCopy]) -> None:
        with self._lock:
            pool.queued -= 1
            pool.running += 1
        try:
            backend = self._backends[offer.backend]
            spec = PilotSpec(
                queue=(placement.queue_id.site, placement.queue_id.ce, placement.queue_id.queue),
                command=self._habits.command,
                cores=offer.settings.processors or 1,
                memory_mb=offer.settings.memory_mb or 0,
            )
            done = backend.submit(spec, copies)
            outcome: dict[str, tuple[str | None, str]] = {
                s: (native, "") for s, native in done.accepted.items()
            }
            outcome |= {stamp: (None, refusal.reason) for stamp, refusal in done.refused.items()}
            self._post("submitted", outcome)
            if not done.accepted:
                # That a submission was taken proves little; a pilot that joins proves the queue (census).
                self._told(placement.queue_id, False, next((r for _, r in outcome.values() if r), ""))
        except LodesmanError as fault:
            # Not known whether it was submitted: the pilots stay Prepared and the census finds them.
            log.warning("a submission failed: %s", fault, extra={"queue": str(placement.queue_id)})
            self._told(placement.queue_id, False, fault.message)
        finally:
            with self._lock:
                pool.running -= 1
