"""How a payload is started: its command, its environment, its streams, and the kernel's limits below it.

Limits are set by a shell that then becomes the payload; there is no preexec_fn, so no fork of the pilot.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lodesman.errors import LodesmanError
from lodesman.pilot.limits import MB, cpu_limit
from lodesman.pilot.output import TEMPORARY
from lodesman.pilot.proc import MARK, STAMP
from lodesman.pilot.protocol import Job, Limits
from lodesman.pilot.reaper import Streams
from lodesman.pilot.sandbox import BadSandbox, place

# Nothing else of the pilot's environment reaches a payload.
PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "MACHINEFEATURES",
    "JOBFEATURES",
)
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_RESERVED = frozenset({MARK, STAMP, "JOBID"})

# $1 $2: CPU seconds per process, soft and hard; $3: size of a file in blocks of 512 bytes.
# The soft limit goes first: it may not be above the hard one. A stricter limit of the site stays.
_SHELL = (
    '{ ulimit -c 0; ulimit -S -t "$1"; ulimit -H -t "$2"; ulimit -f "$3"; } 2>/dev/null; shift 3; exec "$@"'
)


class NotStarted(LodesmanError):
    """The payload cannot be started; the message says what is missing."""

    code = "not-started"


@dataclass(frozen=True)
class Launch:
    """All that `Reaper.spawn` needs."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    streams: Streams
    # (name, descriptor) of the streams that are kept open to be measured and read.
    kept: tuple[tuple[str, int], ...]

    def close(self) -> None:
        """Close all descriptors."""
        descriptors = {self.streams.stdin, *(descriptor for _, descriptor in self.kept)}
        for descriptor in descriptors:
            os.close(descriptor)


@dataclass(frozen=True)
class Outside:
    """The pilot's stamp and environment, and how much faster than the reference this node is."""

    stamp: str
    environment: Mapping[str, str]
    scaling: float = 1.0


def prepare(job: Job, directory: Path, outside: Outside) -> Launch:
    """Find the executable and open the streams. Raises NotStarted."""
    (directory / TEMPORARY).mkdir(mode=0o700, exist_ok=True)
    environment = environment_for(job, directory, outside)
    executable = find_executable(job.executable, directory, environment["PATH"])
    argv = (
        "/bin/sh",
        "-c",
        _SHELL,
        "sh",
        *kernel_limits(job.limits, scaling=outside.scaling),
        executable,
        *job.arguments,
    )
    if any("\0" in argument for argument in argv):
        raise NotStarted("An argument of the job holds a NUL character.")
    streams, kept = _open_streams(job, directory)
    return Launch(argv, environment, streams, kept)


def environment_for(job: Job, directory: Path, outside: Outside) -> dict[str, str]:
    """The payload's whole environment. Raises NotStarted for names and values that none can have."""
    values = {name: outside.environment[name] for name in PASSED_ON if name in outside.environment}
    values.setdefault("PATH", _USUAL_PATH)
    values["HOME"] = str(directory)
    values["TMPDIR"] = str(directory / TEMPORARY)
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise NotStarted(f"The job's environment variable {name[:100]!r} cannot be set.")
        if name not in _RESERVED:
            values[name] = value
    values[MARK] = job.label
    values[STAMP] = outside.stamp
    values["JOBID"] = str(job.id)
    return values


def kernel_limits(limits: Limits, *, scaling: float) -> tuple[str, str, str]:
    """Soft and hard CPU seconds and blocks of 512 bytes, each for one process alone: the net.

    It lies above what is measured over the tree, so that the pilot can end a payload in good order.
    """
    cpu = cpu_limit(limits, scaling)
    soft, hard = "unlimited", "unlimited"
    if cpu:
        soft, hard = str(math.ceil(cpu) + 5), str(math.ceil(cpu) + 15)
    blocks = "unlimited"
    if limits.output_mb:
        # Scratch files are no output: only what would fill the disk is cut off.
        blocks = str(math.ceil(max(4 * limits.output_mb, limits.output_mb + 1024)) * MB // 512)
    return soft, hard, blocks


def find_executable(name: str, directory: Path, path: str) -> str:
    """The file to execute: absolute, or in the job's directory, or a command on PATH. Raises NotStarted."""
    if not name or "\0" in name:
        raise NotStarted("The job names no executable.")
    if name.startswith("/"):
        found = shutil.which(name)
    else:
        own = directory / name
        if _is_inside(own, directory) and own.is_file():
            # Archives and uploads forget that a script may be executed.
            own.chmod(own.stat().st_mode | 0o700)
            return str(own)
        found = shutil.which(name, path=path) if "/" not in name else None
    if found is None:
        raise NotStarted(f"The executable {name[:200]!r} is neither in the input sandbox nor on this node.")
    return found


def _is_inside(path: Path, directory: Path) -> bool:
    try:
        return directory.resolve() in path.resolve().parents
    except (OSError, RuntimeError):
        return False


def _open_streams(job: Job, directory: Path) -> tuple[Streams, tuple[tuple[str, int], ...]]:
    opened: list[int] = []
    try:
        opened.append(_open_input(job.std_input, directory))
        opened.append(_open_output(job.std_output, directory))
        if os.path.normpath(job.std_error) == os.path.normpath(job.std_output):
            kept = ((job.std_output, opened[1]),)
            return Streams(opened[0], opened[1], opened[1]), kept
        opened.append(_open_output(job.std_error, directory))
        both = ((job.std_output, opened[1]), (job.std_error, opened[2]))
        return Streams(*opened), both
    except (OSError, ValueError, BadSandbox, NotStarted) as fault:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(fault, NotStarted):
            raise
        told = str(fault).replace(f"{directory}{os.sep}", "")
        raise NotStarted(f"A standard stream of the job cannot be opened: {told}") from None


def _open_input(name: str, directory: Path) -> int:
    path = directory / name if name else Path(os.devnull)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        where = "on this node" if path == Path(name) else "among the files of the job (InputSandbox)"
        raise NotStarted(f"The StdInput {name[:200]!r} is not {where}.") from None
    if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
        raise NotStarted(f"The StdInput {name[:200]!r} is no file.")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _open_output(name: str, directory: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(place(directory, name), flags, 0o600)
