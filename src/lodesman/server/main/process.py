"""What a process of the server asks of its system. Quick to import."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
from collections.abc import Callable

from lodesman.base import kernel
from lodesman.base.errors import Unavailable

log = logging.getLogger(__name__)

# What the limit of open files was before the server raised its own (environment): pilots and their jobs get that, since
# old programs cannot deal with more.
FILES_BEFORE = "LODESMAN_OPEN_FILES"
# Beyond this a limit is as good as none, and slows down programs that go through all numbers.
_MOST_FILES = 1 << 20
_FEW_FILES = 4_096
# Of the limits without which the faults have other names, the least: the words, and where it is set.
_LEAST = {
    resource.RLIMIT_NOFILE: (
        64,
        "Only {} files may be open at once",
        "LimitNOFILE= of systemd, or ulimit -n",
    ),
    resource.RLIMIT_FSIZE: (1 << 30, "A file may have only {} bytes", "LimitFSIZE= of systemd, or ulimit -f"),
}
# The name of a setting for glibc's `mallopt`, and from how many bytes a block is given back.
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK = 1 << 18
# The second: a walk through young objects is short. The third: one through all of them is as rare as they are many.
_GC_THRESHOLDS = (20_000, 5, 200)


def heed_hang_up(end: Callable[[], None]) -> None:
    """Let SIGHUP call `end` if there is a terminal, which has closed then, else only log. Under `nohup` it stays ignored."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        has_terminal = _has_terminal()
        signal.signal(signal.SIGHUP, lambda *_: end() if has_terminal else _note())


def interrupt() -> None:
    """End as by Ctrl-C, also where that is ignored."""
    raise KeyboardInterrupt


def _note() -> None:
    log.info("SIGHUP: changed files of the configuration are read by themselves; see: lode config status")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def raise_open_files() -> int:
    """Raise the soft limit to the hard one; returns what it was before the first process did so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = int(os.environ.get(FILES_BEFORE) or soft)
    raised = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if 0 <= soft < raised:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (ValueError, OSError) as fault:
            log.warning("the limit of open files cannot be raised: %s", fault, extra={"limit": soft})
    if 0 <= soft < _FEW_FILES:
        advice = "LimitNOFILE= of systemd, or ulimit -Hn"
        log.warning("few files may be open at once", extra={"limit": soft, "advice": advice})
    return before


def check_limits() -> None:
    """Raises Unavailable for a limit with which no server comes far."""
    for limit, (least, words, setting) in _LEAST.items():
        soft, _ = resource.getrlimit(limit)
        if 0 <= soft < least:
            raise Unavailable(
                f"{words.format(soft)}; a server needs {least}.", hint=f"Raise the limit: {setting}."
            )


def hide_process() -> None:
    """Keep other processes of this account out of the memory and the descriptors of this one."""
    kernel.set_attribute(kernel.DUMPABLE, 0)


def keep_what_was_loaded() -> None:
    """Exempt what is there from garbage collection, which would stop every answer, and give large blocks back at once."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
