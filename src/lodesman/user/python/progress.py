"""What `wait(progress=...)` says."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from lodesman.base.errors import InvalidRequest
from lodesman.wire.vocabulary import JobState

States = Mapping[JobState, int]
Progress = bool | Callable[[dict[JobState, int]], object]
TELL_SECONDS: Final = 2
"""How often the server is asked where progress is wanted."""
# Where lines stay, as in a file.
_LINE_SECONDS: Final = 60.0
_BAR: Final = 20
_ENDED: Final = (JobState.DONE, JobState.FAILED, JobState.KILLED, JobState.DELETED)


@contextmanager
def progress_teller(progress: Any) -> Iterator[Callable[[States], None] | None]:
    """Called with the states; None: no progress. Raises InvalidRequest."""
    if callable(progress):
        yield _Changes(progress)
    elif progress is True:
        line = ProgressLine(sys.stderr)
        try:
            yield line.show
        finally:
            line.close()
    elif not progress:
        yield None
    else:
        hint = "progress=True shows a line; a function is called with the number of jobs in each state."
        raise InvalidRequest(f"progress is {progress!r}, neither True nor a function.", hint=hint)


class _Changes:
    def __init__(self, tell: Callable[[dict[JobState, int]], object]) -> None:
        self._tell = tell
        self._last: dict[JobState, int] | None = None

    def __call__(self, states: States) -> None:
        counts = {state: count for state, count in states.items() if count}
        if counts != self._last:
            self._last = counts
            self._tell(dict(counts))


class ProgressLine:
    """In place on a terminal; elsewhere at first, at the end, and each minute if it changed."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._in_place = stream.isatty()
        self._shown, self._latest = "", ""
        self._at = float("-inf")

    def show(self, states: States) -> None:
        """These are the states now."""
        self._latest = line_of(states)
        if self._latest == self._shown:
            return
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r{self._latest[:width]}\x1b[K")
        elif self._clock() - self._at >= _LINE_SECONDS:
            self._write(f"{self._latest}\n")

    def close(self) -> None:
        """The last one stays."""
        if self._in_place and self._shown:
            self._write("\n")
        elif self._latest != self._shown:
            self._write(f"{self._latest}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
        self._shown, self._at = self._latest, self._clock()


def line_of(states: States) -> str:
    """`[####....]  120 of 500 ended: 118 Done, 2 Failed, 30 Running, 350 Waiting`."""
    total, ended = sum(states.values()), sum(states.get(state, 0) for state in _ENDED)
    done = _BAR * ended // total if total else _BAR
    order = [*_ENDED, *(state for state in JobState if state not in _ENDED)]
    words = ", ".join(f"{states[state]:,} {state}" for state in order if states.get(state))
    return f"[{'#' * done}{'.' * (_BAR - done)}]  {ended:,} of {total:,} ended{f': {words}' if words else ''}"
