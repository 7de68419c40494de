"""A dry run of other ads of sites: what the director would do next if sites advertised other numbers. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lodesman.base.errors import Unavailable
from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.director.iteration import decide
from lodesman.decide.rehearse.iteration import PlannedDecision, compare
from lodesman.decide.resources import NodePath
from lodesman.languages.classad import Ad
from lodesman.languages.classad.ads import AdAttribute
from lodesman.languages.classad.functions import read_checked
from lodesman.languages.classad.values import lower
from lodesman.server.loops.direct import Director
from lodesman.server.reads.plans import LiveState
from lodesman.server.reads.rehearsal import SEED
from lodesman.server.reads.sites import exact_node
from lodesman.server.store import Reader
from lodesman.wire.plans import PlannedIteration
from lodesman.wire.site_ads import PlanGatesBody

_ASSUMED = [
    "a site whose ad is changed has advertised this now, and counts what its last ad counted",
    "loads, breakers, rates of CEs and submission pools are those of the running director",
]


def plan_gates(body: PlanGatesBody, state: LiveState) -> PlannedIteration:
    """The next iteration as sites advertise themselves, and with these attributes instead. Raises NotFound for a site that
    is not configured, SyntaxFault, Unavailable.
    """
    for site in body.gates:
        exact_node(state.policy.config.tree, NodePath(site))
    if state.director is None:
        raise Unavailable("The director does not run.")
    given = {
        site: [AdAttribute(name, read_checked(text)) for name, text in changes.items()]
        for site, changes in body.gates.items()
    }
    running = state.director
    apart = replace(
        running,
        db=state.db,
        breakers=dict(running.breakers),
        buckets=dict(running.buckets),
        sites=running.sites.apart(),
    )

    def advertised(db: Reader) -> Mapping[str, SiteAd]:
        ads = dict(running.sites.ads(db))
        return ads | {site: _changed(site, ads.get(site), some, state.now) for site, some in given.items()}

    with state.db:  # one moment for both
        before = _decide(apart, state)
        apart.sites = replace(apart.sites, ads=advertised)
        after = _decide(apart, state)
    return compare(before, after, body.limit, load_age=None, assumed=[*_ASSUMED, *state.left_out()])


def _decide(director: Director, state: LiveState) -> PlannedDecision:
    state.tick()
    seen = director.look(state.now, state.faulty)
    decision = decide(seen, options=director.options, now=state.now, seed=SEED)
    waiting = [(one.tq_id, one.key, one.waiting_jobs) for one in seen.demands]
    return PlannedDecision(decision, waiting, decision.target.most)


def _changed(site: str, ad: SiteAd | None, changes: list[AdAttribute], now: float) -> SiteAd:
    """The ad with other attributes, or one of these alone, as if it had come now."""
    entries = {} if ad is None else dict(ad.ad.entries)
    entries |= {lower(one.name): one for one in changes}
    if ad is not None:
        return replace(ad, ad=Ad(entries), received_at=now, rules={})
    return SiteAd(
        site=site,
        sequence=0,
        incarnation="",
        lifetime_s=1.0,
        received_at=now,
        ad=Ad(entries),
        stamps=frozenset(),
        stations=frozenset(),
    )
