"""How commands that take long say how far they are: a bar on a terminal, a line now and then in a log or a pipe."""

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
    """A line after ten seconds, the next ones at growing distances up to a minute, each only if it says something else; and
    every ten minutes in any case, as a sign of life. Times are of one clock, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._last, self._rest, self._said = now, _FIRST_SECONDS, ""

    def is_due(self, now: float, words: str) -> bool:
        """Whether these words shall be said now: then they are taken as said."""
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
def patience(what: str, *, seconds: float = 2.0) -> Iterator[None]:
    """Say what goes on after that time, if a person waits and it is not done by then."""
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


class _Counted:
    """How much is done of a long work, as lines of a log."""

    def __init__(self, what: str, total: int, words_of: Callable[[int], str]) -> None:
        self._what, self._total, self._words_of, self._done = what, total, words_of, 0
        self._pace = Pace(time.monotonic())

    def add(self, count: int) -> None:
        """So much more is done."""
        self._done += count
        line = f"{self._what}: {self._words_of(self._done)} of {self._words_of(self._total)}"
        if self._pace.is_due(time.monotonic(), line):
            note(f"{line}.")


@contextmanager
def progress(
    what: str, total: int, *, shown: bool, of_bytes: bool = False, silent: bool = False
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, for people, if it shall be `shown`; the function adds to it. Where that is no terminal there
    is a line now and then, if it takes long and is not `silent`.
    """
    if not is_terminal(sys.stderr):
        yield (
            (lambda _: None)
            if silent
            else _Counted(what, total, words.size if of_bytes else "{:,}".format).add
        )
        return
    if not shown:
        yield lambda _: None
        return
    from rich import progress as rich
    from rich.console import Console

    count = rich.DownloadColumn() if of_bytes else rich.MofNCompleteColumn()
    columns = (rich.TextColumn(what, markup=False), rich.BarColumn(), count, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
