"""Reads a directory in a process of its own, with the rights of the job's user: a daemon of root may read what users write.

A file system that hangs, or a reader that is tricked, costs that process. What comes back is a struct of fixed length.
"""

from __future__ import annotations

import os
import pwd
import resource
import select
import signal
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lodesman import kernel

from .channel import LOCK, READER_WAIT_S, REASONS, Reading, Unreadable, owner_of, read
from .values import KEYS, LONGEST, Flags, InvalidStatus, Status, repair
from .values import read as read_values

# Reason (0: none), key at fault, and of each key: length (255: no file), content, time.
_ANSWER = struct.Struct("<BB" + f"B{LONGEST}sd" * len(KEYS))
_NO_FILE = 255
# What is left of the time when the reader itself stops waiting for the lock, and what its end may take.
_SPARE_S, _END_S = 0.3, 1.0
_FILES, _CPU_S = 16, 2
_NOBODY = 65_534
# Files are written within this time: used_CPU, the last of them, is not older.
_PUBLICATION_S = 10
_CLOCK_S = 60
# Killed readers that had not ended yet.
_left: set[int] = set()


@dataclass(frozen=True)
class StatusSnapshot:
    """What a job published. status: repaired; None if there is a fault. as_of: UNIX seconds; age_s: None if unknown.

    flags: what was repaired or is doubtful, as `what` or `what:KEY`. interrupted: the writer died between two files; clock:
    written more than 60 s in the future. fault: why there are no values, of REASONS or of InvalidStatus, in the same form.
    """

    status: Status | None
    as_of: float | None = None
    age_s: float | None = None
    flags: Flags = ()
    fault: str | None = None


def take_snapshot(
    directory: Path,
    *,
    now: float,
    allocated: int | None = None,
    uid: int | None = None,
    strict: bool = False,
) -> StatusSnapshot:
    """The status in this directory. Safe for root, whatever the user put there, and done within 6 s.

    allocated: the job's cores by the batch system's own record. uid: the job's user by it (None: the directory's owner).
    """
    try:
        reading = read_apart(directory, uid=uid)
        found, spelling = read_values(reading.contents, strict=strict)
        status, repairs = repair(found, now=now, allocated=allocated, strict=strict)
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
    """`channel.read` in a process that has no more rights than the job's user, and ends in time. Raises Unreadable."""
    for pid in tuple(_left):
        _reap(pid, os.WNOHANG)
    ends = time.monotonic() + limit_s
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        _serve(directory, uid, sending, ends - _SPARE_S)
    os.close(sending)
    try:
        # One write of less than a page arrives whole.
        data = os.read(receiving, _ANSWER.size) if _is_ready(receiving, ends - time.monotonic()) else b""
        with suppress(ProcessLookupError):  # where children are not waited for
            os.kill(pid, signal.SIGKILL)  # its user may have stopped it
        # The last copy of its end of the pipe closes when it ends.
        ended = _is_ready(receiving, _END_S)
    finally:
        os.close(receiving)
    _reap(pid, 0 if ended else os.WNOHANG)
    return _unpacked(data)


def _is_ready(descriptor: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, wait_s) * 1000))


def _reap(pid: int, how: int) -> None:
    _left.add(pid)
    with suppress(ChildProcessError):
        if os.waitpid(pid, how)[0] == 0:
            return
    _left.discard(pid)


def _unpacked(data: bytes) -> Reading:
    if len(data) != _ANSWER.size:
        raise Unreadable("no-answer")
    reason, at, *fields = _ANSWER.unpack(data)
    if reason:
        raise Unreadable(REASONS[(reason - 1) % len(REASONS)], KEYS[at] if at < len(KEYS) else "")
    files = {key: fields[3 * place : 3 * place + 3] for place, key in enumerate(KEYS)}
    there = {key: file for key, file in files.items() if file[0] <= LONGEST}
    contents = {key: bytes(content[:length]) for key, (length, content, _) in there.items()}
    return Reading(contents, {key: float(when) for key, (_, _, when) in there.items()})


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
    """Keep nothing of the process before but its end of the pipe, and little to spend."""
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
    """Drop all rights but those of this user; the user must not read this memory either. Raises Unreadable."""
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
