"""Starts the keepers of local pilots, ends pilots in steps, and kills what is left of those whose keepers were
killed.

A left-over process is known by the mark in its environment, or by a working directory inside the pilot's; its
descendants go with it. Never killed are this process, its ancestors, and by directory alone a process with a
terminal: a person may be reading the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import select
import signal
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from lodesman.base.durable import sync_directory, write_durably
from lodesman.base.kernel import parse_mounts, read_file
from lodesman.base.processes import (
    Process,
    descendants,
    kill_cgroup,
    kill_family,
    living_processes,
    parse_cgroups,
    remove_cgroup,
    signal_process,
)
from lodesman.server.engines import keeper
from lodesman.server.engines.damage import as_damage, is_there, make_folder, make_way
from lodesman.server.engines.isolation import Isolation
from lodesman.server.engines.pilot_directory import PROGRAM, STAMP, PilotDirectory

MARK: Final = "LODESMAN_STAMP"
ROOT_MARK: Final = "LODESMAN_PILOTS"
"""Names the folder of the pilots: that of another server may have been copied from this one, stamps and all."""
_KEEPER_MARK: Final = "LODESMAN_KEEPER"
"""Keeper and guard have it, the pilot does not."""
_LOCK_NUMBER: Final = 3
# How often keepers are checked that are about to end.
_CHECK_AGAIN_SECONDS: Final = 0.02
_SWEEP_SECONDS: Final = 5.0


def root_mark(root: Path) -> str:
    """What names a folder of pilots in the environment of each. Raises OSError."""
    return hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]


def keep_program(programs: Path, program: bytes) -> tuple[Path, bool]:
    """The file of a zipapp in this folder, and whether it was damaged. Each has a name of its own: pilots may begin
    with one of an earlier server. Raises OSError.
    """
    folder = programs.absolute() / hashlib.sha256(program).hexdigest()[:16]
    path, content = folder / PROGRAM, None
    try:
        with as_damage():
            content = keeper.read_regular(str(path))
    except ValueError:
        content = b""
    except FileNotFoundError:
        content = (
            b"" if any(is_there(place) and not place.is_dir() for place in (folder.parent, folder)) else None
        )
    if content != program:
        for place in (folder.parent, folder):
            make_folder(place)
        make_way(path)
        for place in (folder.parent, folder):
            place.chmod(0o755)
            sync_directory(place.parent)
        write_durably(path, program, mode=0o755)
    return path, content is not None and content != program


def launch(directory: PilotDirectory, *, python: str, cgroups: bool, isolation: Isolation) -> int | None:
    """Hand the pilot and its lock to a new keeper; its pid, or None if the pilot is kept or was started.

    The lock is inherited without a gap: whenever this process is killed, the pilot waits or is kept. Raises
    OSError; ValueError if what was submitted is damaged.
    """
    with directory.locked() as lock:
        if lock is None or directory.was_started():
            return None
        directory.begin()
        cgroup = make_cgroup(_cgroup_of(directory.path.resolve())) if cgroups else None
        try:
            plan = isolation.plan(directory.path / "work")
            return _spawn(directory, lock, python, [cgroup or "", plan])
        except OSError:
            if cgroup is not None:
                remove_cgroup(cgroup)
            raise


def _cgroup_of(path: Path) -> str:
    """Another server on this machine may have a pilot of the same stamp."""
    return f"lodesman-{path.name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


def _own_cgroup(pilot: PilotDirectory) -> str | None:
    """The cgroup of its record, if it has the right name: the folder may be a copy. Earlier releases took the
    folder's name as given.
    """
    cgroup = pilot.record().get("cgroup") or ""
    own = {_cgroup_of(path) for path in (pilot.path, pilot.path.resolve())}
    return cgroup if cgroup.rpartition("/")[2] in own else None


def limit_open_files(pid: int, soft: int) -> None:
    """Set the soft limit of a new keeper and what it starts; 0: leave it."""
    if soft:
        with contextlib.suppress(OSError, ValueError):  # it has ended
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard) if hard >= 0 else soft, hard))


def _spawn(directory: PilotDirectory, lock: int, python: str, more: list[str]) -> int:
    log = _open_log(directory)
    try:
        return os.posix_spawn(
            python,
            [python, "-I", "-S", keeper.__file__, str(directory.path), str(_LOCK_NUMBER), *more],
            _environment_for(directory),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, lock, _LOCK_NUMBER),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(log)


def _environment_for(directory: PilotDirectory) -> dict[str, str]:
    """A keeper carries the mark, too: it lives longer than any process of its pilot."""
    marks = {MARK: directory.stamp, ROOT_MARK: root_mark(directory.path.parent), _KEEPER_MARK: "1"}
    return {"PATH": os.environ.get("PATH", os.defpath), **marks}


def _open_log(directory: PilotDirectory) -> int:
    """At a number that is none of the standard streams. Raises OSError; ValueError if something else lies there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    damaged = ValueError(f"keeper.log of pilot {directory.stamp}")
    try:
        with as_damage():
            log = os.open(directory.path / "keeper.log", flags, 0o600)
    except ValueError:
        raise damaged from None
    try:
        if not stat.S_ISREG(os.fstat(log).st_mode):
            raise damaged
        return fcntl.fcntl(log, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(log)


def make_cgroup(name: str) -> str | None:
    """The path of a new cgroup below this process's own; None if it cannot be made or killed, or has processes."""
    try:
        own, mounts = (os.fsdecode(read_file(f"/proc/self/{name}")) for name in ("cgroup", "mountinfo"))
        parent = _own_directory(own, mounts)
        if parent is None:
            return None
        made = parent / name
        made.mkdir(exist_ok=True)
    except OSError:
        return None
    if (made / "cgroup.kill").exists():
        return None if _is_populated(made) else str(made)
    remove_cgroup(str(made))
    return None


def _is_populated(cgroup: Path) -> bool:
    with contextlib.suppress(OSError):
        return "populated 1" in (cgroup / "cgroup.events").read_text()
    return False


def _own_directory(own: str, mounts: str) -> Path | None:
    """Of this process's cgroup v2, from /proc/self/cgroup and mountinfo. None where the mount shows another part of
    the tree (a bind mount in a container).
    """
    path = parse_cgroups(own).get("", "")
    if not path.startswith("/") or "/.." in path:
        return None
    for mount in parse_mounts(mounts):
        root = mount.root.rstrip("/")
        if mount.kind == "cgroup2" and (path == root or path.startswith(root + "/")):
            return Path(mount.point + path.removeprefix(root))
    return None


def stop_kept(pilots: Sequence[PilotDirectory], *, grace_seconds: float, deadline_seconds: float) -> None:
    """Wait until none of these pilots is kept; kill them after `grace_seconds`, and all after the deadline."""
    begin = time.monotonic()
    left = _wait_until_free(pilots, begin + grace_seconds)
    for pilot in left:
        for process in pilot.processes()[:1]:
            signal_process(process, keeper.KILL_ORDER)
    left = _wait_until_free(left, begin + deadline_seconds)
    if left:
        roots = [process.pid for pilot in left for process in pilot.processes()]
        sweep(left, roots=roots, timeout=_SWEEP_SECONDS)
    _wait_until_free(left, time.monotonic() + 1.0)


def sweep(pilots: Sequence[PilotDirectory], *, roots: Collection[int] = (), timeout: float) -> set[str]:
    """Kill all that is left of these pilots, and what descends from `roots`; returns stamps of those that stay."""
    paths = {pilot.stamp: pilot.path for pilot in pilots}
    cgroups = [cgroup for pilot in pilots if (cgroup := _own_cgroup(pilot))]

    def find() -> list[Process]:
        table = living_processes()
        tops = [pid for pid in {*roots, *find_marked(paths, table)} if pid in table]
        return [table[pid] for pid in tops] + descendants(table, tops)

    for cgroup in cgroups:
        kill_cgroup(cgroup)
    # Twice: the first pass may have missed a process that forked behind it.
    if kill_family(find, timeout) or kill_family(find, timeout):
        return set(find_marked(paths, living_processes()).values()) or set(paths)
    for cgroup in cgroups:
        remove_cgroup(cgroup)
    return set()


def find_marked(paths: Mapping[str, Path], table: Mapping[int, Process]) -> dict[int, str]:
    """Number -> stamp of the processes that carry a mark of these pilots (stamp -> directory)."""
    spared, pid = set(), os.getpid()
    while pid in table:
        spared.add(pid)
        pid = table[pid].parent
    stamps = {pid: _stamp_of(process, paths) for pid, process in table.items() if pid not in spared}
    return {pid: stamp for pid, stamp in stamps.items() if stamp is not None}


def find_stamps(root: Path, table: Mapping[int, Process]) -> set[str]:
    """The stamps of all living pilots that were started in this folder."""
    mark, marks = root_mark(root), (_marks_of(process) for process in table.values())
    return {stamp for stamp, folder in marks if folder == mark and STAMP.fullmatch(stamp)}


def find_keepers(path: Path, table: Mapping[int, Process]) -> list[Process]:
    """Keeper and guard of a pilot, wherever its directory is. Those of earlier releases have no mark."""
    marks = (path.name, root_mark(path.parent))
    return [process for process in table.values() if _marks_of(process) == marks and _is_keeper(process)]


def _is_keeper(process: Process) -> bool:
    """Runs as this process does: what pilots start under another account may carry any mark."""
    with contextlib.suppress(OSError):
        is_own = Path(f"/proc/{process.pid}").stat().st_uid == os.geteuid()
        return is_own and f"{_KEEPER_MARK}=1".encode() in _environment_of(process)
    return False


def _environment_of(process: Process) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return []


def _marks_of(process: Process) -> tuple[str, str]:
    marks = dict(variable.partition(b"=")[::2] for variable in _environment_of(process))
    return os.fsdecode(marks.get(MARK.encode(), b"")), os.fsdecode(marks.get(ROOT_MARK.encode(), b""))


def _stamp_of(process: Process, paths: Mapping[str, Path]) -> str | None:
    """None for processes that are gone or another user's."""
    try:
        place = Path(f"/proc/{process.pid}/cwd").readlink()
    except OSError:
        return None
    stamp, root = _marks_of(process)
    if stamp in paths and root in ("", root_mark(paths[stamp].parent)):  # earlier releases gave none
        return stamp
    if process.tty:
        return None
    return next((stamp for stamp, path in paths.items() if place.is_relative_to(path)), None)


def _wait_until_free(pilots: Sequence[PilotDirectory], until: float) -> list[PilotDirectory]:
    left = list(pilots)
    while True:
        left = [pilot for pilot in left if pilot.kept()]
        rest = until - time.monotonic()
        if not left or rest <= 0:
            return left
        select.select([], [], [], min(rest, _CHECK_AGAIN_SECONDS))
