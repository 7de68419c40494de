"""Job descriptions, checked before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lodesman.base.errors import (
    InvalidJob,
    InvalidRequest,
    LodesmanError,
    SyntaxFault,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from lodesman.user.access.files import (
    FilePicker,
    Taken,
    check_programs,
    joined_inputs,
    program_left,
    whole_folder,
)
from lodesman.user.cli.client_jsv import ClientRequest, client_request, complexes_of, name_client_jsv
from lodesman.user.cli.faults import advise, exit_code_of, placed, without_place
from lodesman.user.cli.job_command import foreign_file, note_unread, with_interpreter
from lodesman.user.cli.job_options import attribute_options
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import emit_json, note
from lodesman.user.cli.taken_files import note_left_behind, pick
from lodesman.user.cli.words import plain
from lodesman.wire.job_classes import AttributeEdit
from lodesman.wire.requests import SubmitBody
from lodesman.wire.vocabulary import Form

if TYPE_CHECKING:
    from lodesman.languages.jobs import ParsedRecord, Record
    from lodesman.wire.jobs import Notice

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])
_STDIN = "-"
_NO_DESCRIPTION = "If it is a script, let it begin with #! (as #!/bin/sh) or make it executable."
_OPTIONS = (
    click.option(
        "--class", "job_class", default="", metavar="NAME", help="The job class, app or app.large, whatever FILE says."
    ),
    click.option(
        "--adds", multiple=True, nargs=3, metavar="ATTR KEY VALUE",
        help="Add an entry to a list, as in --adds l_hard h_rt 600, or change it.",
    ),
    click.option(
        "--mods", multiple=True, nargs=3, metavar="ATTR KEY VALUE", help="Change an entry that a list has."
    ),
    click.option("--clears", multiple=True, nargs=2, metavar="ATTR KEY", help="Remove an entry of a list."),
    click.option("--clearp", multiple=True, metavar="ATTR", help="Remove an attribute, as in --clearp N."),
    click.option(
        "--jsv", multiple=True, metavar="URL",
        help="A script that verifies the jobs here, script:PATH; of several the last one comes first.",
    ),
    click.option(
        "--ignore-unknown", is_flag=True, help="Keep attributes of other systems, which mean nothing here."
    ),
    click.option(
        "--ignore-foreign", is_flag=True,
        help="Go on without what a script's lines #SBATCH, #$, #PBS, #BSUB ask for and cannot have here.",
    ),
)  # fmt: skip


def description_options(command: F) -> F:
    """The options of descriptions, submitted or planned."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return attribute_options(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionOptions:
    """The options of one call."""

    command: tuple[str, ...] = ()  # a program, or `script`, and its arguments; () for descriptions
    script: str = ""
    piped: bool = False  # the script is from standard input
    interpreter: str = ""  # this and the next two: of lines of batch systems
    literal: bool = False
    refused: tuple[LodesmanError, ...] = ()
    ignore_foreign: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    named_only: bool = False
    group: str = ""
    hold: bool = False
    hold_if_impossible: bool = False
    form: Form | None = None
    ignore_unknown: bool = False
    job_class: str = ""
    jsv: tuple[str, ...] = ()
    adds: tuple[tuple[str, str, str], ...] = ()
    mods: tuple[tuple[str, str, str], ...] = ()
    clears: tuple[tuple[str, str], ...] = ()
    clearp: tuple[str, ...] = ()

    @property
    def edits(self) -> list[AttributeEdit]:
        """Removals go first."""
        return [
            *(AttributeEdit("clearp", name) for name in self.clearp),
            *(AttributeEdit("clears", *words) for words in self.clears),
            *(AttributeEdit("mods", *words) for words in self.mods),
            *(AttributeEdit("adds", *words) for words in self.adds),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFile:
    """A checked description and its local input files."""

    label: str
    body: SubmitBody
    inputs: Mapping[str, Taken]
    as_written: bool = True  # the text is the file's, so places in it can be said


@dataclass(slots=True)
class Outcome:
    """What became of all files."""

    made: list[dict[str, Any]] = field(default_factory=list)
    faults: list[tuple[str, LodesmanError]] = field(default_factory=list)  # with their files

    def each(
        self, drafts: Iterable[ReadyFile], call: Callable[[ReadyFile], A]
    ) -> Iterator[tuple[ReadyFile, A]]:
        """Each draft with its answer; an error is kept, and ends the rest if all would meet it."""
        for draft in drafts:
            try:
                answer = call(draft)
            except LodesmanError as fault:
                self.faults.append((draft.label, fault if draft.as_written else without_place(fault)))
                if isinstance(fault, Unauthorized | Unavailable):
                    return
                continue
            yield draft, answer

    def finish(self, session: Session, name: str, **more: object) -> int:
        """Show the result and the errors; returns the exit code."""
        for _, fault in self.faults:
            advise(fault)
        if session.as_json:
            errors = [{"file": label, **fault.as_dict()} for label, fault in self.faults]
            emit_json({name: self.made, "errors": errors, **more})
        for label, fault in self.faults:
            note(placed(label, fault))
        return exit_code_of((fault for _, fault in self.faults), some_done=bool(self.made))


def read_all(
    session: Session, files: Sequence[str], options: DescriptionOptions, outcome: Outcome
) -> list[ReadyFile]:
    """Read every file, gathering errors. Raises InvalidConfig."""
    if files.count(_STDIN) > 1:
        raise click.UsageError("Standard input can be read only once.")
    if options.refused:
        outcome.faults += [
            (label_of(_STDIN if options.piped else options.script), fault) for fault in options.refused
        ]
        return []
    ready = []
    request = client_request(options.job_class, options.jsv, options.edits, partial(complexes_of, session))
    for name in files or options.command[:1] or [options.job_class]:
        try:
            draft = _from_file(name, options) if files else _from_words(options)
            ready.append(_prepare(draft, options, request))
        except LodesmanError as fault:
            outcome.faults.append((label_of(name), fault))
    return ready


def label_of(name: str) -> str:
    """The name of a file in messages."""
    return "standard input" if name == _STDIN else name


def read_text(name: str) -> bytes:
    """`-` is standard input. Raises InvalidRequest, TooLarge."""
    from lodesman.languages.jobs import ARRAY_LIMITS

    most = ARRAY_LIMITS.text_bytes
    if name == _STDIN:
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
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    label: str
    parsed: ParsedRecord
    text: str = ""  # of a file
    base: Path = Path()
    taken: Mapping[str, Taken] = field(default_factory=dict)
    usual_name: bool = False  # that of its program: its user gave none


def _from_file(name: str, options: DescriptionOptions) -> _Draft:
    from lodesman.languages.jobs import ARRAY_LIMITS, read_description, read_job

    try:
        data = read_text(name)
    except InvalidRequest as fault:
        if name != _STDIN and not Path(name).exists():
            fault.hint = "A command stands after two dashes: lode submit -- python fit.py."
        raise
    if data[:2] == b"#!":
        if other := foreign_file(data):
            raise other
        raise InvalidRequest(
            "is a script.", hint="A script is submitted by its name, alone: lode submit SCRIPT."
        )
    try:
        parsed = read_description(data, form=options.form, limits=ARRAY_LIMITS)
    except SyntaxFault as fault:
        is_named_so = Path(name).suffix.lower() in (".jdl", ".cfg", ".json")
        if options.form is None and not is_named_so and data.lstrip()[:1] not in (b"[", b"{"):
            fault.hint = f"{fault.hint} {_NO_DESCRIPTION}".lstrip()
        raise
    if parsed.record and not options.attributes:  # an empty one may have a class by an option
        read_job(parsed.record, parsed.positions, ignore_unknown=options.ignore_unknown, whole=False)
    base = Path() if name == _STDIN else Path(name).parent
    inputs, text = _pick_files(options.taken), data.decode("utf-8-sig")
    return _Draft(label=label_of(name), parsed=parsed, text=text, base=base, taken=inputs)


def _pick_files(words: Iterable[str]) -> Mapping[str, Taken]:
    picker = FilePicker()
    for word in words:
        picker.add_word(word)
    return picker.inputs()


def _from_words(options: DescriptionOptions) -> _Draft:
    from lodesman.languages.jobs import ParsedRecord, by_name
    from lodesman.languages.jobs.members import has_placeholder
    from lodesman.languages.jobs.record import NO_POSITIONS

    if not options.command:
        nothing = ParsedRecord(record={}, positions=NO_POSITIONS, form="jdl")
        return _Draft(label=f"class {options.job_class}", parsed=nothing, taken=_pick_files(options.taken))
    if not options.script:
        note_unread(options.command)
    program, picker = pick(options.command, options.script, options.taken, named_only=options.named_only)
    if options.script and not options.named_only:
        folder = Path() if options.piped else Path(options.script).parent
        note_left_behind(options.script, folder, picker, options.keep)
    record: Record = {"JobName": PurePosixPath(program).name, "Executable": program}
    if len(options.command) > 1:
        record["Arguments"] = list(options.command[1:])
    record = with_interpreter(record, interpreter=options.interpreter, literal=options.literal)
    if (
        "Parameters" in options.attributes
        and not options.literal
        and any(map(has_placeholder, options.command[1:]))
    ):
        note("In an array %s in the command is the index or line of each job, and %% is a percent sign.")
    parsed = ParsedRecord(record=record, positions=NO_POSITIONS, form="jdl")
    is_named = any(
        attribute is not None and attribute.name == "JobName"
        for attribute in map(by_name, options.attributes)
    )
    return _Draft(label=program, parsed=parsed, taken=picker.inputs(), usual_name=not is_named)


def _with_options(draft: _Draft, options: DescriptionOptions) -> Record:
    """The same object if the options say nothing."""
    from lodesman.languages.jobs.attributes import overlay

    attributes = dict(options.attributes)
    if options.keep:
        attributes["OutputSandbox"] = list(options.keep)
    record = overlay(draft.parsed.record, attributes)
    if draft.taken:
        entries: Any = next((value for name, value in record.items() if name.lower() == "inputsandbox"), [])
        others = entries if isinstance(entries, list) else [entries]
        record = overlay(record, {"InputSandbox": joined_inputs(others, draft.taken, draft.base)})
    return record


def _prepare(draft: _Draft, options: DescriptionOptions, request: ClientRequest) -> ReadyFile:
    from lodesman.languages.jobs import (
        ARRAY_LIMITS,
        input_names,
        list_programs,
        locate,
        read_description,
        read_job,
        write_description,
    )
    from lodesman.languages.jobs.record import NO_POSITIONS

    parsed = draft.parsed
    sent = request.apply(_with_options(draft, options), draft.label, hold=options.hold)
    record, writers = sent.record, sent.writers
    text, places, as_written = draft.text, parsed.positions, bool(draft.text) and record is parsed.record
    if not as_written:
        text, places = write_description(record, parsed.form), NO_POSITIONS
        record = read_description(text.encode(), form=parsed.form, limits=ARRAY_LIMITS).record
    try:
        description = read_job(record, places, ignore_unknown=options.ignore_unknown, whole=False)
    except InvalidJob as wrong:
        name_client_jsv(wrong, writers)
        raise
    try:
        names = input_names(description.spec, description.members)
        inputs = {
            name: draft.taken[name] if name in draft.taken else _find_input(name, draft.base)
            for name in names
        }
        programs = list_programs(description.spec, description.members)
        check_programs(programs, inputs, piped=options.piped)
    except LodesmanError as fault:
        locate(fault, places)
        raise
    if left := program_left(programs, inputs, draft.base):
        note(f"{draft.label}: warning: {left}")
    body = SubmitBody(
        text=text, form=parsed.form, group=options.group, hold=sent.hold,
        hold_if_impossible=options.hold_if_impossible, ignore_unknown=options.ignore_unknown, client_jsv=dict(writers),
        edits=list(sent.edits), usual_name=draft.usual_name and "N" not in writers,
    )  # fmt: skip
    return ReadyFile(label=draft.label, body=body, inputs=inputs, as_written=as_written)


def _find_input(name: str, base: Path) -> Taken:
    path = base / name
    if path.is_dir() and name.endswith("/"):
        return whole_folder(path)
    if path.is_file() and not name.endswith("/"):
        return path
    if path.is_dir():
        problem = "is a directory"
        hint = f'Write it with a slash, "{name}/", to take it along whole.'
    elif path.exists():
        problem, hint = "is not a plain file", "Only plain files and folders can be sent."
    else:
        problem, hint = "does not exist", "Paths are relative to the directory of the description."
        hint += " No ~ and no variable is read in them." if name[0] == "~" or "$" in name else ""
    raise InvalidJob(f"InputSandbox: {path} {problem}.", hint=hint, attribute="InputSandbox")


def warn(label: str, notices: Iterable[Notice], *, as_written: bool = True) -> None:
    """Print what is odd about a description."""
    for notice in notices:
        place = f":{notice.line}:{notice.column}" if notice.line and as_written else ""
        note(plain(f"{label}{place}: warning: {notice.message}"))
