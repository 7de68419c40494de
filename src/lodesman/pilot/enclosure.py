"""Inside a warden: it starts payloads one after the other, and clears up after each."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import socket
import stat
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from lodesman.base import kernel, processes
from lodesman.pilot.surroundings import folders_of, other_pilots
from lodesman.pilot.warden import (
    END,
    INT,
    NEVER_RAN,
    NO_INPUT,
    READY,
    RUNS,
    Launch,
    NoInput,
    WardenFrame,
    receive_launch,
    send_launch,
)

# What a shell says of a program that cannot be executed, or is not there.
_EXIT_OF = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.EPERM: 126, errno.ENOEXEC: 126}
_CANNOT = 'echo "$0: $1" >&2; exit "$2"'  # $0 is the program, then the fault and the code
_OOM_SCORE = 300  # memory that runs out is taken from payloads first
# What the kernel says of a process, here of the warden.
_OF_A_PROCESS = re.compile(r"/proc/\d+(/|$)")
_LIMITS = 16  # Linux numbers its limits from 0
_SHM = "/dev/shm"  # noqa: S108
_TMP = "/tmp"  # noqa: S108 - the link has a name that nobody knows before
_QUEUES = "/dev/mqueue"
_PLAIN = kernel.NO_SUID | kernel.NO_DEVICES
# What Grid Engine sends to all processes of a job before it ends or stops them: where the pilot ignores it, its payloads do.
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)


class Recipe(NamedTuple):
    """What a warden is made with."""

    hidden: Sequence[str]  # folders that its payloads find empty
    name: str  # of its own folder in the first of them
    homes: Sequence[str]  # folders in which they cannot write
    confined: bool  # it is the first process of a PID namespace


def serve(channel: socket.socket, recipe: Recipe) -> NoReturn:
    """Be the warden: a confined one until the pilot closes the channel, others for one payload."""
    try:
        enclosure = _Enclosure(recipe)
        score = kernel.OomScore()
        score.change(_OOM_SCORE)
        _rehearse()
        while (received := receive_launch(channel)) is not None:
            payload, answer = enclosure.start(*received)
            score.change(0)
            channel.sendall(INT.pack(answer))
            if not payload:
                break
            _follow(channel, payload, confined=recipe.confined)
            if not recipe.confined:
                enclosure.forget_short()
                break
            enclosure.clear()
            score.change(_OOM_SCORE)
            channel.sendall(READY)
        os._exit(0)
    finally:
        os._exit(1)


def _follow(channel: socket.socket, payload: int, *, confined: bool) -> None:
    """The end is answered at once, and again if more was left then."""
    status, cpu_seconds, answered = None, 0.0, False
    while True:
        try:
            pid, how, used = os.wait4(-1, 0 if status is None or answered else os.WNOHANG)
        except ChildProcessError:
            channel.sendall(END.pack(status or 0, cpu_seconds, True))
            return
        if not pid:
            answered = True
            with contextlib.suppress(OSError):
                channel.sendall(END.pack(status or 0, cpu_seconds, False))
            continue
        cpu_seconds += used.ru_utime + used.ru_stime
        if pid == payload:
            status = how
            if confined:
                _kill_all()


class _Enclosure:
    def __init__(self, recipe: Recipe) -> None:
        self._confined = recipe.confined
        self._limited = False
        self._bearing: tuple[object, ...] = ()
        self._folder = self._home = self._short = ""
        self._memory: _SharedMemory | None = None
        # None, and no bearing: nobody knows, and so the warden ends after one payload.
        self._keyrings: kernel.Keyrings | None = None
        self._handed_down: kernel.Inheritance | None = None
        if self._confined:
            self._hide(recipe)
            with contextlib.suppress(OSError):
                self._keyrings, self._handed_down = kernel.Keyrings(), kernel.Inheritance()
            self._marks = _marks_of(self._folder)
            signal.signal(signal.SIGTERM, _kill_all)
        else:
            kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
        os.setsid()

    def _hide(self, recipe: Recipe) -> None:
        """Of the pilot's folders only the warden's own is seen; nothing beside it can be written, renamed or locked."""
        own = -1
        if recipe.hidden:
            self._folder = os.path.join(recipe.hidden[0], recipe.name)  # noqa: PTH118
            own = os.open(self._folder, os.O_PATH)
        folders = folders_of(recipe.hidden)
        for home in (*recipe.homes, *folders) if recipe.hidden else ():
            with contextlib.suppress(OSError):  # where the kernel lets us
                kernel.bind(home, home, read_only=True)
        hide(recipe.hidden)
        for place in (other for folder in folders for other in other_pilots(folder)):
            with contextlib.suppress(OSError):  # it may have ended
                kernel.mount("none", place, "tmpfs", flags=_PLAIN | kernel.READ_ONLY, data="size=4k,mode=700")
        if own >= 0:
            _show(own, self._folder)
        for place in recipe.hidden:
            kernel.mount("none", place, flags=_PLAIN | kernel.REMOUNT | kernel.READ_ONLY)

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
        try:
            self._home = request["directory"]
            if self._confined:  # by now the pilot is the parent
                kernel.set_attribute(kernel.PDEATHSIG, signal.SIGKILL)
                if self._memory is None or not self._memory.serves(self._home, request["shm_mb"]):
                    self._memory = _SharedMemory(self._home, request["shm_mb"])
            os.chdir(self._home)
            if request["tmp"]:
                self._shorten(request)
            if not self._limited:
                _set_limits(WardenFrame(*request["frame"]), confined=self._confined)
                self._limited = True
                with contextlib.suppress(OSError):
                    self._bearing = self._bearing_now()
            payload = _start(request, [_open_input(request["stdin"]), *streams])
            return payload, RUNS if _has_executed(payload) else NEVER_RAN
        except NoInput as fault:
            return 0, NO_INPUT + (fault.errno or errno.EINVAL)
        except (OSError, ValueError) as fault:
            return 0, getattr(fault, "errno", 0) or errno.EINVAL

    def _shorten(self, request: Mapping[str, Any]) -> None:
        """The payload's TMPDIR gets a short name: in its own memory, else by a link in /tmp."""
        name = f"{_SHM}/lode-tmp" if self._confined else f"{_TMP}/lode-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):  # the long one serves most programs
            if self._confined:
                os.mkdir(name, 0o700)  # noqa: PTH102 - as in `hide`
                self._short = name
                kernel.bind(request["tmp"], name)
            else:
                os.symlink(request["tmp"], name)  # noqa: PTH211
                self._short = name
                name += "/"  # most programs follow a link then
            request["environment"]["TMPDIR"] = name

    def forget_short(self) -> None:
        name, self._short = self._short, ""
        with contextlib.suppress(OSError):
            if name and self._confined:
                kernel.unmount(name)
                os.rmdir(name)  # noqa: PTH106 - as in `hide`
            elif name:
                os.unlink(name)  # noqa: PTH108

    def _bearing_now(self) -> tuple[object, ...]:
        """What payloads inherit from the warden, and others of its account can change."""
        limits = tuple(map(resource.getrlimit, range(_LIMITS)))
        if self._handed_down is None:
            raise OSError(errno.EOPNOTSUPP, "it is not known what payloads inherit")
        return limits, os.sched_getaffinity(0), self._handed_down.now()

    def clear(self) -> None:
        """Remove what a payload may have left in the namespaces. Raises OSError if something stays: the warden ends then."""
        os.chdir("/")
        self.forget_short()
        if self._folder and set(os.listdir(self._folder)) - {os.path.basename(self._home)}:  # noqa: PTH119
            raise OSError(errno.ENOTEMPTY, "a payload has left files beside its folder")
        if self._bearing_now() != self._bearing:  # the warden belongs to the payload's account
            raise OSError(errno.EPERM, "a payload has changed what its warden hands down")
        if self._memory is not None and self._memory.clear():
            self._memory = None
        if _marks_of(self._folder) != self._marks:
            raise OSError(errno.EPERM, "a payload has changed who may enter the folder of its warden")
        kernel.separate_ipc()
        if self._keyrings is not None:
            self._keyrings.clear()


