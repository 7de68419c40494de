"""`lode output`: the output sandboxes of jobs, downloaded and unpacked, one directory per job.

An output may be meant to harm: only plain files and directories below the target are unpacked, up to a size. The members
are judged here, since not every Python 3.11 has the filters of tarfile.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

import click

from lodesman.answers import calls
from lodesman.answers.job_queries import JobsQuery
from lodesman.answers.jobs import Job
from lodesman.answers.requests import JobAt
from lodesman.cli.arguments import DIRECTORY, JOB_RANGES, Range, merged, number_option, total
from lodesman.cli.faults import exit_code_of
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import note, progress
from lodesman.cli.words import counted, plain, size
from lodesman.errors import LodesmanError, NotFound, TooLarge, Unauthorized, Unavailable
from lodesman.pilot.archives import DAMAGED, members, steers

_BAR_FROM = 5
_CHUNK = 1 << 18
MOST_FILES = 1_000_000
_MOST_LEFT_OUT = 10_000
_LONGEST = 255
# `session.find_server` reads an address in it, where a user works.
_SERVER_DIRECTORY = "lode-data"


@dataclass(slots=True)
class _Unpacked:
    """What came out, as programs get it: files and their bytes, and what was left out, with `name` and `reason`."""

    files: int = 0
    bytes: int = 0
    left_out: list[dict[str, str]] = field(default_factory=list)


class DamagedArchive(LodesmanError, code="damaged-archive"):
    """An archive that cannot be read to its end."""


@dataclass(slots=True, kw_only=True)
class _Outputs:
    """Where outputs go, and what became of all jobs named: None where the directory was there already. Faults come with
    the job, or the first of the jobs, that they are about.
    """

    session: Session
    root: Path
    force: bool
    most_bytes: int
    advance: Callable[[int], None] = lambda _: None
    jobs: list[tuple[int, Path, _Unpacked | None]] = field(default_factory=list)
    without: int = 0
    faults: list[tuple[int, LodesmanError]] = field(default_factory=list)


@click.command()
@click.argument("ranges", nargs=-1, required=True, type=JOB_RANGES, metavar="JOB|RANGE...")
@click.option(
    "--dir", "root", default=".", metavar="DIR", type=DIRECTORY, help="Where DIR/JOB is made. [default: here]"
)
@click.option("--force", is_flag=True, help="Fetch again what is there already.")
@number_option("--max-mb", click.IntRange(1), 20_480, "Maximum size of one job's output when unpacked.")
@with_session
def output(session: Session, /, *, ranges: tuple[Any, ...], root: Path, force: bool, max_mb: int) -> int:
    """Fetch what jobs wrote, into DIR/JOB.

    The output of the last attempt is downloaded, checked and unpacked; links and names that lead out of the
    directory are left out.
    """
    wanted = merged(ranges)
    root.mkdir(parents=True, exist_ok=True)
    outputs = _Outputs(session=session, root=root, force=force, most_bytes=max_mb << 20)
    with progress("fetching", total(wanted), shown=total(wanted) >= _BAR_FROM) as outputs.advance:
        for one in wanted:
            try:
                _fetch_range(outputs, one)
            except NotFound as fault:
                if len(wanted) == 1:
                    raise
                outputs.faults.append((one.first, fault))
    code = exit_code_of((fault for _, fault in outputs.faults), some_done=bool(outputs.jobs))
    rows = [
        {"id": job, "directory": str(directory), "fetched": bool(done)} | (asdict(done) if done else {})
        for job, directory, done in outputs.jobs
    ]
    errors = [{"id": job, **fault.as_dict()} for job, fault in outputs.faults]
    session.exit_if_json({"jobs": rows, "without_output": outputs.without, "errors": errors}, code)
    _show(outputs)
    return code


def _fetch_range(outputs: _Outputs, wanted: Range) -> None:
    """Raises NotFound for a range without a job, and for a single job without output."""
    known = False
    for job in outputs.session.jobs(JobsQuery(first=wanted.first, last=wanted.last, all=True)):
        known = True
        if job.output_sha256:
            _fetch(outputs, job)
        elif wanted.size == 1:
            raise NotFound(f"Job {job.id} has no output: it is {job.state}.", job=job.id)
        else:
            outputs.without += 1
        outputs.advance(1)
    if not known:
        outputs.session.refuse_missing(wanted)


def _fetch(outputs: _Outputs, job: Job) -> None:
    """One job's output; a fault in it does not stop the others."""
    directory = outputs.root / str(job.id)
    done = None
    if outputs.force or not directory.exists():
        try:
            done = _download(outputs, job, directory)
        except (Unauthorized, Unavailable):
            raise
        except LodesmanError as fault:
            outputs.faults.append((job.id, fault))
            return
    outputs.jobs.append((job.id, directory, done))


