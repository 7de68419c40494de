"""The worker node as the pilot finds it: cores, memory, platform and system."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lodesman import __version__
from lodesman.base.processes import parse_cgroups
from lodesman.pilot.features import Features
from lodesman.pilot.protocol import MB

# cgroup v1 writes "no limit" as a number near 2^63.
_ENDLESS = 1 << 60
_UNKNOWN = Features()


@dataclass(frozen=True)
class WorkerNode:
    """The resource that is offered to the server."""

    host: str
    os: str
    platform: str
    cores: int
    memory_mb: int  # in 2^20 bytes
    memory_total_mb: int
    python: str
    pilot_version: str
    life_s: float | None = None  # left for payloads at the join, None: no end is known
    cpu_scaling_factor: float = 1.0  # normalised CPU seconds per second
    cores_total: int = 0  # of the machine, 0: unknown


def describe_node(
    *,
    cores: int = 0,
    memory_mb: int = 0,
    platform_name: str = "",
    features: Features = _UNKNOWN,
    root: Path = Path("/"),
) -> WorkerNode:
    """Arguments other than 0 and "" are taken as they are."""
    release_text = _read(root / "etc/os-release") or _read(root / "usr/lib/os-release")
    lines = [line.strip().partition("=") for line in release_text.splitlines()]
    release = {name: value.strip(" \"'") for name, equals, value in lines if equals}
    system = release.get("ID") or "linux"
    total_kb, available_kb = _parse_meminfo(_read(root / "proc/meminfo"))
    return WorkerNode(
        host=socket.gethostname(),
        os=release.get("PRETTY_NAME", "") or platform.system(),
        platform=platform_name or f"{platform.machine()}-{system}{release.get('VERSION_ID', '')}",
        cores=cores or _cores(root, features),
        memory_mb=memory_mb or _memory_mb(root, available_kb, features),
        memory_total_mb=total_kb // 1024,
        python=platform.python_version(),
        pilot_version=__version__,
        cores_total=os.cpu_count() or 0,
    )


def _parse_meminfo(text: str) -> tuple[int, int]:
    values: dict[str, str] = dict(re.findall(r"^(\w+):\s*([0-9]+)", text, re.MULTILINE))
    total = int(values.get("MemTotal", 0))
    return total, int(values.get("MemAvailable", values.get("MemFree", total)))


def _parse_cpu_max(text: str) -> float | None:
    """`max 100000` or `150000 100000`."""
    match = re.fullmatch(r"([0-9]+) ([1-9][0-9]*)", text)
    return int(match[1]) / int(match[2]) if match else None


def _parse_bytes(text: str) -> int | None:
    """None for "max", nothing, and cgroup v1's number for no limit."""
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < _ENDLESS else None


def _cores(root: Path, features: Features) -> int:
    counts: list[float | None] = [len(os.sched_getaffinity(0)), features.allocated_cpu]
    for directory in _directories(root, "cpu"):
        v1 = [_read(directory / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        counts += map(_parse_cpu_max, (_read(directory / "cpu.max"), " ".join(v1)))
    return max(1, int(min(count for count in counts if count is not None)))


def _memory_mb(root: Path, available_kb: int, features: Features) -> int:
    amounts = [available_kb * 1024, features.max_rss_bytes]
    for directory in _directories(root, "memory"):
        amounts += [_parse_bytes(_read(directory / name)) for name in ("memory.max", "memory.limit_in_bytes")]
    return min(amount for amount in amounts if amount is not None) // MB


def _directories(root: Path, controller: str) -> list[Path]:
    """Up to the root of each hierarchy. In a container the path may not exist below the mount, which is always read."""
    paths = parse_cgroups(_read(root / "proc/self/cgroup"))
    base = root / "sys/fs/cgroup"
    folders = []
    for mount, path in ((base, paths.get("")), (base / controller, paths.get(controller))):
        if path is None:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." not in inside.parts:
            folders += [mount / inside, *(mount / parent for parent in inside.parents)]
    return folders


def _read(file: Path, most: int = 1 << 16) -> str:
    with contextlib.suppress(OSError), file.open("rb") as source:
        return source.read(most).decode("utf-8", "replace").strip()
    return ""
