"""Why no pilots are sent to a CE queue: the answer of `GET /v1/queues/why`."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.nodes import Closing, Place, QueueSetting
from lodesman.wire.vocabulary import BreakerState, ClampName, PilotState, QueueReason
from lodesman.wire.why_jobs import JobDirector, Step, Verdict
from lodesman.wire.why_pilots import Work


class Demanded(Struct, frozen=True):
    """Task queues by what the last iteration did for them: new, supplied, without submission pool, asked, not drawn."""

    new: int | UnsetType = UNSET
    supplied: int | UnsetType = UNSET
    no_pool: int | UnsetType = UNSET
    asked: int | UnsetType = UNSET
    not_drawn: int | UnsetType = UNSET


class QueueStep(Step, frozen=True):
    """One step on the way from a job to a pilot in a CE queue."""

    # server: what the server itself fails to do for it.
    step: Literal[
        "configured", "server", "access", "possible", "site_mask", "work", "submit_pools", "director", "site_gates", "room",
        "breaker", "submission_pools", "pilots", "lately",
    ]  # fmt: skip
    count: int | UnsetType = UNSET  # SubmitPools that it serves (submit_pools).
    demand: Demanded | UnsetType = UNSET  # Of the task queues that concern it (director).
    closings: list[Closing] | UnsetType = UNSET  # Who closed it (site_mask).


class QueueClamp(Struct, frozen=True):
    """What took pilots away."""

    clamp: ClampName
    before: int  # How many came in.
    after: int  # How many went on.
    limit: int  # How many were allowed at most.
    text: str


class QueueDirector(JobDirector, frozen=True):
    """The director's last iteration for the queue. None: not considered, or not recently. `lines` is the arithmetic of
    the fullest task queue that fits.
    """

    considered: bool
    wanted: int | None  # How many pilots.
    clamps: list[QueueClamp]
    placed: int  # How many pilots.


class QueueLimit(Struct, frozen=True):
    """An upper limit on new pilots now."""

    clamp: ClampName
    limit: int
    text: str
    shut: bool  # It leaves none.


class QueueBreaker(Struct, frozen=True):
    """The trust in the queue."""

    state: BreakerState
    failures: int  # In a row.
    retry_seconds: float | None  # Without trust, when the queue is tried again.
    probing: bool
    reason: str


class GateLoad(Struct, frozen=True):
    """Pilots that the batch system reports."""

    waiting: int | None  # None: it cannot.
    running: int | None  # None: it cannot.
    slots: int | None  # How many can run at once; None if unknown.
    source: str
    age_seconds: float


class QueueOwn(Struct, frozen=True):
    """Live pilots by our own records."""

    waiting: int
    running: int
    since_load: int  # Submitted after the load was reported.


class QueueSubmissionPool(Struct, frozen=True):
    """One of the director's pools of threads that serve the queue."""

    name: str
    threads: int
    busy: int
    queued: int
    full: bool  # It takes no tasks.
    handled_by: str = ""  # Who handles it instead of the director; '' if no one does.


class QueueGate(Struct, frozen=True):
    """The limits on new pilots there now."""

    room: int | None  # None: nothing limits them.
    limits: list[QueueLimit]
    breaker: QueueBreaker
    load: GateLoad
    own: QueueOwn
    submission_pools: list[QueueSubmissionPool]


class SentPilot(Struct, frozen=True):
    """A pilot that was sent there recently."""

    id: int
    stamp: str
    state: PilotState
    reason: str
    sent_seconds_ago: float
    joined: bool
    ended_seconds_ago: float | None
    jobs_done: int
    host: str
    ordered: bool = False  # To leave, by the server or an administrator.


class QueueAges(Struct, frozen=True):
    """The age of each fact in seconds; None: not known."""

    work: float
    director: float | None
    gate: float | None


class QueueExplained(Place, frozen=True):
    """Why no pilots are sent to a CE queue for a VO, or that they are, and who can change that."""

    vo: str
    verdict: Verdict
    main_reason: QueueReason
    summary: str
    who: str
    chain: list[QueueStep]
    settings: list[QueueSetting]
    work: Work | None  # None: the VO may not use the queue.
    director: QueueDirector
    gate: QueueGate | None  # None: unknown now.
    pilots: dict[str, int]
    lately: list[SentPilot]  # The last pilots sent, the newest first.
    ages: QueueAges
