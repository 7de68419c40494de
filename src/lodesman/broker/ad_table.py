"""What requests and the ads of sites say of each other that only another ad changes: by (expression, ad), kept from one
cycle to the next. Requests that the sites cannot tell apart are one.

A clause that asks for the numbers of a gate or for the time is not decided here: it is asked at each match.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from lodesman.answers.vocabulary import GateMode
from lodesman.broker.ad import SiteAd
from lodesman.broker.gate import SiteGate
from lodesman.broker.rules import CUR_MATCHES, SINCE_AD, GateRules
from lodesman.classad import EMPTY, Ad, Node, Run
from lodesman.classad.ads import AdAttribute
from lodesman.classad.fast import MatchSide
from lodesman.classad.nodes import FunctionCall, Logic, Name, Select, clauses, walk
from lodesman.classad.partial import references
from lodesman.masks.bits import Mask, bits, mask_of, numbered

_MOST_KNOWN: Final = 20_000
_NO_AD: Final = MatchSide(EMPTY)


@dataclass(slots=True)
class Verdicts:
    """What is known of one expression by site: where it was `judged`, where it is `true`, and where that is not decided."""

    judged: Mask = 0
    true: Mask = 0
    open: Mask = 0


class Wish:
    """An expression of a request about the ad of a site. It holds if it is true; a site without an ad knows nothing."""

    __slots__ = ("asks_clock", "key", "names", "side")

    def __init__(self, key: str, node: Node) -> None:
        self.key = key
        self.side = side_with(EMPTY, node)
        self.names = _names(node)
        self.asks_clock = _asks_clock(node)

    def holds(self, site: MatchSide | None, now: float) -> bool:
        """Whether it is true of a site as it is now; None: of one without an ad."""
        return self.side.accepts(_NO_AD if site is None else site, Run(now=now))


class _FixedSite:
    """What stays of a site until its next ad. `asked`: attributes of a request that its clauses ask for which do not change;
    `side` has these clauses. `changing`: attributes whose value changes from match to match, or with time.
    """

    __slots__ = ("ad", "asked", "asks", "changing", "mode", "side", "whole")

    def __init__(self, ad: SiteAd, mode: GateMode, rules: GateRules) -> None:
        self.ad = ad
        self.mode = mode
        self.whole = rules.whole
        base = rules.whole.ad
        self.changing = _changing(base)
        asking = () if rules.requirements is None else clauses(rules.requirements)
        self.asks = len(asking) > len(rules.own_clauses)
        fixed = [one for one in asking if one not in rules.own_clauses and not self.changes(one)]
        self.asked = tuple(sorted({name for one in fixed for name in references(one, base).other}))
        self.side = side_with(base, *fixed) if fixed else None

    def changes(self, node: Node) -> bool:
        """Whether an expression may be worth something else at the next match."""
        return _asks_clock(node) or not _names(node).isdisjoint(self.changing)


def side_with(ad: Ad, *parts: Node) -> MatchSide:
    """An ad as one side of a match, with these Requirements."""
    node = Logic(operator="&&", operands=parts) if len(parts) > 1 else parts[0]
    return MatchSide(Ad({**ad.entries, "requirements": AdAttribute("Requirements", node)}))


def _asks_clock(node: Node) -> bool:
    return any(isinstance(part, FunctionCall) and part.key == "time" for part in walk(node))


def _names(node: Node) -> frozenset[str]:
    return frozenset(part.key for part in walk(node) if isinstance(part, (Name, Select)))


def _changing(ad: Ad) -> frozenset[str]:
    """The attributes of an ad that ask for the numbers of its gate or for the time, in however many steps."""
    asking = {key: entry.node for key, entry in ad.entries.items() if key not in ad.constants}
    asks = {key: _names(node) for key, node in asking.items()}
    found = {CUR_MATCHES, SINCE_AD, *(key for key, node in asking.items() if _asks_clock(node))}
    while True:
        more = {key for key, names in asks.items() if key not in found and not names.isdisjoint(found)}
        if not more:
            return frozenset(found)
        found |= more


class AdTable:
    """The sites of a cycle as bits. `asking`: those with clauses about requests; `groups`: by the attributes that those of
    these clauses ask for that do not change.
    """

    def __init__(self) -> None:
        self.bits: dict[str, int] = {}
        self.all: Mask = 0
        self.asking: Mask = 0
        self.groups: dict[tuple[str, ...], Mask] = {}
        self._sites: dict[int, _FixedSite] = {}
        self._known: dict[Hashable, Verdicts] = {}
        self._used: set[Hashable] = set()

    def update(self, gates: Mapping[str, SiteGate]) -> None:
        """A new cycle begins, with the gates of these sites. What was found of ads that are gone is forgotten."""
        if len(self._known) > _MOST_KNOWN:
            self._known = {key: one for key, one in self._known.items() if key in self._used}
        self._used.clear()
        self.bits = numbered(gates, self.bits)
        fixed = {self.bits[site]: gate for site, gate in gates.items() if gate.rules is not None}
        changed = mask_of(bit for bit, gate in fixed.items() if not self._is_known(bit, gate))
        for bit in bits(changed):
            gate = fixed[bit]
            if gate.ad is not None and gate.rules is not None:
                self._sites[bit] = _FixedSite(gate.ad, gate.mode, gate.rules)
        before, self.all = self.all, mask_of(fixed)
        if changed:
            for one in self._known.values():
                one.judged &= ~changed
        if changed or self.all != before:
            self.groups = {}
            self.asking = mask_of(bit for bit in fixed if self._sites[bit].asks)
            for bit in fixed:
                if self._sites[bit].side is not None:
                    asked = self._sites[bit].asked
                    self.groups[asked] = self.groups.get(asked, 0) | 1 << bit

    def _is_known(self, bit: int, gate: SiteGate) -> bool:
        known = self._sites.get(bit)
        return known is not None and known.ad is gate.ad and known.mode is gate.mode

    def refusing(self, asked: tuple[str, ...], request: MatchSide) -> Mask:
        """The sites of a group that do not take a request, whatever their numbers are."""
        values = request.ad.constants
        known = self._verdicts((asked, *(values.get(name) for name in asked)))
        group = self.groups[asked]
        for bit in bits(group & ~known.judged):
            side = self._sites[bit].side
            self._judge(known, bit, is_true=side is not None and side.accepts(request))
        return group & ~known.true

    def wished(self, wish: Wish) -> Verdicts:
        """Which sites a wish is true of; valid for those of this cycle."""
        known = self._verdicts(wish.key)
        for bit in bits(self.all & ~known.judged):
            site = self._sites[bit]
            is_open = wish.asks_clock or not wish.names.isdisjoint(site.changing)
            known.open = known.open | 1 << bit if is_open else known.open & ~(1 << bit)
            self._judge(known, bit, is_true=not is_open and wish.side.accepts(site.whole))
        return known

    def _verdicts(self, key: Hashable) -> Verdicts:
        self._used.add(key)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Verdicts()
        return known

    @staticmethod
    def _judge(known: Verdicts, bit: int, *, is_true: bool) -> None:
        known.judged |= 1 << bit
        known.true = known.true | 1 << bit if is_true else known.true & ~(1 << bit)
