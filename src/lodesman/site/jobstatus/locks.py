"""The lock on used_CPU: flock(2) and fcntl(2), since a foreign reader may take either."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress

from lodesman.base import kernel

# struct flock of 64 bits: type, whence, start, length (0: all), process (0).
_RANGE = "hhqqi4x"
_NO_RANGES = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Kinds of file systems (f_type of statfs).
_NFS, _CIFS, _SMB = 0x6969, 0xFF53_4D42, (0x517B, 0xFE53_4D42)
_LOCAL = {"nolock", "local_lock=all", "local_lock=flock", "local_lock=posix"}


def takes_both(directory: int) -> bool:
    """The locks of NFS and CIFS are one, and would exclude each other. Raises OSError for SMB, whose locks stop all readers,
    and NFS whose locks stay on this machine.
    """
    kind = kernel.file_system(directory)
    if kind in _SMB:
        raise OSError(errno.EOPNOTSUPP, "Locks of SMB stop all readers")
    if kind == _NFS and has_local_locks(kernel.read_mounts(), os.fstat(directory).st_dev):
        raise OSError(errno.EOPNOTSUPP, "Locks of this NFS stay on this machine (local_lock)")
    return kind not in (None, _NFS, _CIFS)


def has_local_locks(mounts: Iterable[kernel.Mount], device: int) -> bool:
    """The locks of this file system stay on this machine."""
    own = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.device == own and not _LOCAL.isdisjoint(mount.options) for mount in mounts)


class Lock:
    """Locks an open file, which it closes. `shared`: of readers. `ranges`: take the lock of fcntl, too.

    It waits in a thread: who asks again and again is starved. A thread that waited in vain gives back what it gets, or
    serves the next call.
    """

    def __init__(self, descriptor: int, *, shared: bool = False, ranges: bool = False) -> None:
        self.descriptor = descriptor
        self._flock = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._range = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
        self._ranges = ranges
        self._guard = threading.Lock()
        self._granted = threading.Event()
        self._waits = self._wanted = self._closed = False

    def acquire(self, wait_s: float) -> bool:
        """False if not granted in time. Raises OSError if the file system has no locks."""
        with self._guard:
            if not self._waits and self._take():
                return True
            self._wanted = True
            if not self._waits:
                self._granted.clear()
                with suppress(RuntimeError):  # no thread can be started
                    threading.Thread(target=self._wait, daemon=True).start()
                    self._waits = True
        self._granted.wait(wait_s)
        with self._guard:
            self._wanted = False
            if self._granted.is_set():
                return True
            self._give()
            return False

    def release(self) -> None:
        """Also for copies of the descriptor in forked processes."""
        with self._guard:
            self._give()

    def close(self) -> None:
        """Now, or when the thread is back."""
        with self._guard:
            self._closed = True
            if not self._waits:
                os.close(self.descriptor)

    def _take(self) -> bool:
        """Both kinds or none; both may be held already."""
        try:
            fcntl.flock(self.descriptor, self._flock | fcntl.LOCK_NB)
            self._set_range(fcntl.F_OFD_SETLK, self._range)
        except (BlockingIOError, PermissionError):  # fcntl may say either
            self._give()
            return False
        return True

    def _give(self) -> None:
        self._set_range(fcntl.F_OFD_SETLK, fcntl.F_UNLCK)
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def _set_range(self, command: int, kind: int) -> None:
        if not self._ranges:
            return
        try:
            fcntl.fcntl(self.descriptor, command, struct.pack(_RANGE, kind, os.SEEK_SET, 0, 0, 0))
        except OSError as fault:
            if fault.errno not in _NO_RANGES:
                raise
            self._ranges = False

    def _wait(self) -> None:
        works = True
        while works:
            works = self._block()
            with self._guard:
                granted = works and self._wanted and self._take()
                if granted or not (works and self._wanted):
                    self._end_wait(granted=granted)
                    return

    def _block(self) -> bool:
        """False if the file system has no locks."""
        try:
            fcntl.flock(self.descriptor, self._flock)
            with self._guard:
                if not self._wanted:
                    return True
            self._set_range(fcntl.F_OFD_SETLKW, self._range)
        except OSError:
            return False
        return True

    def _end_wait(self, *, granted: bool) -> None:
        if granted:
            self._granted.set()
        else:
            self._give()
        self._waits = False
        if self._closed:
            os.close(self.descriptor)
