"""What a payload is started with: input sandbox, command, environment, streams, limits of the kernel.

Archives are unpacked by hand: the standard library's filters are younger than Python 3.9.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import shutil
import stat
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from lodesman.base import kernel
from lodesman.base.errors import LodesmanError
from lodesman.pilot.archives import DAMAGED, members, steers
from lodesman.pilot.decisions import is_of_node
from lodesman.pilot.protocol import MB, AssignedJob, PayloadLimits, SandboxFile
from lodesman.pilot.warden import Launch, WardenFrame
from lodesman.wire.client import Client

# The job's own temporary files; never part of its output.
TEMPORARY = ".tmp"
# A payload that touches this file has committed: what it did so far is not lost if it is ended.
COMMIT = f"{TEMPORARY}/.commit"
# A payload's environment names its attempt and, by the stamp, its pilot; so does the local backend's, which names the
# server that it is of, too.
_MARK = "LODESMAN_JOB"
_STAMP = "LODESMAN_STAMP"
_PILOTS = "LODESMAN_PILOTS"
# Nothing else of the pilot's environment reaches a payload.
_PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "MACHINEFEATURES",
    "JOBFEATURES",
    _PILOTS,
)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The status of the pilot is the pilot's own (JOBSTATUS).
_RESERVED = frozenset({_MARK, _STAMP, _PILOTS, "JOBID", "JOBSTATUS", "LODESMAN_COMMIT"})
# What a job knows of itself begins so, and nothing else does.
_FACTS = "LODE_"

# The threads that a job may have besides so many for each of its cores: enough for any program, not for a flood.
_PROCESSES = 500
# Address space beyond twice the memory: many programs reserve what they never use.
_SPARE_ADDRESSES_MB = 4096
_MAX_MEMBERS = 100_000
_MAX_BYTES = 8 << 30
_CHUNK = 1 << 18
# The path of a Unix socket has at most 107 bytes, of which Python's multiprocessing takes 32 below TMPDIR.
_LONGEST_TMP = 75


class NotStarted(LodesmanError, code="not-started"):
    """The message says what is missing."""


def committed_at(directory: Path) -> float | None:
    """When a payload last touched its COMMIT, in UNIX seconds."""
    try:
        entry = os.lstat(f"{directory}/{COMMIT}")
    except OSError:
        return None
    return entry.st_mtime if stat.S_ISREG(entry.st_mode) and entry.st_uid == os.geteuid() else None


# --- the command ----------------------------------------------------------------------------------------


def frame_of(job: AssignedJob) -> WardenFrame:
    """What the kernel holds each process to."""
    return WardenFrame(tuple(_kernel_limits(job.limits).items()), _PROCESSES * (1 + job.cores))


def prepare(
    job: AssignedJob, directory: Path, environment: Mapping[str, str], stamp: str, *, site: str = ""
) -> Launch:
    """`environment`, `stamp`, `site` are the pilot's. Raises NotStarted, OSError by the node's fault."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{directory}/{TEMPORARY}", 0o700)  # noqa: PTH102 - with pathlib all of this takes twice as long
    own = {**_environment_for(job, directory, environment, stamp), **_facts_of(job, site)}
    argv = (_find_executable(job.executable, directory, own["PATH"]), *job.arguments)
    if any("\0" in argument for argument in argv):
        raise NotStarted("An argument of the job contains a NUL character.")
    if "\0" in job.std_input:
        raise NotStarted("The StdInput of the job contains a NUL character.")
    tmp = own["TMPDIR"]
    is_long = tmp == f"{directory}/{TEMPORARY}" and len(os.fsencode(tmp)) > _LONGEST_TMP
    return Launch(
        argv, own, str(directory), _open_outputs(job, directory), job.std_input, frame_of(job),
        math.ceil(job.limits.memory_mb), tmp if is_long else "",
    )  # fmt: skip


def no_input(job: AssignedJob, number: int) -> NotStarted:
    """A standard input that could not be opened; EINVAL: it is no file."""
    name = repr(job.std_input[:200])
    if number in (errno.ENOENT, errno.ENOTDIR):
        where = (
            "on this node" if job.std_input.startswith("/") else "among the files of the job (InputSandbox)"
        )
        return NotStarted(f"The StdInput {name} is not {where}.")
    if number == errno.EINVAL:
        return NotStarted(f"The StdInput {name} is not a file.")
    return NotStarted(f"The StdInput {name} cannot be opened: {os.strerror(number)}.")


