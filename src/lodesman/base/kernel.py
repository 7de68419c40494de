"""What Linux offers and Python 3.9 does not: attributes of processes, namespaces, mounts, keyrings."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
from typing import NamedTuple

try:
    from ctypes import CDLL, c_long, create_string_buffer, get_errno
except ImportError:  # some interpreters are built without it
    CDLL = None  # type: ignore[assignment, misc]

# Attributes of a process (prctl).
PDEATHSIG, DUMPABLE, TIMER_SLACK, CHILD_SUBREAPER, NO_NEW_PRIVS = 1, 4, 30, 36, 38
# Flags of a mount.
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    *(1, 2, 4, 8, 32, 4096, 16384, 1 << 18),
)
_DETACH = 2
_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_USERS, _NEW_PIDS = (
    *(0x0002_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000),
)
# Of statx: what is asked for, where it stands in the answer, and how long that is; paths begin at the current folder.
_BIRTH, _BIRTH_AT, _STATX_BYTES, _HERE = 0x800, 80, 256, -100
_STATFS_BYTES = 256  # at least
FIRST_LINE_BYTES = 256
_libc = None if CDLL is None else CDLL(None, use_errno=True)
# Calls that the C library has no function for, by the number of the machine's kind.
_KEYCTL, _IOPRIO_GET, _SCHED_GETATTR = range(3)
_GENERIC = (219, 31, 275)
_NUMBERS = {
    "x86_64": (250, 252, 315), "aarch64": _GENERIC, "riscv64": _GENERIC, "loongarch64": _GENERIC,
    "ppc64le": (271, 274, 356), "s390x": (280, 283, 346),
}.get(os.uname().machine)  # fmt: skip
_SCHED_BYTES = 128  # at least
# Of keyctl: its operations, and names of keyrings.
_RING_ID, _UNLINK, _READ, _PERSISTENT = 0, 9, 11, 22
_OF_THREAD, _OF_PROCESS, _OF_SESSION, _OF_USER, _OF_USER_SESSION = -1, -2, -3, -4, -5
_KEY_BYTES, _RING_BYTES = 4, 4096
_FILE_BYTES = 4096  # those of /proc that are read again and again have less


def set_attribute(option: int, value: int) -> bool:
    """False where that is impossible."""
    return _libc is not None and _libc.prctl(option, value, 0, 0, 0) == 0


def separate() -> None:
    """Move to mounts, host name and System V IPC of this process's own; its next child is the first process of a PID
    namespace.

    Without root that takes a user namespace, which has this account's number alone. Raises OSError.
    """
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | _NEW_PIDS | (_NEW_USERS if uid else 0))
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
    """Move to empty System V IPC and message queues of this process's own. Raises OSError."""
    _call("unshare", _NEW_IPC)


