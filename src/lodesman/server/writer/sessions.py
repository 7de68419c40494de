"""Pilots that joined: when each was heard, what it may match, who it is.

What a pilot presents is computed here alone. Leases live in memory only: downtime of the server never counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct

from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.offers import CPU_STEP
from lodesman.decide.matching.offers import UNLIMITED as NO_LIMIT
from lodesman.decide.resources import QueueId
from lodesman.languages.gridengine.values import Number
from lodesman.server.store import UNREADABLE, Reader
from lodesman.server.store.accounting import RETURNED
from lodesman.server.store.read.pilots import LivePilot, PilotRow, joined_pilots
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.pool_map import NO_POOLS, PoolMap, ServedPools
from lodesman.wire.hosts import HostName, reported_host

UNLIMITED: Final = NO_LIMIT
# A pilot silent for this long missed several heartbeats: nothing counts on it any more.
SILENT_SECONDS: Final = 300.0
# After a longer silence a pilot may have done much meanwhile.
_GAP_SECONDS: Final = 30.0
_MOST_UNUSED: Final = 2_000  # more than any pilot has to run later, twice
_KEPT_REQUESTS: Final = 32
_MB: Final = 1 << 20
_MOST_HOSTS: Final = 50_000  # whose load values are kept
_NO_POOL_MAP: Final = PoolMap()


class FreeResources(Struct, frozen=True, gc=False):
    """What a pilot has free now."""

    cores: int
    memory_mb: int
    norm_cpu_seconds: int  # left of its life
    last_end_s: float | None = None  # until the last payload is expected to end, None if unknown


class LastClaim(Struct, frozen=True, gc=False):
    """A claim as it came, whatever became of it."""

    at: float  # UNIX seconds
    free: FreeResources
    jobs: int


class ConfiguredOffer(Struct, frozen=True, kw_only=True):
    """What is stored of a pilot before it starts.

    None: unknown, as for pilots sent to no known queue: the node's report counts; all job types and classes may enter.
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
    job_classes: tuple[str, ...] | None = None
    cores: int | None = None
    memory_mb: int | None = None
    norm_cpu_seconds: int | None = None
    described: bool = False  # what the node reports counts: its queue forwards to one that is not configured


class _NodeReport(Struct, frozen=True, kw_only=True):
    """What a node reports when its pilot joins. It is not trusted: anything may stand in it."""

    host: Any = None
    platform: Any = None
    cores: Any = None
    memory_mb: Any = None
    cores_total: Any = None
    memory_total_mb: Any = None
    life_s: Any = None  # seconds left for payloads then, None if no end is known
    cpu_scaling_factor: Any = None  # norm_cpu_seconds for each of them


# The configured part of a request; the rest is whom the pilot serves.
_CONFIGURED = (
    "platforms", "tags", "required_tags", "job_types", "job_classes", "cores", "memory_mb", "norm_cpu_seconds",
)  # fmt: skip
OFFER: Final = msgspec.json.Decoder(ConfiguredOffer)
_REPORT = msgspec.json.Decoder(_NodeReport)
OfferRequests = tuple[ResourceRequest, dict[tuple[int, int, int], ResourceRequest]]
_NO_OFFER: Final = '{"platforms":[],"cores":0,"memory_mb":0,"norm_cpu_seconds":0}'


