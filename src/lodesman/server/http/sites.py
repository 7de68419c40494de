"""Closing and opening sites, CEs and queues, in the hot process: where the pilots are that leave."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET
from msgspec.structs import asdict

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.live.pilots import close_and_drain
from lodesman.server.reads.sites import exact_node, find_node
from lodesman.server.store.director import closings
from lodesman.server.store.journal import Change, Command
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
from lodesman.wire import calls
from lodesman.wire.call import Nothing
from lodesman.wire.nodes import BreakerBody, BreakerOrder, BreakerOrdered, Closing, SiteClosed, SiteOpened
from lodesman.wire.requests import CloseSiteBody, OpenSiteBody


@serves(calls.CLOSE_SITE)
async def _close_site(core: Core, request: Request[Nothing, CloseSiteBody]) -> SiteClosed:
    body, now, tree = request.body, core.clock(), core.policy.config.tree
    node = find_node(tree, body.path) if body.path else exact_node(tree, _names(body))
    wanted = Closing(
        site=node.site, ce=node.ce, queue=node.queue, reason=body.reason, closed_by=request.who.name, since=now,
        until=body.until, keep_pilots=body.keep_pilots, begins=UNSET if body.begins is None else body.begins,
    )  # fmt: skip
    closing = check_closing(wanted, now)
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
    """The queues below it for which no end of pilots is known, as some VO sees them."""
    offers = (one for vo in core.policy.config.vos for one in core.policy.vo_config(vo).offers)
    return len({one.queue for one in offers if not one.life_seconds and closing.node.covers(one.queue)})


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
    """Raises NotFound for what is no queue, InvalidRequest without a reason."""
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
    """What is named, be it configured or not. Raises Conflict if that is not closed nor going to be, InvalidRequest."""
    if not body.path:
        return _names(body)
    mask = closings(core.reader)
    active = list(mask.known(core.clock()))
    found = [one.node for one in active if str(one.node) == body.path]
    if len(found) > 1:
        raise InvalidRequest(
            f"{body.path[:200]} may be {len(found)} things.", hint="Give site, CE and queue apart.",
            choices=[list(node) for node in found],
        )  # fmt: skip
    if not found:
        near = [one for one in active if f"{one.node}/".startswith(f"{body.path}/")]
        near += [one for one in active if f"{body.path}/".startswith(f"{one.node}/")]
        raise not_closed(body.path, tuple(near))
    return found[0]


def _names(body: OpenSiteBody) -> NodePath:
    node = NodePath(body.site, body.ce, body.queue)
    if not node[0] or (node[2] and not node[1]):
        words = "Name a site, a site and a CE, or site, CE and queue; or path."
        raise InvalidRequest(words, parameter="site")
    return node
