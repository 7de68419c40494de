"""How many files a process may have open: each connection of a pilot is one, and each file on its way to it."""

from __future__ import annotations

import logging
import os
import resource

log = logging.getLogger(__name__)

# Beyond this a limit is as good as none, and slows down programs that go through all numbers.
MOST = 1 << 20
FEW = 4_096
# What the limit was before the server raised its own: pilots and their jobs get that, since old programs cannot deal
# with more.
BEFORE = "LODESMAN_OPEN_FILES"


def raise_open_files() -> int:
    """Raise this process's soft limit to the hard one; returns what it was before the server's first process did so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = int(os.environ.get(BEFORE) or soft)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if 0 <= soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError) as fault:
            log.warning("the limit of open files cannot be raised: %s", fault, extra={"limit": soft})
    if 0 <= soft < FEW:
        advice = "LimitNOFILE= of systemd, or ulimit -Hn"
        log.warning("few files may be open at once", extra={"limit": soft, "advice": advice})
    return before
