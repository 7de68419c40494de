"""A match cycle: each request gets a site where the Requirements of both are true and the gate is open.

What does not change between two ads is remembered as masks of sites: which sites a request's Requirements accept, which
sites' Requirements accept a request, how a request ranks them. Requests that say the same share a mask, and after a new ad
only its site is judged anew. These masks only leave sites out: each match asks the gate, and both Requirements, as they
are at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from lodesman.broker.gate import SiteGate
from lodesman.broker.questions import SiteQuestion, question_of, unsettled
from lodesman.broker.rules import GateRules, side_with
from lodesman.classad import EMPTY, Ad, Run, evaluate
from lodesman.classad.fast import MatchSide
from lodesman.masks.bits import Mask, bits, nth_bit

_NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """One kind of request, made ready once: `count` of them. `stations`: in small letters, none: any site.

    `facts`: what sites asked of it at last, by the names of that.
    """

    ad: Ad
    side: MatchSide
    wants: SiteQuestion
    rank: SiteQuestion | None
    stations: frozenset[str]
    count: int = 1
    facts: dict[frozenset[str], SiteQuestion] = field(default_factory=dict, compare=False, repr=False)


def request_of(ad: Ad, *, stations: Iterable[str] = (), count: int = 1) -> BrokerRequest:
    """A request as a ClassAd: its Requirements (a request without them accepts no site), its Rank if it has one."""
    return BrokerRequest(
        ad=ad,
        side=MatchSide(ad),
        wants=question_of(ad, "requirements"),
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

    request: BrokerRequest
    sites: Mapping[str, int]
    refused: Mapping[NoSite, int]


@dataclass(slots=True)
class _Memo:
    """What one expression says of each site. `fits`: may be true there; `stale`: sites to judge; `used`: in this cycle."""

    question: SiteQuestion
    side: MatchSide
    stale: Mask
    fits: Mask = 0
    used: bool = True
    ranks: dict[int, float] = field(default_factory=dict)
    tiers: list[tuple[float, Mask]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SiteView:
    """One site between two ads: its side of matches, its clauses that only a request decides, what those ask for."""

    side: MatchSide
    unsettled: frozenset[str]
    welcome: MatchSide
    asked: frozenset[str]


_NEVER_ADVERTISED: Final = _SiteView(
    side=MatchSide(EMPTY),
    unsettled=_NO_NAMES,
    welcome=side_with({}, ()),
    asked=_NO_NAMES,
)


class SiteBook:
    """What is known of sites between two ads. A site keeps its bit as long as this object lives."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._versions: dict[str, tuple[str, int] | None] = {}
        self._views: dict[int, _SiteView] = {}
        self._asked: Counter[str] = Counter()
        self._names: frozenset[str] = frozenset()
        self._memos: dict[str, dict[str, _Memo]] = {"wants": {}, "facts": {}, "rank": {}}

    def update(self, gates: Mapping[str, SiteGate]) -> None:
        """Begin a cycle with these sites: those with another ad than before are judged anew."""
        changed = 0
        for site, gate in gates.items():
            version = None if gate.ad is None else (gate.ad.incarnation, gate.ad.sequence)
            bit = self._bits.setdefault(site, len(self._bits))
            if site not in self._versions or self._versions[site] != version:
                self._versions[site] = version
                self._replace(bit, _NEVER_ADVERTISED if gate.rules is None else _view_of(gate.rules))
                changed |= 1 << bit
        self._names = frozenset(+self._asked)
        for memos in self._memos.values():
            for key in [key for key, memo in memos.items() if not memo.used]:
                del memos[key]
            for memo in memos.values():
                memo.stale |= changed
                memo.used = False

    def bit(self, site: str) -> int:
        """The bit of a site that was there at an update."""
        return self._bits[site]

    def wanted(self, request: BrokerRequest) -> Mask:
        """The sites that the Requirements of a request may accept."""
        return self._fitting("wants", request.wants)

    def welcoming(self, request: BrokerRequest) -> Mask:
        """The sites whose Requirements may accept a request, their own numbers aside."""
        question = request.facts.get(self._names)
        if question is None:
            request.facts.clear()
            question = request.facts[self._names] = question_of(request.ad, *self._names)
        return self._fitting("facts", question)

    def best(self, request: BrokerRequest, sites: Mask, gates: Mapping[int, SiteGate], now: float) -> Mask:
        """Those among some sites that a request ranks highest; what is no number counts as 0."""
        question = request.rank
        if question is None or not sites & (sites - 1):
            return sites
        memo = self._memo("rank", question)
        if memo.stale:
            self._rank(memo)
        settled = sites & memo.fits
        tiers = ((value, found) for value, mask in memo.tiers if (found := mask & settled))
        top, best = next(tiers, (float("-inf"), 0))
        for bit in bits(sites & ~memo.fits):
            value = _rank_of(request.ad, gates[bit].side.ad, now)
            if value >= top:
                top, best = value, best | 1 << bit if value == top else 1 << bit
        return best

    # --- what is remembered --------------------------------------------------------------------------------------

    def _replace(self, bit: int, view: _SiteView) -> None:
        before = self._views.get(bit)
        self._views[bit] = view
        self._asked.update(view.asked)
        if before:
            self._asked.subtract(before.asked)

    def _memo(self, kind: str, question: SiteQuestion) -> _Memo:
        memos = self._memos[kind]
        memo = memos.get(question.key)
        if memo is None:
            everywhere = (1 << len(self._bits)) - 1
            memo = memos[question.key] = _Memo(
                question=question, side=MatchSide(question.ad), stale=everywhere
            )
        memo.used = True
        return memo

    def _fitting(self, kind: str, question: SiteQuestion) -> Mask:
        memo = self._memo(kind, question)
        judge = _may_want if kind == "wants" else _may_welcome
        if memo.stale:
            found = sum(1 << bit for bit in bits(memo.stale) if judge(memo, self._views[bit]))
            memo.fits = memo.fits & ~memo.stale | found
            memo.stale = 0
        return memo.fits

    def _rank(self, memo: _Memo) -> None:
        memo.fits |= memo.stale
        for bit in bits(memo.stale):
            view = self._views[bit]
            if memo.question.is_settled_by(view.unsettled):
                memo.ranks[bit] = _rank_of(memo.question.ad, view.side.ad, 0.0)
            else:
                memo.ranks.pop(bit, None)
                memo.fits &= ~(1 << bit)
        tiers: dict[float, Mask] = {}
        for bit, value in memo.ranks.items():
            tiers[value] = tiers.get(value, 0) | 1 << bit
        memo.tiers = sorted(tiers.items(), reverse=True)
        memo.stale = 0


