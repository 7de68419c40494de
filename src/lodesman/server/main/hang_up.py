"""SIGHUP, from the first moment of a server on. It imports nothing that takes time."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

log = logging.getLogger(__name__)


def heed_hang_up(end: Callable[[], None]) -> None:
    """From now on SIGHUP calls `end` if there is a terminal, which has closed then. Without one it only says that files are
    read by themselves.

    Of a server under `nohup` it is ignored, as before.
    """
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
