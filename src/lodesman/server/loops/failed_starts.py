"""Pilots that do not start: counted, logged without a flood, and what they said last."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lodesman.decide.resources import QueueId
from lodesman.wire.vocabulary import StartFault

log = logging.getLogger(__name__)

# Learns what a start of a pilot in a queue came to: None is good; a fault has its reason in words.
NoteStart = Callable[[QueueId, StartFault | None, str], None]
_MINUTE: Final = 60.0
_MOST_WORDS: Final = 300


@dataclass(slots=True)
class _FailureCount:
    since: float  # by the clock of the counter
    unwritten: int = 0
    reason: str = ""


@dataclass(slots=True)
class FailedStarts:
    """Logs the first failed start of a queue and cause at once, the others as a number a minute."""

    ticks: Callable[[], float] = time.monotonic
    counts: Counter[tuple[QueueId, StartFault]] = field(init=False, default_factory=Counter)
    _lately: dict[tuple[QueueId, StartFault], _FailureCount] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def note(self, queue: QueueId, fault: StartFault | None, reason: str) -> None:
        """Count a start that failed. Any thread may call this."""
        if fault is None:
            return
        with self._lock:
            self.counts[queue, fault] += 1
            lately = self._lately.get((queue, fault))
            if lately is not None:
                lately.unwritten, lately.reason = lately.unwritten + 1, reason
                return
            self._lately[queue, fault] = _FailureCount(self.ticks())
        log.warning(
            "a pilot did not start", extra={"queue": str(queue), "cause": fault.value, "reason": reason}
        )

    def write_counted(self) -> int:
        """Log the minutes that are over; returns how many lines."""
        with self._lock:
            over = [
                (key, lately)
                for key, lately in self._lately.items()
                if self.ticks() - lately.since >= _MINUTE
            ]
            for key, lately in over:
                if lately.unwritten:  # the next minute begins now
                    self._lately[key] = _FailureCount(self.ticks())
                else:
                    del self._lately[key]
        lines = [(key, lately) for key, lately in over if lately.unwritten]
        for (queue, fault), lately in lines:
            facts = {"queue": str(queue), "cause": fault.value, "reason": lately.reason}
            log.warning(
                "more pilots did not start in the last minute", extra={"pilots": lately.unwritten, **facts}
            )
        return len(lines)


def last_words(output: bytes) -> str:
    """Its own report of a fault, else its last line, else ''."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    reported = [fault for fault in map(_reported, lines) if fault]
    words = reported[-1] if reported else next((line for line in reversed(lines) if line[:1] != "{"), "")
    printable = "".join(char if char.isprintable() else " " for char in words)
    return printable if len(printable) <= _MOST_WORDS else f"{printable[:_MOST_WORDS]}..."


def _reported(line: str) -> str:
    """The fault in a line of a pilot's own log (`pilot.context.Log`)."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    fault = entry.get("fault") if isinstance(entry, dict) else None
    return fault if isinstance(fault, str) else ""
