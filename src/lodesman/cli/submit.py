"""`lode submit`: descriptions are read and checked, files uploaded, and each is sent as one submission."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from lodesman.answers import calls
from lodesman.answers.jobs import Submission
from lodesman.answers.requests import FileBody, SandboxAt, SubmitBody
from lodesman.answers.vocabulary import FORMS
from lodesman.cli.arguments import Range
from lodesman.cli.drafts import Draft, Outcome, Wanted, read_all, warn
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note, progress
from lodesman.errors import LodesmanError, NotFound

LARGE_BYTES, MANY_FILES = 8 << 20, 20


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--group", default="", metavar="NAME", help="The group that the jobs count for.")
@click.option(
    "--hold-if-impossible",
    is_flag=True,
    help="Keep a job that no queue could run Held, instead of refusing it.",
)
@click.option("--form", type=click.Choice(FORMS), help="The language. [default: found from the text]")
@click.option("--name", default="", metavar="TEXT", help="The job's name, instead of the one in the file.")
@click.option(
    "--request-id",
    metavar="ID",
    default="",
    help="Makes the same call safe to repeat: with the same ID and files no job is made twice.",
)
@click.option("--dry-run", is_flag=True, help="Submit and upload nothing; show what lode plan job shows.")
@json_option
@pass_session
def submit(
    session: Session, /, *, files: tuple[str, ...], request_id: str, dry_run: bool, **options: Any
) -> int:
    """Submit jobs; prints their ids.

    Each FILE ('-' for standard input) is a description in JDL, CFG or JSON and becomes one submission, of one
    job or of up to a million. Files of its InputSandbox are uploaded; their paths are relative to the
    description. If one FILE is wrong, none is submitted.
    """
    wanted = Wanted(**options)
    if dry_run:
        from lodesman.cli.plan import plan_files

        return plan_files(session, files, wanted)
    outcome = Outcome()
    ready = read_all(files, wanted, outcome)
    if not outcome.faults:
        _send_all(session, ready, wanted, outcome, request_id=request_id)
    if session.as_json:
        emit_json({"submissions": outcome.made, "errors": outcome.faults_as_json()})
    outcome.show_faults()
    return outcome.exit_code(len(files))


def _send_all(
    session: Session, ready: Sequence[Draft], wanted: Wanted, outcome: Outcome, *, request_id: str
) -> None:
    files = measure(path for one in ready for path in one.inputs.values())
    bodies = [_body(one, wanted, files) for one in ready]
    # A mistake in one of many files must not leave the jobs of the others behind, to be made twice by the next call.
    if len(ready) > 1 and not _all_good(session, ready, bodies, outcome):
        return
    upload(session, files)
    for number, (one, body) in enumerate(zip(ready, bodies, strict=True), 1):
        if request_id:
            body.request_id = f"{request_id}/{number}"
        try:
            answer = session.call(calls.SUBMIT, body=body)
        except LodesmanError as fault:
            if outcome.failed(one.label, fault):
                return
            continue
        assert isinstance(answer, Submission)  # noqa: S101 - it was no dry run
        outcome.made.append(_made(one.label, answer))
        if not session.as_json:
            _show(one.label, answer)


def _all_good(
    session: Session, ready: Sequence[Draft], bodies: Sequence[SubmitBody], outcome: Outcome
) -> bool:
    """Whether the server would take every one of them; what it refuses goes to the outcome."""
    for one, body in zip(ready, bodies, strict=True):
        try:
            session.call(calls.SUBMIT, body=replace(body, dry_run=True))
        except LodesmanError as fault:
            if outcome.failed(one.label, fault):
                break
    return not outcome.faults


def _body(one: Draft, wanted: Wanted, files: Mapping[Path, InputFile]) -> SubmitBody:
    """Its request id makes a repeated call harmless."""
    return SubmitBody(
        text=one.text,
        form=one.form,
        group=wanted.group,
        hold_if_impossible=wanted.hold_if_impossible,
        sandboxes={name: FileBody(files[path].sha256, files[path].size) for name, path in one.inputs.items()},
        request_id=str(uuid.uuid4()),
    )


def _made(label: str, answer: Submission) -> dict[str, object]:
    """A submission for programs."""
    ids = Range(answer.first, answer.first + answer.count - 1)
    return {
        "file": label,
        "count": answer.count,
        "held": answer.held,
        "submission": answer.submission,
        "first": ids.first,
        "last": ids.last,
        "jobs": str(ids),
        "notices": answer.notices,
    }


def _show(label: str, answer: Submission) -> None:
    warn(label, answer.notices)
    ids = Range(answer.first, answer.first + answer.count - 1)
    click.echo(str(ids))
    if answer.held:
        what = "It is" if answer.count == 1 else f"{answer.held:,} of {answer.count:,} jobs are"
        note(f"{label}: {what} Held, since no queue could run it. See: lode why {ids.first}")


# --- input files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A local file with its digest and size in bytes."""

    path: Path
    sha256: str
    size: int


def measure(paths: Iterable[Path]) -> dict[Path, InputFile]:
    """Digest and size of each file. Raises OSError."""
    from lodesman.client import sha256_of

    return {
        path: InputFile(path=path, sha256=sha256_of(path), size=path.stat().st_size)
        for path in dict.fromkeys(paths)
    }


def upload(session: Session, files: Mapping[Path, InputFile]) -> int:
    """Upload what the server does not have yet, each content once; returns how many files were sent.

    Raises what the client raises, with the file named.
    """
    distinct = {one.sha256: one for one in files.values()}
    size = sum(one.size for one in distinct.values())
    sent = 0
    large = size > LARGE_BYTES or len(distinct) > MANY_FILES
    with progress("uploading", size, shown=large, of_bytes=True) as advance:
        for one in distinct.values():
            if not _is_there(session, one.sha256):
                _send(session, one)
                sent += 1
            advance(one.size)
    return sent


def _is_there(session: Session, sha256: str) -> bool:
    try:
        session.call(calls.SANDBOX, SandboxAt(sha256))
    except NotFound:
        return False
    return True


def _send(session: Session, one: InputFile) -> None:
    try:
        session.client.upload(calls.PUT_SANDBOX.path, one.path, one.sha256, method=calls.PUT_SANDBOX.method)
    except LodesmanError as fault:
        fault.message = f"{one.path}: {fault.message}"
        raise


COMMANDS = (submit,)
