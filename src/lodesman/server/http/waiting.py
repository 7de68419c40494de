"""Waiting for jobs: a long poll, and a stream of changes (ADR 0065)."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

from lodesman.base.errors import InvalidRequest, LodesmanError, Unavailable
from lodesman.languages.jobs.watches import JobWatch
from lodesman.server.http.auth import may_touch
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import Receive, Response, Scope, Send, unless_gone
from lodesman.server.live.core import Core
from lodesman.server.live.principals import reads_as
from lodesman.server.live.waits import Waits, ending, event
from lodesman.server.writer.control import join_ranges
from lodesman.wire import calls
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.waiting import MOST_RANGES, EventsQuery, JobStates, StreamEnded, Waited, WaitQuery

_PART = re.compile(r"([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15}))?")
# A stream that so many events wait for is too slow: they are dropped.
_MOST_EVENTS: Final = 1_000
_QUIET_SECONDS: Final = 15.0
# Then the client asks anew, and its rights are looked at again.
_LONGEST_STREAM_SECONDS: Final = 3_600.0
_STREAM: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


def wanted_jobs(text: str) -> tuple[range, ...]:
    """The ids that a query names, ascending. Raises InvalidRequest."""
    words = text.split(",")
    if len(words) > MOST_RANGES:
        raise InvalidRequest(f"jobs has {len(words):,} ranges; the maximum number is {MOST_RANGES:,}.")
    ranges = []
    for word in words:
        match = _PART.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InvalidRequest(
                "jobs must be numbers and ranges with commas between: 12,15,20-22.", parameter="jobs"
            )
        ranges.append((first, last))
    return join_ranges(ranges)


@serves(calls.WAIT)
async def _wait(core: Core, request: Request[WaitQuery, Nothing]) -> Waited:
    async with core.principals.held(request.who):
        return await _until_over(core, request)


async def _until_over(core: Core, request: Request[WaitQuery, Nothing]) -> Waited:
    query, waits = request.query, core.waits
    ranges, may = wanted_jobs(query.jobs), may_touch(request.who, core.policy.sharing_groups())
    with waits.place(request.who.name):
        watch = await waits.watch(ranges, may, reads_as(request.who))
        with waits.using(watch, request.who.name):
            until = waits.until(watch, first=query.any, held=query.held, seconds=query.seconds)
            await unless_gone(request.receive, until)
            await waits.settled(watch)
            over = watch.is_over(first=query.any, held=query.held)
            if waits.closed and not over:
                raise ending()
            return await _waited(waits, watch, query, over=over)


async def _waited(waits: Waits, watch: JobWatch, query: WaitQuery, *, over: bool) -> Waited:
    left, states, unknown = watch.left, watch.shown(), watch.unknown
    if not over:
        return Waited(over, left, states, unknown)
    ends = await waits.ends(watch, query.limit)
    some, more = ends.jobs[: query.limit], len(ends.jobs) > query.limit
    return Waited(over, left, states, unknown, ends.failed, some, more)


@serves(calls.EVENTS)
async def _events(core: Core, request: Request[EventsQuery, Nothing]) -> Response:
    waits = core.waits
    ranges, may = wanted_jobs(request.query.jobs), may_touch(request.who, core.policy.sharing_groups())
    unshared = core.principals.unshared
    with waits.place(request.who.name, stream=True):
        watch = await waits.watch(ranges, may, reads_as(request.who))
    return _EventStream(core, watch, request.who, unshared)


class _EventStream(Response):
    """Events wait here while the client is slow."""

    def __init__(self, core: Core, watch: JobWatch, who: Principal, unshared: int) -> None:
        self._principals, self._unshared = core.principals, unshared
        self._waits, self._watch, self._name = core.waits, watch, who.name
        self._allowed = core.principals.held(who)
        self._queue: deque[bytes] = deque()
        self._is_behind = False
        self._news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the client goes, may see less than before, or the server ends."""
        waits, watch, last = self._waits, self._watch, b""
        with (
            waits.place(self._name, stream=True), waits.using(watch, self._name), waits.streaming(watch, self._push),
        ):  # fmt: skip
            await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM)})
            try:
                async with self._allowed, asyncio.timeout(_LONGEST_STREAM_SECONDS):
                    if self._principals.unshared != self._unshared:  # while its jobs were looked up
                        raise Unavailable("Something is shared no more meanwhile.", hint="Ask again.")
                    await unless_gone(receive, self._send_all(send))
            except TimeoutError:
                pass  # the client asks again
            except LodesmanError as fault:
                last = event("end", StreamEnded(fault.code, fault.message, fault.hint))
            await send({"type": "http.response.body", "body": last})

    def _push(self, events: list[bytes] | None) -> None:
        if events is None or len(self._queue) + len(events) > _MOST_EVENTS:
            self._queue.clear()
            self._is_behind = True
        elif not self._is_behind:
            self._queue.extend(events)
        self._news.set()

    def _standing(self, name: str) -> bytes:
        self._is_behind = False
        self._queue.clear()
        watch = self._watch
        return event(name, JobStates(watch.shown(), watch.left, watch.unknown))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._standing("states"), "more_body": True})
        while not self._waits.closed:
            self._news.clear()
            if self._is_behind:
                await self._waits.settled(self._watch)
                body = self._standing("resync")
            elif self._queue:
                body = b"".join(self._queue)
                self._queue.clear()
            else:
                body = await self._rest()
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _rest(self) -> bytes:
        """Until there are news; a comment keeps the connection alive."""
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return b":\n\n"
        return b""
