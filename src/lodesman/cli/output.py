"""`lode output`: the output sandboxes of jobs, downloaded and unpacked, one directory per job."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import click

from lodesman.cli.exits import FAILED, exit_code
from lodesman.cli.ranges import Range, total
from lodesman.cli.session import JobRanges, Row, Session, json_option, merged, pass_session
from lodesman.cli.tables import emit_json, is_terminal, note
from lodesman.cli.unpack import Unpacked, unpack
from lodesman.cli.words import counted, plain, size
from lodesman.errors import LodesmanError, NotFound, Unauthorized, Unavailable

MOST_MB = 20_480
BAR_FROM = 5


@dataclass(slots=True)
class Fetched:
    """What became of all jobs named; faults with the job, or the first of the jobs, that they are about."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    without: int = 0
    faults: list[tuple[int, LodesmanError]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where outputs go."""

    root: Path
    force: bool
    most_bytes: int


@click.command()
@click.argument("ranges", nargs=-1, required=True, type=JobRanges(), metavar="JOB|RANGE...")
@click.option(
    "--dir",
    "root",
    default=".",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the directories of the jobs are made. [default: here]",
)
@click.option("--force", is_flag=True, help="Fetch again what is there already.")
@click.option(
    "--max-mb",
    type=click.IntRange(1),
    default=MOST_MB,
    show_default=True,
    help="The most that one job's output may be when unpacked.",
)
@json_option
@pass_session
def output(session: Session, /, *, ranges: tuple[Any, ...], root: Path, force: bool, max_mb: int) -> int:
    """Fetch what jobs wrote, into DIR/JOB.

    The output of the last attempt is downloaded, checked and unpacked; links and names that lead out of the
    directory are left out.
    """
    wanted = merged(ranges)
    place = Place(root=root, force=force, most_bytes=max_mb << 20)
    root.mkdir(parents=True, exist_ok=True)
    fetched = Fetched()
    with _progress(total(wanted)) as advance:
        for one in wanted:
            try:
                _fetch_range(session, one, place, (fetched, advance))
            except NotFound as fault:
                if len(wanted) == 1:
                    raise
                fetched.faults.append((one.first, fault))
    if session.as_json:
        faults = [{"id": job, **fault.as_dict()} for job, fault in fetched.faults]
        emit_json({"jobs": fetched.jobs, "without_output": fetched.without, "errors": faults})
    else:
        _tell(fetched)
    return _exit_code(fetched)


def _fetch_range(
    session: Session, wanted: Range, place: Place, told: tuple[Fetched, Callable[[int], Any]]
) -> None:
    """Raises NotFound for a range without a job, and for a single job without output."""
    fetched, advance = told
    known = False
    for job in session.jobs(wanted, all="true"):
        known = True
        if job["output_sha256"]:
            _fetch(session, job, place, fetched)
        elif wanted.size == 1:
            raise NotFound(f"Job {job['id']} has no output: it is {job['state']}.", job=job["id"])
        else:
            fetched.without += 1
        advance(1)
    if not known:
        session.refuse_missing(wanted)


def _fetch(session: Session, job: Row, place: Place, fetched: Fetched) -> None:
    """One job's output; what is wrong with it does not stop the others."""
    target = place.root / str(job["id"])
    if target.exists() and not place.force:
        fetched.jobs.append({"id": job["id"], "directory": str(target), "fetched": False})
        return
    try:
        done = download(session, job, target, place.most_bytes)
    except (Unauthorized, Unavailable):
        raise
    except LodesmanError as fault:
        fetched.faults.append((job["id"], fault))
        return
    left_out = [{"name": name, "reason": reason} for name, reason in done.left_out]
    fetched.jobs.append(
        {"id": job["id"], "directory": str(target), "fetched": True, "files": done.files, "bytes": done.size,
         "left_out": left_out}
    )  # fmt: skip


def download(session: Session, job: Row, target: Path, most_bytes: int) -> Unpacked:
    """Fetch and unpack beside the target, then put it there in one step; nothing half-done is left."""
    work = Path(tempfile.mkdtemp(prefix=f".lode-{job['id']}-", dir=target.parent))
    try:
        archive = work / "output.tar.gz"
        path = f"/v1/jobs/{job['id']}/output"
        session.client.download(path, archive, job["output_sha256"], job["output_size"])
        done = unpack(archive, work / "files", most_bytes=most_bytes)
        if target.exists():
            target.rename(work / "before")
        (work / "files").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return done


def _progress(jobs: int) -> AbstractContextManager[Callable[[int], Any]]:
    if jobs < BAR_FROM or not is_terminal(sys.stderr):
        return nullcontext(_nothing)
    from lodesman.cli.progress import job_bar

    return job_bar("fetching", jobs)


def _nothing(_count: int) -> None:
    """Nobody looks on."""


def _tell(fetched: Fetched) -> None:
    for one in islice(fetched.jobs, 1_000):
        if one["fetched"]:
            click.echo(f"{plain(one['directory'])}: {counted(one['files'], 'file')}, {size(one['bytes'])}")
            for left in one["left_out"][:5]:
                note(f"job {one['id']}: {left['name']} was left out: {left['reason']}.")
        else:
            note(f"{one['directory']} is there already; --force fetches it again.")
    if len(fetched.jobs) > 1_000:
        click.echo(f"In all {counted(len(fetched.jobs), 'job')}.")
    if fetched.without:
        note(f"{counted(fetched.without, 'job')} without output.")
    for job, fault in fetched.faults:
        note(str(fault) if isinstance(fault, NotFound) else f"job {job}: {fault}")


def _exit_code(fetched: Fetched) -> int:
    codes = {exit_code(fault) for _, fault in fetched.faults}
    if not codes:
        return 0
    return codes.pop() if len(codes) == 1 and not fetched.jobs else FAILED


COMMANDS = (output,)
