"""`lode class`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.native_files import FILE, class_names, read_native
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say, write_text
from lodesman.wire import calls
from lodesman.wire.job_classes import (
    ClassAt,
    ClassesChanged,
    ClassRow,
    ClassTextBody,
    DropClassesBody,
    SwitchClassesBody,
)
from lodesman.wire.requests import AllQuery

_CLASSES = click.argument("names", metavar="CLASS...", nargs=-1, required=True)
_VARIANTS = click.argument("names", metavar="CLASS[.VARIANT]...", nargs=-1, required=True)

job_class = click.Group(
    "class", help="Job classes: templates that jobs are made of, and what jobs may change."
)


def _send(
    session: Session, file: Path, how: Literal["add", "change"], *, trial: bool = False
) -> ClassesChanged:
    text = read_native(file)
    try:
        answer = session.answer(calls.SET_CLASSES, body=ClassTextBody(text.text, how, trial))
    except LodesmanError as fault:
        text.say_faults(session, fault)
        raise
    text.say(answer.notices)
    return answer


@job_class.command("add")
@FILE
@with_session
def _add(session: Session, /, *, file: Path) -> None:
    """Add the job classes of a file, or of all files of a folder; - is standard input. You own them, and may change them.

    A line for each attribute; what is left out is as in the class `template`. In front of a value, {~} lets jobs change it,
    {-} remove it, {+} add to a list; without these it is fixed. A variant may have values of its own:

    \b
      jcname        sleeper
      variant_list  default,long
      CMDNAME       /bin/sleep
      CMDARG        60,[{~}long=3600]
      l_hard        {+~}h_rt=300,[{+~}long=h_rt=4000]
    """  # noqa: D301  # click wants the character itself
    answer = _send(session, file, "add")
    say(f"Added {', '.join(answer.names)}.")


@job_class.command("change")
@FILE
@with_session
def _change(session: Session, /, *, file: Path) -> None:
    """Give job classes the text of a file (their owners, and administrators).

    Jobs that were made of them stay as they are.
    """
    answer = _send(session, file, "change")
    say(f"Changed {', '.join(answer.names)}.")


@job_class.command("check")
@FILE
@with_session
def _check(session: Session, /, *, file: Path) -> None:
    """Check the job classes of a file, and change nothing."""
    answer = _send(session, file, "add", trial=True)
    say(
        f"{file}: {'1 job class' if len(answer.names) == 1 else f'{len(answer.names):,} job classes'}, no fault."
    )


@job_class.command("show")
@click.argument("name", metavar="CLASS")
@click.option("--effective", metavar="VARIANT", help="Only what jobs of this variant get.")
@with_session
def _show(session: Session, /, *, name: str, effective: str | None) -> None:
    """Print a job class as `lode class change` reads it, and qconf too.

    With --effective, what jobs of a variant get, and what they may change of it.
    """
    query = ClassAt(name) if effective is None else ClassAt(name, effective)
    answer = session.answer(calls.JOB_CLASS, query=query)
    if effective is None:
        write_text(answer.text)
    else:
        write_text("".join(f"{key:<15} {value}\n" for key, value in answer.values.items()))
    for variant in answer.disabled if effective is None else {effective} & {*answer.disabled}:
        note(f"{name}.{variant} is disabled.")
    for variant, sentences in answer.conflicts.items():
        if effective in (None, variant):
            note(f"{name}.{variant} is in conflict with the template: {'; '.join(sentences)}.")


def _owners(row: ClassRow) -> str:
    return ", ".join(row.owner) + (f" and {row.more_owners} more" if row.more_owners else "")


_VARIANTS_SHOWN: Final[Columns[ClassRow]] = table_of(
    Column("class", "text", lambda row: f"{row.job_class}.{row.variant}"),
    Column("state", "text", lambda row: row.state),
    Column("owner", "text", _owners),
    Column("revision", "id", lambda row: row.revision),
    Column("changed_by", "text", lambda row: row.changed_by),
    Column("age", "age", lambda row: row.changed_at),
)


@job_class.command("ls")
@shaped(_VARIANTS_SHOWN)
@with_session
def _list(session: Session, /, *, shape: ListShape) -> None:
    """List the job classes, a line for each variant with its state."""
    answer = session.whole(calls.JOB_CLASSES, AllQuery(), "classes")
    session.exit_if_json(answer)
    shape.show(_VARIANTS_SHOWN, answer.classes)
    if answer.default_jc:
        note(f"Jobs that ask for no class are of {answer.default_jc} (default_jc).")
    if answer.enforce_jc:
        note("Every job needs a class (enforce_jc).")


@job_class.command("rm")
@_CLASSES
@with_session
def _remove(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Remove job classes (their owners, and administrators). Jobs that were made of them stay.

    A folder, written with a slash, stands for the classes in its files.
    """
    answer = session.answer(calls.DROP_CLASSES, body=DropClassesBody(class_names(names)))
    say(f"Removed {', '.join(answer.names)}.")


@job_class.command("enable")
@_VARIANTS
@with_session
def _enable(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Enable job classes, or variants of them (their owners, and administrators)."""
    _switch(session, names, "enable")


@job_class.command("disable")
@_VARIANTS
@with_session
def _disable(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Make no new jobs of job classes, or of variants of them, until they are enabled."""
    _switch(session, names, "disable")


def _switch(session: Session, names: tuple[str, ...], switch: Literal["enable", "disable"]) -> None:
    answer = session.answer(calls.SWITCH_CLASSES, body=SwitchClassesBody(list(names), switch))
    say(f"{switch.capitalize()}d {', '.join(answer.names)}.")
