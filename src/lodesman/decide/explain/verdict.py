"""The judgements that choose a reason for jobs and CE queues, and words for times and amounts.

never: the configuration excludes it. now: a pilot is free or expected within a minute, and no more jobs precede it
than such pilots take. What is unknown opens nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from lodesman.base.errors import counted as counted  # noqa: PLC0414 - one of the texts for people
from lodesman.decide.explain.turns import FIRST, Turn
from lodesman.decide.matching import QueueOffer, TaskQueueKey
from lodesman.decide.matching.criteria import Reason, entering
from lodesman.decide.matching.offers import SUBMISSION_POOLS, NoPilotsReason
from lodesman.decide.resources import MANUAL
from lodesman.languages.gridengine.jclist import NO_JC
from lodesman.wire.vocabulary import MainReason, QueueReason
from lodesman.wire.why_jobs import JobPilots, Step, Verdict

_Facts = TypeVar("_Facts")
_Step = TypeVar("_Step", bound=Step)
_Reason = TypeVar("_Reason")

_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0
_NEVER: Final = frozenset(
    {MainReason.IMPOSSIBLE, MainReason.OVER_LIMIT, QueueReason.NOT_CONFIGURED, QueueReason.NOT_OPEN, QueueReason.NO_BACKEND,
     QueueReason.NO_JOB_FITS, QueueReason.CAPPED, QueueReason.NEVER_RUN, QueueReason.NOT_SERVED}
)  # fmt: skip
_NOW: Final = frozenset(
    {MainReason.PILOT_EXPECTED, MainReason.PILOT_COMING, MainReason.NEXT, QueueReason.PILOTS_EXPECTED}
)
OF_LIMITS: Final = frozenset({MainReason.LIMITED, MainReason.OVER_LIMIT})
"""Of jobs that limits keep from starting."""
STARTS_IN_TURN: Final = frozenset({MainReason.QUEUED, MainReason.PILOTS_BUSY, MainReason.NO_PILOT_SOON})
"""Of jobs that pilots will take, but not soon."""
_BY_NEW_PILOTS: Final = STARTS_IN_TURN | {
    MainReason.PILOT_COMING, MainReason.PILOT_EXPECTED, MainReason.NO_ROOM,
}  # fmt: skip
"""Pilots that have not joined yet may take these jobs."""
SHUT_OUT: Final = frozenset(
    {
        MainReason.IMPOSSIBLE,
        MainReason.CLOSED,
        MainReason.NO_ROOM,
        MainReason.PILOTS_FAIL,
        MainReason.NODE_FAULT,
        MainReason.UNREACHED,
        MainReason.HOST_SHUT,
        MainReason.SITE_GATE,
        MainReason.NO_SUBMISSION_POOL,
        MainReason.LIMITED,
        MainReason.OVER_LIMIT,
        MainReason.WAITS_FOR_JOBS,
        MainReason.AT_MOST,
    }
)
"""No pilot may start these jobs, or none is there nor may be sent: they compete with no others."""


def verdict_of(reason: MainReason | QueueReason) -> Verdict:
    """What a reason means for now."""
    return "never" if reason in _NEVER else "now" if reason in _NOW else "not now"


def judge_job(
    eligible: int,  # the queues that could run it, a mask
    open_queues: int | None,  # those with free capacity at the director's last iteration; None: unknown
    pilots: JobPilots,
    *,
    turn: Turn = FIRST,
    sendable: int = 0,  # the jobs like it that pilots which may be sent would start within a minute
    closed: int = 0,  # the queues closed since that iteration
    refused: bool = False,  # no submission pool takes its pilots
    sends: bool = True,  # the director sends pilots at all
) -> MainReason:
    """Why a job waits."""
    may_be_sent = sends and not refused and open_queues is not None and eligible & open_queues & ~closed
    coming = pilots.free_starts + pilots.soon_starts
    in_time = pilots.any_usable or may_be_sent
    in_order = (
        (not eligible, MainReason.IMPOSSIBLE),
        (turn.is_next(pilots.free_starts), MainReason.NEXT),
        (turn.is_next(coming), MainReason.PILOT_COMING),
        (may_be_sent and turn.is_next(coming + sendable), MainReason.PILOT_EXPECTED),
        (in_time and turn.before, MainReason.QUEUED),
        (pilots.usable_busy, MainReason.PILOTS_BUSY),
        (in_time, MainReason.NO_PILOT_SOON),
        (not eligible & ~closed, MainReason.CLOSED),
        (open_queues is None, MainReason.NOT_DECIDED),
        (not sends, MainReason.DIRECTOR_OFF),
        (refused, MainReason.NO_SUBMISSION_POOL),
    )
    return first_that_holds(in_order, MainReason.NO_ROOM)


class StoppedPilots(NamedTuple):
    """What stops pilots that would take a job, as masks."""

    queues: int = 0  # where pilots do not start, or from where they do not reach the server
    by_nodes: int = 0  # those of them where pilots leave since their nodes are of no use
    kept: int = 0  # a number: jobs like it that pilots would start in free slots, but for announced closings
    shut: int = 0  # queues whose only host gets no jobs
    on_shut: int = 0  # those of `queues` where pilots start on such a host

    def stop(self, reason: MainReason, pilots: JobPilots, sent: int) -> MainReason:
        """Why pilots `sent` to these queues do not take the job; else `reason`."""
        joined = pilots.usable_idle or pilots.usable_busy
        failing = reason in _BY_NEW_PILOTS and not joined and sent and not sent & ~self.queues
        if (failing or reason is MainReason.NO_ROOM) and sent and not sent & ~(self.shut | self.on_shut):
            return MainReason.HOST_SHUT
        if failing:
            at_nodes = MainReason.PILOTS_FAIL if sent & ~self.by_nodes else MainReason.NODE_FAULT
            return MainReason.UNREACHED if pilots.unreached else at_nodes
        return MainReason.HOST_SHUT if reason is MainReason.NO_ROOM and pilots.shut else reason

    def keep(
        self, reason: MainReason, pilots: JobPilots, turn: Turn | None, sendable: int = 0, **_: Any
    ) -> bool:
        """Whether a job whose `turn` it is waits only since closings keep pilots from free slots."""
        coming = pilots.free_starts + pilots.soon_starts + sendable
        return bool(self.kept and turn and reason in STARTS_IN_TURN and turn.is_next(coming + self.kept))


class LimitMasks(NamedTuple):
    """Queues where limits stop a job."""

    queues: int = 0
    never: int = 0  # those of them where they would if nothing ran


_UNLIMITED: Final = LimitMasks()
_STARTING: Final = StoppedPilots()


def judge_with_sites(
    eligible: int,
    open_queues: int | None,
    pilots: JobPilots,  # without those where `limits` keep it from starting
    *,
    gated: int,  # the queues where sites take no pilots for it
    closed: int = 0,
    unsent: int = 0,  # the queues where no pilots are sent
    failing: StoppedPilots = _STARTING,
    limits: LimitMasks = _UNLIMITED,
    **more: Any,
) -> MainReason:
    """`judge_job`, with sites, failing pilots and limits."""
    limited, never = limits
    left = None if open_queues is None else open_queues & ~(gated | limited | failing.shut)
    reason = judge_job(eligible, left, pilots, closed=closed, **more)
    if failing.keep(reason, pilots, **{"turn": None} | more):
        return MainReason.CLOSED
    if reason is not MainReason.IMPOSSIBLE and not pilots.any_usable and not eligible & ~never:
        return MainReason.OVER_LIMIT  # whatever else opens
    usable = eligible & ~closed & ~gated
    if reason is MainReason.NO_ROOM and not usable:
        return MainReason.SITE_GATE
    stopped = failing.stop(reason, pilots, usable & ~unsent)
    if reason is MainReason.IMPOSSIBLE or pilots.any_usable or not (limited or pilots.limited):
        return stopped
    waits = pilots.limited or usable & (open_queues or 0) & limited & ~never
    if not eligible & ~limited or (reason is MainReason.NO_ROOM and waits):
        return MainReason.LIMITED
    return stopped


def chain_of(facts: _Facts, steps: Iterable[Callable[[_Facts], _Step | None]]) -> list[_Step]:
    """The steps in this order, without those that give None."""
    return [step for make in steps if (step := make(facts)) is not None]


def first_that_holds(in_order: Iterable[tuple[object, _Reason]], otherwise: _Reason) -> _Reason:
    """The reason of the first condition that holds."""
    return next((reason for holds, reason in in_order if holds), otherwise)


def count_next(jobs: int, reason: Callable[[int], MainReason]) -> int:
    """How many successive jobs start now; `reason`: of the n-th, from 0."""
    return bisect_left(range(jobs), True, key=lambda n: verdict_of(reason(n)) != "now")


def count_first(jobs: int, reason: Callable[[int], MainReason]) -> int:
    """How many jobs at the front start now, or share the reason of the first."""
    first = reason(0)
    if verdict_of(first) == "now":
        return count_next(jobs, reason)
    return bisect_left(range(jobs), True, key=lambda n: reason(n) is not first)


class Demand(StrEnum):
    """What the last iteration did for a task queue."""

    NEW = "not there at that iteration"
    SUPPLIED = "enough pilots wait or are idle"
    NO_POOL = "no submission pool took its pilots"
    ASKED = "pilots asked"
    NOT_DRAWN = "no pilot drawn this time"


WANTED: Final = frozenset({Demand.NEW, Demand.ASKED, Demand.NOT_DRAWN})
"""Pilots are sent for these, now or soon, where capacity is free."""


def least_job_refused(offer: QueueOffer) -> tuple[Reason, ...]:
    """Why no job at all could run in a queue; () if one could."""
    job_class, variant = entering(next(iter(offer.request.job_classes or ()), NO_JC))
    tags = tuple(sorted(set(offer.request.required_tags)))
    key = TaskQueueKey(
        owner="-",
        group="-",
        vo=offer.request.vo,
        tags=tags,
        norm_cpu_seconds=1,
        job_class=job_class,
        variant=variant,
    )
    return offer.reasons(key, 0)


def judge_offer(
    offer: QueueOffer | None,  # None: the VO may not use it
    closed: NoPilotsReason | None,  # by `never_sent`
    *,
    configured: bool,
    backend_missing: bool,
    never_run: bool = False,  # its batch system runs no pilot that is sent there
) -> QueueReason | None:
    """Why no pilot is ever sent to a queue; None if one may be."""
    if not configured:
        return QueueReason.NOT_CONFIGURED
    if offer is None:
        return QueueReason.NOT_OPEN
    if backend_missing or (closed is not None and closed.parameter == "Backend"):
        return QueueReason.NO_BACKEND
    if least_job_refused(offer):
        return QueueReason.NO_JOB_FITS
    if closed is None:
        return QueueReason.NEVER_RUN if never_run else None
    return QueueReason.NOT_SERVED if closed.parameter == SUBMISSION_POOLS else QueueReason.CAPPED


def judge_work(
    offer: QueueOffer,
    fitting: int,  # the number of task queues that could run there
    demand: Counter[Demand] | None,  # None before the director's first iteration
    capacity: int | None,  # for pilots; None: unknown, -1: unlimited
    *,
    sends: bool,  # the director sends pilots at all
    kept: QueueReason | None = None,  # why none of those task queues may start now
) -> QueueReason:
    """Why pilots are sent to a queue or not, in the order in which to act."""
    counts = demand or Counter()
    in_order = (
        (not fitting, QueueReason.NO_WORK),
        (kept, kept or QueueReason.NO_WORK),
        (offer.backend == MANUAL, QueueReason.MANUAL),
        (demand is None or capacity is None, QueueReason.NOT_DECIDED),
        (not sends, QueueReason.DIRECTOR_OFF),
        (
            any(counts[kind] for kind in WANTED),
            QueueReason.PILOTS_EXPECTED if capacity else QueueReason.NO_ROOM,
        ),
        (counts[Demand.NO_POOL], QueueReason.NO_SUBMISSION_POOL),
    )
    return first_that_holds(in_order, QueueReason.ENOUGH_PILOTS)


# --- words ----------------------------------------------------------------------------------------------


def since(at: float | None, now: float) -> float | None:
    """None if unknown. A clock that ran ahead gives 0."""
    return None if at is None else max(0.0, now - at)


def span(seconds: float) -> str:
    """Such as 5 s, 12 min, 3.4 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def lasting(seconds: float, bound: str = "") -> str:
    """` for 5 s`; '' below half a second."""
    words = span(seconds)
    return "" if words == "0 s" else f" for {bound}{words}"


