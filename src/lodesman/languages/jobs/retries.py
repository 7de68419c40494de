"""Retries: after which ends a payload is tried again, and with how much memory."""

from __future__ import annotations

import re
from math import ceil
from typing import Any, Final

import msgspec
from msgspec import Struct

from lodesman.languages.jobs.parents import split_items
from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.spec import JobSpec
from lodesman.languages.jobs.values import Mistake, whole

MEMORY: Final = "memory-limit"
PAYLOAD_CAUSES: Final = frozenset(
    {"exit", "signal", "cpu-limit", "wall-limit", MEMORY, "output-limit", "not-started"}
)
"""A payload failed by itself: tried again only if the job asks."""
_CODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\Z")
_CODE = whole(1, 255)
_MOST: Final = 100


class RetryRule(Struct, frozen=True, omit_defaults=True):
    """After which ends a job is tried again."""

    on: tuple[str, ...] = ()  # Causes, exit codes and ranges of them.
    memory_factor: float = 1.0  # By what its memory grows.

    def covers(self, cause: str, exit_code: int | None) -> bool:
        """Whether another attempt follows."""
        if cause in self.on:
            return True
        code = exit_code if cause == "exit" else None
        return code is not None and any(code in _codes(item) for item in self.on)

    def more_memory(self, memory_mb: int, used_mb: float | None, most_mb: int) -> int:
        """MB for the attempt after one that ended for its memory; at most `most_mb` (0: no limit).

        A job that declared nothing grows from what it used.
        """
        grown_mb = ceil((memory_mb or used_mb or 0) * self.memory_factor)
        return min(grown_mb, most_mb or grown_mb, 1 << 30)


def read_retry_causes(value: Any) -> tuple[str, ...]:
    """Causes, exit codes (75) and ranges of them ("64-78")."""
    return tuple(map(_cause, split_items(value, _MOST)))


def _cause(item: Any) -> str:
    if isinstance(item, str) and item in PAYLOAD_CAUSES:
        return item
    codes = _codes(item) if isinstance(item, str) else None
    if isinstance(item, str) and not codes:
        raise Mistake(f"has {shown(item)!r}, which is neither a cause nor an exit code from 1 to 255")
    return str(item) if codes else str(_CODE(item))


def _codes(text: str) -> range:
    match = _CODES.match(text)
    if match is None:
        return range(0)
    first, last = int(match[1]), int(match[2] or match[1])
    return range(first, last + 1) if 1 <= first <= last <= 255 else range(0)


def retry_text(spec: JobSpec) -> str | None:
    """What is stored, None without retries. A job whose memory grows is tried again for it."""
    on, grows = spec.retry_on, spec.retry_memory_factor > 1.0
    if grows and MEMORY not in on:
        on = (*on, MEMORY)
    return msgspec.json.encode(RetryRule(on, spec.retry_memory_factor)).decode() if on else None


def read_retry(text: str | None) -> RetryRule:
    """The inverse of `retry_text`."""
    return msgspec.json.decode(text, type=RetryRule) if text else RetryRule()
