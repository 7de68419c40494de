"""Files that are written now and believed later: on the disk before they are in their place."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from lodesman.base.durable import write_durably


def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(tmp_path, disk):
    (tmp_path / "f").write_bytes(b"old")
    write_durably(tmp_path / "f", b"new", mode=0o644)
    (kind, part), *then = disk[0]
    assert (kind, then) == ("file", [("moved", tmp_path / "f"), ("directory", tmp_path)])
    assert part != tmp_path / "f"
    assert (tmp_path / "f").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"old")

    def no_space(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_durably(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]
