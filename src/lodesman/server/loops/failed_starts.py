"""Pilots that do not start: counted by queue and cause, said in the log without flooding it, and what they said last."""

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

NoteStart = Callable[[QueueId, StartFault | None, str], None]
"""Learns what a start of a pilot in a queue came to: None is good; a fault, with its reason in words."""
_MINUTE: Final = 60.0
_MOST_WORDS: Final = 300


@dataclass(slots=True)
class _Lately:
    """Starts of one queue that failed for one cause, since a time by the clock of their counter."""

    since: float
    unwritten: int = 0
    reason: str = ""


@dataclass(slots=True)
class FailedStarts:
    """Counts them. The first of a queue and cause is written at once, the others once a minute with their number. Any thread
    may note one.
    """

    ticks: Callable[[], float] = time.monotonic
    counts: Counter[tuple[QueueId, StartFault]] = field(init=False, default_factory=Counter)
    _lately: dict[tuple[QueueId, StartFault], _Lately] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def note(self, queue: QueueId, fault: StartFault | None, reason: str) -> None:
        """What a start came to."""
        if fault is None:
            return
        with self._lock:
            self.counts[queue, fault] += 1
            known = self._lately.get((queue, fault))
            if known is not None:
                known.unwritten, known.reason = known.unwritten + 1, reason
                return
            self._lately[queue, fault] = _Lately(self.ticks())
        log.warning(
            "a pilot did not start", extra={"queue": str(queue), "cause": fault.value, "reason": reason}
        )

    def write_counted(self) -> int:
        """Write those of a minute that is over; returns how many lines."""
        with self._lock:
            over = [(key, one) for key, one in self._lately.items() if self.ticks() - one.since >= _MINUTE]
            for key, one in over:
                if one.unwritten:  # the next minute begins now
                    self._lately[key] = _Lately(self.ticks())
                else:
                    del self._lately[key]
        lines = [(key, one) for key, one in over if one.unwritten]
        for (queue, fault), one in lines:
            facts = {"queue": str(queue), "cause": fault.value, "reason": one.reason}
            log.warning(
                "more pilots did not start in the last minute", extra={"pilots": one.unwritten, **facts}
            )
        return len(lines)


def last_words(output: bytes) -> str:
    """What a pilot said last, from the end of its output: its own report of a fault, else its last line; '' if nothing."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    reported = [fault for fault in map(_reported, lines) if fault]
    words = reported[-1] if reported else next((one for one in reversed(lines) if one[:1] != "{"), "")
    printable = "".join(one if one.isprintable() else " " for one in words)
    return printable if len(printable) <= _MOST_WORDS else f"{printable[:_MOST_WORDS]}..."


def _reported(line: str) -> str:
    """The fault in a line of a pilot's own log (`pilot.context.Log`)."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    fault = found.get("fault") if isinstance(found, dict) else None
    return fault if isinstance(fault, str) else ""
