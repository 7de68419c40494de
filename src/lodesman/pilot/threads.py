"""Threads that stay, since a start takes longer than a short payload; and threads that are left behind."""

from __future__ import annotations

import errno
import os
import queue
import threading
from typing import Callable


class PayloadThreads:
    """Free threads take the next calls."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[str, Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0

    def run(self, name: str, call: Callable[[], None]) -> None:
        """At once. What it raises goes to `threading.excepthook`."""
        with self._lock:
            is_new = self._free == 0
            self._free -= 0 if is_new else 1
        self._calls.put((name, call))
        if is_new:
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            threading.current_thread().name, call = self._calls.get()
            call()
            with self._lock:
                self._free += 1


def run_within(seconds: float, call: Callable[[], object]) -> bool:
    """False for a call that hangs: it stays on its thread. Raises OSError if there is no thread."""
    thread = threading.Thread(target=call, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    thread.join(seconds)
    return not thread.is_alive()
