"""Reads a directory in a process with the rights of the job's user: a daemon of root may read what users write.

What hangs or is tricked is that process, whose answer has a fixed length. Many directories are read at once: a held lock
delays no one else.
"""

from __future__ import annotations

import os
import pwd
import resource
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, Union

from lodesman.base import kernel

from .channel import LOCK, READER_WAIT_S, REASONS, Reading, Unreadable, owner_of, read
from .values import KEYS, LONGEST, Flags, InvalidStatus, Status, repair
from .values import read as read_values

# Reason (0: none), key at fault, and of each key: length (255: no file), content, time.
_ANSWER = struct.Struct("<BB" + f"B{LONGEST}sd" * len(KEYS))
_NO_FILE = 255
# What is left of the time when the reader itself stops waiting for the lock, and what its end may take.
_SPARE_S, _END_S = 0.3, 1.0
# The processes that read at once, and how long each may take when the time for all is over.
_AT_ONCE, _GRACE_S = 64, 1.0
_FILES, _CPU_S = 16, 2
_NOBODY = 65_534
# Files are written within this time: used_CPU, the last of them, is not older.
_PUBLICATION_S = 10
_CLOCK_S = 60
# Killed readers that had not ended yet.
_left: set[int] = set()
_Found = Union[Reading, Unreadable]


@dataclass(frozen=True)
class StatusSnapshot:
    """What a job published."""

    status: Status | None  # repaired; None if there is a fault
    as_of: float | None = None  # UNIX seconds
    age_s: float | None = None
    # What was repaired or is doubtful, as `what` or `what:KEY`. interrupted: the writer died between two files; clock:
    # written more than 60 s in the future.
    flags: Flags = ()
    fault: str | None = None  # why there are no values, of REASONS or of InvalidStatus


@dataclass(frozen=True)
class JobDirectory:
    """Where a job publishes."""

    path: Path
    allocated: int | None = None  # its cores by the batch system
    uid: int | None = None  # its user by it; None: the directory's owner


def take_snapshots(
    directories: Sequence[JobDirectory], *, now: float, strict: bool = False, limit_s: float = READER_WAIT_S
) -> list[StatusSnapshot]:
    """Directories that are locked or hang share `limit_s`, and then have a fault."""
    readings = read_together(directories, limit_s)
    return [_judge(directory, reading, now, strict) for directory, reading in zip(directories, readings)]


def take_snapshot(
    directory: Path,
    *,
    now: float,
    allocated: int | None = None,
    uid: int | None = None,
    strict: bool = False,
) -> StatusSnapshot:
    """Safe for root, whatever the user put there, and done within 6 s."""
    return take_snapshots([JobDirectory(directory, allocated, uid)], now=now, strict=strict)[0]


def _judge(directory: JobDirectory, reading: _Found, now: float, strict: bool) -> StatusSnapshot:
    try:
        if isinstance(reading, Unreadable):
            raise reading
        as_read, spelling = read_values(reading.contents, strict=strict)
        status, repairs = repair(as_read, now=now, allocated=directory.allocated, strict=strict)
    except (Unreadable, InvalidStatus) as fault:
        return StatusSnapshot(None, fault=f"{fault.reason}:{fault.key}" if fault.key else fault.reason)
    as_of = reading.times[LOCK]
    flags = {*spelling, *repairs}
    if max(reading.times.values()) > as_of + _PUBLICATION_S:
        flags.add("interrupted")
    if as_of > now + _CLOCK_S:
        flags.add("clock")
    age = None if "clock" in flags else max(0.0, now - as_of)
    return StatusSnapshot(status, as_of, age, tuple(sorted(flags)))


def read_apart(directory: Path, *, uid: int | None = None, limit_s: float = READER_WAIT_S) -> Reading:
    """`channel.read` with the rights of the job's user, in time. Raises Unreadable."""
    (reading,) = read_together([JobDirectory(directory, uid=uid)], limit_s)
    if isinstance(reading, Unreadable):
        raise reading
    return reading


