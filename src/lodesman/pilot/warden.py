"""The wardens of payloads: each payload has a small process above it that adopts whatever the payload leaves behind.

Where the kernel allows it the warden is the first process of a PID namespace: the payload sees no process but its own,
and none of them outlives warden or pilot. Elsewhere it is a subreaper, and ends when its last descendant has. A warden
answers twice: whether the payload runs, and the wait status of its first process.

The *nursery* is forked from the pilot before its threads and its secrets. It makes each warden before it is needed: with
its mounts, and with the process that becomes the payload, which has done once already what it will do then.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lodesman import kernel

# What a warden answers about the start, if it is no number of an error.
_RUNS, _NEVER_RAN = 0, -1
_INT, _BORN = struct.Struct("!i"), struct.Struct("!i?")
# A nursery or a warden that is silent for this time is stopped or dead.
_PATIENCE_S = 10.0
# What a shell says of a program that cannot be executed, or is not there.
_EXIT_OF = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.EPERM: 126, errno.ENOEXEC: 126}
_CANNOT = 'echo "$0: $1" >&2; exit "$2"'  # $0 is the program, then the fault and the code
_OOM_SCORE = 300  # memory that runs out is taken from payloads first
_SHM = "/dev/shm"  # noqa: S108
_PLAIN = kernel.NO_SUID | kernel.NO_DEVICES
_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
# What Grid Engine sends to all processes of a job before it ends or stops them: where the pilot ignores it, its payloads do.
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)


class NeverStarted(Exception):
    """The payload's process ended, or its warden did, before the payload's program ran."""


@dataclass(frozen=True)
class Launch:
    """A payload's first process, ready to be started. `outputs`: descriptors of its one or two output streams by name.

    `limits`: soft and hard limits of the kernel by their numbers (`resource`). `processes`: the most that there may be.
    `shm_mb`: the size of its /dev/shm where it is confined, 0: as usual.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: int
    outputs: Mapping[str, int]
    limits: Mapping[int, tuple[int, int]]
    processes: int = 0
    shm_mb: int = 0

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (self.stdin, *self.outputs.values()):
            os.close(descriptor)


class Warden:
    """A warden as its pilot knows it. `confined`: it is the first process of a PID namespace."""

    def __init__(self, channel: socket.socket) -> None:
        """Raises OSError if the nursery makes none."""
        channel.settimeout(_PATIENCE_S)
        self._channel = channel
        self._asked = False
        try:
            answer = channel.recv(_BORN.size)
            if len(answer) < _BORN.size or not channel.recv(1):
                raise OSError(errno.EAGAIN, "no warden could be made for the payload")
        except OSError:
            channel.close()
            raise
        self.pid, self.confined = _BORN.unpack(answer)

    def start(self, launch: Launch) -> None:
        """Start the payload. Raises OSError if it cannot be executed, NeverStarted."""
        outputs = list(launch.outputs.values())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            _send(self._channel, vars(launch), [launch.stdin, outputs[0], outputs[-1]])
        answer = self._answer()
        if answer is None or answer == _NEVER_RAN:
            raise NeverStarted
        if answer != _RUNS:
            raise OSError(answer, os.strerror(answer))
        self._channel.settimeout(None)

    def wait(self) -> int | None:
        """Wait for the payload's first process: its exit code, or minus a signal; None if the warden was killed."""
        status = self._answer()
        return None if status is None else os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End a confined payload with all of its processes; asked again, the warden itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL if self._asked else signal.SIGTERM)
        self._asked = True

    def close(self) -> None:
        """Close the channel; a warden that waits for its payload ends."""
        self._channel.close()

    def _answer(self) -> int | None:
        """A number from the warden; None if it was killed or is stopped."""
        with contextlib.suppress(OSError):
            answer = self._channel.recv(_INT.size)
            return int(_INT.unpack(answer)[0]) if len(answer) == _INT.size else None
        return None


