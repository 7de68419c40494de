"""The hot process's ASGI application: what changes something and what pilots ask often; all else is passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from lodesman.answers import calls
from lodesman.answers.accounts import Principal
from lodesman.answers.call import Call
from lodesman.api import claims, pilots, service, sites, users
from lodesman.api.auth import authenticate
from lodesman.api.core import Core
from lodesman.api.dispatch import Dispatcher
from lodesman.api.forward import Forwarder
from lodesman.api.wire import Receive, Scope, Send
from lodesman.store.accounts import joining_pilot

Life = Callable[[], Awaitable[None]]


class HotApp:
    """ASGI application. `on_start` and `on_stop` run on the event loop."""

    def __init__(self, core: Core, forward: Forwarder, *, on_start: Life, on_stop: Life) -> None:
        self.forward = forward
        self.on_start = on_start
        self.on_stop = on_stop
        self._core = core
        self._answer = Dispatcher(
            "hot", core, (claims, pilots, service, sites, users),
            authenticate=self._authenticate, otherwise=self._pass_on,
        )  # fmt: skip
        # The web server's protocol makes these itself (`daemon.connections`), unless something is unusual.
        self.direct: dict[str, claims.DirectCall] = {calls.CLAIM.path: partial(claims.direct_claim, core)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the application's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.forward(scope, receive, send)

    def _authenticate(self, scope: Scope, call: Call[Any, Any, Any]) -> Principal:
        lookup = self._lookup_joining if call is calls.SERVED_POOLS else self._core.lookup
        return authenticate(scope, lookup, self._core.clock())

    def _lookup_joining(self, digest: bytes) -> Principal | None:
        """Also pilots that have not joined yet: they find out where they run before they do."""
        return self._core.lookup(digest) or joining_pilot(self._core.reader, digest)

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
