"""The wardens of payloads: each payload has a small process above it that adopts whatever the payload leaves behind.

Where the kernel allows it the warden is the first process of a PID namespace: the payload sees no process but its own,
and none of them outlives warden or pilot. Elsewhere it is a subreaper, and ends when its last descendant has. A warden
answers twice: whether the payload runs, and the wait status of its first process.

The *nursery* is forked from the pilot before its threads and its secrets. It makes each warden before it is needed, so
that the start of a payload costs one fork.
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
_INT = struct.Struct("!i")
_BORN = struct.Struct("!i?")
# A nursery or a warden that is silent for this time is stopped or dead.
_PATIENCE_S = 10.0
# What a shell says of a program that cannot be executed, or is not there.
_EXIT_OF = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EACCES: 126, errno.EPERM: 126, errno.ENOEXEC: 126}
# Memory that runs out is taken from payloads first.
_OOM_SCORE = 300
_FORKED_ONLY = 0x40  # PF_FORKNOEXEC


class NeverStarted(Exception):
    """The payload's process ended, or its warden did, before the payload's program ran."""


@dataclass(frozen=True)
class Launch:
    """A payload's first process, ready to be started. `outputs`: descriptors of its one or two output streams by name.

    `limits`: soft and hard limits of the kernel by their numbers (`resource`). `processes`: the most that there may be.
    Where it is confined: `shm_mb`: the size of its /dev/shm, 0: as usual; `hidden`: what is empty for it but for its own.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: int
    outputs: Mapping[str, int]
    limits: Mapping[int, tuple[int, int]]
    processes: int = 0
    shm_mb: int = 0
    hidden: Sequence[str] = ()

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
        request = {**vars(launch), "limits": list(launch.limits.items())}
        outputs = list(launch.outputs.values())
        with open(os.memfd_create("launch"), "w+b") as file:  # noqa: PTH123 - a descriptor
            file.write(json.dumps(request).encode())
            file.flush()
            streams = [launch.stdin, outputs[0], outputs[-1]]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._channel, [b"s"], [file.fileno(), *streams])
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

    def __init__(self) -> None:
        self.pid = 0
        self._channel: socket.socket | None = None
        self._coming: socket.socket | None = None
        self._spare: Warden | None = None

    def open(self) -> None:
        """Fork the nursery, and have the first warden made."""
        near, far = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            near.close()
            _make_wardens(far)
        far.close()
        self._channel = near
        self.order()

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
        if self._channel is None:
            self.open()
            return
        near, far = socket.socketpair()
        self._coming = near
        with far:
            socket.send_fds(self._channel, [b"g"], [far.fileno()])

    def _settle(self) -> None:
        """Wait for the warden that was ordered. Raises OSError."""
        if self._coming is not None:
            coming, self._coming = self._coming, None
            self._spare = Warden(coming)


# --- in the nursery ---------------------------------------------------------------------------------------


