"""One match-making cycle: at which sites pilots of a request may be placed, and at which of them first.

A pilot goes to a site only if the gate admits it at that moment, and what it wishes of the site's ad is true; among these
to the sites with the greatest Rank. Who is drawn among equals decides who places it. The seed's cycle of five minutes is an
iteration of the director here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType
from typing import Protocol

from lodesman.broker.ad_table import AdTable, Wish
from lodesman.broker.gate import SiteGate
from lodesman.broker.request_ad import RunsAs, request_ad
from lodesman.classad import EMPTY, Ad, Node, Run, evaluate
from lodesman.classad.fast import MatchSide
from lodesman.classad.partial import references
from lodesman.masks.bits import Mask, bits
from lodesman.matching.task_queue import TaskQueueKey


class PilotsWanted(Protocol):
    """Pilots to be placed (`director.orders.PilotOrder`)."""

    @property
    def key(self) -> TaskQueueKey:
        """Of the task queue that they are for."""

    @property
    def pool(self) -> str:
        """The submission pool through which they go."""

    @property
    def identity(self) -> RunsAs:
        """As whom they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWish:
    """A wish of jobs about the site's ad, for pilots in these CE queues: of other queues it asks nothing."""

    wish: Wish
    queues: Mask


class _LoggedGate:
    """A gate that notes in a log what it took."""

    __slots__ = ("_gate", "_log", "room")

    def __init__(self, gate: SiteGate, log: list[str]) -> None:
        self._gate = gate
        self._log = log
        self.room = gate.room

    @property
    def shut(self) -> str:
        return self._gate.shut

    def take(self) -> None:
        self._gate.take()
        self._log.append(self._gate.site)


class Cycle:
    """The sites of one cycle. `sites`: the gates of those that have an ad; `places`: the CE queues of each site as bits;
    `ranks`: the Rank of submission pools that have one; `wishes`: by SubmitPool; `table`: what earlier cycles found.
    """

    def __init__(
        self,
        sites: Mapping[str, SiteGate],
        places: Mapping[str, Mask],
        *,
        now: float,
        table: AdTable | None = None,
        ranks: Mapping[str, Node] = MappingProxyType({}),
        wishes: Callable[[str], Sequence[QueueWish]] = lambda _pool: (),
    ) -> None:
        self.sites = sites
        self.places = places
        self.now = now
        self.table = AdTable() if table is None else table
        self.table.update(sites)
        self.wishes = wishes
        self.log: list[str] = []
        """The sites of the pilots that were placed, in their order."""
        self.gates = {site: _LoggedGate(gate, self.log) for site, gate in sites.items()}
        self._ranks = ranks
        self._rankings: dict[Hashable, Ranking] = {}
        self._names = {bit: site for site, bit in self.table.bits.items()}
        self._spread: dict[Mask, Mask] = {}

    def request(self, wanted: PilotsWanted) -> SiteRequest | None:
        """What pilots find at the sites; None if all sites are alike for them, but for what their gates have left."""
        asked = SiteRequest(self, wanted)
        return asked if asked.refusing or asked.is_choosy else None

    def spread(self, sites: Mask) -> Mask:
        """The CE queues of some sites."""
        found = self._spread.get(sites)
        if found is None:
            found = self._spread[sites] = reduce(
                or_, (self.places.get(self._names[bit], 0) for bit in bits(sites)), 0
            )
        return found

    @cached_property
    def silent(self) -> Mask:
        """The CE queues of sites without an ad."""
        return reduce(or_, (mask for site, mask in self.places.items() if site not in self.sites), 0)

    def ranking(self, pool: str, request: SiteRequest) -> Ranking | None:
        """The sites in the order of a pool's Rank; None if it has none."""
        node = self._ranks.get(pool)
        if node is None:
            return None
        asked = references(node, EMPTY)
        values = request.side.ad.constants
        key = (pool, *((name, values.get(name)) for name in sorted(asked.own | asked.other)))
        found = self._rankings.get(key)
        if found is None:
            found = self._rankings[key] = Ranking(self, node, request.side.ad)
        return found