class _SharedMemory:
    """A /dev/shm that ends with its payloads; unused, it serves the next one."""

    def __init__(self, home: str, size_mb: int) -> None:
        self._size_mb = size_mb
        # Pilots may also work in memory.
        self._home = home if home.startswith(f"{_SHM}/") else ""
        self._is_there = os.path.isdir(_SHM)  # noqa: PTH112
        if not self._is_there:
            return
        own = os.open(home, os.O_PATH) if self._home else -1
        before = _mounts()
        size = f",size={size_mb}m" if size_mb else ""
        kernel.mount("none", _SHM, "tmpfs", flags=_PLAIN, data=f"mode=1777{size}")
        if self._home:
            _show(own, home)
        self._marks = _marks_of(_SHM)
        # What is compared in the end: the pilot removes the folder that is shown in this memory.
        self._mounts = before if self._home else _mounts()

    def serves(self, home: str, size_mb: int) -> bool:
        return self._size_mb == size_mb and home == (self._home or home)

    def clear(self) -> bool:
        """Whether it is gone now. Raises OSError if the payload has changed the mounts."""
        if not self._is_there:
            return False
        if self._home:
            kernel.unmount(_SHM)
        if _mounts() != self._mounts:
            raise OSError(errno.EBUSY, "a payload has changed the mounts")
        if self._home:
            return True
        if _marks_of(_SHM) == self._marks and not os.listdir(_SHM):
            return False
        kernel.unmount(_SHM)
        return True


