"""What jobs ask of sites' ads alone. A missing or old ad fulfils nothing. Wishes about counters or the time are judged
at placement; others when jobs are claimed, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.cycle import BrokerRequest, request_of
from lodesman.decide.broker.gate import said
from lodesman.decide.broker.rules import LIVE
from lodesman.decide.masks.bits import Mask
from lodesman.languages.classad import EMPTY, Ad, Node
from lodesman.languages.classad.ads import AdAttribute
from lodesman.languages.classad.clauses import explain
from lodesman.languages.classad.fast import MatchSide
from lodesman.languages.classad.partial import can_be, dependents
from lodesman.languages.classad.values import is_true

COUNTERS: Final = LIVE | {
    "currentjobs",
    "currentsubmittingjobs",
    "currentpendingjobs",
    "pilotstamps",
    "updatesequencenumber",
}  # attributes that follow from the jobs at the site, or from the ad's own number


class SiteWish(Struct, frozen=True, kw_only=True):
    """What jobs ask of a site's ad, for pilots in `queues`."""

    text: str
    request: BrokerRequest
    queues: Mask
    needs_ad: bool  # it is no yes as long as nothing is known of the site


def site_wish(text: str, node: Node, queues: Mask) -> SiteWish:
    """A prepared wish."""
    request = request_of(requiring(EMPTY, node))
    asks = bool(request.wants.others) or request.wants.asks_ad
    return SiteWish(text=text, request=request, queues=queues, needs_ad=asks and can_be(node)[1])


def requiring(ad: Ad, node: Node) -> Ad:
    """An ad with these Requirements."""
    return Ad({**ad.entries, "requirements": AdAttribute("Requirements", node)})


def why_unknown(ad: SiteAd | None, now: float) -> str:
    """Why a site says nothing of itself, '' if it does."""
    if ad is None:
        return "the site has not advertised"
    if ad.is_too_old(now):
        return f"the ad of the site is {now - ad.received_at:,.0f} s old, older than {ad.lifetime_s:,.0f} s"
    return ""


def in_words(wish: SiteWish, ad: Ad, now: float) -> str:
    """An unfulfilled wish, with the values that it asked for."""
    clauses = explain(wish.request.ad.entries["requirements"].node, EMPTY, ad, now=now)
    return said(next((clause for clause in clauses if not is_true(clause.value)), clauses[0]), text=wish.text)


class _SiteState(NamedTuple):
    has_ad: bool
    side: MatchSide  # of matches
    changing: frozenset[str]  # attributes that change meanwhile

    @classmethod
    def of(cls, ad: SiteAd | None) -> _SiteState:
        if ad is None:
            return _SILENT
        return cls(True, MatchSide(ad.ad), _changing(ad.ad))

    def fulfils(self, wish: SiteWish) -> bool:
        if wish.needs_ad and not self.has_ad:
            return False
        return not wish.request.wants.is_settled_by(self.changing) or wish.request.side.accepts(self.side)


def _changing(ad: Ad) -> frozenset[str]:
    """All counters, and the attributes that follow from them or the time."""
    return COUNTERS | dependents(ad, lambda needs: needs.clock or bool((needs.bare | needs.my) & COUNTERS))


_SILENT: Final = _SiteState(False, MatchSide(EMPTY), frozenset())


# what a fault means at a site and for a SubmitPool ('': for whichever)
Handling = Callable[[str, str], AbstractContextManager[object]]


class WishedQueues:
    """The CE queues where wishes are true between two ads."""

    def __init__(self) -> None:
        self._places: Mapping[str, Mask] = {}
        self._ads: dict[str, SiteAd | None] = {}
        # None: what the site says of itself could not be read.
        self._sites: dict[str, _SiteState | None] = {}
        self._fulfilled: dict[str, Mask] = {}

    def unfit(
        self, wishes: Mapping[str, Iterable[SiteWish]], ads: Mapping[str, SiteAd], places: Mapping[str, Mask],
        now: float, handling: Handling = lambda _site, _pool: nullcontext(),
    ) -> dict[str, Mask]:  # fmt: skip
        """By SubmitPool, the queues at sites that do not fulfil its wishes. `places`: the queues of each site. Where
        `handling` takes a fault, the wish is not fulfilled, and is asked anew.
        """
        changed = self._take_in(ads, places, now, handling)
        masks: dict[str, Mask] = {}
        unfit = dict.fromkeys(wishes, 0)
        for pool, some in wishes.items():
            for wish in some:
                name = wish.request.wants.key
                fulfilled = masks.get(name)
                if fulfilled is None:
                    fulfilled, is_whole = self._judged(name, wish, changed, pool, handling)
                    if is_whole:
                        masks[name] = fulfilled
                unfit[pool] |= wish.queues & ~fulfilled
        self._fulfilled = masks
        return unfit

    def _take_in(
        self, ads: Mapping[str, SiteAd], places: Mapping[str, Mask], now: float, handling: Handling
    ) -> list[str]:
        if places != self._places:
            self._places, self._ads, self._sites, self._fulfilled = places, {}, {}, {}
        changed = []
        for site in places:
            is_known, last, before = site in self._ads, self._ads.pop(site, None), self._sites.get(site)
            self._sites[site] = None
            with handling(site, ""):
                ad = ads.get(site)
                if ad is not None and ad.is_too_old(now):
                    ad = None
                self._sites[site] = before if is_known and last == ad else _SiteState.of(ad)
                self._ads[site] = ad
            if before is None or self._sites[site] is not before:
                changed.append(site)
        return changed

    def _judged(
        self, name: str, wish: SiteWish, changed: Iterable[str], pool: str, handling: Handling
    ) -> tuple[Mask, bool]:
        """The queues where a wish is true, and whether all sites could be asked."""
        mask, is_whole = self._fulfilled.get(name), True
        if mask is None:
            mask, changed = 0, self._sites
        for site in changed:
            queues, is_true, between = self._places[site], None, self._sites[site]
            with handling(site, pool):
                is_true = between is not None and between.fulfils(wish)
            mask = mask | queues if is_true else mask & ~queues
            is_whole = is_whole and is_true is not None
        return mask, is_whole


def misfits(
    wishes: Sequence[SiteWish], ads: Mapping[str, SiteAd], places: Mapping[str, Mask], now: float
) -> Iterator[tuple[str, Mask]]:
    """Unfulfilled wishes, in words, with the CE queues, site by site."""
    for site, queues in places.items():
        unknown = why_unknown(ads.get(site), now)
        ad = None if unknown else ads.get(site)
        between = _SiteState.of(ad)
        for wish in wishes:
            if queues & wish.queues and not between.fulfils(wish):
                words = f"{wish.text} is unknown: {unknown}"
                if ad is not None or not wish.needs_ad:
                    words = in_words(wish, between.side.ad, now)
                yield f"{site}: {words}", queues & wish.queues