def unlock_directory(path: str, *, within: int | None = None) -> None:
    """Let the owner of a directory do all in it; `within`: a descriptor of what the path begins at. A link there is never
    followed. Raises OSError.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(path, flags, dir_fd=within)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 - a keeper starts without pathlib
    finally:
        os.close(descriptor)


def remove_tree(top: str) -> None:
    """Also what its owner may not read; what resists stays. Links are not followed. Any depth costs one descriptor and no
    recursion: paths may be longer than the kernel takes.
    """
    try:
        here = _enter(top)
    except OSError:
        return
    # The folders above that one: their identities, what is left in them, and the name of the next below.
    above: list[tuple[tuple[int, int], list[str], str]] = []
    identity, folders = _identity(here), _remove_files(here)
    try:
        while folders or above:
            name = folders.pop() if folders else ".."
            try:
                below = _enter(name, here)
            except OSError:
                if name == "..":
                    break
                continue
            os.close(here)
            here = below
            if name != "..":
                above.append((identity, folders, name))
                identity, folders = _identity(here), _remove_files(here)
                continue
            identity, folders, name = above.pop()
            if _identity(here) != identity:  # somebody has moved what is below
                break
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)
    with contextlib.suppress(OSError):
        os.rmdir(top)  # noqa: PTH106 - a keeper starts without pathlib


def _enter(path: str, within: int | None = None) -> int:
    if path != "..":
        with contextlib.suppress(OSError):
            unlock_directory(path, within=within)
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=within)


def _identity(descriptor: int) -> tuple[int, int]:
    entry = os.fstat(descriptor)
    return entry.st_dev, entry.st_ino


def _remove_files(descriptor: int) -> list[str]:
    """Returns the names of its folders."""
    folders = []
    with contextlib.suppress(OSError), os.scandir(descriptor) as entries:
        for entry in list(entries):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=descriptor)
    return folders


class Mount(NamedTuple):
    """A mount that this process sees."""

    device: str  # MAJOR:MINOR
    root: str  # what of the file system is shown
    point: str  # where it is shown
    kind: str
    options: frozenset[str]  # of the file system


def parse_mounts(text: str) -> list[Mount]:
    """Of /proc/PID/mountinfo, without lines that are cut short."""
    mounts = []
    for line in text.splitlines():
        place, _, source = line.partition(" - ")
        fields, words = place.split(), source.split()
        if len(fields) >= 5 and words:
            # The kernel writes blanks and backslashes as octal numbers.
            root, point = (
                re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path) for path in fields[3:5]
            )
            mounts.append(Mount(fields[2], root, point, words[0], frozenset(words[-1].split(","))))
    return mounts


def read_mounts() -> list[Mount]:
    """Raises OSError."""
    return parse_mounts(read_file("/proc/self/mountinfo").decode("utf-8", "surrogateescape"))


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Mount a file system, bind a place, or change a mount. Raises OSError."""
    _call("mount", *map(os.fsencode, (source, target, kind)), flags, os.fsencode(data))


def unmount(target: str) -> None:
    """Take away the last mount, as soon as it is unused. Raises OSError."""
    _call("umount2", os.fsencode(target), _DETACH)


def mount_proc() -> None:
    """Show the own PID namespace only. Raises OSError."""
    mount("proc", "/proc", "proc", flags=NO_SUID | NO_DEVICES | NO_EXEC)


def bind(source: str, target: str, *, read_only: bool | None = None) -> None:
    """Show `source`, with all that is mounted below it, at `target` too; `read_only`: None leaves it. Raises OSError."""
    mount(source, target, flags=BIND | RECURSIVE)
    if read_only is not None:
        # What the place has forbidden must be said again.
        kept = os.statvfs(target).f_flag & (NO_SUID | NO_DEVICES | NO_EXEC)
        mount("none", target, flags=BIND | REMOUNT | kept | (READ_ONLY if read_only else 0))


def birth_of(path: str) -> int:
    """In ns since 1970; 0 where the kernel or the file system does not say."""
    if _libc is None or not hasattr(_libc, "statx"):
        return 0
    buffer = create_string_buffer(_STATX_BYTES)
    if (
        _libc.statx(_HERE, os.fsencode(path), 0, _BIRTH, buffer)
        or not _BIRTH & struct.unpack_from("=I", buffer)[0]
    ):
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds)


def file_system(descriptor: int) -> int | None:
    """Its f_type of statfs; None where that is not known."""
    if _libc is None or not hasattr(_libc, "fstatfs"):
        return None
    buffer = create_string_buffer(_STATFS_BYTES)
    return (
        None if _libc.fstatfs(descriptor, buffer) else int(struct.unpack_from("@l", buffer)[0]) & 0xFFFF_FFFF
    )