def _make_wardens(channel: socket.socket) -> NoReturn:
    """Make a warden for each channel that comes, until the pilot is gone."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        confined = _can_confine()
        while True:
            message, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
            if not message:
                os._exit(0)
            with socket.socket(fileno=descriptors[0]) as own, contextlib.suppress(OSError):
                _make_warden(channel, own, confined)
    finally:
        os._exit(1)


def _can_confine() -> bool:
    """Whether payloads can have PID namespaces: one process tries it."""
    first = os.fork()
    if first:
        return os.waitpid(first, 0)[1] == 0
    try:
        kernel.separate()
        second = os.fork()
        if second:
            os._exit(os.waitpid(second, 0)[1] != 0)
        kernel.mount_proc()
        os._exit(0)
    finally:
        os._exit(1)


def _make_warden(nursery: socket.socket, own: socket.socket, confined: bool) -> None:
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
            _warden(own, confined)
        own.sendall(_BORN.pack(pid, confined))
    finally:
        os._exit(0)


# --- in the warden -----------------------------------------------------------------------------------------


def _warden(channel: socket.socket, confined: bool) -> NoReturn:
    """Fork the process that becomes the payload when the pilot says so, answer for it, and end after it."""
    try:
        if confined:
            kernel.mount_proc()
            signal.signal(signal.SIGTERM, _kill_all)
        else:
            kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
        faults, fault = os.pipe()  # both ends are closed when the payload's program starts
        payload = os.fork()
        if not payload:
            _await_launch(channel, fault, confined)
        os.close(fault)
        with open(faults, "rb") as pipe:  # noqa: PTH123 - a descriptor
            text = pipe.read()
        if confined:  # by now the pilot is the parent
            kernel.set_attribute(kernel.PDEATHSIG, signal.SIGKILL)
        channel.sendall(_INT.pack(int(text or (_RUNS if _has_run(payload) else _NEVER_RAN))))
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


def _kill_all(*_: object) -> None:
    """As the first process of a PID namespace: kill all others in it. They are waited for, so that their time counts."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _has_run(pid: int) -> bool:
    """Whether a child, which may have ended, became another program: the kernel marks one that did not."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as small as can be
        flags = int(file.read().rpartition(b")")[2].split()[6])
    return not flags & _FORKED_ONLY


def _await_launch(channel: socket.socket, fault: int, confined: bool) -> NoReturn:
    """In the child: become the payload as soon as the pilot sends it."""
    try:
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
        kernel.raise_oom_score(_OOM_SCORE)
        message, descriptors, _, _ = socket.recv_fds(channel, 1, 4)
        if not message:
            os._exit(0)
        with open(descriptors[0], "rb") as file:  # noqa: PTH123 - a descriptor
            file.seek(0)
            request = json.loads(file.read())
        for standard, descriptor in enumerate(descriptors[1:]):
            os.dup2(descriptor, standard)
        os.closerange(3, fault)
        os.closerange(fault + 1, fault + 64)
        if confined:
            _seclude(request)
        os.chdir(request["directory"])
        _set_limits(request, confined)
        _execute(request["argv"], request["environment"], fault)
    except OSError as error:
        os.write(fault, b"%d" % (error.errno or errno.EINVAL))
    except ValueError:
        os.write(fault, b"%d" % errno.EINVAL)
    finally:
        os._exit(127)


def _seclude(request: Mapping[str, Any]) -> None:
    """Hide what the pilot has of other jobs, and give the payload shared memory that ends with it. Raises OSError."""
    flags = kernel.NO_SUID | kernel.NO_DEVICES
    own = os.open(request["directory"], os.O_PATH)
    for place in request["hidden"]:
        kernel.mount("none", place, "tmpfs", flags=flags, data="size=1m,mode=700")
    if os.path.isdir("/dev/shm"):  # noqa: PTH112, S108
        size = f",size={request['shm_mb']}m" if request["shm_mb"] else ""
        kernel.mount("none", "/dev/shm", "tmpfs", flags=flags, data=f"mode=1777{size}")  # noqa: S108
    # It may lie below one of these: pilots may also work in memory.
    os.makedirs(request["directory"], exist_ok=True)  # noqa: PTH103
    kernel.bind(f"/proc/self/fd/{own}", request["directory"])
    os.close(own)


def _execute(argv: list[str], environment: Mapping[str, str], fault: int) -> None:
    """Become this program, or end as a shell would. Raises OSError, ValueError."""
    try:
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script that names no interpreter
            os.execve("/bin/sh", ["/bin/sh", *argv], environment)  # noqa: S606
        if error.errno not in _EXIT_OF:
            raise
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os.write(fault, b"%d" % _RUNS)
        os._exit(_EXIT_OF[error.errno])


def _set_limits(request: Mapping[str, Any], confined: bool) -> None:
    """Set the kernel's limits; where the site has a stricter one, that stays."""
    limits = {number: (soft, hard) for number, (soft, hard) in request["limits"]}
    if request["processes"]:
        # The kernel counts the threads of an account: with a user namespace only the payload's own.
        most = request["processes"] + (0 if confined and os.getuid() else _threads())
        limits[resource.RLIMIT_NPROC] = (most, most)
    for number, wanted in limits.items():
        there = resource.getrlimit(number)
        # -1 is no limit; a soft limit is never above the hard one.
        soft, hard = (min(one, now) if now >= 0 else one for one, now in zip(wanted, there))
        resource.setrlimit(number, (min(soft, hard), hard))


def _threads() -> int:
    """The threads of all processes that can be seen."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                found += int(file.read().rpartition(b")")[2].split()[17])
    return found
