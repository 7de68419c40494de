"""The correction of shares by usage, in the hot process, which draws by it: it holds until it is too old."""

from __future__ import annotations

import math

from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.store.journal import Change
from lodesman.server.writer.submit_pools import set_shares
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.groups import CorrectionUsage, KnownUsage


@serves(inner_calls.USAGE_FOUND)
async def _usage_found(core: Core, request: Request[Nothing, CorrectionUsage]) -> Nothing:
    """What the background process found."""
    found = request.body
    core.usage_until = math.inf if found.usage is None else core.ticks() + found.seconds
    await _draw_by(core, found.usage)
    return Nothing()


async def forget_old_usage(core: Core) -> None:
    """Draw by the configured shares when nothing has been heard of usage for too long. Raises LodesmanError."""
    if core.ticks() >= core.usage_until:
        await _draw_by(core, None)
        core.usage_until = math.inf


async def _draw_by(core: Core, usage: KnownUsage | None) -> None:
    core.policy.know_usage(usage)
    await core.commands.run(Change(set_shares, core.live, core.policy.shares()))
