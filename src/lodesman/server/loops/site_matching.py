"""The sites as they advertise themselves, with the pilots placed there."""

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
from lodesman.server.loops.left_out import Item, LeftOutItems, StepPass
from lodesman.server.loops.refresh import Handling, placement_clauses
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import LivePilot
from lodesman.server.store.submit_pools import PoolRow, pass_requests, stored_pools
from lodesman.wire.vocabulary import GateMode

_rank = lru_cache(maxsize=1_024)(parse_expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """How gates count where a site does not say otherwise."""

    mode: GateMode = GateMode.LEDGER
    ledger_s: float = LEDGER_S  # how long a match counts that no ad shows
    lifetime_s: float = LIFETIME_S  # of an ad that does not say so itself
    by_capacity: bool = False  # how sites of station lists are chosen

    def gate(
        self, site: str, ad: SiteAd | None, *, mode: GateMode | None, live: Sequence[SiteMatch],
        ended: Callable[[str, float], Iterable[SiteMatch]], now: float,
    ) -> SiteGate:  # fmt: skip
        """`mode`: the site's own, if it has one; `live`: the pilots placed there; `ended`: those that ended since."""
        mode, matches = mode or self.mode, live
        if ad is not None and mode is GateMode.STRICT:
            matches = [*live, *ended(site, ad.received_at)]
        return SiteGate(site, ad, mode=mode, matches=matches, now=now, ledger_s=self.ledger_s)


@dataclass(slots=True, kw_only=True)
class SiteMatcher:
    """Finds out how sites stand."""

    ads: Callable[[Reader], Mapping[str, SiteAd]] = lambda _db: {}  # the last of each site
    # Pilots that were placed at sites.
    live: Callable[[Reader], Mapping[str, Sequence[SiteMatch]]] = lambda _db: {}
    # Those of one site that ended since a time.
    ended: Callable[[Reader, str, float], Sequence[SiteMatch]] = lambda _db, _site, _since: ()
    # By SubmitPool, what jobs ask of ads.
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
        """The `sites` (None: all) as they are now; on the director's thread."""
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
        """A matcher for another thread."""
        return replace(self)


def matches_of(pilots: Iterable[LivePilot]) -> dict[str, list[SiteMatch]]:
    """Live pilots as matches, by the site that they were sent to."""
    matches: dict[str, list[SiteMatch]] = {}
    for pilot in pilots:
        taken_at = pilot.joined_at if pilot.submitted_at is None else pilot.submitted_at
        site = pilot.submitted_to.site if pilot.sent_to else pilot.queue_id.site
        matches.setdefault(site, []).append(
            SiteMatch(pilot.stamp, pilot.created_at, taken_at, joined=pilot.joined_at is not None)
        )
    return matches


class KnownWishes:
    """What the expressions of jobs ask of the ads of sites. Any thread may ask."""

    def __init__(self, left_out: LeftOutItems | None = None) -> None:
        self._left_out = left_out or LeftOutItems()
        self._known: Mapping[str, Sequence[SiteWish]] = {}
        self._read: tuple[object, ...] = ()
        self._reading = Lock()

    def look(self, db: Reader, policy: Policy) -> Mapping[str, Sequence[SiteWish]]:
        """By SubmitPool that asks for something; read anew when pools or the configuration have changed."""
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
    """By SubmitPool that asks for something of the ads of sites."""
    return {
        pool: [site_wish(clause.text, clause.left, clause.queues) for clause in clauses]
        for pool, clauses in placement_clauses(policy, pools, handling).items()
    }


class UnfitQueues:
    """Where jobs of SubmitPools do not run because of what sites advertise. One thread asks."""

    def __init__(
        self,
        ads: Callable[[Reader], Mapping[str, SiteAd]],
        wishes: Callable[[Reader, Policy], Mapping[str, Sequence[SiteWish]]],
        left_out: LeftOutItems | None = None,
    ) -> None:
        self._ads, self._wishes, self._known = ads, wishes, WishedQueues()
        self._left_out = left_out or LeftOutItems()

    def look(self, db: Reader, policy: Policy, now: float) -> dict[str, Mask]:
        """By SubmitPool that asks for something in ads. What is unknown or at fault opens nothing."""
        wishes = self._wishes(db, policy)
        if not wishes:
            return {}
        with self._left_out.step("the ads of sites") as left:
            return self._known.unfit(
                wishes, self._ads(db), places_of(policy), now, partial(handling_of_wish, left)
            )


def handling_of_wish(left: StepPass, site: str, pool: str) -> AbstractContextManager[None]:
    """A fault of a site, or of what a SubmitPool asks of it: either may be at fault."""
    return left.item(Item("site", site), *([Item("SubmitPool", pool)] if pool else []))


def ranks_of(pools: Mapping[str, PoolOptions]) -> dict[str, Node]:
    """The Rank of each submission pool that has one."""
    return {name: _rank(pool.rank) for name, pool in pools.items() if pool.rank}


def places_of(policy: Policy) -> dict[str, Mask]:
    """The CE queues of each site, as bits."""
    masks = dict.fromkeys(policy.config.tree.sites, 0)
    for queue in policy.config.tree.queue_ids():
        masks[queue.site] |= 1 << policy.bits[queue]
    return masks
