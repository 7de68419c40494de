"""Queues to which no pilot will ever be sent as things are configured: the one predicate for jobs and for queues.

A job that only such queues could run is impossible, and of such a queue `lode why` says never, unless pilots live there
all the same: they were sent before the configuration changed, and take jobs until they end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from lodesman.matching import QueueOffer

BACKENDS: Final = frozenset({"local"})
"""The batch systems that there are."""
BY_HAND: Final = "by-hand"
"""The `Backend` of queues to which pilots come without being sent by this server."""
CAUSES: Final = ("Backend", "MaxTotalJobs", "MaxWaitingJobs", "Slots")
"""The parameters that can keep all pilots away."""


class Closed(NamedTuple):
    """The parameter of a queue that keeps all pilots away, and the reason in words."""

    parameter: str
    text: str


def not_sent(offer: QueueOffer, backends: Collection[str] = BACKENDS) -> Closed | None:
    """Why this server sends no pilot to a queue: none ever comes, or others start them there."""
    if offer.backend == BY_HAND:
        return Closed("Backend", "pilots there are started by hand")
    return never_sent(offer, backends)


def never_sent(offer: QueueOffer, backends: Collection[str] = BACKENDS) -> Closed | None:
    """Why no pilot is ever sent to a queue; None if some may be, or come by themselves."""
    settings = offer.settings
    if offer.backend == BY_HAND:
        return None
    if offer.backend not in backends:
        return Closed("Backend", f"there is no backend {offer.backend!r} here")
    if settings.max_total_jobs == 0:
        return Closed("MaxTotalJobs", "MaxTotalJobs is 0")
    if settings.max_waiting_jobs == 0 and not settings.waiting_to_running_ratio:
        return Closed("MaxWaitingJobs", "MaxWaitingJobs is 0")
    if settings.slots == 0:
        return Closed("Slots", "Slots is 0")
    return None
