"""The sites of one iteration of the director, as they advertise themselves, with the pilots that were placed there.

Stored ads and the rows of pilots say all: nothing is remembered that they do not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Lock

from lodesman.decide.broker.ad import LIFETIME_S, SiteAd
from lodesman.decide.broker.gate import LEDGER_S, SiteGate, SiteMatch
from lodesman.decide.broker.site_choice import SiteChoice, SiteMemory
from lodesman.decide.broker.site_wishes import SiteWish, WishedQueues, site_wish
from lodesman.decide.director.options import PoolOptions
from lodesman.decide.director.site_matching import NO_SITES, SiteMatching
from lodesman.decide.masks.bits import Mask
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import gate_modes
from lodesman.languages.classad import Node, parse_expression
from lodesman.server.loops.left_out import Item, LeftOut, StepPass
from lodesman.server.loops.refresh import Handling, placement_clauses
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import LivePilot
from lodesman.server.store.submit_pools import PoolRow, pass_requests, stored_pools
from lodesman.wire.vocabulary import GateMode

_rank = lru_cache(maxsize=1_024)(parse_expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """How gates count, where a site does not say otherwise. In seconds: how long a match counts that no ad shows, and an ad
    that does not say so itself. `by_capacity`: how sites of station lists are chosen.
    """

    mode: GateMode = GateMode.LEDGER
    ledger_s: float = LEDGER_S
    lifetime_s: float = LIFETIME_S
    by_capacity: bool = False

    def gate(
        self, site: str, ad: SiteAd | None, *, mode: GateMode | None, live: Sequence[SiteMatch],
        ended: Callable[[str, float], Iterable[SiteMatch]], now: float,
    ) -> SiteGate:  # fmt: skip
        """The gate of a site. `mode`: as the site says it, if it does; `live`: the pilots that were placed there; `ended`:
        those of a site that ended since a time.
        """
        mode, matches = mode or self.mode, live
        if ad is not None and mode is GateMode.STRICT:
            matches = [*live, *ended(site, ad.received_at)]
        return SiteGate(site, ad, mode=mode, matches=matches, now=now, ledger_s=self.ledger_s)


@dataclass(slots=True, kw_only=True)
class SiteMatcher:
    """Finds out what stands at the sites. `ads`: what they advertised last; `live`, `ended`: pilots that were placed there,
    of all sites, and of one since a time; `wishes`: what jobs ask of ads, by their SubmitPools.
    """

    ads: Callable[[Reader], Mapping[str, SiteAd]] = lambda _db: {}
    live: Callable[[Reader], Mapping[str, Sequence[SiteMatch]]] = lambda _db: {}
    ended: Callable[[Reader, str, float], Sequence[SiteMatch]] = lambda _db, _site, _since: ()
    wishes: Callable[[Reader, Policy], Mapping[str, Sequence[SiteWish]]] = lambda _db, _policy: {}
    options: GateOptions = GateOptions()
    _memory: SiteMemory = field(init=False, default_factory=SiteMemory)
    _known: tuple[object, Mapping[str, Mask], Mapping[str, GateMode]] = field(
        init=False, default=(None, {}, {})
    )

    def look(
        self, db: Reader, policy: Policy, pools: Mapping[str, PoolOptions], now: float,
        pilots: Iterable[LivePilot] | None = None, *, sites: Iterable[str] | None = None,
    ) -> SiteMatching:  # fmt: skip
        """The `sites`, all if none are named, as they are now. Belongs to the thread of the director. `pilots`: those that
        live, if they are read already.
        """
        ads, ranks, wishes = self.ads(db), ranks_of(pools), self.wishes(db, policy)
        if not (ads or ranks or wishes):
            return NO_SITES
        live = (self.live(db) if pilots is None else matches_of(pilots)) if ads else {}
        if self._known[0] != policy.version:
            self._known = policy.version, places_of(policy), gate_modes(policy.config.tree)
        _, places, modes = self._known
        ended = partial(self.ended, db)
        gates = {
            site: self.options.gate(
                site, ads.get(site), mode=modes.get(site), live=live.get(site, ()), ended=ended, now=now
            )
            for site in (policy.config.tree.sites if sites is None else sites)
        }
        return SiteChoice(
            gates, places, now=now, memory=self._memory, ranks=ranks, wishes=wishes, by_capacity=self.options.by_capacity
        )  # fmt: skip

    def apart(self) -> SiteMatcher:
        """One that shares nothing with it that a thread uses alone."""
        return replace(self)


def matches_of(pilots: Iterable[LivePilot]) -> dict[str, list[SiteMatch]]:
    """Live pilots as matches, by the site that they were sent to."""
    found: dict[str, list[SiteMatch]] = {}
    for one in pilots:
        taken_at = one.joined_at if one.submitted_at is None else one.submitted_at
        site = one.submitted_to.site if one.sent_to else one.queue_id.site
        found.setdefault(site, []).append(
            SiteMatch(one.stamp, one.created_at, taken_at, joined=one.joined_at is not None)
        )
    return found


class KnownWishes:
    """What the expressions of jobs ask of the ads of sites, by SubmitPool: read anew when pools or the configuration have
    changed. Any thread may ask.
    """

    def __init__(self, left_out: LeftOut | None = None) -> None:
        self._left_out = left_out or LeftOut()
        self._known: Mapping[str, Sequence[SiteWish]] = {}
        self._read: tuple[object, ...] = ()
        self._reading = Lock()

    def look(self, db: Reader, policy: Policy) -> Mapping[str, Sequence[SiteWish]]:
        """Those of all SubmitPools that have some."""
        with self._reading:
            version = pass_requests(db).version, policy.version
            if self._read != version:
                with self._left_out.step("what SubmitPools ask of sites") as left:
                    self._known = wishes_of(policy, stored_pools(db), left.item)
                self._read = version
            return self._known


def wishes_of(
    policy: Policy, pools: Iterable[PoolRow], handling: Handling = nullcontext
) -> dict[str, Sequence[SiteWish]]:
    """What SubmitPools ask of the ads of sites, for those that ask for something."""
    return {
        pool: [site_wish(one.text, one.left, one.queues) for one in clauses]
        for pool, clauses in placement_clauses(policy, pools, handling).items()
    }


class UnfitQueues:
    """Where jobs of SubmitPools do not run because of what the sites advertise. One thread asks."""

    def __init__(
        self,
        ads: Callable[[Reader], Mapping[str, SiteAd]],
        wishes: Callable[[Reader, Policy], Mapping[str, Sequence[SiteWish]]],
        left_out: LeftOut | None = None,
    ) -> None:
        self._ads, self._wishes, self._known = ads, wishes, WishedQueues()
        self._left_out = left_out or LeftOut()

    def look(self, db: Reader, policy: Policy, now: float) -> dict[str, Mask]:
        """The CE queues, for each SubmitPool that asks for something in the ads of sites. What is not known opens nothing: a
        site or a SubmitPool at fault, and what a SubmitPool asks of one site.
        """
        wishes = self._wishes(db, policy)
        if not wishes:
            return {}
        with self._left_out.step("the ads of sites") as left:
            return self._known.unfit(
                wishes, self._ads(db), places_of(policy), now, partial(handling_of_wish, left)
            )


def handling_of_wish(left: StepPass, site: str, pool: str) -> AbstractContextManager[None]:
    """A fault of a site, or of what a SubmitPool asks of it: either may be at fault then."""
    return left.item(Item("site", site), *([Item("SubmitPool", pool)] if pool else []))


def ranks_of(pools: Mapping[str, PoolOptions]) -> dict[str, Node]:
    """The Rank of the submission pools that have one."""
    return {name: _rank(pool.rank) for name, pool in pools.items() if pool.rank}


def places_of(policy: Policy) -> dict[str, Mask]:
    """The CE queues of each site, as bits."""
    found = dict.fromkeys(policy.config.tree.sites, 0)
    for queue in policy.config.tree.queue_ids():
        found[queue.site] |= 1 << policy.bits[queue]
    return found
