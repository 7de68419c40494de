"""A word for people who wait longer than they thought."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from lodesman.cli.tables import is_terminal, note

SECONDS = 2.0


@contextmanager
def patience(what: str, *, seconds: float = SECONDS) -> Iterator[None]:
    """Tell `what` after so many seconds, if a person looks on and it is not done by then."""
    if not is_terminal(sys.stderr):
        yield
        return
    timer = Timer(seconds, note, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
