"""Starts the keeper of a pilot so that it outlives this process and nothing is started twice."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
from typing import Final

from lodesman.batch import keeper
from lodesman.batch.cgroup import make_cgroup
from lodesman.batch.pilot_directory import PilotDirectory

_LOCK_NUMBER: Final = 3


def launch(directory: PilotDirectory, *, python: str, cgroups: bool) -> int | None:
    """Hand the pilot and its lock to a new keeper; its number, or None if the pilot is kept or was started.

    posix_spawn costs the same however large this process is. The keeper inherits the lock without a gap: if
    this process is killed before it, the pilot still waits; if after it, the pilot is kept. Raises OSError.
    """
    with directory.locked() as lock:
        if lock is None or directory.was_started():
            return None
        cgroup = make_cgroup(_cgroup_name(directory)) if cgroups else None
        try:
            return _spawn(directory, lock, python, cgroup)
        except OSError:
            if cgroup is not None:
                keeper.remove_cgroup(cgroup)
            raise


def limit_open_files(pid: int, soft: int) -> None:
    """Give a keeper that has just been started, and what it will start, this soft limit of open files; 0: none."""
    if soft:
        with contextlib.suppress(OSError, ValueError):  # it has ended already
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard) if hard >= 0 else soft, hard))


def _cgroup_name(directory: PilotDirectory) -> str:
    """Its own even if another server on this machine has a pilot of the same stamp."""
    place = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:12]
    return f"lodesman-{directory.stamp}-{place}"


def _spawn(directory: PilotDirectory, lock: int, python: str, cgroup: str | None) -> int:
    path = str(directory.path)
    arguments = [python, "-I", "-S", keeper.__file__, path, str(_LOCK_NUMBER)]
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        python,
        arguments + ([cgroup] if cgroup else []),
        {"PATH": os.environ.get("PATH", os.defpath)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, f"{path}/keeper.log", log, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, _LOCK_NUMBER),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )
