"""Scripts and files of other batch systems at the command line: their lines are said, and added to the options."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.user.cli.tables import note

if TYPE_CHECKING:
    from lodesman.languages.jobs import Record

HEAD_BYTES, _MORE_BYTES = 256 << 10, 32 << 20
_READ_ANYWHERE = re.compile(rb"^#(?:\$\s*-|BSUB\s)", re.MULTILINE)
_GO_ON = "Or go on without it: --ignore-foreign."


def head_of(path: str) -> str:
    """The text whose lines are read for options; '' of what cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def has_lines(text: str) -> bool:
    """Whether a script has lines of a batch system."""
    from lodesman.languages.directives.scripts import translate_script

    return translate_script(text, "script", {}) is not None


def _lines_behind(path: str) -> list[int]:
    """The first line of a batch system that reads all lines, and that lies behind those that are read here."""
    try:
        with Path(path).open("rb") as file:
            head, more = file.read(HEAD_BYTES), file.read(_MORE_BYTES)
    except (OSError, ValueError):
        return []
    found = _READ_ANYWHERE.search(more)
    return [(head + more[: found.start()]).count(b"\n") + 1] if found else []


def _is_folder(path: str) -> bool:
    """Whether a path of a line is a folder here; variables are read as the batch systems do."""
    try:
        return Path(os.path.expandvars(path)).is_dir()
    except (OSError, ValueError):
        return False


def add_translation(ctx: click.Context, script: str, label: str) -> None:
    """Add what the lines of batch systems in a script ask for to the options, which go first, and say it."""
    from lodesman.languages.directives.scripts import translate_script, unread_lines

    text, params = head_of(script).removeprefix("\ufeff"), ctx.params
    given = params.get("attributes") or {}
    found = translate_script(
        text, PurePosixPath(script).name, given, job_class=params["job_class"], is_folder=_is_folder
    )
    for number in unread_lines(text):
        note(f"{label}:{number}: this line stands after the first command, where no batch system reads it.")
    for number in _lines_behind(script):
        note(
            f"{label}:{number}: this line and those behind it are not read: they are behind the first {HEAD_BYTES >> 10} KB."
        )
    if found is None:
        return
    refused = [
        InvalidRequest(
            f"{one.option.words} {one.reason}",
            hint=f"{one.hint} {_GO_ON}".strip(),
            line=one.option.line,
            column=1,
        )
        for one in found.refusals
    ]
    if refused and params["ignore_foreign"]:
        for one in found.refusals:
            note(f"{label}:{one.option.line}: ignored: {one.option.words} {one.reason}")
    if not refused or params["ignore_foreign"]:
        for said in found.notes:
            note(f"{label}: {said}")
    params |= {
        "attributes": dict(found.attributes), "hold": params["hold"] or found.hold, "interpreter": found.interpreter,
        "job_class": params["job_class"] or found.job_class, "literal": found.literal,
        "refused": () if params["ignore_foreign"] else tuple(refused),
    }  # fmt: skip


def as_asked(record: Record, *, interpreter: str, literal: bool) -> Record:
    """The record of a script: read by that program, if one is named; `literal`: its percent signs stand for themselves."""
    from lodesman.languages.directives.variables import escape_percents

    if interpreter:
        words: Any = record.get("Arguments", [])
        record = {**record, "Executable": interpreter, "Arguments": [record["Executable"], *words]}
    return dict(escape_percents(record)) if literal else record


def note_unread(command: Sequence[str]) -> None:
    """Say that lines of a script are not read which is a word of a command: `lode submit -- sh job.sh`."""
    for word in command[:2]:
        if Path(word).is_file() and has_lines(head_of(word)):
            note(f"{word} stands after --, so its lines of batch systems are not read: lode submit {word}.")


def foreign_file(data: bytes) -> LodesmanError | None:
    """What to say of a file of HTCondor; None for any other one."""
    from lodesman.languages.jobs.foreign import fault_of_file

    return fault_of_file(data[:HEAD_BYTES].decode("utf-8", "replace"))
