"""SubmitPools at the hot process: `getSubmitPoolsForQueue` of RFC #7, and what the background process tells of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from lodesman.api import bodies
from lodesman.api.auth import authenticate, need_user
from lodesman.api.core import Core
from lodesman.api.wire import (
    REPORT_BODY,
    SMALL_BODY,
    SUBMIT_BODY,
    Receive,
    Scope,
    Send,
    decode,
    read_body,
    send_json,
)
from lodesman.commands.accounts import JOINING, Principal, find_joining
from lodesman.commands.changed_types import RekeyPools, Renewals
from lodesman.commands.pool_map import Place
from lodesman.commands.refresh import (
    Cleaning,
    CleanPools,
    Difference,
    Judgement,
    JudgeQueues,
    NameQueues,
    RefreshPools,
)
from lodesman.errors import Forbidden, TooLarge, Unauthorized
from lodesman.store import pilots

QUEUES = msgspec.json.Decoder(bodies.QueuesBody)
PLACES = msgspec.json.Decoder(list[Place])
RENEWALS = msgspec.json.Decoder(Renewals)
DIFFERENCE = msgspec.json.Decoder(Difference)
JUDGEMENT = msgspec.json.Decoder(Judgement)
CLEANING = msgspec.json.Decoder(Cleaning)
# Identifiers in one answer; a bunch of pilots goes to few queues.
MOST_POOLS = 200_000


class PoolCalls:
    """`for_queues` is for everybody, `calls` are those of our own background process."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.calls: dict[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {
            "submit-pools": self.for_queues,
            "pool-queues": self.name_queues,
            "pool-renewals": self.rekey,
            "pool-pass": self.refresh,
            "pool-judgement": self.judge,
            "pool-cleaning": self.clean,
        }

    async def for_queues(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/submit-pools/for-queues: the pools of each of these queues, and the last pass."""
        core = self.core
        who = authenticate(scope, self._lookup, core.clock())
        body = decode(QUEUES, await read_body(scope, receive, SMALL_BODY))
        self._may_ask(who, body.queues)
        last = core.live.last_pass
        found: list[dict[str, Any]] = []
        count = 0
        for site, ce, queue in body.queues:
            pools = core.live.pools.of_queue((site, ce, queue))
            count += len(pools)
            if count > MOST_POOLS:
                raise TooLarge(
                    f"These queues serve more than {MOST_POOLS} SubmitPools.", hint="Ask for fewer at once."
                )
            found.append({"site": site, "ce": ce, "queue": queue, "pools": pools})
        answer = {"pass": last.id, "at": last.at, "queues": found}
        await send_json(send, msgspec.json.encode(answer))

    def _lookup(self, digest: bytes) -> Principal | None:
        """Also pilots that have not joined yet: they find out where they run before they do."""
        return self.core.lookup(digest) or find_joining(self.core.reader, digest)

    def _may_ask(self, who: Principal, queues: list[Place]) -> None:
        """A pilot asks for the queue that it was sent to, or, if it was sent to none, for those that it may be in."""
        if who.kind not in ("pilot", JOINING):
            need_user(who, "pilots:read")
            return
        pilot = pilots.find_pilot(self.core.reader, who.pilot_id)
        if pilot is None:
            raise Unauthorized("There is no such pilot.")
        row = (pilot.site, pilot.ce, pilot.queue)
        for place in queues:
            if any(known not in ("", told) for known, told in zip(row, place, strict=True)):
                raise Forbidden(f"This pilot was sent to {'/'.join(row)} and asks for {'/'.join(place)}.")

    # --- the background process's -----------------------------------------------------------------------

    async def name_queues(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Queues that pools may speak of."""
        places = decode(PLACES, await read_body(scope, receive, REPORT_BODY))
        new = await self.core.command(NameQueues(self.core.live, places))
        await send_json(send, msgspec.json.encode({"new": new}))

    async def rekey(self, scope: Scope, receive: Receive, send: Send) -> None:
        """SubmitPools whose Requirements have another identifier under the types of today."""
        found = decode(RENEWALS, await read_body(scope, receive, SUBMIT_BODY))
        count = await self.core.command(RekeyPools(self.core.live, found, self.core.policy.digest))
        await send_json(send, msgspec.json.encode({"task_queues": count}))

    async def refresh(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What an evaluation of all pools found."""
        found = decode(DIFFERENCE, await read_body(scope, receive, SUBMIT_BODY))
        row = await self.core.command(RefreshPools(self.core.live, found, self.core.policy.digest))
        await send_json(send, msgspec.json.encode({"pass": row.id, "at": row.at}))

    async def judge(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Task queues to hold and to release."""
        found = decode(JUDGEMENT, await read_body(scope, receive, REPORT_BODY))
        done = await self.core.command(JudgeQueues(self.core.live, found))
        await send_json(send, msgspec.json.encode(done))

    async def clean(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pools that no job needs."""
        found = decode(CLEANING, await read_body(scope, receive, REPORT_BODY))
        removed = await self.core.command(CleanPools(self.core.live, found))
        await send_json(send, msgspec.json.encode({"removed": removed}))
