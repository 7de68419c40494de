"""Descriptions from files and standard input, read and checked before anything is sent; errors with their place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.answers.vocabulary import Form
from lodesman.cli.faults import FAILED, advise, exit_code, placed
from lodesman.cli.tables import note
from lodesman.cli.words import plain
from lodesman.errors import InvalidJob, InvalidRequest, LodesmanError, TooLarge, Unauthorized, Unavailable

if TYPE_CHECKING:
    from lodesman.answers.jobs import Notice
    from lodesman.jobs import Description, ParsedRecord

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of one call."""

    group: str = ""
    hold_if_impossible: bool = False
    form: Form | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of one description, where it came from, and where its files lie."""

    label: str
    data: bytes
    base: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A description that is good as far as can be checked here."""

    label: str
    text: str
    form: Form
    inputs: dict[str, Path]


@dataclass(slots=True)
class Outcome:
    """What became of all files: what the server made of them, errors by file."""

    made: list[Any] = field(default_factory=list)
    faults: list[tuple[str, LodesmanError]] = field(default_factory=list)

    def failed(self, label: str, fault: LodesmanError) -> bool:
        """Keep an error; whether it would be the same for all files that follow."""
        self.faults.append((label, fault))
        return isinstance(fault, Unauthorized | Unavailable)

    def show_faults(self) -> None:
        """Each error with its place, on standard error."""
        for label, fault in self.faults:
            advise(fault)
            note(placed(label, fault))

    def faults_as_json(self) -> list[dict[str, object]]:
        """The errors for programs."""
        for _, fault in self.faults:
            advise(fault)
        return [{"file": label, **fault.as_dict()} for label, fault in self.faults]

    def exit_code(self, files: int) -> int:
        """The exit code of a call for so many files."""
        if not self.faults:
            return 0
        codes = {exit_code(fault) for _, fault in self.faults}
        return codes.pop() if len(codes) == 1 and (files == 1 or not self.made) else FAILED


def read_all(files: Sequence[str], wanted: Wanted, outcome: Outcome) -> list[Draft]:
    """Read and check every file; errors are gathered, so that one call shows all of them."""
    if files.count(STDIN) > 1:
        raise click.UsageError("Standard input can be read only once.")
    ready = []
    for name in files:
        label = label_of(name)
        try:
            ready.append(_prepare(read_source(name), wanted))
        except LodesmanError as fault:
            outcome.faults.append((label, fault))
    return ready


def label_of(name: str) -> str:
    """How a file is called in messages."""
    return "standard input" if name == STDIN else name


def read_source(name: str) -> Source:
    """The bytes of a file, or of standard input for `-`. Raises InvalidRequest and TooLarge."""
    from lodesman.jobs import ARRAY_LIMITS

    most = ARRAY_LIMITS.text_bytes
    if name == STDIN:
        data = sys.stdin.buffer.read(most + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                data = file.read(most + 1)
        except OSError as fault:
            raise InvalidRequest(f"cannot be read: {fault.strerror}.") from None
    if len(data) > most:
        raise TooLarge(
            f"has more than {most} bytes.", hint="Send large data as an input sandbox.", limit=most
        )
    return Source(label=label_of(name), data=data, base=Path() if name == STDIN else Path(name).parent)


def parse(data: bytes, form: Form | None) -> ParsedRecord:
    """Read the text. Raises SyntaxFault, TooLarge."""
    from lodesman.jobs import ARRAY_LIMITS, read_description

    return read_description(data, form=form, limits=ARRAY_LIMITS)


def check(parsed: ParsedRecord) -> Description:
    """Check the job. Raises InvalidJob."""
    from lodesman.jobs import read_job

    return read_job(parsed.record, parsed.positions)


def _prepare(source: Source, wanted: Wanted) -> Draft:
    """Read and check one description. Raises SyntaxFault, InvalidJob, TooLarge."""
    from lodesman.jobs import locate, write_description

    parsed = parse(source.data, wanted.form)
    description = check(parsed)
    text = source.data.decode("utf-8-sig")
    if wanted.name:
        record = {key: value for key, value in parsed.record.items() if key.lower() != "jobname"}
        text = write_description({"JobName": wanted.name, **record}, parsed.form)
        check(parse(text.encode(), parsed.form))
    try:
        inputs = _local_inputs(description, source.base)
    except LodesmanError as fault:
        locate(fault, parsed.positions)
        raise
    return Draft(label=source.label, text=text, form=parsed.form, inputs=inputs)


def _local_inputs(description: Description, base: Path) -> dict[str, Path]:
    """Where each InputSandbox entry lies, those of all members of an array; relative ones below `base`.

    Raises InvalidJob.
    """
    from lodesman.jobs import input_names

    return {name: _local(name, base) for name in input_names(description.spec, description.members)}


def _local(name: str, base: Path) -> Path:
    path = base / name
    if path.is_file():
        return path
    if path.is_dir():
        problem = "is a directory"
        hint = "Pack it: tar -czf inputs.tar.gz DIRECTORY, and unpack it in the job."
    elif path.exists():
        problem, hint = "is not a plain file", "Only plain files can be sent."
    else:
        problem, hint = "does not exist", "Paths are relative to the directory of the description."
    raise InvalidJob(f"InputSandbox: {path} {problem}.", hint=hint, attribute="InputSandbox")


def warn(label: str, notices: Iterable[Notice]) -> None:
    """What is odd about a description, on standard error."""
    for one in notices:
        place = f":{one.line}:{one.column}" if one.line else ""
        note(plain(f"{label}{place}: warning: {one.message}"))
