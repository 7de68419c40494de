"""What Linux offers and Python 3.9 does not: attributes of processes, namespaces, mounts. Standard library only."""

from __future__ import annotations

import contextlib
import os
import struct

try:
    from ctypes import CDLL, create_string_buffer, get_errno
except ImportError:  # some interpreters are built without it
    CDLL = None  # type: ignore[assignment, misc]

# Attributes of a process (prctl).
PDEATHSIG, DUMPABLE, CHILD_SUBREAPER, NO_NEW_PRIVS = 1, 4, 36, 38
# Flags of a mount.
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    *(1, 2, 4, 8, 32, 4096, 16384, 1 << 18),
)
_DETACH = 2
_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PIDS = 0x0002_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000
# Of statx: what is asked for, where it stands in the answer, and how long that is; paths begin at the current folder.
_BIRTH, _BIRTH_AT, _STATX_BYTES, _HERE = 0x800, 80, 256, -100
_STATFS_BYTES = 256  # at least
# Of a process that is forked and has executed no program (PF_FORKNOEXEC).
_FORKED_ONLY = 0x40
_libc = None if CDLL is None else CDLL(None, use_errno=True)


def set_attribute(option: int, value: int) -> bool:
    """Set an attribute of this process. False where that is impossible."""
    return _libc is not None and _libc.prctl(option, value, 0, 0, 0) == 0


def separate() -> None:
    """Move to mounts and System V IPC of this process's own; its next child is the first process of a PID namespace.

    Without root that takes a user namespace, in which this account has its own number and no others exist. Raises OSError.
    """
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NEW_MOUNTS | _NEW_IPC | _NEW_PIDS | (_NEW_USERS if uid else 0))
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - a keeper starts without pathlib
                file.write(text)
    mount("none", "/", flags=RECURSIVE | PRIVATE)


def separate_ipc() -> None:
    """Move to System V IPC and message queues of this process's own, empty ones. Raises OSError."""
    _call("unshare", _NEW_IPC)


def unlock_directory(path: str) -> None:
    """Let the owner of a directory do all in it. A link there is not followed, whoever put it there at whatever moment.
    Raises OSError.
    """
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 - a keeper starts without pathlib
    finally:
        os.close(descriptor)


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Mount a file system, bind a place, or change a mount. Raises OSError."""
    _call("mount", *map(os.fsencode, (source, target, kind)), flags, os.fsencode(data))


def unmount(target: str) -> None:
    """Take away what was mounted last, as soon as it is unused. Raises OSError."""
    _call("umount2", os.fsencode(target), _DETACH)


def mount_proc() -> None:
    """Show the processes of the own PID namespace only. Raises OSError."""
    mount("proc", "/proc", "proc", flags=NO_SUID | NO_DEVICES | NO_EXEC)


def bind(source: str, target: str, *, read_only: bool | None = None) -> None:
    """Show `source`, with all that is mounted below it, at `target` too; `read_only`: None leaves it. Raises OSError."""
    mount(source, target, flags=BIND | RECURSIVE)
    if read_only is not None:
        # What the place has forbidden must be said again.
        kept = os.statvfs(target).f_flag & (NO_SUID | NO_DEVICES | NO_EXEC)
        mount("none", target, flags=BIND | REMOUNT | kept | (READ_ONLY if read_only else 0))


def birth_of(path: str) -> int:
    """When a file was made, in ns since 1970; 0 where the kernel or the file system does not say."""
    if _libc is None or not hasattr(_libc, "statx"):
        return 0
    found = create_string_buffer(_STATX_BYTES)
    if (
        _libc.statx(_HERE, os.fsencode(path), 0, _BIRTH, found)
        or not _BIRTH & struct.unpack_from("=I", found)[0]
    ):
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds)


def file_system(descriptor: int) -> int | None:
    """The kind (f_type of statfs) of the file system of an open file; None where that is not known."""
    if _libc is None or not hasattr(_libc, "fstatfs"):
        return None
    found = create_string_buffer(_STATFS_BYTES)
    return None if _libc.fstatfs(descriptor, found) else int(struct.unpack_from("@l", found)[0]) & 0xFFFF_FFFF


class OomScore:
    """When memory runs out, the kernel ends processes of a high score first; children begin with that of their parent."""

    def __init__(self) -> None:
        """Where the score cannot be changed, it stays."""
        self._usual, self._file = 0, -1
        with contextlib.suppress(OSError, ValueError):
            self._file = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._usual = int(os.pread(self._file, 16, 0))

    def change(self, more: int) -> None:
        """Let this process, and what it starts from now on, have that much more than it had at first."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, str(min(1000, self._usual + more)).encode(), 0)


def has_executed(pid: int) -> bool:
    """Whether a child, which may have ended, became another program: the kernel marks one that did not."""
    flags = int(read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6])
    return not flags & _FORKED_ONLY


def read_file(path: str) -> bytes:
    """A file of /proc, with as few calls as can be. Raises OSError."""
    descriptor, parts = os.open(path, os.O_RDONLY | os.O_CLOEXEC), []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def threads() -> int:
    """The threads of all processes that can be seen."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                found += int(file.read().rpartition(b")")[2].split()[17])
    return found


def _call(name: str, *arguments: int | bytes) -> None:
    """Raises OSError, also where the call is unknown."""
    if _libc is None:
        raise OSError(38, "Python has no ctypes")
    if getattr(_libc, name)(*arguments) != 0:
        number = get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
