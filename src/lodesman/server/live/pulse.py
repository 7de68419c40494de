"""Whether the background process answers (ADR 0068).

A request that waits half a second asks for a sign of life. An idle process has a second, a busy one longer; a mute
one refuses all until it gives a sign.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar

from lodesman.base.errors import Unavailable
from lodesman.base.processes import read_process
from lodesman.decide.explain.verdict import span
from lodesman.wire.server import BackgroundStatus
from lodesman.wire.service import BackgroundState

log = logging.getLogger(__name__)

_A = TypeVar("_A")

# The background process reports every 5 seconds. The first report may take longer: it has much to read.
_SILENT_SECONDS: Final = 30.0
_START_SECONDS: Final = 120.0
# A process that ended so often within that time is started again in vain.
_MANY_RESTARTS: Final = 3
_RESTARTS_WITHIN: Final = 900.0
# A request that comes while the process starts waits that long for its socket.
_SOCKET_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_FIRST_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 5.0
_SIGN_SECONDS: Final = 1.2
_BUSY_SECONDS: Final = 15.0
# One that is known to be silent has less: a request that comes then is refused at once.
_SILENT_SIGN_SECONDS: Final = 0.2
_ASKS: Final = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
# The states in which the kernel has it wait for a CPU or a disk.
_BUSY_STATES: Final = frozenset("RD")


def work_of(pid: int) -> tuple[str, int] | None:
    """The state of its first thread, and the CPU ticks of all; None if it is gone."""
    process = read_process(pid)
    return process and (process.state, process.own_ticks)


@dataclass(slots=True)
class BackgroundHealth:
    """What the background process reports. Belongs to the event loop."""

    at: float  # when it reported last; before the first report, since when that is awaited
    has_reported: bool = False
    said: BackgroundState = field(default_factory=lambda: BackgroundState({}))
    restarts: int = 0
    mute: bool = False  # it gives no sign of life
    _ended_at: deque[float] = field(default_factory=lambda: deque(maxlen=_MANY_RESTARTS))

    def reported(self, ticks: float, said: BackgroundState) -> None:
        """It lives, and says how its steps are."""
        self.at, self.has_reported, self.said = ticks, True, said

    def ended(self, ticks: float) -> None:
        """It will be started again."""
        self.restarts, self.mute = self.restarts + 1, False
        self._ended_at.append(ticks)

    def standing(self, ticks: float) -> Literal["ok", "starting", "failing", "restarting", "silent"]:
        """Failing: some of its steps; restarting: again and again."""
        if self.mute or ticks - self.at > (_SILENT_SECONDS if self.has_reported else _START_SECONDS):
            return "silent"
        if len(self._ended_at) == _MANY_RESTARTS and ticks - self._ended_at[0] < _RESTARTS_WITHIN:
            return "restarting"
        if not self.has_reported:
            return "starting"
        return "failing" if self.said.failing else "ok"

    def is_well(self, ticks: float) -> bool:
        """Whether it works or starts."""
        return self.standing(ticks) in ("ok", "starting")

    def answer(self, ticks: float) -> BackgroundStatus:
        """Without the faults: those are for the log."""
        age = ticks - self.at if self.has_reported else None
        return BackgroundStatus(self.standing(ticks), age, self.restarts, sorted(self.said.failing))


@dataclass(slots=True, eq=False)
class Pulse:
    """The background process behind its socket. Belongs to the event loop."""

    socket: str | Path
    health: BackgroundHealth
    ticks: Callable[[], float]
    pid: Callable[[], int | None] = lambda: None  # None: there is no process
    work: Callable[[int], tuple[str, int] | None] = work_of
    _asking: asyncio.Task[bool] | None = field(init=False, default=None)
    _was_silent: bool = field(init=False, default=False)

    async def connect(self, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection, waited for while the process starts. Raises OSError."""
        end = self.ticks() + _SOCKET_SECONDS
        while True:
            try:
                return await asyncio.open_unix_connection(str(self.socket), limit=limit)
            except OSError:
                ticks = self.ticks()
                if self.pid() is None or ticks >= end or self.health.standing(ticks) == "restarting":
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def watch(self, answer: Awaitable[_A]) -> _A:
        """Raises Unavailable as soon as no answer can come, and what `answer` raises."""
        waits = asyncio.ensure_future(answer)
        try:
            patience = 0.0 if self.health.mute else _FIRST_SECONDS
            while not (await asyncio.wait({waits}, timeout=patience))[0]:
                if not await self._gives_sign() and not waits.done():
                    raise self._refusal()
                patience = _AGAIN_SECONDS
            return waits.result()
        finally:
            waits.cancel()

    async def look(self) -> None:
        """Log that the process fell silent, or is heard again."""
        if self.health.mute:
            await self._gives_sign()
        self._say()

    def _say(self) -> None:
        ticks = self.ticks()
        silent = self.health.standing(ticks) == "silent"
        if silent and not self._was_silent:
            facts = {"pid": self.pid(), "seconds": round(ticks - self.health.at)}
            log.error(
                "the background process is silent: no lists, outputs, metrics, no new pilots", extra=facts
            )
        elif self._was_silent and not silent:
            log.warning("the background process is heard again")
        self._was_silent = silent

    async def _gives_sign(self) -> bool:
        """Whether it lives; all that wait share one question."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        sign = asyncio.ensure_future(self._sign())
        pid, begun = self.pid(), self.ticks()
        try:
            patience, before = _SILENT_SIGN_SECONDS if self.health.mute else _SIGN_SECONDS, self._work(pid)
            while not (await asyncio.wait({sign}, timeout=patience))[0]:
                now = self._work(pid)
                is_idle = now is None or (now == before and now[0] not in _BUSY_STATES)
                if is_idle or self.health.mute or self.ticks() - begun > _BUSY_SECONDS:
                    break
                before = now
            self.health.mute = not (sign.done() and sign.result())
        finally:
            sign.cancel()
        self._say()
        return not self.health.mute

    async def _sign(self) -> bool:
        """A socket that is gone counts: the request finds out by itself."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.socket))
        except OSError:
            return True
        try:
            writer.write(_ASKS)
            await reader.read(1)
        except OSError:
            pass
        finally:
            writer.close()
        return True

    def _work(self, pid: int | None) -> tuple[str, int] | None:
        return None if pid is None else self.work(pid)

    def _refusal(self) -> Unavailable:
        seconds, pid = self.ticks() - self.health.at, self.pid()
        which = "" if pid is None else f" {pid}"
        return Unavailable(
            f"The server is up, but its background process{which} does not answer: it has been silent for {span(seconds)}. "
            "Jobs run, and those without files are accepted; files, lists, explanations, outputs and new pilots wait.",
            hint=f"The administrator of the server can end it (kill -9{which}): the server starts it again.",
            silent_seconds=round(seconds, 1),
        )
