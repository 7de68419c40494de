"""Processes: what /proc shows, which descend from which, and what each payload's tree has used."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lodesman.base import kernel
from lodesman.pilot.protocol import PayloadUsage

# A payload's environment names its attempt and, by the stamp, its pilot; so does the local backend's, which names the
# server that it is of, too.
MARK = "LODESMAN_JOB"
STAMP = "LODESMAN_STAMP"
PILOTS = "LODESMAN_PILOTS"
ZOMBIE = "Z"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class ProcessId(NamedTuple):
    """Names a process and no later one: a pid alone may be used again. `started` in ticks since boot."""

    pid: int
    started: int


class ProcessStat(NamedTuple):
    """One line of /proc/<pid>/stat. CPU in clock ticks: of its own, and of children it waited for."""

    ident: ProcessId
    ppid: int
    session: int
    state: str
    own_ticks: int
    children_ticks: int
    rss_pages: int

    @property
    def pid(self) -> int:
        """Its number."""
        return self.ident.pid


# --- /proc and the kernel -----------------------------------------------------------------------------


def become_subreaper() -> bool:
    """Have orphaned descendants become children of this process. False where the kernel cannot."""
    return kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)


def hide_memory() -> bool:
    """Keep other processes of the same user, payloads above all, out of this one's memory."""
    return kernel.set_attribute(kernel.DUMPABLE, 0)


def read_processes() -> dict[int, ProcessStat]:
    """All processes of the machine that can be seen, by pid."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _parse_stat(_read(f"/proc/{name}/stat"))
            if process is not None:
                table[process.pid] = process
    return table


def _parse_stat(text: str) -> ProcessStat | None:
    """Read /proc/<pid>/stat; the name in it may hold blanks and parentheses. None if it is cut short."""
    before, bracket, after = text.rpartition(")")
    fields = after.split()
    pid = before.split(" ", 1)[0]
    if not bracket or len(fields) < 22 or not pid.isdigit():
        return None
    return ProcessStat(
        ident=ProcessId(int(pid), int(fields[19])),
        ppid=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        own_ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        rss_pages=int(fields[21]),
    )


def has_no_child_but(known: Collection[int]) -> bool:
    """Whether this process has no other children; also False where only a scan of all processes can find out."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    for thread in os.listdir("/proc/self/task"):
        file = Path("/proc/self/task", thread, "children")
        try:
            children = file.read_bytes().split()
        except ProcessLookupError:
            continue  # the thread has ended
        except FileNotFoundError:
            if file.parent.exists():
                return False  # a kernel without these files
            continue
        if any(int(pid) not in known for pid in children):
            return False
    return True


def proportional_mb(pids: Collection[int]) -> float | None:
    """Memory of some processes, pages that they share counted once; None if unknown."""
    total_kb = 0
    for pid in pids:
        found = re.search(r"^Pss:\s*([0-9]+)", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
        if found is None:
            process = _parse_stat(_read(f"/proc/{pid}/stat"))
            if process is not None and process.rss_pages:
                return None
            continue  # it has ended meanwhile
        total_kb += int(found[1])
    return total_kb / 1024


def _read(path: str) -> str:
    # One read gives a consistent content: these files fit into one piece.
    with contextlib.suppress(OSError), io.FileIO(path) as file:
        return (file.read(8192) or b"").decode("utf-8", "surrogateescape")
    return ""


def descendants(table: Mapping[int, ProcessStat], ancestor: int) -> list[ProcessStat]:
    """All processes below one."""
    children: dict[int, list[ProcessStat]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process)
    below: list[ProcessStat] = []
    todo = [ancestor]
    while todo:
        found = children.pop(todo.pop(), [])
        below += found
        todo += [process.pid for process in found]
    return below


def for_children(process: ProcessStat, earlier_seconds: float) -> ProcessStat:
    """A process of which only the time of its children counts, but for that of earlier ones."""
    ticks = process.children_ticks - int(earlier_seconds * _TICKS_PER_SECOND)
    return process._replace(own_ticks=0, children_ticks=max(0, ticks), rss_pages=0)


# --- what has a payload used? -------------------------------------------------------------------------


class Account:
    """CPU time and memory of one payload's tree, over all measurements; CPU time never falls.

    The larger of two counts is used: what the kernel gives parents about the children they waited for (some ignore
    them), and what was last seen of processes that are gone (it misses what came after).
    """

    def __init__(self) -> None:
        self._reaped_seconds = 0.0
        self._seen: dict[ProcessId, int] = {}
        self._gone_ticks = 0
        self.usage = PayloadUsage()
        self.is_closed = False

    def close(self, cpu_seconds: float) -> None:
        """All of the tree is gone, and this is the CPU time of what was waited for in it."""
        self.reaped(cpu_seconds)
        self.is_closed = True

    def reaped(self, cpu_seconds: float) -> None:
        """The pilot waited for the warden: the CPU time of all that was waited for in the tree."""
        self._reaped_seconds += cpu_seconds
        self.usage = replace(self.usage, cpu_seconds=max(self.usage.cpu_seconds, self._reaped_seconds))

    def measure(self, processes: Collection[ProcessStat]) -> PayloadUsage:
        """Measure the tree."""
        now = {process.ident: process.own_ticks for process in processes}
        self._gone_ticks += sum(ticks for ident, ticks in self._seen.items() if ident not in now)
        self._seen = now
        waited = sum(process.own_ticks + process.children_ticks for process in processes)
        by_parents = self._reaped_seconds + waited / _TICKS_PER_SECOND
        by_sight = (self._gone_ticks + sum(now.values())) / _TICKS_PER_SECOND
        rss_mb = sum(process.rss_pages for process in processes) * _PAGE_MB
        self.usage = PayloadUsage(
            cpu_seconds=max(self.usage.cpu_seconds, by_parents, by_sight),
            rss_mb=rss_mb,
            max_rss_mb=max(rss_mb, self.usage.max_rss_mb),
        )
        return self.usage
