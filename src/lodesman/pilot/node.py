"""The worker node as the pilot finds it: cores, memory, platform, system, and the Machine/Job Features of the WLCG."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lodesman import __version__

_MB = 1 << 20
# cgroup v1 writes "no limit" as a number near 2^63.
_ENDLESS = 1 << 60
# The files that are read in the directories $MACHINEFEATURES and $JOBFEATURES.
_MACHINE_FEATURES = ("shutdowntime",)
_JOB_FEATURES = ("allocated_cpu", "max_rss_bytes", "wall_limit_secs", "jobstart_secs", "shutdowntime_job")


@dataclass(frozen=True)
class Features:
    """What the site declares about machine and slot; None is unknown. Times are UNIX seconds.

    Of the keys `shutdowntime` (machine) and `shutdowntime_job` (slot) the earlier one counts.
    """

    allocated_cpu: int | None = None
    max_rss_bytes: int | None = None
    wall_limit_secs: int | None = None
    jobstart_secs: int | None = None
    shutdowntime: int | None = None

    def slot_ends(self, started: float) -> float | None:
        """When the slot ends, as a UNIX time; `started` is when the pilot did."""
        ends = []
        if self.wall_limit_secs is not None:
            ends.append((self.jobstart_secs or started) + self.wall_limit_secs)
        if self.shutdowntime is not None:
            ends.append(float(self.shutdowntime))
        return min(ends, default=None)


@dataclass(frozen=True)
class WorkerNode:
    """The resource for this pilot, as it is offered to the server. `memory_mb` in 2^20 bytes.

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


def read_features(environment: Mapping[str, str]) -> Features:
    """Read the directories that the environment names; what cannot be read is unknown.

    Web addresses in place of directories are ignored: they belong to virtual machines.
    """
    found = _read_features(environment.get("MACHINEFEATURES", ""), _MACHINE_FEATURES)
    found.update(_read_features(environment.get("JOBFEATURES", ""), _JOB_FEATURES))
    slot_ends = found.pop("shutdowntime_job", None)
    if slot_ends is not None:
        found["shutdowntime"] = min(slot_ends, found.get("shutdowntime", slot_ends))
    return Features(**found)


def _read_features(directory: str, names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    if not directory.startswith("/"):
        return found
    for name in names:
        try:
            with (Path(directory) / name).open("rb") as file:
                value = int(float(file.read(64)))
        except (OSError, ValueError, OverflowError):
            continue
        if value > 0:
            found[name] = value
    return found


def describe_node(
    *,
    cores: int = 0,
    memory_mb: int = 0,
    platform_name: str = "",
    features: Features = Features(),
    root: Path = Path("/"),
) -> WorkerNode:
    """Describe this machine; arguments other than 0 and "" are taken as they are."""
    release = _parse_os_release(_read(root / "etc/os-release") or _read(root / "usr/lib/os-release"))
    total_kb, available_kb = _parse_meminfo(_read(root / "proc/meminfo"))
    return WorkerNode(
        host=socket.gethostname(),
        os=release.get("PRETTY_NAME", "") or platform.system(),
        platform=platform_name or _platform_of(platform.machine(), release),
        cores=cores or _cores(root, features),
        memory_mb=memory_mb or _memory_mb(root, available_kb, features),
        memory_total_mb=total_kb // 1024,
        python=platform.python_version(),
        pilot_version=__version__,
    )


def _platform_of(machine: str, release: Mapping[str, str]) -> str:
    """`<machine>-<ID><VERSION_ID>`, as in x86_64-debian12, without what is unknown."""
    return f"{machine}-{release.get('ID') or 'linux'}{release.get('VERSION_ID', '')}"


def _parse_os_release(text: str) -> dict[str, str]:
    """The assignments of an os-release file, without quotes."""
    values = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            values[name] = value.strip("\"'")
    return values


def _parse_meminfo(text: str) -> tuple[int, int]:
    """(MemTotal, MemAvailable) of /proc/meminfo in kB; 0 if unknown."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name] = int(words[0])
    total = values.get("MemTotal", 0)
    return total, values.get("MemAvailable", values.get("MemFree", total))


def _parse_cgroups(text: str) -> dict[str, str]:
    """Controller -> path out of /proc/self/cgroup; the unified hierarchy is called ""."""
    paths = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def _parse_cpu_max(text: str) -> float | None:
    """Cores granted by `cpu.max` ("max 100000" or "150000 100000"); None for no limit."""
    words = text.split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


def _parse_bytes(text: str) -> int | None:
    """A limit in bytes; None for "max", for nothing and for the number that means no limit in cgroup v1."""
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < _ENDLESS else None


def _cores(root: Path, features: Features) -> int:
    """The least of affinity, cgroup quota and what the site allots; at least 1."""
    counts = [len(os.sched_getaffinity(0))]
    if features.allocated_cpu is not None:
        counts.append(features.allocated_cpu)
    for directory in _directories(root, "cpu"):
        quota = _parse_cpu_max(_read(directory / "cpu.max"))
        if quota is None:
            v1 = f"{_read(directory / 'cpu.cfs_quota_us')} {_read(directory / 'cpu.cfs_period_us')}"
            quota = _parse_cpu_max(v1)
        if quota is not None:
            counts.append(int(quota))
    return max(1, min(counts))


def _memory_mb(root: Path, available_kb: int, features: Features) -> int:
    """The least of what is free now, what the cgroups allow and what the site allots."""
    amounts = [available_kb * 1024]
    if features.max_rss_bytes is not None:
        amounts.append(features.max_rss_bytes)
    for directory in _directories(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _parse_bytes(_read(directory / name))
            if limit is not None:
                amounts.append(limit)
    return min(amounts) // _MB


def _directories(root: Path, controller: str) -> list[Path]:
    """The cgroup directories of this process for a controller, up to the root of each hierarchy.

    Inside a container the path may not exist below the mount; the mount itself is always read.
    """
    paths = _parse_cgroups(_read(root / "proc/self/cgroup"))
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
