"""What lies where a file of a local pilot is expected.

A fault of the system (no descriptors, no memory, a full disk) says nothing about a file; any other is the file's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lodesman.base import kernel
from lodesman.server.engines.keeper import open_regular

_OF_SYSTEM: Final = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EAGAIN, errno.EINTR,
)  # fmt: skip


def is_of_system(fault: OSError) -> bool:
    """Whether what failed is not this file's."""
    return fault.errno in _OF_SYSTEM


@contextlib.contextmanager
def as_damage() -> Iterator[None]:
    """Raises ValueError for what is there and cannot be read, FileNotFoundError, OSError of the system."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as fault:
        if is_of_system(fault):
            raise
        raise ValueError(f"{fault.filename} cannot be read") from fault


def is_there(path: Path) -> bool:
    """Whether there is anything of this name, also a link to nothing. Raises OSError if that is not known."""
    with contextlib.suppress(FileNotFoundError):
        path.lstat()
        return True
    return False


def make_way(path: Path) -> None:
    """Remove what lies where a file is to be written. Raises OSError."""
    if path.is_symlink() or not path.is_file():
        remove(path)


def remove(path: Path) -> None:
    """Remove a tree, or whatever else has this name; links are not followed. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def open_lock(path: Path) -> tuple[int, bool]:
    """The file of a lock, made if there is none; and whether it took the place of something else. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
    with contextlib.suppress(OSError):
        return os.open(path, flags, 0o600), False
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # no process removes what another has just made
        was_damaged = is_there(path) and not path.is_file()
        if was_damaged:
            make_way(path)
        return os.open(path, flags, 0o600), was_damaged
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Make a folder with its parents, also in the place of a file or a broken link. Raises OSError."""
    if is_there(path) and not path.is_dir():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)


def remove_tree(path: Path) -> None:
    """Any depth, directories without permissions too; links are not followed."""
    kernel.remove_tree(str(path))


def end_of(path: Path, most: int) -> bytes:
    """The last bytes of a file; none if they cannot be read."""
    with contextlib.suppress(OSError, ValueError), open_regular(str(path)) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)
    return b""
