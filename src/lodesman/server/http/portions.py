"""Actions on many jobs in portions: others are served in between, and which jobs are chosen is found out before each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

from lodesman.base.errors import LodesmanError, counted
from lodesman.languages.jobs.selection import SelectionTooDear
from lodesman.server.http.wire import Disconnected, Receive, gone
from lodesman.server.live.core import Core
from lodesman.server.store.read.job_filter import ANY_JOB
from lodesman.server.writer.choice import Choice
from lodesman.server.writer.control import RangeAction
from lodesman.server.writer.control_outcome import ControlOutcome
from lodesman.wire.accounts import Principal

_Ranges = tuple[range, ...]


async def in_portions(
    core: Core,
    who: Principal,
    ranges: _Ranges,
    act: Callable[..., RangeAction],
    *,
    seconds: float = math.inf,
    learn: Callable[[_Ranges], Awaitable[None]] | None = None,
) -> ControlOutcome:
    """`seconds`: after that long the rest is left, for the next request; so is what is too dear for the rest of this one.
    `learn`: find out which of the next jobs are chosen.
    """
    async with core.turns.of(who.name):
        end = asyncio.get_running_loop().time() + seconds
        # Many rows take many commands: others are served in between.
        core.principals.check(who)
        if learn is not None:
            await learn(ranges)
        command = partial(core.turns.command, jobs=sum(map(len, ranges)))
        out: ControlOutcome = await command(act(ranges=ranges))
        while out.rest and asyncio.get_running_loop().time() < end:
            try:
                core.principals.check(who)
                if learn is not None:
                    await learn(out.rest)
                out.go_on(await command(act(ranges=out.rest)))
            except SelectionTooDear:
                break
            except LodesmanError as fault:
                raise _unfinished(act(ranges=()).action, out, fault) from fault
    return out


async def learn_choice(core: Core, choice: Choice, receive: Receive, ranges: _Ranges) -> None:
    """Find out beside the writer which of the next jobs are chosen: texts may be long. Those who do this take turns. Raises
    Disconnected if the client is gone.
    """
    if choice.job_filter == ANY_JOB:
        return
    leaving = asyncio.ensure_future(gone(receive))
    try:
        portions, is_over = choice.learn_in_portions(core.choosing.db, ranges), False
        while not is_over:
            async with core.choosing.lock:
                if leaving.done():
                    raise Disconnected
                is_over = await asyncio.to_thread(next, portions, True)
    finally:
        leaving.cancel()


def _unfinished(action: str, out: ControlOutcome, fault: LodesmanError) -> LodesmanError:
    """What is said when a command fails after others of the same action."""
    done, left = f"{action} had changed {counted(out.changed, 'job')}", out.rest[0].start
    message = f"{fault.message} Until then {done}; from job {left} on nothing was done."
    rest = [(ids[0], ids[-1]) for ids in out.rest]
    data = {**fault.data, "changed": out.changed, "refused": out.refused, "rest": rest}
    return type(fault)(message, hint=fault.hint, **data)
