"""Processes that hold a lock on used_CPU, and what becomes of them."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RANGE = "hhqqi4x"


@contextmanager
def hold(path: Path, *, kind: str, mode: str, then: str) -> Iterator[None]:
    """Another process locks the file.

    kind: flock, posix or ofd. mode: shared or exclusive. then: hold; kill, stop (it is killed, stopped); fork-and-kill (a
    child of it lives on); fork-and-unlock (it unlocks, the child lives on); unlock-after-1-s.
    """
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(receiving)
            _hold(path, kind, mode, then, sending)
        finally:
            os._exit(0)
    os.close(sending)
    try:
        told = os.read(receiving, 64).split()  # of the child, if there is one
        assert told, "the lock was not granted"
        if then in ("kill", "fork-and-kill"):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        elif then == "stop":
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
        yield
    finally:
        os.close(receiving)
        for one in {pid, int(told[0]) or pid}:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _hold(path: Path, kind: str, mode: str, then: str, sending: int) -> None:
    descriptor = os.open(path, os.O_RDWR)
    if kind == "flock":
        fcntl.flock(descriptor, fcntl.LOCK_EX if mode == "exclusive" else fcntl.LOCK_SH)
    else:
        command = fcntl.F_OFD_SETLKW if kind == "ofd" else fcntl.F_SETLKW
        what = fcntl.F_WRLCK if mode == "exclusive" else fcntl.F_RDLCK
        fcntl.fcntl(descriptor, command, struct.pack(_RANGE, what, os.SEEK_SET, 0, 0, 0))
    child = os.fork() if then.startswith("fork") else 0
    if then.startswith("fork") and child == 0:
        os.close(sending)
        signal.pause()
    if then == "fork-and-unlock":
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.write(sending, b"%d\n" % child)
    if then == "unlock-after-1-s":
        time.sleep(1)
        os.close(descriptor)
    signal.pause()
    sys.exit(0)
