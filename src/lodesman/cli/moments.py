"""Times as people write them: how long, and when."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

import click

from lodesman.cli.arguments import DURATION


def moment_of(word: str) -> float:
    """UNIX seconds of 2026-12-01, "2026-12-01 08:00", with a zone (Z, +01:00) or in local time. Raises ValueError."""
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f'{word[:60]!r} is not a moment; write "2026-12-01 08:00".') from None


def past_moment(word: str) -> float:
    """UNIX seconds of a moment, or of how long ago it was: 2h, 7d. Raises ValueError."""
    if not word.isdigit():
        with suppress(click.BadParameter):
            return time.time() - DURATION.convert(word, None, None)
    try:
        return moment_of(word)
    except ValueError:
        raise ValueError(f'{word[:60]!r} is no time; write 2h, 7d or "2026-12-01 08:00".') from None
