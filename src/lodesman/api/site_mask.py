"""Closing and opening of sites, CEs and queues, in the hot process: where the pilots are that leave."""

from __future__ import annotations

from typing import Any

import msgspec

from lodesman.api import bodies
from lodesman.api.auth import need_admin
from lodesman.api.core import Core
from lodesman.api.wire import SMALL_BODY, Receive, Scope, Send, decode, read_body, send_json
from lodesman.background.origins import exact_node, find_node
from lodesman.commands.accounts import Principal
from lodesman.commands.pilots import DrainPilots
from lodesman.commands.sessions import PilotSession
from lodesman.commands.site_mask import (
    Closed,
    CloseSite,
    OpenSite,
    as_row,
    check_closing,
    mask_of,
    not_closed,
)
from lodesman.director.site_mask import Closing, Node
from lodesman.errors import InvalidRequest, LodesmanError
from lodesman.resources import NodePath
from lodesman.store import site_mask

CLOSE = msgspec.json.Decoder(bodies.CloseSiteBody)
OPEN = msgspec.json.Decoder(bodies.OpenSiteBody)


class SiteCalls:
    """What administrators say of sites."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def close(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/sites/close."""
        need_admin(who)
        body = decode(CLOSE, await read_body(scope, receive, SMALL_BODY))
        core, now = self.core, self.core.clock()
        node = self._configured(body)
        closing = check_closing(
            Closing(
                site=node.site, ce=node.ce, queue=node.queue, reason=body.reason, closed_by=who.name, since=now,
                until=body.until, keep_pilots=body.keep_pilots,
            ),
            now,
        )  # fmt: skip
        command = CloseSite(core.live, closing, dry_run=body.dry_run)
        drains = not (body.dry_run or body.keep_pilots)
        done: Closed = await (self._drain(command, closing) if drains else core.command(command))
        answer = {
            **as_row(done.closing), "queues": self._queues(closing.node), "drained": len(done.drained),
            "renewed": done.renewed, "dry_run": body.dry_run,
        }  # fmt: skip
        await send_json(send, msgspec.json.encode(answer))

    async def _drain(self, command: CloseSite, closing: Closing) -> Closed:
        """Close, and let no pilot there claim from now on, whether or not its words are on their way already."""
        core = self.core
        leave = [one for one in core.sessions.values() if _is_in(one, closing.node) and not one.drain]
        for session in leave:
            session.drain = True
        try:
            done: Closed = await core.command(command)
        except LodesmanError:
            for session in leave:
                session.drain = False
            raise
        core.pilots_drained()
        # Those that joined while that was on its way: what they may have asked for meanwhile is answered, too.
        sessions = (core.sessions.get(pilot_id) for pilot_id in done.drained)
        late = [session for session in sessions if session is not None and not session.drain]
        for session in late:
            session.drain = True
        if late:
            await core.command(DrainPilots(core.live, [session.id for session in late]))
        return done

    async def open(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/sites/open."""
        need_admin(who)
        body = decode(OPEN, await read_body(scope, receive, SMALL_BODY))
        node = self._closed(body)
        before, others = await self.core.command(OpenSite(node, who.name))
        answer = {
            **as_row(before), "queues": self._queues(node), "still_closed": [as_row(one) for one in others],
        }  # fmt: skip
        await send_json(send, msgspec.json.encode(answer))

    def _configured(self, body: bodies.CloseSiteBody) -> NodePath:
        """What is named, if it is configured. Raises NotFound, InvalidRequest."""
        tree = self.core.policy.config.tree
        if body.path:
            return find_node(tree, body.path)
        return exact_node(tree, NodePath(*_names(body)))

    def _closed(self, body: bodies.OpenSiteBody) -> Node:
        """What is named, be it configured or not. Raises Conflict if that is not closed, InvalidRequest."""
        if not body.path:
            return _names(body)
        mask = mask_of(list(self.core.reader.execute(site_mask.ALL)))
        closings = list(mask.active(self.core.clock()))
        found = [one.node for one in closings if one.path == body.path]
        if len(found) > 1:
            raise InvalidRequest(
                f"{body.path[:200]} may be {len(found)} things.", hint="Give site, CE and queue apart.",
                choices=[list(node) for node in found],
            )  # fmt: skip
        if not found:
            near = [one for one in closings if f"{one.path}/".startswith(f"{body.path}/")]
            near += [one for one in closings if f"{body.path}/".startswith(f"{one.path}/")]
            raise not_closed(body.path, tuple(near))
        return found[0]

    def _queues(self, node: Node) -> int:
        """How many configured queues that concerns."""
        site = self.core.policy.config.tree.sites.get(node[0])
        elements = [] if site is None else [ce for ce in site.ces.values() if node[1] in ("", ce.name)]
        return sum(len([name for name in ce.queues if node[2] in ("", name)]) for ce in elements)


def _names(body: Any) -> Node:
    node = (body.site, body.ce, body.queue)
    if not node[0] or (node[2] and not node[1]):
        raise InvalidRequest(
            "Name a site, a site and a CE, or site, CE and queue; or path.", parameter="site"
        )
    return node


def _is_in(session: PilotSession, node: Node) -> bool:
    pairs = zip(node, session.queue, strict=True)
    return all(closed in ("", its) for closed, its in pairs)
