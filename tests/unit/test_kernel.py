"""What Linux offers and Python 3.9 does not: the parts that need no right."""

from __future__ import annotations

import errno
import os

import pytest

from lodesman.base import kernel


def test_a_file_of_proc_is_read_to_its_end_and_closed():
    before = os.listdir("/proc/self/fd")
    assert kernel.read_file("/proc/self/maps").endswith(b"\n")
    assert kernel.read_file("/proc/self/stat").startswith(b"%d (" % os.getpid())
    with pytest.raises(IsADirectoryError):
        kernel.read_file("/proc/self")
    assert os.listdir("/proc/self/fd") == before


def test_what_children_begin_with_is_read_again_each_time():
    handed_down = kernel.Inheritance()
    before = handed_down.now()
    assert handed_down.now() == before
    try:
        assert kernel.set_attribute(29, 60_000)  # timer slack, in ns
        assert handed_down.now() != before
    finally:
        kernel.set_attribute(29, 0)
    assert handed_down.now() == before


def test_an_account_without_keys_costs_no_keyring(monkeypatch):
    asked = []
    rings = kernel.Keyrings()
    monkeypatch.setattr(rings, "_own", b"no such account")
    monkeypatch.setattr(kernel, "_ask", lambda *call: asked.append(call) or 0)
    rings.clear()
    assert asked == []


def test_a_keyring_that_cannot_be_read_is_a_fault(monkeypatch):
    """Its keys would stay."""
    rings = kernel.Keyrings()
    if rings._users < 0:
        pytest.skip("there are no keyrings here")
    monkeypatch.setattr(rings, "_own", b"0")

    def refuse(*_):
        raise PermissionError(13, "no")

    monkeypatch.setattr(kernel, "_ask", refuse)
    with pytest.raises(PermissionError):
        rings.clear()


def test_a_key_that_two_rings_have_is_taken_out_once_and_one_that_stays_keeps_in_no_other(monkeypatch):
    """Without a session of its own, a process has that of its user under two names."""
    rings, left = kernel.Keyrings(), {1, 2, 3, 4}

    def unlink(_call, _operation, key, ring):
        if key == 3:
            raise PermissionError(errno.EACCES, "kept")
        if key not in left:
            raise FileNotFoundError(errno.ENOENT, "gone")
        left.remove(key)

    monkeypatch.setattr(rings, "_links", lambda: {(ring, key) for ring in (-3, -5) for key in (1, 2, 3, 4)})
    monkeypatch.setattr(rings, "_before", set())
    monkeypatch.setattr(kernel, "_ask", unlink)
    with pytest.raises(PermissionError):
        rings.clear()
    assert left == {3}


def test_a_mount_is_read_from_its_line():
    (mount,) = kernel.parse_mounts(
        "36 35 98:0 /sub\\040dir /mnt/a\\134b rw,noatime shared:1 - nfs4 srv:/x rw,vers=4.2,nolock\n"
    )
    assert mount == ("98:0", "/sub dir", "/mnt/a\\b", "nfs4", {"rw", "vers=4.2", "nolock"})
    assert kernel.parse_mounts("\n36 35 98:0 /\n - nfs x rw\n1 2 3:4 / /a rw - \n") == []


def test_the_mounts_of_this_process():
    assert any(mount.point == "/" for mount in kernel.read_mounts())


def test_a_start_of_the_machine_has_a_name():
    assert kernel.boot_id() == kernel.boot_id()
    assert len(kernel.boot_id().strip()) == 36
