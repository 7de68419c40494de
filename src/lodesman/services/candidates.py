"""The CE queues as the director's candidates: configuration, what their batch systems say, and our own pilots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from lodesman.batch import Backend
from lodesman.director import CandidateQueue, Observation, OwnPilots, QueueCaps, QueueId
from lodesman.matching import QueueOffer, ResourceRequest
from lodesman.services.policy import Policy

SLOTS = "slots"


@dataclass(slots=True)
class OwnQueue:
    """Our live pilots in one CE queue; `submitted_at` has a time for each, infinite while that is under way."""

    waiting: int = 0
    running: int = 0
    submitted_at: list[float] = field(default_factory=list)

    def seen(self, observed_at: float) -> OwnPilots:
        """The numbers, beside a load that was observed then."""
        unseen = sum(1 for at in self.submitted_at if at > observed_at)
        return OwnPilots(waiting=self.waiting, running=self.running, since_load=unseen)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMaker:
    """Makes the candidates of one iteration. `pools` are the director's submission pools: they serve every queue."""

    policy: Policy
    backends: Mapping[str, Backend]
    pools: tuple[str, ...]
    own: Mapping[QueueId, OwnQueue]
    now: float

    def make(self, vos: Iterable[str]) -> list[CandidateQueue]:
        """All queues that one of the VOs may use."""
        templates: dict[QueueId, dict[str, ResourceRequest]] = {}
        offers: dict[QueueId, tuple[str, QueueOffer]] = {}
        for vo in vos:
            for offer in self.policy.world(vo).offers:
                queue_id = QueueId(*offer.queue)
                templates.setdefault(queue_id, {})[vo] = offer.request
                offers[queue_id] = vo, offer
        return [self._candidate(queue_id, by_vo, *offers[queue_id]) for queue_id, by_vo in templates.items()]

    def one(self, vo: str, offer: QueueOffer) -> CandidateQueue:
        """A single queue as a VO sees it."""
        return self._candidate(QueueId(*offer.queue), {vo: offer.request}, vo, offer)

    def _candidate(
        self, queue_id: QueueId, templates: dict[str, ResourceRequest], vo: str, offer: QueueOffer
    ) -> CandidateQueue:
        backend = self.backends.get(offer.backend)
        load = backend.load((queue_id.site, queue_id.ce, queue_id.queue)) if backend else None
        seen_at, source = (load.observed_at, offer.backend) if load else (self.now, "nobody")
        waiting, running = (load.waiting, load.running) if load else (None, None)
        return CandidateQueue(
            queue_id=queue_id,
            templates=templates,
            submission_pools=self.pools,
            load_waiting=Observation(value=waiting, observed_at=seen_at, source=source),
            load_running=Observation(value=running, observed_at=seen_at, source=source),
            own=self.own.get(queue_id, OwnQueue()).seen(seen_at),
            caps=_caps(offer),
            slots=self._slots(vo, offer),
            closed="" if backend else f"there is no backend {offer.backend!r} here",
        )

    def _slots(self, vo: str, offer: QueueOffer) -> int | None:
        """`Slots` of the queue; None if it tells none."""
        found = self.policy.world(vo).table.params(offer.queue).get(SLOTS)
        return found.value if found is not None and isinstance(found.value, int) else None


def _caps(offer: QueueOffer) -> QueueCaps:
    settings, default = offer.settings, QueueCaps()
    return QueueCaps(
        max_waiting=_or(settings.max_waiting_jobs, default.max_waiting),
        max_total=_or(settings.max_total_jobs, default.max_total),
        waiting_to_running=float(settings.waiting_to_running_ratio or 0.0),
    )


def _or(value: int | None, default: int | None) -> int | None:
    return default if value is None else value


def own_queues(rows: Iterable[tuple[str, QueueId, float]]) -> dict[QueueId, OwnQueue]:
    """Our live pilots by queue; rows are (state, queue, when it was submitted)."""
    found: dict[QueueId, OwnQueue] = {}
    for state, queue_id, submitted_at in rows:
        queue = found.setdefault(queue_id, OwnQueue())
        if state == "Running":
            queue.running += 1
        else:
            queue.waiting += 1
        # Prepared: whether the batch system has it, and since when, is not known yet.
        queue.submitted_at.append(inf if state == "Prepared" else submitted_at)
    return found