def _environment_for(
    job: AssignedJob, directory: Path, environment: Mapping[str, str], stamp: str
) -> dict[str, str]:
    values = {name: environment[name] for name in _PASSED_ON if name in environment}
    values.setdefault("PATH", _DEFAULT_PATH)
    values["HOME"] = str(directory)
    values["TMPDIR"] = f"{directory}/{TEMPORARY}"
    values["OMP_NUM_THREADS"] = str(job.cores)
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise NotStarted(f"The job's environment variable {name[:100]!r} cannot be set.")
        if name not in _RESERVED and not name.startswith(_FACTS):
            values[name] = value
    values[_MARK] = str(job.key)
    values[_STAMP] = stamp
    values["JOBID"] = str(job.key.id)
    values["LODESMAN_COMMIT"] = f"{directory}/{COMMIT}"
    return values


def _facts_of(job: AssignedJob, site: str) -> dict[str, str]:
    facts = {"JOB_ID": job.key.id, "ATTEMPT": job.key.attempt, "CORES": job.cores, "ARRAY_INDEX": job.index}
    facts["MEMORY_MB"] = job.memory_mb or None
    values = {f"{_FACTS}{name}": str(value) for name, value in facts.items() if value is not None}
    return {**values, f"{_FACTS}SITE": site} if site else values


def _kernel_limits(limits: PayloadLimits) -> dict[int, tuple[int, int]]:
    """For each process, above the tree's: CPU seconds, size of files, and address space, since memory may fill between two
    checks.
    """
    numbers = {resource.RLIMIT_CORE: (0, 0)}
    if limits.cpu_seconds:
        seconds = math.ceil(limits.cpu_seconds)
        numbers[resource.RLIMIT_CPU] = (seconds + 5, seconds + 15)
    if limits.output_mb:
        # Scratch files are no output: only what would fill the disk is cut off.
        size = math.ceil(max(4 * limits.output_mb, limits.output_mb + 1024)) * MB
        numbers[resource.RLIMIT_FSIZE] = (size, size)
    if limits.memory_mb:
        size = math.ceil(2 * limits.memory_mb + _SPARE_ADDRESSES_MB) * MB
        numbers[resource.RLIMIT_AS] = (size, size)
    return numbers


def _find_executable(name: str, directory: Path, path: str) -> str:
    if not name or "\0" in name:
        raise NotStarted("The job names no executable.")
    if name.startswith("/"):
        return _find_absolute(name)
    own = directory / name
    if _is_inside(own, directory) and own.is_file():
        # Other clients than ours may not say that it may be executed.
        own.chmod(own.stat().st_mode | 0o700)
        with own.open("rb") as program:
            if kernel.wants_interpreter_with_cr(program.read(kernel.FIRST_LINE_BYTES)):
                raise NotStarted(
                    f"The first line of the executable {name[:200]!r} ends with CR LF: no node has such an interpreter. "
                    "Write it with line ends of Unix."
                )
        return str(own)
    command = None if "/" in name else shutil.which(name, path=path)
    if command is None:
        raise _not_found(name)
    return command


@lru_cache(maxsize=100)
def _find_absolute(name: str) -> str:
    """Not searched again: the warden says it if it has gone."""
    if shutil.which(name) is None:
        raise _not_found(name)
    return name


def _not_found(name: str) -> NotStarted:
    return NotStarted(f"The executable {name[:200]!r} is neither in the input sandbox nor on this node.")


def _is_inside(path: Path, directory: Path) -> bool:
    with contextlib.suppress(OSError, RuntimeError):
        return directory.resolve() in path.resolve().parents
    return False


def _open_outputs(job: AssignedJob, directory: Path) -> dict[str, int]:
    names = _stream_names(job.std_output, job.std_error)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    opened: list[int] = []
    try:
        for name in names:
            at = (
                f"{directory}/{name}"
                if str(safe_name(name)) == safe_name(name).name
                else make_place(directory, name)
            )
            opened.append(os.open(at, flags, 0o600))
    except (OSError, ValueError, BadSandbox) as fault:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(fault, OSError) and is_of_node(fault.errno):
            raise
        reason = str(fault).replace(f"{directory}{os.sep}", "")
        raise NotStarted(f"A standard stream of the job cannot be opened: {reason}") from None
    return dict(zip(names, opened))


