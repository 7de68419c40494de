"""Sites advertise themselves to the hot process; the reading process answers what is known of them and of their gates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from operator import attrgetter

from msgspec import structs

from lodesman.base.errors import NotFound
from lodesman.decide.broker.ad import SiteAd, read_site_ad
from lodesman.decide.resources import NodePath, gate_modes
from lodesman.server.http.auth import own_vo
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import following, page
from lodesman.server.live.core import Core
from lodesman.server.reads.sites import GateReader, exact_node, gate_in_full
from lodesman.server.store.journal import Change
from lodesman.server.store.site_ads import ad_rows
from lodesman.server.writer.accounts import SITE, issue_site_token
from lodesman.server.writer.site_ads import advertise, entry_of, others_before
from lodesman.wire import calls
from lodesman.wire.accounts import Token
from lodesman.wire.call import Nothing
from lodesman.wire.requests import AllQuery
from lodesman.wire.site_ads import AdEntry, AdTaken, GateInFull, SiteAdBody, SiteAds, SiteAt, SiteTokenBody
from lodesman.wire.vocabulary import Waking


@serves(calls.SITE_TOKEN)
async def _site_token(core: Core, request: Request[Nothing, SiteTokenBody]) -> Token:
    body, seconds = request.body, request.body.seconds or None
    exact_node(core.policy.config.tree, NodePath(body.site))
    command = Change(
        issue_site_token, body.site, note=body.note, seconds=seconds, parent=request.who.token or None
    )
    detail = (
        f"for the site itself; {'until revoked' if seconds is None else f'for {seconds:.0f} s'}; {body.note}"
    )
    return Token(await core.commands.run(request.audited(command, "token-issued", body.site, detail)))


@serves(calls.ADVERTISE)
async def _advertise(core: Core, request: Request[Nothing, SiteAdBody]) -> AdTaken:
    """Read and evaluated beside the event loop; the writer compares numbers only."""
    site, text, tree = request.who.name, request.body.ad, core.policy.config.tree
    exact_node(tree, NodePath(site))
    async with core.one_ad:
        ad, entry = await asyncio.to_thread(_read, core, site, text)
    gates = GateReader(db=core.reader, tree=tree, options=core.gates)
    if not ad.lists_stamps:
        others = gates.gate_of(site, ad, ad.received_at).others(others_before(core.reader, ad))
        ad, entry = replace(ad, others=others), structs.replace(entry, others=others)
    await core.commands.run(Change(advertise, ad, entry, text))
    core.announce(Waking.AD)
    gate = gates.gate_of(site, ad, ad.received_at)
    async with core.one_ad:
        shut = await asyncio.to_thread(attrgetter("shut"), gate)
    return AdTaken(
        site=site,
        sequence=ad.sequence,
        received_at=ad.received_at,
        good_until=ad.received_at + ad.lifetime_s,
        shut=shut,
    )


def _read(core: Core, site: str, text: str) -> tuple[SiteAd, AdEntry]:
    """An ad, with the rules of its gate made ready, and what it says in short."""
    ad = read_site_ad(text, site=site, now=core.clock(), lifetime_s=core.gates.lifetime_s)
    mode = gate_modes(core.policy.config.tree).get(site)
    core.gates.gate(site, ad, mode=mode, live=(), ended=lambda *_: (), now=ad.received_at)
    return ad, entry_of(ad)


@serves(calls.SITE_ADS)
async def _site_ads(side: ReadSide, request: Request[AllQuery, Nothing]) -> SiteAds:
    """Users see the ads of sites that admit their VO."""
    asked, name = request.query, attrgetter("site")
    found = ad_rows(side.db, side.clock())
    if own_vo(request.who):
        found = [row for row in found if row.site in side.config(request.who).tree.sites]
    some, more = page(following(found, asked.after, asked.limit, name), asked.limit, name)
    return SiteAds(some, **more)


@serves(calls.SITE_GATE)
async def _site_gate(side: ReadSide, request: Request[SiteAt, Nothing]) -> GateInFull:
    """Raises NotFound for a site that is not configured, admits not the VO of the user, or is not the one that asks."""
    site, who = request.query.site, request.who
    if who.kind == SITE and who.name != site:
        raise NotFound(f"There is no site {site[:80]}.")
    tree = side.policy.config.tree
    exact_node(tree if who.kind == SITE else side.config(who).tree, NodePath(site))
    return gate_in_full(GateReader(db=side.db, tree=tree, options=side.gates), site, side.clock())
