"""Pilots that joined, as the hot process keeps them: last word, what they may match, who they are.

What a pilot presents at a time is worked out here once, for claims, for `why` and for the director: what is configured
of its queue, no more of it than its node has, and of that what is free. Leases live in memory only: the time that a
server was down never counts, and after a start every pilot gets a full term (DESIGN 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from lodesman.commands.pool_map import PoolMap
from lodesman.matching import ResourceRequest
from lodesman.matching.offers import CPU_STEP
from lodesman.matching.offers import UNLIMITED as NO_LIMIT
from lodesman.resources import QueueId
from lodesman.store import Reader
from lodesman.store.read.pilots import PilotRow, joined_pilots

UNLIMITED: Final = NO_LIMIT
SILENT_SECONDS: Final = 300.0
"""A pilot that was not heard for so long missed several heartbeats: nobody counts on it any more."""
KEPT_REQUESTS: Final = 32


@dataclass(frozen=True, slots=True)
class Free:
    """What a pilot has free now. `norm_cpu_seconds` is what is left of its life."""

    cores: int
    memory_mb: int
    norm_cpu_seconds: int


class Ask(NamedTuple):
    """A claim as it came, whatever became of it; `at` in UNIX seconds."""

    at: float
    free: Free
    jobs: int


class Known(Struct, frozen=True, kw_only=True):
    """What is stored of a pilot before it starts: a ResourceRequest as the director made it from the configuration.

    None: nothing is known, so what the node tells counts. That is so only of pilots that were sent to no known queue.
    """

    vo: str = ""
    groups: tuple[str, ...] | None = None
    owner: str = ""
    pilot_type: str = ""
    submission_pool: str = ""
    platforms: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    job_types: tuple[str, ...] | None = None
    cores: int | None = None
    memory_mb: int | None = None
    norm_cpu_seconds: int | None = None


class Told(Struct, frozen=True, kw_only=True):
    """What a node tells of itself when its pilot joins. Anything may stand in it: it is the word of a stranger.

    `life_s`: seconds that were left for payloads then, None if no end is known. `cpu_scaling_factor`: norm_cpu_seconds
    for each of them.
    """

    platform: Any = None
    cores: Any = None
    memory_mb: Any = None
    life_s: Any = None
    cpu_scaling_factor: Any = None


CONFIGURED: Final = (
    "platforms", "tags", "required_tags", "job_types", "cores", "memory_mb", "norm_cpu_seconds",
)  # fmt: skip
"""What of it the configuration says; the rest is whom the pilot serves."""
KNOWN: Final = msgspec.json.Decoder(Known)
TOLD: Final = msgspec.json.Decoder(Told)


def part_of(known: Known | ResourceRequest) -> dict[str, Any]:
    """What of a request the configuration says."""
    return {name: getattr(known, name) for name in CONFIGURED}


# --- what a pilot presents ---------------------------------------------------------------------------------


def offer_of(known: Known, told: Told, place: QueueId) -> ResourceRequest:
    """All that a pilot can ever present, but for the SubmitPools that its queue serves.

    Configuration says what the queue is (ADR 0023); of cores and memory there is no more than the node has.
    """
    site, ce, queue = place
    return ResourceRequest(
        vo=known.vo,
        groups=known.groups,
        owner=known.owner,
        pilot_type=known.pilot_type,
        submission_pool=known.submission_pool,
        site=site,
        ce=ce,
        queue=queue,
        platforms=_name(told.platform) if known.platforms is None else known.platforms,
        tags=known.tags,
        required_tags=known.required_tags,
        job_types=known.job_types,
        cores=_least(known.cores, _number(told.cores), nobody=1),
        memory_mb=_least(known.memory_mb, _number(told.memory_mb), nobody=UNLIMITED),
        norm_cpu_seconds=UNLIMITED if known.norm_cpu_seconds is None else known.norm_cpu_seconds,
    )


def whole(offer: ResourceRequest, told: Told, joined_at: float | None, now: float) -> Free:
    """What a pilot has free at a time (UNIX seconds) while nothing runs in it. Before it joins: all that it will have."""
    left = _cpu_left(told, joined_at, now)
    return Free(offer.cores, offer.memory_mb, min(left, offer.norm_cpu_seconds))


def presented(offer: ResourceRequest, free: Free, served: tuple[str, ...] = ()) -> ResourceRequest:
    """The request that a pilot makes with that much free; `served` are the SubmitPools of its queue."""
    return replace(
        offer,
        submit_pools=served,
        cores=min(free.cores, offer.cores),
        memory_mb=min(free.memory_mb, offer.memory_mb),
        norm_cpu_seconds=_steps(free.norm_cpu_seconds, offer),
    )


def presented_by(
    request: str, node: str, place: QueueId, *, joined_at: float | None, now: float
) -> ResourceRequest:
    """The request of a stored pilot at a time while nothing runs in it; `request` and `node` as they are stored."""
    told = TOLD.decode(node)
    offer = offer_of(KNOWN.decode(request), told, place)
    free = whole(offer, told, joined_at, now)
    # Most pilots have no end that is known.
    return offer if free.norm_cpu_seconds >= offer.norm_cpu_seconds else presented(offer, free)


def is_silent(last_seen: float | None, now: float) -> bool:
    """Whether a pilot that joined has said nothing for long; both in UNIX seconds."""
    return last_seen is not None and now - last_seen > SILENT_SECONDS


def silent_seconds(lease_seconds: float) -> float:
    """After so many seconds without a word of a pilot its jobs are Stalled: well before its lease ends."""
    return min(SILENT_SECONDS, lease_seconds / 2)


def _steps(left: int, offer: ResourceRequest) -> int:
    """Whole steps of what is left of a life; one that is longer than the queue allows is no limit."""
    return offer.norm_cpu_seconds if left >= offer.norm_cpu_seconds else left - left % CPU_STEP


def _cpu_left(told: Told, joined_at: float | None, now: float) -> int:
    life, scaling = _positive(told.life_s), _positive(told.cpu_scaling_factor)
    if life is None or joined_at is None:
        return UNLIMITED
    left = max(0.0, life - (now - joined_at))
    return int(min(UNLIMITED, left * (1.0 if scaling is None else scaling)))


def _least(known: int | None, told: int, *, nobody: int) -> int:
    """The less of what is configured (None: nothing) and what the node tells (0: nothing)."""
    if known is None:
        return told or nobody
    return min(known, told) if told else known


def _number(value: Any) -> int:
    """A whole number that a node told, 0 for anything else: it is stored and read again at each start."""
    return min(value, UNLIMITED) if type(value) is int and value > 0 else 0


def _positive(value: Any) -> float | None:
    """A number that is no less than 0; None for anything else."""
    return float(min(value, UNLIMITED)) if type(value) in (int, float) and value >= 0 else None


def _name(value: Any) -> tuple[str, ...]:
    """The one platform that a node tells, if that is a text."""
    return (value,) if isinstance(value, str) and value else ()


# --- pilots that joined ------------------------------------------------------------------------------------

Made = tuple[ResourceRequest, dict[tuple[int, int, int], ResourceRequest]]


class PilotSession:
    """One pilot that joined. `asked`: its last claim."""

    __slots__ = (
        "_made",
        "_told",
        "asked",
        "completing",
        "drain",
        "drain_told",
        "id",
        "joined_at",
        "last_seen",
        "queue",
        "stamp",
        "tails",
        "token",
        "usage",
        "vo",
        "who",
    )  # fmt: skip

    def __init__(self, row: PilotRow, node: Mapping[str, Any], *, now: float) -> None:
        self.id = row.id
        self.stamp = row.stamp
        self.vo = row.vo
        self.queue = QueueId(row.site, row.ce, row.queue)
        self.who: dict[str, Any] = {
            "vo": row.vo,
            "groups": (row.group,) if row.group else None,
            "owner": row.owner,
            "pilot_type": row.pilot_type,
            "submission_pool": row.submission_pool,
        }
        self._told = Told(**{name: node.get(name) for name in Told.__struct_fields__})
        self.joined_at = row.joined_at
        # The offer, and the requests that were made of it: always changed together, by whichever thread.
        self._made: Made = (self._offer(KNOWN.decode(row.request)), {})
        self.last_seen = now
        self.drain = bool(row.drain)
        self.asked: Ask | None = None
        # Live news of running payloads: (job, attempt) -> last output, and usage.
        self.tails: dict[tuple[int, int], str] = {}
        self.usage: dict[tuple[int, int], dict[str, float]] = {}
        # What it hands in, as far as that was noted.
        self.completing: AbstractSet[tuple[int, int]] = frozenset()

    @property
    def is_mortal(self) -> bool:
        """Whether it told when its life ends, so that it offers less and less."""
        return self.joined_at is not None and _positive(self._told.life_s) is not None

    @property
    def offer(self) -> ResourceRequest:
        """All that it can ever present, but for SubmitPools."""
        return self._made[0]

    def whole(self, now: float) -> Free:
        """What it has free at a time (UNIX seconds) while nothing runs in it."""
        return whole(self.offer, self._told, self.joined_at, now)

    def request(self, free: Free, pools: PoolMap) -> ResourceRequest:
        """The resource that this pilot is now, in the matcher's words."""
        offer, made = self._made
        key = (free.cores, free.memory_mb, _steps(free.norm_cpu_seconds, offer))
        served = pools.of_queue(self.queue)
        request = made.get(key)
        if request is None or request.submit_pools is not served:
            if len(made) > KEPT_REQUESTS:
                made.clear()
            request = made[key] = presented(offer, free, served)
        return request

    def offer_anew(self, known: Known) -> Made | None:
        """Its queue is configured otherwise from now on. Returns what `put_back` takes, None if nothing changes."""
        offer, before = self._offer(known), self._made
        if offer == before[0]:
            return None
        self._made = (offer, {})
        return before

    def put_back(self, made: Made) -> None:
        """Undo `offer_anew`."""
        self._made = made

    def _offer(self, known: Known) -> ResourceRequest:
        return replace(offer_of(known, self._told, self.queue), **self.who)


def load_sessions(db: Reader, *, now: float) -> dict[int, PilotSession]:
    """The pilots that had joined and not ended when the server stopped; each gets a full lease."""
    return {row.id: PilotSession(row, msgspec.json.decode(row.node), now=now) for row in joined_pilots(db)}
