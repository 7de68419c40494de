"""`lode submit`."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from lodesman.user.access.files import files_by_digest, measure_files, upload_files
from lodesman.user.cli.arguments import Range, parse_ranges
from lodesman.user.cli.drafts import (
    DescriptionOptions,
    Outcome,
    ReadyFile,
    description_options,
    read_all,
    warn,
)
from lodesman.user.cli.job_command import JobCommand
from lodesman.user.cli.progress import progress
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note
from lodesman.user.cli.taken_files import scratch_folder
from lodesman.user.cli.words import counted
from lodesman.wire import job_calls
from lodesman.wire.jobs import Submission
from lodesman.wire.requests import InputBody, SubmitBody
from lodesman.wire.vocabulary import FORMS

LARGE_BYTES, MANY_FILES = 8 << 20, 20


@click.command(cls=JobCommand)
@click.argument("files", nargs=-1, metavar="FILE... | SCRIPT [ARG...] | -- COMMAND [ARG...]")
@click.option("--group", default="", metavar="NAME", help="The group that the jobs count for.")
@click.option("--hold", is_flag=True, help="Keep the jobs Held until you release them (lode release).")
@click.option(
    "--hold-if-impossible",
    is_flag=True,
    help="Keep a job that no queue could run Held, instead of refusing it.",
)
@description_options
@click.option("--form", type=click.Choice(FORMS), help="The language. [default: found from the text]")
@click.option(
    "--request-id",
    metavar="ID",
    default="",
    help="Makes the same call safe to repeat: with the same ID and files no job is made twice.",
)
@click.option(
    "--wait", is_flag=True, help="Wait until the jobs have ended; the exit code is theirs (see: lode wait)."
)
@click.option("--dry-run", is_flag=True, help="Submit and upload nothing; show what lode plan job shows.")
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: show every step.")
@with_session
def submit(
    session: Session,
    /,
    *,
    files: tuple[str, ...],
    request_id: str,
    wait: bool,
    dry_run: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Submit jobs; prints their ids.

    Each FILE ('-' for standard input) is a description in JDL, CFG or JSON and becomes one submission, of one
    job or of up to a million. Files of its InputSandbox are uploaded; their paths are relative to the
    description. If one FILE is wrong, none is submitted.

    Without a description: lode submit -- python fit.py --n 3, or lode submit script.sh, or lode submit --class NAME if the
    class says what to run. A script begins with #! or is
    executable, or comes from standard input (-); all words after it are its own. Its lines #LODE --memory 4G before the
    first command hold options of this command, which options of the command line override. Small files here that the
    command names go along, and are shown; other files and folders by --files.
    """
    draft_options = DescriptionOptions(**options)
    if dry_run:
        from lodesman.user.cli.job_plans import plan_files

        return plan_files(session, files, draft_options, verbose=verbose)
    outcome = Outcome()
    ready = read_all(session, files, draft_options, outcome)
    if not outcome.faults:
        _send_all(session, ready, outcome, request_id)
    if wait and outcome.made and not outcome.faults:
        from lodesman.user.cli.waiting import WaitOptions, wait_for

        waited, code = wait_for(
            session, parse_ranges(row["jobs"] for row in outcome.made), WaitOptions(answered=True)
        )
        return outcome.finish(session, "submissions", waited=waited) or code
    return outcome.finish(session, "submissions")


def _send_all(session: Session, ready: Sequence[ReadyFile], outcome: Outcome, request_id: str) -> None:
    inputs = _local_files(ready)
    files = measure_files(path for paths in inputs for path in paths.values())
    whole = list[ReadyFile]()
    for number, (draft, paths) in enumerate(zip(ready, inputs, strict=True), 1):
        sandboxes = {name: files[path] for name, path in paths.items()}
        # A repeated call does no harm then.
        repeatable = f"{request_id}/{number}" if request_id else str(uuid.uuid4())
        body = replace(draft.body, sandboxes=sandboxes, request_id=repeatable)
        whole.append(dataclasses.replace(draft, body=body))
    # A mistake in one of many files must not leave the jobs of the others behind, to be made twice by the next call.
    if len(whole) > 1:
        for _ in outcome.each(whole, lambda draft: session.call(job_calls.SUBMIT, body=_trial(draft.body))):
            pass
    if outcome.faults:
        return
    _upload(session, files)
    for draft, answer in outcome.each(whole, lambda draft: session.call(job_calls.SUBMIT, body=draft.body)):
        assert isinstance(answer, Submission)  # noqa: S101 - it was no dry run
        ids = Range(answer.first, answer.first + answer.count - 1)
        outcome.made.append({
            "file": draft.label, "count": answer.count, "held": answer.held, "submission": answer.submission,
            "first": ids.first, "last": ids.last, "jobs": str(ids), "notices": answer.notices,
        })  # fmt: skip
        if session.as_json:
            continue
        warn(draft.label, answer.notices, as_written=draft.as_written)
        click.echo(str(ids))
        if draft.body.hold and not any(notice.attribute == "Held" for notice in answer.notices):
            note(f"{draft.label}: Held until released: lode release {ids}")
        elif answer.held:
            few = f"{answer.held:,} of {counted(answer.count, 'job')} {'is' if answer.held == 1 else 'are'}"
            which = "It is" if answer.count == 1 else few
            note(f"{draft.label}: {which} Held, since no queue could run it. See: lode why {ids.first}")


def _local_files(ready: Sequence[ReadyFile]) -> list[Mapping[str, Path]]:
    if all(isinstance(path, Path) for draft in ready for path in draft.inputs.values()):
        return [
            {name: path for name, path in draft.inputs.items() if isinstance(path, Path)} for draft in ready
        ]
    from lodesman.user.access.packing import pack_inputs

    scratch = scratch_folder()
    return [pack_inputs(draft.inputs, scratch) for draft in ready]


def _trial(body: SubmitBody) -> SubmitBody:
    return replace(body, dry_run=True, request_id=str(uuid.uuid4()))


def _upload(session: Session, files: Mapping[Path, InputBody]) -> None:
    contents = files_by_digest(files)
    size = sum(body.size for _, body in contents.values())
    large = size > LARGE_BYTES or len(contents) > MANY_FILES
    with progress("uploading", size, shown=large, of_bytes=True, silent=session.as_json) as advance:
        upload_files(session, files, advance)
