"""`lode output`: one directory per job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import click

from lodesman.base.errors import LodesmanError, NotFound, Unauthorized, Unavailable
from lodesman.user.access.outputs import UnpackedOutput, download, lacks_output, wrote_nothing
from lodesman.user.cli.arguments import DIRECTORY, JOB_RANGES, Range, merge_ranges, number_option, total
from lodesman.user.cli.faults import exit_code_of
from lodesman.user.cli.progress import progress
from lodesman.user.cli.selection import choice_options, choose_jobs, take_choice
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import emit_json, note
from lodesman.user.cli.words import counted, plain, size
from lodesman.wire.job_queries import JobsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.vocabulary import JobState

_BAR_FROM, _MOST_SHOWN = 5, 1_000


@dataclass(slots=True, kw_only=True)
class _Outputs:
    session: Session
    root: Path
    force: bool
    most_bytes: int
    by_number: bool  # so a single job without output is a fault
    advance: Callable[[int], None] = lambda _: None
    jobs: list[tuple[int, Path, UnpackedOutput | None]] = field(
        default_factory=list
    )  # None: the directory was there
    without: int = 0
    faults: list[tuple[int, LodesmanError]] = field(
        default_factory=list
    )  # with the job, or the first of a range
    remarks: dict[int, str] = field(default_factory=dict)  # what an output lacks, by job


@click.command()
@click.argument("ranges", nargs=-1, type=JOB_RANGES, metavar="[JOB|RANGE]...")
@choice_options
@click.option(
    "--dir", "root", default=".", metavar="DIR", type=DIRECTORY, help="Where DIR/JOB is made. [default: here]"
)
@click.option("--force", is_flag=True, help="Fetch again what is there already; other files in DIR/JOB stay.")
@number_option("--max-mb", click.IntRange(1), 20_480, "Maximum size of one job's output when unpacked.")
@with_session
def output(
    session: Session, /, *, ranges: tuple[Any, ...], root: Path, force: bool, max_mb: int, **options: Any
) -> int:
    """Fetch what jobs wrote, into DIR/JOB.

    Jobs are named, or chosen with --state, --job-group, --where and so on among your own; all that are given must hold.

    The output of the last attempt is downloaded, checked and unpacked; links and names that lead out of the
    directory are left out.
    """
    choice = take_choice(options)
    meant = choose_jobs(session, merge_ranges(ranges), choice)
    root.mkdir(parents=True, exist_ok=True)
    outputs = _Outputs(
        session=session, root=root, force=force, most_bytes=max_mb << 20, by_number=choice is None
    )
    try:
        _fetch_all(outputs, meant)
    except (LodesmanError, OSError):
        # What was fetched before is said all the same.
        if outputs.jobs or outputs.faults:
            _report(outputs)
        raise
    _report(outputs)
    return exit_code_of((fault for _, fault in outputs.faults), some_done=bool(outputs.jobs))


def _fetch_all(outputs: _Outputs, ranges: Sequence[Range]) -> None:
    size_of, silent = total(ranges), outputs.session.as_json
    with progress("fetching outputs", size_of, shown=size_of >= _BAR_FROM, silent=silent) as outputs.advance:
        for span in ranges:
            try:
                _fetch_range(outputs, span)
            except NotFound as fault:
                if len(ranges) == 1:
                    raise
                outputs.faults.append((span.first, fault))


def _report(outputs: _Outputs) -> None:
    if not outputs.session.as_json:
        _show(outputs)
        return
    rows = [
        {"id": job, "directory": str(directory), "fetched": bool(done)} | (asdict(done) if done else {})
        for job, directory, done in outputs.jobs
    ]
    errors = [{"id": job, **fault.as_dict()} for job, fault in outputs.faults]
    emit_json({"jobs": rows, "without_output": outputs.without, "errors": errors})


def _fetch_range(outputs: _Outputs, ids: Range) -> None:
    is_known = False
    for job in outputs.session.jobs(JobsQuery(first=ids.first, last=ids.last, all=True)):
        is_known = True
        if job.output_sha256 or wrote_nothing(job):
            _fetch(outputs, job)
        elif ids.size == 1 and outputs.by_number:
            raise NotFound(lacks_output(job), job=job.id)
        else:
            outputs.without += 1
        outputs.advance(1)
    if not is_known:
        outputs.session.refuse_missing(ids)


def _fetch(outputs: _Outputs, job: Job) -> None:
    """A fault in one output does not stop the others."""
    directory = outputs.root / str(job.id)
    done = None
    if outputs.force or not directory.exists():
        try:
            done = download(outputs.session, job, directory, most_bytes=outputs.most_bytes)
        except (Unauthorized, Unavailable):
            raise
        except LodesmanError as fault:
            outputs.faults.append((job.id, fault))
            return
    outputs.jobs.append((job.id, directory, done))
    if len(outputs.remarks) < _MOST_SHOWN and done and not wrote_nothing(job):
        message = (job.message or "") if job.state == JobState.DONE or not done.files else ""
        if message or not done.files:
            outputs.remarks[job.id] = message or "Nothing of it could be packed."


def _show(outputs: _Outputs) -> None:
    for job, directory, done in islice(outputs.jobs, _MOST_SHOWN):
        if done is None:
            note(f"{directory} is there already; --force fetches it again.")
            continue
        some = done.files or done.left_out or job in outputs.remarks
        content = f"{counted(done.files, 'file')}, {size(done.bytes)}" if some else "the job wrote nothing"
        click.echo(f"{plain(directory)}: {content}")
        if job in outputs.remarks:
            note(f"job {job}: {plain(outputs.remarks[job])}")
        if done.kept:
            note(f"{directory}: {counted(done.kept, 'other file')} stayed there, not of this output.")
        for member in done.left_out[:5]:
            note(f"job {job}: {member['name']} was left out: {member['reason']}.")
    if len(outputs.jobs) > _MOST_SHOWN:
        click.echo(f"In all {counted(len(outputs.jobs), 'job')}.")
    if outputs.without:
        note(f"{counted(outputs.without, 'job')} without output.")
    for job, fault in outputs.faults:
        note(str(fault) if isinstance(fault, NotFound) else f"job {job}: {fault}")
