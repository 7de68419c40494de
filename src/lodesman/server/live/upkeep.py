"""What the hot process sees to by itself."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from lodesman.base.errors import LodesmanError
from lodesman.server.live.core import Core
from lodesman.server.store.journal import Change
from lodesman.server.store.read.upkeep import stray_attempts
from lodesman.server.writer.quotas import open_delays
from lodesman.server.writer.site_mask import TendingOutcome, tend_closings
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire.service import Suspects

log = logging.getLogger(__name__)

_MOST_STRAYS: Final = 100_000
_STRAYS_AT_ONCE: Final = 500


async def look_at_clock(core: Core) -> None:
    """See whether the clock was set."""
    core.clock_watch.look(core.clock(), core.ticks())


async def open_due_delays(core: Core) -> None:
    """Let jobs start whose matching delay is over."""
    if core.live.queues.index.delays.next_at <= core.ticks():
        with suppress(LodesmanError):  # it is asked again soon
            await core.commands.run(Change(open_delays, core.live))


async def follow_closings(core: Core) -> None:
    """Let pilots leave where a closing begins, and stay where it ends. Raises LodesmanError."""
    done: TendingOutcome = await core.commands.run(Change(tend_closings, core.live))
    core.sessions.drain(done.staying, drain=False)
    core.sessions.drain(done.leaving)


async def mend_strays(core: Core) -> None:
    """At the start: attempts that their jobs do not name, or whose pilots have ended. A fault costs one of them."""
    strays = stray_attempts(core.reader, _MOST_STRAYS)
    for begun in range(0, len(strays), _STRAYS_AT_ONCE):
        some = strays[begun : begun + _STRAYS_AT_ONCE]
        if not await _mend(core, some):
            for stray in some:
                await _mend(core, [stray])
    if strays:
        log.error("stray attempts were found at the start", extra={"found": len(strays)})


async def _mend(core: Core, strays: list[int]) -> bool:
    with suppress(LodesmanError):
        await core.commands.run(Change(reconcile, core.live, Suspects(attempts=strays)))
        return True
    return False