class SiteRequest:
    """Pilots that are wanted, before the sites of a cycle. `refusing`: CE queues of sites that do not match, whatever their
    numbers are.
    """

    def __init__(self, cycle: Cycle, wanted: PilotsWanted) -> None:
        self._cycle = cycle
        self._wanted = wanted
        self.refusing: Mask = 0
        self._open: list[tuple[Wish, Mask]] = []
        self._asked: list[QueueWish] = []
        groups = cycle.table.groups
        for asked in groups:
            self.refusing |= cycle.spread(cycle.table.refusing(asked, self.side))
        pool = wanted.key.submit_pool
        for one in cycle.wishes(pool) if pool else ():
            self._wish(one)
        self._ranking = cycle.ranking(wanted.pool, self)
        self.is_choosy = bool(cycle.table.asking or self._open or self._ranking)
        """Whether it has to be asked at each placement."""

    def _wish(self, one: QueueWish) -> None:
        cycle = self._cycle
        known = cycle.table.wished(one.wish)
        refusing = cycle.spread(cycle.table.all & ~known.true & ~known.open)
        refusing |= 0 if one.wish.holds(None, cycle.now) else cycle.silent
        self.refusing |= one.queues & refusing
        still = one.queues & cycle.spread(cycle.table.all & known.open)
        self._asked.append(one)
        if still:
            self._open.append((one.wish, still))

    @cached_property
    def side(self) -> MatchSide:
        """It as one side of a match."""
        wanted = self._wanted
        return MatchSide(request_ad(wanted.key, wanted.identity, submission_pool=wanted.pool))

    def admits(self, site: str, bit: int) -> bool:
        """Whether a pilot may go to a CE queue of a site now."""
        cycle, gate = self._cycle, self._cycle.sites.get(site)
        if gate is None:
            return True
        if cycle.table.asking >> cycle.table.bits[site] & 1 and not gate.admits(self.side):
            return False
        return all(wish.holds(gate.side, cycle.now) for wish, mask in self._open if mask >> bit & 1)

    def best(self, free: Mask) -> Mask:
        """The CE queues of the sites with the greatest Rank."""
        return free if self._ranking is None else self._ranking.best(free)

    def refusal(self, site: str, bit: int) -> str:
        """Why a pilot may not go to a CE queue of a site now, '' if it may."""
        gate = self._cycle.sites.get(site)
        side = None if gate is None else gate.side
        if gate is not None and (words := gate.refusal(self.side.ad)):
            return words
        for one in self._asked:
            if one.queues >> bit & 1 and not one.wish.holds(side, self._cycle.now):
                about = "the site has advertised nothing" if gate is None else "as the site advertises itself"
                return f"{one.wish.key} is not true: {about}"
        return ""


class Ranking:
    """CE queues by the Rank of their sites. What is no number is 0, so is a site that says nothing of what is asked."""

    def __init__(self, cycle: Cycle, node: Node, request: Ad) -> None:
        self._cycle = cycle
        self._node = node
        self._request = request
        self._seen = len(cycle.log)
        self._ranks: dict[str, float] = {}
        self._levels: defaultdict[float, Mask] = defaultdict(int)
        self._set(cycle.places)

    def best(self, free: Mask) -> Mask:
        """Those of a mask that have the greatest rank."""
        log = self._cycle.log
        if self._seen < len(log):
            taken, self._seen = set(log[self._seen :]), len(log)
            self._set(taken)
        for mask in (self._levels[rank] for rank in self._order):
            if mask & free:
                return mask & free
        return free

    def _set(self, sites: Iterable[str]) -> None:
        """Rank some sites anew."""
        for site in sites:
            mask, before, rank = self._cycle.places.get(site, 0), self._ranks.get(site), self._rank(site)
            if before is not None:
                self._levels[before] &= ~mask
            self._ranks[site] = rank
            self._levels[rank] |= mask
        self._order = sorted((rank for rank, mask in self._levels.items() if mask), reverse=True)

    def _rank(self, site: str) -> float:
        gate = self._cycle.sites.get(site)
        ad = EMPTY if gate is None else gate.side.ad
        value = evaluate(self._node, self._request, ad, run=Run(now=self._cycle.now))
        return float(value) if isinstance(value, (int, float)) and value == value else 0.0  # noqa: PLR0124 - no NaN