class Nursery:
    """The pilot's side of the nursery. Used with one lock."""

    def __init__(self, work: str = "", outbox: str = "") -> None:
        """Folders, there already, that confined payloads find empty; in `work` each sees its own. '': nothing is hidden."""
        self._hidden = [place for place in (work, outbox) if place]
        self.pid = 0
        self._channel: socket.socket | None = None
        self._coming: socket.socket | None = None
        self._spare: Warden | None = None

    def open(self) -> socket.socket:
        """Fork the nursery; returns the channel to it."""
        near, far = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            near.close()
            _make_wardens(far, self._hidden)
        far.close()
        self._channel = near
        return near

    def close(self) -> None:
        """End the nursery and the warden that it has ready."""
        for channel in (self._channel, self._coming, self._spare):
            if channel is not None:
                channel.close()
        if self.pid:
            os.waitpid(self.pid, 0)

    def pids(self) -> set[int]:
        """The processes that it has made and that have no payload yet."""
        with contextlib.suppress(OSError):
            self._settle()
        return {self.pid, *([self._spare.pid] if self._spare else [])}

    def take(self) -> Warden:
        """A warden for a payload; `order` the next one when the payload runs. Raises OSError."""
        if self._spare is None and self._coming is None:
            self.order()
        self._settle()
        warden, self._spare = self._spare, None
        if warden is None:
            raise OSError(errno.EAGAIN, "no warden could be made for the payload")
        return warden

    def order(self) -> None:
        """Have one more warden made. Raises OSError."""
        channel = self._channel or self.open()
        near, far = socket.socketpair()
        self._coming = near
        with far:
            socket.send_fds(channel, [b"g"], [far.fileno()])

    def _settle(self) -> None:
        """Wait for the warden that was ordered. Raises OSError."""
        if self._coming is not None:
            coming, self._coming = self._coming, None
            self._spare = Warden(coming)


# --- in the nursery ---------------------------------------------------------------------------------------


def _make_wardens(channel: socket.socket, hidden: Sequence[str]) -> NoReturn:
    """Make a warden for each channel that comes, until the pilot is gone."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        confined = _can_confine(hidden)
        while True:
            message, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
            if not message:
                os._exit(0)
            os.set_inheritable(descriptors[0], False)
            with socket.socket(fileno=descriptors[0]) as own, contextlib.suppress(OSError):
                _make_warden(channel, own, hidden, confined=confined)
    finally:
        os._exit(1)


def _can_confine(hidden: Sequence[str]) -> bool:
    """Whether payloads can have namespaces of their own: one process tries it."""
    first = os.fork()
    if first:
        return os.waitpid(first, 0)[1] == 0
    try:
        kernel.separate()
        second = os.fork()
        if second:
            os._exit(os.waitpid(second, 0)[1] != 0)
        _mount(hidden)
        os._exit(0)
    finally:
        os._exit(1)


def _make_warden(
    nursery: socket.socket, own: socket.socket, hidden: Sequence[str], *, confined: bool
) -> None:
    """Fork a process that forks the warden and ends: the pilot, a subreaper, becomes the parent of the warden."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        own.sendall(b".")  # the warden is a child of the pilot now
        return
    try:
        nursery.close()
        if confined:
            kernel.separate()
        pid = os.fork()
        if not pid:
            _warden(own, hidden, confined=confined)
        own.sendall(_BORN.pack(pid, confined))
    finally:
        os._exit(0)


# --- in the warden -----------------------------------------------------------------------------------------


def _warden(channel: socket.socket, hidden: Sequence[str], *, confined: bool) -> NoReturn:
    """Start the payload when the pilot says so, answer for it, and end after it."""
    try:
        work = _mount(hidden) if confined else -1
        if confined:
            signal.signal(signal.SIGTERM, _kill_all)
        else:
            kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
        os.setsid()
        kernel.change_oom_score(_OOM_SCORE)
        _rehearse()
        received = _receive(channel)
        if received is None:
            os._exit(0)
        if confined:  # by now the pilot is the parent
            kernel.set_attribute(kernel.PDEATHSIG, signal.SIGKILL)
        payload, answer = _try_start(*received, work, confined=confined)
        kernel.change_oom_score(-_OOM_SCORE)
        channel.sendall(_INT.pack(answer))
        while True:
            pid, status = os.wait()
            if pid == payload:
                with contextlib.suppress(OSError):
                    channel.sendall(_INT.pack(status))
                if confined:
                    _kill_all()
    except ChildProcessError:
        os._exit(0)
    finally:
        os._exit(1)


def _try_start(
    request: Mapping[str, Any], streams: Sequence[int], work: int, *, confined: bool
) -> tuple[int, int]:
    """The pid of the payload, 0 if there is none, and what the pilot is answered."""
    try:
        if confined:
            _seclude(request, work)
        payload = _start(request, streams, confined=confined)
        return payload, _RUNS if kernel.has_executed(payload) else _NEVER_RAN
    except (OSError, ValueError) as fault:
        return 0, getattr(fault, "errno", 0) or errno.EINVAL


