"""One's own cgroup, found in what real kernels write; and made, where that is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lodesman.base.processes import kill_cgroup, remove_cgroup
from lodesman.server.engines import pilot_processes
from lodesman.server.engines.pilot_processes import _own_directory, make_cgroup

# Recorded: Debian 12 with systemd (unified), a container with both versions, and one without version 2.
UNIFIED = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope\n"
UNIFIED_MOUNTS = (
    "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "28 22 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
)
HYBRID = "9:name=systemd:/\n4:memory:/process_api/547b\n1:cpu:/\n0::/\n"
HYBRID_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)


def test_unified():
    expected = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope"
    assert _own_directory(UNIFIED, UNIFIED_MOUNTS) == Path(expected)


def test_hybrid():
    assert _own_directory(HYBRID, HYBRID_MOUNTS) == Path("/sys/fs/cgroup/unified")


def test_version_1_only():
    assert _own_directory("9:name=systemd:/\n1:cpu:/\n", HYBRID_MOUNTS) is None
    assert _own_directory(UNIFIED, "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n") is None


def test_a_bind_mount_shows_a_part_of_the_tree():
    mounts = "41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    assert _own_directory("0::/docker/ab/job\n", mounts) == Path("/sys/fs/cgroup/job")
    assert _own_directory("0::/docker/ab\n", mounts) == Path("/sys/fs/cgroup")
    assert _own_directory("0::/docker/abc\n", mounts) is None
    assert _own_directory("0::/elsewhere\n", mounts) is None


def test_outside_of_ones_namespace():
    assert _own_directory("0::/../other\n", HYBRID_MOUNTS) is None


def test_a_mount_point_with_blanks():
    mounts = "41 31 0:38 / /mnt/my\\040cgroups rw - cgroup2 cgroup rw\n"
    assert _own_directory("0::/a\n", mounts) == Path("/mnt/my cgroups/a")


@pytest.mark.parametrize("text", ["", "\n", "0::", "nonsense", "1 2 3 - cgroup2 x\n", " - cgroup2 \n", "- -"])
def test_nonsense_is_no_cgroup(text):
    assert _own_directory(text, text) is None
    assert _own_directory(UNIFIED, text) is None
    assert _own_directory(text, UNIFIED_MOUNTS) is None


def test_no_cgroup_where_none_may_be_made(monkeypatch, tmp_path):
    monkeypatch.setattr(pilot_processes, "_own_directory", lambda own, mounts: tmp_path / "missing")
    assert make_cgroup("lodesman-test") is None
    monkeypatch.setattr(pilot_processes, "_own_directory", lambda own, mounts: None)
    assert make_cgroup("lodesman-test") is None


def test_a_kernel_that_cannot_kill_a_cgroup(monkeypatch, tmp_path):
    monkeypatch.setattr(pilot_processes, "_own_directory", lambda own, mounts: tmp_path)
    assert make_cgroup("lodesman-test") is None
    assert list(tmp_path.iterdir()) == []


def test_removing_takes_the_inner_ones_too(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    remove_cgroup(str(tmp_path / "a"))
    assert list(tmp_path.iterdir()) == []
    remove_cgroup(str(tmp_path / "a"))


def test_killing_one_that_is_gone_is_no_error(tmp_path):
    kill_cgroup(str(tmp_path / "gone"))


def test_a_real_one():
    made = make_cgroup(f"lodesman-test-{os.getpid()}")
    if made is None:
        pytest.skip("this machine lets this user make no cgroup of version 2")
    assert (Path(made) / "cgroup.procs").read_text() == ""
    assert make_cgroup(f"lodesman-test-{os.getpid()}") == made
    remove_cgroup(made)
    assert not Path(made).exists()


def test_one_in_which_processes_live_is_not_taken(tmp_path, monkeypatch):
    """Its keeper would kill them with it: they may be of the same pilot, started from another directory."""
    monkeypatch.setattr(pilot_processes, "_own_directory", lambda own, mounts: tmp_path)
    made = tmp_path / "lodesman-test"
    made.mkdir()
    (made / "cgroup.kill").touch()
    for populated, found in ((0, str(made)), (1, None)):
        (made / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
        assert make_cgroup("lodesman-test") == found
