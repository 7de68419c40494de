"""Matches between two ads, as masks of sites. They only leave sites out: each match asks the gate and both
Requirements anew (`site_choice`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.broker.rules import GateRules, SiteQuestion, question_of, side_with, unsettled
from lodesman.decide.masks.bits import Mask, bits
from lodesman.languages.classad import EMPTY, Ad
from lodesman.languages.classad.fast import MatchSide

_NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """A kind of request, prepared once."""

    ad: Ad
    side: MatchSide
    wants: SiteQuestion
    # what sites asked of it at last, by the names of that
    facts: dict[frozenset[str], SiteQuestion] = field(default_factory=dict, compare=False, repr=False)


def request_of(ad: Ad) -> BrokerRequest:
    """Without Requirements it accepts no site."""
    return BrokerRequest(ad=ad, side=MatchSide(ad), wants=question_of(ad, "requirements"))


@dataclass(slots=True)
class _Memo:
    question: SiteQuestion
    side: MatchSide
    stale: Mask  # sites to judge
    fits: Mask = 0  # may be true there
    used: bool = True  # in this cycle


class _SiteView(Struct, frozen=True, kw_only=True):
    side: MatchSide  # of matches
    unsettled: frozenset[str]
    welcome: MatchSide  # its clauses that only a request decides
    asked: frozenset[str]  # what these ask for


_NEVER_ADVERTISED: Final = _SiteView(
    side=MatchSide(EMPTY),
    unsettled=_NO_NAMES,
    welcome=side_with({}, ()),
    asked=_NO_NAMES,
)


class SiteBook:
    """Sites between two ads. A site keeps its bit."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._versions: dict[str, tuple[str, int] | None] = {}
        self._views: dict[int, _SiteView] = {}
        self._asked: Counter[str] = Counter()
        self._names: frozenset[str] = frozenset()
        self._memos: dict[str, dict[str, _Memo]] = {"wants": {}, "facts": {}}

    def update(self, gates: Mapping[str, SiteGate]) -> None:
        """Begin a cycle: judge sites with a new ad anew."""
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
        """The bit of a known site."""
        return self._bits[site]

    def wanted(self, request: BrokerRequest) -> Mask:
        """The sites that a request's Requirements may accept."""
        return self._fitting("wants", request.wants)

    def welcoming(self, request: BrokerRequest) -> Mask:
        """The sites whose Requirements may accept a request, their own numbers aside."""
        question = request.facts.get(self._names)
        if question is None:
            request.facts.clear()
            question = request.facts[self._names] = question_of(request.ad, *self._names)
        return self._fitting("facts", question)

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
            fitting = sum(1 << bit for bit in bits(memo.stale) if judge(memo, self._views[bit]))
            memo.fits = memo.fits & ~memo.stale | fitting
            memo.stale = 0
        return memo.fits


def _view_of(rules: GateRules) -> _SiteView:
    ad = rules.whole.ad
    live = unsettled(ad)
    settled = [
        clause
        for clause in rules.request_clauses
        if clause.is_settled_by(_NO_NAMES) and not clause.own & live
    ]
    return _SiteView(
        side=rules.whole,
        unsettled=live,
        welcome=side_with(ad.entries, [clause.ad.entries["requirements"].node for clause in settled]),
        asked=frozenset().union(*[clause.others for clause in settled]),
    )


def _may_want(memo: _Memo, view: _SiteView) -> bool:
    return not memo.question.is_settled_by(view.unsettled) or memo.side.accepts(view.side)


def _may_welcome(memo: _Memo, view: _SiteView) -> bool:
    """Facts of a request that depend on the site are unknown."""
    return bool(view.asked & memo.question.unsettled) or view.welcome.accepts(memo.side)
