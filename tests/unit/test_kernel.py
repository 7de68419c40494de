"""What Linux offers and Python 3.9 does not: the parts that need no right."""

from __future__ import annotations

import os

import pytest

from lodesman import kernel


def test_a_file_of_proc_is_read_to_its_end_and_closed():
    before = os.listdir("/proc/self/fd")
    assert kernel.read_file("/proc/self/maps").endswith(b"\n")
    assert kernel.read_file("/proc/self/stat").startswith(b"%d (" % os.getpid())
    with pytest.raises(IsADirectoryError):
        kernel.read_file("/proc/self")
    assert os.listdir("/proc/self/fd") == before
