"""What both processes of a server do at their start: logs, the limit of open files, memory, and the policy."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Container

from lodesman.config import ServerConfig
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId

log = logging.getLogger(__name__)

# How often the configuration files are checked for changes.
CONFIG_SECONDS = 2.0
# What the limit of open files was before the server raised its own (environment): pilots and their jobs get that, since
# old programs cannot deal with more.
FILES_BEFORE = "LODESMAN_OPEN_FILES"
# Beyond this a limit is as good as none, and slows down programs that go through all numbers.
_MOST_FILES = 1 << 20
_FEW_FILES = 4_096
_GC_THRESHOLDS = (20_000, 20, 50)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """One JSON object a line, without secrets: only what `extra` names is added."""

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


def start_logging(process: str, level: str = "INFO") -> None:
    """Send all logs of this process to standard error."""
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(JsonLines(process))
    logging.basicConfig(level=level, handlers=[out], force=True)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)


def raise_open_files() -> int:
    """Raise this process's soft limit to the hard one; returns what it was before the server's first process did so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = int(os.environ.get(FILES_BEFORE) or soft)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if 0 <= soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError) as fault:
            log.warning("the limit of open files cannot be raised: %s", fault, extra={"limit": soft})
    if 0 <= soft < _FEW_FILES:
        advice = "LimitNOFILE= of systemd, or ulimit -Hn"
        log.warning("few files may be open at once", extra={"limit": soft, "advice": advice})
    return before


def policy_of(
    config: ServerConfig, *, life_seconds: int, inhabited: Callable[[], Container[QueueId]]
) -> Policy:
    """The policy of a configuration. `life_seconds` of pilots as at the start; `inhabited`: where pilots live now."""
    return Policy(
        config.resources,
        add_eligible_sites=config.submit_pools.add_eligible_sites,
        submission_pools=frozenset(config.director.pools),
        life_seconds=life_seconds,
        loaded_at=time.time(),
        inhabited=inhabited,
    )


def keep_what_was_loaded() -> None:
    """Exempt what is there now from garbage collection: a walk through all of it would stop every answer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
