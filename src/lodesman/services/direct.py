"""The director's service: a snapshot, a decision, pilots stored, then submitted (DESIGN 1, steps 7 to 9).

Runs in the background process. It reads the database, asks the backends, decides, and sends commands to the
hot process; what it keeps in memory (breakers, buckets, suspects) may be lost without harm.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import apsw
import msgspec

from lodesman.batch import Backend, CancelOutcome
from lodesman.director import (
    Breaker,
    CeId,
    Decision,
    DirectorOptions,
    PilotStanding,
    PilotView,
    PoolState,
    QueueId,
    Snapshot,
    TaskQueueDemand,
    TokenBucket,
    decide,
    failed,
    succeeded,
    to_record,
)
from lodesman.matching import QueueOffer, ResourceRequest, director_weights
from lodesman.services.candidates import CandidateMaker, own_queues
from lodesman.services.known_queues import KnownQueues, Waiting
from lodesman.services.policy import Policy
from lodesman.services.pool_map import KnownPools, PoolMap
from lodesman.store.engine import only_row

log = logging.getLogger(__name__)

PILOTS = """SELECT p.id, p.state, p.site, p.ce, p.queue, p.request, p.created_at, p.tq_id, p.drain, p.submitted_at,
EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL)
FROM pilot p WHERE p.ended_at IS NULL"""
NATIVE = """SELECT native_id, vo, site, ce, queue FROM pilot
WHERE id = ? AND state = 'Submitted' AND native_id IS NOT NULL"""
RUNNING = "SELECT count(*) FROM attempt WHERE ended_at IS NULL"

REQUEST = msgspec.json.Decoder(ResourceRequest)

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
    _known: KnownQueues | None = None
    _pools: KnownPools | None = None

    def tick(self, now: float) -> int:
        """One iteration; returns how many pilots were placed."""
        self._hear()
        self._known = self._known or KnownQueues(self.db)
        self._pools = self._pools or KnownPools(self.db)
        waiting, pool_map = self._known.look(), self._pools.look()
        vos = sorted({key.vo for _, key, _ in waiting} | set(self.policy.config.vos))
        snapshot = replace(self._snapshot(waiting, vos, now), table=self._known.table, serving=pool_map)
        decision = decide(snapshot, options=self.options, now=now, rng=self.rng)
        self.suspects = decision.excess.suspects
        self.breakers = dict(decision.breakers)
        self.buckets = dict(decision.buckets)
        if decision.plan.rows or decision.excess.cancel:
            self.post("iteration", {"plan": to_record(decision)})
        if decision.excess.cancel:
            self._cancel(decision.excess.cancel)
        if decision.placement.placements:
            self.launch(decision, self._offers_of(decision, vos, pool_map))
        return decision.placement.placed

    def _snapshot(self, waiting: Sequence[Waiting], vos: Sequence[str], now: float) -> Snapshot:
        """What there is, but for what is kept between iterations."""
        rows = list(self.db.execute(PILOTS))
        maker = CandidateMaker(
            policy=self.policy,
            backends=self.backends,
            pools=self.options.submission_pools,
            own=own_queues((row[1], QueueId(*row[2:5]), row[9] or row[6]) for row in rows),
            now=now,
        )
        return Snapshot(
            demands=self._demands(waiting),
            pilots=[_view(row) for row in rows],
            queues=maker.make(vos),
            pools=self.pools(),
            running_jobs=only_row(self.db, RUNNING)[0],
            suspects=self.suspects,
            breakers=self.breakers,
            buckets=self.buckets,
        )

    def _offers(self, vos: Sequence[str]) -> dict[QueueId, QueueOffer]:
        """The configuration of every queue that one of the VOs may use."""
        return {QueueId(*offer.queue): offer for vo in vos for offer in self.policy.world(vo).offers}

    def _offers_of(
        self, decision: Decision, vos: Sequence[str], pool_map: PoolMap
    ) -> dict[QueueId, QueueOffer]:
        """The configuration of the queues that get pilots, with all the SubmitPools that they serve."""
        offers = self._offers(vos)
        return {
            queue_id: replace(
                offers[queue_id],
                request=replace(offers[queue_id].request, submit_pools=pool_map.of_queue(queue_id)),
            )
            for queue_id in {one.queue_id for one in decision.placement.placements}
        }

    def _cancel(self, pilot_ids: Sequence[int]) -> None:
        """Take back waiting pilots that nobody needs; one that has started meanwhile is told to end instead."""
        found = {pilot_id: self.db.execute(NATIVE, (pilot_id,)).fetchone() for pilot_id in pilot_ids}
        rows = {pilot_id: row for pilot_id, row in found.items() if row is not None}
        offers = self._offers(sorted({vo for _, vo, *_ in rows.values()}))
        for pilot_id, (native_id, _, *queue) in rows.items():
            offer = offers.get(QueueId(*queue))
            backend = None if offer is None else self.backends.get(offer.backend)
            if backend is None:
                continue
            outcome = backend.cancel([native_id])[native_id]
            if outcome in (CancelOutcome.REMOVED, CancelOutcome.ENDED):
                self.post("ended", {"pilot": pilot_id, "state": "Aborted", "reason": "not needed any more"})

    def _demands(self, queues: Sequence[Waiting]) -> list[TaskQueueDemand]:
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


def _view(row: Sequence[Any]) -> PilotView:
    """A pilot from a row of PILOTS. As at a claim, it serves the SubmitPools of its queue as they are now."""
    number, state, site, ce, queue, text, created, tq_id, drain, submitted, busy = row
    request = replace(REQUEST.decode(text), site=site, ce=ce, queue=queue, submit_pools=())
    return PilotView(
        pilot_id=number,
        standing=_standing(state, bool(drain), bool(busy)),
        request=request,
        submitted_at=submitted or created,
        tq_id=tq_id,
    )


def _standing(state: str, drain: bool, busy: bool) -> PilotStanding:
    if drain:
        return PilotStanding.DRAINING
    if state == "Running":
        return PilotStanding.BUSY if busy else PilotStanding.IDLE
    return PilotStanding.SUBMITTING if state == "Prepared" else PilotStanding.WAITING
