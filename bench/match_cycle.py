"""A match cycle alone, as the seed has it: each request gets a site where the Requirements of both are true and the gate is
open.

The server has no such cycle: the iteration of the director is one (ADR 0058), and goes by the same masks and gates. Here
requests get sites without task queues, CE queues and their room, so that matching can be measured, and held against pairs
of ads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from lodesman.decide.broker.cycle import BrokerRequest, SiteBook, request_of
from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.broker.rules import SiteQuestion, question_of
from lodesman.decide.masks.bits import Mask, bits, nth_bit
from lodesman.languages.classad import Ad, Run, evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest:
    """`count` requests of a kind, with the Rank that they have. `stations`: in small letters, none: any site."""

    broker: BrokerRequest
    rank: SiteQuestion | None
    stations: frozenset[str]
    count: int


def cycle_request(ad: Ad, *, stations: Iterable[str] = (), count: int = 1) -> CycleRequest:
    """Requests as a ClassAd."""
    return CycleRequest(
        broker=request_of(ad),
        rank=question_of(ad, "rank") if "rank" in ad.entries else None,
        stations=frozenset(one.lower() for one in stations),
        count=count,
    )


class NoSite(StrEnum):
    """Why a site did not get a request: the first that holds."""

    STATION = "advertises no station of the list"
    REQUEST = "the Requirements of the request are not true"
    SITE = "the Requirements of the site are not true"
    GATE = "the gate of the site is shut"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """What became of one request: matches by site; for those that got none, the number of sites by reason."""

    request: CycleRequest
    sites: Mapping[str, int]
    refused: Mapping[NoSite, int]


@dataclass(slots=True)
class _Ranks:
    """What one Rank is worth at the sites whose ads settle it, and those with equal values, greatest first."""

    values: dict[int, float] = field(default_factory=dict)
    settled: Mask = 0
    tiers: list[tuple[float, Mask]] = field(default_factory=list)


class RankedBook(SiteBook):
    """A site book that remembers how requests rank sites, too."""

    def __init__(self) -> None:
        super().__init__()
        self._memos["rank"] = {}
        self._ranks: dict[str, _Ranks] = {}

    def best(self, request: CycleRequest, sites: Mask, gates: Mapping[int, SiteGate], now: float) -> Mask:
        """Those among some sites that a request ranks highest; what is no number counts as 0."""
        question = request.rank
        if question is None or not sites & (sites - 1):
            return sites
        memo = self._memo("rank", question)
        ranks = self._ranks.setdefault(question.key, _Ranks())
        if memo.stale:
            self._rank(question, ranks, memo.stale)
            memo.stale = 0
        settled = sites & ranks.settled
        tiers = ((value, found) for value, mask in ranks.tiers if (found := mask & settled))
        top, best = next(tiers, (float("-inf"), 0))
        for bit in bits(sites & ~ranks.settled):
            value = _rank_of(request.broker.ad, gates[bit].side.ad, now)
            if value >= top:
                top, best = value, best | 1 << bit if value == top else 1 << bit
        return best

    def _rank(self, question: SiteQuestion, ranks: _Ranks, stale: Mask) -> None:
        for bit in bits(stale):
            view = self._views[bit]
            if question.is_settled_by(view.unsettled):
                ranks.values[bit] = _rank_of(question.ad, view.side.ad, 0.0)
            else:
                ranks.values.pop(bit, None)
        ranks.settled = sum(1 << bit for bit in ranks.values)
        tiers: dict[float, Mask] = {}
        for bit, value in ranks.values.items():
            tiers[value] = tiers.get(value, 0) | 1 << bit
        ranks.tiers = sorted(tiers.items(), reverse=True)


def _rank_of(ad: Ad, site: Ad, now: float) -> float:
    value = evaluate("rank", ad, site, run=Run(now=now))
    return float(value) if isinstance(value, (int, float)) else 0.0


class MatchCycle:
    """One cycle: requests in the order in which they come, each match with the numbers that the ones before it left."""

    def __init__(self, book: RankedBook, gates: Mapping[str, SiteGate], *, now: float, rng: Random) -> None:
        book.update(gates)
        self._book = book
        self._rng = rng
        self._now = now
        self._gates = {book.bit(site): gate for site, gate in gates.items()}
        self._all = sum(1 << bit for bit in self._gates)
        self._open = sum(1 << bit for bit, gate in self._gates.items() if gate.admits())
        self._stations: dict[str, Mask] = {}
        for bit, gate in self._gates.items():
            for name in gate.ad.stations if gate.ad else ():
                self._stations[name] = self._stations.get(name, 0) | 1 << bit

    def match(self, request: CycleRequest) -> CycleOutcome:
        """Find a site for each of the count, at random among those that are ranked highest."""
        named, wanted, welcoming = self._masks(request)
        sites: Counter[str] = Counter()
        left = named & wanted & welcoming
        while left & self._open and sites.total() < request.count:
            best = self._book.best(request, left & self._open, self._gates, self._now)
            bit = nth_bit(best, self._rng.randrange(best.bit_count()))
            gate = self._gates[bit]
            if not gate.admits(request.broker.side) or not request.broker.side.accepts(
                gate.side, Run(now=self._now)
            ):
                left &= ~(1 << bit)
                continue
            gate.take()
            sites[gate.site] += 1
            if not gate.admits():
                self._open &= ~(1 << bit)
        refused = {} if sites.total() == request.count else self._refused(request, left)
        return CycleOutcome(request=request, sites=sites, refused=refused)

    def _masks(self, request: CycleRequest) -> Sequence[Mask]:
        named = self._all
        if request.stations:
            named = 0
            for name in request.stations:
                named |= self._stations.get(name, 0)
        return named, self._book.wanted(request.broker), self._book.welcoming(request.broker)

    def _refused(self, request: CycleRequest, left: Mask) -> dict[NoSite, int]:
        """`left`: the sites that were not found to be wrong by asking them."""
        named, wanted, welcoming = self._masks(request)
        asked = named & wanted & welcoming & self._open & ~left
        unwanted = sum(
            1 << bit for bit in bits(asked)
            if not request.broker.side.accepts(self._gates[bit].side, Run(now=self._now))
        )  # fmt: skip
        answers = {
            NoSite.STATION: self._all & ~named,
            NoSite.REQUEST: named & ~wanted | unwanted,
            NoSite.SITE: named & wanted & ~welcoming | asked & ~unwanted,
            NoSite.GATE: named & wanted & welcoming & ~self._open,
        }
        return {reason: mask.bit_count() for reason, mask in answers.items() if mask}
