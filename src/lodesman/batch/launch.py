"""Starts the keeper of a pilot so that it outlives this process and nothing is started twice.

Where the system lets this process make one, each pilot gets a cgroup v2. It is an addition: a process can leave its
cgroup, and most machines delegate none. The keeper kills by descent in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
from pathlib import Path
from typing import Final

from lodesman.batch import keeper
from lodesman.batch.pilot_directory import PilotDirectory

_LOCK_NUMBER: Final = 3


def launch(directory: PilotDirectory, *, python: str, cgroups: bool) -> int | None:
    """Hand the pilot and its lock to a new keeper; its number, or None if the pilot is kept or was started.

    The keeper inherits the lock without a gap: if this process is killed before, the pilot still waits; if after, it
    is kept. Raises OSError.
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
    """Set the soft limit of open files of a new keeper, and so of what it starts; 0: leave it."""
    if soft:
        with contextlib.suppress(OSError, ValueError):  # it has ended
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard) if hard >= 0 else soft, hard))


def _cgroup_name(directory: PilotDirectory) -> str:
    """Unique even if another server on this machine has a pilot of the same stamp."""
    digest = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:12]
    return f"lodesman-{directory.stamp}-{digest}"


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


def make_cgroup(name: str) -> str | None:
    """The path of a new cgroup of this name below this process's own; None if it cannot be made or killed."""
    try:
        own, mounts = (Path("/proc/self", file).read_text() for file in ("cgroup", "mountinfo"))
        parent = _own_directory(own, mounts)
        if parent is None:
            return None
        made = parent / name
        made.mkdir(exist_ok=True)
    except OSError:
        return None
    if (made / "cgroup.kill").exists():
        return str(made)
    keeper.remove_cgroup(str(made))
    return None


def _own_directory(own: str, mounts: str) -> Path | None:
    """The directory of this process's cgroup v2, from the texts of /proc/self/cgroup and /proc/self/mountinfo.

    None without cgroup v2, and where the mount shows another part of the tree (a bind mount inside a container).
    """
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    if path is None or "/.." in path:
        return None
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not kind.startswith("cgroup2 "):
            continue
        root, point = fields[3].rstrip("/"), fields[4]
        if path == root or path.startswith(root + "/"):
            return Path(_unescaped(point) + path.removeprefix(root))
    return None


def _unescaped(text: str) -> str:
    """A mountinfo field as it was; the kernel writes blanks and backslashes as octal numbers."""
    for escape, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(escape, character)
    return text
