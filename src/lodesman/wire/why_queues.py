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
    """One step on the way from a job to a pilot in a CE queue.

    `count`: SubmitPools that it serves (submit_pools). `demand`: of the task queues that concern it (director).
    `closings`: who closed it (site_mask). server: what the server itself fails to do for it.
    """

    step: Literal[
        "configured", "server", "access", "possible", "site_mask", "work", "submit_pools", "director", "site_gates", "room",
        "breaker", "submission_pools", "pilots", "lately",
    ]  # fmt: skip
    count: int | UnsetType = UNSET
    demand: Demanded | UnsetType = UNSET
    closings: list[Closing] | UnsetType = UNSET


class QueueClamp(Struct, frozen=True):
    """What took pilots away: `before` came in, at most `limit` were allowed, `after` went on."""

    clamp: ClampName
    before: int
    after: int
    limit: int
    text: str


class QueueDirector(JobDirector, frozen=True):
    """The director's last iteration for the queue: pilots wanted, room for them, placed. None: not considered, or not
    recently. `lines`: the arithmetic of the fullest task queue that fits.
    """

    considered: bool
    wanted: int | None
    clamps: list[QueueClamp]
    placed: int


class QueueLimit(Struct, frozen=True):
    """An upper limit on new pilots now; `shut`: it leaves none."""

    clamp: ClampName
    limit: int
    text: str
    shut: bool


class QueueBreaker(Struct, frozen=True):
    """The trust in the queue after its failures in a row; without trust, when it is tried again."""

    state: BreakerState
    failures: int
    retry_seconds: float | None
    probing: bool
    reason: str


class GateLoad(Struct, frozen=True):
    """Pilots that the batch system reports, None: it cannot; `slots`: how many can run at once, None if unknown."""

    waiting: int | None
    running: int | None
    slots: int | None
    source: str
    age_seconds: float


class QueueOwn(Struct, frozen=True):
    """Live pilots by our own records; `since_load`: submitted after the load was reported."""

    waiting: int
    running: int
    since_load: int


class QueueSubmissionPool(Struct, frozen=True):
    """One of the director's pools of threads that serve the queue; `full`: it takes no tasks. `handled_by`: who handles it
    instead of the director, empty if no one does.
    """

    name: str
    threads: int
    busy: int
    queued: int
    full: bool
    handled_by: str = ""


class QueueGate(Struct, frozen=True):
    """The limits on new pilots there now; `room` None: nothing limits them."""

    room: int | None
    limits: list[QueueLimit]
    breaker: QueueBreaker
    load: GateLoad
    own: QueueOwn
    submission_pools: list[QueueSubmissionPool]


class SentPilot(Struct, frozen=True):
    """A pilot that was sent there recently. `ordered`: to leave, by the server or an administrator."""

    id: int
    stamp: str
    state: PilotState
    reason: str
    sent_seconds_ago: float
    joined: bool
    ended_seconds_ago: float | None
    jobs_done: int
    host: str
    ordered: bool = False


class QueueAges(Struct, frozen=True):
    """The age of each fact in seconds; None: not known."""

    work: float
    director: float | None
    gate: float | None


class QueueExplained(Place, frozen=True):
    """Why no pilots are sent to a CE queue for a VO, or that they are, and who can change that. `work` None: the VO may
    not use it. `gate` None: unknown now. `lately`: the last pilots sent, the newest first.
    """

    vo: str
    verdict: Verdict
    main_reason: QueueReason
    summary: str
    who: str
    chain: list[QueueStep]
    settings: list[QueueSetting]
    work: Work | None
    director: QueueDirector
    gate: QueueGate | None
    pilots: dict[str, int]
    lately: list[SentPilot]
    ages: QueueAges
