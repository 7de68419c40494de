"""Processes of Linux: what /proc shows of them, which descend from which, and how a family is killed."""

# A keeper starts without pathlib, which would cost it a quarter of its start.
# ruff: noqa: PTH106, PTH123
from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from lodesman.base import kernel

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Of a process that is forked and has executed no program (PF_FORKNOEXEC).
_FORKED_ONLY = 0x40
_LONGEST_PAUSE_S = 0.05


class ProcessId(NamedTuple):
    """A process and no later one: a number alone is used again."""

    pid: int
    start: int  # clock ticks since boot


class Process(NamedTuple):
    """Of /proc/PID/stat. CPU time in clock ticks."""

    pid: int
    parent: int
    start: int  # clock ticks since boot
    state: str
    tty: int = 0
    own_ticks: int = 0
    children_ticks: int = 0  # of children that it waited for
    threads: int = 1
    rss_pages: int = 0

    @property
    def ident(self) -> ProcessId:
        """What no later process shares with it."""
        return ProcessId(self.pid, self.start)

    @property
    def is_dead(self) -> bool:
        """It may wait to be waited for. If its first thread alone has ended, others go on."""
        return self.state in "ZX" and self.threads <= 1


# --- /proc --------------------------------------------------------------------------------------------------------------


def parse_stat(text: bytes) -> Process | None:
    """The name in /proc/PID/stat may hold blanks and parentheses. None if the text is cut short."""
    before, bracket, after = text.rpartition(b")")
    fields, pid = after.split(), before.split(b" ", 1)[0]
    if not bracket or len(fields) < 22 or not pid.isdigit():
        return None
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        start=int(fields[19]),
        state=fields[0].decode("ascii", "replace"),
        tty=int(fields[4]),
        own_ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        threads=int(fields[17]),
        rss_pages=int(fields[21]),
    )


def read_process(pid: int) -> Process | None:
    """It may be dead."""
    try:
        return parse_stat(kernel.read_file(f"/proc/{pid}/stat"))
    except OSError:
        return None


def read_processes() -> dict[int, Process]:
    """By number, dead ones too; those that come and go meanwhile may be missing."""
    processes = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in processes if process is not None}


def living_processes() -> dict[int, Process]:
    """As `read_processes`, without the dead."""
    return {pid: process for pid, process in read_processes().items() if not process.is_dead}


def read_children() -> list[int] | None:
    """None where only a scan of all processes can find out."""
    children: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                children += map(int, kernel.read_file(f"/proc/self/task/{thread}/children").split())
    except OSError:
        return None  # a kernel without these files
    return children


def has_executed(pid: int) -> bool:
    """Whether a child, which may have ended, became another program: the kernel marks one that did not. Raises OSError."""
    flags = int(kernel.read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6])
    return not flags & _FORKED_ONLY


def descendants(table: Mapping[int, Process], roots: Iterable[int]) -> list[Process]:
    """Without the roots, parents first."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    tops = set(roots)
    order: list[Process] = []
    queue = list(tops)
    for pid in queue:
        below = children.pop(pid, [])
        order += below
        queue += [process.pid for process in below]
    return [process for process in order if process.pid not in tops]


# --- signals ------------------------------------------------------------------------------------------------------------


def is_alive(process: Process) -> bool:
    """Exactly this process; its number may belong to a later one."""
    now = read_process(process.pid)
    return now is not None and now.start == process.start and not now.is_dead


def signal_process(process: Process, number: int) -> bool:
    """To exactly this process; False if it is dead or another account's."""
    with contextlib.suppress(OSError):
        handle = _open_process(process.pid)
        try:
            if is_alive(process):
                if handle is None:
                    os.kill(process.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
                return True
        finally:
            if handle is not None:
                os.close(handle)
    return False


def _open_process(pid: int) -> int | None:
    """Names a process even when its number is used again; None where there is no such thing."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None  # this Python was built for an older kernel
    try:
        return os.pidfd_open(pid)
    except OSError as fault:
        if fault.errno in (errno.ENOSYS, errno.EPERM):  # Linux before 5.3, a container that knows no newer
            return None
        raise


def freeze(find: Callable[[], list[Process]], passes: int = 20) -> list[Process]:
    """Stop what `find` finds until nothing new turns up; returns all of it. The passes are bounded: a process can fork
    faster than it is found.
    """
    stopped: dict[ProcessId, Process] = {}
    for _ in range(passes):
        fresh = {process.ident: process for process in find() if process.ident not in stopped}
        for process in fresh.values():
            signal_process(process, signal.SIGSTOP)
        stopped.update(fresh)
        if not fresh:
            break
    return list(stopped.values())


def kill_family(
    find: Callable[[], list[Process]], timeout_s: float, between: Callable[[], None] = lambda: None
) -> list[Process]:
    """Kill what `find` finds until it finds nothing and all are dead; returns what is left after the timeout.

    `between` runs after each pass: it reaps, and kills what is too fast for passes.
    """
    deadline, pause = time.monotonic() + timeout_s, 0.001
    dying: dict[ProcessId, Process] = {}
    while True:
        dying.update((process.ident, process) for process in freeze(find))
        for process in dying.values():
            signal_process(process, signal.SIGKILL)
        between()
        dying = {ident: process for ident, process in dying.items() if is_alive(process)}
        left = find() or list(dying.values())
        if not left or time.monotonic() > deadline:
            return left
        select.select([], [], [], pause)  # the killed need the processor in order to die
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def kill_group(leader: int) -> None:
    """Kill a child and its process group, before it is waited for: later another group could have its number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


# --- cgroups ------------------------------------------------------------------------------------------------------------


def parse_cgroups(text: str) -> dict[str, str]:
    """Paths by controller, of /proc/PID/cgroup; version 2 is called ''."""
    paths: dict[str, str] = {}
    for controllers, path in re.findall(r"^\w+:([^:\n]*):(.*)$", text, re.MULTILINE):
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def kill_cgroup(path: str) -> None:
    """Version 2 alone, with cgroups below, also what is forked meanwhile."""
    with contextlib.suppress(OSError), open(path + "/cgroup.kill", "w") as file:
        file.write("1")


def remove_cgroup(path: str) -> None:
    """With those below, if they are empty."""
    for place, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(place)
