"""Downloads and unpacks outputs of jobs. Members are judged here: not every Python 3.11 has the filters of tarfile."""

from __future__ import annotations

import errno
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from lodesman.base.errors import Conflict, LodesmanError, TooLarge
from lodesman.pilot.archives import DAMAGED, members, steers
from lodesman.user.access.caller import Caller
from lodesman.wire import job_calls
from lodesman.wire.jobs import Job
from lodesman.wire.requests import JobAt
from lodesman.wire.vocabulary import JobState

_RAN = frozenset({"ok", "exit", "signal"})
_CHUNK = 1 << 18
MOST_FILES = 1_000_000
_MOST_LEFT_OUT = 10_000
_LONGEST = 255
# What the disk or this process lacks, for any output. Other errors are about what is unpacked: a name that is too long here.
_OF_ALL = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENODEV,
    errno.ENXIO, errno.ETIMEDOUT, errno.EINTR,
})  # fmt: skip
# What `lode` reads where a user works (`tokens.find_server`, `client_jsv.read_requests`): no job writes it.
STEERING = {
    "lode-data": "in a directory of that name lode would find the address of a server",
    ".lode_request": "in a file of that name lode would find options of your submissions",
}


@dataclass(slots=True)
class UnpackedOutput:
    """What came out, as programs get it."""

    files: int = 0
    bytes: int = 0
    left_out: list[dict[str, str]] = field(default_factory=list)  # each with `name` and `reason`
    kept: int = 0  # files that were there and are not of the output


class DamagedArchive(LodesmanError, code="damaged-archive"):
    """It cannot be read to its end or unpacked here."""


def wrote_nothing(job: Job) -> bool:
    """Its program ended and left no archive."""
    return job.output_sha256 is None and job.state in (JobState.DONE, JobState.FAILED) and job.cause in _RAN


def lacks_output(job: Job) -> str:
    """The sentence for a job without output."""
    if job.output_sha256 is None:
        return f"Job {job.id} has no output: it is {job.state}."
    return f"The output of job {job.id} was not kept: lode show {job.id}."


def download(caller: Caller, job: Job, target: Path, *, most_bytes: int) -> UnpackedOutput:
    """Unpack beside the target, and put it there in one step; file by file into a target that is there.

    Raises DamagedArchive, TooLarge, Conflict for an unfit target, LodesmanError; OSError if no output could be stored.
    """
    if os.path.lexists(target) and not target.is_dir():
        raise Conflict(f"{target} is there, and is no directory.", hint="Move it away.", job=job.id)
    beside = (target.resolve() if target.is_symlink() else target).parent  # it may lead to another disk
    with tempfile.TemporaryDirectory(
        prefix=f".lode-{job.id}-", dir=beside, ignore_cleanup_errors=True
    ) as made:
        work = Path(made)
        if wrote_nothing(job):
            done = UnpackedOutput()
            (work / "files").mkdir()
        else:
            archive = work / "output.tar.gz"
            path = job_calls.JOB_OUTPUT.address(JobAt(job.id))
            caller.client.download(path, archive, job.output_sha256 or "", job.output_size or 0)
            with _raise_damage(target):
                done = unpack(archive, work / "files", most_bytes=most_bytes)
        with _raise_damage(target):
            done.kept = _place(work / "files", target)
    return done


@contextmanager
def _raise_damage(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        if fault.errno in _OF_ALL:
            raise
        name = Path(os.fsdecode(fault.filename or "")).name
        where = f" ({name[:60]}{'...' if name[60:] else ''})" if name else ""
        hint = "A shorter --dir may do." if fault.errno == errno.ENAMETOOLONG else ""
        raise DamagedArchive(
            f"The output cannot be unpacked in {target.parent}: {fault.strerror or fault}{where}.", hint=hint
        ) from None


def _place(made: Path, target: Path) -> int:
    """Returns how many other files stay there. Raises Conflict before any file is moved."""
    if not target.exists():
        made.rename(target)
        return 0
    places = {path: target / path.relative_to(made) for path in sorted(made.rglob("*"))}
    for path, place in places.items():
        is_directory = place.is_dir() and not place.is_symlink()
        if os.path.lexists(place) and path.is_dir() is not is_directory:
            here, there = ("a directory", "none") if is_directory else ("no directory", "one")
            raise Conflict(f"{place} is {here}, and in the output {there}.", hint="Move it away.")
    for path, place in places.items():
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            path.replace(place)
    return sum(len(files) for _, _, files in os.walk(target)) - sum(
        1 for place in places.values() if not place.is_dir()
    )


def unpack(archive: Path, target: Path, *, most_bytes: int) -> UnpackedOutput:
    """Into a new directory. Raises DamagedArchive, TooLarge, OSError."""
    target.mkdir()
    out = UnpackedOutput()
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
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, out: UnpackedOutput, most_bytes: int
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


def _leave_out(out: UnpackedOutput, member: tarfile.TarInfo, reason: str) -> None:
    if len(out.left_out) >= _MOST_LEFT_OUT:
        raise DamagedArchive(f"More than {_MOST_LEFT_OUT} entries of the archive cannot be unpacked.")
    out.left_out.append({"name": member.name[:_LONGEST], "reason": reason})


def _refusal(path: PurePosixPath) -> str:
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
    """The mode that the umask allows, never setuid. A second file of that name would be lost."""
    _make_directory(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600 | (mode & 0o777))
    except (FileExistsError, IsADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} twice.") from None
    return os.fdopen(descriptor, "wb")
