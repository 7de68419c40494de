"""The worker node as the pilot finds it: cores, memory, platform, system. A door that only reads."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lodesman import __version__
from lodesman.pilot.features import Features

MB = 1 << 20
# cgroup v1 writes "no limit" as a number near 2^63.
_ENDLESS = 1 << 60


@dataclass(frozen=True)
class Node:
    """The resource for this pilot: what is offered to the server. `memory_mb` in 2^20 bytes.

    `life_s`: seconds left for payloads when it joins, None if no end is known; `cpu_scaling_factor`: normalised CPU
    seconds for each of them.
    """

    host: str
    os: str
    platform: str
    cores: int
    memory_mb: int
    memory_total_mb: int
    python: str
    pilot_version: str
    life_s: float | None = None
    cpu_scaling_factor: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """The node as the server reads it."""
        return asdict(self)


def describe_node(
    *, cores: int, memory_mb: int, platform_name: str, features: Features, root: Path = Path("/")
) -> Node:
    """Describe this machine; arguments other than 0 and "" are taken as they are, not looked for."""
    release = parse_os_release(_read(root / "etc/os-release") or _read(root / "usr/lib/os-release"))
    total_kb, available_kb = parse_meminfo(_read(root / "proc/meminfo"))
    found = _memory_mb(root, available_kb, features)
    return Node(
        host=socket.gethostname(),
        os=release.get("PRETTY_NAME", "") or platform.system(),
        platform=platform_name or platform_of(platform.machine(), release),
        cores=cores or _cores(root, features),
        memory_mb=memory_mb or found,
        memory_total_mb=total_kb // 1024,
        python=platform.python_version(),
        pilot_version=__version__,
    )


def platform_of(machine: str, release: Mapping[str, str]) -> str:
    """`<machine>-<ID><VERSION_ID>`, as in x86_64-debian12; what is unknown is left out."""
    return f"{machine}-{release.get('ID') or 'linux'}{release.get('VERSION_ID', '')}"


def parse_os_release(text: str) -> dict[str, str]:
    """The assignments of an os-release file; quotes are taken off."""
    values = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            values[name] = value.strip("\"'")
    return values


def parse_meminfo(text: str) -> tuple[int, int]:
    """(MemTotal, MemAvailable) of /proc/meminfo in kB; 0 if not told."""
    told = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            told[name] = int(words[0])
    total = told.get("MemTotal", 0)
    return total, told.get("MemAvailable", told.get("MemFree", total))


def parse_cgroups(text: str) -> dict[str, str]:
    """Controller -> path out of /proc/self/cgroup; the unified hierarchy is called ""."""
    paths = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def parse_cpu_max(text: str) -> float | None:
    """Cores granted by `cpu.max` ("max 100000" or "150000 100000"); None for no limit."""
    words = text.split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


def parse_bytes(text: str) -> int | None:
    """A limit in bytes; None for "max", for nothing and for cgroup v1's way to say endless."""
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < _ENDLESS else None


def _cores(root: Path, features: Features) -> int:
    """Affinity, cgroup quota and what the site allotted: the least of them, at least 1."""
    counts = [len(os.sched_getaffinity(0))]
    if features.allocated_cpu is not None:
        counts.append(features.allocated_cpu)
    for directory in _directories(root, "cpu"):
        quota = parse_cpu_max(_read(directory / "cpu.max"))
        if quota is None:
            v1 = f"{_read(directory / 'cpu.cfs_quota_us')} {_read(directory / 'cpu.cfs_period_us')}"
            quota = parse_cpu_max(v1)
        if quota is not None:
            counts.append(int(quota))
    return max(1, min(counts))


def _memory_mb(root: Path, available_kb: int, features: Features) -> int:
    """The least of what is free now, what the cgroups allow and what the site allotted."""
    amounts = [available_kb * 1024]
    if features.max_rss_bytes is not None:
        amounts.append(features.max_rss_bytes)
    for directory in _directories(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = parse_bytes(_read(directory / name))
            if limit is not None:
                amounts.append(limit)
    return min(amounts) // MB


def _directories(root: Path, controller: str) -> list[Path]:
    """The cgroup directories of this process for a controller, up to the root of each hierarchy.

    Inside a container the path may not exist below the mount; the mount itself is always looked at.
    """
    paths = parse_cgroups(_read(root / "proc/self/cgroup"))
    base = root / "sys/fs/cgroup"
    found = []
    for mount, path in ((base, paths.get("")), (base / controller, paths.get(controller))):
        if path is None:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." not in inside.parts:
            found += [mount / inside, *(mount / parent for parent in inside.parents)]
    return found


def _read(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return source.read(1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""
