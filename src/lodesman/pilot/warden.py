"""Wardens as their pilot knows them: above each payload a small process that adopts whatever it leaves behind. It lives in
`enclosure`, and is made by `nursery`.

Where the kernel allows it the warden is the first process of a PID namespace: the payload sees its own processes alone, and
none outlives warden or pilot. It starts one payload after the other, as long as they have the same frame: what the kernel
does not let it take back. Elsewhere it is a subreaper, and ends with its payload.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# What a warden answers about the start, if it is no number of an error; from NO_INPUT on: one about the standard input.
RUNS, NEVER_RAN, NO_INPUT = 0, -1, 1 << 16
READY = b"r"
INT, BORN, END = struct.Struct("!i"), struct.Struct("!i?"), struct.Struct("!id?")
# A nursery or a warden that is silent for this time is stopped or dead.
_PATIENCE_S = 10.0
# A warden that was asked to end its payload is given this time for it.
_KILL_S = 1.0


# Of a launch, most of which are shorter.
_AT_ONCE = 1 << 16


class NeverStarted(Exception):
    """The first process or its warden ended before the payload's program ran."""


class NoInput(OSError):
    """The standard input cannot be opened; EINVAL: it is no file."""


class WardenFrame(NamedTuple):
    """What a warden keeps from one payload to the next."""

    # Soft and hard ones of the kernel, by numbers of `resource`.
    limits: tuple[tuple[int, tuple[int, int]], ...] = ()
    processes: int = 0  # the most there may be, 0: no limit


NO_FRAME = WardenFrame()


@dataclass(frozen=True)
class Launch:
    """A payload's first process, ready to be started."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    outputs: Mapping[str, int]  # descriptors of its one or two output streams
    stdin: str = ""  # the file, which the warden opens, since it sees what the payload sees
    frame: WardenFrame = NO_FRAME
    shm_mb: int = 0  # the size of its /dev/shm where it is confined, 0: as usual
    tmp: str = ""  # its TMPDIR if that is too long for sockets

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self.outputs.values():
            os.close(descriptor)


class End(NamedTuple):
    """How a payload's first process ended."""

    status: int  # its wait status
    cpu_seconds: float  # of all that was waited for in its tree
    is_gone: bool  # nothing of the tree is left


class Warden:
    """`confined`: the first process of a PID namespace. `folder`: where its payloads have theirs, the only one of the
    pilot's that they see; '' for none.
    """

    def __init__(self, channel: socket.socket, folder: str = "") -> None:
        """Raises OSError if the nursery makes none."""
        # Not as a time limit of the socket itself, which costs two more system calls each time.
        seconds = struct.pack("@ll", int(_PATIENCE_S), int(_PATIENCE_S % 1 * 1e6))
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        self._channel = channel
        self._killed_at: float | None = None
        self._is_new = True
        self.folder = folder
        self.frame: WardenFrame | None = None
        self.earlier_seconds = 0.0  # the CPU time of the payloads that it had
        try:
            answer = channel.recv(BORN.size)
            if len(answer) < BORN.size or not channel.recv(1):
                raise OSError(errno.EAGAIN, "no warden could be made for the payload")
        except OSError:
            channel.close()
            raise
        self.pid, self.confined = BORN.unpack(answer)

    def start(self, launch: Launch) -> None:
        """Raises OSError if it cannot be executed, NoInput, NeverStarted."""
        outputs = list(launch.outputs.values())
        self.frame, self._is_new = launch.frame, False
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send_launch(self._channel, vars(launch), [outputs[0], outputs[-1]])
        answer = self._receive(INT.size)
        number = NEVER_RAN if answer is None else INT.unpack(answer)[0]
        if number == NEVER_RAN:
            raise NeverStarted
        if number >= NO_INPUT:
            raise NoInput(number - NO_INPUT, os.strerror(number - NO_INPUT))
        if number != RUNS:
            raise OSError(number, os.strerror(number))

    def wait(self) -> End | None:
        """Wait for the first process; None if the warden was killed."""
        answer = self._receive(END.size, for_ever=True)
        if answer is None:
            return None
        end = End(*END.unpack(answer))
        self.earlier_seconds += end.cpu_seconds if end.is_gone else 0.0
        return end

    def wait_gone(self, timeout: float) -> End | None:
        """Until nothing is left of the tree; None if that takes longer, or the warden was killed."""
        return self.wait() if select.select([self._channel], [], [], timeout)[0] else None

    def is_ready(self) -> bool:
        """It lives, and has cleared up after the last payload."""
        if self._killed_at is not None:
            return False
        if not self._is_new and self._receive(len(READY)) != READY:
            return False
        self._is_new = True
        try:
            return bool(self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def kill(self) -> None:
        """End a confined payload with all of its processes; asked again after a while, the warden itself."""
        now = time.monotonic()
        self._killed_at = now if self._killed_at is None else self._killed_at
        number = signal.SIGTERM if now - self._killed_at < _KILL_S else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """A warden that waits for a payload ends."""
        self._channel.close()

    def _receive(self, size: int, *, for_ever: bool = False) -> bytes | None:
        """None if the warden was killed, or says nothing in time."""
        while True:
            try:
                answer = self._channel.recv(size)
            except BlockingIOError:  # the time is over
                if for_ever:
                    continue
                return None
            except OSError:
                return None
            return answer if len(answer) == size else None


def send_launch(channel: socket.socket, launch: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Raises OSError."""
    text = json.dumps(launch).encode()
    text = INT.pack(len(text)) + text
    sent = socket.send_fds(channel, [text], streams)
    if sent < len(text):
        channel.sendall(text[sent:])


def receive_launch(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """None if it is incomplete. Raises OSError."""
    text, streams, _, _ = socket.recv_fds(channel, _AT_ONCE, 2)
    for descriptor in streams:
        os.set_inheritable(descriptor, False)
    if len(text) < INT.size:
        return None
    parts, left = [text[INT.size :]], INT.unpack_from(text)[0] - (len(text) - INT.size)
    while left:
        part = channel.recv(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), streams
