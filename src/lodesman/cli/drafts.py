"""Descriptions on their way to the server: read and checked, with the local files that they name found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.cli.descriptions import STDIN, Source, check, notice, parse, placed, read_source
from lodesman.cli.exits import FAILED, exit_code
from lodesman.cli.inputs import local_inputs
from lodesman.cli.places import advise
from lodesman.cli.tables import note
from lodesman.errors import LodesmanError

if TYPE_CHECKING:
    from lodesman.answers.vocabulary import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of one call."""

    group: str = ""
    hold_if_impossible: bool = False
    form: Form | None = None
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
    """What became of all files: what the server answered, errors by file."""

    made: list[dict[str, Any]] = field(default_factory=list)
    faults: list[tuple[str, LodesmanError]] = field(default_factory=list)

    def tell_faults(self) -> None:
        """Each error with its place, on standard error."""
        for label, fault in self.faults:
            advise(fault)
            note(placed(label, fault))

    def faults_as_json(self) -> list[dict[str, Any]]:
        """The errors as `--json` tells them."""
        for _, fault in self.faults:
            advise(fault)
        return [{"file": label, **fault.as_dict()} for label, fault in self.faults]

    def exit_code(self, files: int) -> int:
        """The exit code of a call for so many files."""
        if not self.faults:
            return 0
        codes = {exit_code(fault) for _, fault in self.faults}
        return codes.pop() if len(codes) == 1 and (files == 1 or not self.made) else FAILED


def read_all(files: Sequence[str], wanted: Wanted, outcome: Outcome) -> list[Ready]:
    """Read and check every file; errors are gathered, so that one call shows all of them."""
    if files.count(STDIN) > 1:
        raise click.UsageError("Standard input can be read only once.")
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
    from lodesman.jobs import locate, write_description

    parsed = parse(source, wanted.form)
    description = check(parsed)
    text = source.data.decode("utf-8-sig")
    if wanted.name:
        record = {key: value for key, value in parsed.record.items() if key.lower() != "jobname"}
        text = write_description({"JobName": wanted.name, **record}, _form(parsed.form))
        check(parse(Source(label=source.label, data=text.encode(), base=source.base), _form(parsed.form)))
    try:
        inputs = local_inputs(description, source.base)
    except LodesmanError as fault:
        locate(fault, parsed.positions)
        raise
    return Ready(label=source.label, text=text, form=parsed.form, inputs=inputs)


def _form(form: str) -> Form:
    return "jdl" if form == "jdl" else "cfg" if form == "cfg" else "json"


def tell_notices(label: str, notices: Iterable[dict[str, object]]) -> None:
    """What the server found odd, on standard error."""
    for told in notices:
        note(notice(label, told))
