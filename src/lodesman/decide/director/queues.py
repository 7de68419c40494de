"""A CE queue for the director, and its limits on new pilots. Unknown or stale loads let nothing through. What the
program submitted counts even if no load shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from lodesman.base.errors import counted
from lodesman.decide.director.limits import Breaker, Clamp, Limit, breaker_allowance, clamp, describe_breaker
from lodesman.decide.director.site_matching import NO_SITES, SiteMatching
from lodesman.decide.matching.offers import PilotShape
from lodesman.decide.matching.request import ResourceRequest
from lodesman.wire.nodes import BreakerOrder, NodePath, QueueId
from lodesman.wire.vocabulary import ClampName


class QueueCaps(Struct, frozen=True, kw_only=True):
    """On pilots in one CE queue; None: no cap."""

    max_waiting: int | None = 10  # MaxWaitingJobs
    max_total: int | None = 10  # MaxTotalJobs
    # WaitingToRunningRatio: this fraction of those running may wait, if more than max_waiting (as in
    # DIRAC)
    waiting_to_running: float = 0.0
    max_running: int | None = None  # MaxRunningJobs
    max_held: int | None = None  # MaxHeldJobs
    ramp: bool = False  # at most twice as many pilots as run, and RAMP_START more


# of a queue of a batch system elsewhere, where none are configured
REMOTE_CAPS: Final = QueueCaps(max_waiting=100, max_total=None, max_held=10, ramp=True)
RAMP_START: Final = 4


class QueueLoad(NamedTuple):
    """Pilots of a CE queue, by `source` at `observed_at` (UNIX seconds); None: unknown."""

    waiting: int | None
    running: int | None
    observed_at: float
    source: str
    held: int | None = None
    others: int | None = 0  # jobs there that are not ours
    free: int | None = None  # pilots that would start at once
    fault: str = ""  # why nothing newer is known, '' if the last poll succeeded

    @property
    def is_known(self) -> bool:
        """Whether both numbers are known, at any age."""
        return None not in (self.waiting, self.running) and min(self.waiting or 0, self.running or 0) >= 0

    def age_s(self, now: float) -> float:
        """Seconds since the observation, at least 0."""
        return max(0.0, now - self.observed_at)

    def doubts(self, *, now: float, max_age_s: float) -> str:
        """Why the load may not be acted on; '' if it may."""
        doubts = []
        if self.fault and (not self.is_known or self.age_s(now) > max_age_s):
            return f"{self.source} does not answer: {self.fault}"
        for name, value in (("waiting", self.waiting), ("running", self.running)):
            if value is None:
                doubts.append(f"{name}: {self.source} did not know")
            elif value < 0:
                doubts.append(f"{name}: {self.source} said {value}, which is not a count")
            elif self.age_s(now) > max_age_s:
                doubts.append(f"{name}: seen {self.age_s(now):.0f} s ago, older than {max_age_s:.0f} s")
        return "; ".join(doubts)


class OwnPilots(Struct, frozen=True, kw_only=True):
    """Live pilots by our records."""

    waiting: int = 0  # with those being submitted
    running: int = 0
    since_load: int = 0  # submitted after the load of the queue was observed


class CandidateQueue(Struct, frozen=True, kw_only=True):
    """A CE queue that may get pilots."""

    queue_id: QueueId
    bit: int  # in all masks of CE queues
    templates: Mapping[str, ResourceRequest]  # by VO, what a generic pilot would present, but for SubmitPools
    submission_pools: tuple[str, ...]  # the director's pools that serve it
    load: QueueLoad
    own: OwnPilots = OwnPilots()
    caps: QueueCaps = QueueCaps()
    slots: int | None = None  # pilots that can run there at once, None: unknown
    closed: str = ""  # who closed it and why (`site_mask`), '' if it is open
    order: BreakerOrder | None = None  # an administrator's, for its breaker
    no_backend: str = ""  # why there is nothing to send pilots to, '' if there is
    private_only: Collection[str] = ()  # VOs whose generic pilots it does not take
    shapes: Collection[PilotShape] = ()  # what pilots of each VO ask for there
    never: str = ""  # why its batch system never runs such pilots, '' if not known
    refused: str = ""  # why it does not run them for now
    no_pool: str = ""  # why there is nothing to send pilots through, '' if there is
    credential: str = ""  # why nothing may be submitted with that of its batch system, '' if it may
    host: Limit | None = None  # what its only host lets through, None: that gets jobs, or there are others
    shut_for: Mapping[str, str] = field(default_factory=dict)  # as `credential`, by identity


class QueueGates(Struct, frozen=True, kw_only=True):
    """Limits of queues besides their load."""

    breakers: Mapping[QueueId, Breaker]  # absent: closed
    tokens: Mapping[NodePath, int]  # whole tokens of the CEs; absent: not limited
    max_load_age_s: float  # when a load is no longer believed
    sites: SiteMatching = NO_SITES


class Room(Struct, frozen=True, kw_only=True):
    """What a CE queue takes."""

    wanted: int  # pilots
    room: int  # at most; without any limit the wanted ones
    # for the wanted pilots, or for one if none is wanted: what shuts a queue is always known
    clamps: tuple[Clamp, ...] = ()


def queue_limits(
    queue: CandidateQueue, *, gates: QueueGates, now: float, site: Limit | None = None
) -> Iterator[Limit]:
    """The limits on new pilots, in order."""
    shut = (
        (ClampName.CLOSED, queue.closed),
        (ClampName.NO_BACKEND, queue.no_backend),
        (ClampName.NO_POOL, queue.no_pool),
        (ClampName.LIST_MATCH, queue.never),
        (ClampName.REFUSED_FOR_NOW, queue.refused),
        (ClampName.CREDENTIAL, queue.credential),
    )
    yield from (Limit(name=name, limit=0, detail=text) for name, text in shut if text)
    if queue.host is not None:
        yield queue.host
    doubts = queue.load.doubts(now=now, max_age_s=gates.max_load_age_s)
    if doubts:
        yield Limit(name=ClampName.UNKNOWN_LOAD, limit=0, detail=doubts)
    breaker = gates.breakers.get(queue.queue_id, Breaker())
    trusted = breaker_allowance(breaker)
    if queue.order is not None:
        if queue.order.state == "open":
            yield Limit(name=ClampName.BREAKER, limit=0, detail=queue.order.text)
    elif trusted is not None:
        yield Limit(name=ClampName.BREAKER, limit=trusted, detail=describe_breaker(breaker))
    if not doubts:
        yield from _cap_limits(queue)
    tokens = gates.tokens.get(queue.queue_id.ce_path)
    if tokens is not None:
        yield Limit(
            name=ClampName.TOKEN_BUCKET,
            limit=tokens,
            detail=f"{counted(tokens, 'submission')} left on the CE",
        )
    if site is not None:
        yield site


def _cap_limits(queue: CandidateQueue) -> Iterator[Limit]:
    own, caps = queue.own, queue.caps
    seen_waiting, seen_running = queue.load.waiting or 0, queue.load.running or 0
    waiting = max(own.waiting, seen_waiting + own.since_load)
    total = max(own.waiting + own.running, seen_waiting + seen_running + own.since_load)
    if caps.max_waiting is not None:
        most, detail = caps.max_waiting, f"MaxWaitingJobs {caps.max_waiting}"
        # Those that run by both, the fewest that can be running.
        running = min(own.running, seen_running)
        if int(caps.waiting_to_running * running) > most:
            most = int(caps.waiting_to_running * running)
            detail = f"WaitingToRunningRatio {caps.waiting_to_running:g} x {running} running"
        yield Limit(name=ClampName.MAX_WAITING, limit=most - waiting, detail=f"{detail} - {waiting} waiting")
    if queue.slots == 0:
        yield Limit(name=ClampName.MAX_TOTAL, limit=0, detail="Slots is 0")
    elif caps.max_total is not None:
        detail = f"MaxTotalJobs {caps.max_total} - {total} waiting and running"
        yield Limit(name=ClampName.MAX_TOTAL, limit=caps.max_total - total, detail=detail)
    if caps.max_running is not None:
        detail = f"MaxRunningJobs {caps.max_running} - {total} that run or will"
        yield Limit(name=ClampName.MAX_RUNNING, limit=caps.max_running - total, detail=detail)
    held = queue.load.held or 0
    if caps.max_held is not None and held >= caps.max_held:
        detail = f"{held} held, MaxHeldJobs {caps.max_held}"
        yield Limit(name=ClampName.MAX_HELD, limit=0, detail=detail)
    if caps.ramp:
        most = 2 * own.running + RAMP_START
        detail = f"2 x {own.running} running + {RAMP_START} - {total} waiting and running"
        yield Limit(name=ClampName.RAMP, limit=most - total, detail=detail)


def room_of(
    queue: CandidateQueue, wanted: int, *, gates: QueueGates, now: float, site: Limit | None = None
) -> Room:
    """The room before any pilot is placed."""
    limits = tuple(queue_limits(queue, gates=gates, now=now, site=site))
    # All of the free room, not only what is wanted of it: rooms are the weights of the draw.
    room = max(0, min((limit.limit for limit in limits), default=wanted))
    return Room(wanted=wanted, room=room, clamps=clamp(max(1, wanted), limits).clamps)


def others(queue: CandidateQueue) -> int | None:
    """Jobs there that are not our pilots; None: unknown."""
    if not queue.load.is_known or queue.load.others is None:
        return None
    ours = queue.own.waiting + queue.own.running - queue.own.since_load
    return queue.load.others + max(0, (queue.load.waiting or 0) + (queue.load.running or 0) - ours)


def free_slots(queue: CandidateQueue) -> int:
    """Slots where a pilot would start at once; 0 if unknown."""
    if queue.load.free is not None:
        return max(0, queue.load.free - max(queue.load.waiting or 0, queue.own.waiting))
    if queue.slots is None:
        return 0
    used = (queue.load.waiting or 0) + (queue.load.running or 0)
    return max(0, queue.slots - max(used + queue.own.since_load, queue.own.waiting + queue.own.running))
