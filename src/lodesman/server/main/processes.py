"""The two processes beside each other: the hot one starts, wakes and ends the background one, which calls it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from lodesman.server.main.process import FILES_BEFORE
from lodesman.wire.call import Call, Nothing, encode
from lodesman.wire.client import Client, ServerAddress
from lodesman.wire.vocabulary import Waking

log = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")

RESTART_SECONDS: Final = 1.0
_MOST_RESTART_SECONDS: Final = 15.0
_LONG_LIFE_SECONDS: Final = 30.0
# Thousands of submissions a second are one word.
_SOON_SECONDS: Final = 0.1
# The loops that have work then. Refreshes: SubmitPools may ask for something in the ads of sites.
_WAKES: Final = {
    Waking.JOBS: {"director", "configuration"},
    Waking.AD: {"director", "configuration"},
    Waking.PILOT_ENDED: {"director"},
    Waking.SHARES: {"director", "configuration"},
}
_WORDS: Final = {ord(one.value): loops for one, loops in _WAKES.items()}


class BackgroundChild:
    """The background process, as the hot one has it; on the event loop."""

    def __init__(
        self, arguments: Sequence[str], kept: Path, *, open_files: int, at_end: Callable[[], None],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`arguments` and `kept` lead it to the configuration. `open_files`: the limit before it was raised. `at_end`
        is called when it ends by itself.
        """
        self._arguments = ("background", "--kept", str(kept), *arguments)
        self._environment = {FILES_BEFORE: str(open_files)}
        self._at_end = at_end
        self._ticks = ticks
        self._process: Process | None = None
        self._rest = 0.0
        self._ending = False
        self.announce = Announcer(lambda: self._process).announce

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def keep_background(self) -> None:
        """Run it until it ends, and rest before the next time."""
        begun = self._ticks()
        try:
            self._process = await create_subprocess_exec(
                sys.executable, "-P", "-m", "lodesman.server.main", *self._arguments,
                stdin=PIPE, env={**os.environ, **self._environment},
            )  # fmt: skip
        except OSError as fault:
            log.error("the background process cannot be started yet: %s", fault)  # noqa: TRY400 - no bug
            await asyncio.sleep(RESTART_SECONDS)
            return
        code = await self._process.wait()
        if not self._ending:
            self._at_end()
            self._rest = next_rest(self._rest, lived=self._ticks() - begun)
            log.error(
                "the background process ended and is started again",
                extra={"exit_code": code, "in_seconds": self._rest},
            )
            await asyncio.sleep(self._rest)

    async def end(self, order: signal.Signals, *, seconds: float) -> int | None:
        """End it, by force after `seconds`; its exit code, None if there was none."""
        self._ending = True
        process = self._process
        if process is None or process.returncode is not None:
            return None if process is None else process.returncode
        process.send_signal(order)
        try:
            async with asyncio.timeout(seconds):
                return await process.wait()
        except TimeoutError:
            process.kill()
            return await process.wait()


def next_rest(rest: float, *, lived: float) -> float:
    """Seconds to the next start of a process that ran for `lived` seconds; `rest`: the last such time."""
    if lived > _LONG_LIFE_SECONDS:
        return RESTART_SECONDS
    return min(max(RESTART_SECONDS, 2 * rest), _MOST_RESTART_SECONDS)


class HotCalls:
    """Calls of the hot process, on a connection of each thread."""

    def __init__(self, socket: str, token: str) -> None:
        self._address, self._token = ServerAddress(False, socket, 0), token
        self._of_thread = threading.local()

    def post(self, call: Call[Nothing, B, A], body: B) -> A:
        """Raises LodesmanError."""
        if not hasattr(self._of_thread, "client"):
            self._of_thread.client = Client([self._address], self._token)
        raw = encode(body) if call.has_body else None
        return call.read(self._of_thread.client.fetch(call.method, call.path, raw))


# --- wakings: bytes on the standard input of the background process, whose end is the end of the hot one ---------


class Announcer:
    """Announces what may bring work, soon and once of a kind."""

    def __init__(self, process: Callable[[], Process | None]) -> None:
        self._process = process
        self._waiting: set[Waking] = set()

    def announce(self, waking: Waking) -> None:
        """There may be work."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(_SOON_SECONDS, self._say)
        self._waiting.add(waking)

    def _say(self) -> None:
        words, self._waiting = "".join(sorted(self._waiting)).encode(), set()
        process = self._process()
        if process is None or process.returncode is not None or process.stdin is None:
            return
        if not process.stdin.is_closing() and not process.stdin.transport.get_write_buffer_size():
            process.stdin.write(words)


def woken_by(words: bytes) -> set[str]:
    """The loops that wake for these words; unknown ones wake none."""
    return set().union(*[_WORDS.get(word, set()) for word in words])
