"""What the hot process announces to the background one: bytes on the standard input that also says whether it lives.

Words that are lost do no harm, since time wakes the loops, too. So none is kept for a process that cannot hear.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Final

from lodesman.wire.vocabulary import Waking

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


class Announcer:
    """Announces soon, and many things of a kind once; on the event loop. `process`: the background process now."""

    def __init__(self, process: Callable[[], Process | None]) -> None:
        self._process = process
        self._waiting: set[Waking] = set()

    def announce(self, what: Waking) -> None:
        """There may be work."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(_SOON_SECONDS, self._say)
        self._waiting.add(what)

    def _say(self) -> None:
        words, self._waiting = "".join(sorted(self._waiting)).encode(), set()
        process = self._process()
        if process is None or process.returncode is not None or process.stdin is None:
            return
        if not process.stdin.is_closing() and not process.stdin.transport.get_write_buffer_size():
            process.stdin.write(words)


def woken_by(words: bytes) -> set[str]:
    """The loops that what was announced wakes; what is not known wakes none."""
    return set().union(*[_WORDS.get(one, set()) for one in words])