def read_together(directories: Sequence[JobDirectory], limit_s: float) -> list[_Found]:
    """As `read_apart`. Locks are waited for when all were tried."""
    for pid in tuple(_left):
        _reap(pid, os.WNOHANG)
    readers, wait_s = _Readers(limit_s), limit_s - _SPARE_S
    readings = readers.read(dict(enumerate(directories)), wait_s if len(directories) <= _AT_ONCE else 0.0)
    locked = {
        at: directories[at]
        for at, reading in readings.items()
        if isinstance(reading, Unreadable) and reading.reason == "locked"
    }
    if locked and len(directories) > _AT_ONCE:
        readers.left = max(readers.left, limit_s / 2)
        turns = -(-len(locked) // _AT_ONCE)
        again = readers.read(locked, readers.left / turns - _SPARE_S)
        readings.update((at, reading) for at, reading in again.items() if not _is_silent(reading))
    return [readings[at] for at in range(len(directories))]


def _is_silent(reading: _Found) -> bool:
    return isinstance(reading, Unreadable) and reading.reason == "no-answer"


class _ReadingProcess(NamedTuple):
    pid: int
    at: int
    receiving: int
    ends: float


class _Readers:
    """Some read at once. `left`: the seconds for which all of them may still be waited for."""

    def __init__(self, left: float) -> None:
        self.left = left
        self._at_work: dict[int, _ReadingProcess] = {}

    def read(self, directories: Mapping[int, JobDirectory], wait_s: float) -> dict[int, _Found]:
        todo, readings = deque(directories.items()), {}
        try:
            while todo or self._at_work:
                while todo and len(self._at_work) < _AT_ONCE:
                    self._begin(*todo.popleft(), wait_s)
                readings.update(self._end(self._wait()))
        finally:
            self._end(list(self._at_work.values()))  # where an exception came in between
        return readings

    def _begin(self, at: int, directory: JobDirectory, wait_s: float) -> None:
        receiving, sending = os.pipe()
        pid = os.fork()
        if pid == 0:
            _serve(directory.path, directory.uid, sending, time.monotonic() + wait_s)
        os.close(sending)
        self._at_work[receiving] = _ReadingProcess(
            pid, at, receiving, time.monotonic() + max(self.left, _GRACE_S)
        )

    def _wait(self) -> list[_ReadingProcess]:
        begun, ends = time.monotonic(), min(process.ends for process in self._at_work.values())
        ready = _are_ready(self._at_work, ends - begun)
        now = time.monotonic()
        self.left -= now - begun
        return [
            process for process in self._at_work.values() if process.receiving in ready or now >= process.ends
        ]

    def _end(self, ended: Sequence[_ReadingProcess]) -> dict[int, _Found]:
        readings, ends = {}, time.monotonic() + _END_S
        for process in ended:
            # One write of less than a page arrives whole.
            data = os.read(process.receiving, _ANSWER.size) if _are_ready([process.receiving], 0.0) else b""
            readings[process.at] = _unpack(data)
            with suppress(ProcessLookupError):  # where children are not waited for
                os.kill(process.pid, signal.SIGKILL)  # its user may have stopped it
        for process in ended:
            # The last copy of its end of the pipe closes when it ends.
            has_ended = _are_ready([process.receiving], ends - time.monotonic())
            os.close(process.receiving)
            del self._at_work[process.receiving]
            _reap(process.pid, 0 if has_ended else os.WNOHANG)
        return readings


def _are_ready(descriptors: Iterable[int], wait_s: float) -> set[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, wait_s) * 1000)}


def _reap(pid: int, how: int) -> None:
    _left.add(pid)
    with suppress(ChildProcessError):
        if os.waitpid(pid, how)[0] == 0:
            return
    _left.discard(pid)


def _unpack(data: bytes) -> _Found:
    if len(data) != _ANSWER.size:
        return Unreadable("no-answer")
    reason, at, *fields = _ANSWER.unpack(data)
    if reason:
        return Unreadable(REASONS[(reason - 1) % len(REASONS)], KEYS[at] if at < len(KEYS) else "")
    files = {key: fields[3 * place : 3 * place + 3] for place, key in enumerate(KEYS)}
    present = {key: file for key, file in files.items() if file[0] <= LONGEST}
    contents = {key: bytes(content[:length]) for key, (length, content, _) in present.items()}
    return Reading(contents, {key: float(when) for key, (_, _, when) in present.items()})


# --- the process that reads -----------------------------------------------------------------------------------------------


def _serve(directory: Path, uid: int | None, sending: int, ends: float) -> NoReturn:
    try:
        os.write(sending, _answer(directory, uid, sending, ends))
    finally:
        os._exit(0)


def _answer(directory: Path, uid: int | None, sending: int, ends: float) -> bytes:
    try:
        _stand_apart(sending)
        if os.geteuid() == 0:
            uid = owner_of(directory) if uid is None else uid
            _become(uid)
        reading = read(directory, uid=uid, wait_s=ends - time.monotonic())
    except Unreadable as fault:
        at = KEYS.index(fault.key) if fault.key else len(KEYS)
        return _ANSWER.pack(REASONS.index(fault.reason) + 1, at, *(_NO_FILE, b"", 0.0) * len(KEYS))
    files = [(reading.contents.get(key), reading.times.get(key, 0.0)) for key in KEYS]
    fields = [(_NO_FILE, b"", 0.0) if data is None else (len(data), data, when) for data, when in files]
    return _ANSWER.pack(0, 0, *(field for file in fields for field in file))


def _stand_apart(sending: int) -> None:
    """Keep nothing but its end of the pipe, and little to spend."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for name in os.listdir("/proc/self/fd"):
        if int(name) != sending:
            with suppress(OSError):
                os.close(int(name))
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, _CPU_S),
    ):
        resource.setrlimit(limit, (most, most))


def _become(uid: int) -> None:
    """The user must not read this memory either. Raises Unreadable."""
    try:
        user = pwd.getpwuid(uid)
        gid, groups = user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:
        gid, groups = _NOBODY, []
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError:
        raise Unreadable("not-permitted") from None
    kernel.set_attribute(kernel.DUMPABLE, 0)
