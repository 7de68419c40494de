"""The channel on disk: a directory with one file for each key, and the lock on used_CPU that keeps the nine together.

Both sides take flock(2), then fcntl(2) by open file description: others use either, and local file systems keep them apart.
used_CPU is written in place, padded, since others go on locking a replaced file; the rest is renamed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .locks import Lock, takes_both
from .values import KEYS, LONGEST, Status, render

WRITER_WAIT_S = 2.0
READER_WAIT_S = 5.0
LOCK, *_OTHERS = KEYS
_FIRST = f".{LOCK}.new"
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY_REASONS = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "not-a-directory",
    errno.ELOOP: "not-a-directory",
}
# An open that must not wait says EAGAIN for a file with a lease, ENXIO for a socket.
_FILE_REASONS = {errno.ELOOP: "symlink", errno.EAGAIN: "busy", errno.ENXIO: "not-a-file"}
# Reading is tried again if used_CPU was replaced while it was being locked.
_TRIES = 3


REASONS = (
    *("absent", "not-a-directory", "wrong-owner", "writable-by-others", "unreadable", "locked", "busy"),
    *("symlink", "not-a-file", "hard-link", "other-device", "too-long", "no-answer", "not-permitted"),
)
"""Why a directory is not read. locked: for too long; busy: a file has a lease, or is being replaced; no-answer: the reader
was ended; not-permitted: it could not become the job's user.
"""


class Unreadable(Exception):
    """A directory whose files must not, or cannot, be read now. `reason`: of REASONS. `key`: the file at fault."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.reason = reason
        self.key = key


@dataclass(frozen=True)
class Reading:
    """The files of one publication by key, with when each was written (UNIX seconds)."""

    contents: Mapping[str, bytes]
    times: Mapping[str, float]


# --- writing --------------------------------------------------------------------------------------------------------------


