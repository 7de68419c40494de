"""How a payload is started: its command, its environment, its streams, and the kernel's limits.

Limits are set by a shell that then becomes the payload; there is no preexec_fn, so no fork of the pilot.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from lodesman.errors import LodesmanError
from lodesman.pilot.output import TEMPORARY
from lodesman.pilot.processes import MARK, STAMP
from lodesman.pilot.protocol import MB, AssignedJob, PayloadLimits
from lodesman.pilot.reaper import Launch
from lodesman.pilot.sandbox import BadSandbox, make_place

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
)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_RESERVED = frozenset({MARK, STAMP, "JOBID"})

# $1 $2: CPU seconds per process, soft and hard; $3: size of a file in blocks of 512 bytes.
# The soft limit goes first: it may not be above the hard one. A stricter limit of the site stays.
_SHELL = (
    '{ ulimit -c 0; ulimit -S -t "$1"; ulimit -H -t "$2"; ulimit -f "$3"; } 2>/dev/null; shift 3; exec "$@"'
)


class NotStarted(LodesmanError):
    """The payload cannot be started; the message says what is missing."""

    code = "not-started"


def prepare(job: AssignedJob, directory: Path, environment: Mapping[str, str], stamp: str) -> Launch:
    """Find the executable and open the streams. `environment` and `stamp` are the pilot's. Raises NotStarted."""
    (directory / TEMPORARY).mkdir(mode=0o700, exist_ok=True)
    own = _environment_for(job, directory, environment, stamp)
    executable = _find_executable(job.executable, directory, own["PATH"])
    argv = ("/bin/sh", "-c", _SHELL, "sh", *_kernel_limits(job.limits), executable, *job.arguments)
    if any("\0" in argument for argument in argv):
        raise NotStarted("An argument of the job contains a NUL character.")
    stdin, outputs = _open_streams(job, directory)
    return Launch(argv, own, directory, stdin, outputs)


def _environment_for(
    job: AssignedJob, directory: Path, environment: Mapping[str, str], stamp: str
) -> dict[str, str]:
    """The payload's whole environment. Raises NotStarted for names and values that cannot be set."""
    values = {name: environment[name] for name in _PASSED_ON if name in environment}
    values.setdefault("PATH", _DEFAULT_PATH)
    values["HOME"] = str(directory)
    values["TMPDIR"] = str(directory / TEMPORARY)
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise NotStarted(f"The job's environment variable {name[:100]!r} cannot be set.")
        if name not in _RESERVED:
            values[name] = value
    values[MARK] = str(job.key)
    values[STAMP] = stamp
    values["JOBID"] = str(job.key.id)
    return values


def _kernel_limits(limits: PayloadLimits) -> tuple[str, str, str]:
    """Soft and hard CPU seconds and blocks of 512 bytes, each for one process alone.

    They lie above the limits of the whole tree, so that the pilot can end a payload in good order.
    """
    soft, hard = "unlimited", "unlimited"
    if limits.cpu_seconds:
        soft, hard = str(math.ceil(limits.cpu_seconds) + 5), str(math.ceil(limits.cpu_seconds) + 15)
    blocks = "unlimited"
    if limits.output_mb:
        # Scratch files are no output: only what would fill the disk is cut off.
        blocks = str(math.ceil(max(4 * limits.output_mb, limits.output_mb + 1024)) * MB // 512)
    return soft, hard, blocks


def _find_executable(name: str, directory: Path, path: str) -> str:
    """The file to execute: absolute, in the job's directory, or a command on PATH. Raises NotStarted."""
    if not name or "\0" in name:
        raise NotStarted("The job names no executable.")
    if name.startswith("/"):
        found = shutil.which(name)
    else:
        own = directory / name
        if _is_inside(own, directory) and own.is_file():
            # Archives and uploads lose the permission to execute.
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


def _open_streams(job: AssignedJob, directory: Path) -> tuple[int, dict[str, int]]:
    """Descriptors of the input, and of the outputs by name."""
    opened: list[int] = []
    try:
        opened.append(_open_input(job.std_input, directory))
        opened.append(_open_output(job.std_output, directory))
        if os.path.normpath(job.std_error) == os.path.normpath(job.std_output):
            return opened[0], {job.std_output: opened[1]}
        opened.append(_open_output(job.std_error, directory))
        return opened[0], {job.std_output: opened[1], job.std_error: opened[2]}
    except (OSError, ValueError, BadSandbox, NotStarted) as fault:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(fault, NotStarted):
            raise
        reason = str(fault).replace(f"{directory}{os.sep}", "")
        raise NotStarted(f"A standard stream of the job cannot be opened: {reason}") from None


def _open_input(name: str, directory: Path) -> int:
    path = directory / name if name else Path(os.devnull)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        where = "on this node" if path == Path(name) else "among the files of the job (InputSandbox)"
        raise NotStarted(f"The StdInput {name[:200]!r} is not {where}.") from None
    if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
        raise NotStarted(f"The StdInput {name[:200]!r} is not a file.")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _open_output(name: str, directory: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(make_place(directory, name), flags, 0o600)
