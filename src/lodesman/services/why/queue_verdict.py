"""never, not now or now for a CE queue: may pilots be sent there, and if not, what stands in the way. Pure.

never: as things are configured no pilot will ever be sent there. now: jobs wait that a pilot there could run, the
director would still send pilots for them, and the queue has room. not now: everything between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lodesman.answers.vocabulary import ClampName, QueueReason
from lodesman.matching import QueueOffer, Reason, TaskQueueKey
from lodesman.services.why.picture import NOT_LOOKED_AT, NOT_WANTED, Iteration
from lodesman.services.why.verdict import NEVER, NOT_NOW, NOW
from lodesman.submission import never_sent

_NEVER: Final = frozenset(
    {QueueReason.NOT_CONFIGURED, QueueReason.NOT_OPEN, QueueReason.NO_BACKEND, QueueReason.NO_JOB_FITS, QueueReason.CAPPED}
)  # fmt: skip
VERDICTS: Final = {
    one: NEVER if one in _NEVER else NOW if one is QueueReason.PILOTS_EXPECTED else NOT_NOW
    for one in QueueReason
}
CONFIGURES: Final = "who configures the sites"
NEXT_ITERATION: Final = "the server, at the director's next iteration"
STARTS_OR_ENDS: Final = f"time, as pilots there start or end; or {CONFIGURES}"
WHO: Final = {
    QueueReason.NOT_CONFIGURED: CONFIGURES,
    QueueReason.NOT_OPEN: f"{CONFIGURES}: its VO list",
    QueueReason.NO_BACKEND: f"{CONFIGURES}: Backend",
    QueueReason.NO_JOB_FITS: CONFIGURES,
    QueueReason.CAPPED: f"{CONFIGURES}: MaxWaitingJobs, MaxTotalJobs, Slots",
    QueueReason.NO_WORK: "users, by submitting jobs that fit; or who configures the sites",
    QueueReason.BY_HAND: "who starts pilots there",
    QueueReason.NOT_DECIDED: NEXT_ITERATION,
    QueueReason.DIRECTOR_OFF: "who configures the director: pilotsPerIteration; or time, if targetRunningJobs jobs run",
    QueueReason.ENOUGH_PILOTS: "time, as pilots take jobs; or who configures the director: extraPilots",
    QueueReason.NO_SUBMISSION_POOL: "time, as submissions end; or who configures the submission pools",
    QueueReason.NO_ROOM: STARTS_OR_ENDS,
    QueueReason.PILOTS_EXPECTED: "nobody need do anything",
}
WHO_OPENS: Final[Mapping[str, str]] = {
    ClampName.CLOSED: "an administrator: lode site open",
    ClampName.NO_BACKEND: f"{CONFIGURES}: Backend; or who starts pilots there",
    ClampName.UNKNOWN_LOAD: "who runs the batch system, by having it tell its load",
    ClampName.BREAKER: "time, it is tried again by itself; or who runs the batch system",
    ClampName.TOKEN_BUCKET: "time, a minute or two; or who configures the director: pilotsPerMinute",
    NOT_LOOKED_AT: NEXT_ITERATION,
    NOT_WANTED: NEXT_ITERATION,
}
"""What leaves a queue no room -> who can change that; for all others it is STARTS_OR_ENDS."""


def who_opens(gates: Iterable[str]) -> str:
    """Who can open some of these gates, each named once."""
    return "; ".join(dict.fromkeys(WHO_OPENS.get(gate, STARTS_OR_ENDS) for gate in gates)) or STARTS_OR_ENDS


class Demand(StrEnum):
    """What the director's last iteration did for a task queue."""

    NEW = "not there at that iteration"
    SUPPLIED = "enough pilots wait or are idle"
    NO_POOL = "no submission pool took its pilots"
    ASKED = "pilots asked"
    NOT_DRAWN = "no pilot drawn this time"


WANTED: Final = frozenset({Demand.NEW, Demand.ASKED, Demand.NOT_DRAWN})
"""For these the director sends pilots, now or at an iteration that follows, if there is room."""


def demands(iteration: Iteration, task_queues: Iterable[int]) -> Counter[Demand]:
    """How many of the task queues the last iteration did what for."""
    place = {name: number for number, name in enumerate(iteration.record["row_fields"])}
    asked, cap = place["asked"], place["cap"]
    rows = iteration.rows
    found: Counter[Demand] = Counter()
    for tq_id in task_queues:
        row = rows.get(tq_id)
        if row is None:
            found[Demand.NEW] += 1
        elif iteration.no_pool(tq_id):
            found[Demand.NO_POOL] += 1
        elif row[asked] > 0:
            found[Demand.ASKED] += 1
        else:
            found[Demand.SUPPLIED if row[cap] <= 0 else Demand.NOT_DRAWN] += 1
    return found


def least_job_refused(offer: QueueOffer) -> tuple[Reason, ...]:
    """Why not even the job that asks for least could run in a queue; () if it could.

    It asks for one core and one second, and has just the tags that the queue wants.
    """
    tags = tuple(sorted(set(offer.request.required_tags)))
    key = TaskQueueKey(owner="-", group="-", vo=offer.request.vo, tags=tags, norm_cpu_seconds=1)
    return offer.reasons(key, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What the judgement needs. `offer` is None for a queue that the VO may not use; `room` None if nobody knows,
    -1 if nothing limits it. `demand` is None before the director's first iteration; `sends`: it sends pilots at all.
    """

    configured: bool
    offer: QueueOffer | None
    backend_missing: bool
    by_hand: bool = False
    fitting: int
    demand: Counter[Demand] | None
    room: int | None
    sends: bool = True


def judge_queue(facts: QueueFacts) -> QueueReason:
    """The reason, in the order in which somebody would have to act."""
    never = _judge_configuration(facts)
    if never is not None:
        return never
    if not facts.fitting:
        return QueueReason.NO_WORK
    if facts.by_hand:
        return QueueReason.BY_HAND
    if facts.demand is None or facts.room is None:
        return QueueReason.NOT_DECIDED
    if not facts.sends:
        return QueueReason.DIRECTOR_OFF
    if not any(facts.demand[one] for one in WANTED):
        refused = facts.demand[Demand.NO_POOL] > 0
        return QueueReason.NO_SUBMISSION_POOL if refused else QueueReason.ENOUGH_PILOTS
    return QueueReason.PILOTS_EXPECTED if facts.room else QueueReason.NO_ROOM


def _judge_configuration(facts: QueueFacts) -> QueueReason | None:
    if not facts.configured:
        return QueueReason.NOT_CONFIGURED
    if facts.offer is None:
        return QueueReason.NOT_OPEN
    closed = never_sent(facts.offer)
    if facts.backend_missing or (closed is not None and closed.parameter == "Backend"):
        return QueueReason.NO_BACKEND
    if least_job_refused(facts.offer):
        return QueueReason.NO_JOB_FITS
    return None if closed is None else QueueReason.CAPPED
