"""How changed limits, shares and job classes come into use in a running server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from lodesman.decide.matching.policy import Policy
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import Classes
from lodesman.languages.jobclass.editing import ClassEdit
from lodesman.server.live.core import Core
from lodesman.server.store.journal import Change, Command
from lodesman.server.writer.groups import know_shares
from lodesman.server.writer.job_classes import ClassesMoved, configure_classes
from lodesman.server.writer.quotas import go_on, use_limits
from lodesman.server.writer.submit_pools import set_shares
from lodesman.wire.groups import KnownUsage
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.vocabulary import Waking

_MOST_TRIES = 3


async def change_limits(core: Core, change: Command[object]) -> None:
    """Answers when the limits are in use. Raises as the change."""
    are_used = await core.commands.run(change)
    while are_used is False:
        are_used = await core.commands.run(Change(go_on, core.quotas))


async def use_policy(core: Core, policy: Policy) -> None:
    """Limit by a configuration, and by the groups of accounts. Raises LodesmanError."""
    await change_limits(core, Change(use_limits, core.quotas, policy.vocabulary, policy.config.limits))


async def use_shares(core: Core) -> None:
    """Draw by the stored shares. Raises LodesmanError."""
    know_shares(core.reader, core.policy, core.clock())
    await core.commands.run(Change(set_shares, core.live, core.policy.shares()))
    core.announce(Waking.SHARES)


async def use_usage(core: Core, usage: KnownUsage | None, seconds: float) -> None:
    """Correct the shares for a time. Raises LodesmanError."""
    core.usage_until = math.inf if usage is None else core.ticks() + seconds
    await _draw_by(core, usage)


async def forget_old_usage(core: Core) -> None:
    """Correct them no more if no usage came for too long. Raises LodesmanError."""
    if core.ticks() >= core.usage_until:
        await _draw_by(core, None)
        core.usage_until = math.inf


async def _draw_by(core: Core, usage: KnownUsage | None) -> None:
    core.policy.set_usage(usage)
    await core.commands.run(Change(set_shares, core.live, core.policy.shares()))


async def use_classes(core: Core, vocabulary: Vocabulary, section: JobClassSection) -> None:
    """Judge the job classes by a new configuration. Raises LodesmanError."""

    def edit(before: Classes) -> ClassEdit:
        return ClassEdit(after=before.under(vocabulary, section))

    await edit_agreed(core, edit, lambda result: Change(configure_classes, core.job_classes, result.after))


async def edit_agreed(
    core: Core, edit: Callable[[Classes], ClassEdit], command: Callable[[ClassEdit], Command[object] | None]
) -> ClassEdit:
    """Judge in a thread, and store if no other edit came between; else judge again. Raises LodesmanError."""
    async with core.one_edit:
        for left in reversed(range(_MOST_TRIES)):
            result = await asyncio.to_thread(edit, core.job_classes.now)
            order = command(result)
            try:
                if order is not None:
                    await core.commands.run(order)
            except ClassesMoved:
                if not left:
                    raise
            else:
                break
    return result
