"""Ends pilots in steps, and kills what they left behind when their keeper and its guard were both killed.

Normally nothing is left: the keeper ends after the last process of its tree. A left-over process is known by the
mark that the backend puts in a pilot's environment, or by a working directory inside the pilot's own (a
payload may have a clean environment); their descendants go with them. Never this process or its ancestors,
and never by directory alone a process with a terminal: a person may be reading the files.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lodesman.batch.keeper import (
    KILL_ORDER,
    Process,
    descendants,
    kill_cgroup,
    kill_family,
    process_table,
    read_process,
    remove_cgroup,
    signal_process,
)
from lodesman.batch.pilot_directory import PilotDirectory

MARK = "LODESMAN_STAMP"
# A keeper that was just started has not written its record yet: check again after this time.
_CHECK_AGAIN_SECONDS = 0.02
_SWEEP_SECONDS = 5.0


def stop_kept(pilots: Sequence[PilotDirectory], *, grace_seconds: float, deadline_seconds: float) -> None:
    """Wait until none of these pilots is kept; kill them after `grace_seconds`, and all of them after the deadline."""
    begin = time.monotonic()
    left = _wait_until_free(pilots, begin + grace_seconds)
    for pilot in left:
        for process in pilot.processes()[:1]:
            signal_process(process, KILL_ORDER)
    left = _wait_until_free(left, begin + deadline_seconds)
    if left:
        roots = [process.pid for pilot in left for process in pilot.processes()]
        sweep(left, roots=roots, timeout=_SWEEP_SECONDS)
    _wait_until_free(left, time.monotonic() + 1.0)


def sweep(pilots: Sequence[PilotDirectory], *, roots: Collection[int] = (), timeout: float) -> set[str]:
    """Kill all that is left of these pilots; the stamps of those that are not gone after `timeout` seconds.

    `roots` are processes whose descendants go too, whatever mark they carry.
    """
    paths = {pilot.stamp: pilot.path for pilot in pilots}
    cgroups = [cgroup for pilot in pilots if (cgroup := pilot.record().get("cgroup"))]

    def find() -> list[Process]:
        table = process_table()
        tops = [pid for pid in {*roots, *marked(paths, table)} if pid in table]
        return [table[pid] for pid in tops] + descendants(table, tops)

    for cgroup in cgroups:
        kill_cgroup(cgroup)
    # Twice: the first pass may have missed a process that forked behind it.
    if kill_family(find, timeout) or kill_family(find, timeout):
        return set(marked(paths, process_table()).values()) or set(paths)
    for cgroup in cgroups:
        remove_cgroup(cgroup)
    return set()


def marked(paths: Mapping[str, Path], table: Mapping[int, Process]) -> dict[int, str]:
    """Number -> stamp of the processes that carry a mark of these pilots (stamp -> directory)."""
    spared = set(_lineage(os.getpid(), table))
    stamps = {pid: _stamp_of(process, paths) for pid, process in table.items() if pid not in spared}
    return {pid: stamp for pid, stamp in stamps.items() if stamp is not None}


def _lineage(pid: int, table: Mapping[int, Process]) -> Iterator[int]:
    while pid in table:
        yield pid
        pid = table[pid].parent


def _stamp_of(process: Process, paths: Mapping[str, Path]) -> str | None:
    """The pilot that this process belongs to; None for processes that are gone or another user's."""
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        place = Path(f"/proc/{process.pid}/cwd").readlink()
    except OSError:
        return None
    for variable in environment.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == MARK.encode() and (stamp := os.fsdecode(value)) in paths:
            return stamp
    if process.tty:
        return None
    return next((stamp for stamp, path in paths.items() if place.is_relative_to(path)), None)


def _wait_until_free(pilots: Sequence[PilotDirectory], until: float) -> list[PilotDirectory]:
    """Wait for the ends of the keepers and guards; the pilots that are still kept at `until` (monotonic)."""
    left = list(pilots)
    while True:
        left = [pilot for pilot in left if pilot.kept()]
        rest = until - time.monotonic()
        if not left or rest <= 0:
            return left
        families = [pilot.processes() for pilot in left]
        processes = [process for family in families for process in family]
        _wait_for_any(processes, rest if all(families) else min(rest, _CHECK_AGAIN_SECONDS))


def _wait_for_any(processes: Sequence[Process], seconds: float) -> None:
    """Wait until one of these processes has ended."""
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