class Publication:
    """What one job publishes in a directory. One thread at a time.

    Raises ValueError for a relative path, OSError if others can write there or locks cannot be used (SMB, local ones of
    NFS).
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_absolute():
            raise ValueError(f"{str(directory)!r} is not an absolute path")
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        self._lock: Lock | None = None
        try:
            self._ranges = _check_own(self._directory)
        except OSError:
            os.close(self._directory)
            raise

    def publish(self, status: Status) -> bool:
        """Write all nine keys; one without a value has no file. False: not locked within 2 s, nothing was written.

        Raises OSError; the files may then be of two publications.
        """
        contents = {key: render(key, value) for key, value in status.items().items() if value is not None}
        if LOCK not in contents:
            raise ValueError("used_CPU has no value")
        if self._lock is None:
            self._lock = self._open_lock()
        lock = self._lock
        if lock is None or not lock.acquire(WRITER_WAIT_S):
            return False
        try:
            return self._write(lock.descriptor, contents)
        finally:
            lock.release()
            self._lock = None
            lock.close()

    def close(self) -> None:
        """What is published stays."""
        if self._lock is not None:
            self._lock.close()
        os.close(self._directory)

    def _open_lock(self) -> Lock | None:
        """On used_CPU, or on the file that will be it, perhaps left by a dead writer."""
        for name, more in ((LOCK, 0), (_FIRST, os.O_CREAT | os.O_EXCL), (_FIRST, 0)):
            with suppress(FileNotFoundError, FileExistsError):
                descriptor = os.open(name, os.O_RDWR | _OPEN | more, 0o644, dir_fd=self._directory)
                facts = os.fstat(descriptor)
                if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and facts.st_nlink == 1:
                    return Lock(descriptor, ranges=self._ranges)
                os.close(descriptor)
                raise PermissionError(errno.EPERM, "Not a file of this user alone", name)
        return None

    def _write(self, descriptor: int, contents: Mapping[str, bytes]) -> bool:
        first = _is_at(self._directory, _FIRST, descriptor)
        if _exists(self._directory, LOCK) if first else not _is_at(self._directory, LOCK, descriptor):
            return False  # another writer was there
        for key in _OTHERS:
            if key in contents:
                self._write_new(f".{key}.new", contents[key])
        for key in _OTHERS:
            if key in contents:
                os.rename(f".{key}.new", key, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(key, dir_fd=self._directory)
        _write_in_place(descriptor, contents[LOCK])
        if first:
            os.rename(_FIRST, LOCK, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        return True

    def _write_new(self, name: str, content: bytes) -> None:
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        try:
            descriptor = os.open(name, how, 0o644, dir_fd=self._directory)
        except FileExistsError:  # left by a writer that died
            os.unlink(name, dir_fd=self._directory)
            descriptor = os.open(name, how, 0o644, dir_fd=self._directory)
        try:
            _check_whole(os.write(descriptor, content), content)
        finally:
            os.close(descriptor)


def _write_in_place(descriptor: int, content: bytes) -> None:
    """Whole at every moment: what is left of a longer value is white space."""
    length = os.fstat(descriptor).st_size
    padded = content.ljust(min(length, LONGEST), b"\n")
    _check_whole(os.pwrite(descriptor, padded, 0), padded)
    os.ftruncate(descriptor, len(content))


def _check_whole(written: int, content: bytes) -> None:
    if written != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_at(directory: int, name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _check_own(directory: int) -> bool:
    facts = os.fstat(directory)
    if facts.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "The directory belongs to another user")
    if facts.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "Others can write to the directory")
    return takes_both(directory)


# --- reading --------------------------------------------------------------------------------------------------------------


def read(directory: Path, *, uid: int | None = None, wait_s: float = READER_WAIT_S) -> Reading:
    """All files of one publication; none without used_CPU. `uid`: of the job's user (None: the directory's owner). Nothing
    there is trusted: it is opened once, of it the nine names, as files that can be read at once. Raises Unreadable.
    """
    ends = time.monotonic() + wait_s
    with _open_folder(directory, uid) as folder:
        for _ in range(_TRIES):
            descriptor = folder.open(LOCK)
            if descriptor is None:
                return Reading({}, {})
            with _hold_locks(descriptor, ends - time.monotonic(), folder.takes_both):
                if _is_at(folder.descriptor, LOCK, descriptor):
                    return folder.read_all(descriptor)
    raise Unreadable("busy", LOCK)


def owner_of(directory: Path) -> int:
    """Raises Unreadable."""
    with _open_folder(directory, None) as folder:
        return folder.uid


@contextmanager
def _open_folder(directory: Path, uid: int | None) -> Iterator[_Folder]:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
    except OSError as fault:
        raise Unreadable(_DIRECTORY_REASONS.get(fault.errno or 0, "unreadable")) from None
    try:
        facts = os.fstat(descriptor)
        if uid is not None and facts.st_uid != uid:
            raise Unreadable("wrong-owner")
        if facts.st_mode & 0o022:
            raise Unreadable("writable-by-others")
        yield _Folder(descriptor, facts.st_uid, facts.st_dev)
    finally:
        os.close(descriptor)


@contextmanager
def _hold_locks(descriptor: int, wait_s: float, ranges: bool) -> Iterator[None]:
    """By both kinds where they are two: a foreign writer may take either."""
    lock = Lock(descriptor, shared=True, ranges=ranges)
    try:
        if not lock.acquire(max(0.0, wait_s)):
            raise Unreadable("locked", LOCK)
        try:
            yield
        finally:
            lock.release()
    except OSError:
        raise Unreadable("unreadable", LOCK) from None
    finally:
        lock.close()


@dataclass(frozen=True)
class _Folder:
    descriptor: int
    uid: int
    device: int

    @property
    def takes_both(self) -> bool:
        """What a writer refuses may be read all the same."""
        try:
            return takes_both(self.descriptor)
        except OSError:
            return False

    def open(self, key: str) -> int | None:
        try:
            # What is opened may act, as a device does: so it is asked what it is before, and after.
            reason = self._fault(os.stat(key, dir_fd=self.descriptor, follow_symlinks=False))
            if reason:
                raise Unreadable(reason, key)
            descriptor = os.open(key, os.O_RDONLY | _OPEN, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise Unreadable(_FILE_REASONS.get(fault.errno or 0, "unreadable"), key) from None
        reason = self._fault(os.fstat(descriptor))
        if reason:
            os.close(descriptor)
            raise Unreadable(reason, key)
        return descriptor

    def _fault(self, facts: os.stat_result) -> str | None:
        if not stat.S_ISREG(facts.st_mode):
            return "symlink" if stat.S_ISLNK(facts.st_mode) else "not-a-file"
        if facts.st_uid != self.uid:
            return "wrong-owner"
        if facts.st_nlink > 1:
            return "hard-link"
        if facts.st_dev != self.device:
            return "other-device"
        return "too-long" if facts.st_size > LONGEST else None

    def read_all(self, locked: int) -> Reading:
        contents, times = {}, {}
        for key in KEYS:
            descriptor = locked if key == LOCK else self.open(key)
            if descriptor is None:
                continue
            try:
                contents[key] = os.read(descriptor, LONGEST + 1)
                times[key] = os.fstat(descriptor).st_mtime
            except OSError as fault:
                raise Unreadable(_FILE_REASONS.get(fault.errno or 0, "unreadable"), key) from None
            finally:
                if descriptor != locked:
                    os.close(descriptor)
            if len(contents[key]) > LONGEST:
                raise Unreadable("too-long", key)
        return Reading(contents, times)
