"""Ends pilots that have been told to end, in steps: wait, have their keepers kill them, kill all oneself."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence

from lodesman.batch.keeper import KILL_ORDER, Process, read_process, signal_process
from lodesman.batch.pilot_directory import PilotDirectory
from lodesman.batch.sweep import sweep

# A keeper that was just started has not written its record yet: look again after this time.
_LOOK_AGAIN_SECONDS = 0.02
_HUNT_SECONDS = 5.0


def stop_kept(
    directories: Sequence[PilotDirectory], *, grace_seconds: float, deadline_seconds: float
) -> list[PilotDirectory]:
    """Until none of these is kept; those that still are, `deadline_seconds` from now and a hunt later."""
    begin = time.monotonic()
    left = wait_until_free(directories, begin + grace_seconds)
    for directory in left:
        for process in directory.processes()[:1]:
            signal_process(process, KILL_ORDER)
    left = wait_until_free(left, begin + deadline_seconds)
    if left:
        roots = [process.pid for directory in left for process in directory.processes()]
        cgroups = [str(cgroup) for directory in left if (cgroup := directory.record().get("cgroup"))]
        paths = {directory.stamp: directory.path for directory in left}
        sweep(paths, cgroups=cgroups, roots=roots, patience=_HUNT_SECONDS)
    return wait_until_free(left, time.monotonic() + 1.0)


def wait_until_free(directories: Sequence[PilotDirectory], until: float) -> list[PilotDirectory]:
    """Wait for the ends of the keepers and guards; those that are still kept at `until` (monotonic)."""
    left = list(directories)
    while True:
        left = [directory for directory in left if directory.kept()]
        rest = until - time.monotonic()
        if not left or rest <= 0:
            return left
        families = [directory.processes() for directory in left]
        processes = [process for family in families for process in family]
        _wait_for_any(processes, rest if all(families) else min(rest, _LOOK_AGAIN_SECONDS))


def _wait_for_any(processes: Sequence[Process], seconds: float) -> None:
    """Until one of these processes has ended."""
    poll = select.poll()
    with contextlib.ExitStack() as stack:
        for process in processes:
            try:
                handle = os.pidfd_open(process.pid)
            except ProcessLookupError:
                return
            stack.callback(os.close, handle)
            now = read_process(process.pid)
            if now is None or now.start != process.start:
                return
            poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
