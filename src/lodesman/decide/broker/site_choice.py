"""Where pilots of an iteration may be placed (the seed's match making cycle): where the gate admits them and the ad
fulfils what jobs ask; first by the pool's Rank, then by station.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from lodesman.decide.broker.cycle import BrokerRequest, SiteBook, request_of
from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.broker.site_wishes import SiteWish, in_words, requiring, why_unknown
from lodesman.decide.masks.bits import Mask, bits
from lodesman.decide.matching.request import GENERIC
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.classad import EMPTY, Ad, Node, Run, Value, evaluate
from lodesman.languages.classad.ads import ad_of
from lodesman.languages.classad.nodes import Constant
from lodesman.languages.classad.partial import references

_MOST_KNOWN: Final = 20_000
_STATIONS: Final = frozenset({"stationname", "stationnames"})


class RunIdentity(Protocol):
    """The identity of pilots (`director.orders.PilotIdentity`)."""

    @property
    def private(self) -> bool:
        """Whether they serve one user or group."""

    @property
    def owner(self) -> str:
        """As whom they run."""

    @property
    def group(self) -> str:
        """In which group."""


class PilotsWanted(Protocol):
    """Pilots to be placed (`director.orders.PilotOrder`)."""

    @property
    def key(self) -> TaskQueueKey:
        """Of their task queue."""

    @property
    def pool(self) -> str:
        """The submission pool through which they go."""

    @property
    def identity(self) -> RunIdentity:
        """As whom they run."""


class SiteMemory:
    """Kept between iterations."""

    def __init__(self) -> None:
        self.book = SiteBook()
        self._requests: dict[Hashable, BrokerRequest] = {}

    def request(self, pilots: PilotsWanted) -> BrokerRequest:
        """What these pilots ask."""
        who = pilots.identity
        name = (pilots.key, pilots.pool, who.private, who.owner, who.group)
        request = self._requests.get(name)
        if request is None:
            if len(self._requests) >= _MOST_KNOWN:
                self._requests.clear()
            ad = request_ad(pilots.key, who, submission_pool=pilots.pool)
            request = self._requests[name] = request_of(requiring(ad, Constant(value=True)))
        return request


class _NotedGate:
    """Its log notes what the gate took."""

    __slots__ = ("_gate", "_log", "admits", "room")

    def __init__(self, gate: SiteGate, log: list[str]) -> None:
        self._gate = gate
        self._log = log
        self.room = gate.room
        self.admits = gate.admits

    @property
    def shut(self) -> str:
        return self._gate.shut

    def take(self) -> None:
        self._gate.take()
        self._log.append(self._gate.site)


class SiteChoice:
    """One iteration. `places`: the CE queues of each site; `wishes`: of jobs, by SubmitPool; `by_capacity`: free
    capacity also chooses among sites of a station list.
    """

    def __init__(
        self,
        sites: Mapping[str, SiteGate],
        places: Mapping[str, Mask],
        *,
        now: float,
        memory: SiteMemory | None = None,
        ranks: Mapping[str, Node] = MappingProxyType({}),
        wishes: Mapping[str, Sequence[SiteWish]] = MappingProxyType({}),
        by_capacity: bool = False,
    ) -> None:
        self.sites = sites
        self.places = places
        self.now = now
        self.wishes = wishes
        self.by_capacity = by_capacity
        self.memory = SiteMemory() if memory is None else memory
        self.memory.book.update(sites)
        self.log: list[str] = []  # the sites of the pilots that were placed, in order
        self.gates = {site: _NotedGate(gate, self.log) for site, gate in sites.items() if gate.ad is not None}
        self.asking = frozenset(
            site for site, gate in sites.items() if gate.rules and gate.rules.request_clauses
        )
        """Sites whose Requirements ask something of a request."""
        self._ranks = ranks
        self._rankings: dict[Hashable, _Ranking] = {}
        self._wished = {pool: reduce(or_, (wish.queues for wish in some)) for pool, some in wishes.items()}
        self._names = {self.memory.book.bit(site): site for site in sites}
        self._all = reduce(or_, (1 << bit for bit in self._names), 0)
        self._spread: dict[Mask, Mask] = {}

    def request(self, pilots: PilotsWanted) -> OrderChoice | None:
        """What pilots find at the sites; None if these differ for them by their gates only."""
        wishes = self.wishes.get(pilots.key.submit_pool, ())
        if not (self.asking or wishes or pilots.pool in self._ranks):
            return None
        return OrderChoice(self, pilots, wishes)

    def wished(self, pool: str) -> Mask:
        """The CE queues where sites' ads decide about a SubmitPool's jobs."""
        return self._wished.get(pool, 0)

    @cached_property
    def silent(self) -> Mask:
        """CE queues of sites without an ad."""
        return reduce(
            or_, (self.places.get(site, 0) for site, gate in self.sites.items() if gate.ad is None), 0
        )

    def spread_all_but(self, fitting: Mask) -> Mask:
        """CE queues of all other sites."""
        sites = self._all & ~fitting
        mask = self._spread.get(sites)
        if mask is None:
            masks = (self.places.get(self._names[bit], 0) for bit in bits(sites))
            mask = self._spread[sites] = reduce(or_, masks, 0)
        return mask

    def ranking(self, pool: str, request: Ad) -> _Ranking | None:
        """The order of sites by a pool's Rank; None if it has none."""
        node = self._ranks.get(pool)
        if node is None:
            return None
        needs = references(node)
        key = (pool, *((name, request.constants.get(name)) for name in sorted(needs.own | needs.other)))
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = _Ranking(self, node, request)
        return ranking


