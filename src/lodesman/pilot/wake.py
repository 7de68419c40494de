"""A bell for the main thread that a signal handler may ring.

An Event would not do: its lock may be held by the very code that the signal interrupts.
"""

from __future__ import annotations

import os
import select


class Wake:
    """`ring` from anywhere ends the `wait` under way, or the next one."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        """End a wait."""
        try:
            os.write(self._writer, b"x")
        except BlockingIOError:
            return  # it rings already

    def wait(self, timeout: float) -> None:
        """Wait for the bell, at most `timeout` seconds."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        if poll.poll(max(0.0, timeout) * 1000):
            os.read(self._reader, 4096)
