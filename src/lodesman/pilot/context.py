"""What all parts of a pilot share: its file, its node, its log, its clocks."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, TextIO

from lodesman.client import Retry
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.pilot_file import PilotFile, PilotOptions


@dataclass(frozen=True)
class PilotContext:
    """One pilot and where it runs. `clock` gives UNIX seconds, `ticker` monotonic ones.

    `slot_ends`: when the site ends the slot (UNIX seconds), None if unknown. `adopts`: orphaned descendants of the
    pilot become its children.
    """

    pilot_file: PilotFile
    node: WorkerNode
    directory: Path
    environment: Mapping[str, str]
    log: Callable[..., Any]
    slot_ends: float | None = None
    adopts: bool = True
    rng: random.Random = field(default_factory=random.SystemRandom)
    clock: Callable[[], float] = time.time
    ticker: Callable[[], float] = time.monotonic

    @property
    def options(self) -> PilotOptions:
        """How the pilot behaves."""
        return self.pilot_file.options

    def delay(self, failures: int) -> float:
        """Seconds to wait after this number of failures in a row, with jitter."""
        return Retry().delay(failures, self.rng)


class Log:
    """Writes one JSON line per event: `{"time": ..., "event": ..., facts}`. It never gets tokens or job contents."""

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
                return  # the batch system closed the stream; the pilot goes on