class OrderChoice:
    """An order before the sites."""

    def __init__(self, choice: SiteChoice, pilots: PilotsWanted, wishes: Sequence[SiteWish]) -> None:
        self._choice = choice
        self._wishes = wishes
        self._request = choice.memory.request(pilots)
        book = choice.memory.book
        self.refusing: Mask = 0
        if choice.asking:
            self.refusing = choice.spread_all_but(book.welcoming(self._request))
        for wish in wishes:
            excluded = choice.spread_all_but(book.wanted(wish.request))
            self.refusing |= wish.queues & (excluded | choice.silent if wish.needs_ad else excluded)
        self._ranking = choice.ranking(pilots.pool, self._request.ad)
        names_stations = any(_STATIONS & wish.request.wants.others for wish in wishes)
        self._draws_sites = names_stations and not choice.by_capacity
        self._sites: Iterable[Mask] = choice.places.values()

    def admits(self, site: str, bit: int) -> bool:
        """Whether a pilot may go there now."""
        gate = self._choice.sites.get(site)
        if gate is None:
            return not self._wishes
        if site in self._choice.asking and not gate.admits(self._request.side):
            return False
        return all(self._holds(wish, gate) for wish in self._wishes if wish.queues >> bit & 1)

    def _holds(self, wish: SiteWish, gate: SiteGate) -> bool:
        is_silent = wish.needs_ad and gate.ad is None
        return not is_silent and wish.request.side.accepts(gate.side, Run(now=self._choice.now))

    def best(self, free: Mask) -> Mask:
        """The CE queues of the sites with the greatest Rank."""
        return free if self._ranking is None else self._ranking.best(free)

    def drawn(self, best: Mask, rng: Random) -> Mask:
        """The CE queues of a drawn site, if the jobs name stations ("The broker will randomly select one of the sites
        that advertise a station name").
        """
        if not self._draws_sites:
            return best
        sites = [mask for mask in self._sites if mask & best]
        if self._ranking is None:
            self._sites = sites  # what is free only becomes less
        return rng.choice(sites) & best

    def refusal(self, site: str, bit: int) -> str:
        """Why a pilot may not go there now, '' if it may."""
        gate = self._choice.sites.get(site)
        if gate is not None and (words := gate.refusal(self._request.ad)):
            return words
        for wish in self._wishes:
            if not wish.queues >> bit & 1:
                continue
            ad, now = None if gate is None else gate.ad, self._choice.now
            if wish.needs_ad and (unknown := why_unknown(ad, now)):
                return f"{wish.text} is unknown: {unknown}"
            if gate is None or not self._holds(wish, gate):
                return in_words(wish, EMPTY if gate is None else gate.side.ad, now)
        return ""


class _Ranking:
    """By the Rank of their sites; what is no number is 0."""

    def __init__(self, choice: SiteChoice, node: Node, request: Ad) -> None:
        self._choice = choice
        self._node = node
        self._request = request
        self._seen = len(choice.log)
        self._ranks: dict[str, float] = {}
        self._levels: defaultdict[float, Mask] = defaultdict(int)
        self._rank(choice.places)

    def best(self, free: Mask) -> Mask:
        log = self._choice.log
        if self._seen < len(log):
            changed, self._seen = set(log[self._seen :]), len(log)
            self._rank(changed)
        for rank in self._order:
            if best := self._levels[rank] & free:
                return best
        return free

    def _rank(self, sites: Iterable[str]) -> None:
        for site in sites:
            mask, before, rank = self._choice.places.get(site, 0), self._ranks.get(site), self._value(site)
            if before is not None:
                self._levels[before] &= ~mask
            self._ranks[site] = rank
            self._levels[rank] |= mask
        self._order = sorted((rank for rank, mask in self._levels.items() if mask), reverse=True)

    def _value(self, site: str) -> float:
        gate = self._choice.sites.get(site)
        ad = EMPTY if gate is None else gate.side.ad
        value = evaluate(self._node, self._request, ad, run=Run(now=self._choice.now))
        return float(value) if isinstance(value, (int, float)) else 0.0


def request_ad(key: TaskQueueKey, who: RunIdentity, *, submission_pool: str) -> Ad:
    """What pilots for a task queue ask of a site: TARGET of the site's Requirements, MY of a submission pool's Rank.

    Owner, Group, VO        as whom the pilot runs: one for all groups as the GenericPilotDN, GenericPilotGroup of the pool
    JobOwner, JobGroup      for whose jobs it is sent, Project and JobClass of these, if they have any
    PilotType               "private" or "generic"
    JobType, UserPriority   of these jobs
    Cpus, Memory, CPUTime   what one of them needs: cores, MB (2^20 bytes; 0: not said), normalised CPU seconds
    Platforms, Tags         lists of texts, what they ask for
    SubmissionPool          through which it comes
    """
    values: dict[str, Value] = {
        "Owner": who.owner,
        "Group": who.group,
        "VO": key.vo,
        "JobOwner": key.owner,
        "JobGroup": key.group,
        "PilotType": "private" if who.private or key.pilot_type != GENERIC else "generic",
        "JobType": key.job_type,
        "UserPriority": key.user_priority,
        "Cpus": key.cores,
        "Memory": key.memory_mb,
        "CPUTime": key.norm_cpu_seconds,
        "Platforms": key.platforms,
        "Tags": key.tags,
        "SubmissionPool": submission_pool,
    }
    some = {"Project": key.project, "JobClass": key.job_class}
    return ad_of(values | {name: text for name, text in some.items() if text})