def _download(outputs: _Outputs, job: Job, target: Path) -> _Unpacked:
    """Fetch and unpack beside the target, then put it there in one step; nothing half-done is left."""
    with tempfile.TemporaryDirectory(
        prefix=f".lode-{job.id}-", dir=target.parent, ignore_cleanup_errors=True
    ) as made:
        work = Path(made)
        archive = work / "output.tar.gz"
        path = calls.JOB_OUTPUT.address(JobAt(job.id))
        outputs.session.client.download(path, archive, job.output_sha256 or "", job.output_size or 0)
        done = unpack(archive, work / "files", most_bytes=outputs.most_bytes)
        if target.exists():
            target.rename(work / "before")
        (work / "files").rename(target)
    return done


def _show(outputs: _Outputs) -> None:
    for job, directory, done in islice(outputs.jobs, 1_000):
        if done is None:
            note(f"{directory} is there already; --force fetches it again.")
            continue
        click.echo(f"{plain(directory)}: {counted(done.files, 'file')}, {size(done.bytes)}")
        for one in done.left_out[:5]:
            note(f"job {job}: {one['name']} was left out: {one['reason']}.")
    if len(outputs.jobs) > 1_000:
        click.echo(f"In all {counted(len(outputs.jobs), 'job')}.")
    if outputs.without:
        note(f"{counted(outputs.without, 'job')} without output.")
    for job, fault in outputs.faults:
        note(str(fault) if isinstance(fault, NotFound) else f"job {job}: {fault}")


def unpack(archive: Path, target: Path, *, most_bytes: int) -> _Unpacked:
    """Unpack a tar.gz into a new directory. Raises DamagedArchive and TooLarge; OSError for the disk."""
    target.mkdir()
    out = _Unpacked()
    try:
        with archive.open("rb") as raw:
            for count, (tar, member) in enumerate(members(raw)):
                if count >= MOST_FILES:
                    raise TooLarge(f"The archive has more than {MOST_FILES} files.", limit=MOST_FILES)
                # Headers and what is left out are read, too.
                _check_size(tar.offset, most_bytes)
                _take(tar, member, target, out, most_bytes)
    except DAMAGED as fault:
        raise DamagedArchive(f"The archive is damaged: {plain(str(fault)[:200])}.") from None
    return out


def _check_size(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise TooLarge(
            f"The output is more than {most_bytes >> 20} MB when unpacked.",
            hint="If that is right: lode output --max-mb N.",
            limit=most_bytes,
        )


def _take(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, out: _Unpacked, most_bytes: int
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
    with _new_file(target / path) as sink:
        while chunk := source.read(_CHUNK):
            out.bytes += len(chunk)
            _check_size(out.bytes, most_bytes)
            sink.write(chunk)
    out.files += 1


def _leave_out(out: _Unpacked, member: tarfile.TarInfo, reason: str) -> None:
    if len(out.left_out) >= _MOST_LEFT_OUT:
        raise DamagedArchive(f"More than {_MOST_LEFT_OUT} entries of the archive cannot be unpacked.")
    out.left_out.append({"name": member.name[:_LONGEST], "reason": reason})


def _refusal(path: PurePosixPath) -> str:
    """Why nothing of that name is unpacked, '' if it may be."""
    if path.is_absolute() or not path.parts or ".." in path.parts:
        return "its name leads out of the directory"
    if steers(str(path)):
        return "its name has control characters"
    if _SERVER_DIRECTORY in map(str.casefold, path.parts):
        return "in a directory of that name lode would find the address of a server"
    return ""


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} as a file and as a directory.") from None


def _new_file(path: Path) -> IO[bytes]:
    """A new file, not executable; an archive that has one name twice is refused, since one of the two would be lost."""
    _make_directory(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o666)
    except (FileExistsError, IsADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} twice.") from None
    return os.fdopen(descriptor, "wb")
