"""Sites: closed and opened, advertised, tested."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, structs
from msgspec.structs import asdict

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.decide.broker.ad import SiteAd, read_site_ad
from lodesman.decide.resources import NodePath, QueueId, gate_modes
from lodesman.server.http.auth import own_vo
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import origin_of, page_after
from lodesman.server.live.core import Core
from lodesman.server.live.pilots import close_and_drain
from lodesman.server.reads.sites import GateReader, exact_node, find_node, gate_in_full
from lodesman.server.store.director import closings
from lodesman.server.store.journal import Change, Command
from lodesman.server.store.site_ads import ad_rows
from lodesman.server.writer.accounts import SITE, issue_site_token
from lodesman.server.writer.site_ads import advertise, entry_of, others_before
from lodesman.server.writer.site_mask import (
    ClosingOutcome,
    OpeningOutcome,
    check_closing,
    check_reason,
    close_site,
    not_closed,
    open_site,
    order_breaker,
)
from lodesman.wire import calls, inner_calls
from lodesman.wire.accounts import AuditNote, Token
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import BreakerBody, BreakerOrder, BreakerOrdered, Closing, SiteClosed, SiteOpened
from lodesman.wire.requests import AllQuery, CloseSiteBody, OpenSiteBody
from lodesman.wire.site_ads import AdEntry, AdTaken, GateInFull, SiteAdBody, SiteAds, SiteAt, SiteTokenBody
from lodesman.wire.site_tests import SiteTest, SiteTestAt, SiteTestBody
from lodesman.wire.vocabulary import Waking

if TYPE_CHECKING:
    from lodesman.server.http.read_side import ReadSide


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
    """Read in a thread; the writer compares numbers only."""
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
    """With the rules of its gate made ready, and what it says in short."""
    ad = read_site_ad(text, site=site, now=core.clock(), lifetime_s=core.gates.lifetime_s)
    mode = gate_modes(core.policy.config.tree).get(site)
    core.gates.gate(site, ad, mode=mode, live=(), ended=lambda *_: (), now=ad.received_at)
    return ad, entry_of(ad)


@serves(calls.SITE_ADS)
async def _site_ads(side: ReadSide, request: Request[AllQuery, Nothing]) -> SiteAds:
    """Of users those of sites that admit their VO."""
    rows = ad_rows(side.db, side.clock())
    if own_vo(request.who):
        rows = [row for row in rows if row.site in side.config(request.who).tree.sites]
    some, more = page_after(rows, request.query, attrgetter("site"))
    return SiteAds(some, **more)


@serves(calls.SITE_GATE)
async def _site_gate(side: ReadSide, request: Request[SiteAt, Nothing]) -> GateInFull:
    site, who = request.query.site, request.who
    if who.kind == SITE and who.name != site:
        raise NotFound(f"There is no site {site[:80]}.")
    tree = side.policy.config.tree
    exact_node(tree if who.kind == SITE else side.config(who).tree, NodePath(site))
    return gate_in_full(GateReader(db=side.db, tree=tree, options=side.gates), site, side.clock())


@serves(calls.TEST_SITE)
async def _test_site(side: ReadSide, request: Request[Nothing, SiteTestBody]) -> SiteTest:
    body, tree = request.body, side.policy.config.tree
    named = NodePath(body.site, body.ce, body.queue)
    if not body.path and (not body.site or (body.queue and not body.ce)):
        raise InvalidRequest(
            "Name a site, a site and a CE, or site, CE and queue; or path.", parameter="path"
        )
    node = find_node(tree, body.path) if body.path else exact_node(tree, named)
    note = AuditNote("site-tested", str(node), request.who.name, origin_of(request.scope))
    await side.ask_hot(inner_calls.NOTE, [note])
    mask = side.keeper.mask(side.db)
    return side.site_tests.begin(node, side.policy, mask, seconds=body.seconds, now=side.clock())


@serves(calls.SITE_TEST)
async def _site_test(side: ReadSide, request: Request[SiteTestAt, Nothing]) -> SiteTest:
    return side.site_tests.ask(request.query.test)


@serves(calls.STOP_SITE_TEST)
async def _stop_site_test(side: ReadSide, request: Request[SiteTestAt, Nothing]) -> SiteTest:
    return side.site_tests.stop(request.query.test)


@serves(calls.CLOSE_SITE)
async def _close_site(core: Core, request: Request[Nothing, CloseSiteBody]) -> SiteClosed:
    body, now, tree = request.body, core.clock(), core.policy.config.tree
    node = find_node(tree, body.path) if body.path else exact_node(tree, _names(body))
    order = Closing(
        site=node.site, ce=node.ce, queue=node.queue, reason=body.reason, closed_by=request.who.name, since=now,
        until=body.until, keep_pilots=body.keep_pilots, begins=UNSET if body.begins is None else body.begins,
    )  # fmt: skip
    closing = check_closing(order, now)
    command: Command[ClosingOutcome] = Change(close_site, core.live, closing, dry_run=body.dry_run)
    if not body.dry_run:
        command = request.audited(command, "site-closed", str(node), closing.reason)
    drains = closing.empties(now) and not body.dry_run
    done: ClosingOutcome = await (
        close_and_drain(core, closing, command) if drains else core.commands.run(command)
    )
    return SiteClosed(
        **asdict(done.closing), queues=sum(map(closing.node.covers, tree.queue_ids())), drained=len(done.drained),
        renewed=done.renewed, dry_run=body.dry_run,
        endless=_endless(core, closing) if closing.is_ahead(now) else UNSET,
        replaced=UNSET if done.replaced is None else done.replaced,
    )  # fmt: skip


def _endless(core: Core, closing: Closing) -> int:
    offers = (offer for vo in core.policy.config.vos for offer in core.policy.vo_config(vo).offers)
    return len(
        {offer.queue for offer in offers if not offer.life_seconds and closing.node.covers(offer.queue)}
    )


@serves(calls.OPEN_SITE)
async def _open_site(core: Core, request: Request[Nothing, OpenSiteBody]) -> SiteOpened:
    node = _closed(core, request.body)
    command = Change(open_site, core.live, node, request.who.name)
    done: OpeningOutcome = await core.commands.run(request.audited(command, "site-opened", str(node)))
    core.sessions.drain(done.staying, drain=False)
    queues = sum(map(node.covers, core.policy.config.tree.queue_ids()))
    return SiteOpened(
        **asdict(done.closing), queues=queues, still_closed=list(done.others), staying=len(done.staying)
    )  # fmt: skip


@serves(calls.BREAKER)
async def _breaker(core: Core, request: Request[Nothing, BreakerBody]) -> BreakerOrdered:
    body, order = request.body, None
    place = QueueId(*find_node(core.policy.config.tree, body.path))
    if not place.queue:
        raise NotFound(f"{place} is no queue.", hint="Name it as SITE/CE/QUEUE; see: lode queue ls")
    if body.order != "auto":
        state: Literal["open", "closed"] = "open" if body.order == "open" else "closed"
        order = BreakerOrder(*place, state, check_reason(body.reason), request.who.name, core.clock())
    command = Change(order_breaker, place, order)
    words = f"{body.order}: {body.reason}".removesuffix(": ")
    before = await core.commands.run(request.audited(command, "breaker-ordered", str(place), words))
    return BreakerOrdered(path=str(place), now=order, before=before)


def _closed(core: Core, body: OpenSiteBody) -> NodePath:
    """Configured or not. Raises Conflict if it is not closed, InvalidRequest."""
    if not body.path:
        return _names(body)
    mask = closings(core.reader)
    active = list(mask.known(core.clock()))
    nodes = [closing.node for closing in active if str(closing.node) == body.path]
    if len(nodes) > 1:
        raise InvalidRequest(
            f"{body.path[:200]} may be {len(nodes)} things.", hint="Give site, CE and queue apart.",
            choices=[list(node) for node in nodes],
        )  # fmt: skip
    if not nodes:
        near = [closing for closing in active if f"{closing.node}/".startswith(f"{body.path}/")]
        near += [closing for closing in active if f"{body.path}/".startswith(f"{closing.node}/")]
        raise not_closed(body.path, tuple(near))
    return nodes[0]


def _names(body: OpenSiteBody) -> NodePath:
    node = NodePath(body.site, body.ce, body.queue)
    if not node[0] or (node[2] and not node[1]):
        words = "Name a site, a site and a CE, or site, CE and queue; or path."
        raise InvalidRequest(words, parameter="site")
    return node
