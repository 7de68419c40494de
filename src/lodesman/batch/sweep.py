"""Finds and kills what pilots left behind when their keeper and its guard were both killed.

Normally nothing does: the keeper ends after the last process of its tree. A left-over process is known by the
mark that the backend puts in a pilot's environment, or by a working directory inside the pilot's own (a
payload may have a clean environment); their descendants go with them. Never this process or its ancestors,
and never by directory alone a process with a terminal: that is somebody who looks at the files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from lodesman.batch.keeper import Process, descendants, kill_cgroup, kill_family, process_table, remove_cgroup

MARK = "LODESMAN_STAMP"


def marked(directories: Mapping[str, Path], table: Mapping[int, Process]) -> dict[int, str]:
    """Number -> stamp of the processes that carry a mark of these pilots (stamp -> directory)."""
    spared = set(_lineage(os.getpid(), table))
    found: dict[int, str] = {}
    for process in table.values():
        stamp = None if process.pid in spared else _stamp_of(process, directories)
        if stamp is not None:
            found[process.pid] = stamp
    return found


def sweep(
    directories: Mapping[str, Path],
    *,
    cgroups: Collection[str] = (),
    roots: Collection[int] = (),
    patience: float,
) -> set[str]:
    """Kill all that is left of these pilots; the stamps of those that are not gone after `patience` seconds.

    `roots` are processes whose descendants go too, whatever they carry.
    """

    def find() -> list[Process]:
        table = process_table()
        tops = [pid for pid in {*roots, *marked(directories, table)} if pid in table]
        return [table[pid] for pid in tops] + descendants(table, tops)

    for cgroup in cgroups:
        kill_cgroup(cgroup)
    # A second look: the first one may have missed a process that forked behind it.
    if kill_family(find, patience) or kill_family(find, patience):
        left = marked(directories, process_table())
        return set(left.values()) or set(directories)
    for cgroup in cgroups:
        remove_cgroup(cgroup)
    return set()


def _lineage(pid: int, table: Mapping[int, Process]) -> Iterator[int]:
    while pid in table:
        yield pid
        pid = table[pid].parent


def _stamp_of(process: Process, directories: Mapping[str, Path]) -> str | None:
    """The pilot that this process belongs to; None for processes that are gone or another user's."""
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        place = Path(f"/proc/{process.pid}/cwd").readlink()
    except OSError:
        return None
    for variable in environment.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == MARK.encode() and (stamp := os.fsdecode(value)) in directories:
            return stamp
    if process.tty:
        return None
    return next((stamp for stamp, directory in directories.items() if place.is_relative_to(directory)), None)