class OomScore:
    """When memory runs out, the kernel ends processes of a high score first; children begin with their parent's."""

    def __init__(self) -> None:
        """Where the score cannot be changed, it stays."""
        self._usual, self._file = 0, -1
        with contextlib.suppress(OSError, ValueError):
            self._file = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._usual = int(os.pread(self._file, 16, 0))

    def change(self, more: int) -> None:
        """What this process starts from now on has that much more, too, than it had at first."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, str(min(1000, self._usual + more)).encode(), 0)


class Keyrings:
    """The keys that all processes of this account share in this user namespace: of its session, its own, and those that
    outlast sessions.
    """

    def __init__(self) -> None:
        """Keys that are there now stay. Raises OSError where it is not known what there is."""
        self._users, self._buffer, self._user = -1, create_string_buffer(_RING_BYTES), 0
        try:
            _ask(_KEYCTL, _RING_ID, _OF_THREAD, 0)
        except OSError as fault:
            # Not in this kernel, or forbidden to this process: then its children, too, have none.
            if fault.errno not in (errno.ENOSYS, errno.EPERM, errno.ENOKEY):
                raise
            if fault.errno == errno.ENOKEY:
                self._users = os.open("/proc/key-users", os.O_RDONLY | os.O_CLOEXEC)
        self._own = b"\n%5d:" % os.geteuid()
        self._before = self._links()

    def clear(self) -> None:
        """Take out the keys that have come since. Raises OSError if one stays, when all others are out."""
        faults = []
        for ring, key in self._links() - self._before:
            try:
                _ask(_KEYCTL, _UNLINK, key, ring)
            except OSError as fault:
                if fault.errno != errno.ENOENT:  # two names may be of one ring
                    faults.append(fault)
        if faults:
            raise faults[0]

    def _links(self) -> set[tuple[int, int]]:
        """An account may have few keyrings, and reading makes some: they are read only if it has keys."""
        if self._users < 0 or self._own not in b"\n" + os.pread(self._users, _FILE_BYTES, 0):
            return set()
        rings = [_OF_SESSION, _OF_USER, _OF_USER_SESSION]
        with contextlib.suppress(OSError):  # some kernels have none
            rings.append(_ask(_KEYCTL, _PERSISTENT, -1, _OF_PROCESS))
        # That is in the one of the session by itself.
        self._user = self._user or _ask(_KEYCTL, _RING_ID, _OF_USER, 0)
        return {(ring, key) for ring in rings for key in self._keys_in(ring) if key != self._user}

    def _keys_in(self, ring: int) -> tuple[int, ...]:
        size = _ask(_KEYCTL, _READ, ring, self._buffer, _RING_BYTES)
        if size > _RING_BYTES:
            raise OSError(errno.E2BIG, "a keyring has too many keys")
        return struct.unpack_from(f"={size // _KEY_BYTES}i", self._buffer)


class Inheritance:
    """What children of this process begin with, and other processes can change: scheduling on processors and disks,
    exactness of timers, core dumps, cgroup, names of the host.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        self._attributes, self._files = create_string_buffer(_SCHED_BYTES), []
        for name in (
            *("self/coredump_filter", "self/autogroup", "self/cgroup"),
            *("sys/kernel/hostname", "sys/kernel/domainname"),
        ):
            with contextlib.suppress(FileNotFoundError):  # this kernel has no such thing
                self._files.append(os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC))

    def now(self) -> tuple[object, ...]:
        """Raises OSError where it is not known."""
        _ask(_SCHED_GETATTR, 0, self._attributes, _SCHED_BYTES, 0)
        slack = 0 if _libc is None else _libc.prctl(TIMER_SLACK, 0, 0, 0, 0)
        texts = [os.pread(file, _FILE_BYTES, 0) for file in self._files]
        return self._attributes.raw, _ask(_IOPRIO_GET, 1, 0), slack, *texts


def _ask(call: int, *arguments: object) -> int:
    if _libc is None or _NUMBERS is None:
        raise OSError(errno.EOPNOTSUPP, "the numbers of calls are unknown on such a machine")
    exact = [
        c_long(argument) if isinstance(argument, int) else argument
        for argument in (_NUMBERS[call], *arguments)
    ]
    answer = int(_libc.syscall(*exact))
    if answer < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def wants_interpreter_with_cr(head: bytes) -> bool:
    """Linux wants an interpreter with CR at the end of its name, or hands CR to it, if a script's first line ends with CR
    LF.
    """
    line, end, _ = head[:FIRST_LINE_BYTES].partition(b"\n")
    return bool(end) and line.startswith(b"#!") and line.endswith(b"\r")


def read_file(path: str) -> bytes:
    """With as few calls as can be, for files of /proc. Raises OSError."""
    descriptor, parts = os.open(path, os.O_RDONLY | os.O_CLOEXEC), []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def boot_id() -> str:
    """Names this start of this machine, with the end of the line. Raises OSError."""
    return read_file("/proc/sys/kernel/random/boot_id").decode("ascii")


def _call(name: str, *arguments: int | bytes) -> None:
    """Raises OSError, also where the call is unknown."""
    if _libc is None:
        raise OSError(38, "Python has no ctypes")
    if getattr(_libc, name)(*arguments) != 0:
        number = get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
