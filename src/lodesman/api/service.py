"""What the server's own background process asks the hot process (token of kind `service`, loopback only)."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from lodesman.answers.vocabulary import PilotState
from lodesman.api.core import Core
from lodesman.api.pilot_look import look_at_pilot
from lodesman.api.submit_pools import PoolCalls
from lodesman.api.wire import (
    REPORT_BODY,
    SMALL_BODY,
    Receive,
    Scope,
    Send,
    decode,
    read_body,
    send_json,
)
from lodesman.commands.director_log import StoreIteration
from lodesman.commands.forget import Forget, Old
from lodesman.commands.pilots import EndPilot, NewPilot, PilotSubmitted, PreparePilots
from lodesman.commands.sandboxes import RegisterSandbox
from lodesman.commands.site_mask import ForgetOldClosings
from lodesman.commands.tidy import Tidy, Untidy
from lodesman.commands.upkeep import Doubts, ForgetIdleQueues, Reconcile
from lodesman.services.why.main_reasons import StoreReasons


class PilotBody(Struct):
    """One pilot about to be submitted; `join_hash` in base64."""

    stamp: str
    vo: str
    site: str
    ce: str
    queue: str
    request: dict[str, Any]
    join_hash: str
    owner: str = ""
    group: str = ""
    pilot_type: str = ""
    submission_pool: str = ""
    tq_id: int | None = None
    requirements: str = "{}"


class EndBody(Struct):
    """A pilot that its batch system says is gone."""

    pilot: int
    state: PilotState
    reason: str


class SandboxRow(Struct):
    """An input sandbox that was uploaded."""

    owner: str
    sha256: str
    size: int
    quota: int = 0


class IterationBody(Struct):
    """One iteration of the director, with inputs and clamps: megabytes that are kept as they come."""

    plan: msgspec.Raw


class AliveBody(Struct):
    """The background process lives; these of its steps fail, each with the last fault."""

    failing: dict[str, str]


class ReasonsBody(Struct):
    """Why jobs wait, by task queue: what changed; None for task queues without waiting jobs."""

    changed: dict[int, tuple[str, str] | None]
    facts_at: float | None


NEW = msgspec.json.Decoder(list[PilotBody])
SUBMITTED = msgspec.json.Decoder(dict[str, tuple[str | None, str]])
END = msgspec.json.Decoder(EndBody)
SANDBOX = msgspec.json.Decoder(SandboxRow)
OLD = msgspec.json.Decoder(Old)
UNTIDY = msgspec.json.Decoder(Untidy)
REASONS = msgspec.json.Decoder(ReasonsBody)
ITERATION = msgspec.json.Decoder(IterationBody)
DOUBTS = msgspec.json.Decoder(Doubts)
ALIVE = msgspec.json.Decoder(AliveBody)


class ServiceCalls:
    """Commands of the director and of upkeep."""

    def __init__(self, core: Core, pools: PoolCalls) -> None:
        self.core = core
        self.calls: dict[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {
            "alive": self.alive,
            "pilots": self.pilots,
            "submitted": self.submitted,
            "ended": self.ended,
            "sandbox": self.sandbox,
            "iteration": self.iteration,
            "reconcile": self.reconcile,
            "forget-idle": self.forget_idle,
            "reasons": self.reasons,
            "forget": self.forget,
            "tidy": self.tidy,
            "pilot": partial(look_at_pilot, core),
            **pools.calls,
        }

    async def alive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The background process lives."""
        body = decode(ALIVE, await read_body(scope, receive, SMALL_BODY))
        self.core.background.heard(self.core.ticks(), body.failing)
        await send_json(send, b"{}")

    async def pilots(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store pilots before they are submitted."""
        rows = decode(NEW, await read_body(scope, receive, REPORT_BODY))
        new = [
            NewPilot(**{**msgspec.structs.asdict(row), "join_hash": base64.b64decode(row.join_hash)})
            for row in rows
        ]
        numbers = await self.core.command(PreparePilots(self.core.live, new))
        await send_json(send, msgspec.json.encode({"pilots": numbers}))

    async def submitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store what the batch system answered."""
        outcome = decode(SUBMITTED, await read_body(scope, receive, REPORT_BODY))
        accepted = await self.core.command(PilotSubmitted(self.core.live, outcome))
        await send_json(send, msgspec.json.encode({"accepted": accepted}))

    async def ended(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A pilot is gone."""
        body = decode(END, await read_body(scope, receive, SMALL_BODY))
        command = EndPilot(self.core.live, body.pilot, body.state, body.reason)
        rescued = await self.core.command(command)
        self.core.forget_pilot(body.pilot)
        await send_json(send, msgspec.json.encode({"rescued": rescued}))

    async def sandbox(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An input sandbox lies on disk."""
        row = decode(SANDBOX, await read_body(scope, receive, SMALL_BODY))
        await self.core.command(RegisterSandbox(row.owner, row.sha256, row.size, row.quota))
        await send_json(send, b"{}")

    async def iteration(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store what the director decided and why."""
        body = decode(ITERATION, await read_body(scope, receive, REPORT_BODY))
        await self.core.command(StoreIteration(bytes(body.plan).decode()))
        await send_json(send, b"{}")

    async def reasons(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Why the jobs of task queues wait now."""
        body = decode(REASONS, await read_body(scope, receive, REPORT_BODY))
        changed = await self.core.command(StoreReasons(body.changed, body.facts_at))
        await send_json(send, msgspec.json.encode({"changed": changed}))

    async def forget(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forget what is old."""
        old = decode(OLD, await read_body(scope, receive, SMALL_BODY))
        await send_json(send, msgspec.json.encode(await self.core.command(Forget(self.core.live, old))))

    async def tidy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Mark and remove input files that no job names."""
        found = decode(UNTIDY, await read_body(scope, receive, SMALL_BODY))
        await send_json(send, msgspec.json.encode({"gone": await self.core.command(Tidy(found))}))

    async def reconcile(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look again at what the reconciler doubts, and mend it."""
        doubts = decode(DOUBTS, await read_body(scope, receive, SMALL_BODY))
        await send_json(send, msgspec.json.encode(await self.core.command(Reconcile(self.core.live, doubts))))

    async def forget_idle(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Free the slots of task queues that have been empty for long."""
        await self.core.command(ForgetIdleQueues(self.core.live))
        await self.core.command(ForgetOldClosings())
        await send_json(send, b"{}")