def _view_of(rules: GateRules) -> _SiteView:
    ad = rules.whole.ad
    live = unsettled(ad)
    settled = [one for one in rules.request_clauses if one.is_settled_by(_NO_NAMES) and not one.own & live]
    return _SiteView(
        side=rules.whole,
        unsettled=live,
        welcome=side_with(ad.entries, [one.ad.entries["requirements"].node for one in settled]),
        asked=frozenset().union(*[one.others for one in settled]),
    )


def _may_want(memo: _Memo, view: _SiteView) -> bool:
    return not memo.question.is_settled_by(view.unsettled) or memo.side.accepts(view.side)


def _may_welcome(memo: _Memo, view: _SiteView) -> bool:
    """Of the facts of a request: those that depend on the site are not known."""
    return bool(view.asked & memo.question.unsettled) or view.welcome.accepts(memo.side)


def _rank_of(ad: Ad, site: Ad, now: float) -> float:
    value = evaluate("rank", ad, site, run=Run(now=now))
    return float(value) if isinstance(value, (int, float)) else 0.0


# --- the cycle ------------------------------------------------------------------------------------------------


class MatchCycle:
    """One cycle: requests in the order in which they come, each match with the numbers that the ones before it left."""

    def __init__(self, book: SiteBook, gates: Mapping[str, SiteGate], *, now: float, rng: Random) -> None:
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

    def match(self, request: BrokerRequest) -> CycleOutcome:
        """Find a site for each of the count, at random among those that are ranked highest."""
        named, wanted, welcoming = self._masks(request)
        sites: Counter[str] = Counter()
        left = named & wanted & welcoming
        while left & self._open and sites.total() < request.count:
            best = self._book.best(request, left & self._open, self._gates, self._now)
            bit = nth_bit(best, self._rng.randrange(best.bit_count()))
            gate = self._gates[bit]
            if not gate.admits(request.side) or not request.side.accepts(gate.side, Run(now=self._now)):
                left &= ~(1 << bit)
                continue
            gate.take()
            sites[gate.site] += 1
            if not gate.admits():
                self._open &= ~(1 << bit)
        refused = {} if sites.total() == request.count else self._refused(request, left)
        return CycleOutcome(request=request, sites=sites, refused=refused)

    def _masks(self, request: BrokerRequest) -> Sequence[Mask]:
        named = self._all
        if request.stations:
            named = 0
            for name in request.stations:
                named |= self._stations.get(name, 0)
        return named, self._book.wanted(request), self._book.welcoming(request)

    def _refused(self, request: BrokerRequest, left: Mask) -> dict[NoSite, int]:
        """`left`: the sites that were not found to be wrong by asking them."""
        named, wanted, welcoming = self._masks(request)
        asked = named & wanted & welcoming & self._open & ~left
        unwanted = sum(
            1 << bit for bit in bits(asked)
            if not request.side.accepts(self._gates[bit].side, Run(now=self._now))
        )  # fmt: skip
        answers = {
            NoSite.STATION: self._all & ~named,
            NoSite.REQUEST: named & ~wanted | unwanted,
            NoSite.SITE: named & wanted & ~welcoming | asked & ~unwanted,
            NoSite.GATE: named & wanted & welcoming & ~self._open,
        }
        return {reason: mask.bit_count() for reason, mask in answers.items() if mask}