@lru_cache(maxsize=1000)
def _stream_names(output: str, error: str) -> tuple[str, ...]:
    return (output,) if os.path.normpath(error) == os.path.normpath(output) else (output, error)


def remove_tree(directory: Path) -> None:
    """Remove what is unreadable, too; what resists stays."""
    kernel.remove_tree(str(directory))


# --- the input sandbox ----------------------------------------------------------------------------------


class BadSandbox(LodesmanError, code="sandbox"):
    """An input sandbox, or a name that a job gives, is refused."""


@lru_cache(maxsize=1000)
def safe_name(name: str) -> PurePosixPath:
    """A relative path without `.` and `..`. Raises BadSandbox."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    outside = steers(name) or path.is_absolute() or ".." in parts or not parts
    if outside or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        raise BadSandbox(f"{_plain_name(name)!r} is not the name of a file inside the job's directory.")
    return PurePosixPath(*parts)


def make_place(directory: Path, name: str) -> Path:
    """The path for a file; makes its parents. Raises BadSandbox if it leads out, also by a link."""
    relative = safe_name(name)
    at = directory
    for part in relative.parts[:-1]:
        at = at / part
        try:
            at.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(at.lstat().st_mode):
                message = f"{_plain_name(name)!r} leads through something that is not a directory."
                raise BadSandbox(message) from None
    return at / relative.name


def fetch(client: Client, item: SandboxFile, directory: Path, *, spare: Path) -> None:
    """Download a part of the input sandbox; `spare`: a path for an archive. Raises BadSandbox, OSError, and what the client
    raises.
    """
    if not item.unpack:
        target = make_place(directory, item.name)
        client.download(item.url, target, item.sha256, item.size)
        target.chmod(0o700 if item.executable else 0o600)
        _set_time(target, item.modified)
        return
    try:
        client.download(item.url, spare, item.sha256, item.size)
        unpack(spare, directory)
    finally:
        spare.unlink(missing_ok=True)


def unpack(archive: Path, directory: Path) -> None:
    """Files, directories and links that stay inside are accepted, owners dropped, times kept of files. Raises BadSandbox,
    OSError.
    """
    try:
        with archive.open("rb") as raw:
            size = 0
            for count, (tar, member) in enumerate(members(raw), start=1):
                size += member.size
                if count > _MAX_MEMBERS or size > _MAX_BYTES:
                    raise BadSandbox("The input sandbox becomes too large when it is unpacked.")
                _unpack_one(tar, member, directory)
    except DAMAGED as fault:
        raise BadSandbox(f"The input sandbox is not a readable archive: {_plain_name(str(fault))}.") from None


def _unpack_one(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    if member.isdir() and not [part for part in PurePosixPath(member.name).parts if part != "."]:
        return  # the entry for the directory itself
    target = make_place(directory, member.name)
    if member.isdir():
        make_place(directory, f"{member.name}/x")
        return
    if target.is_symlink() or target.is_file():
        target.unlink()
    if member.issym():
        _make_link(member, target)
    elif member.isreg():
        source = cast("BinaryIO", tar.extractfile(member))  # None for other members only
        mode = 0o700 if member.mode & 0o100 else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with source, os.fdopen(os.open(target, flags, mode), "wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
        _set_time(target, member.mtime)
    else:
        message = "in the input sandbox is not a file, directory or symbolic link."
        raise BadSandbox(f"{_plain_name(member.name)!r} {message}")


def _set_time(file: Path, modified: float) -> None:
    """No later than now, for the sake of make; 0: not known."""
    at = min(modified, file.lstat().st_mtime)
    if at > 0:
        os.utime(file, (at, at), follow_symlinks=False)


def _make_link(member: tarfile.TarInfo, target: Path) -> None:
    """`..` may only stand first: from a real directory it leads where it seems to."""
    goal = PurePosixPath(member.linkname)
    ups = len(list(takewhile("..".__eq__, goal.parts)))
    leaves = ups >= len(safe_name(member.name).parts) or ".." in goal.parts[ups:]
    if goal.is_absolute() or leaves or "\0" in member.linkname or not goal.parts:
        raise BadSandbox(f"The symbolic link {_plain_name(member.name)!r} leads out of the job's directory.")
    target.symlink_to(member.linkname)


def _plain_name(name: str) -> str:
    return name[:100].encode("utf-8", "replace").decode()
