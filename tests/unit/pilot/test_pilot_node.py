"""What the pilot finds on a worker node, on made-up and on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from platform import machine

import pytest

from lodesman.pilot.features import Features
from lodesman.pilot.node import (
    _parse_bytes,
    _parse_cpu_max,
    _parse_meminfo,
    describe_node,
)

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n# comment\n'
ALMA = "ID='almalinux'\nVERSION_ID='9.4'\n"
MEMINFO = "MemTotal:       16384000 kB\nMemFree: 100 kB\nMemAvailable:    8192000 kB\nBad line\nHugePages_Total: 0\n"


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def node_in(root: Path, **told):
    values = {"cores": 0, "memory_mb": 0, "platform_name": "", "features": Features(), **told}
    return describe_node(root=root, **values)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A machine with eight cores and 8000 MB free."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    write(tmp_path, **{"etc/os-release": DEBIAN, "proc/meminfo": MEMINFO})
    return tmp_path


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        (DEBIAN, "debian12"),
        (ALMA, "almalinux9.4"),
        ("", "linux"),
        ("ID=arch\n", "arch"),
    ],
)
def test_platform(root, text, platform):
    write(root, **{"etc/os-release": text})
    assert node_in(root).platform == f"{machine()}-{platform}"


def test_meminfo():
    assert _parse_meminfo(MEMINFO) == (16384000, 8192000)
    assert _parse_meminfo("MemTotal: 5 kB\nMemFree: 3 kB") == (5, 3)
    assert _parse_meminfo("") == (0, 0)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", None),
        ("150000 100000", 1.5),
        ("", None),
        ("-1 100000", None),
        ("1 0", None),
        ("50000 100000", 0.5),
    ],
)
def test_cpu_max(text, cores):
    assert _parse_cpu_max(text) == cores


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), ("1048576\n", 1048576), ("9223372036854771712", None), ("", None), ("x", None)],
)
def test_byte_limits(text, limit):
    assert _parse_bytes(text) == limit


def test_plain_machine(root):
    node = node_in(root)
    assert (node.cores, node.memory_mb, node.memory_total_mb) == (8, 8000, 16000)
    assert node.platform.endswith("-debian12")
    assert node.os == "Debian GNU/Linux 12 (bookworm)"
    assert set(asdict(node)) >= {"host", "os", "platform", "cores", "memory_mb", "python"}


def test_given_values_are_not_measured(root):
    node = node_in(root, cores=3, memory_mb=100, platform_name="p")
    assert (node.cores, node.memory_mb, node.platform) == (3, 100, "p")


def test_unified_cgroup_limits_of_any_level_count(root):
    write(
        root,
        **{
            "proc/self/cgroup": "0::/slice/job\n",
            "sys/fs/cgroup/slice/job/cpu.max": "max 100000",
            "sys/fs/cgroup/slice/job/memory.max": "max",
            "sys/fs/cgroup/slice/cpu.max": "250000 100000",
            "sys/fs/cgroup/slice/memory.max": str(512 << 20),
        },
    )
    node = node_in(root)
    assert (node.cores, node.memory_mb) == (2, 512)


def test_old_cgroup_limits(root):
    write(
        root,
        **{
            "proc/self/cgroup": "4:memory:/job\n3:cpu:/job\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(256 << 20),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    node = node_in(root)
    assert (node.cores, node.memory_mb) == (1, 256)  # half a core is one


def test_a_cgroup_path_that_leads_out_is_not_followed(root):
    write(root, **{"proc/self/cgroup": "0::/../../evil\n", "evil/cpu.max": "100000 100000"})
    assert node_in(root).cores == 8


def test_the_site_may_allot_less(root):
    node = node_in(root, features=Features(allocated_cpu=2, max_rss_bytes=100 << 20))
    assert (node.cores, node.memory_mb) == (2, 100)


def test_this_machine():
    node = describe_node(cores=0, memory_mb=0, platform_name="", features=Features())
    assert node.cores >= 1
    assert 0 < node.memory_mb <= node.memory_total_mb
    assert node.platform
    assert node.host