def _mount(hidden: Sequence[str]) -> int:
    """Show a confined payload no process but its own, and nothing in `hidden`. Raises OSError.

    Returns a descriptor of the first hidden folder as it is, -1 if there is none.
    """
    work = os.open(hidden[0], os.O_PATH) if hidden else -1
    kernel.mount_proc()
    for place in hidden:
        kernel.mount("none", place, "tmpfs", flags=_PLAIN, data="size=1m,mode=700")
    return work


def _rehearse() -> None:
    """Do once what the start of a payload does: memory that a forked process writes first is copied, which takes longer."""
    near, far = socket.socketpair()
    with near, far:
        _send(near, vars(Launch(["/"], {"PATH": "/"}, "/", 0, {}, {resource.RLIMIT_CORE: (0, 0)})), [0, 1, 2])
        request, streams = _receive(far) or ({}, [])
    _set_limits(request, confined=True)
    with contextlib.suppress(OSError):
        kernel.bind("/", "")
    with contextlib.suppress(OSError):  # a folder is no program
        _spawn(request["argv"], request["environment"], streams)
    for descriptor in streams:
        os.close(descriptor)


def _kill_all(*_: object) -> None:
    """As the first process of a PID namespace: kill all others in it. They are waited for, so that their time counts."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _send(channel: socket.socket, launch: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Raises OSError."""
    text = json.dumps({**launch, "limits": list(launch["limits"].items())}).encode()
    socket.send_fds(channel, [_INT.pack(len(text))], streams)
    channel.sendall(text)


def _receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What was sent, and descriptors of the streams; None if nothing comes, or not all of it. Raises OSError."""
    size, streams, _, _ = socket.recv_fds(channel, _INT.size, 3)
    for descriptor in streams:
        os.set_inheritable(descriptor, False)
    left, parts = _INT.unpack(size)[0] if len(size) == _INT.size else 0, []
    while left:
        part = channel.recv(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return (json.loads(b"".join(parts)), streams) if parts else None


def _seclude(request: Mapping[str, Any], work: int) -> None:
    """Give the payload shared memory that ends with it, and show it its own folder of `work` again. Raises OSError."""
    directory = request["directory"]
    there = directory if work < 0 else f"/proc/self/fd/{work}/{os.path.basename(directory)}"  # noqa: PTH119
    own = os.open(there, os.O_PATH)
    if work >= 0:
        os.close(work)  # the payload can look at what this process has open
    if os.path.isdir(_SHM):  # noqa: PTH112
        size = f",size={request['shm_mb']}m" if request["shm_mb"] else ""
        kernel.mount("none", _SHM, "tmpfs", flags=_PLAIN, data=f"mode=1777{size}")
    # It may lie below one of these: pilots may also work in memory.
    os.makedirs(directory, exist_ok=True)  # noqa: PTH103
    kernel.bind(f"/proc/self/fd/{own}", directory)
    os.close(own)


def _start(request: Mapping[str, Any], streams: Sequence[int], *, confined: bool) -> int:
    """Start the payload, which inherits the folder and the limits of this process; returns its pid.

    It is no fork, whose memory would have to be given back before its program runs. Raises OSError, ValueError.
    """
    argv, environment = request["argv"], request["environment"]
    os.chdir(request["directory"])
    _set_limits(request, confined)
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


def _spawn(argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, standard) for standard, descriptor in enumerate(streams)]
    usual = _SIGNALS - {number for number in _NOTICES if signal.getsignal(number) is signal.SIG_IGN}
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setpgroup=0, setsigdef=usual)


def _set_limits(request: Mapping[str, Any], confined: bool) -> None:
    """Set the kernel's limits; where the site has a stricter one, that stays."""
    limits = {number: (soft, hard) for number, (soft, hard) in request["limits"]}
    if request["processes"]:
        # The kernel counts the threads of an account: with a user namespace only the payload's own.
        most = request["processes"] + (0 if confined and os.getuid() else kernel.threads())
        limits[resource.RLIMIT_NPROC] = (most, most)
    for number, wanted in limits.items():
        there = resource.getrlimit(number)
        # -1 is no limit; a soft limit is never above the hard one.
        soft, hard = (min(one, now) if now >= 0 else one for one, now in zip(wanted, there))
        resource.setrlimit(number, (min(soft, hard), hard))
