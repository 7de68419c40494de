"""One JSON line per event, on standard error. No token and no job's content ever goes in."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, TextIO


class Log:
    """Writes `{"time": ..., "event": ..., facts}`; a stream that cannot be written is survived."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], **always: Any) -> None:
        self._stream = stream
        self._clock = clock
        self._always = always
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        """Write one event; `facts` are JSON values."""
        line = {"time": round(self._clock(), 3), "event": event, **self._always, **facts}
        text = json.dumps(line, default=str) + "\n"
        with self._lock:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                return  # the batch system closed it; the pilot's work goes on
