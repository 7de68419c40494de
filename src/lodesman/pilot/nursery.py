"""The *nursery*: forked from the pilot before its threads and secrets, it makes wardens before they are needed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from lodesman.base import kernel
from lodesman.pilot import enclosure
from lodesman.pilot.warden import BORN, NO_FRAME, Warden, WardenFrame

_LONGEST_ORDER = 16_384
LOST = "The process of the pilot that makes processes for jobs was killed"


class PilotFault(OSError):
    """The pilot can start no more payloads; the node is not to blame."""


class Nursery:
    """The wardens that have no payload. Used with one lock."""

    def __init__(self, work: str = "", outbox: str = "") -> None:
        """Folders that confined payloads find empty; in `work` each warden has one that its payloads see."""
        # Folders in which confined payloads cannot write; for wardens to come.
        self.homes: Sequence[str] = ()
        self._work = work
        self._hidden = [place for place in (work, outbox) if place]
        self.pid = 0
        self._channel: socket.socket | None = None
        self._coming: tuple[socket.socket, str] | None = None
        self._spare: Warden | None = None
        self._idle: list[Warden] = []
        self._leaving: set[int] = set()
        self._made = 0

    def open(self) -> socket.socket:
        """Returns the channel to the nursery."""
        near, far = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            near.close()
            _make_wardens(far, self._hidden)
        far.close()
        self._channel = near
        return near

    def close(self) -> None:
        """End the nursery and the wardens without payload."""
        with contextlib.suppress(OSError):
            self._settle()
        for warden in (*self._idle, *([self._spare] if self._spare else [])):
            self._retire(warden)
        for pid in self._leaving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if self._channel is not None:
            self._channel.close()
        if self.pid:
            os.waitpid(self.pid, 0)

    def pids(self) -> set[int]:
        """The nursery, and the wardens without payload."""
        with contextlib.suppress(OSError):
            self._settle()
        self._bury()
        spare = [self._spare.pid] if self._spare else []
        return {self.pid, *spare, *self._leaving, *(warden.pid for warden in self._idle)}

    def take(self, frame: WardenFrame = NO_FRAME) -> Warden:
        """A warden for that frame; `order` the next one when the payload runs. Raises PilotFault, OSError."""
        while fitting := [warden for warden in self._idle if warden.frame in (frame, None)]:
            warden = fitting[-1]
            self._idle.remove(warden)
            if warden.is_ready():
                return warden
            self._retire(warden)
        if self._idle:  # the slot is the same: one more would be one too many
            self._retire(self._idle.pop(0))
        self._bury()
        try:
            return self._next_one()
        except OSError:
            if self.is_lost():
                raise PilotFault(errno.EPIPE, LOST) from None
            raise

    def _next_one(self) -> Warden:
        if self._spare is None and self._coming is None:
            self.order()
        self._settle()
        spare, self._spare = self._spare, None
        if spare is None:
            raise OSError(errno.EAGAIN, "no warden could be made for the payload")
        return spare

    def is_lost(self) -> bool:
        """The process that makes wardens has ended."""
        if self._channel is None:
            return False
        try:
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def give(self, warden: Warden) -> None:
        """Take back a warden whose payload is gone."""
        if warden.confined:
            self._idle.append(warden)
        else:
            self._retire(warden)

    def order(self) -> None:
        """Have one more warden made, if none is ready. Raises OSError."""
        if self._spare is not None or self._coming is not None:
            return
        channel, folder = self._channel or self.open(), self._new_folder()
        near, far = socket.socketpair()
        self._coming = near, folder
        with far:
            order = os.path.basename(folder) or ".", *self.homes  # noqa: PTH119
            socket.send_fds(channel, ["\0".join(order).encode("utf-8", "surrogateescape")], [far.fileno()])

    def _new_folder(self) -> str:
        if not self._work:
            return ""
        self._made += 1
        folder = os.path.join(self._work, f"w{self._made}")  # noqa: PTH118
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        return folder

    def _settle(self) -> None:
        if self._coming is not None:
            coming, self._coming = self._coming, None
            self._spare = Warden(*coming)

    def _retire(self, warden: Warden) -> None:
        warden.close()
        self._leaving.add(warden.pid)
        with contextlib.suppress(OSError):  # the rest goes with the pilot's folder
            os.rmdir(warden.folder)  # noqa: PTH106

    def _bury(self) -> None:
        for pid in list(self._leaving):
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            self._leaving.discard(pid)


# --- in the nursery ---------------------------------------------------------------------------------------


def _make_wardens(channel: socket.socket, hidden: Sequence[str]) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        confined = _can_confine(hidden)
        while True:
            order, descriptors, _, _ = socket.recv_fds(channel, _LONGEST_ORDER, 1)
            if not order:
                os._exit(0)
            os.set_inheritable(descriptors[0], False)
            name, *homes = order.decode("utf-8", "surrogateescape").split("\0")
            with socket.socket(fileno=descriptors[0]) as own, contextlib.suppress(OSError):
                _make_warden(channel, own, enclosure.Recipe(hidden, name, homes, confined))
    finally:
        os._exit(1)


def can_protect(home: str) -> bool:
    """Call it before there are threads."""
    return _works_apart(lambda: kernel.bind(home, home, read_only=True))


def _can_confine(hidden: Sequence[str]) -> bool:
    return _works_apart(lambda: enclosure.hide(hidden))


def _works_apart(step: Callable[[], None]) -> bool:
    """One process tries it in namespaces such as payloads have."""
    first = os.fork()
    if first:
        return os.waitpid(first, 0)[1] == 0
    try:
        kernel.separate()
        second = os.fork()
        if second:
            os._exit(os.waitpid(second, 0)[1] != 0)
        step()
        os._exit(0)
    finally:
        os._exit(1)


def _make_warden(nursery: socket.socket, own: socket.socket, recipe: enclosure.Recipe) -> None:
    """Fork a process that forks the warden and ends: the pilot, a subreaper, becomes its parent."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        own.sendall(b".")  # the warden is a child of the pilot now
        return
    try:
        nursery.close()
        if recipe.confined:
            kernel.separate()
        pid = os.fork()
        if not pid:
            enclosure.serve(own, recipe)
        own.sendall(BORN.pack(pid, recipe.confined))
    finally:
        os._exit(0)