def ago(seconds: float) -> str:
    """`5 s ago`, `just now`."""
    words = span(seconds)
    return "just now" if words == "0 s" else f"{words} ago"


def between(low: float, high: float) -> str:
    """`in about 5 s to 2 min`; `within 2 min` from now on."""
    first, last = span(low), span(max(1.0, high))
    return f"within {last}" if first == "0 s" else f"in about {first} to {last}"


def last_pilots(n: int) -> str:
    """`the last pilot`, `the last 3 pilots`."""
    return "the last pilot" if n == 1 else f"the last {n:,} pilots"


def with_fault(summary: str, fault: str) -> str:
    """A summary, and the fault of the server, if any."""
    return (
        f"{summary} The server fails: {fault}. Its log has more; its administrator can mend it."
        if fault
        else summary
    )


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def some_of(texts: Sequence[str], most: int, joint: str = "; ", noun: str = "") -> str:
    """The first texts and how many more: `a; b; and 3 more`, `a, b and 3 more`."""
    text, more = joint.join(texts[:most]), len(texts) - most
    if more <= 0:
        return text
    return f"{text}{joint if joint == '; ' else ' '}and {counted(more, f'more {noun}') if noun else f'{more} more'}"


def excluded(counts: Iterable[tuple[str, int]], of: str = "") -> str:
    """`Memory excludes 3, Tag excludes 1`; `of`: what follows each number."""
    return ", ".join(f"{name} excludes {n}{of}" for name, n in counts)
