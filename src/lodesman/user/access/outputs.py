"""The output sandbox of a job, downloaded and unpacked.

An output may be meant to harm: only plain files and directories below the target are unpacked, up to a size. The members
are judged here, since not every Python 3.11 has the filters of tarfile.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from lodesman.base.errors import LodesmanError, TooLarge
from lodesman.pilot.archives import DAMAGED, members, steers
from lodesman.user.access.caller import Caller
from lodesman.wire import calls
from lodesman.wire.jobs import Job
from lodesman.wire.requests import JobAt
from lodesman.wire.vocabulary import JobState

_RAN = frozenset({"ok", "exit", "signal"})
_CHUNK = 1 << 18
MOST_FILES = 1_000_000
_MOST_LEFT_OUT = 10_000
_LONGEST = 255
# What `lode` reads where a user works (`tokens.find_server`, `client_jsv.read_requests`): no job writes it.
STEERING = {
    "lode-data": "in a directory of that name lode would find the address of a server",
    ".lode_request": "in a file of that name lode would find options of your submissions",
}


@dataclass(slots=True)
class Unpacked:
    """What came out, as programs get it: files and their bytes, and what was left out, with `name` and `reason`."""

    files: int = 0
    bytes: int = 0
    left_out: list[dict[str, str]] = field(default_factory=list)


class DamagedArchive(LodesmanError, code="damaged-archive"):
    """An archive that cannot be read to its end."""


def wrote_nothing(job: Job) -> bool:
    """Whether its program ran to an end and there is nothing of it: its output is empty, and no archive was made."""
    return job.output_sha256 is None and job.state in (JobState.DONE, JobState.FAILED) and job.cause in _RAN


def lacks_output(job: Job) -> str:
    """What is said of a job without an output."""
    if job.output_sha256 is None:
        return f"Job {job.id} has no output: it is {job.state}."
    return f"The output of job {job.id} was not kept: lode show {job.id}."


def download(caller: Caller, job: Job, target: Path, *, most_bytes: int) -> Unpacked:
    """Fetch and unpack beside the target, then put it there in one step; nothing half-done is left. Of a job that wrote
    nothing it is empty.

    Raises DamagedArchive, TooLarge, what the client raises, OSError.
    """
    with tempfile.TemporaryDirectory(
        prefix=f".lode-{job.id}-", dir=target.parent, ignore_cleanup_errors=True
    ) as made:
        work = Path(made)
        if wrote_nothing(job):
            done = Unpacked()
            (work / "files").mkdir()
        else:
            archive = work / "output.tar.gz"
            path = calls.JOB_OUTPUT.address(JobAt(job.id))
            caller.client.download(path, archive, job.output_sha256 or "", job.output_size or 0)
            done = unpack(archive, work / "files", most_bytes=most_bytes)
        if target.exists():
            target.rename(work / "before")
        (work / "files").rename(target)
    return done


def unpack(archive: Path, target: Path, *, most_bytes: int) -> Unpacked:
    """Unpack a tar.gz into a new directory. Raises DamagedArchive and TooLarge; OSError for the disk."""
    target.mkdir()
    out = Unpacked()
    try:
        with archive.open("rb") as raw:
            for count, (tar, member) in enumerate(members(raw)):
                if count >= MOST_FILES:
                    raise TooLarge(f"The archive has more than {MOST_FILES} files.", limit=MOST_FILES)
                # Headers and what is left out are read, too.
                _check_size(tar.offset, most_bytes)
                _take(tar, member, target, out, most_bytes)
    except DAMAGED as fault:
        raise DamagedArchive(f"The archive is damaged: {str(fault)[:200]}.") from None
    return out


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise TooLarge(
            f"The output is more than {most_bytes >> 20} MB when unpacked.",
            hint="If that is right: lode output --max-mb N.",
            limit=most_bytes,
        )


def _take(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, out: Unpacked, most_bytes: int
) -> None:
    path = PurePosixPath(member.name)
    if refusal := _refusal(path):
        _leave_out(out, member, refusal)
        return
    if member.isdir():
        _make_directory(target / path)
        return
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        _leave_out(out, member, "it is not a plain file")
        return
    with _new_file(target / path, member.mode) as sink:
        while chunk := source.read(_CHUNK):
            out.bytes += len(chunk)
            _check_size(out.bytes, most_bytes)
            sink.write(chunk)
        sink.flush()
        # No later than now: make would take it for newer than what is made of it.
        changed = min(member.mtime, os.fstat(sink.fileno()).st_mtime)
        if changed > 0:  # else it is not known
            os.utime(sink.fileno(), (changed, changed))
    out.files += 1


def _leave_out(out: Unpacked, member: tarfile.TarInfo, reason: str) -> None:
    if len(out.left_out) >= _MOST_LEFT_OUT:
        raise DamagedArchive(f"More than {_MOST_LEFT_OUT} entries of the archive cannot be unpacked.")
    out.left_out.append({"name": member.name[:_LONGEST], "reason": reason})


def _refusal(path: PurePosixPath) -> str:
    """Why nothing of that name is unpacked, '' if it may be."""
    if path.is_absolute() or not path.parts or ".." in path.parts:
        return "its name leads out of the directory"
    if steers(str(path)):
        return "its name has control characters"
    for name in map(str.casefold, path.parts):
        if name in STEERING:
            return STEERING[name]
    return ""


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} as a file and as a directory.") from None


def _new_file(path: Path, mode: int) -> IO[bytes]:
    """A new file that its owner can read, with what else of the mode the umask allows; never setuid.

    An archive that has one name twice is refused, since one of the two would be lost.
    """
    _make_directory(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600 | (mode & 0o777))
    except (FileExistsError, IsADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} twice.") from None
    return os.fdopen(descriptor, "wb")
