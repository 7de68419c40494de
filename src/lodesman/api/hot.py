"""The hot process's ASGI application: one dispatch on the path, then the call (DESIGN 3.1).

Everything that changes something, and all that pilots ask often, is answered here; lists, states, logs and
sandboxes are passed on to the reading process.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from lodesman.api import direct
from lodesman.api.auth import authenticate, need_admin, need_pilot, need_service
from lodesman.api.claims import ClaimCall
from lodesman.api.core import Core
from lodesman.api.forward import Forwarder
from lodesman.api.health import health, hot_metrics
from lodesman.api.logs import job_logs
from lodesman.api.pilots import PilotCalls
from lodesman.api.service import ServiceCalls
from lodesman.api.site_mask import SiteCalls
from lodesman.api.submit_pools import PoolCalls
from lodesman.api.users import UserCalls
from lodesman.api.wire import (
    Disconnected,
    Receive,
    Scope,
    Send,
    send_answer,
    send_error,
)
from lodesman.errors import LodesmanError, NotFound

LOGS = re.compile(r"/v1/jobs/([0-9]{1,18})/logs")

Life = Callable[[], Awaitable[None]]


class HotApp:
    """ASGI application. `on_start` and `on_stop` run on the event loop."""

    def __init__(
        self,
        core: Core,
        forward: Forwarder,
        *,
        idle_seconds: float,
        sandbox_mb: int,
        on_start: Life,
        on_stop: Life,
    ) -> None:
        self.core = core
        self.forward = forward
        self.on_start = on_start
        self.on_stop = on_stop
        pilots = PilotCalls(core, idle_seconds=idle_seconds, sandbox_mb=sandbox_mb)
        users, sites = UserCalls(core), SiteCalls(core)
        self.pools = PoolCalls(core)
        self.service = ServiceCalls(core, self.pools)
        self.join = pilots.join
        # The web server's protocol makes these itself (`daemon.connections`), unless something is unusual.
        self.claims = ClaimCall(core)
        self.direct: dict[str, direct.Call] = {"/v1/pilots/claim": self.claims}
        self.pilot_calls = {
            "/v1/pilots/heartbeat": pilots.heartbeat,
            "/v1/pilots/report": pilots.report,
            "/v1/pilots/leave": pilots.leave,
        }
        self.user_calls = {
            "/v1/jobs": users.submit,
            "/v1/jobs/control": users.control,
            "/v1/pilots/drain": users.drain,
            "/v1/sites/close": sites.close,
            "/v1/sites/open": sites.open,
            "/v1/users": users.account,
            "/v1/tokens": users.token,
        }
        self.users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the application's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            await self._route(scope, receive, send)
        except LodesmanError as error:
            await send_error(send, error)
        except Disconnected:
            return
        except Exception as bug:
            await send_answer(send, *direct.failed(scope["path"], bug))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            at_once = self.direct.get(path)
            if at_once is not None:
                await direct.answer(at_once, scope, receive, send)
                return
            call = self.pilot_calls.get(path)
            if call is not None:
                principal = authenticate(scope, self.core.lookup, self.core.clock())
                await call(scope, receive, send, need_pilot(principal))
                return
            change = self.user_calls.get(path)
            if change is not None:
                await change(scope, receive, send, authenticate(scope, self.core.lookup, self.core.clock()))
                return
        await self._seldom(scope, receive, send)

    async def _seldom(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST" and path == "/v1/pilots/join":
            await self.join(scope, receive, send)
        elif method == "POST" and path == "/v1/submit-pools/for-queues":
            await self.pools.for_queues(scope, receive, send)
        elif method == "POST" and path.startswith("/v1/service/"):
            need_service(authenticate(scope, self.core.lookup, self.core.clock()))
            call = self.service.calls.get(path.removeprefix("/v1/service/"))
            if call is None:
                raise NotFound("There is no such call.")
            await call(scope, receive, send)
        elif method == "DELETE" and path.startswith("/v1/tokens/"):
            who = authenticate(scope, self.core.lookup, self.core.clock())
            await self.users.revoke(receive, send, who, path.removeprefix("/v1/tokens/"))
        elif path == "/health":
            await health(self.core, send)
        elif path == "/v1/hot/metrics":
            need_admin(authenticate(scope, self.core.lookup, self.core.clock()))
            await hot_metrics(self.core, send)
        elif method == "GET" and (found := LOGS.fullmatch(path)):
            who = authenticate(scope, self.core.lookup, self.core.clock())
            await job_logs(self.core, send, who, int(found[1]))
        else:
            await self.forward(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.on_start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.on_stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
