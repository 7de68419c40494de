"""Processes as /proc shows them, families of them, and how all of one are killed. Standard library only, Python 3.9+."""

# pathlib would cost each keeper a quarter of its start.
# ruff: noqa: PTH106, PTH123
from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Process(NamedTuple):
    """One process as /proc shows it; pid and start (clock ticks since boot) name it and no later one."""

    pid: int
    parent: int
    start: int
    state: str
    tty: int


def read_process(pid: int) -> Process | None:
    """The process with this number, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold blanks and parentheses itself.
    fields = text[text.rfind(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[19]), fields[0].decode(), int(fields[4]))


def process_table() -> dict[int, Process]:
    """All processes except zombies, by number; those that come and go meanwhile may be missing."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None and process.state not in "ZX"}


def descendants(table: dict[int, Process], roots: list[int]) -> list[Process]:
    """The processes below the roots (the roots left out), parents first."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    order: list[Process] = []
    queue = list(roots)
    for pid in queue:
        below = children.pop(pid, [])
        order.extend(below)
        queue.extend(process.pid for process in below)
    return [process for process in order if process.pid not in roots]


def _lives(process: Process) -> bool:
    """Whether exactly this process is alive; its number may belong to a later one."""
    now = read_process(process.pid)
    return now is not None and now.start == process.start and now.state not in "ZX"


def signal_process(process: Process, signum: int) -> bool:
    """Send to exactly this process; False if it does not live or is not ours."""
    with contextlib.suppress(OSError), open(os.pidfd_open(process.pid), "rb", 0) as handle:
        if _lives(process):
            signal.pidfd_send_signal(handle.fileno(), signum)
            return True
    return False


def _freeze(find: Callable[[], list[Process]], passes: int = 20) -> list[Process]:
    """Stop what `find` finds until nothing new turns up; returns all that was stopped."""
    stopped: dict[tuple[Any, ...], Process] = {}
    for _ in range(passes):  # bounded, since a process can fork faster than it is found
        fresh = {process[:3:2]: process for process in find() if process[:3:2] not in stopped}
        for process in fresh.values():
            signal_process(process, signal.SIGSTOP)
        stopped |= fresh
        if not fresh:
            break
    return list(stopped.values())


def kill_family(
    find: Callable[[], list[Process]], timeout: float, between: Callable[[], None] = lambda: None
) -> list[Process]:
    """Kill what `find` finds until it finds nothing and the killed are dead; returns what is left
    after `timeout` seconds. `between` runs after each pass: it reaps, and kills what is too fast for passes.
    """
    deadline, pause = time.monotonic() + timeout, 0.001
    dying: set[Process] = set()
    while True:
        dying.update(_freeze(find))
        for process in dying:
            signal_process(process, signal.SIGKILL)
        between()
        dying = {process for process in dying if _lives(process)}
        left = find() or list(dying)
        if not left or time.monotonic() > deadline:
            return left
        select.select([], [], [], pause)  # the killed need the processor in order to die
        pause = min(2 * pause, 0.05)


def kill_cgroup(path: str) -> None:
    """Kill all processes in the cgroup and below, also those that are forked meanwhile."""
    with contextlib.suppress(OSError), open(path + "/cgroup.kill", "w") as file:
        file.write("1")


def remove_cgroup(path: str) -> None:
    """Remove the cgroup and those below it, if they are empty."""
    for place, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(place)
