"""`lode submit`: descriptions are read and checked, files uploaded, and each is sent as one submission."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.cli.descriptions import STDIN, Source, check, notice, parse, placed, read_source
from lodesman.cli.exits import FAILED, exit_code
from lodesman.cli.inputs import InputFile, local_inputs, measure, upload
from lodesman.cli.ranges import Range
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note
from lodesman.cli.words import counted, plain
from lodesman.errors import LodesmanError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from lodesman.jobs.formats import Form

SUBMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of one call."""

    group: str = ""
    hold_if_impossible: bool = False
    form: Form | None = None
    dry_run: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A description that is good as far as can be told here."""

    label: str
    text: str
    form: str
    inputs: dict[str, Path]


@dataclass(slots=True)
class Outcome:
    """What became of all files: submissions made, errors by file."""

    made: list[dict[str, Any]] = field(default_factory=list)
    faults: list[tuple[str, LodesmanError]] = field(default_factory=list)


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
@click.option("--dry-run", is_flag=True, help="Check everything, also at the server, and submit nothing.")
@json_option
@pass_session
def submit(session: Session, /, *, files: tuple[str, ...], **options: Any) -> int:
    """Submit jobs; prints their ids.

    Each FILE ('-' for standard input) is a description in JDL, CFG or JSON and becomes one submission, of one
    job or of up to a million. Files of its InputSandbox are uploaded; their paths are relative to the
    description. If one FILE is wrong, none is submitted.
    """
    if files.count(STDIN) > 1:
        raise click.UsageError("Standard input can be read only once.")
    wanted = Wanted(**options)
    outcome = Outcome()
    ready = _read_all(files, wanted, outcome)
    if not outcome.faults:
        _send_all(session, ready, wanted, outcome)
    if session.as_json:
        emit_json(
            {"submissions": outcome.made, "errors": [_told(label, fault) for label, fault in outcome.faults]}
        )
    for label, fault in outcome.faults:
        note(placed(label, fault))
    return _exit_code(outcome, len(files))


def _exit_code(outcome: Outcome, files: int) -> int:
    if not outcome.faults:
        return 0
    codes = {exit_code(fault) for _, fault in outcome.faults}
    return codes.pop() if len(codes) == 1 and (files == 1 or not outcome.made) else FAILED


def _read_all(files: Sequence[str], wanted: Wanted, outcome: Outcome) -> list[Ready]:
    """Read and check every file; errors are gathered, so that one call shows all of them."""
    ready = []
    for name in files:
        label = "standard input" if name == STDIN else name
        try:
            ready.append(prepare(read_source(name), wanted))
        except LodesmanError as fault:
            outcome.faults.append((label, fault))
    return ready


def prepare(source: Source, wanted: Wanted) -> Ready:
    """Read and check one description. Raises SyntaxFault, InvalidJob, TooLarge."""
    from lodesman.jobs import write_description

    parsed = parse(source, wanted.form)
    description = check(parsed)
    text = source.data.decode("utf-8-sig")
    if wanted.name:
        record = {key: value for key, value in parsed.record.items() if key.lower() != "jobname"}
        text = write_description({"JobName": wanted.name, **record}, _form(parsed.form))
        check(parse(Source(label=source.label, data=text.encode(), base=source.base), _form(parsed.form)))
    inputs = local_inputs(description, source.base)
    return Ready(label=source.label, text=text, form=parsed.form, inputs=inputs)


def _form(form: str) -> Form:
    return "jdl" if form == "jdl" else "cfg" if form == "cfg" else "json"


def _send_all(session: Session, ready: Sequence[Ready], wanted: Wanted, outcome: Outcome) -> None:
    files = measure(path for one in ready for path in one.inputs.values())
    upload(session.client, files)
    for one in ready:
        try:
            answer = session.post(
                "/v1/jobs", body_of(one, wanted, files), idempotent=True, timeout=SUBMIT_SECONDS
            )
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
        "dry_run": wanted.dry_run,
        "sandboxes": sandboxes,
        "request_id": None if wanted.dry_run else str(uuid.uuid4()),
    }


def _made(label: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A submission as `--json` tells it."""
    made: dict[str, Any] = {"file": label, "count": answer["count"], "held": answer["held"]}
    if not answer.get("dry_run"):
        first, last = answer["first"], answer["first"] + answer["count"] - 1
        made |= {
            "submission": answer["submission"],
            "first": first,
            "last": last,
            "jobs": str(Range(first, last)),
        }
    return {**made, "dry_run": bool(answer.get("dry_run")), "notices": answer["notices"]}


def _tell(label: str, answer: dict[str, Any]) -> None:
    for told in answer["notices"]:
        note(notice(label, told))
    count, held = answer["count"], answer["held"]
    if answer.get("dry_run"):
        click.echo(f"{plain(label)}: {counted(count, 'job')} would be submitted, {held:,} of them Held.")
        return
    ids = Range(answer["first"], answer["first"] + count - 1)
    click.echo(str(ids))
    if held:
        what = "It is" if count == 1 else f"{held:,} of {count:,} jobs are"
        note(f"{label}: {what} Held, since no queue could run it. See: lode why {ids.first}")


def _told(label: str, fault: LodesmanError) -> dict[str, Any]:
    return {"file": label, **fault.as_dict()}


COMMANDS = (submit,)
