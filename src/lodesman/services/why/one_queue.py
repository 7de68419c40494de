"""`lode why JOB --queue SITE/CE/QUEUE`: all that one queue has against a job."""

from __future__ import annotations

from typing import Any

from lodesman.resources import QueueId
from lodesman.services.why.job_case import JobCase
from lodesman.services.why.picture import shut_to
from lodesman.submission import never_sent


def tell_queue(case: JobCase, place: QueueId) -> dict[str, Any]:
    """JSON values: the criteria that rule the queue out, each reason in words, and what it has room for.

    `room` is None if the director has not decided for long, or did not look at it.
    """
    found, decision = case.found, case.decision
    try:
        ordinal = found.world.table.ordinal(place)
    except KeyError:
        ordinal = -1
    offer = found.world.by_ordinal.get(ordinal)
    room = None if decision is None or offer is None else decision.room(place)
    shut = None if offer is None else shut_to(found.world, offer)
    masked = case.mask.told(place, case.now) or ("" if shut is None else shut[1])
    if offer is None:
        why = "there is no such queue" if ordinal < 0 else f"VO {case.key.vo} may not use it"
        criteria, reasons = ["VO" if ordinal >= 0 else "Queue"], [why]
    else:
        criteria = [name for name, mask in found.planes if mask >> ordinal & 1]
        reasons = [*found.reasons(ordinal)]
        closed = never_sent(offer, found.world.backends)
        reasons += [closed.text] if closed and closed.parameter in criteria else []
    return {
        "site": place.site,
        "ce": place.ce,
        "queue": place.queue,
        "eligible": not criteria,
        "ruled_out_by": criteria,
        "reasons": reasons,
        "room": 0 if masked else None if room is None else room["room"],
        "gate": masked
        or ("" if room is None or room["room"] > 0 or decision is None else decision.gate(place)[1]),
    }
