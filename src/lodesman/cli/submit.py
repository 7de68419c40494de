"""`lode submit`: descriptions are read and checked, files uploaded, and each is sent as one submission."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lodesman.cli.drafts import Outcome, Ready, Wanted, read_all, tell_notices
from lodesman.cli.inputs import InputFile, measure, upload
from lodesman.cli.plan_job import plan_files
from lodesman.cli.ranges import Range
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note
from lodesman.errors import LodesmanError, Unauthorized, Unavailable

SUBMIT_SECONDS = 300.0


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--group", default="", metavar="NAME", help="The group that the jobs count for.")
@click.option(
    "--hold-if-impossible",
    is_flag=True,
    help="Keep a job that no queue could run Held, instead of refusing it.",
)
@click.option("--form", type=click.Choice(["jdl", "cfg", "json"]), help="The language; else the text tells.")
@click.option("--name", default="", metavar="TEXT", help="The job's name, instead of the one in the file.")
@click.option(
    "--request-id",
    metavar="ID",
    default="",
    help="Makes the same call safe to repeat: with the same ID and files no job is made twice.",
)
@click.option("--dry-run", is_flag=True, help="Submit and upload nothing; tell what lode plan job tells.")
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
        return plan_files(session, files, wanted)
    outcome = Outcome()
    ready = read_all(files, wanted, outcome)
    if not outcome.faults:
        _send_all(session, ready, wanted, outcome, request_id=request_id)
    if session.as_json:
        emit_json({"submissions": outcome.made, "errors": outcome.faults_as_json()})
    outcome.tell_faults()
    return outcome.exit_code(len(files))


def _send_all(
    session: Session, ready: Sequence[Ready], wanted: Wanted, outcome: Outcome, *, request_id: str
) -> None:
    files = measure(path for one in ready for path in one.inputs.values())
    bodies = [body_of(one, wanted, files) for one in ready]
    # A mistake in one of many files must not leave the jobs of the others behind, to be made twice by the next call.
    if len(ready) > 1 and not _all_good(session, ready, bodies, outcome):
        return
    upload(session.client, files)
    for number, (one, body) in enumerate(zip(ready, bodies, strict=True), 1):
        if request_id:
            body["request_id"] = f"{request_id}/{number}"
        try:
            answer = session.post("/v1/jobs", body, idempotent=True, timeout=SUBMIT_SECONDS)
        except (Unauthorized, Unavailable) as fault:
            # It would be the same for all that follow.
            outcome.faults.append((one.label, fault))
            return
        except LodesmanError as fault:
            outcome.faults.append((one.label, fault))
            continue
        outcome.made.append(_made(one.label, answer))
        if not session.as_json:
            _tell(one.label, answer)


def _all_good(
    session: Session, ready: Sequence[Ready], bodies: Sequence[dict[str, Any]], outcome: Outcome
) -> bool:
    """Whether the server would take every one of them; what it refuses goes to the outcome."""
    for one, body in zip(ready, bodies, strict=True):
        try:
            session.post("/v1/jobs", {**body, "dry_run": True}, idempotent=True, timeout=SUBMIT_SECONDS)
        except LodesmanError as fault:
            outcome.faults.append((one.label, fault))
            if isinstance(fault, Unauthorized | Unavailable):
                break  # it would be the same for all that follow
    return not outcome.faults


def body_of(one: Ready, wanted: Wanted, files: dict[Path, InputFile]) -> dict[str, Any]:
    """The body of POST /v1/jobs. Its request id makes a repeated call harmless."""
    sandboxes = {
        name: {"sha256": files[path].sha256, "size": files[path].size} for name, path in one.inputs.items()
    }
    return {
        "text": one.text,
        "form": one.form,
        "group": wanted.group,
        "hold_if_impossible": wanted.hold_if_impossible,
        "sandboxes": sandboxes,
        "request_id": str(uuid.uuid4()),
    }


def _made(label: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A submission as `--json` tells it."""
    first, last = answer["first"], answer["first"] + answer["count"] - 1
    return {
        "file": label,
        "count": answer["count"],
        "held": answer["held"],
        "submission": answer["submission"],
        "first": first,
        "last": last,
        "jobs": str(Range(first, last)),
        "notices": answer["notices"],
    }


def _tell(label: str, answer: dict[str, Any]) -> None:
    tell_notices(label, answer["notices"])
    count, held = answer["count"], answer["held"]
    ids = Range(answer["first"], answer["first"] + count - 1)
    click.echo(str(ids))
    if held:
        what = "It is" if count == 1 else f"{held:,} of {count:,} jobs are"
        note(f"{label}: {what} Held, since no queue could run it. See: lode why {ids.first}")


COMMANDS = (submit,)
