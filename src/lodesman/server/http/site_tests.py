"""Tests of sites: begun, asked about, stopped. The background process makes them."""

from __future__ import annotations

from lodesman.base.errors import InvalidRequest
from lodesman.decide.resources import NodePath
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import origin_of
from lodesman.server.reads.sites import exact_node, find_node
from lodesman.wire import calls, inner_calls
from lodesman.wire.accounts import AuditNote
from lodesman.wire.call import Nothing
from lodesman.wire.site_tests import SiteTest, SiteTestAt, SiteTestBody


@serves(calls.TEST_SITE)
async def _test_site(side: ReadSide, request: Request[Nothing, SiteTestBody]) -> SiteTest:
    """Raises NotFound for what is not configured, InvalidRequest, Unavailable while others are tested."""
    body, tree = request.body, side.policy.config.tree
    given = NodePath(body.site, body.ce, body.queue)
    if not body.path and (not body.site or (body.queue and not body.ce)):
        raise InvalidRequest(
            "Name a site, a site and a CE, or site, CE and queue; or path.", parameter="path"
        )
    node = find_node(tree, body.path) if body.path else exact_node(tree, given)
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
