"""Logs as JSON lines on standard error, without secrets: only what `extra` names is added."""

from __future__ import annotations

import json
import logging
import sys

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """One JSON object a line."""

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
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_logging(process: str, level: str = "INFO") -> None:
    """Send all logs of this process to standard error."""
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(JsonLines(process))
    logging.basicConfig(level=level, handlers=[out], force=True)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
