"""The door to the kernel: /proc, and the two process attributes that the pilot sets on itself."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from lodesman.pilot.protocol import Key
from lodesman.pilot.tree import Process, parse_stat

try:
    from ctypes import CDLL
except ImportError:  # some interpreters are built without it
    CDLL = None  # type: ignore[assignment, misc]

# A payload's environment names its attempt and, by the stamp, its pilot; so does the local backend's.
MARK = "LODESMAN_JOB"
STAMP = "LODESMAN_STAMP"
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Have orphaned descendants become children of this process. False where the kernel cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> bool:
    """Keep other processes of the same user, payloads above all, out of this one's memory."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def processes() -> dict[int, Process]:
    """All processes of the machine that can be seen."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = parse_stat(_read(f"/proc/{name}/stat"))
            if process is not None:
                table[process.pid] = process
    return table


def has_no_child_but(known: Collection[int]) -> bool:
    """Whether this process has no other children; false also if that cannot be told without a look at all."""
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


def environment_of(pid: int) -> list[str] | None:
    """All entries of a process's environment; None if it is hidden or gone.

    Empty for a moment while the process becomes another program, and for ever if it has none.
    """
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    return content.decode("utf-8", "surrogateescape").split("\0") if content else []


def mark_in(entries: list[str], stamp: str) -> Key | None:
    """The attempt that an environment names as this pilot's; None if it names none."""
    marks = [entry[len(MARK) + 1 :] for entry in entries if entry.startswith(f"{MARK}=")]
    if not marks or f"{STAMP}={stamp}" not in entries:
        return None
    job, dot, attempt = marks[0].partition(".")
    return (int(job), int(attempt)) if dot and job.isdigit() and attempt.isdigit() else None


def proportional_mb(pids: list[int]) -> float | None:
    """Memory of some processes with shared pages counted once among them; None if it cannot be told."""
    total_kb = 0
    for pid in pids:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total_kb += int(line.split()[1])
                break
        else:
            return None
    return total_kb / 1024


def _read(path: str) -> str:
    # What is read here fits into one piece, which is a picture of one moment.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 8192).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError, TypeError):
        return False
