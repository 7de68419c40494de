"""`POST /v1/plan/...`: dry runs of a job, of a resource configuration and of shares. Nothing is stored.

Worked out in a thread, on a read connection of its own, beside the requests that are quick; a plan that takes too long
is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lodesman.api import bodies
from lodesman.api.answers import answer
from lodesman.api.auth import need_admin, need_user
from lodesman.api.wire import SUBMIT_BODY, Disconnected, decode, read_body
from lodesman.commands.accounts import Principal
from lodesman.commands.configuration import ConfigurationState
from lodesman.commands.policy import Policy
from lodesman.errors import InvalidRequest, TooLarge, Unavailable
from lodesman.resources import Fault, Source, load_resources
from lodesman.services.plans.plan_job import JobsWanted, plan_job
from lodesman.services.plans.plan_resources import plan_resources
from lodesman.services.plans.plan_shares import plan_shares
from lodesman.services.plans.scene import Scene
from lodesman.services.why.picture import Picture
from lodesman.services.why.queue_gate import Gates
from lodesman.store.engine import Reader, open_reader

PLAN_BODY = 16 << 20
# A plan may take so long, and wait so long for others.
PLAN_SECONDS = 60.0
WAIT_SECONDS = 30.0
# Plans of jobs at once; of resources and shares there is one.
JOBS_AT_ONCE = 2

JOB = msgspec.json.Decoder(bodies.PlanJobBody)
RESOURCES = msgspec.json.Decoder(bodies.PlanResourcesBody)
SHARES = msgspec.json.Decoder(bodies.PlanSharesBody)

T = TypeVar("T")


class Side(Protocol):
    """What plans need of the reading process."""

    db: Reader
    policy: Policy

    @property
    def clock(self) -> Callable[[], float]:
        """UNIX seconds."""
        ...

    @property
    def configuration(self) -> Callable[[], ConfigurationState]:
        """What became of the configuration files."""
        ...

    @property
    def gates(self) -> Gates | None:
        """What looks at CE queues as the director does; None where there is no director."""
        ...

    def look(self) -> Picture:
        """The picture of the world."""
        ...

    def who(self, request: Request) -> Principal:
        """The principal of a request."""
        ...


class Plans:
    """One method per route."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._jobs = asyncio.Semaphore(JOBS_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    def routes(self) -> list[Route]:
        """The routes of all plans."""
        calls = {"job": self.job, "resources": self.resources, "shares": self.shares}
        return [Route(f"/v1/plan/{name}", call, methods=["POST"]) for name, call in calls.items()]

    async def job(self, request: Request) -> Response:
        """POST /v1/plan/job: what would become of a submission."""
        who = need_user(self.side.who(request), "jobs:read")
        body = decode(JOB, await _body(request, SUBMIT_BODY))
        wanted = JobsWanted(**msgspec.structs.asdict(body))
        return await self._plan(self._jobs, partial(plan_job, wanted, who))

    async def resources(self, request: Request) -> Response:
        """POST /v1/plan/resources: what another resource configuration would change."""
        need_admin(self.side.who(request))
        body = decode(RESOURCES, await _body(request, PLAN_BODY))
        files = self.side.configuration().resource_files if body.add else ()
        return await self._plan(self._large, partial(_resources, body, files))

    async def shares(self, request: Request) -> Response:
        """POST /v1/plan/shares: what other shares would change."""
        need_admin(self.side.who(request))
        body = decode(SHARES, await _body(request, PLAN_BODY))
        return await self._plan(self._large, partial(plan_shares, body.shares))

    async def _plan(self, room: asyncio.Semaphore, make: Callable[[Scene], Any]) -> Response:
        """Work it out in a thread. Raises Unavailable while others take the room, TooLarge for what takes too long."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await room.acquire()
        except TimeoutError:
            raise Unavailable("Other plans are being worked out.", hint="Try again in a moment.") from None
        try:
            told = await asyncio.to_thread(self._work, make)
        finally:
            room.release()
        return answer(told)

    def _work(self, make: Callable[[Scene], T]) -> T:
        with self._scene() as scene:
            return make(scene)

    @contextmanager
    def _scene(self) -> Iterator[Scene]:
        side = self.side
        with closing(open_reader(side.db.path)) as db:
            picture = side.look()
            tick = partial(_tick, time.monotonic() + PLAN_SECONDS)
            yield Scene(
                db=db,
                policy=side.policy,
                picture=picture,
                now=side.clock(),
                tick=tick,
                director=None if side.gates is None else side.gates.director,
            )


async def _body(request: Request, limit: int) -> bytes:
    try:
        return await read_body(request.scope, request.receive, limit)
    except Disconnected:
        raise InvalidRequest("The request broke off.") from None


def _tick(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TooLarge(
            f"This plan takes more than {PLAN_SECONDS:g} s to work out.",
            hint="Ask again when the server has less to do.",
            seconds=PLAN_SECONDS,
        )


def _resources(body: bodies.PlanResourcesBody, files: tuple[str, ...], scene: Scene) -> dict[str, Any]:
    """`files`: those that are read as well."""
    faults: list[Fault] = []
    texts = [*_read(files, faults), *((file.name, file.text) for file in body.files)]
    config = load_resources(texts, faults=faults)
    told = plan_resources(config, scene, limit=body.limit)
    return {"files": [name for name, _ in texts], **told}


def _read(files: tuple[str, ...], faults: list[Fault]) -> Iterator[tuple[str, str]]:
    """(name, text) of the server's own files; one that cannot be read is a fault."""
    for name in files:
        try:
            yield name, Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            faults.append(Fault(message=f"it cannot be read: {fault}", source=Source(file=name)))
