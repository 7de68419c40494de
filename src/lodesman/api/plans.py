"""`POST /v1/plan/...`: dry runs of a job, of a resource configuration and of shares. Nothing is stored.

Worked out in a thread, on a read connection of its own, beside the requests that are quick; a plan that takes too long
is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from lodesman.answers import calls
from lodesman.answers.call import Nothing
from lodesman.answers.plans import JobPlan, ResourcesPlan, SharesPlan
from lodesman.answers.requests import PlanJobBody, PlanResourcesBody, PlanSharesBody, SubmitBody
from lodesman.api.dispatch import Request, serves
from lodesman.api.read_side import ReadSide
from lodesman.background.plans import LiveState
from lodesman.background.plans import plan_job as plan_of_job
from lodesman.background.plans import plan_shares as plan_of_shares
from lodesman.background.rehearsal import plan_resources as plan_of_resources
from lodesman.errors import TooLarge, Unavailable
from lodesman.resources import Fault, Source, load_resources
from lodesman.store import open_reader

# A plan may take so long, and wait so long for others.
PLAN_SECONDS = 60.0
WAIT_SECONDS = 30.0

T = TypeVar("T")


@serves(calls.PLAN_JOB)
async def plan_job(side: ReadSide, request: Request[Nothing, PlanJobBody]) -> JobPlan:
    """What would become of a submission."""
    wanted = SubmitBody(**msgspec.structs.asdict(request.body))
    return await _plan(side, side.job_plans, partial(plan_of_job, wanted, request.who))


@serves(calls.PLAN_RESOURCES)
async def plan_resources(side: ReadSide, request: Request[Nothing, PlanResourcesBody]) -> ResourcesPlan:
    """What another resource configuration would change."""
    files = side.configuration().resource_files if request.body.add else ()
    return await _plan(side, side.large_plans, partial(_resources, request.body, files))


@serves(calls.PLAN_SHARES)
async def plan_shares(side: ReadSide, request: Request[Nothing, PlanSharesBody]) -> SharesPlan:
    """What other shares would change."""
    return await _plan(side, side.large_plans, partial(plan_of_shares, request.body.shares))


async def _plan(side: ReadSide, room: asyncio.Semaphore, make: Callable[[LiveState], T]) -> T:
    """Work it out in a thread. Raises Unavailable while others take the room, TooLarge for what takes too long."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await room.acquire()
    except TimeoutError:
        raise Unavailable("Other plans are being worked out.", hint="Try again in a moment.") from None
    try:
        return await asyncio.to_thread(_work, side, make)
    finally:
        room.release()


def _work(side: ReadSide, make: Callable[[LiveState], T]) -> T:
    with closing(open_reader(side.db.path)) as db:
        state = LiveState(
            db=db,
            policy=side.policy,
            keeper=side.fresh(),
            now=side.clock(),
            tick=partial(_tick, time.monotonic() + PLAN_SECONDS),
            director=side.director,
        )
        return make(state)


def _tick(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TooLarge(
            f"This plan takes more than {PLAN_SECONDS:g} s to work out.",
            hint="Ask again when the server has less to do.",
            seconds=PLAN_SECONDS,
        )


def _resources(body: PlanResourcesBody, files: tuple[str, ...], state: LiveState) -> ResourcesPlan:
    """`files`: those that are read as well."""
    faults: list[Fault] = []
    texts = [*_read(files, faults), *((file.name, file.text) for file in body.files)]
    config = load_resources(texts, faults=faults)
    return plan_of_resources(config, [name for name, _ in texts], state, limit=body.limit)


def _read(files: tuple[str, ...], faults: list[Fault]) -> Iterator[tuple[str, str]]:
    """(name, text) of the server's own files; one that cannot be read is a fault."""
    for name in files:
        try:
            yield name, Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            faults.append(Fault(message=f"it cannot be read: {fault}", source=Source(file=name)))
