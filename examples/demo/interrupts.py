"""Ctrl-C, SIGTERM and SIGHUP as one KeyboardInterrupt, at a moment when it loses nothing."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Raises KeyboardInterrupt once, for the first signal.

    When this context ends, signals are as before, or ignored if one came, for then the program ends. A hangup that the
    caller ignores (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._held = False
        self.came = False
        self._over = False

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.came else before)

    def ignore(self) -> None:
        """From now on nothing is raised: the program is already ending."""
        self._over = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A signal that comes meanwhile is raised afterwards, so that the body is never left half done."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.came:
            self._raise()

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        if not self._held:
            self._raise()

    def _raise(self) -> None:
        if not self._over:
            self._over = True
            raise KeyboardInterrupt
