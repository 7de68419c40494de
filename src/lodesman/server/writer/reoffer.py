"""A changed configuration reaches existing pilots (ADR 0024).

What a pilot presents is stored, for every process. Later claims use it; waiting claims are matched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from lodesman.decide.matching.offers import QueueOffer
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import pilots
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.sessions import (
    ConfiguredOffer,
    OfferRequests,
    PilotSession,
    configured_part,
    rewrite_request,
)

# The offer of a queue that is not configured, or not for this VO: no job asks for no core.
NOTHING: Final = ConfiguredOffer(platforms=(), cores=0, memory_mb=0, norm_cpu_seconds=0)
# What a queue offers, and the queue itself if hosts differ.
_OfQueue = tuple[ConfiguredOffer, QueueOffer | None]


class Offers:
    """What queues offer VOs. `vos` are computed at once, others on demand."""

    def __init__(self, policy: Policy, vos: Iterable[str] = ()) -> None:
        self.policy = policy
        self._known = {vo: self._of(vo) for vo in vos}

    def __call__(self, vo: str, place: QueueId, host: str | None = None) -> ConfiguredOffer | None:
        """On a host (None: on any); None for a place that is no whole queue."""
        if not all(place):
            return None
        offer, by_host = self._find(vo, place)
        if by_host is None or host is None:
            return offer
        return replace(offer, job_classes=by_host.classes_on(host, self.policy.vocabulary))

    def differ_by_host(self, vo: str, place: QueueId) -> bool:
        """Whether the queue offers different things on its hosts."""
        return self._find(vo, place)[1] is not None

    def _find(self, vo: str, place: QueueId) -> _OfQueue:
        by_queue = self._known.get(vo)
        if by_queue is None:
            by_queue = self._known[vo] = self._of(vo)
        return by_queue.get(place, (NOTHING, None))

    def _of(self, vo: str) -> dict[QueueId, _OfQueue]:
        by_queue: dict[QueueId, _OfQueue] = {}
        for offer in self.policy.vo_config(vo).offers:
            lists = offer.settings.jc_lists
            by_host = offer if lists is not None and (lists.hosts or lists.groups) else None
            by_queue[offer.queue] = ConfiguredOffer(**configured_part(offer.request)), by_host
        return by_queue


def offer_sessions(
    sessions: Iterable[PilotSession], offers: Offers
) -> list[tuple[PilotSession, OfferRequests]]:
    """Let pilots offer what their queues are; returns changed ones, with what undoes it."""
    changed = []
    for session in sessions:
        offer = offers(session.vo, session.queue, session.host.host)
        made = None if offer is None else session.offer_anew(offer)
        if made is not None:
            changed.append((session, made))
    return changed


def set_offers(
    tx: Transaction, live: WriterState, sessions: Mapping[int, PilotSession], offers: Offers
) -> int:
    """Change offers from the next claim on; serve waiting pilots. `sessions`: joined. Returns how many changed."""
    tx.undo.append(partial(setattr, live.pilots, "offers", live.pilots.offers))
    live.pilots.offers = offers
    # Many pilots are alike: each kind is judged once.
    for (vo, place, host, request), numbers in pilots.live_offers(tx, offers.differ_by_host).items():
        offer = offers(vo, place, host)
        text = None if offer is None else rewrite_request(request, offer)
        if text is not None:
            pilots.set_requests(tx, numbers, text)
    changed: list[int] = []
    # Undone last, when the offers are what they were.
    tx.undo.append(partial(live.parked.present_anew, changed))
    for session, made in offer_sessions(list(sessions.values()), offers):
        changed.append(session.id)
        tx.undo.append(partial(session.put_back, made))
    live.parked.serve(tx, live.parked.present_anew(changed))
    return len(changed)