class HostLoads:
    """Load values of hosts, as quota sets name them: `num_proc`, and `mem_total` in bytes; the last report of each
    counts, even after the pilot's end.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self._of_host: dict[str, Mapping[str, Number]] = {}
        for node in nodes:
            host, values = _load_of(node)
            if values:
                self._of_host[host] = values

    def of(self, host: str) -> Mapping[str, Number]:
        """Values by full name of the complex."""
        return self._of_host.get(host, {})

    def joined(self, tx: Transaction, node: str, changed: Callable[[str], object]) -> None:
        """`changed` is called with the host if its values differ."""
        host, values = _load_of(node)
        if values and values != self._of_host.get(host):
            tx.undo.append(partial(changed, host))  # undone last: then the values are those of before
            if host not in self._of_host and len(self._of_host) >= _MOST_HOSTS:
                tx.drop(self._of_host, next(iter(self._of_host)))
            tx.put(self._of_host, host, values)
            changed(host)


def _load_of(node: str) -> tuple[str, Mapping[str, Number]]:
    report = _REPORT.decode(node)
    facts = {"num_proc": (report.cores_total, 1), "mem_total": (report.memory_total_mb, _MB)}
    host = reported_host(report.host)
    return host, {
        name: value * unit
        for name, (value, unit) in facts.items()
        if host and type(value) is int and 0 < value < UNLIMITED
    }


def configured_part(offer: ConfiguredOffer | ResourceRequest) -> Mapping[str, Any]:
    """What of a request the configuration says."""
    return {name: getattr(offer, name) for name in _CONFIGURED}


def rewrite_request(request: str, configured: ConfiguredOffer) -> str | None:
    """The request with what is configured now; None if that is the same, or the request is damaged."""
    if not _is_whole(request) or configured_part(OFFER.decode(request)) == configured_part(configured):
        return None
    return msgspec.json.encode({**msgspec.json.decode(request), **configured_part(configured)}).decode()


def _offer_of(offer: ConfiguredOffer, node: _NodeReport, queue: QueueId, **who: Any) -> ResourceRequest:
    """All that it can ever present, but for SubmitPools. Configuration says what the queue is (ADR 0023)."""
    facts = msgspec.structs.asdict(offer) | queue._asdict() | who
    is_name = isinstance(node.platform, str) and node.platform != ""
    if offer.platforms is None or (offer.described and is_name):
        facts["platforms"] = (node.platform,) if is_name else ()
    cores, memory_mb = offer.cores, offer.memory_mb
    if facts.pop("described"):
        cores = None if _least(None, node.cores, neither=0) else cores
        memory_mb = None if _least(None, node.memory_mb, neither=0) else memory_mb
    facts["cores"] = _least(cores, node.cores, neither=1)
    facts["memory_mb"] = _least(memory_mb, node.memory_mb, neither=UNLIMITED)
    if offer.norm_cpu_seconds is None:
        facts["norm_cpu_seconds"] = UNLIMITED
    return ResourceRequest(**facts)


def _whole(offer: ResourceRequest, node: _NodeReport, joined_at: float | None, now: float) -> FreeResources:
    """What is free while nothing runs; before the pilot joins: all that it will have."""
    life, scaling = _positive(node.life_s), _positive(node.cpu_scaling_factor)
    left = offer.norm_cpu_seconds
    if life is not None and joined_at is not None:
        seconds = max(0.0, life - (now - joined_at)) * (1.0 if scaling is None else scaling)
        left = min(left, int(min(UNLIMITED, seconds)))
    return FreeResources(offer.cores, offer.memory_mb, left)


def _cut(free: FreeResources, seconds: float, scaling: float) -> FreeResources:
    left = int(min(UNLIMITED, max(0.0, seconds) * scaling))
    return msgspec.structs.replace(free, norm_cpu_seconds=min(free.norm_cpu_seconds, left))


def _presented(
    offer: ResourceRequest, free: FreeResources, served: ServedPools = NO_POOLS
) -> ResourceRequest:
    return replace(
        offer,
        submit_pools=served.pools,
        pools_version=served.version,
        cores=min(free.cores, offer.cores),
        memory_mb=min(free.memory_mb, offer.memory_mb),
        norm_cpu_seconds=_steps(free.norm_cpu_seconds, offer),
    )


def host_of(node: str) -> str:
    """'' if none was reported."""
    return reported_host(_REPORT.decode(node).host)


def presented_by(
    request: str, node: str, queue: QueueId, *, joined_at: float | None, now: float, end_of_jobs: float | None = None
) -> ResourceRequest:  # fmt: skip
    """The request while nothing runs. `end_of_jobs`: as of `PilotSession.whole`."""
    report = _REPORT.decode(node)
    offer = _offer_of(OFFER.decode(request), report, queue)
    free = _whole(offer, report, joined_at, now)
    if end_of_jobs is not None:
        free = _cut(free, end_of_jobs - now, _positive(report.cpu_scaling_factor) or 1.0)
    return offer if free.norm_cpu_seconds >= offer.norm_cpu_seconds else _presented(offer, free)


def takes_jobs(pilot: PilotRow | LivePilot, now: float) -> bool:
    """Whether it is not draining, silent or bound."""
    if pilot.bound_job is not None:
        return False
    return not pilot.drain and not (pilot.joined_at is not None and is_silent(pilot.last_seen, now))


def is_silent(last_seen: float | None, now: float) -> bool:
    """Whether it was not heard for long (UNIX seconds)."""
    return last_seen is not None and now - last_seen > SILENT_SECONDS


def silent_seconds(lease_seconds: float) -> float:
    """The silence that stalls jobs: well before the lease ends."""
    return min(SILENT_SECONDS, lease_seconds / 2)


def _steps(left: int, offer: ResourceRequest) -> int:
    return offer.norm_cpu_seconds if left >= offer.norm_cpu_seconds else left - left % CPU_STEP


def _least(configured: int | None, reported: Any, *, neither: int) -> int:
    """The less of both; a report counts if it is a positive whole number."""
    number = min(reported, UNLIMITED) if type(reported) is int and reported > 0 else 0
    if configured is None:
        return number or neither
    return min(configured, number) if number else configured


def _positive(value: Any) -> float | None:
    """None for anything but a number that is not negative."""
    return float(min(value, UNLIMITED)) if type(value) in (int, float) and value >= 0 else None


class PilotSession:
    """One pilot that joined."""

    def __init__(self, row: PilotRow, *, now: float) -> None:
        self.id = row.id
        self.stamp = row.stamp
        self.vo = row.vo
        self.bound_job = row.bound_job
        self.queue = row.queue_id
        self.serves_one_group = bool(row.group)
        self._who = {
            "vo": row.vo,
            "groups": (row.group,) if row.group else None,
            "owner": row.owner,
            "pilot_type": row.pilot_type,
            "submission_pool": row.submission_pool,
        }
        self._node = _REPORT.decode(row.node)
        self.host = HostName(row.site, reported_host(self._node.host))
        self.place = RunPlace(row.site, row.ce, row.queue, self.host.host)
        self.joined_at = row.joined_at
        self.scaling = _positive(self._node.cpu_scaling_factor) or 1.0
        # The offer and the requests made of it, always replaced together, by any thread.
        offer = OFFER.decode(row.request)
        self._described = offer.described
        self._made: OfferRequests = (self._offer(offer), {})
        self.last_seen = self.steady_since = now
        """When it was heard last, and since when without a gap, by the clock that never jumps."""
        self.excused_since = self._gap_ended = self.named_at = -inf
        """The end of the gap before the last one, and when it last named what it has, by the same clock."""
        self.drain = bool(row.drain)
        self.last_claim: LastClaim | None = None
        # Live news of running payloads: (job, attempt) -> last output in UTF-8, and usage.
        self.tails: dict[tuple[int, int], bytes] = {}
        self.usage: dict[tuple[int, int], dict[str, float]] = {}
        # Live attempts -> how many last heartbeats did not name them; and those that went back for that.
        self.unnamed: dict[tuple[int, int], int] = {}
        self.given_back: set[tuple[int, int]] = set()
        self.unused = 0  # attempts that it has handed back since a payload of it ended
        self.completing: AbstractSet[tuple[int, int]] = (
            frozenset()
        )  # what it hands in, as far as that was noted

    def hands_back(self, ends: Iterable[tuple[str, str]]) -> bool:
        """Record ends (state, cause); true after too many returns in a row."""
        for state, cause in ends:
            if state != "Running":
                self.unused = self.unused + 1 if cause == RETURNED else 0
        return self.unused > _MOST_UNUSED and not self.drain

    def follow(self, before: PilotSession) -> None:
        """Take over from the session before a new join, which is a gap."""
        self.excused_since, self._gap_ended = before.steady_since, self.steady_since
        self.unnamed, self.given_back = before.unnamed, before.given_back

    def hear(self, now: float) -> None:
        """The pilot is heard now."""
        if now - self.last_seen > _GAP_SECONDS:
            self.excused_since, self._gap_ended, self.steady_since = self._gap_ended, now, now
        self.last_seen = now

    @property
    def is_mortal(self) -> bool:
        """Whether it reported its end of life: it offers less and less."""
        return self.joined_at is not None and _positive(self._node.life_s) is not None

    @property
    def offer(self) -> ResourceRequest:
        """All that it can ever present, but for SubmitPools."""
        return self._made[0]

    def whole(self, now: float, end_of_jobs: float | None = None) -> FreeResources:
        """What is free at a time (UNIX seconds) while nothing runs. `end_of_jobs`: when nothing may run there any more."""
        return self.until(_whole(self.offer, self._node, self.joined_at, now), now, end_of_jobs)

    def empty(self, now: float, end_of_jobs: float | None = None) -> ResourceRequest:
        """Its request while nothing runs, without SubmitPools."""
        return self.request(self.whole(now, end_of_jobs), _NO_POOL_MAP)

    def until(self, free: FreeResources, now: float, end_of_jobs: float | None) -> FreeResources:
        """What is left of it until the end of jobs."""
        return free if end_of_jobs is None else _cut(free, end_of_jobs - now, self.scaling)

    def request(self, free: FreeResources, pools: PoolMap) -> ResourceRequest:
        """The resource for the matcher."""
        offer, made = self._made
        key = (free.cores, free.memory_mb, _steps(free.norm_cpu_seconds, offer))
        served = pools.of_queue(self.queue)
        request = made.get(key)
        if request is None or request.pools_version != served.version:
            if len(made) > _KEPT_REQUESTS:
                made.clear()
            request = made[key] = _presented(offer, free, served)
        return request

    def offer_anew(self, offer: ConfiguredOffer) -> OfferRequests | None:
        """Returns what `put_back` takes, None if nothing changes."""
        new_offer, before = self._offer(offer), self._made
        if new_offer == before[0]:
            return None
        self._made = (new_offer, {})
        return before

    def put_back(self, made: OfferRequests) -> None:
        """Undo `offer_anew`."""
        self._made = made

    def _offer(self, offer: ConfiguredOffer) -> ResourceRequest:
        if self._described:
            offer = msgspec.structs.replace(offer, described=True)
        return _offer_of(offer, self._node, self.queue, **self._who)


def load_sessions(db: Reader, *, now: float) -> dict[int, PilotSession]:
    """Pilots that had joined when the server stopped."""
    return {row.id: PilotSession(row, now=now) for row in known_pilots(db)}


def known_pilots(db: Reader) -> Iterator[PilotRow]:
    """Joined live pilots. A damaged row offers nothing, until its queue is configured anew."""
    for row in joined_pilots(db):
        is_whole = _is_whole(row.request, row.node)
        yield row if is_whole else msgspec.structs.replace(row, request=_NO_OFFER, node="{}")


def _is_whole(request: str, node: str = "{}") -> bool:
    try:
        return isinstance(OFFER.decode(request), ConfiguredOffer) and _REPORT.decode(node) is not None
    except UNREADABLE:
        return False
