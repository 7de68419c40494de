"""The machine and its load: CPU time of our processes and of all others (Linux)."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def process_cpu(pid: int, *, waited: bool = False) -> float:
    """CPU seconds of one process so far, or of the children that it has `waited` for; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    words = text.rpartition(")")[2].split()
    user = 13 if waited else 11
    return (int(words[user]) + int(words[user + 1])) / TICKS


def resident_mb(pid: int) -> float:
    """Memory of one process (RSS, 2^20 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def children(pid: int) -> list[int]:
    """The processes that a process started and that still live."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def busy_seconds() -> float:
    """CPU seconds that all processors together were not idle (user, nice, system, irq, softirq)."""
    words = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    return (words[0] + words[1] + words[2] + words[5] + words[6]) / TICKS


def commit() -> str:
    """The commit of this tree, with a mark if files of it were changed; '' if that is not known."""
    with suppress(OSError):
        words = [
            "git",
            "-C",
            str(Path(__file__).parent),
            "describe",
            "--always",
            "--dirty",
            "--exclude=*",
            "--abbrev=8",
        ]
        done = subprocess.run(words, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout.strip()
    return ""


def describe() -> dict[str, Any]:
    """The machine, for the head of a report."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    return {
        "cores": os.cpu_count(),
        "system": release.get("PRETTY_NAME", "").strip('"'),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit(),
        "load": [round(one, 2) for one in os.getloadavg()],
    }


class Meter:
    """CPU used between its making and `read`: by named processes, and by all others."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._began = {name: process_cpu(pid) for name, pid in pids.items()}
        self._used: dict[str, float] = {}
        self._busy = busy_seconds()
        self._clock = time.perf_counter()

    def read(self, **finished: float) -> dict[str, float]:
        """Cores used by each process; `finished` are the CPU seconds of processes that ended meanwhile."""
        elapsed = time.perf_counter() - self._clock
        self._used = {name: process_cpu(pid) - self._began[name] for name, pid in self._pids.items()}
        used = self._used | finished
        other = max(busy_seconds() - self._busy - sum(used.values()), 0.0)
        cores = {f"{name}_cores": round(seconds / elapsed, 2) for name, seconds in used.items()}
        return {**cores, "other_cores": round(other / elapsed, 2)}

    def cpu_us(self, operations: int) -> dict[str, float]:
        """Microseconds of each process for each operation, up to the last `read`."""
        return {name: round(1e6 * seconds / operations, 1) for name, seconds in self._used.items()}