def hide(hidden: Sequence[str]) -> None:
    """Show a confined payload no process but its own, and nothing in `hidden`. Raises OSError."""
    kernel.mount_proc()
    if os.path.isdir(_QUEUES):  # noqa: PTH112 - by its files payloads would reach the queues of the node
        kernel.mount("none", _QUEUES, "tmpfs", flags=_PLAIN | kernel.READ_ONLY)
    for place in hidden:
        kernel.mount("none", place, "tmpfs", flags=_PLAIN, data="size=1m,mode=700")


def _show(own: int, folder: str) -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    kernel.bind(f"/proc/self/fd/{own}", folder)
    os.close(own)


def _mounts() -> str:
    """'' without root: a payload cannot change them."""
    if os.geteuid():
        return ""
    return kernel.read_file("/proc/self/mountinfo").decode("ascii", "surrogateescape")


def _rehearse() -> None:
    """Memory that a fork writes first is copied: do once what the start of a payload does."""
    near, far = socket.socketpair()
    with near, far:
        frame = WardenFrame(((resource.RLIMIT_CORE, (0, 0)),))
        send_launch(near, vars(Launch(["/"], {"PATH": "/"}, "/", {}, frame=frame)), [1, 2])
        request, streams = receive_launch(far) or ({}, [])
    _set_limits(WardenFrame(*request["frame"]), confined=True)
    with contextlib.suppress(OSError):
        kernel.bind("/", "")
    with contextlib.suppress(OSError):  # a folder is no program
        streams.insert(0, _open_input(request["stdin"]))
        _spawn(request["argv"], request["environment"], streams)
    for descriptor in streams:
        os.close(descriptor)


def _kill_all(*_: object) -> None:
    """They are waited for, so that their time counts."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _open_input(name: str) -> int:
    """Opened as the payload could open it. Links are followed first, as names: those in /proc lead to files without a name
    here. Raises NoInput.
    """
    try:
        path = os.path.realpath(name) if name else os.devnull
        if _OF_A_PROCESS.match(path):
            raise OSError(errno.EINVAL, "this belongs to the warden")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "this is no file")
        os.set_blocking(descriptor, True)
        return descriptor
    except OSError as fault:
        raise NoInput(fault.errno, fault.strerror) from None


def _start(request: Mapping[str, Any], streams: Sequence[int]) -> int:
    """With the folder and limits of this process, not by a fork, whose memory would have to be given back."""
    argv, environment = request["argv"], request["environment"]
    try:
        return _spawn(argv, environment, streams)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script that names no interpreter
            argv = ["/bin/sh", *argv]
        elif error.errno in _EXIT_OF:
            argv = ["/bin/sh", "-c", _CANNOT, argv[0], str(error.strerror), str(_EXIT_OF[error.errno])]
        else:
            raise
        return _spawn(argv, environment, streams)
    finally:
        for descriptor in streams:
            os.close(descriptor)


def _has_executed(payload: int) -> bool:
    """One that cannot be asked has: it took its warden's open files."""
    try:
        return processes.has_executed(payload)
    except OSError:
        return True


def _spawn(argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, standard) for standard, descriptor in enumerate(streams)]
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setpgroup=0, setsigdef=_ignored())


@lru_cache(maxsize=1)
def _ignored() -> frozenset[int]:
    numbers = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    return frozenset(numbers - set(_NOTICES))


def _marks_of(folder: str) -> tuple[object, ...]:
    if not folder:
        return ()
    entry, extended = os.stat(folder), {}  # noqa: PTH116
    with contextlib.suppress(OSError):  # some file systems have none
        extended = {name: os.getxattr(folder, name) for name in os.listxattr(folder)}
    return entry.st_mode, entry.st_uid, entry.st_gid, extended


def _set_limits(frame: WardenFrame, *, confined: bool) -> None:
    limits = {number: (soft, hard) for number, (soft, hard) in frame.limits}
    if frame.processes:
        most = frame.processes
        # The kernel counts the threads of an account: with a user namespace only the payload's own.
        if not confined or not os.getuid():
            most += sum(process.threads for process in processes.read_processes().values())
        limits[resource.RLIMIT_NPROC] = (most, most)
    for number, pair in limits.items():
        present = resource.getrlimit(number)
        # -1 is no limit; a soft limit is never above the hard one.
        soft, hard = (min(limit, now) if now >= 0 else limit for limit, now in zip(pair, present))
        resource.setrlimit(number, (min(soft, hard), hard))
