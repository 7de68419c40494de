"""The CE queues as the director's candidates: configuration, what their batch systems say, and our own pilots.

A queue may have other settings for each VO (overlays). What a pilot presents is its VO's; what holds for all pilots of the
queue together (caps, slots) is the least that any VO is told there, of those to whom pilots may be sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from lodesman.batch.backend import Backend
from lodesman.director.limits import Observation
from lodesman.director.queues import CandidateQueue, OwnPilots, QueueCaps
from lodesman.director.site_mask import SiteMask
from lodesman.matching import QueueOffer
from lodesman.matching.offers import never_sent, not_sent
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId


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
    """Makes the candidates of one iteration. `pools` are the director's submission pools: they serve every queue.
    `mask`: what is closed.
    """

    policy: Policy
    backends: Mapping[str, Backend]
    pools: tuple[str, ...]
    own: Mapping[QueueId, OwnQueue]
    now: float
    mask: SiteMask = field(default_factory=SiteMask)

    def make(self, vos: Iterable[str]) -> list[CandidateQueue]:
        """All queues that one of the VOs may use."""
        by_queue: dict[QueueId, dict[str, QueueOffer]] = {}
        for vo in vos:
            for offer in self.policy.vo_config(vo).offers:
                by_queue.setdefault(offer.queue, {})[vo] = offer
        return [self._candidate(queue, self._sent(offers) or offers) for queue, offers in by_queue.items()]

    def one(self, vo: str, offer: QueueOffer, vos: Iterable[str]) -> CandidateQueue:
        """A single queue as a VO sees it, with the limits that it shares with the other `vos`."""
        offers = {vo: offer}
        for other in vos:
            found = self.policy.vo_config(other).by_bit.get(offer.bit)
            if found is not None and found.queue == offer.queue:
                offers.setdefault(other, found)
        sent = self._sent(offers)
        return self._candidate(offer.queue, sent if vo in sent else {vo: offer})

    def _sent(self, offers: Mapping[str, QueueOffer]) -> dict[str, QueueOffer]:
        """The VOs to whom pilots may be sent: one that is told never to send any there shuts no queue to others."""
        return {
            vo: offer
            for vo, offer in offers.items()
            if offer.backend in self.backends and never_sent(offer, self.backends) is None
        }

    def _candidate(self, queue_id: QueueId, offers: Mapping[str, QueueOffer]) -> CandidateQueue:
        names = sorted({offer.backend for offer in offers.values()})
        loads = [self.backends[name].load(queue_id) for name in names if name in self.backends]
        seen_at = min((load.observed_at for load in loads), default=self.now)
        source = ", ".join(names) if loads else "nobody"
        waiting, running = _sum(load.waiting for load in loads), _sum(load.running for load in loads)
        return CandidateQueue(
            queue_id=queue_id,
            templates={vo: offer.request for vo, offer in offers.items()},
            submission_pools=self.pools,
            load_waiting=Observation(value=waiting, observed_at=seen_at, source=source),
            load_running=Observation(value=running, observed_at=seen_at, source=source),
            own=self.own.get(queue_id, OwnQueue()).seen(seen_at),
            caps=_tightest({_caps(offer) for offer in offers.values()}),
            slots=_least(offer.settings.slots for offer in offers.values()),
            closed=self.mask.reason(queue_id, self.now),
            no_backend="" if loads else _no_backend(next(iter(offers.values())), self.backends),
        )


def _no_backend(offer: QueueOffer, backends: Collection[str]) -> str:
    closed = not_sent(offer, backends)
    return "" if closed is None else closed.text


def _caps(offer: QueueOffer) -> QueueCaps:
    settings, default = offer.settings, QueueCaps()
    return QueueCaps(
        max_waiting=_or(settings.max_waiting_jobs, default.max_waiting),
        max_total=_or(settings.max_total_jobs, default.max_total),
        waiting_to_running=float(settings.waiting_to_running_ratio or 0.0),
    )


def _tightest(caps: Collection[QueueCaps]) -> QueueCaps:
    """Each of the caps where it is least."""
    if len(caps) == 1:
        return next(iter(caps))
    return QueueCaps(
        max_waiting=_least(one.max_waiting for one in caps),
        max_total=_least(one.max_total for one in caps),
        waiting_to_running=min(one.waiting_to_running for one in caps),
    )


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((one for one in numbers if one is not None), default=None)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None if one of them is unknown, or nobody told any."""
    found = list(numbers)
    known = [one for one in found if one is not None]
    return sum(known) if known and len(known) == len(found) else None


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
