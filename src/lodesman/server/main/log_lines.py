"""The log of a process: one JSON object a line. A line that repeats is counted, and written once a minute."""

from __future__ import annotations

import copy
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_MINUTE: Final = 60.0
_FLUSH_SECONDS: Final = 5.0
# Lines that differ only in what they name: the most of them in a minute.
_MOST_ALIKE: Final = 100
_MOST_KINDS: Final = 10_000


class JsonLines(logging.Formatter):
    """One JSON object a line; of the extras only those that `extra` names."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, where, what, and the extras of the record."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _AlikeLines:
    __slots__ = ("last", "since", "unwritten", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = self.unwritten = 0
        self.last: logging.LogRecord | None = None


class SteadyHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the same line once a minute, and a hundred of those that differ only in what they name.

    The last of the others is written at the end of the minute, with their number as `repeated`.
    """

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__(sys.stderr)
        self._ticks = ticks
        self._kinds: dict[object, _AlikeLines] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count one line, without a fault for who logs. The caller holds the lock."""
        try:
            takes = self._counts(record)
        except Exception:  # it cannot be put into words
            self.handleError(record)
        else:
            if takes:
                super().emit(record)

    def _counts(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[0] if record.exc_info else None
        alike = (record.name, record.levelno, str(record.msg), fault)
        extras = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        same = (*alike, record.getMessage(), repr(extras))
        return self._takes(same, 1, record) and self._takes(alike, _MOST_ALIKE, record)

    def write_counted(self, *, begun_before: float) -> None:
        """Write what was left out since a time by `ticks`, and count anew."""
        self.acquire()
        try:
            over = [key for key, kind in self._kinds.items() if kind.since <= begun_before]
            for kind in map(self._kinds.pop, over):
                if kind.last is not None:
                    kind.last.repeated = kind.unwritten
                    super().emit(kind.last)
        finally:
            self.release()

    def close(self) -> None:
        """Write what is left."""
        self.write_counted(begun_before=self._ticks())
        super().close()

    def _takes(self, key: object, most: int, record: logging.LogRecord) -> bool:
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                return True
            kind = self._kinds[key] = _AlikeLines(self._ticks())
        if kind.written < most:
            kind.written += 1
            return True
        kind.unwritten += 1
        kind.last = copy.copy(record)
        kind.last.exc_info = None  # it would keep what the frames hold
        return False


def start_logging(process: str, level: str = "INFO") -> None:
    """Send all logs of this process to standard error."""
    out = SteadyHandler()
    out.setFormatter(JsonLines(process))
    logging.basicConfig(level=level, handlers=[out], force=True)
    threading.Thread(target=_write_counted, args=(out,), name="log", daemon=True).start()


def _write_counted(out: SteadyHandler) -> None:
    while True:
        time.sleep(_FLUSH_SECONDS)
        out.write_counted(begun_before=time.monotonic() - _MINUTE)
