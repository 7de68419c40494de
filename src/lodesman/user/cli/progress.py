"""How long work shows its progress: a bar for people, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from lodesman.user.cli import words
from lodesman.user.cli.tables import is_terminal, note

_FIRST_SECONDS, _MOST_SECONDS, _LIFE_SECONDS = 10.0, 60.0, 600.0


class Pace:
    """When a long work says how it stands: after 10 s, then less often, at least each 600 s. A line that says nothing new
    counts only as a sign of life.
    """

    def __init__(self, now: float) -> None:
        self._last, self._rest, self._said = now, _FIRST_SECONDS, ""

    def is_due(self, now: float, words: str) -> bool:
        """Words that are due count as said."""
        silent = now - self._last
        if silent < (_LIFE_SECONDS if words == self._said else self._rest):
            return False
        self._last, self._said = now, words
        self._rest = min(2 * self._rest, _MOST_SECONDS)
        return True

    def seconds_left(self, now: float) -> float:
        """Until a change may be said."""
        return max(0.0, self._last + self._rest - now)


@contextmanager
def patience(text: str, *, seconds: float = 2.0) -> Iterator[None]:
    """Say to a person what goes on, if it lasts."""
    if not is_terminal(sys.stderr):
        yield
        return
    timer = Timer(seconds, note, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _ProgressLog:
    def __init__(self, what: str, total: int, words_of: Callable[[int], str]) -> None:
        self._what, self._total, self._words_of, self._done = what, total, words_of, 0
        self._pace = Pace(time.monotonic())

    def add(self, count: int) -> None:
        self._done += count
        line = f"{self._what}: {self._words_of(self._done)} of {self._words_of(self._total)}"
        if self._pace.is_due(time.monotonic(), line):
            note(f"{line}.")


@contextmanager
def progress(
    title: str, total: int, *, shown: bool, of_bytes: bool = False, silent: bool = False
) -> Iterator[Callable[[int], None]]:
    """Returns the function that counts: a bar for people if `shown`, else lines unless `silent`."""
    if not is_terminal(sys.stderr):
        yield (
            (lambda _: None)
            if silent
            else _ProgressLog(title, total, words.size if of_bytes else "{:,}".format).add
        )
        return
    if not shown:
        yield lambda _: None
        return
    from rich import progress as rich
    from rich.console import Console

    count = rich.DownloadColumn() if of_bytes else rich.MofNCompleteColumn()
    columns = (rich.TextColumn(title, markup=False), rich.BarColumn(), count, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
