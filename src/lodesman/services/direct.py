"""The director's service: a snapshot, a decision, pilots stored, then submitted (DESIGN 1, steps 7 to 9).

Runs in the background process. It reads the database, asks the backends, decides, and sends commands to the
hot process; what it keeps in memory (breakers, buckets, suspects) may be lost without harm.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import apsw
import msgspec

from lodesman.batch import Backend, CancelOutcome
from lodesman.director import (
    Breaker,
    CandidateQueue,
    CeId,
    Decision,
    DirectorOptions,
    Observation,
    OwnPilots,
    PilotStanding,
    PilotView,
    PoolState,
    QueueCaps,
    QueueId,
    Snapshot,
    TaskQueueDemand,
    TokenBucket,
    decide,
    failed,
    succeeded,
    to_record,
)
from lodesman.matching import QueueOffer, ResourceRequest, director_weights, explain
from lodesman.services.policy import Policy
from lodesman.services.sessions import PoolMap, load_pools
from lodesman.store.engine import only_row
from lodesman.store.task_queues import load_queues

log = logging.getLogger(__name__)

PILOTS = """SELECT p.id, p.state, p.site, p.ce, p.queue, p.request, p.created_at, p.tq_id, p.drain, p.submitted_at,
EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL)
FROM pilot p WHERE p.ended_at IS NULL"""
NATIVE = "SELECT native_id, site, ce, queue FROM pilot WHERE id = ? AND state = 'Submitted' AND native_id IS NOT NULL"
RUNNING = "SELECT count(*) FROM attempt WHERE ended_at IS NULL"

Post = Callable[[str, Any], Any]


@dataclass(slots=True)
class Director:
    """One director for all VOs: `tick` is one iteration. `pools` says how full the submission pools are."""

    db: apsw.Connection
    policy: Policy
    options: DirectorOptions
    backends: Mapping[str, Backend]
    post: Post
    pools: Callable[[], dict[str, PoolState]]
    launch: Callable[[Decision, Mapping[QueueId, QueueOffer]], None]
    rng: random.Random
    suspects: Mapping[int, float] = field(default_factory=dict)
    breakers: dict[QueueId, Breaker] = field(default_factory=dict)
    buckets: dict[CeId, TokenBucket] = field(default_factory=dict)
    _answers: deque[tuple[QueueId, bool, str, float]] = field(default_factory=deque)

    def tick(self, now: float) -> int:
        """One iteration; returns how many pilots were placed."""
        self._hear()
        queues = list(load_queues(self.db))
        vos = sorted({key.vo for _, key, _ in queues} | set(self.policy.config.vos))
        snapshot = Snapshot(
            demands=self._demands(queues),
            pilots=self._pilots(),
            queues=self._candidates(vos, load_pools(self.db), now),
            pools=self.pools(),
            running_jobs=only_row(self.db, RUNNING)[0],
            suspects=self.suspects,
            breakers=self.breakers,
            buckets=self.buckets,
        )
        decision = decide(snapshot, options=self.options, explain=explain, now=now, rng=self.rng)
        self.suspects = decision.excess.suspects
        self.breakers = dict(decision.breakers)
        self.buckets = dict(decision.buckets)
        if decision.plan.rows or decision.excess.cancel:
            self.post("iteration", {"plan": to_record(decision)})
        if decision.excess.cancel:
            self._cancel(decision.excess.cancel)
        if decision.placement.placements:
            self.launch(decision, {QueueId(*o.queue): o for vo in vos for o in self.policy.world(vo).offers})
        return decision.placement.placed

    def _cancel(self, pilot_ids: Sequence[int]) -> None:
        """Take back waiting pilots that nobody needs; one that has started meanwhile is told to end instead."""
        backends: dict[QueueId, Backend] = {}
        for vo in self.policy.config.vos:
            for offer in self.policy.world(vo).offers:
                backend = self.backends.get(offer.backend)
                if backend is not None:
                    backends[QueueId(*offer.queue)] = backend
        for pilot_id in pilot_ids:
            row = self.db.execute(NATIVE, (pilot_id,)).fetchone()
            backend = None if row is None else backends.get(QueueId(*row[1:]))
            if row is None or backend is None:
                continue
            outcome = backend.cancel([row[0]])[row[0]]
            if outcome in (CancelOutcome.REMOVED, CancelOutcome.ENDED):
                self.post("ended", {"pilot": pilot_id, "state": "Aborted", "reason": "not needed any more"})

    def _demands(self, queues: Sequence[Any]) -> list[TaskQueueDemand]:
        shares = self.policy.shares()
        weights = director_weights(queues, shares)
        return [
            TaskQueueDemand(
                tq_id=tq_id,
                key=key,
                weight=weights[tq_id],
                waiting_jobs=waiting,
                job_sharing=key.group in shares and shares[key.group].job_sharing,
            )
            for tq_id, key, waiting in queues
        ]

    def _pilots(self) -> list[PilotView]:
        return [
            PilotView(
                pilot_id=number,
                standing=_standing(state, bool(drain), bool(busy)),
                request=msgspec.json.decode(request, type=ResourceRequest),
                submitted_at=submitted or created,
                tq_id=tq_id,
            )
            for number, state, _, _, _, request, created, tq_id, drain, submitted, busy in self.db.execute(
                PILOTS
            )
        ]

    def _candidates(self, vos: Sequence[str], pools: PoolMap, now: float) -> list[CandidateQueue]:
        own = self._own_pilots()
        templates: dict[QueueId, dict[str, ResourceRequest]] = {}
        offers: dict[QueueId, QueueOffer] = {}
        for vo in vos:
            for offer in self.policy.world(vo).offers:
                queue_id = QueueId(*offer.queue)
                served = pools.of_queue((queue_id.site, queue_id.ce, queue_id.queue))
                templates.setdefault(queue_id, {})[vo] = replace(offer.request, submit_pools=served)
                offers[queue_id] = offer
        return [
            self._candidate(
                queue_id,
                templates=by_vo,
                offer=offers[queue_id],
                own=own.get(queue_id, OwnPilots()),
                now=now,
            )
            for queue_id, by_vo in templates.items()
        ]

    def _candidate(
        self,
        queue_id: QueueId,
        *,
        templates: dict[str, ResourceRequest],
        offer: QueueOffer,
        own: OwnPilots,
        now: float,
    ) -> CandidateQueue:
        settings = offer.settings
        backend = self.backends.get(offer.backend)
        load = backend.load((queue_id.site, queue_id.ce, queue_id.queue)) if backend else None
        seen_at, source = (load.observed_at, offer.backend) if load else (now, "nobody")
        caps = QueueCaps()
        return CandidateQueue(
            queue_id=queue_id,
            templates=templates,
            submission_pools=self.options.submission_pools,
            load_waiting=Observation(
                value=load.waiting if load else None, observed_at=seen_at, source=source
            ),
            load_running=Observation(
                value=load.running if load else None, observed_at=seen_at, source=source
            ),
            own=own,
            caps=QueueCaps(
                max_waiting=_or(settings.max_waiting_jobs, caps.max_waiting),
                max_total=_or(settings.max_total_jobs, caps.max_total),
            ),
            closed="" if backend else f"there is no backend {offer.backend!r} here",
        )

    def _own_pilots(self) -> dict[QueueId, OwnPilots]:
        waiting: Counter[QueueId] = Counter()
        running: Counter[QueueId] = Counter()
        for row in self.db.execute(PILOTS):
            (running if row[1] == "Running" else waiting)[QueueId(*row[2:5])] += 1
        return {
            queue_id: OwnPilots(waiting=waiting[queue_id], running=running[queue_id])
            for queue_id in {*waiting, *running}
        }

    def told(self, queue_id: QueueId, *, accepted: bool, reason: str, now: float) -> None:
        """What a batch system said to a submission; called by any thread, heard at the next iteration."""
        self._answers.append((queue_id, accepted, reason, now))

    def _hear(self) -> None:
        """Let what the batch systems said move the breakers of their queues."""
        while self._answers:
            queue_id, accepted, reason, now = self._answers.popleft()
            breaker = self.breakers.get(queue_id, Breaker())
            if accepted:
                self.breakers[queue_id] = succeeded(breaker)
            else:
                self.breakers[queue_id] = failed(breaker, now=now, rules=self.options.breaker, reason=reason)


def _standing(state: str, drain: bool, busy: bool) -> PilotStanding:
    if drain:
        return PilotStanding.DRAINING
    if state == "Running":
        return PilotStanding.BUSY if busy else PilotStanding.IDLE
    return PilotStanding.SUBMITTING if state == "Prepared" else PilotStanding.WAITING


def _or(value: int | None, default: int | None) -> int | None:
    return default if value is None else value
